"""Models as users write them, none of them in `models/`: posteriors are checked against NUTS."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import irsppl


def zero_inflated(reward=None):
    """Orders of a customer, most of whom never order."""
    gate = numpyro.sample("gate", dist.Beta(2.0, 2.0))
    rate = numpyro.sample("rate", dist.Gamma(3.0, 1.0))
    numpyro.sample("reward", dist.ZeroInflatedPoisson(gate, rate), obs=reward)


def weibull(reward=None):
    """Lifetime of a part that ages, or has teething troubles."""
    scale = numpyro.sample("scale", dist.LogNormal(1.0, 0.5))
    shape = numpyro.sample("shape", dist.Gamma(6.0, 4.0))
    numpyro.sample("reward", dist.Weibull(scale, shape + 0.5), obs=reward)


def overdispersed(reward=None):
    """Counts with more spread than Poisson's, how much more being unknown."""
    mean = numpyro.sample("mean", dist.LogNormal(1.0, 0.7))
    dispersion = numpyro.sample("dispersion", dist.Gamma(2.0, 0.5))
    numpyro.sample("reward", dist.NegativeBinomial2(mean, dispersion), obs=reward)


def ordinal(reward=None):
    """Ratings from 0 to 3 with unknown places of the cuts."""
    quality = numpyro.sample("quality", dist.Normal(0.0, 1.0))
    first = numpyro.sample("first", dist.Normal(-1.0, 0.5))
    gaps = numpyro.sample("gaps", dist.LogNormal(jnp.zeros(2), 0.5).to_event(1))
    cuts = jnp.concatenate([first[None], first + jnp.cumsum(gaps)])
    numpyro.sample("reward", dist.OrderedLogistic(quality, cuts), obs=reward)


def skewed(reward=None):
    """The worst of a day's delays."""
    loc = numpyro.sample("loc", dist.Normal(2.0, 1.0))
    log_scale = numpyro.sample("log_scale", dist.Normal(0.0, 0.5))
    numpyro.sample("reward", dist.Gumbel(loc, jnp.exp(log_scale)), obs=reward)


def two_kinds(reward=None):
    """Two kinds of customers, which of them one has not being seen."""
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    low = numpyro.sample("low", dist.Normal(-1.0, 1.0))
    gap = numpyro.sample("gap", dist.HalfNormal(2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    kinds = dist.Categorical(probs=jnp.stack([share, 1 - share]))
    humps = dist.Normal(jnp.stack([low, low + gap]), noise + 0.1)
    numpyro.sample("reward", dist.MixtureSameFamily(kinds, humps), obs=reward)


def pooled_shops(arm, reward=None):
    """Shops of one chain, centred, with the spread between them unknown."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("shops", 5):
        logit = numpyro.sample("logit", dist.Normal(level, spread))
    numpyro.sample("reward", dist.Bernoulli(logits=logit[arm]), obs=reward)


FEATURES = np.random.default_rng(7).normal(size=(5, 3))


def robust_regression(arm, reward=None):
    """Linear in features of the arms, with outliers as often as the data say."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    extra = numpyro.sample("extra", dist.Gamma(2.0, 0.2))
    mean = jnp.asarray(FEATURES)[arm] @ weights
    numpyro.sample("reward", dist.StudentT(2.5 + extra, mean, noise), obs=reward)


def beta_binomial(reward=None):
    """Successes in batches of ten; batches differ."""
    rate = numpyro.sample("rate", dist.Beta(2.0, 3.0))
    alike = numpyro.sample("alike", dist.Gamma(2.0, 0.2))
    law = dist.BetaBinomial(rate * alike, (1 - rate) * alike, total_count=10)
    numpyro.sample("reward", law, obs=reward)


def seasonal(arm, reward=None):
    """Six months as arms: a wave of unknown height and phase."""
    level = numpyro.sample("level", dist.Normal(5.0, 2.0))
    height = numpyro.sample("height", dist.HalfNormal(2.0))
    phase = numpyro.sample("phase", dist.Uniform(-jnp.pi, jnp.pi))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    mean = level + height * jnp.cos(2 * jnp.pi * arm / 6 + phase)
    numpyro.sample("reward", dist.Normal(mean, noise), obs=reward)


# ---- hard ones


def spike(reward=None):
    """Either nothing at all or some effect: a discrete latent beside a continuous one."""
    works = numpyro.sample("works", dist.Bernoulli(0.5))
    effect = numpyro.sample("effect", dist.HalfNormal(1.0))
    numpyro.sample("reward", dist.Normal(works * effect, 1.0), obs=reward)


def horseshoe(arm, reward=None):
    """Eight effects of which few are large, none beyond a slab of 3; 17 latents, Cauchy tails."""
    overall = numpyro.sample("overall", dist.HalfCauchy(1.0))
    with numpyro.plate("arms", 8):
        own = numpyro.sample("own", dist.HalfCauchy(1.0))
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    scale = 3.0 * own * overall / jnp.sqrt(9.0 + (own * overall) ** 2)
    numpyro.sample("reward", dist.Normal(effect[arm] * scale[arm], 1.0), obs=reward)


def correlated_effects(arm, reward=None):
    """Four arms with unknown correlations and scales; 14 latents."""
    scales = numpyro.sample("scales", dist.HalfNormal(jnp.ones(4)).to_event(1))
    root = numpyro.sample("root", dist.LKJCholesky(4, 1.0))
    white = numpyro.sample("white", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    effect = scales * (root @ white)
    numpyro.sample("reward", dist.Normal(effect[arm], 1.0), obs=reward)


@dataclasses.dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    num_arms: int = 1  # more than one: the arms share latents
    values: tuple[float, ...] | None = None

    def belief(self, num_particles: int = 1024, key: int = 0):
        options = {
            "representation": "particles",
            "num_particles": num_particles,
            "values": self.values,
            "key": key,
        }
        if self.num_arms > 1:
            return irsppl.from_numpyro_joint(self.function, self.num_arms, **options)
        return irsppl.from_numpyro(self.function, 1, **options)

    def data(self, belief, count: int, seed: int):
        """(arms, rewards) from the model itself, at latents drawn from its prior."""
        model = belief.model if self.num_arms > 1 else belief.models[0]
        first, second = jax.random.split(jax.random.key(seed))
        latents = model.sample_prior(first)
        arms = np.random.default_rng(seed).integers(0, self.num_arms, count)

        def one(key, arm):
            return model.sample_reward(key, latents, arm if model.joint else None)

        rewards = jax.jit(jax.vmap(one))(jax.random.split(second, count), jnp.asarray(arms))
        return arms, np.asarray(rewards, float)

    def nuts_data(self, arms, rewards):
        """The arguments of the function for all rewards at once."""
        seen = jnp.asarray(rewards)
        if self.values is not None:
            table = np.asarray(self.values)
            seen = jnp.asarray(np.argmin(np.abs(rewards[:, None] - table[None, :]), axis=1))
        return ((jnp.asarray(arms),) if self.num_arms > 1 else ()), {"reward": seen}


USERS = {
    "zero_inflated": Case(zero_inflated),
    "weibull": Case(weibull),
    "overdispersed": Case(overdispersed),
    "ordinal": Case(ordinal, values=(0.0, 1.0, 2.0, 3.0)),
    "skewed": Case(skewed),
    "two_kinds": Case(two_kinds),
    "pooled_shops": Case(pooled_shops, num_arms=5),
    "robust_regression": Case(robust_regression, num_arms=5),
    "beta_binomial": Case(beta_binomial),
    "seasonal": Case(seasonal, num_arms=6),
}
HARD = {
    "horseshoe": Case(horseshoe, num_arms=8),
    "correlated_effects": Case(correlated_effects, num_arms=4),
}


# ---- what their posteriors are


def spike_exactly(rewards):
    """Of `spike`: a sum over a fine grid of the effect."""
    grid, step = np.linspace(0, 8, 400_001, retstep=True)
    logs = len(rewards) * (grid * np.mean(rewards) - 0.5 * grid**2) - 0.5 * grid**2
    top = max(logs.max(), 0.0)
    on = np.exp(logs - top) * math.sqrt(2 / math.pi) * step
    total = on.sum() + math.exp(-top)
    mean = on @ grid / total
    sd = math.sqrt(on @ grid**2 / total - mean**2)
    return np.array([mean]), np.zeros(1), np.array([sd])
