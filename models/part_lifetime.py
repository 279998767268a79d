"""Which supplier's part? A plant replaces a wearing part and keeps the supplier whose parts last.

Reward: hours until failure, in hundreds. Weibull, with the typical life and the shape unknown: a
shape above 1 means wear, below 1 early failures.
"""

import numpyro
import numpyro.distributions as dist


def supplier(reward=None):
    life = numpyro.sample("life", dist.LogNormal(1.5, 0.4))
    shape = numpyro.sample("shape", dist.LogNormal(0.4, 0.25))
    numpyro.sample("reward", dist.Weibull(life, shape), obs=reward)


num_arms = 3
labels = ["Ansel", "Brandt", "Cormorant"]
