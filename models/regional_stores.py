"""In which region to promote? A chain knows its regions are alike, though not how much alike.

Reward: 1 if a customer who saw the promotion buys. Partial pooling: every region has its own
log-odds around a common level, and how far regions stray from it is learned too. A sale in one
region is news about all of them, so this is one joint model. The regions' offsets are drawn on a
standard scale and multiplied by the spread (non-centred), which samplers like.
"""

import numpyro
import numpyro.distributions as dist

joint = True
num_arms = 5


def regions(arm, reward=None):
    level = numpyro.sample("level", dist.Normal(-1.5, 0.7))
    spread = numpyro.sample("spread", dist.HalfNormal(0.7))
    with numpyro.plate("region", num_arms):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    log_odds = numpyro.deterministic("log_odds", level + spread * offset)
    numpyro.sample("reward", dist.Bernoulli(logits=log_odds[arm]), obs=reward)
