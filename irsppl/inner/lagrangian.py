"""Lagrangian relaxation of a finite-horizon Bernoulli bandit: a bound and two index policies.

After Brown and Smith (2020), "Index policies and performance bounds for dynamic selection
problems".  Exactly one arm is pulled per period.  Pricing that constraint with one multiplier per
period decouples the arms:

    L(lambda) = sum_t lambda_t + sum_a V_a(lambda),

where V_a is the value of arm a alone, which in period t is either pulled, earning
``w_t * mean - lambda_t`` and learning, or rested, earning nothing.  Every lambda gives an upper
bound on the optimal value V*; :func:`minimize_lagrangian` looks for the smallest.  L is convex and
piecewise linear.  It is minimised by L-BFGS on a smooth majorant, in which ``max(0, d)`` becomes a
Huber function of width tau, for a decreasing sequence of tau; the bound reported is the exact L at
the best multipliers met, so it is valid whether or not the search has converged.

**States.**  An arm that has been pulled n times with s successes is in state (n, s).  Tables over
(period t, n <= t, s <= n) are flat: entry ``t(t+1)(t+2)/6 + n(n+1)/2 + s``, ``T(T+1)(T+2)/6`` in
all (1.4 million at T = 200, 21 million at T = 500).

**Policies.**  With the multipliers fixed, the priority index of an arm is what a pull now is worth
more than a rest,

    i_t(x) = w_t * mean(x) - lambda_t + E[V_{t+1}(x after one pull)] - V_{t+1}(x),

and the policies pull an arm of largest index.  They differ in ties, which are frequent, identical
arms starting from identical states; indices within ``tie_tolerance`` of the largest count as tied,
the multipliers being known to about that accuracy only.

- ``tie="random"`` (Lagr-RT): uniformly among the tied arms.
- ``tie="optimal"`` (Lagr-OT): by the randomised policy that solves the relaxation.  At the optimal
  multipliers the relaxed problem has a mixture of single-arm policies that pulls one arm per period
  *on average*; q_t(x) is the share of an arm's time in (t, x) in which that mixture pulls it.  Here
  every tied arm flips a coin with success probability q_t(x), and the policy picks uniformly among
  the tied arms that succeeded, or among all tied arms if none did: an arm is preferred just as
  often as the relaxation would pull it.  The smoothed problem supplies q directly: the
  derivative of the Huber function is a pull probability, and a vanishing gradient says that these
  probabilities pull one arm per period on average.  (Stated from the idea of the paper, "ties
  follow an optimal mixed policy"; its authors' code is not public, so details may differ.  Two
  identical arms rarely tie in different states, and in equal states both rules are a fair coin.)
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu.rng import seed_state, uniform

__all__ = [
    "LagrangianBound",
    "LagrangianTables",
    "decide",
    "lagrangian_paths",
    "lagrangian_tables",
    "lagrangian_value",
    "minimize_lagrangian",
    "single_arm",
]

TAUS: Final = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Default widths of the Huber smoothing, one L-BFGS run each."""

MAX_BYTES: Final = 1_000_000_000
"""Default limit on memory."""

_Floats = NDArray[np.float64]
_Singles = NDArray[np.float32]


def _table_size(horizon: int) -> int:
    return horizon * (horizon + 1) * (horizon + 2) // 6


# ------------------------------------------------------------------------------------ one arm alone


@njit(cache=True, nogil=True)
def _backward_row(
    alpha: float,
    scale: float,
    gain: float,
    price: float,
    tau: float,
    after: _Floats,
    own: _Floats,
    pull: _Singles,
) -> int:
    """One row s = 0..n of the recursion: V_t replaces V_{t+1} in ``own``.

    ``pull`` receives the probabilities of pulling, the derivative of the (smoothed) maximum.

    Returns the first s that is ever pulled, so that the forward pass can skip the states before it
    (0 if the pulled states are not exactly the last ones of the row).
    """
    half = 0.5 * tau
    # With tau = 0 this is the step function, one half at zero.
    steep = 1.0 / tau if tau > 0.0 else 1e300
    count = 0
    places = 0
    last = own.size - 1
    for s in range(own.size):
        mean = (alpha + s) * scale
        d = mean * (gain + after[s + 1] - after[s]) + after[s] - own[s] - price
        p = min(max(d * steep + 0.5, 0.0), 1.0)
        pull[s] = p
        own[s] += p * (d + half * (1.0 - p))
        count += 1 if p > 0.0 else 0
        places += s if p > 0.0 else 0
    # `count` different numbers in 0..last add up to this much only if they are the largest ones.
    return last + 1 - count if 2 * places == count * (2 * last - count + 1) else 0


@njit(cache=True, nogil=True)
def _single_arm(
    alpha: float,
    beta: float,
    multipliers: _Floats,
    weights: _Floats,
    tau: float,
    pull: _Singles,
    first: NDArray[np.int32],
    work: _Floats,
    pulls: _Floats,
    successes: _Floats,
) -> float:
    """Value of one arm, backwards, then the law of its state under that policy, forwards.

    ``pull`` [T(T+1)(T+2)/6], ``first`` [T(T+1)/2] and ``work`` [(T+1)(T+2)/2] are overwritten.
    Fills ``pulls [T]`` and ``successes [T]``, expected numbers per period.
    """
    horizon = multipliers.size
    work[:] = 0.0
    for t in range(horizon - 1, -1, -1):
        block = t * (t + 1) * (t + 2) // 6
        for n in range(t + 1):
            row = n * (n + 1) // 2
            first[t * (t + 1) // 2 + n] = _backward_row(
                alpha,
                1.0 / (alpha + beta + n),
                weights[t],
                multipliers[t],
                tau,
                work[row + n + 1 : row + 2 * n + 3],
                work[row : row + n + 1],
                pull[block + row : block + row + n + 1],
            )
    value = work[0]

    # The law of (n, s) moves on in place: with n descending, row n + 1 has already sent off its
    # own pulls when those of row n arrive.
    work[:] = 0.0
    work[0] = 1.0
    flow = np.zeros(horizon + 2)
    win = np.zeros(horizon + 3)
    for t in range(horizon):
        block = t * (t + 1) * (t + 2) // 6
        total = 0.0
        won = 0.0
        for n in range(t, -1, -1):
            low = first[t * (t + 1) // 2 + n]
            if low > n:
                continue
            scale = 1.0 / (alpha + beta + n)
            row = n * (n + 1) // 2
            size = n + 1 - low
            own = work[row + low : row + n + 1]
            after = work[row + n + 1 + low : row + 2 * n + 3]
            p = pull[block + row + low : block + row + n + 1]
            for s in range(size):
                y = own[s] * p[s]
                # Mass this small does not matter, and denormal numbers slow the loop tenfold.
                y = y if y > 1e-30 else 0.0
                own[s] -= y
                flow[s] = y
                win[s + 1] = y * ((alpha + low + s) * scale)
            flow[size] = 0.0
            win[size + 1] = 0.0
            for s in range(size + 1):
                after[s] += flow[s] - win[s + 1] + win[s]
            for s in range(size):
                total += flow[s]
                won += win[s + 1]
        pulls[t] = total
        successes[t] = won
    return value


@njit(cache=True, nogil=True)
def _index_table(
    alpha: float,
    beta: float,
    multipliers: _Floats,
    weights: _Floats,
    work: _Floats,
    index: _Singles,
) -> float:
    """Priority indices in all states, from the exact recursion; returns the arm's value."""
    work[:] = 0.0
    for t in range(multipliers.size - 1, -1, -1):
        block = t * (t + 1) * (t + 2) // 6
        for n in range(t + 1):
            row = n * (n + 1) // 2
            after = row + n + 1
            scale = 1.0 / (alpha + beta + n)
            for s in range(n + 1):
                mean = (alpha + s) * scale
                win = work[after + s + 1]
                lose = work[after + s]
                d = mean * (weights[t] + win - lose) + lose - work[row + s] - multipliers[t]
                index[block + row + s] = d
                if d > 0.0:
                    work[row + s] += d
    return work[0]


class _Relaxation:
    """L and its gradient for one bandit; owns the work arrays, computes identical arms once."""

    def __init__(self, alpha: ArrayLike, beta: ArrayLike, horizon: int, weights: ArrayLike | None):
        a = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
        b = np.atleast_1d(np.asarray(beta, dtype=np.float64))
        if a.ndim != 1 or a.shape != b.shape or not np.all((a > 0.0) & (b > 0.0)):
            raise ValueError(
                f"alpha and beta must be positive, of one length, got {alpha!r}, {beta!r}"
            )
        if int(horizon) != horizon or horizon < 1:
            raise ValueError(f"horizon must be a positive integer, got {horizon}")
        self.horizon = int(horizon)
        self.weights = np.ones(self.horizon)
        if weights is not None:
            self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        if self.weights.shape != (self.horizon,) or not np.all(
            (self.weights >= 0.0) & (self.weights < np.inf)
        ):
            raise ValueError(f"weights must be {horizon} finite numbers >= 0, got {weights!r}")
        self.priors, self.group, self.copies = np.unique(
            np.stack([a, b], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        self.group = self.group.reshape(-1)
        self.evaluations = 0

    def allocate(self) -> None:
        size = self.horizon
        self.pull = np.empty(_table_size(size), np.float32)
        self.first = np.empty(size * (size + 1) // 2, np.int32)
        self.work = np.empty((size + 1) * (size + 2) // 2)

    def evaluate(self, multipliers: _Floats, tau: float) -> tuple[float, _Floats, float]:
        """L_tau, its gradient [T], and what the smoothed policy earns before prices."""
        value = float(multipliers.sum())
        gradient = np.ones(self.horizon)
        earned = 0.0
        pulls = np.empty(self.horizon)
        successes = np.empty(self.horizon)
        for (alpha, beta), copies in zip(self.priors, self.copies, strict=True):
            value += copies * _single_arm(
                alpha,
                beta,
                multipliers,
                self.weights,
                tau,
                self.pull,
                self.first,
                self.work,
                pulls,
                successes,
            )
            gradient -= copies * pulls
            earned += copies * float(self.weights @ successes)
        self.evaluations += 1
        return float(value), gradient, earned

    def objective(self, multipliers: _Floats, tau: float) -> tuple[float, _Floats]:
        value, gradient, _ = self.evaluate(multipliers, tau)
        return value, gradient


def _as_multipliers(multipliers: ArrayLike) -> _Floats:
    lam = np.ascontiguousarray(multipliers, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0 or not np.isfinite(lam).all():
        raise ValueError(f"multipliers must be a finite vector [T], got {multipliers!r}")
    return lam


def single_arm(
    alpha: float,
    beta: float,
    multipliers: ArrayLike,
    weights: ArrayLike | None = None,
    tau: float = 0.0,
) -> tuple[float, NDArray[np.float64]]:
    """Value V_a(lambda) of one Beta(alpha, beta) arm and its expected pulls per period ``[T]``.

    With ``tau > 0`` the Huber-smoothed value, an upper bound on the exact one.
    """
    lam = _as_multipliers(multipliers)
    value, gradient = lagrangian_value([alpha], [beta], lam, weights, tau)
    return value - float(lam.sum()), 1.0 - gradient


def lagrangian_value(
    alpha: ArrayLike,
    beta: ArrayLike,
    multipliers: ArrayLike,
    weights: ArrayLike | None = None,
    tau: float = 0.0,
) -> tuple[float, NDArray[np.float64]]:
    """L(lambda), an upper bound on V* for any multipliers, and a (sub)gradient ``[T]``.

    Parameters
    ----------
    alpha, beta
        ``[K]`` Beta parameters.
    multipliers
        ``[T]``.
    weights
        ``[T]`` survivor weights, ones if omitted.
    tau
        Width of the Huber smoothing, 0 for the exact function.
    """
    lam = _as_multipliers(multipliers)
    relaxation = _Relaxation(alpha, beta, lam.size, weights)
    relaxation.allocate()
    return relaxation.objective(lam, float(tau))


# ------------------------------------------------------------------------------------ minimisation


@dataclass(frozen=True, eq=False)
class LagrangianBound:
    """The best Lagrangian bound found, and the multipliers that give it."""

    value: float
    """Exact L(multipliers): an upper bound on V*, converged or not."""
    multipliers: NDArray[np.float64] = field(repr=False)
    """[T]"""
    gap: float
    """Estimate of ``value`` minus the smallest L.  It is L minus the linear minorant given by the
    smoothed policy, both at these multipliers; off by the product of what is left of the gradient
    and the distance to the optimum."""
    pulls: NDArray[np.float64] = field(repr=False)
    """[T] expected pulls per period of that smoothed policy, one each at the optimum."""
    tau: float
    """The smoothing width of that policy."""
    evaluations: int
    """Evaluations of L and its gradient, smoothed or exact."""
    alpha: NDArray[np.float64] = field(repr=False)
    beta: NDArray[np.float64] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)

    @property
    def horizon(self) -> int:
        return self.multipliers.size

    @property
    def num_arms(self) -> int:
        return self.alpha.size


@njit(cache=True, nogil=True)
def _direction(g: _Floats, steps: _Floats, changes: _Floats, newest: int, held: int) -> _Floats:
    """Minus the L-BFGS inverse Hessian times the gradient (two-loop recursion).

    ``steps`` and ``changes`` [m, T] are ring buffers of the last ``held`` moves of the point and of
    the gradient.
    """
    size = steps.shape[0]
    d = -g
    share = np.empty(size)
    for back in range(held):
        i = (newest - back) % size
        share[i] = np.sum(steps[i] * d) / np.sum(steps[i] * changes[i])
        d -= share[i] * changes[i]
    if held > 0:
        y = changes[newest]
        d *= np.sum(steps[newest] * y) / np.sum(y * y)
    for back in range(held - 1, -1, -1):
        i = (newest - back) % size
        d += (share[i] - np.sum(changes[i] * d) / np.sum(steps[i] * changes[i])) * steps[i]
    return d


def _lbfgs(
    relaxation: _Relaxation, point: _Floats, tau: float, max_iterations: int, memory: int = 30
) -> _Floats:
    """Minimise L_tau from ``point``.

    Written out here because SciPy's L-BFGS-B calls LAPACK on small matrices in every iteration,
    whose threads, on a busy machine, cost several times what the recursions do.
    """
    value, gradient = relaxation.objective(point, tau)
    steps = np.empty((memory, point.size))
    changes = np.empty((memory, point.size))
    newest = -1
    held = 0
    for _ in range(max_iterations):
        direction = _direction(gradient, steps, changes, newest, held)
        slope = float(gradient @ direction)
        # -slope is about twice what is left to gain.  There is no use in solving a stage more
        # exactly than its smoothing distorts it.
        if -slope <= 1e-5 * tau * max(1.0, abs(value)):
            break
        # Bisection for the weak Wolfe conditions; multipliers are of order one, so is a first step.
        step = 1.0 if held else 0.1 / float(np.abs(direction).max())
        low, high = 0.0, np.inf
        for _ in range(30):
            new_point = point + step * direction
            new_value, new_gradient = relaxation.objective(new_point, tau)
            if new_value > value + 1e-4 * step * slope:
                high = step
            elif new_gradient @ direction < 0.9 * slope:
                low = step
            else:
                break
            step = 2.0 * low if high == np.inf else 0.5 * (low + high)
        if new_value >= value:
            break
        change = new_gradient - gradient
        if change @ direction > 0.0:
            newest = (newest + 1) % memory
            steps[newest] = new_point - point
            changes[newest] = change
            held = min(held + 1, memory)
        point, value, gradient = new_point, new_value, new_gradient
    return point


def minimize_lagrangian(
    alpha: ArrayLike,
    beta: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    taus: tuple[float, ...] = TAUS,
    max_iterations: int = 200,
    start: ArrayLike | None = None,
    max_bytes: float = MAX_BYTES,
) -> LagrangianBound:
    """Minimise L over the multipliers.

    One evaluation costs O(G T^3 / 6) for G distinct arms, about 2 ns a state.  Two uniform arms,
    T = 200: 145.8769 (gap estimate 6e-5) in about 1 s; ten, T = 500: 460.3668 in 10 to 20 s.

    Parameters
    ----------
    alpha, beta
        ``[K]`` Beta parameters; arms with equal ones are computed once.
    horizon
        Number of periods T.
    weights
        ``[T]`` survivor weights, ones if omitted.
    taus
        Decreasing smoothing widths.  Larger last widths are faster and looser.
    max_iterations
        L-BFGS iterations per width.
    start
        ``[T]`` first multipliers.
    max_bytes
        Refuse problems that need more memory with a ``ValueError``.
    """
    relaxation = _Relaxation(alpha, beta, horizon, weights)
    horizon = relaxation.horizon
    need = 4 * _table_size(horizon) + 6 * (horizon + 1) * (horizon + 2)
    if need > max_bytes:
        raise ValueError(
            f"horizon {horizon}: the Lagrangian recursion needs {need / 1e6:,.0f} MB, above "
            f"max_bytes = {max_bytes / 1e6:,.0f} MB"
        )
    if not taus or min(taus) <= 0.0:
        raise ValueError(f"taus must be positive, got {taus}")
    relaxation.allocate()
    if start is None:
        means = relaxation.priors[:, 0] / relaxation.priors.sum(axis=1)
        lam = means.max() * relaxation.weights
    else:
        lam = _as_multipliers(start)
        if lam.size != horizon:
            raise ValueError(f"start must have {horizon} entries, got {lam.size}")
    best = (np.inf, lam, 0.0)
    for tau in taus:
        lam = _lbfgs(relaxation, lam, tau, max_iterations)
        exact, _ = relaxation.objective(lam, 0.0)
        if exact < best[0]:
            best = (exact, lam, tau)
    value, lam, tau = best
    _, gradient, earned = relaxation.evaluate(lam, tau)
    pairs = relaxation.priors[relaxation.group]
    return LagrangianBound(
        value=value,
        multipliers=lam,
        gap=float(value - (earned + lam @ gradient)),
        pulls=1.0 - gradient,
        tau=tau,
        evaluations=relaxation.evaluations,
        alpha=pairs[:, 0].copy(),
        beta=pairs[:, 1].copy(),
        weights=relaxation.weights,
    )


# ----------------------------------------------------------------------------------------- policies


@dataclass(frozen=True, eq=False)
class LagrangianTables:
    """Priority indices and mixture probabilities, one row per distinct arm.

    Rows are flat over (t, n, s), see the module's docstring.
    """

    index: NDArray[np.float32] = field(repr=False)
    """[G, T(T+1)(T+2)/6] priority indices."""
    pull: NDArray[np.float32] = field(repr=False)
    """[G, T(T+1)(T+2)/6] probability that the optimal mixture pulls the arm there."""
    group: NDArray[np.int64]
    """[K] row of each arm."""
    horizon: int
    tie_tolerance: float

    @property
    def num_arms(self) -> int:
        return self.group.size

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + self.pull.nbytes

    def index_at(
        self, arm: ArrayLike, t: ArrayLike, successes: ArrayLike, failures: ArrayLike
    ) -> NDArray[np.float32]:
        """Priority index of arms in period ``t`` with given counts; arguments broadcast."""
        return self._at(self.index, arm, t, successes, failures)

    def pull_at(
        self, arm: ArrayLike, t: ArrayLike, successes: ArrayLike, failures: ArrayLike
    ) -> NDArray[np.float32]:
        """Mixture probability of pulling, same arguments as :meth:`index_at`."""
        return self._at(self.pull, arm, t, successes, failures)

    def _at(
        self,
        table: NDArray[np.float32],
        arm: ArrayLike,
        t: ArrayLike,
        successes: ArrayLike,
        failures: ArrayLike,
    ) -> NDArray[np.float32]:
        a, period, s, f = (np.asarray(x, dtype=np.int64) for x in (arm, t, successes, failures))
        n = s + f
        if np.any((s < 0) | (f < 0) | (n > period) | (period >= self.horizon)):
            raise ValueError(f"counts must be >= 0 and add up to t at most, t < {self.horizon}")
        place = period * (period + 1) * (period + 2) // 6 + n * (n + 1) // 2 + s
        return table[self.group[a], place]


def lagrangian_tables(
    bound: LagrangianBound,
    *,
    tie_tolerance: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> LagrangianTables:
    """Tables of the Lagrangian index policies for the multipliers of a bound.

    8 bytes per entry and distinct arm: 11 MB at T = 200, 167 MB at T = 500.

    Parameters
    ----------
    bound
        From :func:`minimize_lagrangian`.
    tie_tolerance
        Indices this close to the largest count as tied; the bound's smoothing width if omitted.
    max_bytes
        Refuse larger tables with a ``ValueError``.
    """
    relaxation = _Relaxation(bound.alpha, bound.beta, bound.horizon, bound.weights)
    size = _table_size(bound.horizon)
    groups = relaxation.priors.shape[0]
    if 8 * groups * size > max_bytes:
        raise ValueError(
            f"{groups} distinct arms at horizon {bound.horizon} need {8e-6 * groups * size:,.0f} "
            f"MB of index tables, above max_bytes = {max_bytes / 1e6:,.0f} MB"
        )
    relaxation.allocate()
    index = np.empty((groups, size), np.float32)
    pull = np.empty((groups, size), np.float32)
    scratch = np.empty(bound.horizon)
    for g, (alpha, beta) in enumerate(relaxation.priors):
        _index_table(alpha, beta, bound.multipliers, relaxation.weights, relaxation.work, index[g])
        _single_arm(
            alpha,
            beta,
            bound.multipliers,
            relaxation.weights,
            bound.tau,
            pull[g],
            relaxation.first,
            relaxation.work,
            scratch,
            scratch.copy(),
        )
    return LagrangianTables(
        index=index,
        pull=pull,
        group=relaxation.group.astype(np.int64),
        horizon=bound.horizon,
        tie_tolerance=float(bound.tau if tie_tolerance is None else tie_tolerance),
    )


@njit(cache=True, nogil=True)
def _decide(
    index: _Singles,
    pull: _Singles,
    group: NDArray[np.int64],
    tolerance: float,
    optimal: bool,
    t: int,
    pulls: NDArray[np.int64],
    wins: NDArray[np.int64],
    state: NDArray[np.uint64],
) -> int:
    """The arm to pull; random numbers are drawn only where arms tie."""
    block = t * (t + 1) * (t + 2) // 6
    best = -np.inf
    for a in range(group.size):
        n = pulls[a]
        best = max(best, index[group[a], block + n * (n + 1) // 2 + wins[a]])
    tied = 0
    choice = 0
    for a in range(group.size):
        n = pulls[a]
        if index[group[a], block + n * (n + 1) // 2 + wins[a]] >= best - tolerance:
            tied += 1
            choice = a
    if tied == 1:
        return choice
    top = -1.0
    for a in range(group.size):
        n = pulls[a]
        place = block + n * (n + 1) // 2 + wins[a]
        if index[group[a], place] >= best - tolerance:
            score = uniform(state)
            if optimal and uniform(state) < pull[group[a], place]:
                score += 1.0
            if score > top:
                top = score
                choice = a
    return choice


@njit(cache=True, nogil=True)
def _paths(
    index: _Singles,
    pull: _Singles,
    group: NDArray[np.int64],
    tolerance: float,
    optimal: bool,
    start_pulls: NDArray[np.int64],
    start_wins: NDArray[np.int64],
    rewards: NDArray[np.int8],
    seeds: NDArray[np.uint64],
    out: NDArray[np.int16],
) -> None:
    state = np.empty(4, np.uint64)
    pulls = np.empty_like(start_pulls)
    wins = np.empty_like(start_wins)
    begin = start_pulls.sum()
    for i in range(rewards.shape[0]):
        seed_state(seeds[i], state)
        pulls[:] = start_pulls
        wins[:] = start_wins
        for t in range(out.shape[1]):
            a = _decide(index, pull, group, tolerance, optimal, begin + t, pulls, wins, state)
            out[i, t] = a
            wins[a] += 1 if rewards[i, a, pulls[a] - start_pulls[a]] > 0 else 0
            pulls[a] += 1


def _is_optimal(tie: str) -> bool:
    if tie not in ("random", "optimal"):
        raise ValueError(f"tie must be 'random' or 'optimal', got {tie!r}")
    return tie == "optimal"


def _check_state(
    tables: LagrangianTables, successes: ArrayLike, failures: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    s = np.ascontiguousarray(successes, dtype=np.int64)
    n = s + np.asarray(failures, dtype=np.int64)
    if s.shape != (tables.num_arms,) or n.shape != s.shape or np.any((s < 0) | (n < s)):
        raise ValueError(f"successes and failures must be {tables.num_arms} counts each")
    if n.sum() >= tables.horizon:
        raise ValueError(f"{n.sum()} pulls leave nothing of the horizon {tables.horizon}")
    return n, s


def decide(
    tables: LagrangianTables,
    successes: ArrayLike,
    failures: ArrayLike,
    seed: int,
    tie: str = "random",
) -> int:
    """The arm to pull after ``successes [K]`` and ``failures [K]``; the period is their total."""
    n, s = _check_state(tables, successes, failures)
    state = np.empty(4, np.uint64)
    seed_state(np.uint64(seed), state)
    return int(
        _decide(
            tables.index,
            tables.pull,
            tables.group,
            tables.tie_tolerance,
            _is_optimal(tie),
            int(n.sum()),
            n,
            s,
            state,
        )
    )


def lagrangian_paths(
    tables: LagrangianTables,
    rewards: ArrayLike,
    seeds: ArrayLike,
    tie: str = "random",
    *,
    successes: ArrayLike | None = None,
    failures: ArrayLike | None = None,
) -> NDArray[np.int16]:
    """Play a Lagrangian index policy on given outcomes.

    Parameters
    ----------
    tables
        From :func:`lagrangian_tables`.
    rewards
        0 or 1, ``[S, K, R]``: the ``n``-th pull of arm ``a`` from now on earns
        ``rewards[s, a, n]``.  R is the number of periods left, the horizon T at the start.
    seeds
        uint64 ``[S]``, one stream per path; used for ties only.
    tie
        "random" (Lagr-RT) or "optimal" (Lagr-OT), see the module's docstring.
    successes, failures
        ``[K]`` counts at the start of the paths, zero if omitted.

    Returns
    -------
    int16 ``[S, R]``, the arm pulled in each period.
    """
    zeros = np.zeros(tables.num_arms, np.int64)
    n, s = _check_state(
        tables, zeros if successes is None else successes, zeros if failures is None else failures
    )
    periods = tables.horizon - int(n.sum())
    outcome = np.asarray(rewards)
    if outcome.ndim != 3 or outcome.shape[1:] != (tables.num_arms, periods):
        raise ValueError(
            f"rewards must have shape [S, {tables.num_arms}, {periods}], got {outcome.shape}"
        )
    streams = np.ascontiguousarray(seeds, dtype=np.uint64)
    if streams.shape != outcome.shape[:1]:
        raise ValueError(f"seeds must have shape [{outcome.shape[0]}], got {streams.shape}")
    out = np.empty((outcome.shape[0], periods), np.int16)
    _paths(
        tables.index,
        tables.pull,
        tables.group,
        tables.tie_tolerance,
        _is_optimal(tie),
        n,
        s,
        np.ascontiguousarray(outcome, dtype=np.int8),
        streams,
        out,
    )
    return out
