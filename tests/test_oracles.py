"""The oracles against each other, the paper's worked example and figures computed elsewhere."""

import itertools
import math

import numpy as np
import pytest

from .oracles import enumerate as exact
from .oracles import laws, paper

# --- the worked example of the paper's appendix: three Bernoulli arms, eight periods ------

ALPHA, BETA, HORIZON = (3, 1, 1), (1, 1, 3), 8
MEANS = (0.235, 0.443, 0.787)
REWARDS = (
    (0, 1, 1, 1, 0, 0, 0, 0),
    (1, 0, 0, 1, 1, 1, 1, 0),
    (1, 1, 1, 1, 0, 0, 1, 1),
)
INNER = {
    "zero": 7.0,
    "ts": 6.296,
    "irs.fh": 5.333333333333333,
    "irs.v-zero": 5.314285714285715,
    "irs.v-emax": 5.806207681207685,
    "ideal": 6.063214285714286,
}
BOUNDS = {
    "zero": 6.80708514628801,
    "ts": 6.428571428571429,
    "irs.fh": 6.282239057239057,
    "irs.v-zero": 6.11427944768328,
    "irs.v-emax": 6.0750775316111225,
    "ideal": 6.063214285714286,
}


@pytest.fixture(scope="module")
def example():
    problem = exact.Problem(exact.BetaBernoulli(ALPHA, BETA), HORIZON)
    return problem, exact.outcome_from_rewards(problem, REWARDS, MEANS)


def allocations(sequences, arms):
    return {tuple(s.count(a) for a in range(arms)) for s in sequences}


@pytest.mark.parametrize("penalty", INNER)
def test_worked_example_inner_values(example, penalty):
    value, _ = exact.inner_solutions(*example[:1], penalty, example[1])
    assert value == pytest.approx(INNER[penalty], abs=1e-12)
    assert exact.inner_value(example[0], penalty, example[1]) == pytest.approx(value, abs=1e-12)


def test_worked_example_inner_solutions(example):
    problem, outcome = example
    solutions = {p: exact.inner_solutions(problem, p, outcome)[1] for p in INNER}
    assert allocations(solutions["zero"], 3) == {(4, 1, 3), (3, 1, 4), (4, 0, 4)}
    assert solutions["ts"] == [(2,) * 8]
    assert solutions["irs.fh"] == [(1,) * 8]
    assert allocations(solutions["irs.v-zero"], 3) == {(6, 2, 0)}
    assert solutions["irs.v-emax"] == [(0, 1, 1, 0, 0, 0, 0, 0)]
    assert solutions["ideal"] == [(0,) * 8]


@pytest.mark.parametrize("penalty", BOUNDS)
def test_worked_example_bounds(example, penalty):
    if penalty == "ideal":
        value = exact.optimal_value(example[0])
    elif penalty == "ts":
        value = exact.bound(example[0], "ts")
    else:
        value = exact.bernoulli_bound(ALPHA, BETA, HORIZON, penalty)
    assert value == pytest.approx(BOUNDS[penalty], abs=1e-11)


def test_worked_example_in_the_papers_code():
    prior = paper.Bernoulli(ALPHA, BETA)
    rewards = np.array(REWARDS, float)
    assert HORIZON * paper.fh_means(prior, rewards).max() == pytest.approx(INNER["irs.fh"])
    value, pulls = paper.v_zero_allocation(prior, rewards)
    assert value == pytest.approx(INNER["irs.v-zero"], abs=1e-12)
    assert list(pulls) == [6, 2, 0]
    value, sequence = paper.v_emax_sequence(prior, rewards)
    assert value == pytest.approx(INNER["irs.v-emax"], abs=1e-10)
    assert sequence == [0, 1, 1, 0, 0, 0, 0, 0]


def test_bounds_by_laws_in_the_worked_example():
    arms = [laws.BetaBernoulli(a, b) for a, b in zip(ALPHA, BETA, strict=True)]
    assert laws.w_ts(arms, HORIZON) == pytest.approx(BOUNDS["ts"], abs=1e-10)
    assert laws.w_fh(arms, HORIZON) == pytest.approx(BOUNDS["irs.fh"], abs=1e-11)
    full_feedback = exact.bernoulli_bound(ALPHA, BETA, HORIZON, "irs.ff")
    assert laws.w_ff(arms, HORIZON) == pytest.approx(full_feedback, abs=1e-11)


# --- figures computed elsewhere -----------------------------------------------------------


def test_two_uniform_bernoulli_arms():
    arms = [laws.BetaBernoulli(1, 1)] * 2
    ts = laws.w_ts(arms, 200)
    assert ts == pytest.approx(400 / 3, abs=1e-10)
    assert ts - laws.w_fh(arms, 200) == pytest.approx(1 / 6, abs=1e-10)
    assert ts - laws.w_ff(arms, 200) == pytest.approx(0.97967182, abs=5e-9)
    assert exact.two_bernoulli_optimal((1, 1), (1, 1), 60) == pytest.approx(
        38.562343246635564, abs=1e-10
    )


def test_optimal_value_two_ways():
    problem = exact.Problem(exact.BetaBernoulli((1.5, 1), (1, 2.5)), 7)
    fast = exact.two_bernoulli_optimal((1.5, 1), (1, 2.5), 7)
    assert exact.optimal_value(problem) == pytest.approx(fast, abs=1e-12)


@pytest.mark.parametrize(
    ("arms", "horizon", "regret_bound", "digits"),
    [
        ([laws.BetaBernoulli(1, 1)] * 10, 500, 2.94344482, 5e-9),
        ([laws.NormalNormal(0, 1, 1)] * 2, 200, 1.995, 5e-4),
        ([laws.NormalNormal(0, 1, s) for s in (0.1, 0.4, 1, 4, 10)], 500, 30.28, 5e-3),
    ],
)
def test_full_feedback_figures(arms, horizon, regret_bound, digits):
    value = laws.w_ts(arms, horizon) - laws.w_ff(arms, horizon)
    assert value == pytest.approx(regret_bound, abs=digits)


# --- enumeration: validity, order, dual feasibility ---------------------------------------

PENALTIES = [name for name in exact.PAYOFFS if name != "irs.ff-money"]  # which is for budgets


def _joint(seed, thetas, arms, categories):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(thetas))
    likelihood = rng.dirichlet(np.full(categories, 0.7), size=(thetas, arms))
    return exact.JointDiscrete(prior, likelihood, np.sort(rng.normal(size=categories)))


def _product(chances, means):
    """Independent two-point arms: mean means[a][1] with probability chances[a]."""
    thetas = list(itertools.product((0, 1), repeat=len(means)))
    prior = [
        math.prod(c if i else 1 - c for c, i in zip(chances, theta, strict=True))
        for theta in thetas
    ]
    wins = np.array([[m[i] for m, i in zip(means, theta, strict=True)] for theta in thetas])
    return exact.JointDiscrete(prior, np.stack([1 - wins, wins], axis=-1), (0, 1))


NEVER = math.inf
BETA_ARMS = exact.BetaBernoulli((1, 2), (1.5, 2))
PROBLEMS = {
    "beta": exact.Problem(BETA_ARMS, 4),
    "beta delay": exact.Problem(BETA_ARMS, 4, delay=(NEVER, 1)),
    "beta survival": exact.Problem(BETA_ARMS, survival=(1, 0.7, 0.4)),
    "beta budget": exact.Problem(BETA_ARMS, costs=(1, 1.5), budget=4),
    "dirichlet": exact.Problem(
        exact.DirichletCategorical(((1, 2, 0.5), (1, 1, 1)), (-1, 0.3, 2)), 2
    ),
    "joint": exact.Problem(_joint(0, 4, 2, 2), 4),
    "joint, three arms": exact.Problem(_joint(1, 3, 3, 2), 3),
    "joint, three values": exact.Problem(_joint(2, 3, 2, 3), 3),
    "joint delay": exact.Problem(_joint(3, 4, 2, 2), 4, delay=1),
    "joint delays": exact.Problem(_joint(4, 4, 2, 2), 4, delay=(0, 2)),
    "joint random delay": exact.Problem(
        _joint(5, 4, 2, 2), 3, delay=({0: 0.5, 1: 0.3, NEVER: 0.2}, {1: 1.0})
    ),
    "joint survival": exact.Problem(_joint(6, 4, 2, 2), survival=(1, 0.8, 0.5, 0.2)),
    "joint budget": exact.Problem(_joint(7, 4, 2, 2), costs=(1, 1.5), budget=4),
    "joint budget, horizon": exact.Problem(_joint(7, 4, 2, 2), 3, costs=(1, 1.5), budget=4),
    "joint budget, delay": exact.Problem(_joint(8, 4, 2, 2), costs=(1, 1.5), budget=4, delay=1),
}


def _penalties(problem):
    return [p for p in PENALTIES if p != "irs.v-emax" or problem.costs is None]


def _random_policy(problem, seed):
    """A fixed, arbitrary policy: even seeds choose an arm (or stop), odd ones probabilities."""
    rng, table = np.random.default_rng(seed), {}

    def policy(history):
        if history not in table:
            options = problem.options(tuple(arm for arm, _ in history))
            if seed % 2:
                table[history] = np.zeros(problem.belief.num_arms)
                table[history][options] = rng.dirichlet(np.ones(len(options)))
            else:
                table[history] = int(rng.choice(options + [-1] * problem.may_stop))
        return table[history]

    return policy


@pytest.fixture(scope="module")
def bounds():
    return {
        name: {p: exact.bound(problem, p) for p in _penalties(problem)}
        for name, problem in PROBLEMS.items()
    }


@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_are_valid_and_ideal_is_tight(name, bounds):
    problem = PROBLEMS[name]
    best = exact.optimal_value(problem)
    assert min(bounds[name].values()) >= best - 1e-9
    assert bounds[name]["ideal"] == pytest.approx(best, abs=1e-11)
    if all(len(law) == 1 for law in problem.delay_laws):
        attained = exact.policy_value(problem, exact.optimal_policy(problem))
        assert attained == pytest.approx(best, abs=1e-11)
    for seed in range(2):
        assert exact.policy_value(problem, _random_policy(problem, seed)) <= best + 1e-11


@pytest.mark.parametrize("name", PROBLEMS)
def test_penalties_have_mean_zero(name):
    problem = PROBLEMS[name]
    for penalty, seed in itertools.product(_penalties(problem), range(2)):
        mean = exact.policy_mean_penalty(problem, penalty, _random_policy(problem, seed))
        assert abs(mean) < 1e-12, (penalty, seed, mean)


@pytest.mark.parametrize("name", [n for n, p in PROBLEMS.items() if p.costs is None])
def test_guaranteed_order_without_a_budget(name, bounds):
    w = bounds[name]
    assert w["irs.ff"] <= w["irs.fh"] + 1e-12
    assert w["irs.fh"] <= w["ts"] + 1e-9
    assert w["irs.v-emax"] <= w["ts"] + 1e-9
    assert w["ts"] <= w["zero"] + 1e-9


def test_independent_arms(bounds):
    for name in ("beta", "dirichlet"):
        w = bounds[name]
        assert w["irs.v-zero-separable"] == pytest.approx(w["irs.v-zero"], abs=1e-12)
        assert w["irs.v-zero"] <= w["irs.fh"] + 1e-12
    for penalty in ("zero", "irs.fh", "irs.ff", "irs.v-zero", "irs.v-emax"):
        fast = exact.bernoulli_bound((1, 2), (1.5, 2), 4, penalty)
        assert fast == pytest.approx(bounds["beta"][penalty], abs=1e-12)


def test_v_zero_of_correlated_arms_can_exceed_ts():
    wins = np.array([[1.0, 1.0, 1.0], [0.4, 0.4, 0.2]])
    belief = exact.JointDiscrete((1, 1), np.stack([1 - wins, wins], axis=-1), (0, 1))
    problem = exact.Problem(belief, 3)
    assert exact.bound(problem, "ts") == pytest.approx(2.1, abs=1e-12)
    assert exact.optimal_value(problem) == pytest.approx(2.1, abs=1e-12)
    assert exact.bound(problem, "irs.v-zero") > 2.2
    assert exact.bound(problem, "irs.v-zero-separable") > 2.1


def test_no_order_under_unequal_costs():
    """Independent arms, costs (1, 1.5), budget 4: full feedback above TS, all above V*."""
    problem = exact.Problem(
        _product((0.6, 0.8), ((0.5, 0.0), (0.7, 1.0))), costs=(1, 1.5), budget=4
    )
    w = {p: exact.bound(problem, p) for p in ("ts", "irs.fh", "irs.ff", "irs.ff-money")}
    assert exact.optimal_value(problem) == pytest.approx(2.08, abs=1e-12)
    assert 2.08 < w["irs.fh"] < w["ts"] < w["irs.ff"] <= w["irs.ff-money"] + 1e-12


def test_fh_under_a_budget_must_not_reveal_one_fewer():
    def stingy(problem, actions, outcome):
        arm = actions[-1]

        def reveals(b, i, delay):
            return i <= math.floor((problem.budget - problem.costs[arm]) / problem.costs[b]) - 1

        return problem.belief.means(exact.revealed_counts(problem, outcome, reveals))[arm]

    problem = exact.Problem(exact.BetaBernoulli((1, 1), (1, 1)), costs=(1, 1), budget=2)
    assert exact.bound(problem, stingy) < exact.optimal_value(problem) - 0.05


def test_budget_of_equal_costs_is_a_horizon(bounds):
    problem = exact.Problem(BETA_ARMS, costs=(0.1, 0.1), budget=0.4)  # 0.4 / 0.1 is 4, exactly
    for penalty in _penalties(problem):
        assert exact.bound(problem, penalty) == pytest.approx(bounds["beta"][penalty], abs=1e-9)


@pytest.mark.parametrize(("costs", "budget"), [((1, 1.5), 4), ((1, 1.2, 2), 2)])
def test_ts_under_a_budget_by_quadrature(costs, budget):
    arms = len(costs)
    belief = exact.BetaBernoulli((1, 2, 1.5)[:arms], (1.5, 2, 1)[:arms])
    problem = exact.Problem(belief, costs=costs, budget=budget)
    draws = np.random.default_rng(0).beta(belief.alpha, belief.beta, size=(400_000, arms))
    totals = (draws @ exact.allocations(problem).T).max(axis=1)
    error = totals.std() / math.sqrt(len(totals))
    # one comparison at 4.5 standard errors: false alarm 7e-6
    assert abs(exact.bound(problem, "ts") - totals.mean()) < 4.5 * error


def test_random_horizon():
    survival = (1, 0.7, 0.4)
    problem = PROBLEMS["beta survival"]
    best = exact.optimal_value(problem)
    revealed = {p: exact.sampled_horizon_bound(BETA_ARMS, survival, p) for p in _penalties(problem)}
    assert min(revealed.values()) >= best - 1e-10
    weighted = {p: exact.bound(problem, p) for p in _penalties(problem)}
    assert revealed["ts"] == pytest.approx(weighted["ts"], abs=1e-10)
    assert revealed["irs.ff"] == pytest.approx(weighted["irs.ff"], abs=1e-10)
    assert revealed["irs.fh"] <= weighted["irs.fh"] + 1e-12
    arms = [laws.BetaBernoulli(1, 1.5), laws.BetaBernoulli(2, 2)]
    assert laws.w_ff(arms, 3, survival=survival) == pytest.approx(weighted["irs.ff"], abs=1e-12)


def test_probabilities_and_martingales():
    for name in ("beta", "dirichlet", "joint random delay"):
        problem = PROBLEMS[name]
        assert sum(o.probability for o in exact.outcomes(problem)) == pytest.approx(1, abs=1e-12)
    for belief in (BETA_ARMS, PROBLEMS["dirichlet"].belief, PROBLEMS["joint"].belief):
        now = belief.count([(0, 1), (1, 0), (0, 0)])
        for function in (belief.expected_max, lambda c, b=belief: b.means(c)[1]):
            later = sum(
                p * function(belief.count([(0, 1), (1, 0), (0, 0), (1, c)]))
                for c, p in enumerate(belief.predictive(now, 1))
            )
            assert later == pytest.approx(function(now), abs=1e-13)


def test_laws_agree_with_enumeration(bounds):
    arms = [laws.BetaBernoulli(1, 1.5), laws.BetaBernoulli(2, 2)]
    assert laws.w_ts(arms, 4) == pytest.approx(bounds["beta"]["ts"], abs=1e-10)
    assert laws.w_fh(arms, 4) == pytest.approx(bounds["beta"]["irs.fh"], abs=1e-12)
    assert laws.w_ff(arms, 4) == pytest.approx(bounds["beta"]["irs.ff"], abs=1e-12)
    late = bounds["beta delay"]
    assert laws.w_fh(arms, 4, delay=(99, 1)) == pytest.approx(late["irs.fh"], abs=1e-12)
    assert laws.w_ff(arms, 4, delay=(99, 1)) == pytest.approx(late["irs.ff"], abs=1e-12)
    values = (-1, 0.3, 2)
    arms = [laws.DirichletCategorical(a, values) for a in ((1, 2, 0.5), (1, 1, 1))]
    assert laws.w_ts(arms, 2) == pytest.approx(bounds["dirichlet"]["ts"], abs=1e-9)
    assert laws.w_fh(arms, 2) == pytest.approx(bounds["dirichlet"]["irs.fh"], abs=1e-12)
    assert laws.w_ff(arms, 2) == pytest.approx(bounds["dirichlet"]["irs.ff"], abs=1e-12)
