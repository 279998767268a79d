"""Which headline keeps readers? A newspaper measures the minutes spent on the article.

Reward: minutes. Gamma with unknown mean and unknown shape: reading times may be nearly exponential
(many leave at once) or gathered around the length of the text.
"""

import numpyro
import numpyro.distributions as dist


def headline(reward=None):
    minutes = numpyro.sample("minutes", dist.LogNormal(0.7, 0.4))
    shape = numpyro.sample("shape", dist.LogNormal(0.3, 0.5))
    numpyro.sample("reward", dist.Gamma(shape, shape / minutes), obs=reward)


num_arms = 3
