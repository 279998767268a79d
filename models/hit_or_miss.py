"""Which advert is the hit? An agency has many drafts; most do nothing, a few catch on.

Reward: 1 for a click. The prior of a click rate has two humps: 85 % of drafts lie around 3 %, the
rest around 20 %. A policy should give up quickly on duds and keep looking for a hit.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

HUMPS = dist.Categorical(probs=jnp.array([0.85, 0.15]))


def advert(reward=None):
    prior = dist.MixtureSameFamily(
        HUMPS, dist.Beta(jnp.array([3.0, 12.0]), jnp.array([97.0, 48.0]))
    )
    rate = numpyro.sample("rate", prior)
    numpyro.sample("reward", dist.Bernoulli(rate), obs=reward)


num_arms = 5
