"""Upper bounds on what any policy can earn, and their standard errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import MOST_FUTURES, as_count, as_key, check_run, is_listing, side_key
from irsppl._workers import run_chunks, threads_for
from irsppl.bandit import Bandit, check_bandit
from irsppl.outcomes import Outcome, prefix
from irsppl.penalties import (
    MOST_QUADRATURES,
    TOWER,
    Inner,
    Penalty,
    brief_serves,
    brief_values,
    exact_max_after,
    find_penalty,
    mean_controls,
    set_controls,
)
from irsppl.results import finite_result
from irsppl.simulation import (
    chunks,
    draw_outcomes,
    outcome_keys,
)

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
    outcome = _completed(bandit, outcome)
    if have > bandit.size:
        outcome = prefix(outcome, bandit.size)
    elif have < bandit.size:  # arrays keep the first horizon's size; the padding is never read
        padding = ((0, 0), (0, bandit.size - have))
        rewards = jnp.pad(outcome.rewards, padding, mode="edge")
        outcome = eqx.tree_at(lambda o: o.rewards, outcome, rewards)
        if outcome.delays is not None:
            delays = jnp.pad(outcome.delays, padding, mode="edge")
            outcome = eqx.tree_at(lambda o: o.delays, outcome, delays)
    bandit.belief.check_reward(np.arange(bandit.num_arms)[:, None], outcome.rewards)
    solve = eqx.Partial(_inner, penalty) if penalty.traceable else penalty.inner
    inner = solve(bandit, outcome)
    finite_result(bandit, f"the inner problem of {penalty.label}", value=inner.value)
    return inner


def _completed(bandit: Bandit, outcome: Outcome) -> Outcome:
    """An outcome written by hand, with its delays; refused where something random is missing."""
    if bandit.survivor is not None and outcome.periods is None:
        raise ValueError(
            "outcome.periods must tell how long play goes on, because this bandit's horizon has a "
            "law: Outcome(means=..., rewards=..., periods=...)"
        )
    if bandit.delay is None or outcome.delays is not None:
        return outcome
    if bandit.delay.fixed is None:
        raise ValueError(
            "outcome.delays must go with outcome.rewards, because this bandit's delays are random: "
            "Outcome(means=..., rewards=..., delays=...)"
        )
    size = outcome.rewards.shape[1]
    delays = bandit.delay.sample(jax.random.key(0), jnp.zeros((bandit.num_arms, size), jnp.int32))
    return Outcome(outcome.means, outcome.rewards, outcome.belief, delays, outcome.periods)


@dataclasses.dataclass(frozen=True)
class Bound:
    """An estimate of W^z, at least the value of every policy.

    value, stderr (0.0 where exact); regret_bound = W^TS - W^z, at most the regret of every policy,
    and its standard error; samples: raw inner values [S] (None where exact), before the control
    variates that `value` uses. Beyond 5,000 periods those of irs.ff are unbiased estimates of inner
    values (see `penalties/_brief.py`).
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
        told = "exact" if self.exact else f"s.e. {self.stderr:.2g}"
        if self.approximate:
            told += ", approximate"
        return f"{self.penalty}: {self.value:.6g} ({told})"


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
) -> Bound | Bounds:
    """Upper bound W^z on what any policy can earn in the periods that remain.

    penalty: a name, or several for a dict of bounds with `.tightest`. Without sampling error where
    an integral or a sum will do, in float64; otherwise the mean over `num_samples` futures, with
    control variates. Future number s is that of `simulate` with the same key.
    """
    check_bandit(bandit)
    check_run(progress, workers)
    bandit.check_open()
    key = as_key(key)
    num_samples = as_count("num_samples", num_samples, 2, MOST_FUTURES)
    several = is_listing(penalty)
    named = {p.label: p for p in map(find_penalty, penalty if several else [penalty])}
    if not named:
        raise ValueError("penalty must name at least one penalty")
    for one in named.values():
        one.verify(bandit, as_bound=True)
    bandit.belief.check_resolution(int(bandit.remaining))
    if int(bandit.remaining) < bandit.size and not bandit.pending:
        bandit = bandit._shrunk(min(bandit.size, _rounded(int(bandit.remaining))))
    exact = {name: value for name, p in named.items() if (value := p.exact(bandit)) is not None}
    benchmark = exact.get("ts", find_penalty("ts").exact(bandit))
    sampled = [p for name, p in named.items() if name not in exact]
    estimates: dict[str, Bound] = {}
    picked = next(iter(named))
    if sampled or benchmark is None:
        controls = _controls(bandit, sampled)
        sampled = [fit_penalty(bandit, p, key, controls) for p in sampled]
        run = Sampler(bandit, sampled, controls, benchmark, progress, workers)
        if several and len(named) > 1:
            # Picking the least of noisy estimates would bias it low: pick on other futures.
            pilot = run(jax.random.fold_in(key, 2), min(_PILOT, num_samples), exact)
            picked = min(pilot, key=lambda name: pilot[name].value)
        estimates = run(key, num_samples, exact)
    else:
        for name, value in exact.items():
            estimates[name] = Bound(name, value, 0.0, benchmark - value, 0.0)
        picked = min(estimates, key=lambda name: estimates[name].value)
    if bandit.tail > 0:
        estimates = _with_tail(bandit, estimates, key)
    for name, e in estimates.items():
        told = f"the bound {name}"
        finite_result(bandit, told, value=e.value, stderr=e.stderr, regret_bound=e.regret_bound)
    if bandit.belief.is_approximate:
        estimates = {
            name: dataclasses.replace(estimate, approximate=True)
            for name, estimate in estimates.items()
        }
    if not several:
        return estimates[next(iter(named))]
    return Bounds({name: estimates[name] for name in named}, picked)


def _rounded(periods: int) -> int:
    """At most a quarter more: as play goes on, few sizes of arrays and so few compilations."""
    step = 1 << max(periods.bit_length() - 3, 0)
    return -(-periods // step) * step


def _with_tail(bandit: Bandit, estimates: dict[str, Bound], key: Any) -> dict[str, Bound]:
    """Bounds with what could be earned in the periods beyond those planned for, at the very most.

    The law of the horizon is cut where next to nothing is left; the best arm throughout bounds it.
    """
    best = exact_max_after(bandit, None)
    if best is None:
        best = float(np.asarray(draw_outcomes(bandit, key, 0, _PILOT).means).max(axis=1).mean())
    assert bandit.law is not None
    here = bandit.law.values[int(bandit.period)] if int(bandit.period) else 1.0
    more = bandit.tail / here * best
    return {n: dataclasses.replace(e, value=e.value + more) for n, e in estimates.items()}


def _controls(bandit: Bandit, sampled: list[Penalty]) -> dict[str, float]:
    """Control variates with their exact means."""
    if all(p.plain for p in sampled):
        return {}
    means = {name: find_penalty(name).exact(bandit) for name in CONTROLS}
    return {name: value for name, value in means.items() if value is not None}


def fit_penalty(bandit: Bandit, penalty: Penalty, key: Any, controls: dict[str, float]) -> Penalty:
    """The penalty with what it leaves open settled on a pilot, never on futures of the estimate."""
    pilot = side_key(key, "fit")
    return penalty.fitted(bandit, lambda at, n: draw_outcomes(bandit, pilot, at, n), controls)


class Sampler:
    """Inner values over futures, turned into estimates."""

    def __init__(
        self,
        bandit: Bandit,
        sampled: list[Penalty],
        controls: dict[str, float],
        benchmark: float | None,
        progress: bool | None,
        workers: int | None,
    ):
        self.bandit, self.sampled, self.controls = bandit, sampled, controls
        self.benchmark, self.progress, self.workers = benchmark, progress, workers

    def __call__(self, key: Any, count: int, exact: dict[str, float]) -> dict[str, Bound]:
        return self.estimates(self.values(key, count), exact)

    def values(self, key: Any, count: int, start: int = 0) -> dict[str, np.ndarray]:
        """Inner values of the penalties, and of what steadies them; blocks can be joined."""
        needed = [*self.sampled, *map(find_penalty, self.controls)]
        if self.benchmark is None:
            needed.append(find_penalty("ts"))
        within = set_controls(self.bandit)
        needed += [*within, *(find_penalty(control.of) for control in within)]
        if not self.controls:
            needed += mean_controls(self.bandit)
        title = ", ".join(p.label for p in self.sampled) or "ts"
        return inner_values(
            self.bandit,
            needed,
            key,
            count,
            start=start,
            progress=self.progress,
            title=title,
            workers=self.workers,
        )

    def estimates(self, values: dict[str, np.ndarray], exact: dict[str, float]) -> dict[str, Bound]:
        """Bounds from inner values, and from those known exactly."""
        within = set_controls(self.bandit)
        # Control variates, each of mean zero.
        columns = [values[name] - mean for name, mean in self.controls.items()]
        columns += [values[control.of] - values[control.name] for control in within]
        columns += [values[TOWER]] if TOWER in values else []
        if not self.controls:
            known = mean_controls(self.bandit)
            columns += [values[control.label] - mean for control, mean in known.items()]
        own = {n: m for p in self.sampled for n, m in p.steadied_by(self.bandit).items()}
        columns += [values[name] - mean for name, mean in own.items()]
        estimates = {
            name: Bound(name, value, 0.0, *self._regret(None, value, 0.0, columns, values))
            for name, value in exact.items()
        }
        for penalty in self.sampled:
            raw = values[penalty.label]
            mean, error = steadied_mean(raw, [] if penalty.plain else columns)
            regret = self._regret(raw, mean, error, columns, values)
            report = penalty.report()
            estimates[penalty.label] = Bound(
                penalty.label, mean, error, *regret, raw, fitted=report
            )
        return estimates

    def _regret(
        self,
        raw: np.ndarray | None,
        mean: float,
        error: float,
        columns: list[np.ndarray],
        values: dict[str, np.ndarray],
    ) -> tuple[float, float]:
        if self.benchmark is not None:
            return self.benchmark - mean, error
        return steadied_mean(values["ts"] - (mean if raw is None else raw), columns)


def inner_values(
    bandit: Bandit,
    penalties: Iterable[Penalty],
    key: Any,
    count: int,
    *,
    start: int = 0,
    progress: bool | None = False,
    title: str = "",
    workers: int | None = None,
) -> dict[str, np.ndarray]:
    """Inner values [count] of futures number start, start + 1, ..., by name of the penalty."""
    needed = {penalty.label: penalty for penalty in penalties}
    if brief_serves(bandit, needed):
        return _brief_inner_values(bandit, needed, key, start, count, progress, title)
    rewards = count * bandit.num_arms * bandit.horizon
    if rewards > MOST_REWARDS:
        most = MOST_REWARDS // (bandit.num_arms * bandit.horizon)
        raise ValueError(
            f"num_samples must be at most {most:,} for {bandit.num_arms} arms and a horizon of "
            f"{bandit.horizon:,}, got {count:,}: {rewards:.1e} rewards would have to be drawn. For "
            "long horizons irs.fh, irs.ff and irsppl.Mix(T0=200) draw fewer where the belief is "
            "conjugate; see docs/long-horizons.md"
        )

    def draw(begin: int, end: int, size: int) -> Outcome:
        return draw_outcomes(bandit, key, start + begin, size)

    def work(outcomes: Outcome, begin: int, end: int) -> dict[str, np.ndarray]:
        batches = [p.batch(bandit, outcomes) for p in needed.values()]
        return {n: column[: end - begin] for batch in batches for n, column in batch.items()}

    compiled = not bandit.constraints and not bandit.pending
    compiled = compiled and all(penalty.on_host for penalty in needed.values())
    if "irs.v-emax" in needed:  # its kernel is for two Bernoulli or two Gaussian arms
        kernel = bandit.belief.kernel_state()
        compiled = compiled and bandit.num_arms == 2 and kernel is not None and kernel[0] <= 1
    threads = threads_for(bandit, compiled, workers)
    parts = run_chunks(draw, work, chunks(bandit, count), progress, title, threads)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _brief_inner_values(
    bandit: Bandit,
    needed: dict[str, Penalty],
    key: Any,
    start: int,
    count: int,
    progress: bool | None,
    title: str,
) -> dict[str, np.ndarray]:
    """The same for long horizons, from futures without their bulk (see `penalties/_brief.py`)."""

    def draw(begin: int, end: int, size: int) -> Array:
        return outcome_keys(key, start + begin, size)

    def work(keys: Array, begin: int, end: int) -> dict[str, np.ndarray]:
        found = brief_values(bandit, needed, keys)
        return {name: values[: end - begin] for name, values in found.items()}

    plan = chunks(bandit._shrunk(MOST_QUADRATURES), count)
    parts = run_chunks(draw, work, plan, progress, title)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def steadied_mean(raw: np.ndarray, columns: list[np.ndarray]) -> tuple[float, float]:
    """Mean of `raw` and its standard error, with control variates `columns` of mean 0."""
    # Fitting a slope costs a degree of freedom each; too few samples would not pay for it.
    if not columns or len(raw) < 20 * len(columns):
        return mean_error(raw)
    spreads = [column.std() for column in columns]
    scaled = [c / spread for c, spread in zip(columns, spreads, strict=True) if spread > 0]
    design = np.stack([np.ones(len(raw)), *scaled], axis=1)
    # Controls that say the same but for rounding: a fit to the rounding would bias the mean.
    fitted, _, rank, _ = np.linalg.lstsq(design, raw, rcond=1e-4)
    residual = raw - design @ fitted
    spread = residual.std(ddof=int(rank)) / math.sqrt(len(raw))
    return float(fitted[0]), float(spread)


def mean_error(samples: np.ndarray) -> tuple[float, float]:
    return float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(len(samples)))
