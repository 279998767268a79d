"""Penalties and inner problems against exhaustive enumeration (tests/oracles/enumerate.py)."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.penalties import PENALTIES, find_evaluator, find_penalty

from .conftest import optimised
from .oracles import enumerate as oracle
from .registry import ENUMERATED

BERNOULLI = [
    ([1.0, 1.0], [1.0, 1.0], 4),
    ([3.0, 1.0], [1.0, 2.0], 5),
    ([0.5, 2.0, 1.0], [1.5, 1.0, 1.0], 3),
]
CATEGORICAL = ([[1.0, 2.0, 1.0], [2.0, 0.5, 1.0]], [0.0, 0.4, 1.0], 3)


def instances():
    for alpha, beta, horizon in BERNOULLI:
        bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon)
        yield bandit, oracle.Problem(oracle.BetaBernoulli(alpha, beta), horizon)
    alpha, values, horizon = CATEGORICAL
    bandit = irsppl.Bandit(irsppl.DirichletCategorical(alpha, values), horizon)
    yield bandit, oracle.Problem(oracle.DirichletCategorical(alpha, values), horizon)


INSTANCES = {
    f"{b.num_arms} arms, T={b.horizon}, {type(b.belief).__name__}": (b, p) for b, p in instances()
}


@pytest.fixture(params=INSTANCES)
def instance(request):
    return INSTANCES[request.param]


bound_of = functools.cache(oracle.bound)


def all_outcomes(problem):
    """Every outcome as one batch, its probabilities, and the oracle's own objects."""
    listed = list(oracle.outcomes(problem))
    values = np.asarray(problem.belief.values)
    rewards = values[np.array([o.rewards for o in listed])]
    batch = irsppl.Outcome(np.zeros(rewards.shape[1]), rewards[0])
    leaves = (jnp.zeros(rewards.shape[:2]), jnp.asarray(rewards, jnp.float32))
    batch = eqx.tree_at(lambda o: (o.means, o.rewards), batch, leaves)
    return batch, np.array([o.probability for o in listed]), listed


@pytest.mark.parametrize("penalty", ENUMERATED)
def test_inner_values_of_every_outcome_and_the_exact_bound(instance, penalty):
    """Each outcome's value against all K^T sequences; their mean against the oracle's bound."""
    bandit, problem = instance
    batch, probabilities, listed = all_outcomes(problem)
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    some = np.linspace(0, len(listed) - 1, 40).astype(int)
    emax = penalty == "irs.v-emax"
    # Of futures that differ in last rewards alone, which no pull pays for, one stands for all:
    # laws of Dirichlet means take long.
    kind = np.unique(batch.rewards[:, :, :-1], axis=0, return_inverse=True)[1].ravel()
    if not emax:
        kind = np.arange(len(listed))
    first = np.unique(kind, return_index=True)[1]
    with optimised(emax):
        rows = np.concatenate([some, first])
        values = PENALTIES[penalty].values(
            bandit, jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[rows]), batch)
        )
    expected = [oracle.inner_value(problem, penalty, listed[i]) for i in some]
    tolerance = 2e-4 if emax else 1e-5  # float32 off the two-armed kernel
    np.testing.assert_allclose(values[: len(some)], expected, rtol=tolerance, atol=tolerance)
    bound = bound_of(problem, penalty)
    found = values[len(some) :][kind] @ probabilities
    assert found == pytest.approx(bound, rel=tolerance)


@pytest.mark.parametrize("penalty", ENUMERATED)
def test_traced_and_host_values_agree(instance, penalty):
    bandit, problem = instance
    batch, _, _ = all_outcomes(problem)
    many = 12 if penalty == "irs.v-emax" else 50  # laws of Dirichlet means take long
    some = jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // many)], batch)
    solve = jax.jit(jax.vmap(lambda o: PENALTIES[penalty].inner(bandit, o)))
    traced = solve(some)
    np.testing.assert_allclose(
        traced.value, PENALTIES[penalty].values(bandit, some), rtol=2e-4, atol=2e-4
    )
    assert np.all(np.asarray(traced.pulls).sum(axis=1) == bandit.horizon)


def test_order_of_the_bounds(instance):
    """V* <= V-EMax, V-Zero, FF, FH <= TS; V-Zero <= FH; FF <= FH (independent arms, no budget)."""
    bandit, problem = instance
    w = {name: bound_of(problem, name) for name in [*ENUMERATED, "ts"]}
    optimum = oracle.optimal_value(problem)
    slack = 1e-9
    assert all(optimum <= value + slack for value in w.values())
    assert w["irs.v-zero"] <= w["irs.fh"] + slack and w["irs.fh"] <= w["ts"] + slack
    assert w["irs.ff"] <= w["irs.fh"] + slack
    assert w["irs.v-emax"] <= w["ts"] + slack
    assert irsppl.bound(bandit, "ideal").value == pytest.approx(optimum, abs=1e-9)


def policies(num_arms):
    def greedy_on_last(history):
        return (
            0
            if not history
            else (history[-1][0] if history[-1][1] else (history[-1][0] + 1) % num_arms)
        )

    return {
        "always the last arm": lambda history: num_arms - 1,
        "in turn": lambda history: len(history) % num_arms,
        "win-stay": greedy_on_last,
        "at random": lambda history: [1 / num_arms] * num_arms,
    }


@pytest.mark.parametrize("penalty", [*ENUMERATED, "ts", "ideal"])
def test_penalties_have_zero_mean_under_any_policy_that_does_not_look_ahead(penalty):
    problem = oracle.Problem(oracle.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), 3)
    for name, policy in policies(2).items():
        mean = oracle.policy_mean_penalty(problem, penalty, policy)
        assert abs(mean) < 1e-12, (penalty, name)


def test_worked_example(worked):
    """Inner values to 1e-6, the V-Zero allocation, the V-EMax sequence, all as in the paper."""
    bandit, outcome, example = worked
    ours = {
        "zero": "zero",
        "TS": "ts",
        "IRS.FH": "irs.fh",
        "IRS.V-Zero": "irs.v-zero",
        "IRS.V-EMax": "irs.v-emax",
        "ideal": "ideal",
    }
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: (
                jnp.asarray(np.asarray(x), jnp.float64)
                if jnp.issubdtype(x.dtype, jnp.floating)
                else x
            ),
            (
                bandit,
                irsppl.Outcome(
                    **{k: np.asarray(v, np.float64) for k, v in example["outcome"].items()}
                ),
            ),
        )
        solved = {name: irsppl.solve_inner(*_pair(wide, name)) for name in ours.values()}
        for printed, name in ours.items():
            expected = example["inner_values_exact"][printed]
            assert float(solved[name].value) == pytest.approx(expected, abs=1e-6), name
    assert np.asarray(solved["irs.v-zero"].pulls).tolist() == [6, 2, 0]
    assert int(solved["irs.v-zero"].action) == 0
    sequence = [arm - 1 for arm in example["inner_solutions"]["IRS.V-EMax_sequence"]]
    assert np.asarray(solved["irs.v-emax"].sequence).tolist() == sequence
    ideal = [arm - 1 for arm in example["inner_solutions"]["ideal_sequence"]]
    assert np.asarray(solved["ideal"].sequence).tolist() == ideal
    assert int(solved["ts"].action) == 2 and int(solved["irs.fh"].action) == 1
    single = float(irsppl.solve_inner(bandit, "irs.v-emax", outcome).value)
    assert single == pytest.approx(example["inner_values_exact"]["IRS.V-EMax"], abs=1e-5)


def _pair(wide, name):
    bandit, outcome = wide
    return bandit, name, outcome


@pytest.mark.parametrize("penalty", [*ENUMERATED, "ts"])
def test_relabelling_arms_relabels_the_solution(penalty):
    order = [2, 0, 1]
    alpha, beta = np.array([2.0, 1.1, 1.7]), np.array([1.3, 0.9, 2.2])
    bandit = irsppl.Bandit(irsppl.NormalNormal(alpha, beta, [1.0, 0.7, 1.4]), 6)
    moved = irsppl.Bandit(
        irsppl.NormalNormal(alpha[order], beta[order], np.array([1.0, 0.7, 1.4])[order]), 6
    )
    outcome = bandit.belief.sample_outcome(3, 6)  # Gaussian: ties have probability zero
    other = irsppl.Outcome(np.asarray(outcome.means)[order], np.asarray(outcome.rewards)[order])
    one, two = (
        irsppl.solve_inner(*x) for x in ((bandit, penalty, outcome), (moved, penalty, other))
    )
    assert float(one.value) == pytest.approx(float(two.value), rel=1e-5)
    np.testing.assert_array_equal(np.asarray(one.pulls)[order], two.pulls)
    assert order[int(two.action)] == int(one.action)


def test_state_in_play_is_an_instance_of_its_own():
    """After pulls, the inner problem is that of the remaining horizon from the new belief."""
    start = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), 6)
    played = start.pull(0, 1).pull(1, 0)
    fresh = irsppl.Bandit(irsppl.BetaBernoulli([2.0, 2.0], [1.0, 2.0]), 4)
    outcome = irsppl.Outcome([0.6, 0.4], [[1, 0, 1, 1], [0, 1, 1, 0]])
    for name in set(PENALTIES) - {"lagrangian"}:  # which has no inner problem
        one, two = (
            irsppl.solve_inner(played, name, outcome),
            irsppl.solve_inner(fresh, name, outcome),
        )
        assert float(one.value) == pytest.approx(float(two.value), rel=1e-5), name
        np.testing.assert_array_equal(one.pulls, two.pulls)


def test_pending_rewards_come_first_in_an_outcome():
    """A pending pull's reward is read from the front of its arm's row, and then is known."""
    start = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), 5)
    waiting = start.pull(0)
    arrived = start.pull(0, 1)
    outcome = irsppl.Outcome([0.6, 0.4], [[1, 0, 1, 1, 0], [0, 1, 1, 0, 1]])
    later = irsppl.Outcome([0.6, 0.4], [[0, 1, 1, 0], [0, 1, 1, 0]])
    for name in ("ts", *ENUMERATED):
        one, two = (
            irsppl.solve_inner(waiting, name, outcome),
            irsppl.solve_inner(arrived, name, later),
        )
        assert float(one.value) == pytest.approx(float(two.value), rel=1e-5), name
    with pytest.raises(ValueError, match="at least 5 rewards"):
        irsppl.solve_inner(waiting, "irs.fh", later)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_jax_and_compiled_allocation_agree(dtype):
    rng = np.random.default_rng(5)
    payoffs = np.zeros((30, 4, 41), dtype)
    payoffs[:, :, 1:] = rng.normal(size=(30, 4, 40)).cumsum(axis=2)
    with jax.enable_x64(dtype is np.float64):
        values, counts = allocate_batch(payoffs)
        for i in range(30):
            value, count = jax.jit(allocate)(jnp.asarray(payoffs[i]), 40)
            assert float(value) == pytest.approx(float(values[i]), rel=1e-5)
            np.testing.assert_array_equal(count, counts[i])
            # A smaller total is the problem cut short.
            shorter, _ = jax.jit(allocate)(jnp.asarray(payoffs[i]), 17)
            cut, _ = allocate_batch(np.ascontiguousarray(payoffs[i : i + 1, :, :18]))
            assert float(shorter) == pytest.approx(float(cut[0]), rel=1e-5)


def test_lattice_too_large_is_refused_with_its_size():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(10), np.ones(10)), 500)
    with pytest.raises(ValueError, match=r"10 arms and horizon 500 give 3e\+20 count vectors"):
        irsppl.choose(bandit, "irs.v-emax")


def test_whose_inner_values_need_no_xla():
    """By bandit; `ideal` and `lagrangian` are never sampled."""
    anywhere = {"ts", "irs.v-solo", "irs.v-fit"}
    conjugate = {"irs.fh", "irs.ff", "irs.v-zero", "irs.v-zero-separable", "irs.mix"}
    two, three = ([1.0] * n for n in (2, 3))
    linear = irsppl.LinearGaussian(np.eye(2), [0.0, 0.0], np.eye(2), 1.0)
    beta = irsppl.BetaBernoulli(two, two)
    for bandit, wanted in (
        (irsppl.Bandit(beta, 3), {"irs.v-emax", "zero"} | conjugate),
        (irsppl.Bandit(irsppl.BetaBernoulli(three, three), 3), {"zero"} | conjugate),
        (irsppl.Bandit(irsppl.GammaPoisson(two, two), 3), {"zero"} | conjugate),
        (irsppl.Bandit(linear, 3), {"zero"}),
        (irsppl.Bandit(beta, 3).pull(0), set()),
        (irsppl.Bandit(beta, 3, delay=1), set()),
    ):
        found = {name for name, p in PENALTIES.items() if find_evaluator(p, bandit) is not None}
        assert found == wanted | anywhere


def test_v_emax_of_sparse_categorical_arms_is_a_bound():
    """Over all futures of 3 periods; an inaccurate P(mu <= x) made it 1.7e-4 less than V*."""
    alpha, horizon = np.array([[0.01, 0.03], [0.1, 0.01]]), 3
    bandit = irsppl.Bandit(irsppl.DirichletCategorical(alpha, [0.0, 1.0]), horizon)
    paths = np.array(list(itertools.product([0, 1], repeat=horizon)))
    chance = np.ones((2, len(paths)))
    for arm, path in itertools.product(range(2), range(len(paths))):
        seen = alpha[arm].copy()
        for reward in paths[path]:
            chance[arm, path] *= seen[reward] / seen.sum()
            seen[reward] += 1
    pairs = np.array(list(itertools.product(range(len(paths)), repeat=2)))
    rewards = paths[pairs].astype(np.float32)
    futures = irsppl.Outcome(np.zeros((len(pairs), 2), np.float32), rewards)
    with optimised():
        values = find_penalty("irs.v-emax").values(bandit, futures)
    bound = np.sum(chance[0, pairs[:, 0]] * chance[1, pairs[:, 1]] * values)
    assert bound >= irsppl.bound(bandit, "ideal").value - 2e-6
