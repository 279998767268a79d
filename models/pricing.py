"""What price? A seller tries prices week by week; demand falls in a line, but which line?

Reward: revenue of a week, price times the units sold. Demand at price p is base - slope * p plus
noise, the same unknown line for every price, so each week teaches about all prices: a joint model.
Revenue is linear in (base, slope) with Gaussian noise.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

PRICES = jnp.array([2.0, 3.0, 4.0, 5.0, 6.0])
labels = ["2", "3", "4", "5", "6"]
joint = True
num_arms = 5


def revenue(arm, reward=None):
    base = numpyro.sample("base", dist.Normal(10.0, 2.0))
    slope = numpyro.sample("slope", dist.Normal(1.2, 0.4))
    price = PRICES[arm]
    demand = base - slope * price
    numpyro.sample("reward", dist.Normal(price * demand, price * 1.5), obs=reward)
