"""Which article on the front page? An editor knows each article's topics, not what readers like.

Reward: a reader's score on a continuous scale. Readers' tastes are one weight per feature, the same
for all articles, with correlated priors (those who like long reads tend to like science).
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

# politics, science, long read
FEATURES = jnp.array(
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.5, 0.5, 1.0], [1.0, 0.0, 1.0]]
)
COVARIANCE = jnp.array([[1.0, 0.0, -0.2], [0.0, 1.0, 0.5], [-0.2, 0.5, 1.0]])
joint = True
num_arms = 5


def article(arm, reward=None):
    taste = numpyro.sample("taste", dist.MultivariateNormal(jnp.zeros(3), COVARIANCE))
    numpyro.sample("reward", dist.Normal(FEATURES[arm] @ taste, 1.0), obs=reward)
