"""The arm models and examples that come with irsppl, by name.

In a checkout they are the folders `models/` and `examples/` beside the package; a wheel has them
inside it (see setup.py). They are files to copy from, never imported by irsppl itself.
"""

from __future__ import annotations

import ast
import json
import pathlib
from typing import Any

from irsppl._checks import one_of
from irsppl._text import text_table

# {folder in a checkout: folder in the installed package}
_INSTALLED = {"models": "zoo", "examples": "examples"}


def shipped(what: str) -> dict[str, pathlib.Path]:
    """{name: file} of the "models" or "examples"."""
    package = pathlib.Path(__file__).parent
    folder = package / _INSTALLED[one_of("folder", what, _INSTALLED)]
    if not folder.is_dir():
        folder = package.parent / what
        if not (package.parent / "pyproject.toml").is_file():  # some other package's folder
            return {}
    files = [*folder.glob("[a-z]*.py"), *folder.glob("*.ipynb")]
    return {path.stem: path for path in sorted(files)}


def find_model(model: str | pathlib.Path) -> pathlib.Path:
    """The file of a model given by its path, or by the name of one that comes with irsppl."""
    path = pathlib.Path(model)
    if path.is_file():
        return path
    if path.suffix == ".py" or len(path.parts) != 1:
        raise ValueError(f"there is no model file {path}")
    known = shipped("models")
    return known[one_of("model", str(model), known)]


def source(model: str) -> tuple[dict[str, Any], str]:
    """A model as JSON, and its text to copy from."""
    path = find_model(model)
    return {"file": str(path), "source": path.read_text()}, path.read_text()


def listing() -> tuple[dict[str, Any], str]:
    """All models and examples as JSON, and in words."""
    listed: dict[str, Any] = {}
    text = ""
    for what in _INSTALLED:
        files = shipped(what)
        listed[what] = {n: {"what": _headline(p), "file": str(p)} for n, p in files.items()}
        rows = [[name, each["what"]] for name, each in listed[what].items()]
        folder = next(iter(files.values())).parent if files else "nowhere"
        text += f"{what}, in {folder}\n\n{text_table([what[:-1], 'what it is'], rows)}\n"
    text += (
        "irsppl bound NAME --horizon 50 takes a model by its name, python FILE runs an example, "
        "jupyter lab FILE opens a notebook"
    )
    return listed, text


def _headline(path: pathlib.Path) -> str:
    """What a file says of itself in its first line."""
    if path.suffix == ".ipynb":
        first = json.loads(path.read_text())["cells"][0]["source"]
        return "".join(first).partition("\n")[0].strip("# ") + ", a notebook"
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0].strip()
