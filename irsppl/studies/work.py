"""How each piece of a study is made, from nothing but its name and what all pieces share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
import xarray as xr

from irsppl._checks import as_key
from irsppl.bandit import Bandit
from irsppl.bounds import CONTROLS, Sampler, fit_penalty
from irsppl.futures import chunks, draw_outcomes
from irsppl.outcomes import Outcome
from irsppl.penalties import Relaxation, find_penalty
from irsppl.policies import Policy
from irsppl.simulation import simulate
from irsppl.studies.one_stream import one_stream_outcomes

# Paths played to learn how long one takes.
_TIMED_PATHS = 128

Identity = tuple[Any, ...]  # (kind, label, horizon[, start, stop]): names a piece of work
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass
class Work:
    """What the pieces of a study share; `work(identity, threads)` makes one, in any process.

    first: replications in the first block. exact: bounds known without sampling (None: there is
    none), told as soon as those pieces are done. fitted: penalties settled on a pilot.
    """

    key: int
    bandits: dict[int, Bandit]
    policies: dict[str, Policy]
    penalties: dict[str, Relaxation]
    first: int = 0
    exact: dict[tuple[str, int], float | None] = dataclasses.field(default_factory=dict)
    fitted: dict[tuple[str, int], Relaxation] = dataclasses.field(default_factory=dict)
    one_stream: tuple[Any, Outcome] | None = None  # the futures of `_one_stream_futures` last drawn

    def __call__(self, identity: Identity, threads: int | None) -> Arrays:
        kind, *which = identity
        makers: dict[str, Callable[..., Arrays]] = {
            "exact": self._exact,
            "time": self._time,
            "policy": self._policy,
            "bound": self._bound,
            "one-stream-policy": self._one_stream_policy,
            "one-stream-bound": self._one_stream_bound,
        }
        return makers[kind](threads, *which)

    def settle(self, identities: Iterable[Identity]) -> None:
        """Fit what these pieces leave open, so that wherever they are made it is the same."""
        for kind, name, horizon, *_ in identities:
            if kind == "bound":
                self.sampler(name, horizon)

    def sampler(self, name: str, horizon: int, threads: int | None = None) -> Sampler:
        """What samples and estimates a bound that is not known exactly."""
        bandit, penalty = self.bandits[horizon], self.penalty(name)
        exact = {c: self.exact[c, horizon] for c in CONTROLS if not penalty.plain}
        controls = {c: value for c, value in exact.items() if value is not None}
        if (name, horizon) not in self.fitted:
            fitted = fit_penalty(bandit, penalty, as_key(self.key), controls)
            self.fitted[name, horizon] = fitted
        penalty, benchmark = self.fitted[name, horizon], self.exact["ts", horizon]
        return Sampler(bandit, [penalty], controls, benchmark, False, threads)

    def penalty(self, name: str) -> Relaxation:
        return self.penalties.get(name) or find_penalty(name)

    # ---- one for each kind
    def _exact(self, threads: int | None, name: str, horizon: int) -> Arrays:
        value = self.penalty(name).exact(self.bandits[horizon])
        return {"value": np.asarray(np.nan if value is None else value, np.float64)}

    def _policy(
        self,
        threads: int | None,
        label: str,
        horizon: int,
        start: int,
        stop: int,
        outcomes: Outcome | None = None,
    ) -> Arrays:
        count = stop - start
        data = self._simulate(label, horizon, count, threads, start=start, outcomes=outcomes)
        return {
            "value": data["value"].values[0],
            "regret": data["regret"].values[0],
            "pulls": data["pulls"].values.sum(axis=1)[0],
        }

    def _time(self, threads: int | None, label: str, horizon: int) -> Arrays:
        """Seconds that the decisions along one path take, on one thread."""
        # As many futures as a block draws at once: that program is compiled anyway.
        size = chunks(self.bandits[horizon], self.first)[0][2]
        drawn = draw_outcomes(self.bandits[horizon], as_key(self.key), 0, size)
        for paths in (_TIMED_PATHS, size):
            outcomes = jax.tree.map(lambda field, paths=paths: field[:paths], drawn)
            for _ in range(2):  # the first time compiles, and plans ahead
                begin = time.perf_counter()
                self._simulate(label, horizon, paths, 1, outcomes=outcomes)
                seconds = time.perf_counter() - begin
            if seconds > 0.2:  # long enough not to measure what a call costs in itself
                break
        return {"seconds": np.asarray(seconds / len(outcomes.means))}

    def _simulate(
        self, label: str, horizon: int, count: int, threads: int | None, **options: Any
    ) -> xr.Dataset:
        options = {"workers": threads, "progress": False, "steadied": False} | options
        policy = {label: self.policies[label]}
        return simulate(self.bandits[horizon], policy, self.key, count, **options)

    def _bound(self, threads: int | None, name: str, horizon: int, start: int, stop: int) -> Arrays:
        key = as_key(self.key)
        return self.sampler(name, horizon, threads).values(key, stop - start, start)

    def _one_stream_policy(
        self, threads: int | None, label: str, horizon: int, start: int, stop: int
    ) -> Arrays:
        futures = self._one_stream_futures(horizon, start, stop)
        return self._policy(threads, label, horizon, start, stop, futures)

    def _one_stream_bound(
        self, threads: int | None, name: str, horizon: int, start: int, stop: int
    ) -> Arrays:
        futures = self._one_stream_futures(horizon, start, stop)
        best, value = (self.penalty(n).values(self.bandits[horizon], futures) for n in ("ts", name))
        return {"regret_bound": best - value}

    def _one_stream_futures(self, horizon: int, start: int, stop: int) -> Outcome:
        wanted = (horizon, start, stop)
        if (
            self.one_stream is None or self.one_stream[0] != wanted
        ):  # all policies of a block share them
            belief = self.bandits[horizon].belief
            drawn = one_stream_outcomes(belief, horizon, self.key, start, stop - start)
            self.one_stream = wanted, drawn
        return self.one_stream[1]
