"""Posterior means of the arms by NUTS, kept in `tests/data/nuts.json` with the data they are for.

NUTS takes minutes where the clouds that it judges take seconds, so it is run when its cases
change: `python -m tests.oracles.nuts [NAME ...]`. One case is sampled anew by the tests.
"""

import json
import math
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

from irsppl.beliefs import Belief
from irsppl.models import load_model_file

from ..user_models import HARD, Case

ROOT = pathlib.Path(__file__).parent.parent.parent
STORE = ROOT / "tests" / "data" / "nuts.json"
CHAINS = 2


class Posterior(NamedTuple):
    """Of the arms' mean rewards, each `[K]`: means, their Monte Carlo errors, spreads."""

    mean: np.ndarray
    error: np.ndarray
    sd: np.ndarray


# A prior with two humps, ordered categories, heavy tails, partial pooling of correlated arms, two
# curves shared by the arms: how data are made (the chance of a success of each arm, for the joint
# models).
ZOO = {
    "hit_or_miss": lambda rng: (rng.random(40) < 0.11).astype(int),
    "star_ratings": lambda rng: rng.choice(5, 150, p=[0.05, 0.1, 0.2, 0.4, 0.25]),
    "trading_returns": lambda rng: 0.8 + 2 * rng.standard_t(3, 150),
    "regional_stores": [0.1, 0.15, 0.2, 0.3, 0.25],
    "dose_finding": [0.2, 0.3, 0.45, 0.5, 0.4],
}
# Rewards after which a cloud that is moved as a whole was 5.5 and 8.8 stated errors off.
HARD_REWARDS = {"horseshoe": 200, "correlated_effects": 1000}
CASES = (*ZOO, *HARD_REWARDS)


def case_of(name: str) -> Case:
    """One of the hard models, or a file of the zoo: all arms of a joint model, else one."""
    if name in HARD:
        return HARD[name]
    loaded = load_model_file(ROOT / "models" / f"{name}.py")
    arms = loaded.num_arms if loaded.joint else 1
    return Case(loaded.functions[0], num_arms=arms, values=loaded.values)


def data(name: str, case: Case, belief: Belief) -> tuple[np.ndarray, np.ndarray]:
    """(arms, rewards), each `[n]`."""
    if name in HARD:
        return case.data(belief, HARD_REWARDS[name], 0)
    rng, source = np.random.default_rng(0), ZOO[name]
    if case.num_arms > 1:
        arms = rng.integers(0, case.num_arms, 200)
        seen = (rng.random(200) < np.array(source)[arms]).astype(int)
    else:
        seen = source(rng)
        arms = np.zeros(len(seen), int)
    rewards = np.asarray(case.values)[seen] if case.values is not None else seen
    return arms, np.asarray(rewards, float)


def sample(case: Case, belief: Belief, arms, rewards, warmup: int, draws: int) -> Posterior:
    """By NUTS, `draws` from each of two chains."""
    args, given = case.nuts_data(arms, rewards)
    sampler = MCMC(
        NUTS(case.function, target_accept_prob=0.9),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    joint = case.num_arms > 1
    model = belief.model if joint else belief.models[0]
    with jax.numpy_rank_promotion("allow"):
        sampler.run(jax.random.key(0), *args, **given)
        found = sampler.get_samples()
        latents = {latent: found[latent] for latent in model.latents}
        each = jnp.arange(case.num_arms)

        def means(point):
            return jax.vmap(lambda arm: model.mean(point, arm if joint else None))(each)

        mu = np.asarray(jax.jit(jax.vmap(means))(latents), np.float64)
    sd = mu.std(axis=0)
    ess = effective_sample_size(mu.reshape(CHAINS, draws, case.num_arms))
    return Posterior(mu.mean(axis=0), sd / np.sqrt(ess), sd)


def stored(name: str) -> tuple[np.ndarray, np.ndarray, Posterior]:
    """(arms, rewards, posterior) as kept."""
    entry = json.loads(STORE.read_text())[name]
    posterior = Posterior(*(np.array(entry[field]) for field in Posterior._fields))
    return np.array(entry["arms"]), np.array(entry["rewards"]), posterior


def main(names: list[str]) -> None:
    entries = json.loads(STORE.read_text()) if STORE.exists() else {}
    for name in names or CASES:
        case = case_of(name)
        belief = case.belief(64)
        arms, rewards = data(name, case, belief)
        posterior = sample(case, belief, arms, rewards, 1000, 4000)
        entries[name] = {"arms": arms.tolist(), "rewards": rewards.tolist()} | {
            field: [float(f"{x:.7g}") for x in getattr(posterior, field)]
            for field in Posterior._fields
        }
        STORE.write_text(json.dumps(entries, indent=None, sort_keys=True) + "\n")
        worst = float(np.max(posterior.error / posterior.sd))
        print(f"{name}: {len(rewards)} rewards, Monte Carlo error at most {worst:.3f} sd")
        assert math.isfinite(worst)


if __name__ == "__main__":
    main(sys.argv[1:])
