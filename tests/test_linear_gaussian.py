"""LinearGaussian against dense regression (tests/oracles/linear_gaussian.py) and NormalNormal."""

import itertools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl._fields import changed
from irsppl.beliefs import CorrelatedFuture, lattice
from irsppl.beliefs.linear_gaussian import expected_best
from irsppl.bounds import inner_values
from irsppl.inner.laws import expected_best as max_of_laws
from irsppl.penalties import find_penalty
from irsppl.policies import find_policy

from .conftest import within
from .oracles import linear_gaussian as oracle

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}
BOTH = pytest.mark.parametrize("dtype", TOLERANCE)
# V-Zero exceeds TS here: three arms that mostly share one weight, the best of them noisy.
STEERED = {
    "features": [[1.5, 1.0], [1.5, 0.5], [1.0, 0.0]],
    "mean": [0.0, 0.0],
    "cov": [[1.0, 0.0], [0.0, 1.0]],
    "noise_sd": [3.0, 1.0, 1.0],
}
CROOKED = {
    "features": [[1.0, 0.5], [-0.4, 2.0], [0.8, 0.1]],
    "mean": [0.3, -0.2],
    "cov": [[2.0, 0.7], [0.7, 0.5]],
    "noise_sd": [1.0, 0.5, 2.0],
    "offset": [1.0, 0.0, -2.0],
}


def random_arms(num_arms, dim, seed=0, noise_sd=None):
    """Features, mean, a full covariance, noise and offsets, in float64."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(dim, dim))
    return {
        "features": rng.normal(size=(num_arms, dim)),
        "mean": rng.normal(size=dim),
        "cov": half @ half.T + 0.1 * np.eye(dim),
        "noise_sd": rng.uniform(0.5, 2.0, num_arms) if noise_sd is None else noise_sd,
        "offset": rng.normal(size=num_arms),
    }


def close(got, expected, tolerance):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@eqx.filter_jit
def answers(belief, rewards, lam, key):
    """Every answer that a belief of correlated and one of independent arms both have."""
    n = jnp.arange(rewards.shape[1])
    own = jnp.broadcast_to(n[None, :], rewards.shape)
    counts = jnp.array([3, 0, 2])[: belief.num_arms]
    outcome, future = belief.draw(key, rewards.shape[1]), belief.along(rewards)

    def separable(others):
        correlated = isinstance(future, CorrelatedFuture)
        return future.separable(own, others)[0] if correlated else future.means(own)

    return {
        "mean": belief.predictive_mean(),
        "sd": belief.mean_sd(),
        "cdf": belief.cdf(lam),
        "expected max": belief.expected_max(lam),
        "path": future.own_means(),
        "path max": future.expected_max(jnp.full(belief.num_arms, lam)),
        "feedback": future.means(np.stack([np.arange(rewards.shape[1] + 1)] * belief.num_arms)),
        "after": future.means(counts),
        "after the same": future.means(2),
        "at": future.means(jnp.stack([counts, counts + 1, 0 * counts], axis=1)),
        "separable": separable(n[::-1]),
        "separable, unlike": separable((own + counts[:, None]) // 2),
        "lattice": future.means(lattice(belief.num_arms, rewards.shape[1] + 1)),
        "lattice max": future.expected_best(),
        "update": belief.given(1, 2.5).predictive_mean(),
        "draw": belief.sample_means(key),
        "outcome": (outcome.means, outcome.rewards),
        "future means": belief.sample_future_means(key, counts, 9),
        "rewards at": belief.sample_rewards_at(key, rewards[:, 0], 4),
    }


@BOTH
def test_independent_features_are_normal_normal(dtype):
    """X = I and a diagonal covariance: every answer, and every draw with the same key."""
    with jax.enable_x64(dtype is np.float64):
        mean, sd, noise = np.array([[0.5, -0.3], [1.5, 0.4], [1.0, 2.0]], dtype)
        joint = irsppl.LinearGaussian(np.eye(2, dtype=dtype), mean, np.diag(sd**2), noise)
        alone = irsppl.NormalNormal(mean, sd, noise)
        rewards = alone.sample_outcome(3, 5).rewards
        got = answers(joint, rewards, 0.2, jax.random.key(4))
        expected = answers(alone, rewards, 0.2, jax.random.key(4))
        for name in expected:
            jax.tree.map(lambda a, b: close(a, b, TOLERANCE[dtype]), got[name], expected[name])
            assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(got[name])), name
    for n in (None, 0, 1, 7):
        exact = joint.exact_expected_best(None if n is None else np.array([n, n]))
        close(exact, max_of_laws(alone.law(n)), TOLERANCE[dtype])
    laws = [alone.law(3)[0], alone.law(5)[1]]
    close(joint.exact_expected_best(np.array([3, 5])), max_of_laws(laws), TOLERANCE[dtype])


@pytest.mark.parametrize(
    "num_arms, dim, dtype", [(3, 2, np.float64), (2, 4, np.float32)], ids=["[3, 2]", "[2, 4]"]
)
def test_agrees_with_dense_regression(num_arms, dim, dtype):
    given = random_arms(num_arms, dim)
    slow = oracle.Regression(**given)
    size, tolerance = 5, {np.float32: 5e-5, np.float64: 1e-10}[dtype]
    with jax.enable_x64(dtype is np.float64):
        belief = irsppl.LinearGaussian(**{k: np.asarray(v, dtype) for k, v in given.items()})
        rewards = belief.sample_outcome(1, size).rewards
        got = jax.tree.map(np.asarray, answers(belief, rewards, 0.2, jax.random.key(4)))
        arms = np.array([0, 1, 1, 0, 1, num_arms - 1])
        updated = belief.update(arms, np.asarray(rewards)[arms, 0])
        features, cov = np.asarray(updated.features), np.asarray(updated.cov)
        joint = features @ cov @ features.T
        after, sd = updated.predictive_mean(), updated.mean_sd()
    host = np.asarray(rewards, float)

    def mean(counts):
        return slow.after(host, counts)[0]

    expected_mean, expected_cov = slow.posterior(arms, host[arms, 0])
    close(after, expected_mean, tolerance)
    close(joint, expected_cov, tolerance)
    close(sd, np.sqrt(np.diag(expected_cov)), tolerance)
    close(got["update"], slow.posterior([1], [2.5])[0], tolerance)
    counts = np.array([3, 0, 2])[:num_arms]
    close(got["after"], mean(counts), tolerance)
    close(got["at"].T, [mean(counts), mean(counts + 1), mean(0 * counts)], tolerance)
    for n in range(size + 1):
        close(got["feedback"][:, n], mean([n] * num_arms), tolerance)
        for a in range(num_arms):
            close(got["path"][a, n], mean(n * np.eye(num_arms, dtype=int)[a])[a], tolerance)
    for a in range(num_arms):
        for n in range(size):
            others = np.full(num_arms, size - 1 - n)
            others[a] = n
            close(got["separable"][a, n], mean(others)[a], tolerance)
            others = (n + counts) // 2
            others[a] = n
            close(got["separable, unlike"][a, n], mean(others)[a], tolerance)
    for corner in np.ndindex((size + 1,) * num_arms):
        close(got["lattice"][(slice(None), *corner)], mean(corner), tolerance)
        if sum(corner) <= 1 and (num_arms == 2 or dim > 2):  # the oracle needs a full covariance
            best = oracle.expected_max(*slow.after(host, corner))
            close(got["lattice max"][corner], best, max(tolerance, 1e-8))


def test_five_thousand_updates_in_float32():
    """Means to 0.001 posterior standard deviations of a float64 regression, covariance to 1e-4."""
    given = random_arms(6, 4, seed=2)
    belief = irsppl.LinearGaussian(**{k: np.asarray(v, np.float32) for k, v in given.items()})
    rng = np.random.default_rng(3)
    truth = given["features"] @ (given["mean"] + 1) + given["offset"]
    arms = rng.integers(0, 6, 5000)
    rewards = (truth[arms] + given["noise_sd"][arms] * rng.normal(size=5000)).astype(np.float32)
    belief = belief.update(arms, rewards)
    x, w = given["features"], 1 / given["noise_sd"] ** 2
    precision = np.linalg.inv(given["cov"]) + (x[arms].T * w[arms]) @ x[arms]
    shift = np.linalg.solve(given["cov"], given["mean"])
    shift = shift + x[arms].T @ (w[arms] * (rewards - given["offset"][arms]))
    cov = x @ np.linalg.inv(precision) @ x.T
    sd = np.sqrt(np.diag(cov))
    exact = x @ np.linalg.solve(precision, shift) + given["offset"]
    assert np.max(np.abs(np.asarray(belief.predictive_mean()) - exact) / sd) < 1e-3
    found = np.asarray(belief.features @ belief.cov @ belief.features.T)
    np.testing.assert_allclose(found / np.outer(sd, sd), cov / np.outer(sd, sd), atol=1e-4)
    assert np.linalg.eigvalsh(np.asarray(belief.cov, float))[0] > 0


@eqx.filter_jit
def separable(belief, rewards):
    n = jnp.arange(rewards.shape[1])
    own = jnp.broadcast_to(n[None, :], rewards.shape)
    return belief.along(rewards).separable(own, n[::-1])[0]


def test_separable_keeps_its_digits_next_to_a_telling_arm():
    """One arm's noise is 1/300 of the others': float32 within 1e-4 of dense regression."""
    for told in (0, 2):
        noise = np.ones(4)
        noise[told] = 1 / 300
        given = random_arms(4, 3, seed=5, noise_sd=noise)
        given = {k: np.asarray(v, np.float32) for k, v in given.items()}
        belief = irsppl.LinearGaussian(**given)
        rewards = belief.sample_outcome(0, 40).rewards
        got = np.asarray(separable(belief, rewards))
        slow = oracle.Regression(**given)
        host = np.asarray(rewards, float)
        for a in range(4):
            for at in (0, 1, 20, 39):
                counts = np.full(4, 39 - at)
                counts[a] = at
                np.testing.assert_allclose(got[a, at], slow.after(host, counts)[0][a], atol=1e-4)


# ---- laws of the means


def test_future_means_are_drawn_from_their_law():
    """Means and covariance of 4,000 draws; 4 standard errors on 9 figures (one in 1,700)."""
    belief = irsppl.LinearGaussian(**CROOKED)
    n = jnp.array([4, 0, 7])
    keys = jax.random.split(jax.random.key(2), 4000)
    draws = np.asarray(
        jax.jit(jax.vmap(lambda k: belief.sample_future_means(k, n, 10)))(keys), float
    )
    slow = oracle.Regression(**CROOKED)
    before, cov = slow.after(np.zeros((3, 7)), [0, 0, 0])
    resolved = cov - slow.after(np.zeros((3, 7)), np.asarray(n))[1]
    for a in range(3):
        within(draws[:, a].mean(), draws[:, a].std() / 4000**0.5, before[a])  # a martingale
        for b in range(a + 1):
            products = (draws[:, a] - before[a]) * (draws[:, b] - before[b])
            within(products.mean(), products.std() / 4000**0.5, resolved[a, b])


def test_one_more_reward_leaves_the_means_as_they_were_on_average():
    """Means, and E[max of the means], averaged over the next reward by quadrature: unchanged."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    with jax.enable_x64(True):
        belief = irsppl.LinearGaussian(**CROOKED).update([0, 1, 1], [1.5, 0.3, -0.2])
        now = np.asarray(belief.predictive_mean())
        sd = np.sqrt(np.asarray(belief.mean_sd()) ** 2 + np.asarray(belief.noise_sd) ** 2)

        def over_counts(rewards):
            future = belief.along(rewards)
            return future.means(lattice(3, 2)), future.expected_best()

        rewards = jnp.asarray(now[:, None] + sd[:, None] * points[:, None, None])
        means, best = map(np.asarray, jax.jit(jax.vmap(over_counts))(rewards))
    close(means[0, :, 0, 0, 0], now, 1e-12)
    for arm in range(3):
        corner = tuple(np.eye(3, dtype=int)[arm])
        close(weights @ means[(slice(None), slice(None), *corner)], now, 1e-12)
        close(weights @ best[(slice(None), *corner)], best[0, 0, 0, 0], 1e-8)


def test_expected_max_of_up_to_three_gaussians():
    rng = np.random.default_rng(0)
    in_jax = jax.jit(expected_best)
    for num_arms, scale in [(2, 0), (2, 0.7), (3, 0), (3, 0.3), (3, 3)]:
        means = rng.normal(size=num_arms) * scale
        spread = rng.normal(size=(num_arms, 3))
        exact = oracle.expected_max(means, spread @ spread.T)
        assert abs(expected_best(means, spread) - exact) < 1e-10
        single = in_jax(jnp.asarray(means, jnp.float32), jnp.asarray(spread, jnp.float32))
        assert abs(single - exact) < 1e-6 * (1 + np.abs(means).max())


@pytest.mark.parametrize(
    "spread",
    [[[1.0], [-0.5], [2.0]], [[1.0, 0.0], [1.0, 0.0], [0.3, 2.0]], [[0.0], [0.0], [1.0]]],
    ids=["one weight", "twins", "two known arms"],
)
@pytest.mark.parametrize("means", [[0.0, 0.0, 0.0], [0.2, 0.2, -0.1], [0.5, -0.2, 0.1]])
def test_expected_max_of_degenerate_gaussians(means, spread):
    """Arms that agree or oppose each other perfectly: against a fine sum over the weights."""
    means, spread = np.array(means), np.array(spread)
    grid = np.linspace(-9, 9, {1: 100_001, 2: 1501}[spread.shape[1]])
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi) * (grid[1] - grid[0])
    z = [part.ravel() for part in np.meshgrid(*[grid] * spread.shape[1])]
    weight = np.prod([part.ravel() for part in np.meshgrid(*[density] * len(z))], axis=0)
    best = np.full(len(z[0]), -np.inf)
    for mean, row in zip(means, spread, strict=True):
        best = np.maximum(best, mean + sum(c * part for c, part in zip(row, z, strict=True)))
    assert abs(expected_best(means, spread) - best @ weight) < 1e-5  # the sum's own error
    single = jax.jit(expected_best)(
        jnp.asarray(means, jnp.float32), jnp.asarray(spread, jnp.float32)
    )
    assert abs(single - best @ weight) < 1e-5


@pytest.mark.parametrize("doses", [(0, 0.3, 1), (-1, 0.1, 2), (0, 1e-4, 1)], ids=str)
@pytest.mark.parametrize("level", [0.0, 37.3, 1000.0])
def test_expected_max_of_three_doses_of_one_drug(doses, level):
    """Means on a line: the largest is that of an end, whichever it is; whatever all arms share."""
    rows = np.array([[1.0, dose] for dose in doses])
    means, spread = rows @ [level, 0.1], rows @ np.diag([0.3, 1.0])
    exact = expected_best(means[[0, 2]], spread[[0, 2]])
    assert abs(expected_best(means, spread) - exact) < 2e-12
    low = means[0]  # else single precision loses the level's digits
    single = jax.jit(expected_best)(jnp.float32(means - low), jnp.float32(spread))
    assert abs(single - (exact - low)) < 2e-6


def moved(belief, level):
    if isinstance(belief, irsppl.NormalInverseGamma):
        return changed(belief, mean=belief.mean + level)
    return changed(belief, offset=belief.offset + level)


@pytest.mark.parametrize(
    "belief",
    [
        irsppl.NormalInverseGamma([0.0, 0.125, -0.125], np.ones(3), np.full(3, 3.0), np.ones(3)),
        irsppl.LinearGaussian([[1, 0.0], [1, 0.25], [1, 1]], [0.0, 0.0], np.diag([0.1, 1]), 1.0),
    ],
    ids=["normal-inverse-gamma", "doses"],
)
def test_v_emax_moves_with_all_rewards(belief):
    """One future, 65536 higher: what it pays, less that, and not what single precision leaves."""
    low, high = (irsppl.Bandit(b, horizon=4) for b in (belief, moved(belief, 65536.0)))
    future = high.sample_outcome(0)
    lower = changed(future, means=future.means - 65536, rewards=future.rewards - 65536)
    futures = [jax.tree.map(lambda leaf: leaf[None], x) for x in (lower, future)]
    penalty = find_penalty("irs.v-emax")
    below, above = (
        penalty.traced_values(b, f)[0] for b, f in zip((low, high), futures, strict=True)
    )
    assert abs(above - 4 * 65536 - below) < 2e-5  # of the same numbers: nothing is rounded anew


# ---- bounds


def test_inner_problems_are_those_of_the_definition():
    """V-Zero over every order of five pulls, the separable form over every division of them."""
    bandit = irsppl.Bandit(irsppl.LinearGaussian(**CROOKED), horizon=5)
    slow = oracle.Regression(**CROOKED)
    for seed in range(3):
        outcome = bandit.sample_outcome(seed)
        host = np.asarray(outcome.rewards, float)
        found = irsppl.solve_inner(bandit, "irs.v-zero", outcome)
        close(found.value, slow.v_zero(host, 5), 2e-5)
        found = irsppl.solve_inner(bandit, "irs.v-zero-separable", outcome)
        close(found.value, slow.v_zero_separable(host, 5), 2e-5)
        found = irsppl.solve_inner(bandit, "irs.fh", outcome)
        close(found.value, 5 * slow.after(host, [4, 4, 4])[0].max(), 2e-5)
        found = irsppl.solve_inner(bandit, "irs.ff", outcome)
        close(found.value, sum(slow.after(host, [n] * 3)[0].max() for n in range(5)), 2e-5)


def optimum_of_three_periods(slow):
    """V* by dynamic programming: one reward moves all means along one direction."""
    grid = np.linspace(-8, 8, 4001)
    weights = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi) * (grid[1] - grid[0])

    def step(cov, arm):
        return cov[:, arm] / np.sqrt(cov[arm, arm] + slow.noise_sd[arm] ** 2)

    mean, cov = slow.posterior([], [])
    totals = []
    for first in range(3):
        along = step(cov, first)
        means, after = mean + grid[:, None] * along, cov - np.outer(along, along)
        later = []
        for second in range(3):
            last = mean + grid[:, None] * step(after, second)  # shifted by `means - mean` below
            best = [weights @ np.max(last + shift, axis=1) for shift in (means - mean)[::20]]
            later.append(means[::20, second] + best)
        totals.append(mean[first] + 20 * weights[::20] @ np.max(later, axis=0))
    return max(totals)


def test_no_bound_is_below_the_optimum_of_three_periods():
    """4 standard errors each (one in 16,000)."""
    optimum = optimum_of_three_periods(oracle.Regression(**CROOKED))
    bandit = irsppl.Bandit(irsppl.LinearGaussian(**CROOKED), 3)
    exact = [irsppl.bound(bandit, name).value for name in ("irs.ff", "irs.fh", "ts")]
    assert optimum <= exact[0] <= exact[1] <= exact[2]
    for name in ("irs.v-zero", "irs.v-zero-separable", "irs.v-emax"):
        found = irsppl.bound(bandit, name, num_samples=2000, workers=1)
        assert found.stderr > 0 and found.value >= optimum - 4 * found.stderr, name


def test_v_zero_can_exceed_ts():
    """Three correlated arms: FF < separable < FH < TS < V-Zero, each gap above 4 standard errors.

    Exact figures for the three without sampling error; each is the mean of its sampled inner
    values.
    """
    bandit = irsppl.Bandit(irsppl.LinearGaussian(**STEERED), horizon=20)
    names = ["irs.ff", "irs.v-zero-separable", "irs.fh", "ts", "irs.v-zero"]
    bounds = {name: irsppl.bound(bandit, name, num_samples=600, workers=1) for name in names}
    for lower, higher in itertools.pairwise(names):
        error = np.hypot(bounds[lower].stderr, bounds[higher].stderr)
        assert bounds[lower].value + 4 * error < bounds[higher].value, (lower, higher)
    exact = ["ts", "irs.fh", "irs.ff"]
    sampled = inner_values(bandit, map(find_penalty, exact), jax.random.key(7), 600, workers=1)
    for name in exact:
        assert bounds[name].exact
        values = sampled[name]
        within(values.mean(), values.std() / 600**0.5, bounds[name].value)


# ---- policies


def test_policies_play_it():
    """One arm is better beyond doubt: all play it (bayes-ucb draws its first arm at random)."""
    sure = CROOKED | {"offset": [0.0, 60.0, 0.0]}
    bandit = irsppl.Bandit(irsppl.LinearGaussian(**sure), horizon=4)
    policies = ["ts", "irs.fh", "irs.v-zero-separable", "irs.v-zero", "irs.index", "ids"]
    data = irsppl.simulate(bandit, [*policies, "bayes-ucb"], num_replications=6, workers=1)
    assert np.all(data["pulls"].sel(policy=policies, arm="1").values == 4)
    assert np.all(data["pulls"].sel(policy="bayes-ucb", arm="1").values >= 3)
    np.testing.assert_allclose(data["regret"].sel(policy=policies), 0, atol=1e-4)


def test_fixed_truth_and_pending_pulls():
    bandit = irsppl.Bandit(irsppl.LinearGaussian(**CROOKED), horizon=4)
    data = irsppl.simulate(bandit, ["irs.fh"], means=[0.0, 0.0, 9.0], num_replications=6, workers=1)
    value = (data["pulls"].values * np.array([0.0, 0.0, 9.0])).sum(axis=2)
    np.testing.assert_allclose(data["value"].values, value)
    late = bandit.pull(0)
    assert irsppl.choose(late, "irs.v-zero-separable", key=1) in range(3)
    seen = bandit.pull(0, 1.2)
    arrived = late.arrive(0, 1.2)
    close(arrived.belief.predictive_mean(), seen.belief.predictive_mean(), 1e-6)


# ---- many arms


def test_three_hundred_arms():
    """K = 300, d = 10, T = 100: separable means at some counts against dense regression."""
    given = random_arms(300, 10, seed=4)
    belief = irsppl.LinearGaussian(**{k: np.asarray(v, np.float32) for k, v in given.items()})
    rewards = belief.sample_outcome(0, 100).rewards
    got = np.asarray(separable(belief, rewards))
    x, w = given["features"], 1 / given["noise_sd"] ** 2
    prior = x @ given["mean"] + given["offset"]
    sums = np.pad(np.cumsum(np.asarray(rewards, float), axis=1), ((0, 0), (1, 0)))
    for a, at in [(0, 0), (17, 3), (150, 50), (299, 99)]:
        counts = np.full(300, 99 - at)
        counts[a] = at
        gaps = sums[np.arange(300), counts] - counts * prior
        precision = np.linalg.inv(given["cov"]) + (x.T * (counts * w)) @ x
        exact = prior[a] + x[a] @ np.linalg.solve(precision, x.T @ (w * gaps))
        np.testing.assert_allclose(got[a, at], exact, atol=2e-4)


def test_speed_of_a_separable_decision():
    """K = 50, d = 10, T = 200: at most 20 times V-Zero on as many independent arms, in one run."""
    given = random_arms(50, 10, seed=4)
    joint = irsppl.LinearGaussian(**{k: np.asarray(v, np.float32) for k, v in given.items()})
    ones = np.ones(50)
    alone = irsppl.NormalNormal(np.zeros(50), ones, ones)
    decide = eqx.filter_jit(
        lambda policy, bandit, keys: jax.lax.map(lambda key: policy(key, bandit), keys)
    )
    keys = jax.random.split(jax.random.key(0), 8)

    def seconds(belief, name):
        bandit, policy = irsppl.Bandit(belief, 200), find_policy(name)
        run = lambda: jax.block_until_ready(decide(policy, bandit, keys))  # noqa: E731
        run()
        best = np.inf
        for _ in range(5):
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
        return best

    ratio = seconds(joint, "irs.v-zero-separable") / seconds(alone, "irs.v-zero")
    assert ratio <= 20, ratio


def test_no_lapack_inside_compiled_code():
    """Its batched routines can wait for each other for ever when two chunks run side by side."""
    belief = irsppl.LinearGaussian(**CROOKED)
    rewards = jnp.zeros((3, 4))

    def everything(belief, rewards):
        return answers.__wrapped__(belief, rewards, 0.2, jax.random.key(0))

    text = eqx.filter_jit(jax.vmap(everything, (None, 0))).lower(belief, rewards[None]).as_text()
    assert "dot_general" in text and "lapack" not in text.lower()
