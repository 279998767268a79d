"""The conjugate families whose state is a sum and a count: xi and nu per arm.

Samplers and closed forms are those of `irsppl.inner.cpu.families` and `irsppl.inner.cpu.special`.
The family's code is a constant of each type, so that every branch on it is decided at compilation.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np

from irsppl import beliefs
from irsppl.engine import verbs
from irsppl.engine.families import futures as along
from irsppl.engine.families.registry import Maker, makes
from irsppl.engine.situation import NaturalState
from irsppl.engine.verbs import implements, verb
from irsppl.inner.cpu import families, laws
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.special import TINY, beta_start, expected_gain, gain

# xi0, nu0, sd [K]: the first state, and the noise of Gaussian rewards; xi, nu [K]: the state now.
# futures [K, T, M], drawn [K], tail, theta [K, M]: each arm's futures, as far as they have been
# drawn; lanes [7, M]: work array of the scan over several of them.
_FIELDS = "xi0 nu0 sd xi nu futures drawn tail theta lanes"
# Between decisions the Beta family keeps each arm's CDF and density term at the nodes of the
# index's bisection tree (kept [K, nodes, 2]; a negative term marks an absent node), which a reward
# carries on by one step of a recurrence.
BetaBernoulli = namedtuple("BetaBernoulli", _FIELDS + " kept nodes count places")  # type: ignore[misc]
NormalNormal = namedtuple("NormalNormal", _FIELDS)  # type: ignore[misc]
GammaPoisson = namedtuple("GammaPoisson", _FIELDS)  # type: ignore[misc]
GammaExponential = namedtuple("GammaExponential", _FIELDS)  # type: ignore[misc]

_KINDS = (BetaBernoulli, NormalNormal, GammaPoisson, GammaExponential)  # in order of their codes
_PLAIN = _KINDS[1:]
# So many rewards at once are drawn as their sum, whose cost does not grow with their number.
_LEAP = 32
# Probabilities this close count as equal.
_TIE = 1e-12


def natural(code: int, xi: Any, nu: Any, sd: Any, horizon: int, copies: int = 1) -> Any:
    """The family of that code (`irsppl.inner.cpu.families`) in state xi, nu.

    horizon, copies: length and number of an arm's futures; 0 where no rule asks for them.
    """
    xi, nu, sd = (np.array(x, np.float64) for x in (xi, nu, sd))
    arms = xi.size
    fields = [
        xi,
        nu,
        sd,
        np.empty(arms),
        np.empty(arms),
        np.empty((arms, horizon, copies)),
        np.zeros(arms, np.int64),
        np.empty((arms, copies)),
        np.empty((arms, copies)),
        np.empty((7, copies)),
    ]
    if code == families.BETA_BERNOULLI:
        size = along.CACHED_NODES if horizon > 0 else 1
        fields += [
            np.full((arms, size, 2), -1.0),
            np.zeros((arms, size), np.int64),
            np.zeros(arms, np.int64),
            along.node_places(size),
        ]
    return _KINDS[code](*fields)


@makes(NaturalState, *(getattr(beliefs, kind.__name__) for kind in _KINDS))
def _(belief: beliefs.InKernels, needs: frozenset[str]) -> Maker:
    state = belief.kernel_state()
    return lambda horizon, copies: natural(*state, horizon, copies)


@implements(verbs.reset, *_PLAIN)
def _(family):
    for a in range(family.xi.size):
        family.xi[a] = family.xi0[a]
        family.nu[a] = family.nu0[a]


@implements(verbs.reset, BetaBernoulli)
def _(family):
    for a in range(family.xi.size):
        if family.xi[a] == family.xi0[a] and family.nu[a] == family.nu0[a]:
            continue  # nothing was observed of it: what is kept is still true
        family.xi[a] = family.xi0[a]
        family.nu[a] = family.nu0[a]
        for i in range(family.count[a]):
            family.kept[a, family.nodes[a, i], 1] = -1.0
        family.count[a] = 0


@implements(verbs.observe, *_PLAIN)
def _(family, arm, reward):
    family.xi[arm] += reward
    family.nu[arm] += 1.0


@implements(verbs.observe, BetaBernoulli)
def _(family, arm, reward):
    along.advance_kept(family, arm, reward)
    family.xi[arm] += reward
    family.nu[arm] += 1.0


@implements(verbs.mean, *_KINDS)
def _(family, arm):
    return family.xi[arm] / family.nu[arm]


def _samplers(kind: Any, code: int) -> None:
    @implements(verbs.draw_means, kind)
    def _(family, rng, out):
        for a in range(out.size):
            out[a] = families.sample_mean(rng, code, family.xi[a], family.nu[a], family.sd[a])

    @implements(verbs.draw_future_means, kind)
    def _(family, rng, counts, out):
        for a in range(out.size):
            xi, nu, n = family.xi[a], family.nu[a], counts[a]
            earned = families.sample_sum(rng, code, xi, nu, family.sd[a], n)
            out[a] = (xi + earned) / (nu + n)

    @implements(verbs.draw_path, kind)
    def _(family, rng, arm, length, out, start, cumulative):
        return families.sample_path(
            rng,
            code,
            family.xi[arm],
            family.nu[arm],
            family.sd[arm],
            length,
            out,
            start,
            cumulative,
        )

    @implements(verbs.draw_prefix, kind)
    def _(family, rng, arm, skip, width, total, row):
        # In two stages: rewards one by one, then, from the belief that they leave, the sum of the
        # others. Rewards are exchangeable, so the law is that of one parameter for both.
        length, sd = skip + width, family.sd[arm]
        families.sample_path(rng, code, family.xi[arm], family.nu[arm], sd, length, row, 1)
        known = family.nu[arm] + (length - 1)
        earned = row[length] * known
        if skip > 0:
            for n in range(1, width + 1):
                row[n] = row[n + skip]
        rest = total - width
        if rest <= 0:
            return earned / known
        earned += families.sample_sum(rng, code, earned, known, sd, rest)
        return earned / (known + rest)

    @implements(verbs.advance, kind)
    def _(family, rng, arm, at, upto, lam, cursor):
        if upto - at < _LEAP:
            while at < upto:
                cursor = verbs.follow(family, rng, arm, at, lam, cursor)
                at += 1
            return cursor
        xi, nu, n = cursor[2], cursor[3], upto - at
        if family.drawn[arm] <= at:
            family.futures[arm, at, 0] = along.draw_sum(code, family, rng, arm, xi, nu, at, n)
            family.drawn[arm] = upto
        return _cursor_at(family, arm, xi + family.futures[arm, at, 0], nu + n, lam)

    @implements(verbs.worth_many, kind)
    def _(family, rng, arm, lam, horizon, star, cursor):
        return along.worth_many(code, family, rng, arm, lam, horizon, star, cursor)

    @implements(verbs.bracket, kind)
    def _(family, horizon):
        return along.bracket(code, family.xi, family.nu, family.sd, horizon)


@verb
def _cursor_at(family: Any, arm: int, xi: float, nu: float, lam: float) -> Any:
    """A cursor in the belief (xi, nu) of the arm."""


@implements(_cursor_at, BetaBernoulli)
def _(family, arm, xi, nu, lam):
    below, p = beta_start(xi, nu - xi, lam)
    mean = xi / nu
    return mean, (mean - lam) * (1.0 - below) + p / nu, xi, nu, below, p


def _futures(kind: Any, code: int) -> None:
    @implements(_cursor_at, kind)
    def _(family, arm, xi, nu, lam):
        return xi / nu, expected_gain(code, xi, nu, family.sd[arm], lam), xi, nu, 0.0, 0.0

    @implements(verbs.begin, kind)
    def _(family, arm, lam, node):
        return _cursor_at(family, arm, family.xi[arm], family.nu[arm], lam)

    @implements(verbs.follow, kind)
    def _(family, rng, arm, at, lam, cursor):
        if family.drawn[arm] <= at:
            along.draw_step(code, family, rng, arm, at)
        xi, nu = cursor[2] + family.futures[arm, at, 0], cursor[3] + 1.0
        return _cursor_at(family, arm, xi, nu, lam)


def _laws(kind: Any, code: int) -> None:
    @implements(verbs.gain, kind)
    def _(family, arm, lam):
        return gain(code, family.xi[arm], family.nu[arm], lam)

    @implements(verbs.quantile, kind)
    def _(family, arm, level, z, floor, start):
        xi, nu = family.xi[arm], family.nu[arm]
        # As good as equal counts as equal, so that rounding does not break ties.
        if floor > -np.inf and laws.law(code, xi, nu, floor)[0] >= level - _TIE:
            return floor
        return laws.quantile(code, xi, nu, level, start)


@implements(verbs.highest, BetaBernoulli)
def _(family, arm):
    return 1.0


@implements(verbs.highest, GammaPoisson, GammaExponential)
def _(family, arm):
    return np.inf


@implements(verbs.mean_sd, NormalNormal)
def _(family, arm):
    return family.sd[arm] / math.sqrt(family.nu[arm])


@implements(verbs.quantile, NormalNormal)
def _(family, arm, level, z, floor, start):
    return family.xi[arm] / family.nu[arm] + family.sd[arm] / math.sqrt(family.nu[arm]) * z


for _code, _kind in enumerate(_KINDS):
    _samplers(_kind, _code)
    if _kind is not BetaBernoulli:
        _futures(_kind, _code)
    if _kind is not NormalNormal:
        _laws(_kind, _code)


@implements(verbs.renew, *_KINDS)
def _(family, rng):
    for a in range(family.xi.size):
        family.drawn[a] = 0
        for j in range(family.tail.shape[1]):
            family.tail[a, j] = family.xi[a]


@implements(verbs.begin, BetaBernoulli)
def _(family, arm, lam, node):
    xi, nu = family.xi[arm], family.nu[arm]
    if node == 0 or node >= family.kept.shape[1]:
        below, p = beta_start(xi, nu - xi, lam)
    else:
        if family.kept[arm, node, 1] < 0.0:
            below, p = beta_start(xi, nu - xi, lam)
            family.kept[arm, node, 0] = below
            family.kept[arm, node, 1] = p
            family.nodes[arm, family.count[arm]] = node
            family.count[arm] += 1
        below = family.kept[arm, node, 0]
        p = family.kept[arm, node, 1]
    mean = xi / nu
    return mean, (mean - lam) * (1.0 - below) + p / nu, xi, nu, below, p


@implements(verbs.follow, BetaBernoulli)
def _(family, rng, arm, at, lam, cursor):
    _, _, xi, nu, below, p = cursor
    if family.drawn[arm] > at:
        reward = family.futures[arm, at, 0]
    else:
        # The urn's step: the predictive law after the rewards so far.
        reward = 1.0 if random.uniform(rng) * nu < xi else 0.0
        family.futures[arm, at, 0] = reward
        family.drawn[arm] = at + 1
    # Selected, not branched on: rewards are what a branch predictor cannot guess.
    success = reward > 0.5
    inv = 1.0 / (xi if success else nu - xi)
    factor = (lam if success else 1.0 - lam) * nu * inv
    below -= p * (inv if success else -inv)
    p = max(p * factor, TINY)
    xi += reward
    nu += 1.0
    inv = 1.0 / nu
    mean = xi * inv
    return mean, (mean - lam) * (1.0 - below) + p * inv, xi, nu, below, p
