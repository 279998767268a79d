"""Which server configuration? An operator routes requests and wants them answered quickly.

Reward: minus the response time in seconds, so that more is better. Times are log-normal; minus a
log-normal has no mean in NumPyro, so irsppl computes it numerically, to about seven digits.
"""

import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform


def configuration(reward=None):
    level = numpyro.sample("level", dist.Normal(-0.5, 0.5))
    spread = numpyro.sample("spread", dist.LogNormal(-0.7, 0.3))
    minus_time = dist.TransformedDistribution(
        dist.LogNormal(level, spread), AffineTransform(0.0, -1.0)
    )
    numpyro.sample("reward", minus_time, obs=reward)


num_arms = 3
