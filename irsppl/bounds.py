"""Upper bounds on what any policy can earn, and their standard errors."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irsppl._checks import MOST_FUTURES, as_count, as_key, check_run, is_listing, side_key
from irsppl._cluster import check_client, spread
from irsppl._fields import changed
from irsppl._running import RunningMean
from irsppl._workers import run_chunks, threads_for
from irsppl.bandit import Bandit, check_bandit
from irsppl.beliefs import Cloud, InKernels, Upkeep
from irsppl.futures import chunks, draw_outcomes, outcome_keys, warn_of_tails
from irsppl.outcomes import Outcome, blocks, prefix
from irsppl.penalties import Inner, Penalty, Relaxation, find_penalty
from irsppl.penalties.base import MOST_QUADRATURES, Column, exact_max_after, find_evaluator
from irsppl.penalties.brief import TOWER, brief_serves, brief_values
from irsppl.penalties.control_variates import mean_controls, set_controls
from irsppl.results import finite_result

# Path values with known means that steady the sampled bounds, most useful first.
CONTROLS = ("irs.ff", "irs.fh", "ts")
_PILOT = 1000
# Drawing so many rewards takes some twenty minutes on a small machine.
MOST_REWARDS = 10**11


@eqx.filter_jit
def _inner(penalty: Penalty, bandit: Bandit, outcome: Outcome) -> Inner:
    return penalty.inner(bandit, outcome)


def solve_inner(bandit: Bandit, penalty: Any, outcome: Outcome) -> Inner:
    """The best a clairvoyant can do who knows `outcome` and pays the penalty.

    `.value`, `.action` (first arm to pull; -1 = stop), `.pulls [K]`, `.sequence [T]` where order
    matters. The outcome may be written by hand: `Outcome(means=[K], rewards=[K, T])`.
    """
    check_bandit(bandit)
    penalty = find_penalty(penalty)
    if not isinstance(outcome, Outcome):
        raise ValueError(f"outcome must be an irsppl.Outcome, got {outcome!r}")
    if outcome.means.ndim != 1:
        raise ValueError(
            f"outcome must be one future, means [K] and rewards [K, N], got {outcome!r}"
        )
    if outcome.num_arms != bandit.num_arms:
        raise ValueError(f"outcome has {outcome.num_arms} arms, the bandit {bandit.num_arms}")
    bandit.check_open()
    needed = int(bandit.remaining)
    if bandit.pending:
        needed += int(np.max(np.asarray(bandit.pending_counts)))
    have = outcome.rewards.shape[1]
    if have < needed:
        raise ValueError(
            f"outcome.rewards must hold at least {needed} rewards per arm (the horizon that "
            f"remains, and pending pulls), got {have}"
        )
    penalty.verify(bandit)
    if not isinstance(penalty, Penalty):
        raise ValueError(
            f"{penalty.name} relaxes something else than what is known of the future: it has no "
            f"inner problem. Use irsppl.bound(bandit, {penalty.name!r}) for its bound"
        )
    for constraint in bandit.limits:
        outcome = constraint.completed(outcome)
    if have > bandit.size:
        outcome = prefix(outcome, bandit.size)
    elif have < bandit.size:  # arrays keep the first horizon's size; the padding is never read
        padding = ((0, 0), (0, bandit.size - have))
        tables = {"rewards": outcome.rewards, "delays": outcome.delays}
        longer = {n: jnp.pad(t, padding, mode="edge") for n, t in tables.items() if t is not None}
        outcome = changed(outcome, **longer)
    bandit.belief.check_reward(np.arange(bandit.num_arms)[:, None], outcome.rewards)
    bandit.check_futures(outcome)
    solve = eqx.Partial(_inner, penalty) if penalty.traceable else penalty.inner
    inner = solve(bandit, outcome)
    finite_result(bandit, f"the inner problem of {penalty.label}", value=inner.value)
    return inner


@dataclasses.dataclass(frozen=True)
class Bound:
    """An estimate of W^z, at least the value of every policy.

    value, stderr (0.0 where exact); regret_bound = W^TS - W^z, at most the regret of every policy,
    and its standard error; samples: raw inner values [S] (None where exact), before the control
    variates that `value` uses. Beyond 5,000 periods those of irs.ff are unbiased estimates of inner
    values (see `penalties/brief.py`).
    """

    penalty: str
    value: float
    stderr: float
    regret_bound: float
    regret_stderr: float
    samples: np.ndarray | None = dataclasses.field(default=None, repr=False)
    # Computed from particles that data have moved: no longer a bound for the user's prior itself.
    approximate: bool = False
    # What the penalty settled on a pilot, on other futures than the estimate's.
    fitted: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return self.samples is None

    def __str__(self) -> str:
        accuracy = "exact" if self.exact else f"s.e. {self.stderr:.2g}"
        if self.approximate:
            accuracy += ", approximate"
        return f"{self.penalty}: {self.value:.6g} ({accuracy})"


class Bounds(dict[str, Bound]):
    """Bounds by penalty name; `.tightest` was picked on a pilot, so its estimate is honest."""

    def __init__(self, estimates: dict[str, Bound], picked: str):
        super().__init__(estimates)
        self.picked = picked

    @property
    def tightest(self) -> Bound:
        return self[self.picked]

    def __repr__(self) -> str:
        lines = [f"  {estimate}" for estimate in self.values()]
        return "\n".join(["Bounds:", *lines, f"  tightest: {self.picked}"])


def bound(
    bandit: Bandit,
    penalty: Any,
    key: Any = 0,
    num_samples: int = 20_000,
    *,
    progress: bool | None = None,
    workers: int | None = None,
    client: Any = None,
) -> Bound | Bounds:
    """Upper bound W^z on what any policy can earn in the periods that remain.

    penalty: a name, or several for a dict of bounds with `.tightest`. Without sampling error where
    an integral or a sum will do, in float64; otherwise the mean over `num_samples` futures, with
    control variates. Future number s is that of `simulate` with the same key. progress, workers,
    client: as in `simulate`; what needs no sampling is computed here in any case.
    """
    check_bandit(bandit)
    check_run(progress, workers)
    check_client(client)
    bandit.check_open()
    key = as_key(key)
    num_samples = as_count("num_samples", num_samples, 2, MOST_FUTURES)
    several = is_listing(penalty)
    named = {p.label: p for p in map(find_penalty, penalty if several else [penalty])}
    if not named:
        raise ValueError("penalty must name at least one penalty")
    for one in named.values():
        one.verify(bandit, as_bound=True)
    if isinstance(bandit.belief, Upkeep):
        bandit.belief.check_resolution(int(bandit.remaining))
    if int(bandit.remaining) < bandit.size and not bandit.pending:
        bandit = bandit.trimmed(min(bandit.size, _rounded(int(bandit.remaining))))
    exact = {name: value for name, p in named.items() if (value := p.exact(bandit)) is not None}
    benchmark = exact.get("ts", find_penalty("ts").exact(bandit))
    sampled = [p for name, p in named.items() if name not in exact]
    estimates: dict[str, Bound] = {}
    picked = next(iter(named))
    if sampled or benchmark is None:
        warn_of_tails(bandit)
        controls = _controls(bandit, sampled)
        sampled = [fit_penalty(bandit, p, key, controls) for p in sampled]
        run = Sampler(bandit, sampled, controls, benchmark, progress, workers, client)
        if several and len(named) > 1:
            # Picking the least of noisy estimates would bias it low: pick on other futures.
            pilot = run(jax.random.fold_in(key, 2), min(_PILOT, num_samples), exact)
            picked = min(pilot, key=lambda name: pilot[name].value)
        estimates = run(key, num_samples, exact)
    else:
        for name, value in exact.items():
            estimates[name] = Bound(name, value, 0.0, benchmark - value, 0.0)
        picked = min(estimates, key=lambda name: estimates[name].value)
    if bandit.end.beyond(int(bandit.period)) > 0:
        estimates = with_tail(bandit, estimates, key)
    for name, e in estimates.items():
        what = f"the bound {name}"
        finite_result(bandit, what, value=e.value, stderr=e.stderr, regret_bound=e.regret_bound)
    if isinstance(bandit.belief, Cloud) and bandit.belief.is_approximate:
        estimates = {n: dataclasses.replace(e, approximate=True) for n, e in estimates.items()}
    if not several:
        return estimates[next(iter(named))]
    return Bounds({name: estimates[name] for name in named}, picked)


def _rounded(periods: int) -> int:
    """At most a quarter more: as play goes on, few sizes of arrays and so few compilations."""
    step = 1 << max(periods.bit_length() - 3, 0)
    return -(-periods // step) * step


def with_tail(bandit: Bandit, estimates: dict[str, Bound], key: Any) -> dict[str, Bound]:
    """Bounds with what could be earned in the periods beyond those planned for, at the very most.

    The law of the horizon is cut where next to nothing is left; the best arm throughout bounds it.
    """
    best = exact_max_after(bandit, None)
    if best is None:
        best = float(np.asarray(draw_outcomes(bandit, key, 0, _PILOT).means).max(axis=1).mean())
    more = bandit.end.beyond(int(bandit.period)) * best
    return {n: dataclasses.replace(e, value=e.value + more) for n, e in estimates.items()}


def _controls(bandit: Bandit, sampled: list[Relaxation]) -> dict[str, float]:
    """Control variates with their exact means."""
    if all(p.plain for p in sampled):
        return {}
    means = {name: find_penalty(name).exact(bandit) for name in CONTROLS}
    return {name: value for name, value in means.items() if value is not None}


def fit_penalty(
    bandit: Bandit, penalty: Relaxation, key: Any, controls: dict[str, float]
) -> Relaxation:
    """The penalty with what it leaves open settled on a pilot, never on futures of the estimate."""
    pilot = side_key(key, "fit")
    return penalty.fitted(bandit, lambda at, n: draw_outcomes(bandit, pilot, at, n), controls)


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Inner values over futures, turned into estimates."""

    bandit: Bandit
    sampled: list[Relaxation]
    controls: dict[str, float]
    benchmark: float | None
    progress: bool | None
    workers: int | None
    client: Any = None

    def __call__(self, key: Any, count: int, exact: dict[str, float]) -> dict[str, Bound]:
        return self.estimates(self.values(key, count), exact)

    def values(self, key: Any, count: int, start: int = 0) -> dict[str, np.ndarray]:
        """Inner values of the penalties, and of what steadies them; blocks can be joined."""
        needed: list[Column] = [*self.sampled, *map(find_penalty, self.controls)]
        if self.benchmark is None:
            needed.append(find_penalty("ts"))
        within = set_controls(self.bandit)
        needed += [*within, *(find_penalty(control.of) for control in within)]
        if not self.controls:
            needed += mean_controls(self.bandit)
        title = ", ".join(p.label for p in self.sampled) or "ts"
        where: dict[str, Any] = {"workers": self.workers, "client": self.client}
        where |= {"progress": self.progress, "title": title, "start": start}
        return inner_values(self.bandit, needed, key, count, **where)

    def estimates(self, values: dict[str, np.ndarray], exact: dict[str, float]) -> dict[str, Bound]:
        """Bounds from inner values, and from those known exactly."""
        found = self.running_estimates([values], exact)
        for penalty in self.sampled:
            raw = values[penalty.label]
            found[penalty.label] = dataclasses.replace(found[penalty.label], samples=raw)
        return found

    def running_estimates(
        self, blocks: Iterable[dict[str, np.ndarray]], exact: dict[str, float]
    ) -> dict[str, Bound]:
        """The same from inner values that come block by block; without the samples themselves."""
        means = {penalty.label: RunningMean() for penalty in self.sampled}
        regrets = {name: RunningMean() for name in [*exact, *means]}
        for values in blocks:
            columns, saturating = self._columns(values)
            for penalty in self.sampled:
                steady = () if penalty.plain else (columns, saturating)
                means[penalty.label].add(values[penalty.label], *steady)
            if self.benchmark is None:
                for name, running in regrets.items():
                    lost = values["ts"] - exact.get(name, values.get(name))
                    running.add(lost, columns, saturating)
        reports = {penalty.label: penalty.report() for penalty in self.sampled}
        estimates: dict[str, Bound] = {}
        for name in regrets:
            mean, error = (exact[name], 0.0) if name in exact else means[name].mean_error()
            if self.benchmark is None:
                regret = regrets[name].mean_error()
            else:
                regret = self.benchmark - mean, error
            estimates[name] = Bound(name, mean, error, *regret, fitted=reports.get(name, {}))
        return estimates

    def _columns(self, values: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[bool]]:
        """Control variates, each of mean zero, and which of them saturate."""
        columns = [values[name] - mean for name, mean in self.controls.items()]
        within = set_controls(self.bandit)
        columns += [values[control.of] - values[control.label] for control in within]
        columns += [values[TOWER]] if TOWER in values else []
        if not self.controls:
            known = mean_controls(self.bandit)
            columns += [values[control.label] - mean for control, mean in known.items()]
        own = {n: m for p in self.sampled for n, m in p.steadied_by(self.bandit).items()}
        which = frozenset[str]().union(*(p.saturating() for p in self.sampled))
        saturating = [False] * len(columns) + [name in which for name in own]
        return columns + [values[name] - mean for name, mean in own.items()], saturating


def inner_values(
    bandit: Bandit,
    columns: Iterable[Column],
    key: Any,
    count: int,
    *,
    start: int = 0,
    progress: bool | None = False,
    title: str = "",
    workers: int | None = None,
    client: Any = None,
) -> dict[str, np.ndarray]:
    """[count] of futures number start, start + 1, ...: inner values of penalties, and controls."""
    needed = {column.label: column for column in columns}
    brief = brief_serves(bandit, needed)
    rewards = count * bandit.num_arms * bandit.horizon
    if not brief and rewards > MOST_REWARDS:
        most = MOST_REWARDS // (bandit.num_arms * bandit.horizon)
        raise ValueError(
            f"num_samples must be at most {most:,} for {bandit.num_arms} arms and a horizon of "
            f"{bandit.horizon:,}, got {count:,}: {rewards:.1e} rewards would have to be drawn. For "
            "long horizons irs.fh, irs.ff and irsppl.Mix(T0=200) draw fewer where the belief is "
            "conjugate; see docs/long-horizons.md"
        )
    solve = _Solve(bandit, needed, key, start, brief, workers)
    plan = chunks(bandit.trimmed(MOST_QUADRATURES) if brief else bandit, count)
    if client is None:
        parts = solve(plan, workers or os.cpu_count() or 1, progress, title)
    else:
        parts = spread(client, solve, plan, progress, title)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclasses.dataclass(frozen=True)
class _Solve:
    """All that the inner problems of many futures share; can be sent to another process.

    brief: for long horizons, from futures without their bulk (see `penalties/brief.py`).
    """

    bandit: Bandit
    needed: Mapping[str, Column]
    key: Any
    first: int
    brief: bool
    workers: int | None

    def __call__(
        self,
        plan: Sequence[tuple[int, int, int]],
        threads: int,
        progress: bool | None = False,
        title: str = "",
    ) -> list[dict[str, np.ndarray]]:
        """The inner values of each chunk of the plan."""
        across = threads_for(self.bandit, self._compiled, self.workers or threads)
        return run_chunks(self._draw, self._work, list(plan), progress, title, across)

    @property
    def _compiled(self) -> bool:
        """Whether CPU kernels do the work, drawing futures as well, not XLA."""
        if self.brief or self.bandit.constraints or self.bandit.pending:
            return False
        natural = isinstance(self.bandit.belief, InKernels)
        return natural and all(find_evaluator(c, self.bandit) for c in self.needed.values())

    def _batch(self, drawn: Outcome) -> dict[str, np.ndarray]:
        batches = [p.batch(self.bandit, drawn) for p in self.needed.values()]
        return {name: column for batch in batches for name, column in batch.items()}

    def _draw(self, start: int, stop: int, size: int) -> Any:
        if self.brief:
            return outcome_keys(self.key, self.first + start, size)
        return draw_outcomes(self.bandit, self.key, self.first + start, size)

    def _work(self, drawn: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        if self.brief:
            found = brief_values(self.bandit, self.needed, drawn)
        else:
            # Kernels take a few futures at a time; XLA would compile for each number of them.
            parts = list(map(self._batch, blocks(drawn) if self._compiled else [drawn]))
            found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {name: values[: stop - start] for name, values in found.items()}


def mean_error(samples: np.ndarray) -> tuple[float, float]:
    return float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(len(samples)))
