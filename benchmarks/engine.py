"""Time per simulated path of every belief and constraint, against Beta-Bernoulli arms.

Each figure is a ratio of two measurements of one run: the same policy, K = 3, T = 100, one core.
"kernel" is the policy alone on given futures; "simulate" also draws futures and accounts for them.
Times are those of the process on its core, so that a busy machine does not enter them; "two cores",
with --two-cores, is the wall time on one core over that on two and wants a quiet machine.
Run: python benchmarks/engine.py [--paths 200] [--only quadrature,delay]
     python benchmarks/engine.py --rules: every other rule on Beta-Bernoulli, Gaussian and
     logistic-normal arms, against `ts` on Beta-Bernoulli ones.
"""

import argparse
import contextlib
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import irsppl
from irsppl import engine
from irsppl.beliefs import InKernels
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu.rng import streams
from irsppl.policies import find_policy

POLICIES = ["ts", "irs.fh", "irs.v-zero", "irs.index"]
RULES = ["ts", "irs.mix", "irs.v-emax", "ids", "bayes-ucb", "ogi", "ucb1", "kl-ucb"]
RULES += ["epsilon-greedy", "fh-gittins", "lagr-rt"]
NUM_ARMS, HORIZON = 3, 100


def logistic_normal(reward=None):
    z = numpyro.sample("z", dist.Normal(0.0, 1.5))
    numpyro.sample("reward", dist.Bernoulli(logits=z), obs=reward)


def levels(reward=None):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.ones(16) / 16))
    numpyro.sample("reward", dist.Bernoulli(probs=(z + 0.5) / 16), obs=reward)


def shared(arm, reward=None):
    base = numpyro.sample("base", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Bernoulli(logits=base + slope * (arm - 1.0)), obs=reward)


def location(reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.StudentT(4.0, place, 1.0), obs=reward)


def student(reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.5))
    numpyro.sample("reward", dist.StudentT(4.0, place, scale), obs=reward)


def beta():
    return irsppl.BetaBernoulli(np.ones(NUM_ARMS), np.ones(NUM_ARMS))


def linear():
    rng = np.random.default_rng(0)
    return irsppl.LinearGaussian(rng.standard_normal((8, 3)), np.zeros(3), np.eye(3), 1.0)


# name: (bandit, most times slower than Beta-Bernoulli that is wanted)
CASES = {
    "Beta-Bernoulli": (lambda: irsppl.Bandit(beta(), HORIZON), None),
    "quadrature, 256 nodes": (
        lambda: irsppl.Bandit(irsppl.from_numpyro(logistic_normal, NUM_ARMS), HORIZON),
        8,
    ),
    "enumeration, 16 points": (
        lambda: irsppl.Bandit(irsppl.from_numpyro(levels, NUM_ARMS), HORIZON),
        8,
    ),
    "joint points, 256": (
        lambda: irsppl.Bandit(
            irsppl.from_numpyro_joint(
                shared, NUM_ARMS, representation="particles", num_particles=256
            ).for_simulation(),  # points that stay where they are
            HORIZON,
        ),
        15,
    ),
    "quadrature, many rewards": (
        lambda: irsppl.Bandit(irsppl.from_numpyro(location, NUM_ARMS), HORIZON),
        8,
    ),
    "particles that move": (
        lambda: irsppl.Bandit(irsppl.from_numpyro(student, NUM_ARMS), HORIZON),
        100,
    ),
    "joint particles that move": (
        lambda: irsppl.Bandit(irsppl.from_numpyro_joint(shared, NUM_ARMS), HORIZON),
        100,
    ),
    "delay 10": (lambda: irsppl.Bandit(beta(), HORIZON, delay=10), 4),
    "delay 2, 10, never": (lambda: irsppl.Bandit(beta(), HORIZON, delay=[2, 10, np.inf]), 4),
    "random delay": (
        lambda: irsppl.Bandit(beta(), HORIZON, delay=dist.Geometric(probs=jnp.array(0.1))),
        4,
    ),
    "budget": (lambda: irsppl.Bandit(beta(), costs=[1, 1.5, 2], budget=100), 4),
    "unknown horizon": (
        lambda: irsppl.Bandit(beta(), dist.Geometric(probs=jnp.array(0.05))),
        4,
    ),
    "linear-Gaussian, 8 arms": (lambda: irsppl.Bandit(linear(), HORIZON), 10),
    "normal-inverse-gamma": (
        lambda: irsppl.Bandit(
            irsppl.NormalInverseGamma(*np.array([[0.0] * 3, [1.0] * 3, [2.0] * 3, [1.0] * 3])),
            HORIZON,
        ),
        None,
    ),
    "Dirichlet-categorical": (
        lambda: irsppl.Bandit(irsppl.DirichletCategorical(np.ones((3, 3)), [0, 0.5, 1]), HORIZON),
        None,
    ),
}


def policy_on(bandit, policy):
    """Correlated arms have the separable form of V-Zero."""
    joint = not bandit.belief.is_independent
    return "irs.v-zero-separable" if joint and policy == "irs.v-zero" else policy


def kernel_seconds(bandit, policy, paths):
    """(seconds per path, gain by a second thread), or None without a kernel; the best of three."""
    if not bandit.arrivals.late:
        bandit = bandit.trimmed(int(bandit.remaining))
    kernel = engine.kernel(find_policy(policy), bandit)
    if kernel is None:
        return None
    futures = jax.block_until_ready(draw_outcomes(bandit, jax.random.key(0), 0, paths))
    futures = jax.tree.map(np.asarray, futures.bare())
    fields, seeds = (futures.delays, futures.periods), streams((0, 1), 2, 0, paths)
    few = (None if field is None else field[:2] for field in fields)
    kernel.paths(futures.rewards[:2], seeds[:2], *few)

    def run(threads=1):
        kernel.paths(futures.rewards, seeds, *fields, threads=threads)

    return min(timed(run) for _ in range(3)) / paths, gain(run)


def gain(run):
    """What the second core is worth: the wall time on one core alone, over that on two.

    The whole process is held on one core for the former, XLA's threads too. Runs that end within
    milliseconds are repeated, each one waiting for its threads; the more often the quicker they
    are, because the least counts and a neighbour's work may hide the second core for a second.
    """
    wall = timed(run, time.perf_counter)
    times = max(1, int(0.2 / wall))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return np.nan
    walls = {1: [], 2: []}
    for _ in range(3 if wall > 0.5 else 15):
        for count, own in walls.items():
            hold(cores[:count])
            start = time.perf_counter()
            for _ in range(times):
                run(count)
            own.append(time.perf_counter() - start)
    return min(walls[1]) / min(walls[2])


def hold(cores):
    """Every thread of this process on these cores."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


def simulate_seconds(bandit, policy, paths):
    def run():
        irsppl.simulate(bandit, [policy], 0, paths, workers=1, progress=False)

    run()  # compile, at the very shapes that are timed
    return min(timed(run) for _ in range(2)) / paths


def timed(run, clock=time.process_time):
    start = clock()
    run()
    return clock() - start


def main(paths, only, simulate, cores):
    print(f"K = {NUM_ARMS}, T = {HORIZON}, {paths} paths, ms per path, one core")
    head = f"{'':26}{'policy':12}{'kernel':>9}{'ratio':>8}{'wanted':>8}"
    head += f"{'two cores':>11}" if cores else ""
    print(head + (f"{'simulate':>11}{'ratio':>8}" if simulate else ""))
    base = {}
    for name, (make, wanted) in CASES.items():
        if only and name != "Beta-Bernoulli" and not any(part in name for part in only):
            continue
        bandit = make()
        for policy in POLICIES:
            chosen = policy_on(bandit, policy)
            try:
                find_policy(chosen).verify(bandit)
            except ValueError:
                continue
            kernel = kernel_seconds(bandit, chosen, paths)
            if kernel is None:
                print(f"{name:26}{policy:12}     none")
                continue
            whole = simulate_seconds(bandit, chosen, paths) if simulate else np.nan
            base.setdefault(policy, (kernel[0], whole))
            line = f"{name:26}{policy:12}{kernel[0] * 1e3:9.3f}{kernel[0] / base[policy][0]:7.1f}x"
            line += f"{f'{wanted}x' if wanted else '':>8}"
            line += f"{kernel[1]:10.2f}x" if cores else ""
            if simulate:
                line += f"{whole * 1e3:11.3f}{whole / base[policy][1]:7.1f}x"
            print(line, flush=True)


def rules(paths, cores):
    """Every rule on three kinds of arms; `irs.v-emax` on two of them."""
    print(f"K = {NUM_ARMS}, T = {HORIZON}, {paths} paths, ms per path, one core")
    kinds = {
        "Beta-Bernoulli": beta,
        "Gaussian": lambda: irsppl.NormalNormal(np.zeros(3), np.ones(3), np.ones(3)),
        "quadrature": lambda: irsppl.from_numpyro(logistic_normal, NUM_ARMS),
    }
    base = None
    for policy in RULES:
        for name, make in kinds.items():
            belief = make()
            if policy == "irs.v-emax":
                if not isinstance(belief, InKernels):
                    continue
                belief = jax.tree.map(lambda leaf: leaf[1:], belief)
            bandit = irsppl.Bandit(belief, HORIZON)
            try:
                find_policy(policy).verify(bandit)
            except ValueError:
                continue
            found = kernel_seconds(bandit, policy, paths)
            if found is None:
                print(f"{policy:16}{name:16}     none")
                continue
            base = base or found[0]
            line = f"{policy:16}{name:16}{found[0] * 1e3:9.4f}{found[0] / base:8.2f}x"
            print(line + (f"{found[1]:8.2f}x" if cores else ""), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--kernels-only", action="store_true")
    parser.add_argument("--two-cores", action="store_true")
    parser.add_argument("--rules", action="store_true")
    options = parser.parse_args()
    if options.rules:
        raise SystemExit(rules(options.paths, options.two_cores))
    only = [part for part in options.only.split(",") if part]
    main(options.paths, only, not options.kernels_only, options.two_cores)
