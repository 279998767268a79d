"""Which sign-up page? A product team tests two new pages against the one they have.

Reward: 1 if a visitor signs up, 0 if not. What is known about conversion rates is symmetric on the
log-odds scale (a new page may well halve or double the odds), so the prior is logit-normal, which
has no conjugate form. The current page has been live for long: its prior is narrow.
"""

import jax
import numpyro
import numpyro.distributions as dist


def current_page(reward=None):
    log_odds = numpyro.sample("log_odds", dist.Normal(-3.0, 0.1))
    numpyro.sample("reward", dist.Bernoulli(logits=log_odds), obs=reward)


def new_page(reward=None):
    log_odds = numpyro.sample("log_odds", dist.Normal(-3.0, 0.7))
    numpyro.deterministic("rate", jax.nn.sigmoid(log_odds))
    numpyro.sample("reward", dist.Bernoulli(logits=log_odds), obs=reward)


arms = [current_page, new_page, new_page]
labels = ["current", "short form", "with video"]
