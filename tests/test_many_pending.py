"""Plans with many pending rewards draw their sum at once: the same law, at a cost that stays."""

import math

import numpy as np
import pytest

from irsppl.engine.dispatch import kernel_for
from irsppl.engine.families.futures import draw_step, draw_sum
from irsppl.engine.families.natural import natural
from irsppl.engine.situation import NaturalState, Situation
from irsppl.inner.cpu.families import (
    BETA_BERNOULLI,
    GAMMA_EXPONENTIAL,
    GAMMA_POISSON,
    NORMAL_NORMAL,
)
from irsppl.inner.cpu.rng import seed_state, streams
from irsppl.policies import find_policy

PRIORS = {  # xi, nu, noise: the parameter's draws, and the sum of n rewards given it
    BETA_BERNOULLI: (2.0, 5.0, 0.0, lambda g, s: g.beta(2, 3, s), lambda g, t, n: g.binomial(n, t)),
    NORMAL_NORMAL: (
        1.0, 2.0, 1.5,
        lambda g, s: g.normal(0.5, 1.5 / math.sqrt(2), s),
        lambda g, t, n: g.normal(n * t, 1.5 * math.sqrt(n)),
    ),
    GAMMA_POISSON: (
        2.0, 1.5, 0.0, lambda g, s: g.gamma(2, 1 / 1.5, s), lambda g, t, n: g.poisson(n * t)
    ),
    GAMMA_EXPONENTIAL: (
        2.0, 5.0, 0.0, lambda g, s: g.gamma(6, 1 / 2, s), lambda g, t, n: g.gamma(n, 1 / t)
    ),
}  # fmt: skip
N = 40


@pytest.mark.parametrize("family", PRIORS)
def test_a_sum_and_what_follows_it_have_their_law(family):
    """Sum of 40 rewards, the reward after it, and a second sum, against draws by NumPy: means and
    second moments; z at most 4.5 for eight of them in each family (false alarms 3e-4 in all)."""
    xi, nu, sd, parameters, sums = PRIORS[family]
    size, rng, state = 4000, np.random.default_rng(family), np.empty(4, np.uint64)
    arm = natural(family, [xi], [nu], [sd], 2 * N + 2)
    arm.nu[0] = nu
    found = np.empty((3, size))
    for i, seed in enumerate(streams((3, 4), family, 0, size)):
        seed_state(seed, state)
        arm.tail[0, 0] = xi
        found[0, i] = draw_sum(family, arm, state, 0, xi, nu, 0, N)
        draw_step(family, arm, state, 0, N)
        found[1, i] = arm.futures[0, N, 0]
        now = xi + found[0, i] + found[1, i]
        assert arm.tail[0, 0] == pytest.approx(now)
        found[2, i] = draw_sum(family, arm, state, 0, now, nu + N + 1, N + 1, N)
        assert arm.tail[0, 0] == pytest.approx(now + found[2, i])
    truth = parameters(rng, 20_000)
    wanted = np.stack([sums(rng, truth, n) for n in (N, 1, N)]).astype(float)
    for pair in [(0,), (1,), (2,), (0, 0), (2, 2), (0, 1), (0, 2), (1, 2)]:
        a, b = (np.prod([row[i] for i in pair], axis=0) for row in (found, wanted))
        error = math.hypot(a.std() / math.sqrt(a.size), b.std() / math.sqrt(b.size))
        assert abs(a.mean() - b.mean()) < 4.5 * error, pair


@pytest.mark.parametrize("family", [BETA_BERNOULLI, GAMMA_POISSON])
def test_decisions_with_many_pending(family):
    """40 and 35 rewards pending, known before the next decision: as after rewards that NumPy drew.

    Shares of three arms from 3,000 decisions each way: z at most 4.5 (false alarms 5e-5)."""
    index, size, rng = find_policy("irs.index"), 3000, np.random.default_rng(0)
    xi, nu, _, parameters, sums = PRIORS[family]
    xis, nus, pending = np.full(3, xi), np.array([1.0, 1.1, 1.2]) * nu, np.array([40, 35, 0])
    seeds, none = streams((1, 2), 9, 0, size), np.zeros(3, np.int64)

    def decided(xi, nu, waiting, seeds):
        belief = NaturalState(family, xi, nu, np.zeros(3))
        state = Situation(belief, 80, 20, 100, np.full(3, 40), waiting)
        return kernel_for(index, state).decisions(seeds)

    shares = np.bincount(decided(xis, nus, pending, seeds), minlength=3) / size
    scale = nus / nu if family == GAMMA_POISSON else np.ones(3)
    if family == BETA_BERNOULLI:
        truth = rng.beta(xis, nus - xis, (size, 3))
    else:
        truth = parameters(rng, (size, 3)) / scale
    told = np.zeros((size, 3))
    for arm in (0, 1):
        told[:, arm] = sums(rng, truth[:, arm], pending[arm])
    arms = [
        decided(xis + told[i], nus + pending, none, seeds[i : i + 1] ^ np.uint64(1))[0]
        for i in range(size)
    ]
    wanted = np.bincount(arms, minlength=3) / size
    error = np.sqrt((shares * (1 - shares) + wanted * (1 - wanted)) / size) + 1e-4
    assert np.all(np.abs(shares - wanted) < 4.5 * error)
    assert np.all(wanted > 0.02)  # a choice that depends on what was told
