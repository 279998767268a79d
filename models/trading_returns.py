"""Which execution rule? A trading desk compares rules by the saving on each order.

Reward: saving in basis points against the arrival price. Single orders go wildly right or wrong,
and a Gaussian model would chase those outliers; a Student t with unknown scale and unknown degrees
of freedom (above 2, so that the variance is finite) does not.
"""

import numpyro
import numpyro.distributions as dist


def rule(reward=None):
    saving = numpyro.sample("saving", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(4.0))
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.5))
    numpyro.sample("reward", dist.StudentT(2.0 + freedom, saving, scale), obs=reward)


num_arms = 3
