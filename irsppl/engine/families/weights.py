"""Arithmetic on the weights of points, shared by the beliefs that are made of them."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from irsppl.engine.verbs import INLINE
from irsppl.inner.arrays import Floats, Ints, Singles, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# Share of all weights below which plans leave out what lies at an end of an arm's stretch.
NEGLIGIBLE: Final = 1e-8
# The same along a future, of a single point.
LEAST_SHARE: Final = 1e-9
# Weights below this are set to zero: arithmetic on the smallest floats is a hundred times slower.
NOTHING: Final = np.float32(1e-18)
# Sums may be taken in any order; without that they are not vectorised.
SUMS: Final = {**KERNEL, "fastmath": {"reassoc", "contract", "nsz"}}
# The same within its caller, where many arrays would have to be handed over.
INNER: Final = {**INLINE, "fastmath": SUMS["fastmath"]}
_LEAST: Final = 1e-290
# Points come in blocks of so many, and plans work on whole blocks: a vectorised loop has no rest
# then, and what one step stores the next one loads in the same pieces.
BLOCK: Final = 32
# Logarithms of likelihood ratios are cut to this.
FAR: Final = 600.0
# The logarithm of a likelihood of zero, in products with counts.
LEAST_LOG: Final = -1e4
# Atoms that a draw goes through one and all.
COUNTED: Final = 64
# A binomial variate takes as long as so many single draws.
DRAWS_PER_BINOMIAL: Final = 8
LOG_2: Final = math.log(2.0)
LOG2_E: Final = 1.0 / LOG_2
SMALLEST: Final = np.float32(2.0**-126)
# In single precision: the first has few digits, so that products with whole numbers are exact.
FAR_32: Final = np.float32(80.0)
LOG_2_HIGH: Final = np.float32(0.693359375)
LOG_2_LOW: Final = np.float32(LOG_2 - 0.693359375)


@njit(**KERNEL)
def atom_of(values: Floats, arm: int, reward: float) -> int:
    """The atom nearest to a reward, so that rounding does no harm."""
    best = 0
    for r in range(1, values.shape[1]):
        if abs(values[arm, r] - reward) < abs(values[arm, best] - reward):
            best = r
    return best


@njit(**KERNEL)
def find(weights: Floats, sums: Floats, level: float) -> int:
    """The point in which the running sum of the weights comes to exceed ``level``.

    sums [N / BLOCK]: at the ends of blocks.
    """
    block, last = 0, sums.size - 1
    while block < last and sums[block] <= level:
        block += 1
    point = block * BLOCK
    running = (sums[block - 1] if block > 0 else 0.0) + weights[point]
    end = point + BLOCK - 1
    while point < end and running <= level:
        point += 1
        running += weights[point]
    while weights[point] <= 0.0 and point > 0:  # the level was the sum of all, but for rounding
        point -= 1
    return point


@njit(**KERNEL)
def _atom(law: Floats, level: float) -> int:
    """The first place whose running sum exceeds ``level``; the last one at most.

    Few places are counted, because nobody could foresee the branches of a search.
    """
    if law.size > COUNTED:
        return first_above(law, level, 0, law.size - 1)
    below = 0
    for r in range(law.size):
        below += np.int64(law[r] <= level)
    return min(below, law.size - 1)


@njit(**KERNEL)
def draw_point(rng: Words, weights: Floats, sums: Floats) -> int:
    """A point with probability proportional to its weight."""
    return find(weights, sums, random.uniform(rng) * sums[sums.size - 1])


@njit(**KERNEL)
def draw_atom(rng: Words, law: Floats) -> int:
    """A reward atom of a point, ``law`` [R] cumulative."""
    return _atom(law, random.uniform(rng))


@njit(**KERNEL)
def draw_four(rng: Words, law: Floats) -> tuple[int, int, int, int]:
    """The same four times; no draw waits for the stream's state to go to memory and back."""
    a, b, c, d = rng[0], rng[1], rng[2], rng[3]
    p, a, b, c, d = random.advance(a, b, c, d)
    q, a, b, c, d = random.advance(a, b, c, d)
    r, a, b, c, d = random.advance(a, b, c, d)
    s, a, b, c, d = random.advance(a, b, c, d)
    rng[0], rng[1], rng[2], rng[3] = a, b, c, d
    i, j = _atom(law, random.unit(p)), _atom(law, random.unit(q))
    return i, j, _atom(law, random.unit(r)), _atom(law, random.unit(s))


@njit(**SUMS)
def reweigh(weights: NDArray, row: NDArray, mu: NDArray) -> tuple[float, float]:
    """Multiply weights by a row of likelihoods; their sum and their sum with the means."""
    total, first = 0.0, 0.0
    for j in range(weights.size):
        w = weights[j] * row[j]
        weights[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**{**SUMS, "fastmath": {"reassoc", "nsz", "nnan"}})
def largest(row: NDArray) -> float:
    """Of numbers that are all numbers."""
    top = row[0]
    for j in range(row.size):
        top = row[j] if row[j] > top else top
    return top


@njit(**SUMS)
def fits(logs: NDArray, top: float, out: Floats) -> None:
    """Likelihoods as shares of the largest one, whose logarithm is ``top``."""
    for j in range(logs.size):
        log = logs[j] - top
        out[j] = ratio(log) if log > -FAR else 0.0


@njit(**SUMS)
def reweigh_by_logs(
    weights: NDArray, logs: NDArray, own: float, mu: NDArray
) -> tuple[float, float]:
    """The same with logarithms of likelihoods, less ``own``."""
    total, first = 0.0, 0.0
    for j in range(weights.size):
        w = weights[j] * ratio(logs[j] - own)
        weights[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**SUMS)
def _blend(a: Singles, b: Singles, c: Singles, d: Singles, u: float, out: Singles) -> None:
    """The cubic through four rows, ``u`` in [0, 1] of the way from the second to the third."""
    p, q = np.float32(u * (u - 1.0) * (2.0 - u) / 6.0), np.float32(u * (u - 1.0) * (u + 1.0) / 6.0)
    r = np.float32((1.0 - u * u) * (2.0 - u) / 2.0)
    s = np.float32(u * (1.0 + u) * (2.0 - u) / 2.0)
    for j in range(out.size):
        out[j] = p * a[j] + r * b[j] + s * c[j] + q * d[j]


@njit(**KERNEL)
def read_curve(curve: Singles, exact: Singles, place: float, out: Singles) -> None:
    """Log-likelihoods [N] of a reward, given its place on a curve [G, N] or its row (`Curves`)."""
    if place < 0.0:
        row = np.int64(-place) - 1
        for j in range(out.size):
            out[j] = exact[row, j]
        return
    cell: Any = np.int64(place)
    last = curve.shape[0] - 1
    _blend(
        curve[max(cell - 1, 0)],
        curve[cell],
        curve[min(cell + 1, last)],
        curve[min(cell + 2, last)],
        place - cell,
        out,
    )


@njit(**INNER)
def step(
    before: Singles, row: Singles, scale: np.float32, mu: Singles, after: Singles
) -> tuple[np.float32, np.float32]:
    """``after = before * row * scale``; its sum and its sum with the means."""
    total, first = np.float32(0.0), np.float32(0.0)
    for j in range(before.size):
        w = before[j] * scale * row[j]
        w = w if w > NOTHING else np.float32(0.0)
        after[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**INNER)
def four_steps(
    before: Singles,
    row0: Singles,
    row1: Singles,
    row2: Singles,
    row3: Singles,
    scale: np.float32,
    mu: Singles,
    after: Singles,
) -> tuple[np.float32, ...]:
    """Four steps in one pass, scaled at once: the sum and the sum with the means after each."""
    t0, t1, t2, t3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    m0, m1, m2, m3 = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for j in range(before.size):
        w = before[j] * scale * row0[j]
        t0 += w
        m0 += w * mu[j]
        w *= row1[j]
        t1 += w
        m1 += w * mu[j]
        w *= row2[j]
        t2 += w
        m2 += w * mu[j]
        w *= row3[j]
        w = w if w > NOTHING else np.float32(0.0)
        after[j] = w
        t3 += w
        m3 += w * mu[j]
    return t0, m0, t1, m1, t2, m2, t3, m3


@njit(**SUMS)
def excess(weights: Singles, mu: Singles, lam: np.float32) -> np.float32:
    """sum of weights (mu - lam), over points that all lie above lam."""
    total = np.float32(0.0)
    for j in range(weights.size):
        total += weights[j] * (mu[j] - lam)
    return total


@njit(**KERNEL)
def tally(rng: Words, law: Floats, n: int, out: NDArray) -> None:
    """How often each atom comes up in n rewards at one point, ``law`` [R] cumulative."""
    left = n
    past = 0.0
    for r in range(law.size - 1):
        rest = 1.0 - past
        share = (law[r] - past) / rest if rest > 0.0 else 1.0
        out[r] = random.binomial(rng, left, min(max(share, 0.0), 1.0)) if left > 0 else 0
        left -= out[r]
        past = law[r]
    out[law.size - 1] = left


@njit(**INLINE)
def exponential(x: float) -> float:
    """exp(x) to 3e-10, |x| <= 600, in arithmetic that a loop over points can be vectorised with."""
    x = x * LOG2_E
    whole = np.floor(x + 0.5)
    x = (x - whole) * LOG_2
    y = 1.0 / 40320.0
    y = y * x + 1.0 / 5040.0
    y = y * x + 1.0 / 720.0
    y = y * x + 1.0 / 120.0
    y = y * x + 1.0 / 24.0
    y = y * x + 1.0 / 6.0
    y = y * x + 0.5
    y = y * x + 1.0
    y = y * x + 1.0
    return y * np.int64((np.int64(np.int32(whole)) + 1023) << 52).view(np.float64)


@njit(**INLINE)
def ratio(log: float) -> float:
    """A likelihood ratio from its logarithm, cut to what numbers can hold."""
    log = log if log > -FAR else -FAR
    return exponential(log if log < FAR else FAR)


@njit(**INLINE)
def ratio32(log: np.float32) -> np.float32:
    """The same to 3e-7, in single precision; twice as many fit into a register."""
    log = log if log > -FAR_32 else -FAR_32
    log = log if log < FAR_32 else FAR_32
    whole = np.floor(log * np.float32(LOG2_E) + np.float32(0.5))
    x = (log - whole * LOG_2_HIGH) - whole * LOG_2_LOW
    y = np.float32(1.0 / 5040.0)
    y = y * x + np.float32(1.0 / 720.0)
    y = y * x + np.float32(1.0 / 120.0)
    y = y * x + np.float32(1.0 / 24.0)
    y = y * x + np.float32(1.0 / 6.0)
    y = y * x + np.float32(0.5)
    y = y * x + np.float32(1.0)
    y = y * x + np.float32(1.0)
    return y * np.int32((np.int32(whole) + 127) << 23).view(np.float32)


@njit(**INNER)
def _add_four(
    scores: Singles,
    a: Singles,
    b: Singles,
    c: Singles,
    d: Singles,
    times: tuple[np.float32, np.float32, np.float32, np.float32],
    shift: np.float32,
) -> None:
    p, q, r, s = times
    for j in range(scores.size):
        scores[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j]) - shift


@njit(**KERNEL)
def add_draws(
    rng: Words,
    law: Floats,
    n: int,
    logs: Singles,
    point: int,
    counts: Ints,
    scores: Singles,
    low: int,
) -> None:
    """Add the log-likelihood of n rewards drawn at a point, ``law`` [R] its own, to the scores of
    the points from ``low`` on.

    It is less than that at the point itself: ratios to it stay in range. logs [R, N]; counts [R] is
    work: each atom is read once, however often it was drawn.
    """
    atoms, high = law.size, low + scores.size
    if n < DRAWS_PER_BINOMIAL * (atoms - 1):
        counts[:] = 0
        for left in range(n, 0, -4):
            a, b, c, d = draw_four(rng, law)
            counts[a] += 1
            counts[b] += left > 1
            counts[c] += left > 2
            counts[d] += left > 3
    else:
        tally(rng, law, n, counts)
    next_ = _drawn(counts, 0)
    while next_ < atoms:
        a, last = next_, atoms - 1
        b = _drawn(counts, a + 1)
        c = _drawn(counts, b + 1)
        d = _drawn(counts, c + 1)
        next_ = _drawn(counts, d + 1)
        # What lies beyond the last atom is the last one, no times.
        p, q = np.float32(counts[a]), np.float32(counts[min(b, last)] * (b < atoms))
        r = np.float32(counts[min(c, last)] * (c < atoms))
        s = np.float32(counts[min(d, last)] * (d < atoms))
        b, c, d = min(b, last), min(c, last), min(d, last)
        shift = p * logs[a, point] + q * logs[b, point]
        shift += r * logs[c, point] + s * logs[d, point]
        first, second = logs[a, low:high], logs[b, low:high]
        third, fourth = logs[c, low:high], logs[d, low:high]
        _add_four(scores, first, second, third, fourth, (p, q, r, s), shift)


@njit(**INLINE)
def _drawn(counts: Ints, atom: int) -> int:
    """The first atom from there on that was drawn; R at least where none was."""
    while atom < counts.size and counts[atom] == 0:
        atom += 1
    return atom


@njit(**INLINE)
def log32(x: np.float32) -> np.float32:
    """The logarithm to 2e-7, of zero `LEAST_LOG`: it is multiplied by counts."""
    bits = np.int32(np.float32(x).view(np.int32) - np.int32(0x3F3504F3))  # of the root of a half
    whole = np.int32(bits >> 23)
    m = np.int32(np.int32(bits & 0x7FFFFF) + np.int32(0x3F3504F3)).view(np.float32)
    t = (m - np.float32(1.0)) / (m + np.float32(1.0))
    s = t * t
    y = np.float32(2.0 / 9.0)
    y = y * s + np.float32(2.0 / 7.0)
    y = y * s + np.float32(2.0 / 5.0)
    y = y * s + np.float32(2.0 / 3.0)
    y = y * s + np.float32(2.0)
    log = np.float32(whole) * np.float32(LOG_2) + t * y
    return log if x > SMALLEST else np.float32(LEAST_LOG)


@njit(**SUMS)
def exponentiate(scores: Singles, weights: NDArray, out: Singles) -> None:
    """``out = weights * exp(scores)``."""
    for j in range(scores.size):
        out[j] = np.float32(weights[j]) * ratio32(scores[j])


@njit(**SUMS)
def posterior_mean(weights: NDArray, scores: Singles, mu: Singles) -> float:
    """Mean of mu under weights times exp(scores)."""
    total, first = 0.0, 0.0
    for j in range(scores.size):
        w = weights[j] * ratio32(scores[j])
        total += w
        first += w * mu[j]
    return first / total


@njit(**SUMS)
def _scaled(weights: Floats, scale: float) -> None:
    for j in range(weights.size):
        w = weights[j] * scale
        weights[j] = w if w > _LEAST else 0.0


@njit(**SUMS)
def _sum(x: NDArray) -> float:
    total = 0.0
    for j in range(BLOCK):
        total += x[j]
    return total


@njit(**KERNEL)
def settle(weights: Floats, sums: Floats, total: float, span: Ints) -> None:
    """Weights that add to one, their running sums at the ends of blocks [N / BLOCK], and the
    stretch that counts. (In a running sum over points one addition would wait for another.)"""
    _scaled(weights, 1.0 / total)
    running = 0.0
    for b in range(sums.size):
        running += _sum(weights[b * BLOCK : b * BLOCK + BLOCK])
        sums[b] = running
    low, high = 0, sums.size
    while low < high - 1 and sums[low] < NEGLIGIBLE:
        low += 1
    while low < high - 1 and running - sums[high - 2] < NEGLIGIBLE:
        high -= 1
    span[0] = low * BLOCK
    span[1] = high * BLOCK


@njit(**SUMS)
def copied(source: Floats, target: Singles) -> float:
    """``target = source``, and its sum."""
    total = 0.0
    for j in range(source.size):
        target[j] = source[j]
        total += source[j]
    return total


@njit(**SUMS)
def dot(x: NDArray, y: NDArray) -> float:
    total = 0.0
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@njit(**KERNEL)
def first_above(mu: Singles | Floats, lam: float, low: int, high: int) -> int:
    """The first of mu[low:high] above lam; high where none is."""
    while low < high:
        middle = (low + high) // 2
        if mu[middle] > lam:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**KERNEL)
def narrow(row: Singles, low: int, high: int, least: float) -> tuple[int, int]:
    """The stretch without the blocks at its ends whose weights all lie below ``least``."""
    while high - low > BLOCK and row[low + BLOCK - 1] < least:
        for j in range(low, low + BLOCK):
            if row[j] >= least:
                return low, high
        low += BLOCK
    while high - low > BLOCK and row[high - BLOCK] < least:
        for j in range(high - BLOCK, high):
            if row[j] >= least:
                return low, high
        high -= BLOCK
    return low, high
