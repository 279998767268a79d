"""`Study`: a bandit, what to play on it and what to bound it with, as data."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from irsppl._checks import as_count
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief
from irsppl.penalties import Penalty, find_penalty
from irsppl.policies import Policy
from irsppl.simulate import name_policies
from irsppl.studies.arms import parse_arms


@dataclasses.dataclass(frozen=True)
class Study:
    """What is simulated and bounded; `run_study` makes of it a table, a figure and a data file.

    name: also the folder of its results. arms: texts such as `"beta(3,1)"` or
    `"normal(0,1,noise=1)x10"` (see `parse_arms`), or any belief. horizon: that of the table.
    policies: names, or `{label: policy}` with policies or functions. penalties: names. horizons:
    those of the figure (the table's is added). figure_replications: at most so many at the
    figure's other horizons, where a curve needs less precision than a table. outcome: a future
    written by hand, `{"means": [K], "rewards": [K, T]}`, whose inner problems are solved too.
    options: further arguments of `Bandit`. paper: the key of printed figures to compare with.
    left_out: what this version cannot play yet.
    """

    name: str
    title: str
    arms: str | Sequence[str] | Belief
    horizon: int
    policies: Sequence[Any] | Mapping[str, Any] = ("ts",)
    penalties: Sequence[Any] = ("ts",)
    horizons: Sequence[int] = ()
    replications: int = 20_000
    figure_replications: int | None = None
    outcome: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    paper: str | None = None
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(
                f"name must be letters, digits or _.+- (it names a folder), got {self.name!r}"
            )
        as_count("horizon", self.horizon)
        for horizon in self.horizons:
            as_count("horizons", horizon)
        as_count("replications", self.replications)
        if self.figure_replications is not None:
            as_count("figure_replications", self.figure_replications, minimum=2)

    def belief(self) -> Belief:
        return self.arms if isinstance(self.arms, Belief) else parse_arms(self.arms)

    def bandit(self, horizon: int | None = None) -> Bandit:
        """The bandit of the table, or the same with another horizon."""
        return Bandit(self.belief(), horizon or self.horizon, **self.options)

    def all_horizons(self) -> list[int]:
        return sorted({*map(int, self.horizons), int(self.horizon)})

    def named_policies(self) -> dict[str, Policy]:
        return name_policies(self.policies) if self.policies else {}

    def named_penalties(self) -> dict[str, Penalty]:
        return {penalty.label: penalty for penalty in map(find_penalty, self.penalties)}

    def definition(self) -> dict[str, Any]:
        """All that the numbers depend on, in a form that JSON keeps."""
        arms: Any = [self.arms] if isinstance(self.arms, str) else self.arms
        arms = _told(arms) if isinstance(arms, Belief) else list(arms)
        return {
            "name": self.name,
            "arms": arms,
            "horizon": int(self.horizon),
            "options": {name: _told(value) for name, value in sorted(self.options.items())},
            "policies": {label: _told(policy) for label, policy in self._policy_items()},
            "penalties": {name: _told(p) for name, p in self.named_penalties().items()},
        }

    def _policy_items(self) -> list[tuple[str, Any]]:
        """(label, as its author wrote it): a function's text tells more than its wrapper."""
        if isinstance(self.policies, Mapping):
            return [(str(label), policy) for label, policy in self.policies.items()]
        return list(zip(self.named_policies(), self.policies, strict=True))


def _told(value: Any) -> str:
    """A text that changes when the value does."""
    if isinstance(value, str | bool | int | float | None):
        return str(value)
    if inspect.isfunction(value):
        return _source(value)
    arrays = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array | np.ndarray)]
    functions = sorted(_source(function) for function in _functions(value, []))
    if not arrays and not functions:
        return repr(value)
    digest = hashlib.sha256("\n".join(functions).encode())
    for array in arrays:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        host = np.asarray(array)
        digest.update(f"{host.dtype}{host.shape}".encode() + host.tobytes())
    return f"{type(value).__name__} {digest.hexdigest()[:16]}"


def _source(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except OSError:
        return f"function {function.__qualname__}"


def _functions(value: Any, seen: list[Any]) -> Iterator[Any]:
    """Functions held by a value, such as the user's model in a belief made of it."""
    if inspect.isfunction(value):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _functions(part, seen)
    elif isinstance(value, Mapping):
        yield from _functions(list(value.values()), seen)
    elif dataclasses.is_dataclass(value) and not any(value is other for other in seen):
        seen.append(value)
        fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        yield from _functions(fields, seen)
