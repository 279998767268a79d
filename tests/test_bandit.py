"""The bandit as it is played: states, late rewards, and how often a loop of decisions compiles."""

import numpy as np
import pytest

import irsppl


def test_pull_moves_one_period_on():
    start = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 3)
    after = start.pull(1, 1)
    assert (int(after.remaining), int(after.period)) == (2, 1)
    assert np.asarray(after.counts).tolist() == [0, 1]
    np.testing.assert_allclose(after.belief.alpha, [1, 2])
    assert int(start.remaining) == 3 and np.asarray(start.counts).sum() == 0  # immutable
    assert after.pending == ()


def test_late_rewards_wait_and_arrive():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 5)
    bandit = bandit.pull(0).pull(1, 1).pull(0)
    assert bandit.pending == (0, 2)
    assert np.asarray(bandit.pending_counts).tolist() == [2, 0]
    assert np.asarray(bandit.counts).tolist() == [2, 1]
    np.testing.assert_allclose(bandit.belief.alpha, [1, 2])
    bandit = bandit.arrive(2, 0)
    assert bandit.pending == (0,)
    np.testing.assert_allclose(bandit.belief.beta, [2, 1])
    with pytest.raises(ValueError, match="pending: 0"):
        bandit.arrive(2, 1)
    with pytest.raises(ValueError, match="0 or 1"):
        bandit.arrive(0, 0.5)
    bandit = bandit.arrive(0, 1)
    assert bandit.pending == ()
    np.testing.assert_allclose(bandit.belief.predictive_mean(), [0.5, 2 / 3])


@pytest.mark.parametrize("policy", ["ts", "irs.fh", "irs.v-zero", "irs.index", "irs.v-emax"])
def test_policies_decide_while_rewards_are_pending(policy):
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 4).pull(0)
    shares = irsppl.action_probabilities(bandit, policy, num_samples=100)
    assert shares.sum() == pytest.approx(1)


def test_fh_counts_on_pending_rewards():
    """In the last period one pending reward of arm 0 is known first: its mean is random again."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 5.0], [1.0, 5.0]), 2).pull(0)
    shares = irsppl.action_probabilities(bandit, "irs.fh", num_samples=2000)
    assert 0.4 < shares[0] < 0.6


def test_nothing_remains_to_be_played():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 1).pull(0, 1)
    for call in (
        lambda: bandit.pull(0, 1),
        lambda: irsppl.choose(bandit, "ts"),
        lambda: irsppl.bound(bandit, "ts"),
        lambda: irsppl.simulate(bandit, "ts"),
    ):
        with pytest.raises(ValueError, match="nothing remains"):
            call()


def test_repr_tells_where_play_stands():
    bandit = irsppl.Bandit(irsppl.GammaPoisson([1.0, 1.0], [1.0, 1.0]), 9)
    assert repr(bandit) == "Bandit(GammaPoisson with 2 arms, horizon=9)"
    assert "period=1, remaining=8, pending=[0]" in repr(bandit.pull(1))


@pytest.mark.parametrize("policy", ["ts", "irs.fh", "irs.v-zero", "irs.index"])
def test_a_loop_of_decisions_compiles_a_fixed_number_of_times(policy, compilations):
    """200 rounds of choose and pull: whatever compiles, compiles in the first two rounds."""
    bandit = irsppl.Bandit(irsppl.NormalNormal([0.0, 0.1], [1.0, 1.0], [1.0, 2.0]), 200)
    rng = np.random.default_rng(1)
    for t in range(200):
        arm = irsppl.choose(bandit, policy, key=t)
        bandit = bandit.pull(arm, rng.normal())
        if t == 1:
            warm = len(compilations)
    assert len(compilations) == warm
    assert warm <= 30
