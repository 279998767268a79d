"""Models that are conjugate families, and those that only look like one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam

from irsppl.models import read_arm

sample, plate = numpyro.sample, numpyro.plate


def observe(law, reward):
    return sample("reward", law, obs=reward)


FEATURES = jnp.array([[1.0, 0.3], [1.0, 0.5], [1.0, 2.0]])


def pair(prior, law, **options):
    def arm(reward=None):
        observe(law(sample("theta", prior)), reward)

    return read_arm(arm, **options)


POSITIVE = {
    "beta": (dist.Beta(2.0, 3.0), dist.Bernoulli, {}, "BetaBernoulli", [2, 3]),
    "uniform": (dist.Uniform(0.0, 1.0), dist.BernoulliProbs, {}, "BetaBernoulli", [1, 1]),
    "normal": (
        dist.Normal(0.3, 2.0),
        lambda x: dist.Normal(x, 0.7),
        {},
        "NormalNormal",
        [0.3, 2, 0.7],
    ),
    "poisson": (dist.Gamma(2.0, 0.3), dist.Poisson, {}, "GammaPoisson", [2, 0.3]),
    "exponential prior": (dist.Exponential(0.3), dist.Poisson, {}, "GammaPoisson", [1, 0.3]),
    "exponential": (dist.Gamma(3.0, 2.0), dist.Exponential, {}, "GammaExponential", [3, 2]),
    "coin with values": (
        dist.Beta(2.0, 3.0),
        dist.Bernoulli,
        {"values": [-1.0, 4.0]},
        "DirichletCategorical",
        [[3, 2], [-1, 4]],
    ),
    "dirichlet": (
        dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])),
        dist.Categorical,
        {"values": [1.0, 2.0, 5.0]},
        "DirichletCategorical",
        [[1, 2, 0.5], [1, 2, 5]],
    ),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_conjugate_models_are_found(name):
    prior, law, options, family, parameters = POSITIVE[name]
    model = pair(prior, law, **options)
    assert model.conjugate is not None and model.conjugate[0] == family
    for found, expected in zip(model.conjugate[1].values(), parameters, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("by", ["variance", "precision"])
def test_normal_inverse_gamma_is_found(by):
    def variance(reward=None):
        v = sample("v", dist.InverseGamma(3.0, 2.0))
        m = sample("m", dist.Normal(0.5, jnp.sqrt(v / 2)))
        observe(dist.Normal(m, jnp.sqrt(v)), reward)

    def precision(reward=None):
        tau = sample("tau", dist.Gamma(3.0, 0.5))
        m = sample("m", dist.Normal(0.5, 1 / jnp.sqrt(2 * tau)))
        observe(dist.Normal(m, 2 * tau**-0.5), reward)

    model = read_arm(variance if by == "variance" else precision)
    kappa, rate = (2, 2) if by == "variance" else (8, 2)
    assert model.conjugate is not None and model.conjugate[0] == "NormalInverseGamma"
    np.testing.assert_allclose(list(model.conjugate[1].values()), [0.5, kappa, 3, rate], rtol=1e-6)


def test_independent_arms_of_a_joint_model_are_found():
    def model(arm, reward=None):
        with plate("arms", 3):
            theta = sample("theta", dist.Beta(jnp.array([1.0, 2.0, 3.0]), 4.0))
        p = numpyro.deterministic("p", theta[arm])
        observe(dist.Bernoulli(p), reward)

    family, parameters = read_arm(model, joint=True, num_arms=3).conjugate
    assert family == "BetaBernoulli"
    np.testing.assert_array_equal(parameters["alpha"], [1, 2, 3])
    np.testing.assert_array_equal(parameters["beta"], [4, 4, 4])
    # Two arms of three leave a latent over: still a model, no longer that family.
    assert read_arm(model, joint=True, num_arms=2).conjugate is None


@functools.partial(handlers.reparam, config={"theta": LocScaleReparam(0)})
def shifted_by_reparam(reward=None):
    observe(dist.Bernoulli(jax.nn.sigmoid(sample("theta", dist.Normal(0.0, 1.0)))), reward)


def two_latents(reward=None):
    sample("unused", dist.Normal(0.0, 1.0))
    observe(dist.Bernoulli(sample("theta", dist.Beta(2.0, 3.0))), reward)


def hierarchical(reward=None):
    a = sample("a", dist.Gamma(2.0, 1.0))
    observe(dist.Bernoulli(sample("theta", dist.Beta(a, 3.0))), reward)


def wrong_scale(reward=None):
    v = sample("v", dist.InverseGamma(3.0, 2.0))
    m = sample("m", dist.Normal(0.5, v))  # v, not its square root
    observe(dist.Normal(m, jnp.sqrt(v)), reward)


def one_of_two(reward=None):
    with plate("n", 2):
        theta = sample("theta", dist.Beta(2.0, 3.0))
    observe(dist.Bernoulli(theta[0]), reward)


class _Odd(dist.BernoulliProbs):
    def log_prob(self, value):
        return super().log_prob(value) * 1.0001


NEAR = {
    "square": (dist.Beta(2.0, 3.0), lambda p: dist.Bernoulli(p**2)),
    "where": (dist.Beta(2.0, 3.0), lambda p: dist.Bernoulli(jnp.where(p > 0.999999, 1.0, p))),
    "clip": (dist.Beta(2.0, 3.0), lambda p: dist.Bernoulli(jnp.clip(p, 1e-7, 1 - 1e-7))),
    "half": (dist.Beta(2.0, 3.0), lambda p: dist.Bernoulli(0.5 * p)),
    "other side": (dist.Beta(2.0, 3.0), lambda p: dist.Bernoulli(1 - p)),
    "logits": (dist.Normal(0.0, 1.0), lambda x: dist.Bernoulli(logits=x)),
    "uniform to 0.9": (dist.Uniform(0.0, 0.9), dist.Bernoulli),
    "scaled normal": (dist.Normal(0.0, 1.0), lambda x: dist.Normal(2 * x, 1.0)),
    "noise of theta": (dist.Normal(0.0, 1.0), lambda x: dist.Normal(x, 1 + 0.001 * x**2)),
    "truncated prior": (dist.TruncatedNormal(0.0, 1.0, low=-9.0), lambda x: dist.Normal(x, 1.0)),
    "rate plus": (dist.Gamma(2.0, 1.0), lambda x: dist.Poisson(x + 1e-9)),
    "double rate": (dist.Gamma(2.0, 1.0), lambda x: dist.Poisson(2 * x)),
    "lognormal rate": (dist.LogNormal(0.0, 1.0), dist.Poisson),
    "inverse rate": (dist.Gamma(3.0, 1.0), lambda x: dist.Exponential(1 / x)),
    "gamma reward": (dist.Gamma(3.0, 1.0), lambda x: dist.Gamma(2.0, x)),
    "geometric": (dist.Beta(3.0, 2.0), dist.Geometric),
    "rounded": (dist.Normal(0.0, 1.0), lambda x: dist.Normal(jnp.round(x, 6), 1.0)),
    "half precision": (
        dist.Normal(0.0, 1.0),
        lambda x: dist.Normal(x.astype(jnp.bfloat16).astype(jnp.float32), 1.0),
    ),
    "own class": (dist.Beta(2.0, 3.0), _Odd),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_are_not_taken(name):
    prior, law = NEAR[name]
    assert pair(prior, law).conjugate is None


@pytest.mark.parametrize(
    "function", [shifted_by_reparam, two_latents, hierarchical, wrong_scale, one_of_two]
)
def test_near_misses_with_more_sites(function):
    assert read_arm(function).conjugate is None


def test_linear_gaussian_models_are_found():
    def prices(arm, reward=None):
        theta = sample("theta", dist.Normal(jnp.array([1.0, 2.0]), 0.5).to_event(1))
        observe(dist.Normal(3 - FEATURES[arm] @ theta, jnp.array([1.0, 2.0, 3.0])[arm]), reward)

    form = read_arm(prices, joint=True, num_arms=3).linear_gaussian
    np.testing.assert_allclose(form.features, -np.asarray(FEATURES), rtol=1e-6)
    np.testing.assert_allclose(form.offset, 3)
    np.testing.assert_allclose(form.mean, [1, 2])
    np.testing.assert_allclose(form.cov, 0.25 * np.eye(2))
    np.testing.assert_allclose(form.noise_sd, [1, 2, 3])

    def pooled(arm, reward=None):
        level = sample("level", dist.Normal(1.0, 2.0))
        with plate("arms", 3):
            theta = sample("theta", dist.Normal(level, 0.3))
        observe(dist.Normal(theta[arm], 0.5), reward)

    model = read_arm(pooled, joint=True, num_arms=3)
    assert model.conjugate is None  # the arms hang together through the level
    np.testing.assert_allclose(model.linear_gaussian.cov, 4 + np.diag([0, 0.09, 0.09, 0.09]))
    np.testing.assert_allclose(model.linear_gaussian.features, np.eye(4)[1:])


def test_nearly_linear_models_are_not_taken():
    def curved(arm, reward=None):
        theta = sample("theta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        location = FEATURES[arm] @ theta
        observe(dist.Normal(jnp.maximum(location, -50.0), 1.0), reward)

    def spread(arm, reward=None):
        scale = sample("scale", dist.LogNormal(0.0, 0.1))
        theta = sample("theta", dist.Normal(0.0, scale).expand([2]).to_event(1))
        observe(dist.Normal(FEATURES[arm] @ theta, 1.0), reward)

    for function in (curved, spread):
        model = read_arm(function, joint=True, num_arms=3)
        assert model.linear_gaussian is None and model.conjugate is None
