"""Which offer earns most? A shop measures the money each visitor leaves, and most leave none.

Reward: revenue of one visit, exactly 0 for those who do not buy and log-normal for those who do.
An offer can win by selling to more visitors or by selling more to each, so both are unknown.

The spread of the log-normal is kept away from large values by its prior: the mean reward is
exp(level + spread^2 / 2), and a wide prior on the spread makes its expectation infinite.
"""

import numpyro
import numpyro.distributions as dist


def offer(reward=None):
    buys = numpyro.sample("buys", dist.Beta(2.0, 30.0))
    level = numpyro.sample("level", dist.Normal(3.0, 0.4))
    spread = numpyro.sample("spread", dist.LogNormal(-0.4, 0.2))
    numpyro.sample("reward", dist.HurdleLogNormal(1 - buys, level, spread), obs=reward)


num_arms = 3
labels = ["free shipping", "10 % off", "bundle"]
