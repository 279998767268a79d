"""IRS.V-Solo as a policy: its kernel against V-Zero, against its definition, and at play."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl import engine
from irsppl.engine.v_solo import v_solo
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu import allocation, solo
from irsppl.penalties import VSolo
from irsppl.penalties._view import View
from irsppl.policies import find_policy
from irsppl.policies.paths import seeds_of

BELIEFS = {
    "beta": irsppl.BetaBernoulli([2.0, 1.0, 4.0], [2.0, 1.0, 5.0]),
    "normal": irsppl.NormalNormal([0.2, 0.0, 0.1], [0.5, 1.0, 0.3], [1.0, 1.0, 0.5]),
}


def compiled(policy, bandit):
    return engine.kernel(find_policy(policy), bandit.without_record())


@pytest.mark.parametrize("name", BELIEFS)
def test_without_penalty_it_is_v_zero(name):
    """The same stream, the same futures, the same arms."""
    bandit = irsppl.Bandit(BELIEFS[name], 25)
    seeds = seeds_of(jax.random.key(1), "x", 0, 300)
    solo = compiled(VSolo(scale=0.0), bandit).decisions(seeds)
    zero = compiled("irs.v-zero", bandit).decisions(seeds)
    np.testing.assert_array_equal(solo, zero)
    futures = draw_outcomes(bandit, jax.random.key(2), 0, 20)
    rewards = np.asarray(futures.rewards)
    solo = compiled(VSolo(scale=0.0), bandit).paths(rewards, seeds[:20])
    zero = compiled("irs.v-zero", bandit).paths(rewards, seeds[:20])
    np.testing.assert_array_equal(solo[:, :-1], zero[:, :-1])
    assert np.all((solo >= 0) & (solo < 3))


@pytest.mark.parametrize("name", BELIEFS)
def test_decisions_are_nearly_those_of_the_definition(name):
    """Shares of arms in 4,000 sampled futures, kernel against the tables of the bound.

    The kernel's one-armed values are approximate: shares within 0.04 + 4 standard errors of 0.011.
    """
    bandit = irsppl.Bandit(BELIEFS[name], 25)
    penalty = VSolo(scale=1.0)
    seeds = seeds_of(jax.random.key(1), "x", 0, 4000)
    arms = compiled(penalty, bandit).decisions(seeds)
    view = View(bandit, draw_outcomes(bandit, jax.random.key(3), 0, 4000))
    _, counts, _ = penalty.solve(bandit, view)
    shares = [np.bincount(x, minlength=3) / 4000 for x in (arms, np.argmax(counts, axis=1))]
    assert np.abs(shares[0] - shares[1]).max() < 0.04 + 4 * 0.011
    zero = compiled("irs.v-zero", bandit).decisions(seeds)
    assert np.mean(zero != arms) > 0.03  # the penalty does change decisions


def limited(name):
    """Late rewards, some of them pending, and an end that nobody knows."""
    arms = BELIEFS[name]
    bandit = irsppl.Bandit(arms, horizon=dist.DiscreteUniform(2, 30), delay=dist.Geometric(0.3))
    for arm in (0, 1, 1, 2):
        bandit = bandit.pull(arm)
    return bandit


def test_under_limits_too_it_is_v_zero_without_penalty():
    """The separable form, which goes by the number of a pull: the same stream, the same arms."""
    bandit = limited("normal")
    seeds = seeds_of(jax.random.key(1), "x", 0, 300)
    futures = draw_outcomes(bandit, jax.random.key(2), 0, 20)
    rewards, delays, periods = map(np.asarray, (futures.rewards, futures.delays, futures.periods))
    decided, played = [], []
    for policy in (VSolo(scale=0.0), "irs.v-zero-separable"):
        kernel = compiled(policy, bandit)
        decided.append(kernel.decisions(seeds))
        played.append(kernel.paths(rewards, seeds[:20], delays, periods))
    np.testing.assert_array_equal(*decided)
    np.testing.assert_array_equal(*played)
    assert np.sum(played[0] >= 0) == np.sum(periods)


@pytest.mark.parametrize("name", BELIEFS)
def test_charges_are_nearly_those_of_the_definition(name):
    """Along the same futures: the kernel's one-armed values are Gaussian, the bound's tables not.

    They differ by 4 % of the charges' spread; with charges for rewards that come too late it would
    be 12 %, with the end of the run in place of the last reward that is in time 16 %.
    """
    bandit = limited(name)
    view = View(bandit, draw_outcomes(bandit, jax.random.key(3), 0, 100))
    charges = view.charges(view.weights(0.45)[:, :, None])
    periods, known = view.schedule.periods, view.schedule.known
    size, waiting = int(bandit.remaining), np.asarray(bandit.pending_counts)
    code, _, worth, noise = bandit.belief.kernel_state()
    rule = v_solo(3, size, known.max() + 1, code, 1.0, 0.45)
    start, stride = allocation.PAD, allocation.row_stride(size)
    found = np.zeros_like(charges)
    for s, n in enumerate(periods):
        rule.upto[:] = known[s]
        rule.paths[:] = view.futures.means[s][:, : rule.paths.shape[1]]
        rule.shown[:] = waiting + bandit.arrivals.shown(3, n)
        solo.pay(rule, np.asarray(worth), np.asarray(noise), n, start, stride)
        sums = rule.cells.reshape(-1, stride)[:3, start : start + n + 1].astype(float)
        found[s, :, :n] = view.schedule.per_pull(view.futures.means)[s, :, :n] - np.diff(sums)
    charges *= np.arange(charges.shape[2]) < periods[:, None, None]
    assert np.std(found - charges) < 0.08 * np.std(charges)


def test_it_loses_less_than_v_zero():
    """Path by path on 600 futures; the gain is 5 standard errors: a false alarm in a million."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 100)
    names = {"irs.v-zero": "irs.v-zero", "solo": VSolo(scale=1.0)}
    regret = irsppl.simulate(bandit, names, key=3, num_replications=600)["steadied_regret"].values
    assert (regret[0] - regret[1]).mean() > 0


def test_any_bandit_can_be_played():
    """Late rewards, an end that nobody knows; money, for which decisions are solved on the host."""
    arms = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])
    for bandit in (
        irsppl.Bandit(arms, 6, delay=1).pull(0),
        irsppl.Bandit(arms, costs=[1, 2], budget=6),
        irsppl.Bandit(arms, horizon=[1.0, 0.9, 0.5]),
    ):
        assert irsppl.choose(bandit, "irs.v-solo", key=1) in (-1, 0, 1)
    last = irsppl.Bandit(arms, 1)
    assert irsppl.choose(last, "irs.v-solo", key=1) == 1
    probabilities = irsppl.action_probabilities(last, "irs.v-solo", key=1)
    assert probabilities.tolist() == [0.0, 1.0]
