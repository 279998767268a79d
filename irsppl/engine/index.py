"""IRS.Index and IRS.Index*: the arm whose sampled index is the largest.

One arm against a sure reward ``lam``, ``T`` periods left, along one sampled future: with the mean
``mu_i`` and the gain ``e_i = E_{y_i}[(mu - lam)^+] = Gamma_i - lam`` after ``i`` pulls, and

    D_n = sum_{i<n} (mu_i - lam + e_0 - e_i),

the relative benefit of trying the arm is

    Index   phi(lam) = max_{1<=n<=T} D_n + (T - n) (e_0 - min_{i<=n} e_i),
    Index*  phi(lam) = max_{1<=n<=T} D_n + e_0 - e_n.

Both are the paper's formulas (section "IRS.Index Policy") rearranged so that nothing of order
``T Gamma`` is added and taken away again.  An arm's index is the largest ``lam`` with
``phi >= 0``; with several futures ``phi`` is their mean.  The policy plays the largest index.

Two facts spare nearly all of the work, and neither changes a decision:

* No term from ``n`` on exceeds ``D_n + (T - n) e_0`` (Index), because ``mu_i - lam <= e_i``, and
  none after ``n`` exceeds ``D_{n+1} + (T - n) e_0`` (Index*).  A scan stops as soon as this bound
  turns negative, or as soon as one term reaches zero.  Futures are drawn only as far as scanned.
* All arms are bisected over the same sequence of ``lam``.  An arm that fails where another
  passes has the smaller index by bisection and leaves; the last one left is played.

For Index the first term is at least ``mu_0 - lam``, so an arm is always worth trying up to its
own mean.

Under a delay an arm is judged by what will have arrived if it is pulled on and on: its mean and its
gain at the n-th pull are those after ``known(n)`` rewards. Every bound on the terms stays valid,
because the mean exceeds lam by at most the gain then too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless, verb
from irsppl.inner.arrays import Floats, Ints

# Bisection halvings after which arms still together count as tied.
HALVINGS: Final = 44
# Halvings where indices are added up instead of compared: more digits than their sums need.
PRICED_HALVINGS: Final = 24


class Index(NamedTuple):
    """One future per decision; lookahead: periods planned for at most (0: no limit)."""

    alive: Ints  # [K]
    lookahead: int
    star: bool


class IndexMany(NamedTuple):
    """Several futures per decision, of which phi is the mean; no delay."""

    alive: Ints  # [K]
    lookahead: int
    star: bool


class PricedIndex(NamedTuple):
    """One future per decision, and money: the index of an arm for as many pulls as can be paid.

    The indices are what pulls are worth in the knapsack of the money that is left; the arm with the
    most pulls is played. With much money that is the arm of the best index per cost, and an arm's
    index is bisected only until another one's is surely better; in the end what the last of the
    money can still buy counts too.
    """

    alive: Ints  # [K]
    lookahead: int
    star: bool
    scores: Floats  # [K]
    low: Floats  # [K]
    high: Floats  # [K]
    nodes: Ints  # [K]


stateless(Index, IndexMany, PricedIndex)


@verb
def _worth(rule, family, delay, rng, arm, lam, node, horizon):
    """Whether phi(lam) >= 0 along the arm's future."""


@implements(_worth, Index, PricedIndex)
def _(rule, family, delay, rng, arm, lam, node, horizon):
    star = rule.star
    cursor = verbs.begin(family, arm, lam, node)
    at = verbs.known(delay, rng, arm, 0)
    cursor = verbs.advance(family, rng, arm, 0, at, lam, cursor)
    mean, e0 = cursor[0], cursor[1]
    if not star and lam <= mean:
        return True
    e, least, total = e0, e0, 0.0
    slack = 1 if star else 0
    for n in range(1, horizon + 1):
        total += mean - lam + (e0 - e)
        if total + (horizon - n + slack) * e0 < 0.0:
            return False
        if n == horizon and not star:
            # The last term needs no further belief.
            return total >= 0.0
        upto = verbs.known(delay, rng, arm, n)
        cursor = verbs.advance(family, rng, arm, at, upto, lam, cursor)
        at = upto
        mean, e = cursor[0], cursor[1]
        if star:
            if total + (e0 - e) >= 0.0:
                return True
        else:
            least = min(least, e)
            if total + (horizon - n) * (e0 - least) >= 0.0:
                return True
    return False


@implements(_worth, IndexMany)
def _(rule, family, delay, rng, arm, lam, node, horizon):
    cursor = verbs.begin(family, arm, lam, node)
    return verbs.worth_many(family, rng, arm, lam, horizon, rule.star, cursor)


@implements(verbs.choose, Index, IndexMany)
def _(rule, family, limits, rng, period, remaining):
    alive, star = rule.alive, rule.star
    count = alive.size
    if count == 1:
        return 0
    horizon = verbs.draw_periods(limits.end, rng, period, remaining)
    if rule.lookahead > 0:
        horizon = min(horizon, rule.lookahead)
    verbs.look_ahead(limits.delay, period)
    verbs.renew(family, rng)
    settled = True
    for a in range(count):
        alive[a] = a
        settled = settled and verbs.known(limits.delay, rng, a, 0) == 0
    if horizon == 1 and not star and settled:
        # phi(lam) = mu_0 - lam: the myopic arm, without the bisection that a tie would cost.
        return verbs.best_mean(family, count)
    lo, hi = verbs.bracket(family, horizon)
    width = hi - lo
    # For Index* nothing promises phi(lo) >= 0, so lo is tried, and lowered, first.
    probing = star
    inside = True  # of the first interval, whose bisection tree has numbered nodes
    node, halvings = 1, 0
    while halvings < HALVINGS:
        lam = lo if probing else 0.5 * (lo + hi)
        passed = 0
        for i in range(count):
            a = alive[i]
            worth = not star and settled and lam <= verbs.mean(family, a)
            if not worth:
                place = node if inside and not probing else 0
                worth = _worth(rule, family, limits.delay, rng, a, lam, place, horizon)
            if worth:
                # In place: the list is overwritten only behind the arm being tried.
                alive[passed] = a
                passed += 1
        if passed == 1:
            return alive[0]
        if passed > 1:
            count = passed
        if probing:
            if passed > 0:
                probing = False
            else:
                hi = lo
                lo -= width
                width *= 2.0
                inside = False
        else:
            halvings += 1
            if passed > 0:
                lo = lam
                node = 2 * node + 1
            else:
                hi = lam
                node = 2 * node
    return alive[0]


@implements(verbs.choose, PricedIndex)
def _(rule, family, limits, rng, period, remaining):
    star = rule.star
    periods = verbs.draw_periods(limits.end, rng, period, remaining)
    if rule.lookahead > 0:
        periods = min(periods, rule.lookahead)
    verbs.look_ahead(limits.delay, period)
    verbs.renew(family, rng)
    most = 1
    for a in range(rule.scores.size):
        rule.alive[a] = min(verbs.purchases(limits.purse, a, periods) + 1, periods)
        most = max(most, rule.alive[a])
    floor, ceiling = verbs.bracket(family, most)
    if not star and verbs.rich(limits.purse, remaining):
        for a in range(rule.scores.size):
            rule.low[a], rule.high[a], rule.nodes[a] = floor, ceiling, 1
        for _ in range(PRICED_HALVINGS):
            best = -np.inf
            for a in range(rule.scores.size):
                best = max(best, rule.low[a] / verbs.price(limits.purse, a))
            left, last = 0, 0
            for a in range(rule.scores.size):
                if rule.high[a] / verbs.price(limits.purse, a) >= best:
                    left += 1
                    last = a
            if left == 1 and rule.low[last] > 0.0:
                return last
            for a in range(rule.scores.size):
                if rule.high[a] / verbs.price(limits.purse, a) < best:
                    continue
                lam, node = 0.5 * (rule.low[a] + rule.high[a]), rule.nodes[a]
                worth = lam <= verbs.mean(family, a) and verbs.known(limits.delay, rng, a, 0) == 0
                if worth or _worth(rule, family, limits.delay, rng, a, lam, node, rule.alive[a]):
                    rule.low[a] = lam
                    rule.nodes[a] = 2 * node + 1
                else:
                    rule.high[a] = lam
                    rule.nodes[a] = 2 * node
        for a in range(rule.scores.size):
            rule.scores[a] = 0.5 * (rule.low[a] + rule.high[a])
        return verbs.best_constant(limits.purse, rule.scores, remaining)
    for a in range(rule.scores.size):
        if not verbs.affordable(limits.purse, a):
            rule.scores[a] = -np.inf
            continue
        settled = not star and verbs.known(limits.delay, rng, a, 0) == 0
        lo, hi = floor, ceiling
        node, width = 1, hi - lo
        probing, halvings = star, 0
        while halvings < PRICED_HALVINGS:  # with one call: what `_worth` is goes into each
            lam, place = (lo, 0) if probing else (0.5 * (lo + hi), node)
            worth = settled and lam <= verbs.mean(family, a)
            worth = worth or _worth(rule, family, limits.delay, rng, a, lam, place, rule.alive[a])
            if probing:
                probing = not worth
                if probing:
                    lo, hi, width, node = lo - width, lo, 2.0 * width, 0
                continue
            halvings += 1
            if worth:
                lo = lam
                node = 2 * node + 1 if node > 0 else 0
            else:
                hi = lam
                node *= 2
        rule.scores[a] = 0.5 * (lo + hi)
    return verbs.best_constant(limits.purse, rule.scores, remaining)
