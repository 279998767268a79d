"""Every conjugate family against slow quadrature (tests/oracles/laws.py) and its own invariants."""

import dataclasses
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import irsppl
from irsppl._fields import changed
from irsppl.beliefs._conjugate import Conjugate
from irsppl.inner.laws import expected_best

from .conftest import within
from .oracles import laws as oracle
from .registry import EXACT, FAMILIES


def oracle_arms(belief):
    """The same arms as objects of the slow oracle, the class there of the belief's name."""
    kind = getattr(oracle, type(belief).__name__)
    columns = []
    for field in dataclasses.fields(belief):
        value = np.asarray(getattr(belief, field.name), float)
        columns.append([value] * belief.num_arms if field.name in kind.common else value)
    return [kind(*row) for row in zip(*columns, strict=True)]


@eqx.filter_jit
def along_path(belief, rewards, lam):
    """Means and E max(mu, lam) after each reward: one program, not one for each operation."""
    future = belief.along(rewards)
    return future.own_means(), future.expected_max(lam)


best_along = eqx.filter_jit(lambda belief, rewards: belief.along(rewards).expected_best())


def in_float64(name):
    with jax.enable_x64(True):
        belief = FAMILIES[name]()
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), belief)


@pytest.mark.parametrize("name", FAMILIES)
def test_mean_cdf_and_expected_max_agree_with_quadrature(name):
    with jax.enable_x64(True):
        belief = in_float64(name)
        arms = oracle_arms(belief)
        mean, spread = belief.predictive_mean(), belief.mean_sd()
        np.testing.assert_allclose(mean, [arm.mean() for arm in arms], rtol=1e-7, atol=1e-12)
        for shift in (-2.0, -0.4, 0.0, 0.7, 2.5):
            lam = float((mean + shift * spread)[1])
            np.testing.assert_allclose(belief.cdf(lam), [a.cdf(lam) for a in arms], atol=2e-6)
            np.testing.assert_allclose(
                belief.expected_max(lam), [a.expected_max(lam) for a in arms], rtol=2e-6, atol=2e-6
            )


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_agrees_with_float64(name):
    single = FAMILIES[name]()
    rewards = single.sample_outcome(3, 12).rewards
    with jax.enable_x64(True):
        double = in_float64(name)
        wide = jnp.asarray(np.asarray(rewards), jnp.float64)
        lam = double.predictive_mean()
        expected = *along_path(double, wide, lam), double.cdf(lam)
    lam = jnp.asarray(np.asarray(lam), jnp.float32)
    got = *along_path(single, rewards, lam), single.cdf(lam)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == jnp.float32 and b.dtype == jnp.float64
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_path_agrees_with_one_update_at_a_time(belief):
    rewards = belief.sample_outcome(1, 6).rewards
    lam = belief.predictive_mean()
    means, gains = along_path(belief, rewards, lam)
    x = np.linspace(*map(float, belief._mean_range()), 5, dtype=np.float32)[1:-1]
    cdfs = np.asarray(eqx.filter_jit(type(belief)._path_cdf)(belief, rewards, jnp.asarray(x)))
    means, gains = np.asarray(means), np.asarray(gains)
    played = belief
    for n in range(7):
        np.testing.assert_allclose(played.predictive_mean(), means[:, n], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(played.expected_max(lam), gains[:, n], rtol=1e-4, atol=1e-5)
        for j, point in enumerate(x):
            np.testing.assert_allclose(played.cdf(point), cdfs[:, n, j], atol=2e-4)
        if n < 6:
            for arm in range(belief.num_arms):
                played = played.update(arm, rewards[arm, n])


def test_update_takes_arrays_in_one_call(belief):
    rewards = np.asarray(belief.sample_outcome(5, 4).rewards)
    arms = np.array([0, 2, 0, 1, 2])
    seen = np.array([rewards[0, 0], rewards[2, 0], rewards[0, 1], rewards[1, 0], rewards[2, 1]])
    one = belief
    for arm, reward in zip(arms, seen, strict=True):
        one = one.update(arm, reward)
    together = belief.update(arms, seen)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(ValueError, match="arm and reward"):
        belief.update([0, 1], [seen[0]])


def test_posterior_means_are_martingales_and_draws_have_their_laws(belief):
    """Means of draws against exact means; 4 standard errors, 18 comparisons a family."""
    draws = 20_000
    keys = jax.random.split(jax.random.key(11), draws)

    @jax.jit
    @jax.vmap
    def sampled(k):
        future = belief.along(belief.sample_outcome(k, 5).rewards)
        return future.own_means(), belief.sample_future_means(k, jnp.asarray(5), 5)

    paths, direct = (np.asarray(x, np.float64) for x in sampled(keys))
    prior = np.asarray(belief.predictive_mean(), np.float64)
    for arm in range(belief.num_arms):
        for sample in (paths[:, arm, 1], paths[:, arm, 5], direct[:, arm]):
            within(sample.mean(), sample.std() / np.sqrt(draws), prior[arm])
        # The two ways to sample the posterior mean after five rewards have one law.
        for level in (0.25, 0.5, 0.75):
            cut = np.quantile(paths[:, arm, 5], level)
            shares = [(s <= cut).mean() for s in (paths[:, arm, 5], direct[:, arm])]
            within(shares[0], np.sqrt(0.5 / draws), shares[1])


def test_draws_of_the_mean_follow_the_cdf(belief):
    """Share of draws below each arm's mean against the CDF there; 4 binomial standard errors."""
    draws = 20_000
    keys = jax.random.split(jax.random.key(12), draws)
    means = np.asarray(jax.jit(jax.vmap(belief.sample_means))(keys))
    at = belief.predictive_mean()
    share = (means <= np.asarray(at)).mean(axis=0)
    for got, expected in zip(share, np.asarray(belief.cdf(at)), strict=True):
        within(got, np.sqrt(expected * (1 - expected) / draws), expected)


@pytest.mark.parametrize("name", EXACT)
def test_laws_of_posterior_means_are_exact(name):
    belief = FAMILIES[name]()
    arms = oracle_arms(belief)
    assert expected_best(belief.law(None)) == pytest.approx(
        oracle.expected_max_mean(arms), rel=1e-7
    )
    for n in (0, 1, 6):
        expected = oracle.expected_max_predictive(arms, n)
        assert expected_best(belief.law(n)) == pytest.approx(expected, rel=1e-7)


def test_laws_of_large_counts_are_as_wide_as_they_vary():
    """A table of all counts from 0 on had 5e8 entries, which is more than memory holds."""
    (law,) = irsppl.GammaPoisson([1e9], [2.0]).law(1)
    assert law.points.size < 2e7
    mean = law.points @ law.probabilities
    assert law.probabilities.sum() == pytest.approx(1, rel=1e-9)
    assert mean == pytest.approx(5e8, rel=1e-9)
    deviation = np.sqrt((law.points - mean) ** 2 @ law.probabilities)
    assert deviation == pytest.approx(np.sqrt(1e9) / 2 / np.sqrt(3), rel=1e-6)  # 1 of 3 is seen


def test_lattice_expected_best_starts_at_the_exact_value(belief):
    rewards = belief.sample_outcome(2, 3).rewards
    lattice = np.asarray(best_along(belief, rewards))
    assert lattice.shape == (4, 4, 4)
    expected = oracle.expected_max_mean(oracle_arms(belief))
    assert lattice[0, 0, 0] == pytest.approx(expected, rel=3e-3)
    last = belief.update(np.repeat([0, 1, 2], 3), np.asarray(rewards).ravel())
    expected = oracle.expected_max_mean(oracle_arms(last))
    assert lattice[3, 3, 3] == pytest.approx(expected, rel=3e-3)


NARROW = [
    irsppl.NormalNormal([0.0, 0.3, 0.0], [1.0, 1.0, 0.7], [0.03, 0.01, 3.0]),
    irsppl.BetaBernoulli([4e3, 4e3, 3980], [4e3, 4020, 4e3]),
    irsppl.NormalInverseGamma([0, 0.5, 0.2], [1e-4] * 3, [9] * 3, [1e-3] * 3),
]


@pytest.mark.parametrize("belief", NARROW, ids=lambda belief: type(belief).__name__)
def test_lattice_expected_best_of_narrow_posteriors(belief):
    """They fell between nodes laid by the prior: it was 0.007 to 0.08 prior sds off."""
    middle, spread = np.asarray(belief.predictive_mean()), float(belief.mean_sd().max())
    # Arms that prove to be alike, one of them late: all may be the best.
    rewards = middle.mean() + spread * np.array([[0.1] * 3, [0.12] * 3, [-0.4, 0.2, 0.6]])
    if isinstance(belief, irsppl.BetaBernoulli):
        rewards = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]])
    lattice = np.asarray(best_along(belief, jnp.asarray(rewards)))
    for counts in ((0, 0, 0), (3, 3, 3), (1, 3, 0), (3, 1, 2), (0, 3, 3)):
        arms = np.repeat([0, 1, 2], counts)
        given = [r for row, n in zip(rewards, counts, strict=True) for r in row[:n]]
        after = belief.update(arms, np.array(given)) if given else belief
        expected = oracle.expected_max_mean(oracle_arms(after))
        assert lattice[counts] == pytest.approx(expected, abs=1e-3 * spread)


@pytest.mark.parametrize(
    "belief",
    [
        irsppl.GammaExponential([1.3, 1.5, 4.0], [0.3, 0.7, 3.0]),
        irsppl.NormalInverseGamma([0, 0.5, 1], [1, 2, 1], [0.8, 1.1, 3], [1, 1, 2]),
    ],
    ids=lambda belief: type(belief).__name__,
)
def test_expected_best_has_its_power_tail(belief):
    """Cut off, it was 11 % and 4 % too small, and means of lucky futures exceeded it."""
    rewards = jnp.asarray([[0.5, 2.0, 900.0], [1.0, 0.2, 3.0], [0.1, 1.0, 2.0]])
    lattice = np.asarray(best_along(belief, rewards))
    expected = oracle.expected_max_mean(oracle_arms(belief))
    assert lattice[0, 0, 0] == pytest.approx(expected, rel=2e-3)
    assert np.all(lattice[3] >= float(belief.along(rewards).own_means()[0, 3]) * (1 - 1e-5))


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 3.0]])
def test_two_category_arms_are_scaled_bernoulli_arms(values):
    low, high = values
    dirichlet = irsppl.DirichletCategorical([[2.0, 3.0], [1.0, 1.0]], values)
    bernoulli = irsppl.BetaBernoulli([3.0, 1.0], [2.0, 1.0])
    for x in (0.1, 0.5, 0.8):
        point = low + (high - low) * x
        np.testing.assert_allclose(dirichlet.cdf(point), bernoulli.cdf(x), atol=2e-6)
        expected = low + (high - low) * bernoulli.expected_max(x)
        np.testing.assert_allclose(dirichlet.expected_max(point), expected, atol=5e-6)


@pytest.mark.parametrize(
    "alpha",
    [
        ([0.02, 0.02], [0.1, 2.0]),  # next to certain of one value
        ([3000.0, 2000.0], [1e5, 2e5]),  # concentrated
        ([5000.0, 5.0], [5000.0, 0.01]),  # a rare value
    ],
)
def test_laws_of_extreme_categorical_arms(alpha):
    """The closed form of the Beta law, in its tails too. Probabilities were off by up to 0.2."""
    dirichlet = irsppl.DirichletCategorical(alpha, [0.0, 1.0])
    failed, won = np.asarray(dirichlet.alpha, float).T
    law, more = stats.beta(won, failed), stats.beta(won + 1, failed)
    mean, sd = law.mean(), law.std()
    for apart in (-30, -3, -0.5, 0.1, 1, 4, 40):
        x = np.clip(mean + apart * sd, 1e-5, 1 - 1e-5).astype(np.float32).astype(float)
        np.testing.assert_allclose(dirichlet.cdf(x), law.cdf(x), atol=3e-5)
        expected = mean * more.sf(x) + x * law.cdf(x)
        np.testing.assert_allclose(dirichlet.expected_max(x), expected, rtol=1e-6, atol=1e-7)


def test_a_longer_horizon_extends_a_shorter_one(belief):
    short, long = belief.sample_outcome(4, 5), belief.sample_outcome(4, 9)
    np.testing.assert_array_equal(short.means, long.means)
    np.testing.assert_array_equal(short.rewards, long.rewards[:, :5])


def test_relabelling_arms_relabels_the_answers(belief):
    order = jnp.array([2, 0, 1])
    common = getattr(oracle, type(belief).__name__).common
    names = [field.name for field in dataclasses.fields(belief) if field.name not in common]
    moved = changed(belief, **{name: getattr(belief, name)[order] for name in names})
    rewards = belief.sample_outcome(8, 6).rewards
    lam = belief.predictive_mean()
    means, gains = along_path(belief, rewards, lam)
    there, gains_there = along_path(moved, rewards[order], lam[order])
    np.testing.assert_allclose(there, means[order])
    np.testing.assert_allclose(gains_there, gains[order], rtol=1e-6)


def test_to_arviz_has_labelled_draws(belief):
    data = belief.to_arviz(key=1, num_draws=50)
    assert data["posterior"]["mean_reward"].shape == (1, 50, 3)
    assert data["posterior"]["mean_reward"].dims == ("chain", "draw", "arm")
    assert data["posterior_predictive"]["reward"].shape == (1, 50, 3)


def test_arviz_is_loaded_where_another_process_loads_it_too(tmp_path):
    """ArviZ's first import of a day renames a file; here another process has renamed it already."""
    script = """
import pathlib
rename, calls = pathlib.Path.replace, []
def taken(path, target):
    calls.append(path)
    rename(path, target)
    if len(calls) == 1:
        raise FileNotFoundError(path)
pathlib.Path.replace = taken
from irsppl.beliefs._arviz import load_arviz
print(load_arviz().__name__)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert found.stdout.strip() == "arviz", found.stderr


def test_a_family_is_a_pytree_of_arrays(belief):
    assert isinstance(belief, Conjugate)
    leaves, tree = jax.tree.flatten(belief)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jax.tree.structure(jax.tree.unflatten(tree, leaves)) == tree
