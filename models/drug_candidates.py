"""Which compound works? A laboratory screens compounds that work, work a little, or do nothing.

Reward: 1 for a positive assay. What is unknown about a compound is only which of three kinds it
is, so the belief is a list of three probabilities and every computation with it is exact.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

KINDS = jnp.array([0.6, 0.3, 0.1])  # inactive, weak, strong
POSITIVE = jnp.array([0.05, 0.25, 0.7])


def compound(reward=None):
    kind = numpyro.sample("kind", dist.Categorical(KINDS))
    numpyro.sample("reward", dist.Bernoulli(POSITIVE[kind]), obs=reward)


num_arms = 4
