"""Certificates: how much of the best possible value a policy earns at least."""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

import jax

from irsppl._checks import MOST_FUTURES, as_count, as_key, check_run, one_of
from irsppl.bandit import Bandit, check_bandit
from irsppl.bounds import Bounds, bound, mean_error
from irsppl.penalties import find_penalty
from irsppl.penalties.replay import constant, enough, skewness
from irsppl.results import finite_result
from irsppl.simulation import name_policies, simulate

# A normal interval from fewer would promise more than it holds.
FEWEST = 30
# Paths without any loss before there passes for none: what happens less often may be unseen.
_CONSTANT = 1000
APPROXIMATE = (
    "The bound is approximate: data have moved the particles that it is computed from, and their "
    "own error is not part of its standard error"
)


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
    """How much of the best possible value a policy earns at least.

    lower: the policy's value; upper: the bound on any policy's value; both estimates with standard
    errors, from independent samples. ratio = lower / upper, an estimate too, is NaN, with `reason`,
    if upper <= 0. What is certified is the lower limit of `interval(level)`: it lies above the true
    ratio with probability (1 - level) / 2, and the true ratio is at most the policy's share of the
    optimum.
    """

    policy: str
    penalty: str
    lower: Estimate
    upper: Estimate
    reason: str | None = None
    more: str | None = None  # what a tighter bound would cost
    # The bound is computed from particles that data have moved: nearly one, not one for sure.
    approximate: bool = False
    # Of the policy's value: skewness over the square root of the number of paths.
    skewness: float = 0.0
    # How many paths, or samples of the bound if these are fewer, less one.
    freedom: float = math.inf

    @property
    def gap(self) -> Estimate:
        """upper - lower: what is left to gain, at most."""
        error = math.hypot(self.lower.stderr, self.upper.stderr)
        return Estimate(self.upper.value - self.lower.value, error)

    @property
    def ratio(self) -> float:
        return self.lower.value / self.upper.value if self.upper.value > 0 else math.nan

    def interval(self, level: float = 0.95, of: str = "ratio") -> tuple[float, float]:
        """Confidence interval of the ratio (or of="gap"), made for skewed losses of few paths.

        The policy's limits are those of Hall's transformation of Student's t; the bound's error
        adds to each in squares.
        """
        number = isinstance(level, numbers.Real) and not isinstance(level, bool)
        if not (number and 0 < level < 1):
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        if of not in ("gap", "ratio"):
            raise ValueError(f"of must be 'ratio' or 'gap', got {of!r}")
        if of == "ratio" and math.isnan(self.ratio):
            return math.nan, math.nan
        from scipy.special import stdtrit

        t = float(stdtrit(self.freedom, 0.5 + level / 2))
        error, share = self.lower.stderr, 1.0 if of == "gap" else self.ratio
        # A policy that loses much in few paths, and little in most, is likelier overestimated.
        least, middle, most = (
            self.lower.value - error * _hall(x, self.skewness) for x in (t, 0.0, -t)
        )
        more = t * share * self.upper.stderr
        low = middle - math.hypot(middle - least, more)
        high = middle + math.hypot(most - middle, more)
        if of == "gap":
            return self.upper.value - high, self.upper.value - low
        return low / self.upper.value, high / self.upper.value

    def __str__(self) -> str:
        head = (
            f"{self.policy} earns {self.lower.value:.6g} (s.e. {self.lower.stderr:.2g}); no policy "
            f"earns more than {self.upper.value:.6g} (s.e. {self.upper.stderr:.2g}, {self.penalty})"
        )
        if self.reason:
            return f"{head}. {self.reason}"
        low, high = self.interval(0.95)
        surely = math.floor(1000 * min(low, 1.0)) / 1000  # rounded down, as a promise is
        said = (
            f"{head}: with 97.5% confidence {self.policy} earns at least {surely:.1%} of the "
            f"optimum (estimate {self.ratio:.2%}, 95% interval {low:.2%} to {high:.2%})"
        )
        return f"{said}. {APPROXIMATE}" if self.approximate else said

    def __repr__(self) -> str:
        return f"Certificate({self})"


def _hall(t: float, skewness: float) -> float:
    """The (mean - truth) / stderr whose transformation for skewness (Hall, 1992) is t.

    x + k x^2 / 3 + k^2 x^3 / 27 + k / 6, k = skewness / sqrt(samples), rises in x and has hardly
    any skewness left, however skewed the samples.
    """
    if abs(skewness) < 1e-6:
        return t
    return 3 / skewness * (math.cbrt(1 + skewness * (t - skewness / 6)) - 1)


def default_penalties(bandit: Bandit) -> list[str]:
    """Cheap penalties of which one is tight: which, depends on the arms and the constraints."""
    apart = bandit.belief.is_independent
    allocation = "irs.v-zero" if apart and not bandit.arrivals.late else "irs.v-zero-separable"
    names = ["irs.ff", allocation]
    if not apart or bandit.access.binds:  # elsewhere it is never the tightest
        names.append("irs.fh")
    return [name for name in names if _gives_bound(bandit, name)]


def _gives_bound(bandit: Bandit, name: str) -> bool:
    try:
        find_penalty(name).verify(bandit, as_bound=True)
    except ValueError:
        return False
    return True


EFFORTS = ("quick", "standard", "best")


def penalties_for(bandit: Bandit, effort: str) -> list[Any]:
    """Penalties for a certificate within an effort, the tightest that the bandit allows.

    "quick": `default_penalties`; "standard": leave-one-out penalties, at most three times the work;
    "best": these fitted on a pilot, minutes for many arms and periods. With constraints, pending
    pulls or correlated arms it is open which is tightest: several then, for a pilot to pick from.
    """
    one_of("effort", effort, EFFORTS)
    tight = {"standard": ["irs.v-solo"], "best": ["irs.v-fit", "irs.v-solo"]}.get(effort, [])
    plain = bandit.belief.is_independent and not bandit.constraints and not bandit.pending
    for penalty in filter(lambda name: _gives_bound(bandit, name), tight):
        return [penalty, *([] if plain else default_penalties(bandit))]
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
    that the bandit allows within an effort: "quick", "standard" or "best" (`penalties_for`). At
    least 30 replications and samples: its interval rests on their standard errors.
    """
    check_bandit(bandit)
    check_run(progress)
    key = as_key(key)
    within = penalties_for(bandit, effort)
    num_replications = as_count("num_replications", num_replications, FEWEST, MOST_FUTURES)
    num_samples = as_count("num_samples", num_samples, FEWEST, MOST_FUTURES)
    more = None
    if penalty is None:
        penalty, more = within, _more_effort(bandit, effort, num_samples)
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
    raw, paths = data["value"].values[0], data[f"{steady}value"].values[0]
    if benchmark is not None:
        # Regret varies far less than value, and the mean of the difference is known.
        regrets = data[f"{steady}regret"].values[0]
        paths = benchmark - regrets if enough(regrets, raw) else paths
    if constant(paths, raw) and len(paths) < _CONSTANT and int(bandit.remaining) > 1:
        paths = raw
    value, error = mean_error(paths)
    finite_result(bandit, f"policy {label}", value=value, stderr=error)
    reason = None
    if not upper.value > 0:
        reason = f"The ratio is undefined because the bound, {upper.value:.6g}, is not positive"
    found = Estimate(value, error), Estimate(upper.value, upper.stderr)
    skew = 0.0 if constant(paths, raw) else skewness(paths) / math.sqrt(len(paths))
    samples = math.inf if upper.exact else num_samples
    free = min(num_replications, samples) - 1
    return Certificate(label, upper.penalty, *found, reason, more, upper.approximate, skew, free)


def _more_effort(bandit: Bandit, effort: str, num_samples: int) -> str | None:
    """What the next effort would cost, where it would use other penalties."""
    following = EFFORTS[EFFORTS.index(effort) + 1 :]
    if not following or penalties_for(bandit, following[0]) == penalties_for(bandit, effort):
        return None
    if following[0] == "standard":
        return "effort='standard' (irs.v-solo) is tighter for at most 3 times the work"
    times = find_penalty("irs.v-fit").work(bandit) / num_samples + 3
    return f"effort='best' (irs.v-fit) is tighter for about {times:.0f} times the work"
