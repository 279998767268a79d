"""The contract of all beliefs: no NaN and no infinity enters one, by data or by parameters."""

import functools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import expit

import irsppl
from irsppl.policies import BayesUCB

from .registry import BELIEFS, POINTS, made, rewards_of

NAN, INF = float("nan"), float("inf")


def logit(reward=None):
    log_odds = numpyro.sample("log_odds", dist.Normal(-2.0, 1.0))
    numpyro.sample("reward", dist.Bernoulli(logits=log_odds), obs=reward)


def amount(reward=None):
    log_mean = numpyro.sample("log_mean", dist.Normal(0.0, 0.7))
    numpyro.sample("reward", dist.Gamma(2.0, 2.0 * jnp.exp(-log_mean)), obs=reward)


@pytest.fixture(params=BELIEFS)
def named(request):
    return request.param, made(request.param)


def finite(belief):
    numbers = [belief.predictive_mean(), belief.mean_sd(), belief.expected_max(0.5)]
    return all(np.all(np.isfinite(np.asarray(x))) for x in numbers)


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e39, 1e20, "x", None, 10**400, [1.0]])
def test_no_such_reward_enters_any_belief(named, bad):
    name, belief = named
    bandit = irsppl.Bandit(belief, 20)
    pending, good = bandit.pull(0), rewards_of(name)[0]
    for call in (
        lambda: belief.update(0, bad),
        lambda: belief.update([0, 0], [good, bad]),
        lambda: bandit.pull(0, bad),
        lambda: pending.arrive(0, bad),
    ):
        if bad is None and call.__code__.co_names[-1] == "pull":
            continue  # a pull without a reward is pending
        if isinstance(bad, list) and "good" in call.__code__.co_freevars:
            continue  # NumPy's own error: a list of a number and a list
        with pytest.raises(ValueError, match="reward"):
            call()
    assert finite(belief) and finite(bandit.belief)


def test_a_possible_reward_enters_every_belief(named):
    name, belief = named
    reward = rewards_of(name)[0]
    bandit = irsppl.Bandit(belief, 20)
    belief = bandit.belief  # with its record, so that one program serves all updates
    for after in (
        belief.update(0, reward),
        belief.update([0, 1], [reward, reward]),
        bandit.pull(0, reward).belief,
        bandit.pull(0).arrive(0, reward).belief,
    ):
        assert finite(after)


@pytest.mark.parametrize("name", POINTS)
def test_a_reward_of_zero_density_is_refused_and_the_belief_stays(name):
    """As in the field: th ~ Uniform(1, 2), reward ~ Uniform(0, th), and 3 comes in."""
    belief = made(name)
    bandit = irsppl.Bandit(belief, 20)
    before = np.asarray(belief.predictive_mean())
    for call in (
        lambda: belief.update(0, 3.0),
        lambda: belief.update([0, 0], [0.5, 3.0]),
        lambda: bandit.pull(0, 3.0),
        lambda: bandit.pull(0).arrive(0, 3.0),
    ):
        with pytest.raises(ValueError, match=r"reward (must be|.*refused .* zero likelihood)"):
            call()
    np.testing.assert_array_equal(before, np.asarray(bandit.belief.predictive_mean()))


def test_a_cloud_that_cannot_explain_a_reward_says_what_to_do():
    cloud = made("particles")
    with pytest.raises(ValueError, match="64 points; give more with num_particles="):
        cloud.update(0, 1.9999999)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: irsppl.BetaBernoulli([3e38, 1.0], [1.0, 1.0]), "alpha must be at most"),
        (lambda: irsppl.BetaBernoulli([1e-40, 1.0], [1.0, 1.0]), "alpha must be at least"),
        (lambda: irsppl.NormalNormal([1e30], [1.0], [1.0]), "mean must be finite and at most"),
        (lambda: irsppl.NormalNormal([0.0], [1e-15], [1e15]), "closer together"),
        (lambda: irsppl.NormalNormal([0.0], [INF], [1.0]), "sd must be positive and finite"),
        (lambda: irsppl.GammaPoisson([1e25], [1.0]), "shape must be at most"),
        (lambda: irsppl.GammaExponential([3.0], [1e-30]), "rate must be at least"),
        (lambda: irsppl.NormalInverseGamma([0.0], [1.0], [2.0], [NAN]), "rate must be positive"),
        (lambda: irsppl.DirichletCategorical([[1.0, 1.0]], [0.0, 1e30]), "values must be finite"),
        (lambda: irsppl.LinearGaussian([[1.0]], [0.0], [[1.0]], 1e-15), "noise_sd must not"),
        (lambda: irsppl.LinearGaussian([[INF]], [0.0], [[1.0]], 1.0), "features must be finite"),
    ],
)
def test_parameters_that_arithmetic_cannot_carry_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_update_that_overflows_is_refused():
    belief = irsppl.NormalInverseGamma([0.0], [1.0], [2.0], [1.0])
    with pytest.raises(ValueError, match=r"reward .* cannot hold"):
        belief.update(0, 1e18)
    with jax.enable_x64(True):
        wide = irsppl.NormalInverseGamma(*(np.array([x]) for x in (0.0, 1.0, 2.0, 1.0)))
        assert np.isfinite(wide.update(0, 1e18).rate[0])


# ---- quadrature that follows the data


@functools.cache
def logits(nodes):
    return irsppl.from_numpyro(logit, 3, num_particles=nodes)


def by_grid(successes, failures):
    """Mean and sd of the success probability under `logit`, on 400,000 points."""
    x = np.linspace(-15, 25, 400_001)  # forty to the narrowest standard deviation
    logs = -((x + 2) ** 2) / 2 - successes * np.logaddexp(0, -x) - failures * np.logaddexp(0, x)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ expit(x)
    return mean, np.sqrt(weights @ (expit(x) - mean) ** 2)


@pytest.mark.parametrize(
    ("successes", "failures", "nodes"),
    [(2000, 0, 16), (700, 1300, 16), (2000, 0, 256), (0, 2000, 256), (80_000, 120_000, 256)],
)
def test_quadrature_nodes_follow_the_data(successes, failures, nodes):
    """Against a grid of 400,000 points: off the first nodes, and far narrower than they are
    apart. The stated error covers, and is small."""
    belief = logits(nodes)
    rewards = np.r_[np.ones(successes), np.zeros(failures)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = belief.update(np.zeros(len(rewards), int), rewards)
    mean, sd = by_grid(successes, failures)
    error = float(after.mean_error()[0])
    assert abs(float(after.predictive_mean()[0]) - mean) <= error + 4e-7
    assert error < 0.1 * sd
    assert float(after.mean_sd()[0]) == pytest.approx(sd, rel=2e-3 if nodes == 16 else 1e-4)
    np.testing.assert_allclose(after.predictive_mean()[1:], belief.predictive_mean()[1:])


def test_arms_with_the_same_nodes_do_not_tie():
    """Nodes two to a standard deviation: an arm with as good data is as likely the best as the
    first, one with slightly better data has the higher quantile. Four standard errors: one false
    alarm in 8,000."""
    same = np.r_[np.ones(70), np.zeros(130)]
    better = np.r_[np.ones(71), np.zeros(129)]
    arms = np.repeat([0, 1], 200)
    even = irsppl.Bandit(logits(256).update(arms, np.r_[same, same]), 300)
    shares = irsppl.action_probabilities(even, "ts", key=0, num_samples=4000)
    assert shares[0] / (shares[0] + shares[1]) == pytest.approx(0.5, abs=2 / np.sqrt(4000))
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.jit(jax.vmap(even.belief.sample_means))(keys))
    assert np.mean(drawn[:, 0] > drawn[:, 1]) == pytest.approx(0.5, abs=2 / np.sqrt(4000))
    for rewards, best in ((np.r_[same, better], 1), (np.r_[better, same], 0)):
        bandit = irsppl.Bandit(logits(256).update(arms, rewards), 300).pull(2, 0).pull(2, 0)
        assert irsppl.choose(bandit, "bayes-ucb") == best
        assert int(np.argmax(BayesUCB().indices(bandit)[:2])) == best


def test_nodes_move_while_a_bandit_is_played_without_recompiling():
    bandit = irsppl.Bandit(logits(256), 3000)
    start = jax.tree.map(jnp.shape, bandit)
    for _ in range(300):
        bandit = bandit.pull(0, 1)
    assert jax.tree.map(jnp.shape, bandit) == start
    mean, sd = by_grid(300, 0)
    assert float(bandit.belief.predictive_mean()[0]) == pytest.approx(mean, abs=1e-3 * sd)
    assert np.all(np.asarray(bandit.belief.mean_error()) < 0.01 * sd)


def test_nodes_follow_rewards_that_cannot_be_counted():
    """Gamma rewards, thirty times what the prior expects; by a grid of 200,000 points."""
    rewards = np.random.default_rng(0).gamma(2.0, 30.0, 1500)
    belief = irsppl.from_numpyro(amount, 2, num_particles=64)
    after = belief.update(np.zeros(1500, int), rewards)
    x = np.linspace(-5, 10, 200_001)
    logs = -(x**2) / 0.98 - 3000 * x - 2 * np.exp(-x) * rewards.sum()
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ np.exp(x)
    sd = np.sqrt(weights @ (np.exp(x) - mean) ** 2)
    assert float(after.predictive_mean()[0]) == pytest.approx(mean, abs=1e-3 * sd)
    assert float(after.mean_sd()[0]) == pytest.approx(sd, rel=1e-3)


def test_quadrature_that_cannot_follow_says_so_in_numbers():
    """A record that a compiled program has overrun: the data are gone, so the nodes must stay."""
    belief = irsppl.from_numpyro(amount, 2, num_particles=32)

    @jax.jit
    def play(arrays, rewards):
        _, static = eqx.partition(belief, eqx.is_array)

        def step(arrays, reward):
            after = eqx.combine(arrays, static).given(jnp.asarray(0), reward)
            return eqx.filter(after, eqx.is_array), None

        return jax.lax.scan(step, arrays, rewards)[0]

    arrays, static = eqx.partition(belief, eqx.is_array)
    overrun = eqx.combine(play(arrays, jnp.full(2000, 1.0)), static)
    with pytest.warns(UserWarning, match="quadrature of arm 0 is coarse.*512 rewards is full"):
        irsppl.Bandit(overrun, 20).pull(0, 1.0)


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_too_few_points_are_refused(count):
    with pytest.raises(ValueError, match="num_particles must be at least 16 for quadrature"):
        irsppl.from_numpyro(logit, 2, num_particles=count)
    if count < 8:
        with pytest.raises(ValueError, match="num_particles must be at least 8 for particles"):
            irsppl.from_numpyro(logit, 2, representation="particles", num_particles=count)
