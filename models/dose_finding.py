"""Which dose? A trial treats patients one after the other and wants response without harm.

Reward: 1 if the patient responds and has no serious side effect. Both chances rise with the dose
on a logistic curve in log dose, so the best dose lies somewhere in the middle; the two curves are
shared by all doses, which makes the model joint. Slopes are positive: more is never less.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

LOG_DOSES = jnp.log(jnp.array([0.25, 0.5, 1.0, 2.0, 4.0]))
labels = ["0.25 mg", "0.5 mg", "1 mg", "2 mg", "4 mg"]
joint = True
num_arms = 5


def dose(arm, reward=None):
    efficacy = numpyro.sample("efficacy", dist.Normal(0.0, 0.8))
    efficacy_slope = numpyro.sample("efficacy_slope", dist.LogNormal(0.0, 0.4))
    toxicity = numpyro.sample("toxicity", dist.Normal(-2.0, 0.8))
    toxicity_slope = numpyro.sample("toxicity_slope", dist.LogNormal(0.0, 0.4))
    responds = jax.nn.sigmoid(efficacy + efficacy_slope * LOG_DOSES[arm])
    harmed = jax.nn.sigmoid(toxicity + toxicity_slope * LOG_DOSES[arm])
    numpyro.sample("reward", dist.Bernoulli(responds * (1 - harmed)), obs=reward)
