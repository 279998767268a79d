"""Rewards from a short list of values, Dirichlet belief of their probabilities.

The law of an arm's mean is an integral, not a closed form (see `irsppl.DirichletCategorical`, whose
curve `gain` follows). For indices, with G_c ~ Gamma(alpha_c) and Q = sum_c (v_c - lam) G_c,
E[(mu - lam)+] follows from the transform phi(t) = prod_c (1 - i t (v_c - lam))^-alpha_c of Q at
nodes in log t. One more reward of value c multiplies phi by 1 / (1 - i t (v_c - lam)): a future is
followed, and what is known at the nodes of the index's bisection tree is kept from decision to
decision, by multiplications alone.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl import beliefs
from irsppl._checks import host64
from irsppl.beliefs.dirichlet_categorical import BEND, BISECTIONS, LOG_T
from irsppl.engine import verbs
from irsppl.engine.families.registry import Maker, makes
from irsppl.engine.families.weights import SUMS, atom_of, draw_atom, tally
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.arrays import Floats, Ints, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# In units of one arm's Q these leave a millionth of its deviation; 1e-4 where 1e5 times as wide.
_LOG_T: Final = np.linspace(-16.0, 8.0, 256)
_STEP: Final = float(_LOG_T[1] - _LOG_T[0])
_T: Final = np.exp(_LOG_T)
_ENDS: Final = np.where((_LOG_T[0] == _LOG_T) | (_LOG_T[-1] == _LOG_T), 0.5, 1.0) * _STEP
# Trapezoidal weights in log t, and the same over t.
_OVER_T: Final = _ENDS / _T
_SUM_OVER_T: Final = float(_OVER_T.sum())
# A mean so many squared standard deviations of Q from lam is on one side of it for certain.
_FAR: Final = 400.0
# Distances along the curve of `irsppl.DirichletCategorical`, and trapezoidal weights.
_DISTANCES: Final = np.exp(LOG_T)
_WEIGHTS: Final = np.r_[0.5, np.ones(LOG_T.size - 2), 0.5] * float(LOG_T[1] - LOG_T[0])
# Steps of a search for a quantile before it halves what is left.
_SECANTS: Final = 12
_TINY: Final = 1e-300
# Nodes of the bisection tree, numbered like a heap, whose transforms are kept between decisions.
_NODES: Final = 64
# Smaller parts of a transform count for nothing; denormal numbers would slow every product.
_NOTHING: Final = 1e-200


class DirichletCategorical(NamedTuple):
    """K arms, C values, J nodes in log t; [2] is a real and an imaginary part."""

    first: Floats  # [K, C] parameters at the start
    values: Floats  # [K, C], the same for all arms
    alpha: Floats  # [K, C], now
    law: Floats  # [C] cumulative probabilities of one draw
    tallies: Ints  # [C]
    low: float  # least and largest value
    high: float
    # Each arm's future, as far as it has been drawn: the law of its rewards, their places.
    laws: Floats  # [K, C]
    drawn: Ints  # [K]
    futures: Ints  # [K, T]
    # The transform that is followed now, and by what a reward of each value multiplies it.
    phi: Floats  # [2, J]
    factors: Floats  # [C, 2, J]
    # Transforms of the arms' beliefs at nodes of the bisection tree: which, and how many of them.
    kept: Floats  # [K, nodes, 2, J]
    known: NDArray[np.bool_]  # [K, nodes]
    nodes: Ints  # [K, nodes]
    count: Ints  # [K]
    steps: Floats  # [nodes, C, 2, J] factors
    scales: Floats  # [nodes] of t, for all arms: that of the narrowest Q; 0: not met yet


@makes(beliefs.DirichletCategorical)
def _(belief: beliefs.DirichletCategorical, needs: frozenset[str]) -> Maker:
    first = np.array(host64(belief.alpha))
    every = np.ascontiguousarray(np.broadcast_to(host64(belief.values), first.shape))
    arms, size = first.shape

    def make(horizon: int, copies: int) -> DirichletCategorical:
        nodes, points = (_NODES if horizon > 1 else 0), _T.size
        return DirichletCategorical(
            first,
            every,
            np.empty_like(first),
            np.empty(size),
            np.empty(size, np.int64),
            float(every.min()),
            float(every.max()),
            np.empty((arms, size)),
            np.zeros(arms, np.int64),
            np.empty((arms, horizon), np.int64),
            np.empty((2, points)),
            np.empty((size, 2, points)),
            np.empty((arms, nodes, 2, points)),
            np.zeros((arms, nodes), np.bool_),
            np.empty((arms, nodes), np.int64),
            np.zeros(arms, np.int64),
            np.empty((nodes, size, 2, points)),
            np.zeros(nodes),
        )

    return make


@implements(verbs.reset, DirichletCategorical)
def _(family):
    for a in range(family.first.shape[0]):
        for c in range(family.first.shape[1]):
            family.alpha[a, c] = family.first[a, c]
        for i in range(family.count[a]):
            family.known[a, family.nodes[a, i]] = False
        family.count[a] = 0


@njit(**SUMS)
def _times(phi: Floats, factor: Floats) -> None:
    """Multiply a transform [2, J]."""
    for j in range(phi.shape[1]):
        x, y = phi[0, j], phi[1, j]
        re = x * factor[0, j] - y * factor[1, j]
        im = x * factor[1, j] + y * factor[0, j]
        phi[0, j] = re if abs(re) > _NOTHING else 0.0
        phi[1, j] = im if abs(im) > _NOTHING else 0.0


@implements(verbs.observe, DirichletCategorical)
def _(family, arm, reward):
    atom = atom_of(family.values, arm, reward)
    family.alpha[arm, atom] += 1.0
    for i in range(family.count[arm]):
        node = family.nodes[arm, i]
        _times(family.kept[arm, node], family.steps[node, atom])


@njit(**INLINE)
def _state(family: DirichletCategorical, arm: int) -> tuple[float, float]:
    """Pseudo-sum and pseudo-count of rewards."""
    xi, nu = 0.0, 0.0
    for c in range(family.alpha.shape[1]):
        xi += family.alpha[arm, c] * family.values[arm, c]
        nu += family.alpha[arm, c]
    return xi, nu


@implements(verbs.mean, DirichletCategorical)
def _(family, arm):
    xi, nu = _state(family, arm)
    return xi / nu


@njit(**INLINE)
def _draw(family: DirichletCategorical, rng: Words, arm: int) -> float:
    """Probabilities of the values into ``law``; returns their mean."""
    total, first = 0.0, 0.0
    for c in range(family.law.size):
        g = random.gamma(rng, family.alpha[arm, c])
        total += g
        first += g * family.values[arm, c]
        family.law[c] = total
    if total <= 0.0:
        # All underflowed, which takes parameters far below one: the largest takes all.
        best = 0
        for c in range(family.law.size):
            best = c if family.alpha[arm, c] > family.alpha[arm, best] else best
        for c in range(family.law.size):
            family.law[c] = 1.0 if c >= best else 0.0
        return family.values[arm, best]
    for c in range(family.law.size):
        family.law[c] /= total
    return first / total


@implements(verbs.draw_means, DirichletCategorical)
def _(family, rng, out):
    for a in range(out.size):
        out[a] = _draw(family, rng, a)


@implements(verbs.draw_future_means, DirichletCategorical)
def _(family, rng, counts, out):
    for a in range(out.size):
        xi, nu = _state(family, a)
        n = counts[a]
        if n > 0:
            _draw(family, rng, a)
            tally(rng, family.law, n, family.tallies)
            for c in range(family.law.size):
                xi += family.tallies[c] * family.values[a, c]
        out[a] = xi / (nu + n)


@implements(verbs.draw_path, DirichletCategorical)
def _(family, rng, arm, length, out, start, cumulative):
    total, nu = _state(family, arm)
    mean = total / nu
    least, summed = mean, mean
    out[start] = mean
    if length <= 1:
        return least
    _draw(family, rng, arm)
    for n in range(1, length):
        total += family.values[arm, draw_atom(rng, family.law)]
        mean = total / (nu + n)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
    return least


@implements(verbs.draw_prefix, DirichletCategorical)
def _(family, rng, arm, skip, width, total, row):
    earned, nu = _state(family, arm)
    _draw(family, rng, arm)
    length, rest = skip + width, total - width
    for n in range(length):
        if n > 0:
            earned += family.values[arm, draw_atom(rng, family.law)]
        if n >= skip:
            row[1 + n - skip] = earned / (nu + n)
    if rest > 0:
        tally(rng, family.law, rest, family.tallies)
        for c in range(family.law.size):
            earned += family.tallies[c] * family.values[arm, c]
    return earned / (nu + length - 1 + rest)


# ------------------------------------------------------------------ the law of a mean


@njit(**KERNEL)
def _scale(alpha: Floats, values: Floats, lam: float) -> float:
    total = 0.0
    for c in range(alpha.size):
        total += alpha[c] * (values[c] - lam) ** 2
    return math.sqrt(total)


@njit(**KERNEL)
def _transform(alpha: Floats, values: Floats, lam: float, scale: float, phi: Floats) -> None:
    """phi at t / scale, [2, J]."""
    for j in range(_T.size):
        size, angle = 0.0, 0.0
        for c in range(alpha.size):
            x = _T[j] / scale * (values[c] - lam)
            size -= 0.5 * alpha[c] * math.log1p(x * x)
            angle += alpha[c] * math.atan(x)
        size = math.exp(size) if size > -460.0 else 0.0
        phi[0, j] = size * math.cos(angle)
        phi[1, j] = size * math.sin(angle)


@njit(**KERNEL)
def _steps(values: Floats, lam: float, scale: float, factors: Floats) -> None:
    """1 / (1 - i t (v - lam) / scale) for each value, [C, 2, J]."""
    for c in range(values.size):
        for j in range(_T.size):
            x = _T[j] / scale * (values[c] - lam)
            factors[c, 0, j] = 1.0 / (1.0 + x * x)
            factors[c, 1, j] = x / (1.0 + x * x)


@njit(**SUMS)
def _excess(phi: Floats, total: float, nu: float, scale: float, spread: float) -> float:
    """E[(mu - lam)+]; ``total`` is E[Q] = nu (mean - lam), ``spread`` the variance of Q."""
    if total * total > _FAR * spread:  # Re phi turns too fast for the nodes, and is not needed
        return max(total / nu, 0.0)
    # E|Q| = 2/pi integral (1 - Re phi) / t^2 dt, and E[Q+] = nu E[(mu - lam)+] (Lukacs). Above the
    # last node the 1 remains, and Re phi ~ t^-nu; below the first 1 - Re phi ~ t^2.
    last = _T.size - 1
    inner = _SUM_OVER_T
    for j in range(_T.size):
        inner -= _OVER_T[j] * phi[0, j]
    inner += (1.0 - phi[0, last] / (nu + 1.0)) / _T[last] + (1.0 - phi[0, 0]) / _T[0]
    gain = 0.5 * (total + 2.0 / math.pi * scale * inner) / nu
    return max(gain, total / nu, 0.0)


@njit(**KERNEL)
def _saddle(alpha: Floats, values: Floats, lam: float, unit: float) -> float:
    """Where the curve leaves the real axis, as in `irsppl.DirichletCategorical`."""
    least = 0.5 / max(_scale(alpha, values, lam) / abs(unit), 1.0)
    low, high = math.log(least / (1.0 - least)), 30.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        q = 1.0 / (1.0 + math.exp(-middle))
        slope = 0.0
        for c in range(alpha.size):
            r = (values[c] - lam) / unit
            slope += alpha[c] * r / (1.0 - r * q)
        if slope < 0.0:
            low = middle
        else:
            high = middle
    return 1.0 / (1.0 + math.exp(-low))


@njit(**KERNEL)
def _law(alpha: Floats, values: Floats, low: float, high: float, lam: float) -> tuple[float, float]:
    """E[(mu - lam)+] and P(mu > lam), low < lam < high, as `irsppl.DirichletCategorical` has it."""
    total, nu = 0.0, 0.0
    for c in range(alpha.size):
        total += alpha[c] * (values[c] - lam)
        nu += alpha[c]
    unit = high - lam if total <= 0.0 else low - lam
    q = _saddle(alpha, values, lam, unit)
    height, spread, skew = 0.0, 0.0, 0.0
    for c in range(alpha.size):
        r = (values[c] - lam) / unit
        g = r / (1.0 - r * q)
        height -= alpha[c] * math.log1p(-r * q)
        spread += alpha[c] * g * g
        skew += alpha[c] * g * g * g
    near = min(q, 1.0 / math.sqrt(spread))
    turn = complex(math.sin(BEND) if skew > 0.0 else -math.sin(BEND), math.cos(BEND))
    tail, excess = complex(0.0, 0.0), complex(0.0, 0.0)
    for j in range(_DISTANCES.size):
        t = _DISTANCES[j] * near
        size, angle, far = 0.0, 0.0, 0.0
        for c in range(alpha.size):
            r = (values[c] - lam) / unit
            x = t * r / (1.0 - r * q)
            size -= 0.5 * alpha[c] * math.log1p(x * (x - 2.0 * turn.real))
            angle += alpha[c] * math.atan2(x * turn.imag, 1.0 - x * turn.real)
            far += alpha[c] if abs(x) > 1.0 else 0.0
        size = math.exp(size) if size > -460.0 else 0.0
        transform = complex(size * math.cos(angle), size * math.sin(angle))
        over = 1.0 / (q + t * turn)
        step = _WEIGHTS[j] * t * turn * transform * over
        tail += step
        excess += step * over
        if j == 0:  # below the first node the transform is 1
            tail += complex(0.0, math.atan2(t * turn.imag, q + t * turn.real))
            excess -= over
        elif j == _DISTANCES.size - 1:  # above the last it is a power of the distance
            tail += transform / far
            excess += transform * over / (far + 1.0)
    height = math.exp(height) / math.pi
    gain = max(height * excess.imag, 0.0) * abs(unit) / nu
    beyond = min(max(height * tail.imag, 0.0), 1.0)
    return (gain, beyond) if total <= 0.0 else (total / nu + gain, 1.0 - beyond)


@implements(verbs.highest, DirichletCategorical)
def _(family, arm):
    return family.high


@implements(verbs.gain, DirichletCategorical)
def _(family, arm, lam):
    xi, nu = _state(family, arm)
    if lam <= family.low:
        return xi / nu - lam, 1.0
    if lam >= family.high:
        return 0.0, 0.0
    return _law(family.alpha[arm], family.values[arm], family.low, family.high, lam)


@implements(verbs.quantile, DirichletCategorical)
def _(family, arm, level, z, floor, start):
    lo, hi = family.low, family.high
    if floor > lo:
        if verbs.gain(family, arm, floor)[1] <= 1.0 - level:
            return floor
        lo = floor
    xi, nu = _state(family, arm)
    sd = _scale(family.alpha[arm], family.values[arm], xi / nu) / math.sqrt(nu * (nu + 1.0))
    x, before, was = xi / nu + z * sd, 0.0, 0.0
    close, wanted = 1e-12 * (family.high - family.low), max(1.0 - level, _TINY)
    # The logarithm of the tail is nearly a parabola: secants, and halves where they do not settle.
    for i in range(_SECANTS + 40):
        now = x if lo < x < hi else 0.5 * (lo + hi)
        tail = verbs.gain(family, arm, now)[1]
        if tail > 1.0 - level:
            lo = now
        else:
            hi = now
        apart = math.log(max(tail, _TINY) / wanted)
        secant = 0 < i < _SECANTS and apart != was
        x = now + apart * (now - before) / (was - apart) if secant else lo
        if hi - lo <= close or (secant and abs(x - now) <= close):
            break
        before, was = now, apart
    return min(max(x, lo), hi)


# ------------------------------------------------------------------ the index


@implements(verbs.renew, DirichletCategorical)
def _(family, rng):
    for a in range(family.drawn.size):
        family.drawn[a] = 0


@implements(verbs.bracket, DirichletCategorical)
def _(family, horizon):
    return family.low, family.high


@implements(verbs.begin, DirichletCategorical)
def _(family, arm, lam, node):
    xi, nu = _state(family, arm)
    if lam <= family.low or lam >= family.high:  # its transform is not needed
        return xi / nu, max(xi / nu - lam, 0.0), xi, nu, 0.0, 0.0
    alpha, values, phi = family.alpha[arm], family.values[arm], family.phi
    spread = _scale(alpha, values, lam) ** 2
    if node == 0 or node >= family.scales.size:
        scale = _scale(alpha, values, lam)
        _transform(alpha, values, lam, scale, phi)
        _steps(values, lam, scale, family.factors)
        gain = _excess(phi, xi - nu * lam, nu, scale, spread)
        return xi / nu, gain, xi, nu, scale, spread
    if family.scales[node] == 0.0:
        scale = np.inf
        for a in range(family.first.shape[0]):
            scale = min(scale, _scale(family.first[a], values, lam))
        family.scales[node] = scale
        _steps(values, lam, scale, family.steps[node])
    scale, kept = family.scales[node], family.kept[arm, node]
    if not family.known[arm, node]:
        _transform(alpha, values, lam, scale, kept)
        family.known[arm, node] = True
        family.nodes[arm, family.count[arm]] = node
        family.count[arm] += 1
    steps = family.steps[node]
    for i in range(2):
        for j in range(_T.size):
            phi[i, j] = kept[i, j]
            for c in range(values.size):
                family.factors[c, i, j] = steps[c, i, j]
    gain = _excess(phi, xi - nu * lam, nu, scale, spread)
    return xi / nu, gain, xi, nu, scale, spread


one_by_one(DirichletCategorical)


@implements(verbs.follow, DirichletCategorical)
def _(family, rng, arm, at, lam, cursor):
    if family.drawn[arm] <= at:
        if at == 0:
            _draw(family, rng, arm)
            for c in range(family.law.size):
                family.laws[arm, c] = family.law[c]
        family.futures[arm, at] = draw_atom(rng, family.laws[arm])
        family.drawn[arm] = at + 1
    _, _, xi, nu, scale, spread = cursor
    atom = family.futures[arm, at]
    xi += family.values[arm, atom]
    nu += 1.0
    if scale == 0.0:
        return xi / nu, max(xi / nu - lam, 0.0), xi, nu, scale, spread
    spread += (family.values[arm, atom] - lam) ** 2
    _times(family.phi, family.factors[atom])
    gain = _excess(family.phi, xi - nu * lam, nu, scale, spread)
    return xi / nu, gain, xi, nu, scale, spread
