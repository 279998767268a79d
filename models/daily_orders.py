"""Which shop window? A retailer changes the display of a store each day and counts the orders.

Reward: orders of one day. Days differ by weather and weekday, so counts vary more than a Poisson
would: negative binomial, with both the mean and the concentration unknown (a small concentration
means wild days).
"""

import numpyro
import numpyro.distributions as dist


def display(reward=None):
    orders = numpyro.sample("orders", dist.LogNormal(2.0, 0.4))
    concentration = numpyro.sample("concentration", dist.LogNormal(1.0, 0.5))
    numpyro.sample("reward", dist.NegativeBinomial2(orders, concentration), obs=reward)


num_arms = 3
