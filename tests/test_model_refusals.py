"""Models that are refused, with the words."""

import functools
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

import irsppl
from irsppl.models import read_arm

sample, plate = numpyro.sample, numpyro.plate


def observe(law, reward):
    return sample("reward", law, obs=reward)


def refuse(function, words, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=words):
            read_arm(function, **options)


def test_refused_signatures():
    refuse(3, "an arm must be a function such as `def arm")
    refuse(lambda: None, "must take an argument `reward`.*it takes no argument")
    refuse(lambda x, reward=None: None, r"argument\(s\) without a value: x; give defaults or bind")
    refuse(lambda arm, reward=None: None, "if the arms share latents use from_numpyro_joint")
    refuse(lambda reward=None: None, "must take the arm.*from_numpyro", joint=True, num_arms=2)
    refuse(lambda arm, reward=None: None, "num_arms is needed", joint=True)
    refuse(lambda arm, reward=None: None, "num_arms must be at least 1", joint=True, num_arms=0)


def normal_arm(reward=None, *, extra=lambda: None, **options):
    x = sample("x", dist.Normal(0.0, 1.0))
    extra()
    sample("reward", dist.Normal(x, 1.0), obs=reward, **options)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (lambda: numpyro.factor("f", 1.0), "'f' is a numpyro.factor"),
        (lambda: numpyro.param("p", 1.0), "'p' is a numpyro.param, a number to be fitted"),
        (
            lambda: sample("y", dist.Normal(0.0, 1.0), obs=1.0),
            "'y' is observed besides 'reward'; an arm has one observed site",
        ),
        (
            lambda: sample("y", dist.ImproperUniform(constraints.real, (), ())),
            "prior of 'y' is improper",
        ),
        (lambda: sample("y", dist.Delta(1.0)), "prior of 'y' mixes single values with a density"),
        (
            lambda: sample("y", dist.Normal(0.0, 1.0), sample_shape=(3,)),
            "'y' is drawn with sample_shape.*numpyro.plate",
        ),
        (
            lambda: sample("y", dist.Normal(0.0, 1.0).mask(False)),
            "site 'y' is masked",
        ),
        (numpyro.prng_key, "random numbers outside numpyro.sample"),
        (lambda: 1 / 0, "the model raised ZeroDivisionError: division by zero"),
        (lambda: sample("x", dist.Normal(0.0, 1.0)), "two sites are named .x."),
    ],
    ids=[
        "factor",
        "param",
        "observed",
        "improper",
        "delta",
        "sample_shape",
        "mask",
        "key",
        "error",
        "name twice",
    ],
)
def test_refused_sites(extra, words):
    refuse(functools.partial(normal_arm, extra=extra), words)


def test_refused_rewards():
    def no_site(reward=None):
        sample("y", dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0))

    refuse(no_site, "no sample site named 'reward'.*reward_site=. Sites found: x, y")

    def fixed(reward=None):
        numpyro.deterministic("reward", sample("x", dist.Normal(0.0, 1.0)))

    refuse(fixed, "'reward' is deterministic given the latents; a reward must be random")

    def known(reward=None):
        observe(dist.Normal(0.0, 1.0), reward)

    refuse(known, "nothing is unknown")

    def several(reward=None):
        observe(dist.Normal(sample("x", dist.Normal(jnp.zeros(3), 1.0)), 1.0), reward)

    refuse(several, r"'reward' has shape \(3,\), but a pull gives one number.*index its parameters")

    def in_a_plate(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        with plate("obs", 1):
            observe(dist.Normal(x, 1.0), reward)

    refuse(in_a_plate, r"shape \(1,\).*take it out of its plate")

    def unseen(reward=None):
        sample("reward", dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0))

    refuse(unseen, "does not observe the reward it is given; write.*obs=reward")

    def logged(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x, 1.0), None if reward is None else jnp.log1p(reward))

    refuse(logged, "observes a transformed reward.*LogNormal")

    def peeking(reward=None):
        x = sample("x", dist.Normal(0.0 if reward is None else reward, 1.0))
        observe(dist.Normal(x, 1.0), reward)

    refuse(peeking, "depends on the observed reward")

    def shy(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        if reward is None:
            sample("y", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x, 1.0), reward)

    refuse(shy, "latents differ between reward=None and a given reward")

    def late(reward=None):
        observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)
        sample("y", dist.Normal(0.0, 1.0))

    refuse(late, "'y' is drawn after the reward")

    def masked(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        with handlers.mask(mask=x > 0):
            observe(dist.Normal(x, 1.0), reward)

    refuse(masked, "'reward' is masked")

    def scaled(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        with handlers.scale(scale=0.5):
            observe(dist.Normal(x, 1.0), reward)

    refuse(scaled, "density of site 'reward' is scaled")

    def noiseless(reward=None):
        observe(dist.Delta(sample("x", dist.Normal(0.0, 1.0))), reward)

    refuse(noiseless, "has no noise")


def test_means_that_are_right_on_average_only_are_refused():
    """Given nothing they are; given the latents, or the arm, they are not."""

    def level(reward=None):
        observe(dist.Normal(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)

    for wrong in (-1.0, 0.0, 2.0):
        with pytest.raises(ValueError, match="mean= does not give the mean reward of arm 0"):
            irsppl.from_numpyro(level, 2, mean=lambda latents, c=wrong: c * latents["x"])
    irsppl.from_numpyro(level, 2, mean=lambda latents: latents["x"])

    def two(arm, reward=None):
        x = sample("x", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        observe(dist.Normal(x[arm], 1.0), reward)

    with pytest.raises(ValueError, match=r"mean= does not give the mean reward of arm 0.*the mean"):
        irsppl.from_numpyro_joint(two, 2, mean=lambda latents, arm: latents["x"][1 - arm])
    irsppl.from_numpyro_joint(two, 2, mean=lambda latents, arm: latents["x"][arm])


def test_refused_means():
    def cauchy(reward=None):
        observe(dist.Cauchy(sample("x", dist.Normal(0.0, 1.0)), 1.0), reward)

    refuse(cauchy, "mean reward is infinite or does not exist.*StudentT with df above 1")

    def folded(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.FoldedDistribution(dist.Cauchy(x, 1.0)), reward)

    refuse(folded, "mean reward is infinite or does not exist")

    def sometimes(reward=None):
        df = sample("df", dist.Gamma(2.0, 1.0))
        observe(dist.StudentT(df, 0.0, 1.0), reward)

    refuse(
        sometimes, "infinite or not a number for some latents, such as df = .*restrict the prior"
    )

    def category(reward=None):
        observe(dist.Categorical(sample("p", dist.Dirichlet(jnp.ones(3)))), reward)

    refuse(category, r"the reward is a category.*values=\[...\]")
    refuse(category, "values has 2 entries, but the reward has 3 categories", values=[0, 1])
    refuse(category, "values must be distinct", values=[0, 1, 1])
    refuse(category, "values must be at least two finite numbers", values=[1])
    refuse(normal_arm, "values= is for rewards that are categories", values=[0, 1])
    refuse(normal_arm, "give mean= or values=, not both", values=[0, 1], mean="x")

    def exponential(reward=None):
        observe(dist.Exponential(sample("x", dist.Gamma(1.0, 1.0))), reward)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the heavy tail, which is what is refused
        with pytest.raises(ValueError, match=r"expected reward is infinite.*above 1, got 1\.0"):
            read_arm(exponential)


def test_refused_shapes_and_side_effects():
    def branching(reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x if x > 0 else -x, 1.0), reward)

    refuse(branching, "treats a random value as a plain Python number.*use jnp.where")

    def growing(reward=None):
        n = sample("n", dist.Poisson(3.0))
        observe(dist.Normal(jnp.zeros(int(n)).sum(), 1.0), reward)

    refuse(growing, "plain Python number")

    rng = np.random.default_rng(0)

    def rolling(reward=None):
        observe(dist.Normal(sample("x", dist.Normal(rng.normal(), 1.0)), 1.0), reward)

    refuse(rolling, "two calls of the model gave two different models")

    def no_plate(arm, reward=None):
        theta = sample("theta", dist.Normal(0.0, 1.0))
        observe(dist.Normal(theta[arm], 1.0), reward)

    refuse(no_plate, "the model raised IndexError", joint=True, num_arms=2)


def test_refused_joint_models():
    def own_latents(arm, reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        if arm == 1:
            x = x + sample("y", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x, 1.0), reward)

    refuse(own_latents, "arm 0 has x and arm 1 has x, y", joint=True, num_arms=2)

    def branch(arm, reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x if arm == 1 else 0.0, 1.0), reward)

    refuse(branch, "treats the arm or a random value as a plain", joint=True, num_arms=2)

    def own_prior(arm, reward=None):
        x = sample("x", dist.Normal(jnp.array([0.0, 1.0])[arm], 1.0))
        observe(dist.Normal(x, 1.0), reward)

    refuse(
        own_prior, "prior of 'x' depends on the arm.*give every arm its own", joint=True, num_arms=2
    )

    def shape(arm, reward=None):
        x = sample("x", dist.Normal(jnp.zeros(int(arm) + 1), 1.0))
        observe(dist.Normal(x[0], 1.0), reward)

    refuse(shape, r"'x' is Normal of shape \(1,\) for arm 0 and .*\(2,\)", joint=True, num_arms=2)

    def short(arm, reward=None):
        x = sample("x", dist.Normal(0.0, 1.0))
        observe(dist.Normal(x * jnp.array([1.0, 2.0])[arm], 1.0), reward)

    refuse(short, "last arm, 2, points past the end of an array", joint=True, num_arms=3)
