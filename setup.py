"""What pyproject.toml cannot say: models/ and examples/ travel inside the package."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["irsppl*"]), "irsppl.zoo", "irsppl.examples"],
    package_dir={"irsppl.zoo": "models", "irsppl.examples": "examples"},
)
