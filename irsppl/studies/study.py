"""`Study`: a bandit, what to play on it and what to bound it with, as data."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from irsppl._checks import as_count
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief
from irsppl.penalties import Relaxation, find_penalty
from irsppl.policies import Policy
from irsppl.simulation import name_policies
from irsppl.studies.arms import check_arms, parse_arms
from irsppl.studies.identity import described


@dataclasses.dataclass(frozen=True)
class Study:
    """What is simulated and bounded; `run_study` makes of it a table, a figure and a data file.

    name: also the folder of its results. arms: texts such as `"beta(3,1)"` or
    `"normal(0,1,noise=1)x10"` (see `parse_arms`), or any belief. horizon: that of the table; as in
    `Bandit` also the law of an unknown one, or None where a budget in `options` ends play.
    policies: names, or `{label: policy}` with policies or functions. penalties: names; one that
    gives no bound for such a bandit is left out of the bounds, with a warning. horizons:
    those of the figure (the table's is added). figure_replications: at most so many at the
    figure's other horizons, where a curve needs less precision than a table. outcome: a future
    written by hand, `{"means": [K], "rewards": [K, T]}`, whose inner problems are solved too.
    options: further arguments of `Bandit` (delay, costs, budget, labels). paper: the key of printed
    figures to compare with. left_out: what this version cannot play yet.
    """

    name: str
    title: str
    arms: str | Sequence[str] | Belief
    horizon: Any
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
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w.+-]{0,99}", self.name):
            raise ValueError(
                "name must be letters, digits or _.+-, a letter or digit first, at most 100 (it "
                f"names a folder), got {self.name!r}"
            )
        if not isinstance(self.arms, Belief):
            check_arms(self.arms)
        if not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a mapping, got {self.options!r}")
        known = [n for n in inspect.signature(Bandit).parameters if n not in ("belief", "horizon")]
        for name in self.options:
            if name not in known:
                hint = "; give it as horizon=" if name == "horizon" else ""
                raise ValueError(
                    f"options must be arguments of Bandit ({', '.join(known)}), got {name!r}{hint}"
                )
        if self._counted:
            as_count("horizon", self.horizon)
        elif len(self.horizons):
            raise ValueError(
                "horizons must be empty where the horizon is not a number of periods: a figure "
                "against the horizon needs known ones"
            )
        for horizon in self.horizons:
            as_count("horizons", horizon)
        as_count("replications", self.replications)
        if self.figure_replications is not None:
            as_count("figure_replications", self.figure_replications, minimum=2)

    @property
    def _counted(self) -> bool:
        """Whether the horizon is (meant as) a number: not a law, nor left to a budget."""
        if self.horizon is None:
            return "budget" not in self.options
        law = isinstance(self.horizon, Distribution) or np.ndim(self.horizon) == 1
        return not law

    @property
    def periods(self) -> int:
        """Periods of the table's bandit: its horizon, or the most that a law or budget allows."""
        return int(self.horizon) if self._counted else self.bandit().horizon

    def horizon_text(self) -> str:
        if self._counted:
            return f"horizon {self.horizon}"
        ends = "the budget lasts" if self.horizon is None else "nobody knows"
        return f"as long as {ends}, at most {self.periods} periods"

    def belief(self) -> Belief:
        return self.arms if isinstance(self.arms, Belief) else parse_arms(self.arms)

    def bandit(self, horizon: int | None = None) -> Bandit:
        """The bandit of the table, or the same with another horizon."""
        given = self.horizon if horizon is None or not self._counted else horizon
        return Bandit(self.belief(), given, **self.options)

    def all_horizons(self) -> list[int]:
        return sorted({*map(int, self.horizons), self.periods})

    def named_policies(self) -> dict[str, Policy]:
        return name_policies(self.policies) if self.policies else {}

    def named_penalties(self) -> dict[str, Relaxation]:
        given = self.penalties
        several = [given] if isinstance(given, str | Relaxation) else given
        return {penalty.label: penalty for penalty in map(find_penalty, several)}

    def definition(self) -> dict[str, Any]:
        """All that the numbers depend on, in a form that JSON keeps."""
        arms: Any = [self.arms] if isinstance(self.arms, str) else self.arms
        arms = described(arms) if isinstance(arms, Belief) else list(arms)
        return {
            "name": self.name,
            "arms": arms,
            "horizon": int(self.horizon) if self._counted else described(self.horizon),
            "options": {name: described(value) for name, value in sorted(self.options.items())},
            "policies": {label: described(policy) for label, policy in self._policy_items()},
            "penalties": {name: described(p) for name, p in self.named_penalties().items()},
        }

    def _policy_items(self) -> list[tuple[str, Any]]:
        """(label, as its author wrote it): a function's text tells more than its wrapper."""
        if isinstance(self.policies, Mapping):
            return [(str(label), policy) for label, policy in self.policies.items()]
        if isinstance(self.policies, str | Policy):
            return list(zip(self.named_policies(), [self.policies], strict=True))
        return list(zip(self.named_policies(), self.policies, strict=True))
