"""L and its gradient for given multipliers: one arm alone, backwards and forwards."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Singles
from irsppl.inner.bellman.solution import check_horizon
from irsppl.inner.cpu.compiling import njit

MAX_BYTES: Final = 1_000_000_000


def table_size(horizon: int) -> int:
    return horizon * (horizon + 1) * (horizon + 2) // 6


# ------------------------------------------------------------------------------------ one arm alone


@njit(cache=True, nogil=True)
def _backward_row(
    alpha: float,
    scale: float,
    price: float,
    tau: float,
    after: Floats,
    own: Floats,
    pull: Singles,
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
        d = mean * (1.0 + after[s + 1] - after[s]) + after[s] - own[s] - price
        p = min(max(d * steep + 0.5, 0.0), 1.0)
        pull[s] = p
        own[s] += p * (d + half * (1.0 - p))
        count += 1 if p > 0.0 else 0
        places += s if p > 0.0 else 0
    # `count` different numbers in 0..last add up to this much only if they are the largest ones.
    return last + 1 - count if 2 * places == count * (2 * last - count + 1) else 0


@njit(cache=True, nogil=True)
def single_arm_pass(
    alpha: float,
    beta: float,
    multipliers: Floats,
    tau: float,
    pull: Singles,
    first: NDArray[np.int32],
    work: Floats,
    pulls: Floats,
) -> float:
    """Value of one arm, backwards, then the law of its state under that policy, forwards.

    ``pull`` [T(T+1)(T+2)/6], ``first`` [T(T+1)/2] and ``work`` [(T+1)(T+2)/2] are overwritten.
    Fills ``pulls [T]``, expected numbers per period.
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
        pulls[t] = total
    return value


@njit(cache=True, nogil=True)
def index_table(
    alpha: float, beta: float, multipliers: Floats, work: Floats, index: Singles
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
                d = mean * (1.0 + win - lose) + lose - work[row + s] - multipliers[t]
                index[block + row + s] = d
                if d > 0.0:
                    work[row + s] += d
    return work[0]


class Relaxation:
    """L and its gradient for one bandit; owns the work arrays, computes identical arms once."""

    def __init__(self, alpha: ArrayLike, beta: ArrayLike, horizon: int):
        a = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
        b = np.atleast_1d(np.asarray(beta, dtype=np.float64))
        if a.ndim != 1 or a.shape != b.shape or not np.all((a > 0.0) & (b > 0.0)):
            raise ValueError(
                f"alpha and beta must be positive, of one length, got {alpha!r}, {beta!r}"
            )
        self.horizon = check_horizon(horizon)
        self.priors, self.group, self.copies = np.unique(
            np.stack([a, b], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        self.group = self.group.reshape(-1)

    def allocate(self) -> None:
        size = self.horizon
        self.pull = np.empty(table_size(size), np.float32)
        self.first = np.empty(size * (size + 1) // 2, np.int32)
        self.work = np.empty((size + 1) * (size + 2) // 2)

    def objective(self, multipliers: Floats, tau: float) -> tuple[float, Floats]:
        """L_tau and its gradient [T]."""
        value = float(multipliers.sum())
        gradient = np.ones(self.horizon)
        pulls = np.empty(self.horizon)
        for (alpha, beta), copies in zip(self.priors, self.copies, strict=True):
            work = (self.pull, self.first, self.work, pulls)
            value += copies * single_arm_pass(alpha, beta, multipliers, tau, *work)
            gradient -= copies * pulls
        return float(value), gradient
