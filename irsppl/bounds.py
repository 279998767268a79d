"""Upper bounds on what any policy can earn, their standard errors, and certificates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irsppl._checks import as_count, as_key, one_of, side_key
from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome, prefix
from irsppl.penalties import (
    Inner,
    Penalty,
    exact_max_after,
    find_penalty,
    mean_controls,
    set_controls,
)
from irsppl.simulate import (
    _show,
    chunks,
    draw_outcomes,
    name_policies,
    run_chunks,
    simulate,
    threads_for,
)

# Path values with known means that steady the sampled bounds, most useful first.
CONTROLS = ("irs.ff", "irs.fh", "ts")
_PILOT = 1000


@eqx.filter_jit
def _inner(penalty: Penalty, bandit: Bandit, outcome: Outcome) -> Inner:
    return penalty.inner(bandit, outcome)


def solve_inner(bandit: Bandit, penalty: Any, outcome: Outcome) -> Inner:
    """The best a clairvoyant can do who knows `outcome` and pays the penalty.

    `.value`, `.action` (first arm to pull; -1 = stop), `.pulls [K]`, `.sequence [T]` where order
    matters. The outcome may be written by hand: `Outcome(means=[K], rewards=[K, T])`.
    """
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
    if have > bandit.horizon:
        outcome = prefix(outcome, bandit.horizon)
    elif have < bandit.horizon:  # arrays keep the first horizon's size; the padding is never read
        padding = ((0, 0), (0, bandit.horizon - have))
        rewards = jnp.pad(outcome.rewards, padding, mode="edge")
        outcome = eqx.tree_at(lambda o: o.rewards, outcome, rewards)
        if outcome.delays is not None:
            delays = jnp.pad(outcome.delays, padding, mode="edge")
            outcome = eqx.tree_at(lambda o: o.delays, outcome, delays)
    bandit.belief.check_reward(np.arange(bandit.num_arms)[:, None], outcome.rewards)
    if not penalty.traceable:
        return penalty.inner(bandit, outcome)
    return _inner(penalty, bandit, outcome)


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
    variates that `value` uses.
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
    bandit.check_open()
    key = as_key(key)
    num_samples = as_count("num_samples", num_samples, minimum=2)
    several = not isinstance(penalty, (str, Penalty)) and isinstance(penalty, Iterable)
    named = {p.label: p for p in map(find_penalty, penalty if several else [penalty])}
    if not named:
        raise ValueError("penalty must name at least one penalty")
    for one in named.values():
        one.verify(bandit, as_bound=True)
    if int(bandit.remaining) < bandit.horizon and not bandit.pending:
        bandit = bandit._shrunk(int(bandit.remaining))
    exact = {name: value for name, p in named.items() if (value := p.exact(bandit)) is not None}
    benchmark = exact.get("ts", find_penalty("ts").exact(bandit))
    sampled = [p for name, p in named.items() if name not in exact]
    estimates: dict[str, Bound] = {}
    picked = next(iter(named))
    if sampled or benchmark is None:
        controls = _controls(bandit, sampled)
        sampled = [fit_penalty(bandit, p, key, controls) for p in sampled]
        run = Sampler(bandit, sampled, controls, benchmark, _show(progress), workers)
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
    if bandit.belief.is_approximate:
        estimates = {
            name: dataclasses.replace(estimate, approximate=True)
            for name, estimate in estimates.items()
        }
    if not several:
        return estimates[next(iter(named))]
    return Bounds({name: estimates[name] for name in named}, picked)


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
        progress: bool,
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
    progress: bool = False,
    title: str = "",
    workers: int | None = None,
) -> dict[str, np.ndarray]:
    """Inner values [count] of futures number start, start + 1, ..., by name of the penalty."""
    needed = {penalty.label: penalty for penalty in penalties}

    def work(begin: int, end: int, size: int) -> dict[str, np.ndarray]:
        outcomes = draw_outcomes(bandit, key, start + begin, size)
        batches = [p.batch(bandit, outcomes) for p in needed.values()]
        return {n: column[: end - begin] for batch in batches for n, column in batch.items()}

    compiled = not bandit.constraints and not bandit.pending
    compiled = compiled and all(penalty.on_host for penalty in needed.values())
    if "irs.v-emax" in needed:  # its kernel is for two Bernoulli or two Gaussian arms
        kernel = bandit.belief.kernel_state()
        compiled = compiled and bandit.num_arms == 2 and kernel is not None and kernel[0] <= 1
    workers = threads_for(bandit, compiled, workers)
    parts = run_chunks(work, chunks(bandit, count), progress, title, workers)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def steadied_mean(raw: np.ndarray, columns: list[np.ndarray]) -> tuple[float, float]:
    """Mean of `raw` and its standard error, with control variates `columns` of mean 0."""
    # Fitting a slope costs a degree of freedom each; too few samples would not pay for it.
    if not columns or len(raw) < 20 * len(columns):
        return _mean_error(raw)
    spreads = [column.std() for column in columns]
    scaled = [c / spread for c, spread in zip(columns, spreads, strict=True) if spread > 0]
    design = np.stack([np.ones(len(raw)), *scaled], axis=1)
    # Controls that say the same but for rounding: a fit to the rounding would bias the mean.
    fitted, _, rank, _ = np.linalg.lstsq(design, raw, rcond=1e-4)
    residual = raw - design @ fitted
    spread = residual.std(ddof=int(rank)) / math.sqrt(len(raw))
    return float(fitted[0]), float(spread)


def _mean_error(samples: np.ndarray) -> tuple[float, float]:
    return float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(len(samples)))


# ------------------------------------------------------------------ certificates


class Estimate(float):
    """A number that knows its standard error: `.value`, `.stderr`."""

    stderr: float

    def __new__(cls, value: float, stderr: float) -> Estimate:
        self = super().__new__(cls, value)
        self.stderr = stderr
        return self

    @property
    def value(self) -> float:
        return float(self)

    def __repr__(self) -> str:
        return f"Estimate({self.value:.6g}, stderr={self.stderr:.2g})"


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How much of the best possible value a policy surely earns.

    lower: the policy's value; upper: the bound on any policy's value; both estimates with standard
    errors, from independent samples. ratio = lower / upper is NaN, with `reason`, if upper <= 0.
    """

    policy: str
    penalty: str
    lower: Estimate
    upper: Estimate
    reason: str | None = None
    more: str | None = None  # what a tighter bound would cost

    @property
    def gap(self) -> Estimate:
        """upper - lower: what is left to gain, at most."""
        error = math.hypot(self.lower.stderr, self.upper.stderr)
        return Estimate(self.upper.value - self.lower.value, error)

    @property
    def ratio(self) -> float:
        return self.lower.value / self.upper.value if self.upper.value > 0 else math.nan

    def interval(self, level: float = 0.95, of: str = "ratio") -> tuple[float, float]:
        """Normal confidence interval of the ratio (or of="gap")."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        z = NormalDist().inv_cdf(0.5 + level / 2)
        if of == "gap":
            return self.gap.value - z * self.gap.stderr, self.gap.value + z * self.gap.stderr
        if of != "ratio":
            raise ValueError(f"of must be 'ratio' or 'gap', got {of!r}")
        if math.isnan(self.ratio):
            return math.nan, math.nan
        error = math.hypot(self.lower.stderr, self.ratio * self.upper.stderr) / self.upper.value
        return self.ratio - z * error, self.ratio + z * error

    def __str__(self) -> str:
        head = (
            f"{self.policy} earns {self.lower.value:.6g} (s.e. {self.lower.stderr:.2g}); no policy "
            f"earns more than {self.upper.value:.6g} (s.e. {self.upper.stderr:.2g}, {self.penalty})"
        )
        if self.reason:
            return f"{head}. {self.reason}"
        low, high = self.interval(0.95)
        return (
            f"{head}: {self.policy} earns at least {self.ratio:.1%} of the optimum "
            f"(95% interval {low:.2%} to {high:.2%})"
        )

    def __repr__(self) -> str:
        return f"Certificate({self})"


def default_penalties(bandit: Bandit) -> list[str]:
    """Cheap penalties of which one is tight: which, depends on the arms and the constraints."""
    apart = bandit.belief.is_independent
    allocation = "irs.v-zero" if apart and bandit.delay is None else "irs.v-zero-separable"
    names = ["irs.ff", allocation]
    if not apart or bandit.purse is not None:  # elsewhere it is never the tightest
        names.append("irs.fh")

    def gives_bound(name: str) -> bool:
        try:
            find_penalty(name).verify(bandit, as_bound=True)
        except ValueError:
            return False
        return True

    return [name for name in names if gives_bound(name)]


EFFORTS = ("quick", "standard", "best")


def penalties_for(bandit: Bandit, effort: str) -> list[Any]:
    """Penalties for a certificate within an effort, the tightest that the bandit allows.

    "quick": `default_penalties`; "standard": leave-one-out penalties, at most three times the work;
    "best": these fitted on a pilot, minutes for many arms and periods.
    """
    one_of("effort", effort, EFFORTS)
    penalty = {"standard": "irs.v-solo", "best": "irs.v-fit"}.get(effort)
    if penalty is not None:
        try:
            find_penalty(penalty).verify(bandit, as_bound=True)
            return [penalty]
        except ValueError:
            pass
    return default_penalties(bandit)


def certify(
    bandit: Bandit,
    policy: Any,
    penalty: Any = None,
    key: Any = 0,
    num_replications: int = 20_000,
    num_samples: int = 20_000,
    *,
    effort: str = "standard",
    progress: bool | None = None,
) -> Certificate:
    """A certificate for any policy, one of ours or a function `policy(key, bandit) -> arm`.

    With several penalties the tightest serves, picked on a pilot sample; by default the tightest
    that the bandit allows within an effort: "quick", "standard" or "best" (`penalties_for`).
    """
    key = as_key(key)
    within = penalties_for(bandit, effort)
    more = None
    if penalty is None:
        penalty = within
        more = _more_effort(bandit, effort, num_samples)
    named = name_policies(policy)
    if len(named) != 1:
        raise ValueError(f"policy must be one policy, got {list(named)}")
    label = next(iter(named))
    upper = bound(bandit, penalty, jax.random.fold_in(key, 3), num_samples, progress=progress)
    if isinstance(upper, Bounds):
        upper = upper.tightest
    data = simulate(bandit, named, jax.random.fold_in(key, 4), num_replications, progress=progress)
    benchmark = find_penalty("ts").exact(bandit)
    steady = "steadied_" if "steadied_value" in data else ""
    if benchmark is None:
        value, error = _mean_error(data[f"{steady}value"].values[0])
    else:  # regret varies far less than value, and the mean of the difference is known
        regret, error = _mean_error(data[f"{steady}regret"].values[0])
        value = benchmark - regret
    reason = None
    if not upper.value > 0:
        reason = f"The ratio is undefined because the bound, {upper.value:.6g}, is not positive"
    found = Estimate(value, error), Estimate(upper.value, upper.stderr)
    return Certificate(label, upper.penalty, *found, reason, more)


def _more_effort(bandit: Bandit, effort: str, num_samples: int) -> str | None:
    """What the next effort would cost, where it would use other penalties."""
    following = EFFORTS[EFFORTS.index(effort) + 1 :]
    if not following or penalties_for(bandit, following[0]) == penalties_for(bandit, effort):
        return None
    if following[0] == "standard":
        return "effort='standard' (irs.v-solo) is tighter for at most 3 times the work"
    times = find_penalty("irs.v-fit").work(bandit) / num_samples + 3
    return f"effort='best' (irs.v-fit) is tighter for about {times:.0f} times the work"
