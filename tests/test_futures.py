"""Futures of the natural families, as the kernel draws them, against their exact laws.

Statistical tests use fixed seeds and refuse p < 1e-4; with 14 of them, fresh seeds would raise a
false alarm with probability 0.14 percent.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import irsppl
from irsppl.futures import draw_outcomes

LEVEL = 1e-4
SIZE = 4000
FAMILIES = {
    "beta": (
        irsppl.BetaBernoulli([0.6, 3.0], [0.7, 2.0]),
        [stats.beta(0.6, 0.7), stats.beta(3.0, 2.0)],
        [stats.bernoulli] * 2,
    ),
    "normal": (
        irsppl.NormalNormal([0.0, -1.0], [1.0, 0.3], [2.0, 0.5]),
        [stats.norm(0.0, 1.0), stats.norm(-1.0, 0.3)],
        [lambda m: stats.norm(m, 2.0), lambda m: stats.norm(m, 0.5)],
    ),
    "poisson": (
        irsppl.GammaPoisson([0.8, 60.0], [1.0, 4.0]),  # both ways of drawing: around 10
        [stats.gamma(0.8, scale=1.0), stats.gamma(60.0, scale=0.25)],
        [stats.poisson] * 2,
    ),
    "exponential": (
        irsppl.GammaExponential([2.5, 6.0], [1.0, 20.0]),
        [stats.invgamma(2.5, scale=1.0), stats.invgamma(6.0, scale=20.0)],
        [lambda m: stats.expon(scale=m)] * 2,
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_means_and_rewards_have_their_laws(name):
    belief, of_means, of_rewards = FAMILIES[name]
    found = draw_outcomes(irsppl.Bandit(belief, 3), jax.random.key(1), 0, SIZE)
    means, rewards = np.asarray(found.means, float), np.asarray(found.rewards, float)
    assert rewards.shape == (SIZE, 2, 3)
    coins = np.random.default_rng(0).random(rewards.shape)
    levels = np.empty(rewards.shape)
    for a in range(2):
        assert stats.kstest(means[:, a], of_means[a].cdf).pvalue > LEVEL
        law = of_rewards[a](means[:, a, None])
        # Of discrete laws a uniform number between the two ends of the step that was drawn.
        below = law.cdf(rewards[:, a] - 1) if hasattr(law, "pmf") else law.cdf(rewards[:, a])
        levels[:, a] = below + coins[:, a] * (law.cdf(rewards[:, a]) - below)
    assert stats.kstest(levels.ravel(), "uniform").pvalue > LEVEL
    # Nothing follows anything else: 8 columns, 28 pairs.
    columns = np.concatenate([stats.rankdata(means, axis=0), levels.reshape(SIZE, -1)], axis=1)
    worst = np.abs(np.corrcoef(columns.T) - np.eye(8)).max()
    assert 28 * 2 * stats.norm.sf(worst * np.sqrt(SIZE)) > LEVEL


@pytest.mark.parametrize("name", FAMILIES)
def test_a_future_is_its_number(name):
    """Whatever else is drawn beside it: more futures, more periods, another arm; any precision."""
    belief, key = FAMILIES[name][0], jax.random.key(3)
    bandit = irsppl.Bandit(belief, 5)
    all_of = draw_outcomes(bandit, key, 0, 12)
    some = draw_outcomes(irsppl.Bandit(belief, 3), key, 4, 6)
    np.testing.assert_array_equal(all_of.means[4:10], some.means)
    np.testing.assert_array_equal(all_of.rewards[4:10, :, :3], some.rewards)
    fields = {field: getattr(belief, field)[:1] for field in vars(belief)}
    alone = draw_outcomes(irsppl.Bandit(type(belief)(**fields), 5), key, 0, 12)
    np.testing.assert_array_equal(all_of.rewards[:, :1], alone.rewards)
    with jax.enable_x64():
        fields = {field: np.asarray(getattr(belief, field), float) for field in vars(belief)}
        wide = draw_outcomes(irsppl.Bandit(type(belief)(**fields), 5), key, 0, 12)
        assert wide.rewards.dtype == jnp.float64
    np.testing.assert_allclose(all_of.rewards, wide.rewards, rtol=1e-6)


def test_known_means_are_kept():
    belief = FAMILIES["beta"][0]
    found = draw_outcomes(irsppl.Bandit(belief, 2), jax.random.key(0), 0, SIZE, jnp.array([0.2, 1]))
    np.testing.assert_array_equal(found.means, np.tile(np.float32([0.2, 1.0]), (SIZE, 1)))
    assert np.all(np.asarray(found.rewards)[:, 1] == 1)
    wins = int(np.asarray(found.rewards)[:, 0].sum())
    assert stats.binomtest(wins, 2 * SIZE, 0.2).pvalue > LEVEL


def test_delays_have_their_law_and_remember_how_long_a_pull_has_waited():
    law = dist.Categorical(probs=jnp.array([0.4, 0.3, 0.2, 0.1]))
    bandit = irsppl.Bandit(FAMILIES["beta"][0], 6, delay=law).pull(1).pull(0)
    found = np.asarray(draw_outcomes(bandit, jax.random.key(2), 0, SIZE).delays)
    # Arm 1's first reward is that of a pull made two periods ago, arm 0's of one made one ago.
    wanted = {(0, 0): [0, 0.5, 1 / 3, 1 / 6], (1, 0): [0, 0, 2 / 3, 1 / 3]}
    for a in range(2):
        for n in range(2):
            shares = np.array(wanted.get((a, n), [0.4, 0.3, 0.2, 0.1]))
            counts = np.bincount(found[:, a, n], minlength=4)
            assert counts.sum() == SIZE and np.all(counts[shares == 0] == 0)
            kept = shares > 0
            assert stats.chisquare(counts[kept], SIZE * shares[kept]).pvalue > LEVEL
    fixed = irsppl.Bandit(FAMILIES["beta"][0], 6, delay=[2, np.inf])
    late = np.asarray(draw_outcomes(fixed, jax.random.key(2), 0, 3).delays)
    assert np.all(late[:, 0] == 2) and np.all(late[:, 1] == 6)


def test_ends_have_their_law():
    bandit = irsppl.Bandit(FAMILIES["beta"][0], np.array([0.9, 0.6, 0.1]))
    ends = np.asarray(draw_outcomes(bandit, jax.random.key(5), 0, SIZE).periods)
    counts = np.bincount(ends, minlength=4)
    assert stats.chisquare(counts, SIZE * np.array([0.1, 0.3, 0.5, 0.1])).pvalue > LEVEL
