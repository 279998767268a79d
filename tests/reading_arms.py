"""Arm models at the top level of a module, as pickling asks for."""

import functools

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def logit(reward=None, sd=1.0):
    log_odds = numpyro.sample("log_odds", dist.Normal(-1.0, sd))
    numpyro.sample("reward", dist.Bernoulli(logits=log_odds), obs=reward)


wide = functools.partial(logit, sd=2.0)


def two(reward=None):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    bend = numpyro.sample("bend", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(level + bend**2, 1.0), obs=reward)


def shared(arm, reward=None):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    bend = numpyro.sample("bend", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(level + arm * jnp.tanh(bend), 1.0), obs=reward)
