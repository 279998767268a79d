"""The Bellman solvers against slow recursions over exact states, and against reference values."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import roots_sh_jacobi

from irsppl.inner import bellman
from irsppl.inner.bellman import two_armed
from irsppl.inner.bellman.solution import DENSE

from . import kernels
from .kernels import arms_in

REFERENCE = {60: 38.562343246635564, 200: 131.094081}


def slow_solution(predictive, values, horizon, weights):
    """V*, root Q [K] and {counts: Q [K]} by memoised recursion; predictive(counts) is [K, C]."""
    num_arms, num_categories = values.shape
    q_of = {}

    @cache
    def value(counts):
        t = sum(counts)
        if t == horizon:
            return 0.0
        p = predictive(np.array(counts).reshape(num_arms, num_categories))
        q = np.zeros(num_arms)
        for a, c in itertools.product(range(num_arms), range(num_categories)):
            if p[a, c] > 0.0:
                after = list(counts)
                after[a * num_categories + c] += 1
                q[a] += p[a, c] * (weights[t] * values[a, c] + value(tuple(after)))
        q_of[counts] = q
        return q.max()

    root = (0,) * (num_arms * num_categories)
    best = value(root)
    return best, q_of[root], q_of


def dirichlet(alpha):
    return lambda x: (alpha + x) / (alpha + x).sum(axis=1, keepdims=True)


def posterior(prior, likelihood):
    def predictive(x):
        w = prior * np.prod(likelihood**x, axis=(1, 2))
        return np.einsum("j,jac->ac", w / w.sum(), likelihood)

    return predictive


def check_policy(solution, q_of, num_arms, num_categories):
    """Every reachable state's action is the lowest of the best."""
    states = np.array(list(q_of)).reshape(-1, num_arms, num_categories)
    q = np.array(list(q_of.values()))
    lowest_best = np.argmax(q >= q.max(axis=1, keepdims=True) - 1e-11, axis=1)
    np.testing.assert_array_equal(arms_in(solution, states), lowest_best)


def all_states(horizon):
    """Counts [N, 2, 2] of every two-armed Bernoulli state."""
    return np.array(
        [
            ((n1 - s1, s1), (t - n1 - s2, s2))
            for t in range(horizon)
            for n1 in range(t + 1)
            for s1 in range(n1 + 1)
            for s2 in range(t - n1 + 1)
        ]
    )


@pytest.mark.parametrize(
    ("num_arms", "num_categories", "horizon"),
    [(1, 2, 5), (2, 2, 6), (3, 2, 5), (2, 3, 5), (3, 3, 3), (1, 4, 4), (4, 2, 4)],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_independent_arms_match_slow_recursion(num_arms, num_categories, horizon, weighted):
    rng = np.random.default_rng(num_arms * 100 + num_categories * 10 + weighted)
    alpha = rng.uniform(0.3, 3.0, (num_arms, num_categories))
    values = rng.normal(size=(num_arms, num_categories))
    weights = np.sort(rng.uniform(size=horizon))[::-1].copy() if weighted else np.ones(horizon)
    best, q, q_of = slow_solution(dirichlet(alpha), values, horizon, weights)
    solution = bellman.solve_independent(alpha, values, horizon, weights if weighted else None)
    assert solution.value == pytest.approx(best, abs=1e-12)
    np.testing.assert_allclose(solution.q, q, atol=1e-12)
    check_policy(solution, q_of, num_arms, num_categories)
    assert len(q_of) == bellman.num_states(horizon, num_arms, num_categories)


def test_one_row_of_values_serves_all_arms_and_zero_alpha_pads():
    alpha = np.array([[1.0, 2.0, 0.0], [0.5, 0.5, 1.5]])
    values = np.array([0.0, 1.0, 0.4])
    best, q, _ = slow_solution(dirichlet(alpha), np.tile(values, (2, 1)), 5, np.ones(5))
    solution = bellman.solve_independent(alpha, values, 5)
    np.testing.assert_allclose(solution.q, q, atol=1e-12)
    assert solution.value == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_bernoulli_arms_match_slow_recursion(weighted):
    horizon = 6
    alpha, beta = np.array([0.7, 2.0]), np.array([1.5, 1.0])
    weights = 0.8 ** np.arange(horizon) if weighted else np.ones(horizon)
    prior = np.stack([beta, alpha], axis=1)
    values = np.array([[0.0, 1.0]] * 2)
    best, q, q_of = slow_solution(dirichlet(prior), values, horizon, weights)
    solution = bellman.solve_two_bernoulli(alpha, beta, horizon, weights)
    assert solution.value == pytest.approx(best, abs=1e-12)
    np.testing.assert_allclose(solution.q, q, atol=1e-12)
    check_policy(solution, q_of, 2, 2)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [((1.0, 1.0), (1.0, 1.0)), ((0.4, 3.0), (2.0, 1.7)), ((9.0, 1.0), (1.0, 1.0))],
)
def test_thresholds_and_dense_tables_agree_everywhere(alpha, beta):
    horizon = 22
    weights = 0.95 ** np.arange(horizon)
    states = all_states(horizon)
    thresholds = bellman.solve_two_bernoulli(alpha, beta, horizon, weights)
    dense = bellman.solve_independent(np.stack([beta, alpha], 1), [0.0, 1.0], horizon, weights)
    assert thresholds.kind != dense.kind
    expected = arms_in(dense, states)
    np.testing.assert_array_equal(arms_in(thresholds, states), expected)
    assert thresholds.value == pytest.approx(dense.value, abs=1e-12)


def test_reference_values():
    assert kernels.solve_bernoulli([1, 1], [1, 1], 60).value == pytest.approx(
        REFERENCE[60], abs=1e-9
    )
    solution = kernels.solve_bernoulli([1, 1], [1, 1], 200)
    assert solution.value == pytest.approx(REFERENCE[200], abs=5e-7)
    assert solution.table.nbytes + solution.ranks.nbytes < 2_000_000
    # T * 2/3 is what a player who knows both means earns.
    assert 200 * 2 / 3 - solution.value == pytest.approx(2.23925, abs=1e-5)


def test_a_long_horizon_needs_wider_thresholds():
    solution = bellman.solve_two_bernoulli([1, 1], [1, 1], 260)
    assert solution.table.dtype == np.uint16
    assert solution.value / 260 < 2 / 3
    # After 250 failures of arm 0 only arm 1 makes sense, and the other way round.
    assert solution.action([[250, 0], [0, 1]]) == 1
    assert solution.action([[0, 1], [250, 0]]) == 0


def test_symmetric_ties_go_to_arm_zero():
    horizon = 60
    for weights in (None, 0.5 ** np.arange(horizon)):
        solution = bellman.solve_two_bernoulli([1.3, 1.3], [0.6, 0.6], horizon, weights)
        equal = [((f, s), (f, s)) for s in range(30) for f in range(30 - s)]
        assert not arms_in(solution, np.array(equal)).any()
    three = kernels.solve_bernoulli([1.3] * 3, [0.6] * 3, 12)
    assert not arms_in(three, np.array([((f, s),) * 3 for s in range(3) for f in range(2)])).any()


def test_relabelling_the_arms_relabels_the_solution():
    alpha, beta = np.array([0.7, 2.0, 1.1]), np.array([1.5, 1.0, 0.9])
    order = np.array([2, 0, 1])
    first = kernels.solve_bernoulli(alpha, beta, 9)
    second = kernels.solve_bernoulli(alpha[order], beta[order], 9)
    np.testing.assert_allclose(second.q, first.q[order], atol=1e-12)
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, (200, 3, 2))
    states = states[states.sum(axis=(1, 2)) < 9]
    # No two of these priors ever lead to a tie.
    np.testing.assert_array_equal(order[arms_in(second, states[:, order])], arms_in(first, states))


def test_survivor_weights_are_an_average_over_horizons():
    """With both means known nothing is learnt, and the value is the expected horizon times one."""
    weights = np.array([1.0, 0.6, 0.2])
    solution = kernels.solve_bernoulli([8e9, 2e9], [2e9, 8e9], 3, weights)
    assert solution.value == pytest.approx(0.8 * weights.sum(), abs=1e-6)
    with pytest.raises(ValueError, match="weights"):
        kernels.solve_bernoulli([1, 1], [1, 1], 4, weights)


def test_solve_takes_the_fast_path_for_affine_bernoulli_arms():
    alpha = np.array([[1.0, 2.0], [3.0, 1.5]])
    values = np.array([-1.0, 2.5])
    weights = np.linspace(1.0, 0.3, 8)
    fast = bellman.solve(alpha, values, 8, weights)
    slow = bellman.solve_independent(alpha, values, 8, weights)
    assert fast.kind != slow.kind
    np.testing.assert_allclose(fast.q, slow.q, atol=1e-12)
    assert fast.value == pytest.approx(slow.value, abs=1e-12)
    np.testing.assert_array_equal(arms_in(fast, all_states(8)), arms_in(slow, all_states(8)))
    # Rewards in descending order, or different ones per arm, are left to the general solver.
    down = bellman.solve(alpha[:, ::-1], values[::-1], 8, weights)
    assert down.kind == slow.kind
    np.testing.assert_allclose(down.q, slow.q, atol=1e-12)
    assert bellman.solve(alpha, [[0, 1], [0, 2]], 8).kind == slow.kind


def test_a_rule_that_is_not_monotone_is_left_to_the_dense_solver(monkeypatch):
    kernel = two_armed._two_armed

    def pretend(*args):
        return kernel(*args)[0], False

    expected = bellman.solve_two_bernoulli([1, 2], [2, 1], 9)
    monkeypatch.setattr(two_armed, "_two_armed", pretend)
    solution = bellman.solve_two_bernoulli([1, 2], [2, 1], 9)
    assert solution.kind == DENSE != expected.kind
    assert solution.value == pytest.approx(expected.value, abs=1e-12)
    np.testing.assert_array_equal(
        arms_in(solution, all_states(9)), arms_in(expected, all_states(9))
    )


@pytest.mark.parametrize("num_categories", [2, 3])
def test_joint_prior_matches_slow_recursion(num_categories):
    rng = np.random.default_rng(num_categories)
    prior = rng.dirichlet(np.ones(4))
    likelihood = rng.dirichlet(np.ones(num_categories), size=(4, 2))
    # An impossible category must not spoil the states before it is seen.
    likelihood[0, 1] = np.eye(num_categories)[0]
    values = rng.normal(size=(2, num_categories))
    weights = 0.9 ** np.arange(5)
    best, q, q_of = slow_solution(posterior(prior, likelihood), values, 5, weights)
    solution = bellman.solve_joint(prior, likelihood, values, 5, weights)
    assert solution.value == pytest.approx(best, abs=1e-12)
    np.testing.assert_allclose(solution.q, q, atol=1e-12)
    check_policy(solution, q_of, 2, num_categories)


def test_joint_product_prior_equals_independent_arms():
    """Gauss-Jacobi nodes have the moments of a Beta, which is all a short horizon can see."""
    horizon = 7
    alpha, beta = np.array([1.0, 0.7]), np.array([1.0, 2.2])
    nodes, masses = zip(
        *(roots_sh_jacobi(horizon, a + b - 1.0, a) for a, b in zip(alpha, beta, strict=True)),
        strict=True,
    )
    theta = np.array(list(itertools.product(*nodes)))
    prior = np.array([m1 * m2 for m1, m2 in itertools.product(*masses)])
    joint = bellman.solve_joint(prior, np.stack([1.0 - theta, theta], axis=2), [0.0, 1.0], horizon)
    independent = kernels.solve_bernoulli(alpha, beta, horizon)
    np.testing.assert_allclose(joint.q, independent.q, atol=1e-11)
    np.testing.assert_array_equal(
        arms_in(joint, all_states(horizon)), arms_in(independent, all_states(horizon))
    )


def test_a_joint_prior_exploits_correlation():
    """Arm 1 pays what arm 0 does not: one pull of either tells all."""
    likelihood = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    solution = bellman.solve_joint([0.5, 0.5], likelihood, [0.0, 1.0], 10)
    assert solution.value == pytest.approx(9.5)
    assert solution.action([[1, 0], [0, 0]]) == 1
    assert solution.action([[0, 1], [0, 0]]) == 0


@pytest.mark.parametrize("kind", ["thresholds", "three arms", "categories", "joint"])
def test_paths_follow_the_table(kind):
    rng = np.random.default_rng(3)
    if kind == "thresholds":
        solution = kernels.solve_bernoulli([1, 2], [1, 2], 20)
    elif kind == "three arms":
        solution = kernels.solve_bernoulli([1, 1, 1], [1, 1, 1], 10)
    elif kind == "categories":
        solution = bellman.solve_independent(np.ones((2, 3)), [0.0, 0.3, 1.0], 10)
    else:
        theta = rng.uniform(size=(5, 2))
        solution = bellman.solve_joint(
            np.full(5, 0.2), np.stack([1 - theta, theta], 2), [0.0, 1.0], 10
        )
    num_arms, values = solution.q.size, np.arange(3 if kind == "categories" else 2)
    outcome = rng.integers(0, values.size, (30, num_arms, solution.horizon))
    actions = kernels.follow(kernels.optimal(solution), outcome, values=values)
    assert actions.shape == (30, solution.horizon)
    assert actions.dtype == np.int16
    counts = np.zeros((30, num_arms, values.size), np.int64)
    pulls = np.zeros((30, num_arms), np.int64)
    rows = np.arange(30)
    for t in range(solution.horizon):
        arm = arms_in(solution, counts)
        np.testing.assert_array_equal(actions[:, t], arm)
        counts[rows, arm, outcome[rows, arm, pulls[rows, arm]]] += 1
        pulls[rows, arm] += 1


def test_simulated_value_of_the_policy_is_the_optimal_value():
    rng = np.random.default_rng(4)
    solution = kernels.solve_bernoulli([1, 1], [1, 1], 50)
    means = rng.uniform(size=(20_000, 2))
    rewards = (rng.uniform(size=(20_000, 2, 50)) < means[:, :, None]).astype(np.int8)
    actions = kernels.follow(kernels.optimal(solution), rewards)
    # The best mean is known on average, so the regret is the quieter quantity.
    regret = 50 * means.max(axis=1) - np.take_along_axis(means, actions.astype(int), 1).sum(axis=1)
    error = regret.std() / np.sqrt(regret.size)
    assert regret.mean() == pytest.approx(50 * 2 / 3 - solution.value, abs=4.5 * error)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match=r"6,522,361,560 states.*MB.*shorten the horizon"):
        kernels.solve_bernoulli([1] * 4, [1] * 4, 60)
    with pytest.raises(ValueError, match="MB"):
        bellman.solve_two_bernoulli([1, 1], [1, 1], 2000)
    with pytest.raises(ValueError, match="horizon"):
        kernels.solve_bernoulli([1, 1], [1, 1], 0)
    with pytest.raises(ValueError, match="positive"):
        bellman.solve_two_bernoulli([1, 0], [1, 1], 5)
    with pytest.raises(ValueError, match="values"):
        bellman.solve_independent(np.ones((2, 3)), [0.0, 1.0], 5)
    with pytest.raises(ValueError, match="likelihood"):
        bellman.solve_joint([1.0], np.full((1, 2, 2), 0.4), [0.0, 1.0], 3)
    solution = kernels.solve_bernoulli([1, 1], [1, 1], 5)
    with pytest.raises(ValueError, match="total below the horizon 5"):
        solution.action([[5, 0], [0, 0]])
