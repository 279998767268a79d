"""What the contract tests go through: every belief by name, and the penalties of the oracle.

A test that holds for all beliefs, or for all that can do something (`able`), takes them from here;
one that needs arms of its own (exact figures, no ties, every future enumerated) makes them itself.
"""

from functools import cache, partial

import numpyro
import numpyro.distributions as dist

import irsppl
from irsppl.beliefs import ExactLaws, InKernels
from irsppl.penalties import PENALTIES

from .oracles import enumerate as enumeration

# Conjugate families, three arms each. Nothing is made before it is asked for.
FAMILIES = {
    "beta-bernoulli": partial(irsppl.BetaBernoulli, [3.0, 1.0, 1.5], [1.0, 1.0, 2.5]),
    "normal-normal": partial(
        irsppl.NormalNormal, [0.0, 0.5, 1.0], [1.0, 2.0, 0.5], [1.0, 0.5, 2.0]
    ),
    "gamma-poisson": partial(irsppl.GammaPoisson, [2.0, 3.0, 4.5], [1.0, 2.0, 2.0]),
    "gamma-exponential": partial(irsppl.GammaExponential, [3.0, 4.0, 3.5], [2.0, 2.0, 3.0]),
    "normal-inverse-gamma": partial(
        irsppl.NormalInverseGamma,
        [0.0, 1.0, 0.5],
        [1.0, 2.0, 0.5],
        [2.0, 3.0, 1.5],
        [1.0, 2.0, 1.0],
    ),
    "dirichlet-categorical": partial(
        irsppl.DirichletCategorical,
        [[1.0, 2.0, 1.0], [2.0, 1.0, 0.5], [1.0, 1.0, 3.0]],
        [0.0, 0.5, 2.0],
    ),
}


def uniform(reward=None):
    """Rewards above 2 are impossible, though no support says so."""
    top = numpyro.sample("top", dist.Uniform(1.0, 2.0))
    numpyro.sample("reward", dist.Uniform(0.0, top), obs=reward)


def uniform_either(reward=None):
    big = numpyro.sample("big", dist.Bernoulli(0.5))
    numpyro.sample("reward", dist.Uniform(0.0, 1.0 + big), obs=reward)


def uniform_joint(arm, reward=None):
    top = numpyro.sample("top", dist.Uniform(1.0, 2.0).expand([2]).to_event(1))
    numpyro.sample("reward", dist.Uniform(0.0, top[arm]), obs=reward)


# Points of a user's model: two arms, for which less is compiled.
POINTS = {
    "quadrature": partial(irsppl.from_numpyro, uniform, 2),
    "enumeration": partial(irsppl.from_numpyro, uniform_either, 2),
    "particles": partial(
        irsppl.from_numpyro, uniform, 2, representation="particles", num_particles=64
    ),
    "joint": partial(irsppl.from_numpyro_joint, uniform_joint, 2, num_particles=64),
}
# Beliefs that are a few numbers, whatever the model: without points.
CLOSED = {
    **FAMILIES,
    "linear-gaussian": partial(
        irsppl.LinearGaussian,
        features=[[1.0, 0.0], [0.5, 1.0], [0.0, 1.0]],
        mean=[0.0, 0.2],
        cov=[[1.0, 0.3], [0.3, 2.0]],
        noise_sd=1.0,
    ),
}
BELIEFS = {**CLOSED, **POINTS}
# Two possible rewards of each.
_REWARDS = {"beta-bernoulli": (1.0, 0.0), "gamma-poisson": (2.0, 0.0)}


def rewards_of(name):
    return _REWARDS.get(name, (0.5, 2.0 if name in CLOSED else 0.25))


@cache  # models are compiled for by identity
def made(name):
    return BELIEFS[name]()


def able(ability):
    """Names of the conjugate families with one of the abilities of `irsppl.beliefs`."""
    return [name for name, make in FAMILIES.items() if issubclass(make.func, ability)]


EXACT, NATURAL = able(ExactLaws), able(InKernels)
SMOOTH = [name for name in FAMILIES if name != "beta-bernoulli"]  # rewards are more than 0 or 1
# Penalties whose payoffs the oracle knows; `ts` and `ideal` read no rewards.
ENUMERATED = [n for n, p in PENALTIES.items() if n in enumeration.PAYOFFS and p.reads_rewards]
