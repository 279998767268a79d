"""Every model of the zoo: bounds in their order, policies below them, and better than chance.

Futures are shared, so that differences are taken future by future. A comparison allows 4 standard
errors on one side, a false alarm in about 30,000; there are 183 of them, so that the file raises
one with probability below 0.006. What policies gain over pulls at random was measured
as 4.9 standard errors at least, which would look like a loss once in 2,000,000 times. One seed.

XLA compiles for longer than all this runs: each model is one program. Where many draws take their
time, it is the other way round, and LLVM's first level pays.
"""

import itertools
import math

import jax
import numpy as np
import pytest

import irsppl
from irsppl.futures import draw_outcomes
from irsppl.penalties import find_penalty
from irsppl.policies import find_policy
from irsppl.policies.paths import play_traced

from .test_zoo import ZOO, file_of

HORIZON, FUTURES, PARTICLES = 12, 1000, 32
POLICIES = ["ts", "irs.fh", "greedy"]
# Two rewards, few arms and a belief without particles: V* is known too.
SOLVED = {"conversion", "drug_candidates", "hit_or_miss"}
SLOW = {"daily_orders", "mailing"}


def bandit_of(path):
    """The model as the command line reads it, with few particles."""
    loaded = file_of(path)
    options = {
        "num_particles": PARTICLES,
        "reward_site": loaded.reward_site,
        "mean": loaded.mean,
        "values": loaded.values,
    }
    if loaded.joint:
        function, number = loaded.functions[0], loaded.num_arms
        belief = irsppl.from_numpyro_joint(function, num_arms=number, **options)
    elif len(loaded.functions) == 1:
        belief = irsppl.from_numpyro(loaded.functions[0], num_arms=loaded.num_arms, **options)
    else:
        belief = irsppl.from_numpyro(loaded.functions, **options)
    return irsppl.Bandit(belief, HORIZON, labels=loaded.labels)


def played(bandit, penalties, level):
    """(true means [S, K], {penalty: inner values [S]}, {policy: arms pulled [S, T]})."""

    def everything(key):
        futures = draw_outcomes(bandit, key, 0, FUTURES)
        values = {}
        for name in penalties:
            penalty = find_penalty(name)
            values[name] = jax.vmap(lambda f, p=penalty: p.inner(bandit, f).value)(futures)
        keys = jax.random.split(jax.random.fold_in(key, 1), FUTURES)
        arms = {
            name: play_traced(find_policy(name), bandit, futures.rewards, keys) for name in POLICIES
        }
        return futures.means, values, arms

    program = jax.jit(everything, compiler_options={"xla_backend_optimization_level": level})
    return jax.tree.map(np.asarray, program(jax.random.key(5)))


def not_below(larger, smaller, what):
    """The mean of larger - smaller is not negative, as far as can be told."""
    gap = np.asarray(larger, np.float64) - smaller
    error = gap.std(ddof=1) / math.sqrt(len(gap))
    slack = 4 * error + 1e-5 * np.abs(larger).mean()  # and float32
    assert gap.mean() >= -slack, f"{what}: {gap.mean():.4g} with standard error {error:.2g}"


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_bounds_and_policies(path):
    bandit = bandit_of(path).trimmed(HORIZON)
    names = ["ts", "irs.fh", "irs.v-zero" if bandit.belief.is_independent else "irs.ff"]
    means, values, arms = played(bandit, names, int(path.stem in SLOW))
    assert all(np.all(np.isfinite(one)) for one in (means, *values.values()))
    for larger, smaller in itertools.pairwise(names):
        not_below(values[larger], values[smaller], f"{larger} above {smaller}")
    if path.stem in SOLVED:
        optimum = find_penalty("ideal").exact(bandit)
        for name in names:
            not_below(values[name], np.full(FUTURES, optimum), f"bound {name} above the optimum")
    at_random = HORIZON * means.mean(axis=1)  # what is earned on average, given the future
    for policy in POLICIES:
        earned = np.take_along_axis(means, arms[policy].astype(int), axis=1).sum(axis=1)
        for name in names:
            not_below(values[name], earned, f"bound {name} above policy {policy}")
        assert earned.mean() > at_random.mean(), policy
        if path.stem in SOLVED:
            not_below(np.full(FUTURES, optimum), earned, f"optimum above policy {policy}")
