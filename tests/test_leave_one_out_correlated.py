"""V-Solo for correlated arms: every outcome of tiny joint priors, and what it gains."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl.futures import draw_outcomes
from irsppl.penalties import VSolo, VZeroSeparable

from .oracles import enumerate as en
from .oracles import leave_one_out as oracle
from .test_penalties import all_outcomes

PRIOR = np.array([0.3, 0.5, 0.2])
# [point, arm, category]
BINARY = np.array([[0.2, 0.7, 0.5], [0.6, 0.4, 0.1], [0.9, 0.8, 0.3]])
BINARY = np.stack([1 - BINARY, BINARY], axis=-1)
THREE = np.random.default_rng(2).dirichlet([1.0, 1.0, 1.0], size=(3, 2))
CASES = {
    "two arms": (BINARY[:, :2], (0.0, 1.0), 5),
    "three arms": (BINARY, (0.0, 1.0), 4),
    "two arms, three values": (THREE, (-1.0, 0.5, 2.0), 3),
}
RHO = 0.6
GAUSSIAN = irsppl.LinearGaussian(
    np.eye(3), np.zeros(3), RHO + (1 - RHO) * np.eye(3), [1.0, 0.5, 2.0]
)


def both(name):
    """(bandit, the oracle's problem)."""
    table, values, horizon = CASES[name]

    def model(arm, reward=None):
        z = numpyro.sample("z", dist.Categorical(probs=jnp.asarray(PRIOR)))
        law = dist.Categorical(probs=jnp.asarray(table)[z, arm])
        numpyro.sample("reward", law, obs=reward)

    belief = irsppl.from_numpyro_joint(model, num_arms=table.shape[1], values=list(values))
    problem = en.Problem(en.JointDiscrete(PRIOR, table, values), horizon)
    return irsppl.Bandit(belief, horizon), problem


def defect(rewards, probabilities, z):
    """Largest |E[Z_a(n); n rewards of a, T-1-n of every other arm]| over a, n, events."""
    worst, horizon = 0.0, rewards.shape[2]
    for a, n in itertools.product(range(rewards.shape[1]), range(horizon)):
        sums = {}
        for row, p, value in zip(rewards, probabilities, z[:, a, n], strict=True):
            others = np.delete(row, a, axis=0)[:, : horizon - 1 - n]
            event = (row[a, :n].tobytes(), others.tobytes())
            sums[event] = sums.get(event, 0.0) + p * value
        worst = max(worst, max(abs(total) for total in sums.values()))
    return worst


@pytest.mark.parametrize("name", CASES)
def test_never_below_the_optimum_and_free_for_those_who_do_not_look_ahead(name):
    with jax.enable_x64(True):
        bandit, problem = both(name)
        batch, probabilities, listed = all_outcomes(problem)
        optimum = en.optimal_value(problem)
        zero = VZeroSeparable().values(bandit, batch) @ probabilities
        for scale in (0.6, 1.3, -0.7):
            penalty = VSolo(scale=scale)
            view = penalty.view(bandit, batch)
            z = view.charges(scale * view.weights(0.45)[:, :, None])
            assert np.abs(z).max() > 0.01
            rewards = np.asarray(batch.rewards)
            assert defect(rewards, probabilities, z) < 1e-12
            for seed in range(2):
                assert oracle.policy_defect(rewards, probabilities, z, seed) < 1e-12
            values = penalty.values(bandit, batch)
            assert values @ probabilities >= optimum - 1e-9
            # What pulls pay without the penalty is V-Zero-separable's.
            free, _, _ = view.solve(np.zeros_like(z))
            assert free @ probabilities == pytest.approx(zero, abs=1e-6)
            for i in np.linspace(0, len(listed) - 1, 8).astype(int):
                wanted = oracle.best_value(view._means[i] - z[i])
                assert values[i] == pytest.approx(wanted, abs=1e-9)


def test_penalties_of_gaussian_arms_have_mean_zero_at_every_pull():
    """z-scores of 60 means of 4,000 futures, each also times what H_a(n) tells of the arm.

    The largest of 120 exceeds 5 with probability below 1e-4; the seed is fixed.
    """
    bandit = irsppl.Bandit(GAUSSIAN, 20)
    view = VSolo().view(bandit, draw_outcomes(bandit, jax.random.key(1), 0, 4000))
    z = view.charges(view.weights(0.45)[:, :, None])
    for factor in (1.0, np.tanh(view._means)):
        x = z * factor
        score = x.mean(axis=0) / np.maximum(x.std(axis=0), 1e-12) * np.sqrt(len(x))
        assert np.abs(score).max() < 5


def test_tighter_than_the_separable_bound_and_full_feedback():
    """4 combined standard errors: a false alarm once in 30,000."""
    bandit = irsppl.Bandit(GAUSSIAN, 20)
    found = irsppl.bound(
        bandit, ["irs.v-solo", "irs.v-zero-separable", "irs.ff"], key=1, num_samples=2000
    )
    solo = found["irs.v-solo"]
    for name in ("irs.v-zero-separable", "irs.ff"):
        other = found[name]
        assert solo.value < other.value - 4 * np.hypot(solo.stderr, other.stderr)


def test_spreads_given_the_others():
    """Against the posterior covariance at each vector of counts."""
    rng = np.random.default_rng(3)
    own = np.broadcast_to(np.arange(5), (3, 5))
    others = np.array([4, 3, 2, 1, 0])
    spreads = jax.jit(lambda rewards: GAUSSIAN.along(rewards).separable(own, others)[1])
    sds = np.asarray(spreads(rng.normal(size=(3, 5))))
    prior = np.linalg.inv(np.asarray(GAUSSIAN.cov, float))
    for a, n in itertools.product(range(3), range(5)):
        counts = np.full(3, 4.0 - n)
        counts[a] = n
        cov = np.linalg.inv(prior + np.diag(counts / np.array([1.0, 0.5, 2.0]) ** 2))
        assert float(sds[a, n]) == pytest.approx(np.sqrt(cov[a, a]), rel=1e-5)


def test_a_bound_only_and_without_constraints():
    with pytest.raises(ValueError, match="only a bound where arms are correlated"):
        irsppl.choose(irsppl.Bandit(GAUSSIAN, 5), "irs.v-solo")
    with pytest.raises(ValueError, match="correlated arms with constraints, here delay"):
        irsppl.bound(irsppl.Bandit(GAUSSIAN, 5, delay=1), "irs.v-solo")
    with pytest.raises(ValueError, match="v-fit needs independent arms"):
        irsppl.bound(irsppl.Bandit(GAUSSIAN, 5), "irs.v-fit")
