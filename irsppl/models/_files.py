"""Files that hold arm models, as the command line takes them."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What a model file says. One function per arm, unless `joint` or shared by `num_arms`."""

    functions: list[Callable[..., Any]]
    joint: bool
    num_arms: int
    values: list[float] | None
    mean: Any
    labels: list[str] | None
    reward_site: str = "reward"


def load_model_file(path: str | pathlib.Path) -> LoadedModel:
    """The arm models in a Python file.

    The file defines `arms = [function, ...]`, or one or more functions with an argument `reward`
    (names that start with an underscore are left alone). Optional names beside them:
    `num_arms = N` (one function shared by N arms; needed for a joint model), `joint = True` (taken
    for granted when the function has an argument `arm`), `values = [...]` (rewards of the
    categories), `mean = ...`, `labels = [...]` (one per arm), `reward_site = "..."`.
    """
    path = pathlib.Path(path)
    module = run_file(path)
    say = f"model file {path}: "
    reward_site = getattr(module, "reward_site", "reward")

    functions = getattr(module, "arms", None)
    if functions is None:
        functions = [
            value
            for name, value in vars(module).items()
            if not name.startswith("_")
            # A handler used as a decorator leaves an object that wraps the function.
            and (inspect.isfunction(value) or hasattr(value, "__wrapped__"))
            and getattr(value, "__module__", None) == module.__name__
            and name != "mean"
            and _takes(value, "reward", reward_site)
        ]
        if not functions:
            raise ValueError(
                say + "no arm found; define arms = [function, ...] or a function with an argument "
                "`reward`, such as `def arm(reward=None): ...`"
            )
    elif callable(functions):
        functions = [functions]
    if not isinstance(functions, (list, tuple)) or not all(callable(f) for f in functions):
        raise ValueError(say + f"arms must be a list of functions, got {functions!r}")
    functions = list(functions)
    if not functions:
        raise ValueError(say + "arms is empty")

    joint = bool(getattr(module, "joint", any(_takes(f, "arm") for f in functions)))
    num_arms = getattr(module, "num_arms", None)
    if num_arms is not None and (
        isinstance(num_arms, bool) or not isinstance(num_arms, int) or num_arms < 1
    ):
        raise ValueError(say + f"num_arms must be a whole number of at least 1, got {num_arms!r}")
    if joint and len(functions) > 1:
        raise ValueError(
            say + f"a joint model is one function of (arm, reward), found {len(functions)}: "
            f"{', '.join(_name(f) for f in functions)}; start the names of helpers with _"
        )
    labels = getattr(module, "labels", None)
    if len(functions) == 1:
        if num_arms is None and labels is not None:
            num_arms = len(labels)
        if num_arms is None and hasattr(module, "arms"):
            num_arms = 1
        if num_arms is None:
            raise ValueError(
                say
                + f"how many arms are there? Define num_arms = N beside {_name(functions[0])}"
                + ("" if joint else ", or arms = [...] with one function per arm")
            )
    elif num_arms not in (None, len(functions)):
        raise ValueError(
            say + f"num_arms = {num_arms}, but there are {len(functions)} arm functions: "
            f"{', '.join(_name(f) for f in functions)}"
        )
    else:
        num_arms = len(functions)
    if labels is not None:
        labels = [str(label) for label in labels]
        if len(labels) != num_arms:
            raise ValueError(
                say + f"labels must have one entry per arm: {num_arms} arms, {len(labels)} labels"
            )
    values = getattr(module, "values", None)
    if values is not None:
        values = np.asarray(values, dtype=float).tolist()
    return LoadedModel(
        functions, joint, num_arms, values, getattr(module, "mean", None), labels, reward_site
    )


def run_file(path: pathlib.Path) -> Any:
    """The module that a user's file makes."""
    if not path.is_file():
        raise ValueError(f"model file {path} does not exist")
    if path.suffix != ".py":
        raise ValueError(f"model file {path} must be a Python file (.py)")
    name = f"_irsppl_model_{next(_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs, as dataclasses and pickling expect; files in its folder importable.
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        # Not by the loader: its bytecode is out of date where a file changes twice in a second.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise ValueError(
            f"model file {path} could not be run: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _takes(function: Any, *names: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return any(name in parameters for name in names)


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))
