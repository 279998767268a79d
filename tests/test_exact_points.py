"""V* of beliefs that are points, and bounds of a model with continuous rewards, by dense grids.

Statistical assertions use 4 standard errors, one-sided: 1 false alarm in 30,000 each; there are
fewer than 20 of them, with fixed seeds.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import expit

import irsppl
from irsppl.futures import draw_outcomes
from irsppl.inner import bellman
from irsppl.penalties import find_penalty, ideal

from . import kernels
from .conftest import within
from .oracles import dense_grid
from .oracles import enumerate as oracle

BINARY = np.array([0.0, 1.0])


def logistic(mean, sd):
    def arm(reward=None):
        theta = numpyro.sample("theta", dist.Normal(mean, sd))
        numpyro.sample("reward", dist.Bernoulli(logits=theta), obs=reward)

    return arm


WIDE_NARROW = (0.0, 1.5), (0.3, 0.4)
LOGISTIC, NARROW = (logistic(*law) for law in WIDE_NARROW)


def logistic_oracle(mean, sd):
    theta, weights = dense_grid.normal_grid(mean, sd)
    p = expit(theta)
    return dense_grid.CountArm(weights, np.stack([1 - p, p], axis=1), BINARY)


@functools.cache
def wide_and_narrow():
    return irsppl.from_numpyro([LOGISTIC, NARROW])


def compound(reward=None):
    kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.6, 0.4])))
    numpyro.sample("reward", dist.Bernoulli(jnp.array([0.2, 0.75])[kind]), obs=reward)


COMPOUND = dense_grid.CountArm(np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.25, 0.75]]), BINARY)


def pair_of_trials(reward=None):
    """Rewards 0, 1, 2: more values than the other arms have; some are impossible for one kind."""
    kind = numpyro.sample("kind", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    numpyro.sample("reward", dist.Binomial(2, jnp.array([0.1, 0.4, 1.0])[kind]), obs=reward)


PAIR_OF_TRIALS = dense_grid.CountArm(
    np.array([0.5, 0.3, 0.2]),
    np.array([[0.81, 0.18, 0.01], [0.36, 0.48, 0.16], [0.0, 0.0, 1.0]]),
    np.array([0.0, 1.0, 2.0]),
)


# ---- the figures of the design


@functools.cache
def slow_logistic():
    arms = [logistic_oracle(0.0, 1.5)] * 2
    return {
        "ideal": dense_grid.optimal_value(arms, 20),
        "irs.fh": 20 * dense_grid.expected_max_after(arms, 19),
        "ts": 20 * dense_grid.expected_max_of_two(lambda z: expit(1.5 * z)),
    }


@pytest.mark.parametrize("x64", [False, True])
def test_two_logistic_normal_arms(x64):
    """V*, W^FH and W^TS of theta ~ N(0, 1.5^2), T = 20, in both precisions, against a grid."""
    with jax.enable_x64(x64):
        bandit = irsppl.Bandit(irsppl.from_numpyro(LOGISTIC, 2), 20)
        found = {name: irsppl.bound(bandit, name) for name in ("ideal", "irs.fh", "ts")}
    assert all(bound.exact and bound.stderr == 0 for bound in found.values())
    slow = slow_logistic()
    figures = {"ideal": 12.209843, "irs.fh": 12.940780, "ts": 13.125440}
    for name, figure in figures.items():
        assert slow[name] == pytest.approx(figure, abs=6e-7), name
        assert found[name].value == pytest.approx(figure, abs=1e-6), name
    assert found["ts"].regret_bound == 0
    assert found["ideal"].regret_bound == pytest.approx(13.125440 - 12.209843, abs=2e-6)


# ---- other arms, other rewards


def test_different_arms_with_different_rewards():
    """Quadrature beside quadrature; two kinds beside three rewards, one arm padded."""
    mixed = irsppl.Bandit(irsppl.from_numpyro([LOGISTIC, NARROW, LOGISTIC]), 6)
    wide = logistic_oracle(0.0, 1.5)
    expected = dense_grid.optimal_value([wide, logistic_oracle(0.3, 0.4), wide], 6)
    assert irsppl.bound(mixed, "ideal").value == pytest.approx(expected, abs=1e-6)
    listed = irsppl.Bandit(irsppl.from_numpyro([compound, pair_of_trials]), 6)
    arms = [COMPOUND, PAIR_OF_TRIALS]
    expected = dense_grid.optimal_value(arms, 6)
    assert irsppl.bound(listed, "ideal").value == pytest.approx(expected, abs=1e-6)
    # The rewards of the second arm are counted as its own, and 2 settles which kind it is.
    outcome = irsppl.Outcome([0.2, 2.0], [[1.0] * 6, [2.0] * 6])
    solved = ideal.Ideal().inner(listed, outcome)
    assert float(solved.value) == pytest.approx(expected, abs=1e-6)
    assert int(solved.pulls.sum()) == 6 and solved.pulls[1] >= 1
    after = listed.pull(1, 2.0)
    left = dense_grid.CountArm(
        PAIR_OF_TRIALS.evidence((0, 0, 1)) / PAIR_OF_TRIALS.evidence((0, 0, 1)).sum(),
        PAIR_OF_TRIALS.chances,
        PAIR_OF_TRIALS.values,
    )
    expected = dense_grid.optimal_value([COMPOUND, left], 5)
    assert irsppl.bound(after, "ideal").value == pytest.approx(expected, abs=1e-6)


def shared_coin(arm, reward=None):
    """Two arms, one hidden state of three: what one arm pays is news about the other."""
    state = numpyro.sample("state", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    p = jnp.array([[0.8, 0.3], [0.3, 0.8], [0.1, 0.05]])[state, arm]
    numpyro.sample("reward", dist.Bernoulli(p), obs=reward)


def test_correlated_arms():
    """The Bellman recursion of a joint belief, at the start and after a reward."""
    bandit = irsppl.Bandit(irsppl.from_numpyro_joint(shared_coin, num_arms=2), 5)
    p = np.array([[0.8, 0.3], [0.3, 0.8], [0.1, 0.05]])
    prior = np.array([0.5, 0.3, 0.2])
    for state in (bandit, bandit.pull(0, 0)):
        horizon = int(state.remaining)
        belief = oracle.JointDiscrete(prior, np.stack([1 - p, p], axis=2), BINARY)
        expected = oracle.optimal_value(oracle.Problem(belief, horizon))
        found = irsppl.bound(state, "ideal", num_samples=2)  # W^TS alone is sampled here
        assert found.value == pytest.approx(expected, abs=1e-6)
        prior = prior * (1 - p[:, 0])
    data = irsppl.simulate(bandit, ["opt"], key=2, num_replications=3000)
    value = data["value"].values[0]
    within(value.mean(), value.std() / np.sqrt(3000), ideal.Ideal().exact(bandit))


# ---- the policy


def test_opt_attains_the_optimum():
    bandit = irsppl.Bandit(irsppl.from_numpyro(LOGISTIC, 2), 20)
    optimum = irsppl.bound(bandit, "ideal").value
    data = irsppl.simulate(bandit, ["opt"], key=1, num_replications=4000)
    regret = data["regret"].values[0]
    within(regret.mean(), regret.std() / np.sqrt(4000), 13.125440 - optimum)


def test_opt_in_play_follows_the_recursion():
    """Decisions of a point belief that data have reached, against values of both actions."""
    bandit = irsppl.Bandit(wide_and_narrow(), 6)
    arms = [logistic_oracle(0.0, 1.5), logistic_oracle(0.3, 0.4)]
    for reward in (1, 0, 0, 1, 1, 0):
        horizon = int(bandit.remaining)
        q = []
        for a in (0, 1):
            total = arms[a].mean((0, 0))
            for c, p in enumerate(arms[a].predictive((0, 0))):
                later = [seen(arms[0], c), arms[1]] if a == 0 else [arms[0], seen(arms[1], c)]
                total += p * dense_grid.optimal_value(later, horizon - 1)
            q.append(total)
        arm = irsppl.choose(bandit, "opt")
        assert q[arm] == pytest.approx(max(q), abs=1e-6)
        assert irsppl.bound(bandit, "ideal").value == pytest.approx(max(q), abs=1e-6)
        assert irsppl.action_probabilities(bandit, "opt")[arm] == 1
        bandit = bandit.pull(arm, reward)
        arms[arm] = seen(arms[arm], reward)


def seen(arm, category):
    counts = tuple(int(c == category) for c in range(len(arm.values)))
    post = arm.evidence(counts)
    return dense_grid.CountArm(post / post.sum(), arm.chances, arm.values)


# ---- refusals


@pytest.mark.parametrize(
    ("belief", "words"),
    [
        (
            lambda: particles(8),
            "particles are only a random sample.*'quadrature'.*irs.v-zero.*irs.index",
        ),
        (lambda: irsppl.from_numpyro(student, 2), "finitely many values.*irs.v-zero.*irs.index"),
        (lambda: irsppl.GammaPoisson([2.0, 3.0], [1.0, 1.0]), "finitely many values.*GammaPoisson"),
    ],
)
def test_refusals_say_why_and_what_instead(belief, words):
    bandit = irsppl.Bandit(belief(), 5)
    with pytest.raises(ValueError, match=words):
        irsppl.bound(bandit, "ideal")
    with pytest.raises(ValueError, match=words):
        irsppl.choose(bandit, "opt")


def test_too_many_states_are_refused_before_any_work():
    bandit = irsppl.Bandit(irsppl.from_numpyro(LOGISTIC, 4), 80)
    with pytest.raises(ValueError, match=r"states.*MB.*irs\.v-zero"):
        irsppl.bound(bandit, "ideal")


def test_bad_tables_are_refused():
    likelihood = np.full((2, 3, 2), 0.5)
    with pytest.raises(ValueError, match=r"prior must be \[2, 3\] probabilities"):
        bellman.solve_points(np.ones((2, 2)), likelihood, BINARY, 3)
    with pytest.raises(ValueError, match="sum to one"):
        bellman.solve_points(np.ones((2, 3)), likelihood * 0.9, BINARY, 3)
    with pytest.raises(ValueError, match=r"\[K, N, C\]"):
        bellman.solve_points(np.ones((2, 3)), likelihood[0], BINARY, 3)


# ---- the recursion itself


@pytest.mark.parametrize("num_categories", [2, 4])
def test_points_of_a_dirichlet_prior_and_weights(num_categories):
    """Random points, rewards and survivor weights, against the dictionary recursion."""
    rng = np.random.default_rng(num_categories)
    prior = rng.dirichlet(np.ones(5), size=3)
    likelihood = rng.dirichlet(np.ones(num_categories), size=(3, 5))
    likelihood[1, 2] = np.eye(num_categories)[1]
    values = rng.normal(size=(3, num_categories))
    weights = np.sort(rng.uniform(size=4))[::-1]
    arms = [dense_grid.CountArm(*row) for row in zip(prior, likelihood, values, strict=True)]
    solution = bellman.solve_points(7 * prior, likelihood, values, 4, weights)
    assert solution.value == pytest.approx(dense_grid.optimal_value(arms, 4, weights), abs=1e-12)
    # The same arms as one joint belief over all 125 combinations.
    together = np.einsum("i,j,k->ijk", *prior).ravel()
    index = np.stack(np.unravel_index(np.arange(125), (5, 5, 5)), axis=1)
    joint = likelihood[np.arange(3)[None, :], index]
    other = bellman.solve_joint(together, joint, values, 4, weights)
    np.testing.assert_allclose(solution.q, other.q, atol=1e-12)
    np.testing.assert_array_equal(solution.table, other.table)


def test_geometric_weights_are_discounting():
    """P(T >= t) = 0.5^(t-1): a coin decides after each period. Value iteration without an end."""
    alpha, beta, discount, horizon = np.array([1.0, 2.0]), np.array([1.0, 1.5]), 0.5, 24
    weights = discount ** np.arange(horizon)
    slow = dense_grid.discounted_value(alpha, beta, discount, horizon)
    fast = kernels.solve_bernoulli(alpha, beta, horizon, weights)
    general = bellman.solve(np.stack([beta, alpha], axis=1), BINARY, horizon, weights)
    dense = bellman.solve_independent(np.stack([beta, alpha], axis=1), BINARY, horizon, weights)
    for solution in (fast, general, dense):
        assert solution.value == pytest.approx(slow, abs=1e-6)
    assert slow > 2 * 4 / 7 + 1e-3  # more than the better arm alone: learning pays here too


def test_survivor_weights_of_a_bandit(monkeypatch):
    """A horizon that is a law: each period counts as often as it is played."""
    survivor = np.array([0.9, 0.8, 0.4, 0.3, 0.3, 0.05])
    monkeypatch.setattr(ideal, "_solved", [])
    for belief, arms in (
        (wide_and_narrow(), [logistic_oracle(*x) for x in WIDE_NARROW]),
        (irsppl.BetaBernoulli([1.0, 2.0], [1.0, 2.5]), None),
    ):
        bandit = irsppl.Bandit(belief, horizon=survivor)
        if arms is None:
            slow = oracle.optimal_value(
                oracle.Problem(oracle.BetaBernoulli([1.0, 2.0], [1.0, 2.5]), survival=survivor)
            )
        else:
            slow = dense_grid.optimal_value(arms, 6, survivor)
        assert irsppl.bound(bandit, "ideal").value == pytest.approx(slow, abs=1e-6)
    # Played on, conjugate arms keep their table: later weights are the old ones but for a factor.
    tables = len(ideal._solved)
    irsppl.choose(bandit.pull(0, 1), "opt")
    assert len(ideal._solved) == tables
    # A table of the same arms without a law, or with another, is not taken for this one.
    for horizon in (6, survivor**2):
        other = irsppl.bound(irsppl.Bandit(bandit.belief, horizon=horizon), "ideal").value
        assert abs(other - slow) > 0.1


def test_a_table_is_not_taken_for_that_of_a_prior_nearby():
    values = [
        irsppl.bound(irsppl.Bandit(irsppl.BetaBernoulli([a, 1.0], [1.0, 1.0]), 40), "ideal").value
        for a in (1.0, 1.000005)
    ]
    assert 1e-6 < values[1] - values[0] < 1e-3


def test_late_rewards_and_money_are_refused():
    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 2.5])
    for bandit, words in (
        (irsppl.Bandit(belief, 6, delay=2), "does not plan for a delay"),
        (irsppl.Bandit(belief, costs=[1, 2], budget=6), "does not plan for a budget"),
    ):
        with pytest.raises(ValueError, match=words):
            irsppl.bound(bandit, "ideal")
        with pytest.raises(ValueError, match=words):
            irsppl.choose(bandit, "opt")


# ---- continuous rewards: Student t with a normal location, on a dense grid

FREEDOM, SCALE, HORIZON = 4.0, 0.8, 6
NAMES = ("ts", "irs.fh", "irs.ff", "irs.v-zero")


def student(reward=None):
    centre = numpyro.sample("centre", dist.Normal(0.2, 1.0))
    numpyro.sample("reward", dist.StudentT(FREEDOM, centre, SCALE), obs=reward)


@functools.cache
def particles(size):
    return irsppl.from_numpyro(student, 2, representation="particles", num_particles=size)


def student_oracle(size):
    theta, weights = dense_grid.normal_grid(0.2, 1.0, size=size)
    return dense_grid.Arm(
        theta,
        weights,
        lambda reward, at: dense_grid.student_t_log_density(reward, FREEDOM, at, SCALE),
        lambda at: at,
    )


def slow_values(means, rewards, size=2001):
    arms = [student_oracle(size)] * 2
    return dense_grid.inner_values(arms, means.astype(float), rewards.astype(float))


@pytest.mark.parametrize("x64", [False, True])
def test_quadrature_against_the_grid(x64):
    """Inner values on the same 12 futures.

    What limits the agreement in float64 is that nodes end six prior standard deviations out: two
    outliers in a row (6.0 and 5.4 in one of these futures) leave some of the posterior beyond.
    """
    with jax.enable_x64(x64):
        bandit = irsppl.Bandit(irsppl.from_numpyro(student, 2), HORIZON)
        futures = draw_outcomes(bandit, jax.random.key(3), 0, 12)
        slow = slow_values(np.asarray(futures.means), np.asarray(futures.rewards))
        for name in NAMES:
            ours = find_penalty(name).values(bandit, futures)
            np.testing.assert_allclose(ours, slow[name], rtol=1e-4, atol=1e-5)


def test_particle_bounds_are_never_below_the_grids():
    """The same futures, valued within each future's own particles and on the grid.

    A future's truth lies among its particles, so that both means estimate a bound for the same
    prior, the particles' the looser one; it must tighten as their number grows.
    """
    key = jax.random.key(7)
    excess = {}
    # With 8 particles the looseness itself is to be seen, which takes the most futures.
    for size, count in ((8, 8000), (128, 2000)):
        bandit = irsppl.Bandit(particles(size), HORIZON)
        futures = draw_outcomes(bandit, key, 0, count)
        # 401 points say the same to 1e-14.
        slow = slow_values(np.asarray(futures.means), np.asarray(futures.rewards), 151)
        for name in NAMES:
            gap = find_penalty(name).values(bandit, futures) - slow[name]
            excess[name, size] = gap.mean(), gap.std(ddof=1) / np.sqrt(count)
    for (name, size), (mean, error) in excess.items():
        assert mean > -4 * error - 1e-5, (name, size)
    for name in NAMES:  # 128 are enough here that no looseness is seen
        mean, error = excess[name, 128]
        assert mean < 4 * error + 1e-5, name
    loose, error = excess["irs.ff", 8]
    assert loose > 4 * error and loose > 5 * excess["irs.ff", 128][0]
