"""What particles cost: an update, a V-Zero decision, memory; against conjugate beliefs in one run.

Everything but memory is a ratio of two measurements taken in one run, because machines are noisy.
Run: python benchmarks/particles.py [--num-particles 1024 --num-arms 5 --horizon 100]; on a busy
machine `taskset -c 0` before it keeps XLA's threads from waiting for each other.
"""

import argparse
import re
import subprocess
import sys
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import irsppl


def logistic(reward=None):
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.5))
    numpyro.sample("reward", dist.Bernoulli(logits=theta), obs=reward)


def reading_time(reward=None):
    minutes = numpyro.sample("minutes", dist.LogNormal(0.7, 0.4))
    shape = numpyro.sample("shape", dist.LogNormal(0.3, 0.5))
    numpyro.sample("reward", dist.Gamma(shape, shape / minutes), obs=reward)


def seconds(function, *args, repeats=15, clock=time.perf_counter):
    """Best time of a compiled call: what else the machine does only adds."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = clock()
        jax.block_until_ready(function(*args))
        times.append(clock() - start)
    return min(times)


def one_by_one(belief, rewards):
    """Seconds per update, one call each, arms in turn; the belief it ends with."""
    start = time.perf_counter()
    for n, reward in enumerate(rewards):
        belief = belief.update(n % belief.num_arms, reward)
    jax.block_until_ready(jax.tree.leaves(belief))
    return (time.perf_counter() - start) / len(rewards), belief


def together(belief, arms, rewards):
    """CPU seconds per update, all in one compiled program: without the dispatch of calls.

    CPU time, because a long program is interrupted on a busy machine and a short one is not.
    """

    def run():
        return jax.tree.leaves(belief.update(arms, rewards))

    return seconds(run, repeats=7, clock=time.process_time) / len(rewards)


def updates(num_particles, count=500):
    rng = np.random.default_rng(0)
    cases = {
        "logistic-normal": (logistic, (rng.random(count) < 0.4).astype(float)),
        "reading time": (reading_time, rng.gamma(2.0, 0.8, count)),
    }
    conjugate = irsppl.NormalNormal([0.0, 0.0], [1.0, 1.0], [1.0, 1.0])
    arms = np.arange(count) % 2
    print(f"update, {num_particles} particles, {count} rewards, rejuvenation included")
    print(f"{'model':18}{'calls':>12}{'ratio':>8}{'one call':>14}{'ratio':>8}{'moves':>7}")
    for name, (model, rewards) in cases.items():
        cloud = irsppl.from_numpyro(
            model, 2, representation="particles", num_particles=num_particles
        )
        rows = []
        for belief in (cloud, conjugate):
            belief.update(0, 1.0)  # compile
            calls = min(one_by_one(belief, rewards) for _ in range(3))[0]
            rows.append((calls, together(belief, arms, rewards)))
        moves = int(np.sum(cloud.update(arms, rewards).rejuvenations))
        (ours, packed), (theirs, their_packed) = rows
        print(
            f"{name:18}{ours * 1e6:9.0f} us{ours / theirs:7.1f}x{packed * 1e6:11.1f} us"
            f"{packed / their_packed:7.1f}x{moves:7d}"
        )


def decisions(num_particles, num_arms, horizon):
    cloud = irsppl.from_numpyro(
        reading_time, num_arms, representation="particles", num_particles=num_particles
    )
    arms = np.ones(num_arms)
    conjugate = irsppl.NormalNormal(0 * arms, arms, arms)
    print(f"\nV-Zero decision, K = {num_arms}, T = {horizon}, {num_particles} particles")
    times = {}
    for name, belief in (("particles", cloud), ("conjugate", conjugate)):
        bandit = irsppl.Bandit(belief, horizon)
        times[name] = seconds(lambda b=bandit: irsppl.choose(b, "irs.v-zero", key=1))
    ratio = times["particles"] / times["conjugate"]
    print(f"  particles {times['particles'] * 1e3:.2f} ms, conjugate ", end="")
    print(f"{times['conjugate'] * 1e3:.2f} ms: {ratio:.1f}x")


def memory(num_particles, num_arms, horizon):
    """High-water mark of a fresh process; the chunks of a simulation bound it."""
    print(f"\nmemory of simulate, K = {num_arms}, T = {horizon}, {num_particles} particles")
    for replications in (40, 160):
        code = (
            "import runpy, irsppl, re\n"
            f"model = runpy.run_path({__file__!r})['reading_time']\n"
            f"b = irsppl.from_numpyro(model, {num_arms}, representation='particles', "
            f"num_particles={num_particles})\n"
            f"irsppl.simulate(irsppl.Bandit(b, {horizon}), ['ts'], "
            f"num_replications={replications})\n"
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        )
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found = re.findall(r"\d+", out.stdout)[-1]
        print(f"  {replications:4d} replications: {int(found) / 2**20:.2f} GB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-particles", type=int, default=1024)
    parser.add_argument("--num-arms", type=int, default=5)
    parser.add_argument("--horizon", type=int, default=100)
    options = vars(parser.parse_args())
    updates(options["num_particles"])
    decisions(**options)
    memory(**options)
