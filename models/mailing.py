"""Which subject line? A charity mails in batches and counts the letters opened.

Reward: openings out of a batch of 40 letters. One pull is one batch, so a pull tells as much as 40
single letters would.
"""

import numpyro
import numpyro.distributions as dist

BATCH = 40


def subject_line(reward=None):
    rate = numpyro.sample("rate", dist.Beta(3.0, 12.0))
    numpyro.sample("reward", dist.Binomial(BATCH, rate), obs=reward)


num_arms = 4
