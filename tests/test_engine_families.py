"""Families of the engine whose laws are no sums: what they are asked, one question at a time."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import irsppl
from irsppl import engine
from irsppl._checks import host64
from irsppl.engine import verbs
from irsppl.engine.families import family_of
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import seed_state, streams
from irsppl.inner.cpu.special import expected_gain
from irsppl.policies import find_policy

from .oracles.laws import dirichlet_mean_cdf
from .test_engine import DECISIONS, LEVEL, belief_of


@njit(cache=True)
def sampled(family, seeds, counts, means, later):
    """Draws of the means, and of the means after ``counts`` rewards, into [S, K]."""
    rng = np.empty(4, np.uint64)
    verbs.reset(family)
    for s in range(seeds.size):
        seed_state(seeds[s], rng)
        verbs.draw_means(family, rng, means[s])
        verbs.draw_future_means(family, rng, counts, later[s])


@njit(cache=True)
def walked(family, seeds, arm, out):
    """Means of an arm along futures, [S, N]."""
    rng = np.empty(4, np.uint64)
    verbs.reset(family)
    for s in range(seeds.size):
        seed_state(seeds[s], rng)
        verbs.draw_path(family, rng, arm, out.shape[1], out[s], 0, False)


@njit(cache=True)
def followed(family, seed, lam, out, node=0):
    """(mean, gain) of every arm along its future, [K, N + 1, 2]."""
    rng = np.empty(4, np.uint64)
    seed_state(seed, rng)
    verbs.reset(family)
    verbs.renew(family, rng)
    for a in range(out.shape[0]):
        cursor = verbs.begin(family, a, lam, node)
        for n in range(out.shape[1]):
            out[a, n, 0], out[a, n, 1] = cursor[0], cursor[1]
            if n + 1 < out.shape[1]:
                cursor = verbs.follow(family, rng, a, n, lam, cursor)


def unknown_variance():
    return irsppl.NormalInverseGamma([0.2, 0.9], [1.3, 2.0], [1.7, 3.0], [1.1, 2.0])


def linear():
    return irsppl.LinearGaussian(
        [[1.0, 0.3], [0.4, 1.1]], [0.1, 0.3], [[1.0, 0.3], [0.3, 0.8]], 0.7
    )


COUNTS = np.array([3, 5])


def categorical():
    return irsppl.DirichletCategorical([[1.2, 2.1, 0.7], [0.8, 1.5, 2.0]], [-1.0, 0.5, 2.0])


@njit(cache=True)
def asked(family, arm, lam, level, z, out):
    """Gain, chance of more, and quantile of an arm's mean."""
    verbs.reset(family)
    out[0], out[1] = verbs.gain(family, arm, lam)
    out[2] = verbs.quantile(family, arm, level, z, -np.inf, lam)


LAWS = {
    "normal-inverse-gamma": unknown_variance,
    "points": lambda: belief_of("points"),
    "joint": lambda: belief_of("joint"),
}


@pytest.mark.parametrize("kind", LAWS)
def test_laws_of_means_are_the_beliefs(kind):
    """What OGI and Bayes-UCB ask, against `expected_max` and `cdf` in single precision."""
    belief, out = LAWS[kind](), np.empty(3)
    part = family_of(belief, frozenset({"quantile", "gain"}))(0, 1)
    for lam, level in ((0.35, 0.5), (0.6, 0.75), (0.83, 0.95)):
        gain = np.asarray(belief.expected_max(jnp.asarray(lam))) - lam
        above = 1 - np.asarray(belief.cdf(jnp.asarray(lam)))
        for arm in range(2):
            asked(part, arm, lam, level, stats.norm.ppf(level), out)
            np.testing.assert_allclose(out[:2], [gain[arm], above[arm]], atol=2e-5)
            below, at = (float(belief.cdf(jnp.asarray(out[2] + d))[arm]) for d in (-1e-3, 1e-3))
            assert below < level + 1e-3 and at >= level - 1e-3


def test_laws_of_categorical_means():
    """Three values: an integral of the oracle's CDF. Two: the closed form of the Beta law."""
    belief, out = categorical(), np.empty(3)
    alpha, values, lam = host64(belief.alpha), host64(belief.values), 0.7
    part = family_of(belief, frozenset({"quantile", "gain"}))(0, 1)
    for arm in range(2):
        asked(part, arm, lam, 0.8, 0.0, out)
        cdf = functools.partial(dirichlet_mean_cdf, alpha[arm], values)
        gain = integrate.quad(lambda x: 1 - cdf(x), lam, values[-1], epsabs=1e-7)[0]  # noqa: B023
        np.testing.assert_allclose(out[:2], [gain, 1 - cdf(lam)], atol=1e-6)
        assert cdf(out[2]) == pytest.approx(0.8, abs=1e-6)
    coin = irsppl.DirichletCategorical([[2.2, 1.3], [4.0, 7.0]], [0.0, 1.0])
    part, path = family_of(coin, frozenset({"index"}))(12, 1), np.empty((2, 12, 2))
    followed(part, streams((0, 1), 5, 0, 1)[0], 0.45, path)
    for arm, (failed, won) in enumerate(coin.reward_tables().weights):
        rewards = np.concatenate([[0], np.cumsum(part.futures[arm, :11])])
        for n, wins in enumerate(rewards):
            gain = expected_gain(0, won + wins, failed + won + n, 0.0, 0.45)
            np.testing.assert_allclose(path[arm, n, 1], gain, atol=1e-6)


def test_quantiles_of_concentrated_and_of_rare_categories():
    """They were up to 750 standard deviations off: P(mu > x) far above the mean was not 0."""
    out = np.empty(3)
    for failed, won in ((11000.0, 35000.0), (6641.0, 327.0), (5000.0, 0.5), (1.0, 3.0), (0.3, 0.2)):
        coin = irsppl.DirichletCategorical([[failed, won], [1.0, 1.0]], [0.0, 1.0])
        part = family_of(coin, frozenset({"quantile", "gain"}))(0, 1)
        law = stats.beta(won, failed)
        for level in (0.02, 0.5, 0.99, 0.9998):
            asked(part, 0, 0.5, level, stats.norm.ppf(level), out)
            assert out[2] == pytest.approx(law.ppf(level), abs=1e-5 * law.std() + 1e-9)


def test_gains_of_an_index_far_from_a_concentrated_mean():
    """Nothing is to be gained above lam; the sum over nodes gave 1.2e-4 of it."""
    coin = irsppl.DirichletCategorical([[2e5, 1e5], [2e5, 2e5]], [0.0, 1.0])
    part, path = family_of(coin, frozenset({"index"}))(12, 1), np.empty((2, 12, 2))
    for lam in (0.55, 0.7, 0.9):
        followed(part, streams((0, 1), 5, 0, 1)[0], lam, path)
        np.testing.assert_allclose(path[:, :, 1], 0.0, atol=1e-12)


def test_gains_of_an_index_beside_an_arm_that_is_all_but_known():
    """The other arm's were up to 0.003 standard deviations off: its transform was cut short."""
    alpha, values, out = [[4e5, 3e5, 100.0], [2.0, 1.0, 0.02]], [0.0, 1.0, 30.0], np.empty(3)
    belief = irsppl.DirichletCategorical(alpha, values)
    part, path = family_of(belief, frozenset({"index", "gain"}))(12, 1), np.empty((2, 1, 2))
    for node, lam in ((1, 0.4), (2, 0.8), (3, 3.0)):
        followed(part, streams((0, 1), 5, 0, 1)[0], lam, path, node)
        for arm, sd in enumerate(host64(belief.mean_sd())):
            asked(part, arm, lam, 0.5, 0.0, out)
            assert path[arm, 0, 1] == pytest.approx(out[0], abs=1e-5 * sd)


def test_gaussian_indices_of_linear_arms():
    """Of a Gaussian mean, quantile and optimistic index are the mean plus so many deviations."""
    bandit = irsppl.Bandit(linear(), 30)
    for arm, reward in ((0, 0.4), (1, -0.2), (0, 1.3)):
        bandit = bandit.pull(arm, reward)
    for name in ("bayes-ucb", "ogi"):
        index = np.asarray(find_policy(name).indices(bandit))
        assert abs(index[0] - index[1]) > 1e-3  # clear of rounding
        arm = engine.kernel(find_policy(name), bandit).decisions(streams((0, 1), 2, 0, 1))[0]
        assert arm == np.argmax(index)


@njit(cache=True)
def prefixed(family, seeds, arm, skip, width, total, rows, later):
    rng = np.empty(4, np.uint64)
    verbs.reset(family)
    for s in range(seeds.size):
        seed_state(seeds[s], rng)
        later[s] = verbs.draw_prefix(family, rng, arm, skip, width, total, rows[s])


@pytest.mark.parametrize("make", [unknown_variance, categorical])
def test_prefixes_are_paths_cut_short(make):
    """Means 2, 3 and the last of 9 along futures: marginals and products as along whole paths."""
    part = family_of(make(), frozenset({"prefix"}))(1, 1)
    count, arm = DECISIONS // 4, 1
    whole, rows, later = np.empty((count, 9)), np.empty((count, 5)), np.empty(count)
    walked(part, streams((0, 1), 4, 0, count), arm, whole)
    prefixed(part, streams((0, 1), 5, 0, count), arm, 2, 2, 7, rows, later)
    short = np.stack([rows[:, 1], rows[:, 2], later], axis=1)
    long = whole[:, [2, 3, 8]]
    for w in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [0, 1, -1]):
        # Ties of categorical arms only make the test more cautious.
        assert stats.ks_2samp(short @ w, long @ w).pvalue > LEVEL


@pytest.mark.parametrize("make", [unknown_variance, linear])
def test_draws_of_gaussian_arms_have_their_laws(make):
    belief = make()
    part = family_of(belief, frozenset())(8, 1)
    means, later = np.empty((2, DECISIONS // 4, 2))
    sampled(part, streams((0, 1), 3, 0, len(means)), COUNTS, means, later)
    if belief.is_independent:
        for arm, n in enumerate(COUNTS):
            for draws, law in ((means, belief.law(None)), (later, belief.law(int(n)))):
                assert stats.kstest(draws[:, arm], law[arm].cdf).pvalue > LEVEL
        paths = np.empty((len(means), 6))
        walked(part, streams((0, 1), 4, 0, len(means)), 1, paths)
        for n in (1, 5):
            assert stats.kstest(paths[:, n], belief.law(n)[1].cdf).pvalue > LEVEL
        return
    # The difference between the arms is Gaussian; of its prior variance so many rewards explain
    # F (I - A^-1) F' with A = I + sum_b n_b g_b g_b'.
    x, root = np.asarray(belief.features, float), np.asarray(belief.root, float)
    noise, prior = np.asarray(belief.noise_sd, float), np.asarray(belief.predictive_mean(), float)
    spread = x @ root
    g = spread / noise[:, None]
    told = np.eye(2) - np.linalg.inv(np.eye(2) + (g * COUNTS[:, None]).T @ g)
    for draws, cov in ((means, spread @ spread.T), (later, spread @ told @ spread.T)):
        for w in (np.array([1.0, -1.0]), np.array([1.0, 0.0]), np.array([1.0, 1.0])):
            law = stats.norm(w @ prior, np.sqrt(w @ cov @ w))
            assert stats.kstest(draws @ w, law.cdf).pvalue > LEVEL


def test_draws_of_categorical_arms_have_their_laws():
    belief = irsppl.DirichletCategorical([[1.2, 2.1, 0.7], [0.8, 1.5, 2.0]], [-1.0, 0.5, 2.0])
    part = family_of(belief, frozenset())(8, 1)
    count = DECISIONS // 4
    means, later = np.empty((2, count, 2))
    sampled(part, streams((0, 1), 3, 0, count), COUNTS, means, later)
    paths = np.empty((count, 4))
    walked(part, streams((0, 1), 4, 0, count), 0, paths)
    alpha, values = host64(belief.alpha), host64(belief.values)
    for arm in range(2):
        law = functools.partial(dirichlet_mean_cdf, alpha[arm], values)
        assert stats.kstest(means[:300, arm], np.vectorize(law)).pvalue > LEVEL  # integrals
    # Means after three rewards of arm 0: one for each multiset of values.
    nu, mass = alpha[0].sum(), {}
    for seen in itertools.product(range(3), repeat=3):
        chance, state = 1.0, alpha[0].copy()
        for c in seen:
            chance *= state[c] / state.sum()
            state[c] += 1
        mean = round((alpha[0] @ values + values[list(seen)].sum()) / (nu + 3), 9)
        mass[mean] = mass.get(mean, 0.0) + chance
    for draws in (later[:, 0], paths[:, 3]):
        found, times = np.unique(np.round(draws, 9), return_counts=True)
        assert set(found) == set(mass)
        assert stats.chisquare(times, count * np.array([mass[m] for m in found])).pvalue > LEVEL


@pytest.mark.parametrize("make", [unknown_variance, linear])
def test_futures_are_followed_as_the_belief_would(make):
    belief = make()
    part = family_of(belief, frozenset({"index"}))(6, 1)
    out, lam = np.empty((2, 6, 2)), 0.55
    followed(part, streams((0, 1), 5, 0, 1)[0], lam, out)
    rewards = jnp.asarray(part.futures[:, :5])

    @jax.jit
    def told(rewards):
        future = belief.along(rewards)
        return future.own_means(), future.expected_max(jnp.full(2, lam)) - lam

    means, gains = told(rewards)
    np.testing.assert_allclose(out[:, :, 0], means, atol=2e-5)
    np.testing.assert_allclose(out[:, :, 1], gains, atol=2e-5)


@njit(cache=True)
def paid(family, seed, periods, cells, stride, least):
    rng = np.empty(4, np.uint64)
    seed_state(seed, rng)
    verbs.reset(family)
    verbs.draw_separable(family, rng, periods, cells, stride, 0, least)


def test_separable_payoffs_of_linear_arms_are_those_of_the_belief():
    """Four arms of three weights, one of which tells far more than the others."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    belief = irsppl.LinearGaussian(
        rng.normal(size=(4, 3)), [0.1, 0.3, -0.2], root @ root.T, [0.7, 1.0, 0.02, 2.0]
    )
    size = 7
    part = family_of(belief, frozenset({"separable"}))(size, 1)
    cells, least = np.empty(4 * (size + 1)), np.empty(4)
    paid(part, np.uint64(3), size, cells, size + 1, least)
    # Surprises were summed up in units of the noise.
    each = np.diff(part.futures[:, : size - 1], axis=1, prepend=0.0)
    rewards = part.means[:, None] + each * part.noise[:, None]
    own = jnp.broadcast_to(jnp.arange(size), (4, size))
    payoffs = jax.jit(lambda rewards: belief.along(rewards).separable(own, size - 1 - own)[0])
    means = np.asarray(payoffs(jnp.asarray(rewards, jnp.float32)))
    found = np.diff(cells.reshape(4, size + 1), axis=1)
    np.testing.assert_allclose(found, means, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(least, found.min(axis=1), atol=1e-12)


def test_v_zero_separable_on_linear_arms_decides_as_traced():
    """Shares of 3,000 decisions of each, at 4.5 standard errors of their difference: below 1e-5."""
    bandit = irsppl.Bandit(linear().update([0, 1], [0.4, 0.1]), 8)
    policy = find_policy("irs.v-zero-separable")
    mine = engine.kernel(policy, bandit.without_record()).decisions(streams((0, 1), 7, 0, 3000))
    keys = jax.random.split(jax.random.key(1), 3000)
    its = np.asarray(jax.jit(jax.vmap(lambda key: policy(key, bandit)))(keys))
    share = np.mean(its == 0)
    assert 0.05 < share < 0.95
    assert abs(np.mean(mine == 0) - share) < 4.5 * np.sqrt(2 * share * (1 - share) / 3000)
