"""Knapsacks of pulls by going through every allocation, or every sequence. Plain Python."""

import itertools


def allocations(costs, money, periods=None, most=None):
    """Every vector of counts that `money` pays for, with at most `periods` pulls in all.

    most : largest count of any one arm. Costs and money may be Fractions.
    """
    ranges = []
    for cost in costs:
        fits = int(money // cost)
        ranges.append(range((fits if most is None else min(fits, most)) + 1))
    return [
        counts
        for counts in itertools.product(*ranges)
        if sum(n * c for n, c in zip(counts, costs, strict=True)) <= money
        and (periods is None or sum(counts) <= periods)
    ]


def best_allocation(payoffs, costs, money, periods=None):
    """(value, counts) for cumulative `payoffs` [K][N + 1].

    Among counts of exactly the same value: the fewest of the last arm, then of the one before it,
    and so on. Only payoffs that add up without rounding have ties that can be trusted.
    """
    scored = [
        (sum(row[n] for row, n in zip(payoffs, counts, strict=True)), counts)
        for counts in allocations(costs, money, periods, len(payoffs[0]) - 1)
    ]
    value = max(score for score, _ in scored)
    return value, min((c for score, c in scored if score == value), key=lambda c: c[::-1])


def best_sequence(payoff, options):
    """(value, arms) where `payoff(past, arm)` is paid for pulling arm after the tuple `past`.

    options(past) : arms that may be pulled; one may stop at any time. Among sequences of exactly
    the same value the first in dictionary order, a sequence before its own continuations.
    """
    best, winners = 0, [()]

    def visit(past, total):
        nonlocal best, winners
        if past and total >= best:
            winners = [past] if total > best else [*winners, past]
            best = total
        for arm in options(past):
            visit((*past, arm), total + payoff(past, arm))

    visit((), 0)
    return best, min(winners)


def best_feedback(payoff, costs, money, periods=None):
    """(value, arms): pulling a after t pulls and with s spent pays `payoff(a, t, s)`."""

    def spent(past):
        return sum(costs[arm] for arm in past)

    def options(past):
        if periods is not None and len(past) >= periods:
            return []
        return [a for a, cost in enumerate(costs) if spent(past) + cost <= money]

    return best_sequence(lambda past, arm: payoff(arm, len(past), spent(past)), options)


def best_on_lattice(payoff, allowed, total):
    """(value, arms): pulling a at counts n pays `payoff[a][n]`, where `allowed[a][n]`."""
    num_arms = len(payoff)

    def counts(past):
        return tuple(past.count(arm) for arm in range(num_arms))

    def options(past):
        if len(past) >= total:
            return []
        return [arm for arm in range(num_arms) if allowed[arm][counts(past)]]

    return best_sequence(lambda past, arm: payoff[arm][counts(past)], options)
