"""Which recipe to recommend? A cooking site shows recipes and collects one to five stars.

Reward: the stars a reader gives. They are ordered categories, not amounts: a recipe has a quality,
and cutpoints (the habits of readers, known from years of ratings) turn it into stars. `values`
says what each category is worth.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

CUTPOINTS = jnp.array([-2.5, -1.5, -0.3, 1.2])


def recipe(reward=None):
    quality = numpyro.sample("quality", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.OrderedLogistic(quality, CUTPOINTS), obs=reward)


values = [1.0, 2.0, 3.0, 4.0, 5.0]
num_arms = 4
