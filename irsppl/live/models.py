"""The users' NumPyro models behind an experiment: which file, which functions, unchanged or not.

Code in the database is for the record. What runs is the file that the user names when opening.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from irsppl.beliefs import ArmModel
from irsppl.live.codec import unpack


def describe(models: Sequence[ArmModel]) -> dict[str, Any] | None:
    """What an experiment writes down of its models; None where there are none."""
    if not models:
        return None
    functions, files = [], set()
    for model in models:
        given = model.given()
        mean, values = given.mean, given.values
        files |= {_file_of(one) for one in (given.function, mean) if callable(one)}
        functions.append(
            {
                "function": given.function.__name__,
                "joint": model.joint,
                "num_arms": model.num_arms,
                "reward_site": given.reward_site,
                "values": None if values is None else np.asarray(values).tolist(),
                "mean": mean.__name__ if callable(mean) else mean,
                "mean_is_function": callable(mean),
            }
        )
    if len(files) > 1:
        names = ", ".join(sorted(map(str, files)))
        raise ValueError(f"an experiment's arm models must be in one file, found {names}")
    path = files.pop()
    source = path.read_text()
    return {"path": str(path), "source": source, "sha256": digest(source), "functions": functions}


def _file_of(function: Callable[..., Any]) -> pathlib.Path:
    name = getattr(function, "__qualname__", repr(function))
    try:
        found = inspect.getsourcefile(function)
    except TypeError:
        found = None
    if found is None or "." in name or "<" in name or not pathlib.Path(found).is_file():
        raise ValueError(
            f"an arm model of an experiment must be a function at the top level of a file, so that "
            f"it can be found again when the experiment is opened; {name} is not"
        )
    return pathlib.Path(found).resolve()


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def changes(description: dict[str, Any], path: pathlib.Path) -> str | None:
    """What differs between the file and the one the experiment was created with, or None."""
    source = path.read_text()
    if digest(source) == description["sha256"]:
        return None
    then, now = description["source"].splitlines(), source.splitlines()
    lines = difflib.unified_diff(then, now, lineterm="", n=0)
    shown = [line for line in lines if not line.startswith(("---", "+++"))]
    return "\n".join(shown[:12] + ["..."] * (len(shown) > 12))


def bring(
    description: dict[str, Any] | None, model: Any, accept_changed: bool
) -> tuple[list[ArmModel], dict[str, Any] | None]:
    """The models again, from the user's file; and the new description where it has changed."""
    if description is None:
        if model is not None or accept_changed:
            given = "accept_changed_model=True" if model is None else f"model={str(model)!r}"
            raise ValueError(
                f"{given} would change nothing: this experiment's arms are kept as numbers (also "
                "those of a model file that is read as conjugate or linear Gaussian). Leave model= "
                "and accept_changed_model= out; another prior needs another experiment"
            )
        return [], None
    from irsppl.models import run_file

    names = ", ".join(one["function"] for one in description["functions"])
    if model is None:
        raise ValueError(
            f"this experiment's arms are NumPyro functions ({names} in {description['path']}): "
            "give model= that file; code in the database is never run"
        )
    path = pathlib.Path(model)
    if not path.is_file():
        raise ValueError(f"model must be the file with {names}, got {str(model)!r}: no such file")
    changed = changes(description, path)
    if changed is not None and not accept_changed:
        raise ValueError(
            f"model {path} is not what the experiment was created with:\n{changed}\n"
            "Give accept_changed_model=True to go on with the changed file"
        )
    found = read(run_file(path), path, description["functions"])
    if changed is None:
        return found, None
    source = path.read_text()
    new = description | {"path": str(path.resolve()), "source": source, "sha256": digest(source)}
    return found, new


def read(module: Any, path: Any, functions: Sequence[dict[str, Any]]) -> list[ArmModel]:
    """The described models from a file that has been run."""
    from irsppl.models import read_arm

    found = []
    for one in functions:
        mean = one["mean"]
        function = getattr(module, one["function"], None)
        if mean is not None and one["mean_is_function"]:
            mean = getattr(module, mean, None)
        if function is None or (one["mean"] is not None and mean is None):
            raise ValueError(f"model {path} has no function {one['function']}")
        options = {name: one[name] for name in ("joint", "reward_site", "values")}
        num_arms = one["num_arms"] if one["joint"] else None
        found.append(read_arm(function, num_arms=num_arms, mean=mean, **options))
    return found


class Library:
    """The models that records of an experiment refer to by number; arms that are added bring more.

    description: what the experiment has written down of its file; changed: whether it was agreed
    that the file may differ, so that priors are made anew.
    """

    def __init__(
        self,
        known: Sequence[ArmModel] = (),
        description: dict[str, Any] | None = None,
        path: Any = None,
        changed: bool = False,
    ):
        self.known, self.description = list(known), description
        self.path, self.changed = path, changed

    def described(self, fresh: Sequence[ArmModel]) -> list[dict[str, Any]]:
        """What an added arm writes down of its models; they must be in the experiment's file."""
        made = describe(fresh)
        if made is None:
            return []
        if self.description is None or made["sha256"] != self.description["sha256"]:
            raise ValueError(
                f"an arm that is added must be a function in the experiment's own file, got one of "
                f"{made['path']}"
            )
        return made["functions"]

    def learn(self, body: dict[str, Any]) -> None:
        """Read the models that an added arm has brought, once."""
        from irsppl.models import run_file

        missing = body.get("functions", [])[len(self.known) - body.get("first", 0) :]
        if not missing:
            return
        if self.description is None or self.path is None:
            raise ValueError("an added arm needs the user's NumPyro model again: give model=")
        path = pathlib.Path(self.path)
        if not self.changed and digest(path.read_text()) != self.description["sha256"]:
            raise ValueError(f"model {path} has changed while the experiment was open")
        self.known += read(run_file(path), path, missing)

    def unpack_arm(self, body: dict[str, Any]) -> Any:
        """The belief of an added arm."""
        self.learn(body)
        belief = unpack(bytes.fromhex(body["belief"]), self.known, "an added arm")
        return rebuilt(belief, belief.models) if self.changed and "functions" in body else belief


def rebuilt(belief: Any, models: Sequence[ArmModel]) -> Any:
    """The same representation of a prior, made anew from changed models."""
    from irsppl.beliefs import JointPoints, joint_enumeration
    from irsppl.beliefs.enumeration import enumeration
    from irsppl.beliefs.particles import JointParticles, Particles
    from irsppl.beliefs.quadrature import Quadrature

    if isinstance(belief, JointParticles):
        return JointParticles(models[0], belief.num_points, jax.random.key(0), belief.reason)
    if isinstance(belief, JointPoints):
        return joint_enumeration(models[0], belief.reason)
    if isinstance(belief, Particles):
        key = jax.random.key(0)
        return Particles(models, belief.groups, belief.num_points, key, belief.reason)
    if belief.kind == "quadrature":
        return Quadrature(models, belief.groups, belief.num_points, belief.reason)
    return enumeration(models, belief.groups, belief.reason)
