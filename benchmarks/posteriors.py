"""Stated errors of particle beliefs against NUTS: models of users, three hard ones, and the zoo.

For each model and number of rewards: how far the cloud's means lie from NUTS's, in combined errors
(the cloud's stated error, NUTS's Monte Carlo error), and both errors in posterior standard
deviations; of several arms, the worst. Data come from the model at latents drawn from its prior.
Run from the top folder: python -m benchmarks.posteriors [--models weibull spike --rewards 50 1000]
"""

import argparse
import math
import pathlib
import time
import warnings

import jax
import numpy as np

from irsppl.beliefs._subclouds import InaccurateBeliefWarning
from tests.oracles.nuts import case_of, sample
from tests.user_models import HARD, USERS, Case, spike, spike_exactly

BATCH = 50  # rewards per update: one shape, so that one program serves all


def compare(name, case, counts, num_particles, warmup, draws, seed):
    """Combined errors of all arms after each of the `counts`, rising multiples of the batch."""
    belief = case.belief(num_particles, key=seed).sized(counts[-1])
    arms, rewards = case.data(belief, counts[-1], seed)
    scores = []
    seconds = 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for end in range(BATCH, counts[-1] + 1, BATCH):
            start = time.perf_counter()
            belief = belief.update(arms[end - BATCH : end], rewards[end - BATCH : end])
            jax.block_until_ready(belief.mu)
            seconds += time.perf_counter() - start
            if end not in counts:
                continue
            if case.function is spike:
                mean, mcse, sd = spike_exactly(rewards[:end])
            else:
                mean, mcse, sd = sample(case, belief, arms[:end], rewards[:end], warmup, draws)
            stated = np.asarray(belief.mean_error(), np.float64)
            gap = np.asarray(belief.predictive_mean(), np.float64) - mean
            z = gap / np.hypot(stated, mcse)
            told = any(issubclass(w.category, InaccurateBeliefWarning) for w in caught)
            print(
                f"| {name} | {end} | {z[np.argmax(np.abs(z))]:+.1f} | "
                f"{np.max(np.abs(gap) / sd):.3f} | {np.max(stated / sd):.3f} | "
                f"{np.max(mcse / sd):.3f} | {np.min(belief.effective_sample_size()):.0f} | "
                f"{int(np.sum(belief.rejuvenations))} | {'yes' if told else 'no'} | "
                f"{seconds:.0f} |",
                flush=True,
            )
            scores.append(z)
    return np.concatenate(scores)


def zoo():
    """The files of `models/` that NUTS can sample as they are: continuous latents only."""
    found = {}
    for path in sorted((pathlib.Path(__file__).parent.parent / "models").glob("*.py")):
        case = case_of(path.stem)
        read = case.belief(64, key=0)
        model = read.model if case.num_arms > 1 else read.models[0]
        if not model.has_discrete:
            found[path.stem] = case
    return found


if __name__ == "__main__":
    known = {**USERS, **HARD, "spike": Case(spike), **zoo()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(known), default=list(known))
    parser.add_argument("--rewards", nargs="+", type=int, default=[50, 1000])
    parser.add_argument("--num-particles", type=int, default=1024)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    names, counts = options.pop("models"), options.pop("rewards")
    if any(count % BATCH for count in counts):
        parser.error(f"--rewards must be multiples of {BATCH}")
    columns = "model, rewards, combined errors, gap / sd, stated / sd, NUTS / sd, ESS, moves, "
    columns += "warned, seconds"
    print("| " + columns.replace(", ", " | ") + " |\n" + "|---" * 10 + "|")
    every = np.concatenate([compare(n, known[n], sorted(counts), **options) for n in names])
    inside = np.mean(np.abs(every) <= 2)
    print(f"within two combined errors: {inside:.1%} of {len(every)} means; ", end="")
    print(f"root mean square {math.sqrt(np.mean(every**2)):.2f}, worst {np.max(np.abs(every)):.1f}")
