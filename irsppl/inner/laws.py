"""Laws of single numbers on the host, and the exact E[max] of independent ones, in float64.

This is what makes W^TS, W^FH and W^FF free of sampling error in the conjugate families.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy

# Break points of the integral: probabilities at which each law is cut into panels.
_TAIL = 10.0 ** -np.array([40, 30, 24, 20, 17, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2.5, 2, 1.5])
_BODY = np.linspace(0.05, 0.95, 19)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(16)
# Tails that are powers: much of a mean may lie in them. No panel there is wider than a factor of
# _WIDEST in the distance from the law's location.
_HEAVY, _WIDEST = {"t", "invgamma", "betaprime"}, 4.0

_SUPPORT = {
    "beta": (0.0, 1.0),
    "gamma": (0.0, np.inf),
    "norm": (-np.inf, np.inf),
    "t": (-np.inf, np.inf),
    "invgamma": (0.0, np.inf),
    "betaprime": (0.0, np.inf),
}


@cache
def _functions(name: str) -> tuple[Callable[..., np.ndarray], ...]:
    """CDF, survival function and their inverses of the standard law.

    From scipy.special: scipy.stats takes a second to import, and knows nothing of a beta prime law
    beyond 1e16, which is where half of its mean may lie.
    """
    f = scipy.special
    return {
        "beta": (f.betainc, f.betaincc, f.betaincinv, f.betainccinv),
        "gamma": (f.gammainc, f.gammaincc, f.gammaincinv, f.gammainccinv),
        "norm": (f.ndtr, lambda x: f.ndtr(-x), f.ndtri, lambda q: -f.ndtri(q)),
        "t": (
            f.stdtr,
            lambda df, x: f.stdtr(df, -x),
            f.stdtrit,
            lambda df, q: -f.stdtrit(df, q),
        ),
        "invgamma": (
            lambda a, x: f.gammaincc(a, 1 / x),
            lambda a, x: f.gammainc(a, 1 / x),
            lambda a, q: 1 / f.gammainccinv(a, q),
            lambda a, q: 1 / f.gammaincinv(a, q),
        ),
        "betaprime": (
            lambda n, a, x: f.betainc(n, a, x / (1 + x)),
            lambda n, a, x: f.betainc(a, n, 1 / (1 + x)),
            lambda n, a, q: 1 / (1 / f.betaincinv(n, a, q) - 1),
            lambda n, a, q: 1 / f.betaincinv(a, n, q) - 1,
        ),
    }[name]


class Continuous(NamedTuple):
    """A continuous law, by its name in `scipy.stats`."""

    name: str
    args: tuple[float, ...] = ()
    loc: float = 0.0
    scale: float = 1.0

    def _standard(self, x: Any) -> np.ndarray:
        return np.clip((np.asarray(x) - self.loc) / self.scale, *_SUPPORT[self.name])

    def cdf(self, x: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return _functions(self.name)[0](*self.args, self._standard(x))

    def sf(self, x: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return _functions(self.name)[1](*self.args, self._standard(x))

    def median(self) -> float:
        return self.loc + self.scale * float(_functions(self.name)[2](*self.args, 0.5))

    @property
    def upper(self) -> float:
        """k, where P(X > x) falls like x^-k far out; infinity for tails lighter than any such."""
        return self.args[-1] if self.name in _HEAVY else np.inf

    @property
    def lower(self) -> float:
        """The same of P(X < -x)."""
        return self.args[-1] if self.name == "t" else np.inf

    @property
    def has_no_variance(self) -> bool:
        return min(self.upper, self.lower) <= 2

    def breaks(self) -> np.ndarray:
        _, _, ppf, isf = _functions(self.name)
        with np.errstate(all="ignore"):  # the far tails may overflow; infinite ends are dropped
            low, high = ppf(*self.args, _TAIL), isf(*self.args, _TAIL[::-1])
            parts = [low, ppf(*self.args, _BODY), high]
        if self.name in _HEAVY:  # decades between two levels: none of them wider than a factor
            far = high[0] * _WIDEST ** np.arange(math.log(high[-1] / high[0], _WIDEST))
            parts += [far, -far] if self.name == "t" else [far]
        return self.loc + self.scale * np.concatenate(parts)

    def key(self) -> tuple[Any, ...]:
        return tuple(self)


class Discrete(NamedTuple):
    """Finitely many points, in increasing order, with their probabilities."""

    points: np.ndarray
    probabilities: np.ndarray

    def cdf(self, x: np.ndarray) -> np.ndarray:
        cumulative = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        return cumulative[np.searchsorted(self.points, x, side="right")]

    def key(self) -> tuple[Any, ...]:
        return (self.points.tobytes(), self.probabilities.tobytes())


class Smooth(NamedTuple):
    """A continuous law known at rising, evenly weighted-out quadrature nodes."""

    points: np.ndarray
    probabilities: np.ndarray

    def breaks(self) -> np.ndarray:
        return self.points

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Half of a node's weight lies below it (the trapezoid rule, with its first correction)."""
        weights = self.probabilities
        padded = np.pad(weights, 1)
        level = np.cumsum(weights) - weights / 2 - (padded[2:] - padded[:-2]) / 24
        return np.interp(x, self.points, np.clip(level, 0, 1), left=0.0, right=1.0)

    def sf(self, x: np.ndarray) -> np.ndarray:
        return 1 - self.cdf(x)

    def key(self) -> tuple[Any, ...]:
        return ("smooth", self.points.tobytes(), self.probabilities.tobytes())


def point(value: float) -> Discrete:
    return Discrete(np.array([float(value)]), np.array([1.0]))


def expected_best(laws: Sequence[Continuous | Discrete | Smooth]) -> float:
    """E[max] of independent numbers with these laws.

    Discrete laws are summed exactly; otherwise the integral of 1 - prod_a F_a is taken over panels
    between the quantiles of all the laws, 16 Gauss-Legendre nodes each.
    """
    groups: dict[Any, list[Any]] = {}
    for law in laws:  # identical arms are evaluated once and raised to their number
        groups.setdefault(law.key(), [law, 0])[1] += 1
    unique = [(law, count) for law, count in groups.values()]
    if all(isinstance(law, Discrete) for law, _ in unique):
        return _discrete_max(unique)
    if all(isinstance(law, Smooth) for law, _ in unique):
        return _smooth_max(unique)
    return _continuous_max(unique)


def _discrete_max(unique: list[tuple[Discrete, int]]) -> float:
    points = np.unique(np.concatenate([law.points for law, _ in unique]))
    product = np.ones(len(points))
    for law, count in unique:
        product *= law.cdf(points) ** count
    mass = np.diff(product, prepend=0.0)
    # Truncated tails (Poisson) leave a total just below 1; put the rest at the last point.
    return float(points @ mass + points[-1] * (1.0 - product[-1]))


def _smooth_max(unique: list[tuple[Smooth, int]]) -> float:
    """sum_a E[X_a prod_{b != a} F_b(X_a)], each a quadrature on its law's own nodes."""
    total, mass = 0.0, 0.0
    for law, count in unique:
        others = np.ones_like(law.points)
        for other, many in unique:
            others *= other.cdf(law.points) ** (many - (other is law))
        share = count * law.probabilities * others
        total, mass = total + share @ law.points, mass + share.sum()
    return float(total / mass)


def _continuous_max(unique: list[tuple[Continuous | Discrete | Smooth, int]]) -> float:
    edges = [law.points if isinstance(law, Discrete) else law.breaks() for law, _ in unique]
    breaks = np.unique(np.concatenate(edges))
    breaks = breaks[np.isfinite(breaks)]
    half = np.diff(breaks)[:, None] / 2
    x = breaks[:-1, None] + half * (1 + _PANEL_NODES[None, :])
    # Logarithms of F that are accurate in either tail.
    log_product = np.zeros_like(x)
    for law, count in unique:
        if isinstance(law, Discrete):
            below = np.where(x >= law.points[-1], 1.0, law.cdf(x))
            with np.errstate(divide="ignore"):
                log_product += count * np.log(below)
        else:
            below, over = law.cdf(x), np.minimum(law.sf(x), 1.0)
            with np.errstate(divide="ignore"):
                log_product += count * np.where(below < 0.5, np.log(below), np.log1p(-over))
    panel = half * _PANEL_WEIGHTS[None, :]
    # E max = c + integral above c of (1 - prod F) - integral below c of prod F. A central c keeps
    # the far tails from cancelling against a huge lower end.
    center = int(np.searchsorted(breaks, max(_median(law) for law, _ in unique)))
    center = min(max(center, 0), len(breaks) - 1)
    above = np.sum(panel[center:] * -np.expm1(log_product[center:]))
    below = np.sum(panel[:center] * np.exp(log_product[:center]))
    heavy = [(law, many) for law, many in unique if isinstance(law, Continuous)]
    # Beyond the last break a power x^-k integrates to x / (k - 1) times itself.
    for law, many in heavy:
        above += many * (breaks[-1] - law.loc) * law.sf(breaks[-1]) / (law.upper - 1)
    fall = sum(many * law.lower for law, many in heavy)
    if len(heavy) == len(unique) and np.isfinite(fall):  # before the first: a product of powers
        product = math.prod(float(law.cdf(breaks[0])) ** many for law, many in heavy)
        below += -breaks[0] * product / (fall - 1)
    return float(breaks[center] + above - below)


def _median(law: Continuous | Discrete | Smooth) -> float:
    if isinstance(law, Continuous):
        return law.median()
    # Either kind of law on points.
    return float(law.points[np.searchsorted(np.cumsum(law.probabilities), 0.5)])


# Outcomes of n rewards that `law` may enumerate.
_MAX_LAW = 50_000


def merged(points: np.ndarray, weights: np.ndarray) -> Discrete:
    """The law on these points, in rising order."""
    order = np.argsort(points)
    return Discrete(points[order], weights[order])


def compositions(total: int, parts: int) -> np.ndarray | None:
    """All counts [m, parts] with that total, or None if they are too many."""
    if math.comb(total + parts - 1, parts - 1) > _MAX_LAW:
        return None
    bars = itertools.combinations(range(total + parts - 1), parts - 1)
    edges = np.array(list(bars), int).reshape(-1, parts - 1)
    edges = np.pad(edges, ((0, 0), (1, 1)), constant_values=(-1, total + parts - 1))
    return np.diff(edges, axis=1) - 1


def count_law(
    counts: np.ndarray, logs: np.ndarray, log_weights: np.ndarray, mu: np.ndarray
) -> Discrete:
    """Law of the posterior mean when the data are how often each value came up."""
    total = counts.sum(axis=1)[0]
    ways = scipy.special.gammaln(total + 1) - scipy.special.gammaln(counts + 1).sum(axis=1)
    # 0 * -inf is 0 here: a value that did not come up says nothing, however unlikely it was.
    finite = np.where(np.isfinite(logs), logs, -1e300)
    joint = log_weights[None, :] + counts @ finite.T
    evidence = scipy.special.logsumexp(joint, axis=1)
    means = np.exp(joint - evidence[:, None]) @ mu
    mass = np.exp(ways + evidence)
    return merged(means, mass / mass.sum())
