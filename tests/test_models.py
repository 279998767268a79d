"""Reading NumPyro models: odd ones read rightly, bad ones refused in plain words."""

import functools
import inspect
import os
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints, transforms
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

from irsppl.models import load_model_file, read_arm

sample, plate = numpyro.sample, numpyro.plate


# Run once each: better compiled quickly than well.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def observe(law, reward):
    return sample("reward", law, obs=reward)


def draws_of(model, size=256, seed=0):
    """Prior draws by the quicker way: uniforms where there is a map, NumPyro's samplers if not."""
    if model.has_icdf:
        u = np.random.default_rng(seed).random((size, model.num_uniforms), np.float32)
        return quick(jax.vmap(model.prior_from_uniforms))(u)
    keys = jax.random.split(jax.random.key(seed), size)
    return quick(jax.vmap(model.sample_prior))(keys)


def check_against_numpyro(model, function, args=(), arm=None):
    """Densities equal NumPyro's own, and the unconstrained space is consistent, at a few draws."""
    reward = jnp.asarray(model.support.inside)
    whole = model.support.integer

    def both(params):
        likelihood = model.log_likelihood(params, reward, arm)
        z = model.unconstrain(params)
        kinds = {k: v for k, v in params.items() if model.latents[k].discrete}
        parts = {
            name: z[site.start : site.start + site.size].reshape(site.unconstrained_shape)
            for name, site in model.latents.items()
            if not site.discrete
        }
        ours = {
            "joint": model.log_prior(params) + likelihood,
            "unconstrained": model.log_prior_unconstrained(z, kinds) + likelihood,
        }
        seen = {"reward": reward.astype(int) if whole else reward}
        with jax.numpy_rank_promotion("allow"):
            known = handlers.substitute(function, data=kinds)
            theirs = {
                "joint": log_density(function, args, seen, params)[0],
                "unconstrained": -potential_energy(known, args, seen, parts),
            }
        return ours, theirs, model.constrain(z, kinds)

    params = draws_of(model, 16)
    ours, theirs, back = quick(jax.vmap(both))(params)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-3, err_msg=name)
    for name, value in params.items():
        np.testing.assert_allclose(back[name], value, rtol=2e-3, atol=1e-5, err_msg=name)


# ---- odd models that read
def plated(reward=None):
    with plate("n", 3):
        x = sample("x", dist.Normal(0, 1))
    observe(dist.Normal(x.mean(), 1.0), reward)


@functools.partial(handlers.reparam, config={"x": LocScaleReparam(0)})
def decentred(reward=None):
    scale = sample("scale", dist.HalfNormal(1.0))
    observe(dist.Normal(sample("x", dist.Normal(1.0, scale)), 1.0), reward)


def reparameterised(reward=None):
    law = dist.TransformedDistribution(dist.Normal(0.0, 1.0), transforms.AffineTransform(1.0, 2.0))
    with handlers.reparam(config={"x": TransformReparam()}):
        x = sample("x", law)
    numpyro.deterministic("double", 2 * x)
    observe(dist.Normal(x, 1.0), reward)


def half_beta(reward=None):
    halve = transforms.AffineTransform(0.0, 0.5, domain=constraints.unit_interval)
    x = sample("x", dist.TransformedDistribution(dist.Beta(2.0, 3.0), halve))
    observe(dist.Bernoulli(x), reward)


def hit_and_rate(reward=None):
    hit = sample("hit", dist.Bernoulli(0.2))
    rate = sample("rate", dist.Beta(2.0, 2.0))
    observe(dist.Bernoulli(jnp.where(hit == 1, rate, 0.05)), reward)


def moving_support(reward=None):
    top = sample("top", dist.Gamma(2.0, 1.0))
    x = sample("x", dist.Uniform(0.0, top))
    observe(dist.Poisson(x + 0.1), reward)


def zero_inflated(reward=None):
    gate = sample("gate", dist.Beta(1.0, 3.0))
    observe(dist.ZeroInflatedPoisson(gate, sample("rate", dist.Gamma(3.0, 1.0))), reward)


def mixed_reward(reward=None):
    x = sample("x", dist.Normal(0.0, 1.0))
    weights = dist.Categorical(jnp.array([0.3, 0.7]))
    observe(dist.MixtureGeneral(weights, [dist.Normal(x, 1.0), dist.Laplace(x + 1, 2.0)]), reward)


def correlation(reward=None):
    factor = sample("factor", dist.LKJCholesky(3, 1.0))
    observe(dist.Normal(factor[2, 0], 1.0), reward)


def ordered(reward=None):
    law = dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([3]), transforms.OrderedTransform()
    )
    observe(dist.Normal(sample("x", law)[1], 1.0), reward)


def simplexes(reward=None):
    p = sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])).expand([2]))
    observe(dist.Normal(p[0, 1] + p[1, 2], 1.0), reward)


def whole_reward(reward=None):
    p = sample("p", dist.Beta(1.0, 1.0))
    observe(dist.Bernoulli(p), None if reward is None else reward.astype(int))


def nested(arm, reward=None):
    with plate("a", 3, dim=-2), plate("b", 2, dim=-1):
        x = sample("x", dist.Normal(jnp.zeros((3, 1)), 1.0))
    observe(dist.Normal(x[arm].sum(), 1.0), reward)


def batches(arm, reward=None):
    p = sample("p", dist.Beta(2.0, 2.0))
    observe(dist.Binomial(jnp.array([5, 10, 20])[arm], p), reward)


ODD = {
    # function: (joint arms, latents, dim, uniforms or None)
    plated: (None, ["x"], 3, 3),
    decentred: (None, ["scale", "x_decentered"], 2, 2),
    reparameterised: (None, ["x_base"], 1, 1),
    half_beta: (None, ["x"], 1, 1),
    hit_and_rate: (None, ["hit", "rate"], 1, 2),
    moving_support: (None, ["top", "x"], 2, 2),
    zero_inflated: (None, ["gate", "rate"], 2, 2),
    mixed_reward: (None, ["x"], 1, 1),
    correlation: (None, ["factor"], 3, None),
    ordered: (None, ["x"], 3, 3),
    simplexes: (None, ["p"], 4, 4),
    nested: (3, ["x"], 6, 6),
    batches: (3, ["p"], 1, 1),
}


@pytest.mark.parametrize("function", ODD, ids=lambda f: f.__name__)
def test_odd_models_read(function):
    arms, latents, dim, uniforms = ODD[function]
    model = read_arm(function, joint=arms is not None, num_arms=arms)
    assert list(model.latents) == latents
    assert model.dim == dim
    assert model.has_icdf == (uniforms is not None)
    assert model.num_uniforms == (uniforms or 0)
    assert model.num_arms == (arms or 1)
    args = () if arms is None else (1,)
    check_against_numpyro(model, function, args, None if arms is None else 1)
    assert model.support.check(model.support.inside)


def test_a_model_is_a_static_value():
    model = read_arm(whole_reward)
    assert hash(model) == hash(model)
    assert model == model
    doubled = jax.jit(lambda model, x: 2 * model.mean({"p": x}), static_argnums=0)
    assert doubled(model, 0.25) == 0.5


def test_function_is_called_only_while_tracing():
    calls = []

    def arm(reward=None):
        calls.append(1)
        observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)

    model = read_arm(arm)
    likelihood = quick(jax.vmap(model.log_likelihood, (0, None)))
    params = draws_of(model)
    likelihood(params, 0.5)
    before = len(calls)
    for reward in (1.0, 2.0, 3.0):
        likelihood(params, reward)
    assert len(calls) == before


def test_other_names_and_bound_arguments():
    def arm(scale, y=None):
        sample("y", dist.Normal(sample("x", dist.Normal(0.0, 1.0)), scale), obs=y)

    model = read_arm(functools.partial(arm, 2.0), reward_site="y")
    assert model.conjugate == ("NormalNormal", {"mean": 0.0, "sd": 1.0, "noise_sd": 2.0})

    @functools.partial(handlers.scope, prefix="page")
    def scoped(reward=None):
        observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)

    assert list(read_arm(scoped, reward_site="page/reward").latents) == ["page/x"]


def test_substituted_latent_is_a_constant():
    def arm(reward=None):
        with handlers.substitute(data={"scale": 2.0}):
            scale = sample("scale", dist.HalfNormal(1.0))
        observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), scale), reward)

    model = read_arm(arm)
    assert list(model.latents) == ["x"]
    assert model.conjugate == ("NormalNormal", {"mean": 0.0, "sd": 1.0, "noise_sd": 2.0})


def test_enumeration_of_discrete_latents():
    def arm(reward=None):
        kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.0, 0.5])))
        with plate("n", 2):
            on = sample("on", dist.Bernoulli(jnp.array([0.2, 0.6, 0.9])[kind]))
        observe(dist.Normal(on.sum() + 1.0 * kind, 1.0), reward)

    model = read_arm(arm)
    assert model.discrete and model.dim == 0
    params, log_prior = model.enumerate_latents()
    assert log_prior.shape == (8,)  # three kinds, one impossible, times four
    np.testing.assert_allclose(np.exp(log_prior).sum(), 1, rtol=1e-5)
    means = quick(jax.vmap(model.mean))(params)
    expected = 0.5 * (2 * 0.2) + 0.5 * (2 + 2 * 0.9)
    np.testing.assert_allclose(np.exp(log_prior) @ means, expected, rtol=1e-5)
    assert read_arm(plated).enumerate_latents() is None


def test_impossible_rewards_have_no_likelihood():
    def arm(reward=None):
        observe(dist.Uniform(0.0, sample("top", dist.LogNormal(0.0, 0.3))), reward)

    model = read_arm(arm)
    value = quick(jax.value_and_grad(lambda top, r: model.log_likelihood({"top": top}, r)))
    assert value(1.5, 2.0)[0] == -jnp.inf
    assert jnp.isfinite(value(1.5, 2.0)[1])
    np.testing.assert_allclose(value(1.5, 1.0)[0], -np.log(1.5), rtol=1e-6)
    assert not model.support.check(-1.0) and model.support.check(7.0)

    count = read_arm(zero_inflated)
    np.testing.assert_array_equal(
        count.support.check([0, 1, 1.5, -1, np.nan]), [True, True, False, False, False]
    )
    at = {"gate": jnp.asarray(0.5), "rate": jnp.asarray(2.0)}
    assert quick(count.log_likelihood)(at, 1.5) == -jnp.inf
    assert str(count.support) == "a whole number of at least 0"


# ---- means
def mean_of(law, **options):
    """Mean of a reward law that hangs on a latent in name only."""

    def arm(reward=None):
        x = sample("x", dist.Normal(0.0, 1e-3))
        observe(law(1 + 0 * x), reward)

    model = read_arm(arm, **options)
    return model, float(quick(model.mean)({"x": jnp.asarray(0.0)}))


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda one: dist.FoldedDistribution(dist.Normal(one, 1.0)), stats.foldnorm(1).mean()),
        (
            lambda one: dist.TransformedDistribution(
                dist.Normal(0.5 * one, 1.0), transforms.SigmoidTransform()
            ),
            0.602027,
        ),
        (lambda one: dist.TruncatedCauchy(0 * one, 1.0, low=-1.0, high=2.0), 0.2420787),
        (
            lambda one: dist.MixtureGeneral(
                dist.Categorical(jnp.array([0.5, 0.5])),
                [dist.FoldedDistribution(dist.Normal(one, 1.0)), dist.LogNormal(0.0, 1.0)],
                support=constraints.positive,
            ),
            (stats.foldnorm(1).mean() + np.exp(0.5)) / 2,
        ),
        (
            lambda one: dist.TransformedDistribution(
                dist.Gamma(0.5 * one, 1.0), transforms.AffineTransform(3.0, -2.0)
            ),
            2.0,
        ),
    ],
    ids=["folded", "logit-normal", "truncated cauchy", "mixture", "minus gamma"],
)
def test_numerical_means(law, expected):
    model, mean = mean_of(law)
    assert model.mean_method == "quadrature"
    assert model.mean_error < 1e-4
    np.testing.assert_allclose(mean, expected, rtol=2e-5)


def test_mean_given_by_the_user():
    def arm(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        numpyro.deterministic("twice", 2 * x)
        observe(dist.Normal(2 * x, 1.0), reward)

    by_name = read_arm(arm, mean="twice")
    by_function = read_arm(arm, mean=lambda latents: 2 * latents["x"])
    at = {"x": jnp.asarray(1.5)}
    assert by_name.mean(at) == by_function.mean(at) == 3
    assert by_name.mean_method == "user"
    with pytest.raises(ValueError, match="mean= does not give the mean reward"):
        read_arm(arm, mean=lambda latents: 2 * latents["x"] + 1)
    with pytest.raises(ValueError, match="'thrice' is no site of the model; sites: x, twice"):
        read_arm(arm, mean="thrice")
    with pytest.raises(ValueError, match="name of a deterministic site or a function"):
        read_arm(arm, mean=3)


def test_values_of_categories():
    def arm(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.OrderedLogistic(x, jnp.array([-1.0, 1.0])), reward)

    model = read_arm(arm, values=[5.0, -1.0, 2.5])
    np.testing.assert_array_equal(model.reward_values, [-1, 2.5, 5])

    def traced():
        return jax.make_jaxpr(lambda x: model.log_likelihood({"x": x}, 5.0))(0.3)

    with jax.enable_x64(True):
        traced()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # JAX would say that double precision is cut
        assert "f64" not in str(traced())

    at = {"x": jnp.asarray(0.3)}
    likelihood = quick(model.log_likelihood)
    probs = np.exp([likelihood(at, v) for v in (5.0, -1.0, 2.5)])
    np.testing.assert_allclose(probs.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(quick(model.mean)(at), probs @ [5, -1, 2.5], rtol=1e-5)
    assert likelihood(at, 3.0) == -jnp.inf
    keys = jax.random.split(jax.random.key(0), 200)
    rewards = quick(jax.vmap(lambda k: model.sample_reward(k, at)))(keys)
    assert set(np.unique(rewards)) == {-1.0, 2.5, 5.0}


def test_a_prior_without_a_mean_reward_is_refused():
    def arm(reward=None):
        observe(dist.LogNormal(0.0, sample("s", dist.HalfNormal(3.0))), reward)

    with pytest.raises(ValueError, match="expectation is infinite"):
        read_arm(arm)


# ---- draws from uniforms
def many(reward=None):
    sample("normal", dist.Normal(1.0, 2.0))
    sample("half", dist.HalfNormal(2.0))
    sample("lognormal", dist.LogNormal(0.5, 0.7))
    sample("beta", dist.Beta(0.5, 2.5))
    sample("gamma", dist.Gamma(0.3, 2.0))
    sample("inverse", dist.InverseGamma(3.0, 2.0))
    sample("student", dist.StudentT(3.0, 1.0, 2.0))
    sample("exponential", dist.Exponential(2.0))
    sample("uniform", dist.Uniform(-1.0, 3.0))
    sample("weibull", dist.Weibull(2.0, 1.5))
    sample("truncated", dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0))
    sample("cauchy", dist.HalfCauchy(1.0))
    sample("count", dist.Poisson(3.0))
    sample("kind", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    # parameters that are not constants, but have known values at known places
    b = sample("b", dist.Uniform(2.0, 4.0))
    sample("beta_of_b", dist.Beta(b, 2 * b))
    sample("gamma_of_b", dist.Gamma(b, 1.0))
    sample("student_of_b", dist.StudentT(b, 0.0, 1.0))
    observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)


QUANTILES = {
    "normal": stats.norm(1, 2),
    "half": stats.halfnorm(0, 2),
    "lognormal": stats.lognorm(0.7, scale=np.exp(0.5)),
    "beta": stats.beta(0.5, 2.5),
    "gamma": stats.gamma(0.3, scale=0.5),
    "inverse": stats.invgamma(3, scale=2),
    "student": stats.t(3, 1, 2),
    "exponential": stats.expon(0, 0.5),
    "uniform": stats.uniform(-1, 4),
    "weibull": stats.weibull_min(1.5, scale=2),
    "truncated": stats.truncnorm(-1, 2),
    "cauchy": stats.halfcauchy(),
    "count": stats.poisson(3),
    "kind": stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3])),
    "beta_of_b": stats.beta(3, 6),  # b is at its median, 3
    "gamma_of_b": stats.gamma(3),
    "student_of_b": stats.t(3),
}


def test_uniforms_give_the_priors_quantiles():
    model = read_arm(many)
    assert model.num_uniforms == len(model.latents) and model.has_icdf
    levels = np.array([1e-6, 1e-3, 0.1, 0.33, 0.5, 0.77, 0.95, 0.999, 0.99999])
    place = {name: i for i, name in enumerate(model.latents)}
    u = np.full((len(QUANTILES), len(levels), model.num_uniforms), 0.5, np.float32)
    for row, name in enumerate(QUANTILES):
        u[row, :, place[name]] = levels
    draws = quick(jax.vmap(jax.vmap(model.prior_from_uniforms)))(u)
    for row, (name, law) in enumerate(QUANTILES.items()):
        expected = law.ppf(u[row, :, place[name]].astype(float))
        # NumPyro's own Cauchy loses digits in single precision.
        rtol = 5e-3 if name == "cauchy" else 3e-4
        np.testing.assert_allclose(draws[name][row], expected, rtol=rtol, atol=1e-6, err_msg=name)


def test_uniforms_fill_joint_priors():
    """A Dirichlet, a correlated normal and a mixture: moments from an even set of uniforms."""
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])

    def arm(reward=None):
        p = sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
        v = sample("v", dist.MultivariateNormal(jnp.array([1.0, -1.0]), jnp.asarray(cov)))
        weights = dist.Categorical(jnp.array([0.25, 0.75]))
        law = dist.Beta(jnp.array([2.0, 20.0]), jnp.array([20.0, 2.0]))
        m = sample("m", dist.MixtureSameFamily(weights, law))
        observe(dist.Normal(p[0] + v[0] + m, 1.0), reward)

    model = read_arm(arm)
    assert model.num_uniforms == model.dim == 5
    u = stats.qmc.Sobol(5, seed=1).random(4096).astype(np.float32)
    draws = quick(jax.vmap(model.prior_from_uniforms))(u)
    p, v, m = (np.asarray(draws[name], float) for name in "pvm")
    law = stats.dirichlet([1, 2, 3])
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(p.mean(0), law.mean(), atol=1e-3)
    np.testing.assert_allclose(np.cov(p.T), law.cov(), atol=1e-3)
    np.testing.assert_allclose(v.mean(0), [1, -1], atol=3e-3)
    np.testing.assert_allclose(np.cov(v.T), cov, atol=2e-2)
    halves = [stats.beta(2, 20), stats.beta(20, 2)]
    for x in (0.05, 0.3, 0.9):
        expected = 0.25 * halves[0].cdf(x) + 0.75 * halves[1].cdf(x)
        np.testing.assert_allclose(np.mean(m <= x), expected, atol=2e-3)


# ---- conjugate families, and what only looks like one


def test_a_file_that_changes_within_a_second_is_read_as_it_is(tmp_path, monkeypatch):
    """Python's bytecode tells files apart by their size and the second in which they were written;
    a model of yesterday would go on in silence."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "arms.py"
    found = []
    for scale in (1.5, 2.5):
        path.write_text(
            "import numpyro, numpyro.distributions as dist\nnum_arms = 2\n"
            f"def arm(reward=None, scale={scale}):\n"
            "    z = numpyro.sample('z', dist.Normal(0, scale))\n"
            "    numpyro.sample('reward', dist.Bernoulli(logits=z), obs=reward)\n"
        )
        os.utime(path, (1e9, 1e9))
        function = load_model_file(path).functions[0]
        found.append(inspect.signature(function).parameters["scale"].default)
    assert found == [1.5, 2.5]
    assert not (tmp_path / "__pycache__").exists()
