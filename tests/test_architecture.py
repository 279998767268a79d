"""The rooms of the house: imports point one way, plots know no JAX, importing is quick."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "irsppl"
# From left to right; a module imports only from its own room or from rooms before it.
ROOMS = [
    "_xla_cache",
    "_xla_options",
    "_checks",
    "_fields",
    "_progress",
    "_settings",
    "_running",
    "_cluster",
    "_html",
    "_text",
    "outcomes",
    "inner",
    "models",
    "beliefs",
    "constraints",
    "horizons",
    "delays",
    "budgets",
    "bandit",
    "penalties",
    "policies",
    "engine",
    "results",
    "_workers",
    "futures",
    "simulation",
    "bounds",
    "certificates",
    "plots",
    "studies",
    "shipped",
    "live",
    "cli",
    "__main__",
]


def room(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path):
    """Every module that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from irsppl import plots` is of a module; other names are not modules.
            own = [f"irsppl.{alias.name}" for alias in node.names if node.module == "irsppl"]
            yield from [name for name in own if room(name) in ROOMS] or [node.module]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    own = room(".".join(["irsppl", *path.relative_to(PACKAGE).with_suffix("").parts]))
    assert own in ROOMS, f"{own} is not a known room: add it to ROOMS where it belongs"
    for name in imports(path):
        if name.split(".")[0] != "irsppl" or name == "irsppl":
            continue
        assert ROOMS.index(room(name)) <= ROOMS.index(own), f"{path.name} imports {name}"


def private(source, own):
    """Underscore modules of other rooms that a file of the room `own` imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split(".")
            file = PACKAGE.joinpath(*parts).with_suffix(".py")
            if package == "irsppl" and parts and room(name) != own and file.exists():
                yield from [name] if any(part.startswith("_") for part in parts[1:]) else []


def test_rooms_take_from_others_what_is_handed_out():
    """By the room's `__init__`, or in modules without an underscore; irsppl/_*.py are for all."""
    source = "from irsppl._checks import host64\nfrom irsppl.beliefs import Belief, _points"
    assert list(private(source, "engine")) == ["irsppl.beliefs._points"]
    assert not list(private(source, "beliefs"))
    for path in FILES:
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert not list(private(path.read_text(), own)), path


SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "examples", "models")
    for path in (PACKAGE.parent / folder).glob("*.py")
)


def missing(source):
    """What a script takes from irsppl that is not there; the script itself is not run."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            wanted = [(node.value.id, node.attr)]
        else:
            continue
        for module, name in wanted:
            if module.split(".")[0] != "irsppl":
                continue
            try:
                found = importlib.import_module(module)
                if name and not hasattr(found, name):  # a module may have to be imported first
                    importlib.import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                yield f"{module}.{name}" if name else module


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_scripts_import_what_there_is(path):
    """Benchmarks take hours and run rarely: that one cannot start would not be seen for long."""
    assert not list(missing(path.read_text()))


def test_an_import_of_what_is_gone_is_seen():
    source = "import irsppl.gone\nfrom irsppl.bounds import bound, gone\nirsppl.bound, irsppl.gone"
    assert list(missing(source)) == ["irsppl.gone", "irsppl.bounds.gone", "irsppl.gone"]
    assert not list(missing("from irsppl import engine\nfrom irsppl.engine import dispatch"))


def test_inner_solvers_know_nothing_of_bandits():
    for path in (PACKAGE / "inner").rglob("*.py"):
        ours = {name for name in imports(path) if name.startswith("irsppl")}
        assert all(name.startswith("irsppl.inner") for name in ours), path


def test_plots_never_import_jax():
    names = set(imports(PACKAGE / "plots.py"))
    assert not any(name.split(".")[0] in ("jax", "equinox") for name in names)


def test_nothing_slow_at_import():
    """Plotting, statistics and MCMC libraries are not loaded before they are needed."""
    code = "import irsppl, sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert not loaded & {
        "matplotlib",
        "scipy.stats",
        "arviz",
        "blackjax",
        "numpyro",
        "tqdm",
        "sqlalchemy",
    }


def test_importing_sets_no_global_flag():
    code = (
        "import jax; before = dict(jax.config.values)\n"
        "import irsppl; after = dict(jax.config.values)\n"
        "assert before == after, [k for k in after if before.get(k) != after[k]]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_that_users_reach_for_are_attributes():
    """In a fresh process each: another import would hide that one is missing."""
    code = (
        "import irsppl\n"
        "names = [n for n in dir(irsppl) if not n.startswith('_')]\n"
        "assert {'bounds', 'plots', 'policies', 'studies', 'Experiment'} <= set(names)\n"
        "assert all(hasattr(irsppl, n) for n in names)\n"
        "assert irsppl.policies.from_agent and callable(irsppl.simulate)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
