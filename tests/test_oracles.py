"""The oracles against each other, the paper's worked example and figures computed elsewhere."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from .oracles import enumerate as exact
from .oracles import laws, numpy_paths, paper

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


def _allocations(sequences, arms):
    return {tuple(s.count(a) for a in range(arms)) for s in sequences}


@pytest.mark.parametrize("penalty", INNER)
def test_worked_example_inner_values(example, penalty):
    value, _ = exact.inner_solutions(*example[:1], penalty, example[1])
    assert value == pytest.approx(INNER[penalty], abs=1e-12)
    assert exact.inner_value(example[0], penalty, example[1]) == pytest.approx(value, abs=1e-12)


def test_worked_example_inner_solutions(example):
    problem, outcome = example
    solutions = {p: exact.inner_solutions(problem, p, outcome)[1] for p in INNER}
    assert _allocations(solutions["zero"], 3) == {(4, 1, 3), (3, 1, 4), (4, 0, 4)}
    assert solutions["ts"] == [(2,) * 8]
    assert solutions["irs.fh"] == [(1,) * 8]
    assert _allocations(solutions["irs.v-zero"], 3) == {(6, 2, 0)}
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

PENALTIES = (
    "zero",
    "ts",
    "irs.fh",
    "irs.ff",
    "irs.v-zero",
    "irs.v-zero-separable",
    "irs.v-emax",
    "ideal",
)


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


# --- laws of the families -----------------------------------------------------------------

FAMILIES = {
    "beta": laws.BetaBernoulli(0.6, 1.7),
    "normal": laws.NormalNormal(0.3, 0.8, 1.5),
    "poisson": laws.GammaPoisson(1.4, 0.7),
    "exponential": laws.GammaExponential(3.2, 1.9),
    "normal-inverse-gamma": laws.NormalInverseGamma(0.2, 1.3, 2.5, 1.8),
    "dirichlet": laws.DirichletCategorical((0.8, 1.5, 0.6), (-1.0, 0.5, 2.0)),
}


def _simulate(arm, n, size, rng):
    """(mu `[size]`, rewards `[size, n]`) from the definition of each family."""
    if isinstance(arm, laws.BetaBernoulli):
        mu = rng.beta(arm.alpha, arm.beta, size)
        return mu, (rng.random((size, n)) < mu[:, None]).astype(float)
    if isinstance(arm, laws.NormalNormal):
        mu = rng.normal(arm.prior_mean, arm.sd, size)
        return mu, rng.normal(mu[:, None], arm.noise_sd, (size, n))
    if isinstance(arm, laws.GammaPoisson):
        mu = rng.gamma(arm.shape, 1 / arm.rate, size)
        return mu, rng.poisson(mu[:, None], (size, n)).astype(float)
    if isinstance(arm, laws.GammaExponential):
        mu = 1 / rng.gamma(arm.shape, 1 / arm.rate, size)
        return mu, rng.exponential(mu[:, None], (size, n))
    if isinstance(arm, laws.NormalInverseGamma):
        sigma = np.sqrt(1 / rng.gamma(arm.shape, 1 / arm.rate, size))
        mu = rng.normal(arm.prior_mean, sigma / math.sqrt(arm.precision))
        return mu, rng.normal(mu[:, None], sigma[:, None], (size, n))
    p = rng.dirichlet(arm.alpha, size)
    picks = (rng.random((size, n, 1)) > np.cumsum(p, axis=1)[:, None, :]).sum(axis=2)
    return p @ np.array(arm.values), np.array(arm.values)[picks]


@pytest.mark.parametrize("family", FAMILIES)
def test_laws_against_simulation(family):
    """Twelve proportions per family, each within 4.5 standard errors: false alarm 1e-4."""
    arm, size, n = FAMILIES[family], 3000, 4
    mu, rewards = _simulate(arm, n, size, np.random.default_rng(3))
    posterior_means = np.array([arm.posterior(row).mean() for row in rewards[:600]])
    for law, sample in ((arm.mean_law(), mu), (arm.predictive_law(n), posterior_means)):
        for q in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
            x = float(np.quantile(sample, q)) + 1e-9
            p = float(law.cdf(x))
            # the quantile itself is random, which is the same error as that of a proportion
            error = math.sqrt(max(p * (1 - p), 1e-3) / len(sample))
            assert abs(p - np.mean(sample <= x)) < 4.5 * error, (q, x)


@pytest.mark.parametrize("family", FAMILIES)
def test_predictive_mean_is_a_martingale(family):
    arm = FAMILIES[family]
    assert laws.expected_max_mean([arm]) == pytest.approx(arm.mean(), abs=1e-9)
    for n in (0, 1, 5):
        assert laws.expected_max_predictive([arm], n) == pytest.approx(arm.mean(), abs=1e-9)
    pair, lows = [arm, arm], []
    for n in (0, 1, 3, 8):
        lows.append(laws.expected_max_predictive(pair, n))
    assert lows == sorted(lows)
    assert lows[-1] <= laws.expected_max_mean(pair)


@pytest.mark.parametrize("family", FAMILIES)
def test_expected_max_against_lambda(family):
    arm = FAMILIES[family]
    law = arm.mean_law()
    if family == "dirichlet":
        # the average of E[max(posterior mean, lam)] over many rewards comes from below
        for lam in (-0.5, 0.4, 1.1):
            coarse = laws.expected_maximum([arm.predictive_law(60), laws.Atoms([lam], [1.0])])
            assert coarse <= arm.expected_max(lam) < coarse + 0.01
        return
    frozen = {
        "beta": stats.beta(0.6, 1.7),
        "normal": stats.norm(0.3, 0.8),
        "poisson": stats.gamma(1.4, scale=1 / 0.7),
        "exponential": stats.invgamma(3.2, scale=1.9),
        "normal-inverse-gamma": stats.t(5.0, 0.2, math.sqrt(1.8 / (2.5 * 1.3))),
    }[family]
    assert arm.mean() == pytest.approx(frozen.mean(), abs=1e-9)
    for q in (0.1, 0.5, 0.9):
        lam = float(frozen.ppf(q))
        assert law.cdf(lam) == pytest.approx(q, abs=1e-12)
        above = integrate.quad(lambda u: frozen.ppf(u), q, 1, epsabs=1e-11, limit=500)[0]
        assert arm.expected_max(lam) == pytest.approx(lam * q + above, abs=1e-7)
    assert arm.expected_max(-50.0) == pytest.approx(arm.mean(), abs=1e-4)


def test_dirichlet_law_two_ways():
    alpha, values = (0.8, 1.5, 0.6, 1.1), (-1.0, 0.5, 2.0, 0.2)
    for x in (-0.6, 0.1, 0.45, 1.3):
        sticks = laws.dirichlet_mean_cdf_by_sticks(alpha[:3], values[:3], x)
        assert laws.dirichlet_mean_cdf(alpha[:3], values[:3], x) == pytest.approx(sticks, abs=1e-9)
    # two categories are a Beta; adding a third of almost no weight changes almost nothing
    two = laws.dirichlet_mean_cdf((1.3, 2.1), (0, 1), 0.4)
    assert two == pytest.approx(stats.beta(2.1, 1.3).cdf(0.4), abs=1e-13)
    three = laws.dirichlet_mean_cdf((1.3, 2.1, 1e-9), (0, 1, 0.5), 0.4)
    assert three == pytest.approx(two, abs=1e-7)


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


# --- the paper's rules and the NumPy baseline ---------------------------------------------


def _random_prior(rng, arms, gaussian):
    if gaussian:
        return paper.Gaussian(rng.normal(size=arms) * 0.5, *(rng.random((2, arms)) + 0.2))
    return paper.Bernoulli(*(3 * rng.random((2, arms)) + 0.3))


def test_papers_inner_problems_match_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(20):
        prior = _random_prior(rng, 2, gaussian=False)
        problem = exact.Problem(exact.BetaBernoulli(prior.alpha, prior.beta), 5)
        means, rewards = paper.sample_outcome(prior, 5, rng)
        outcome = exact.outcome_from_rewards(problem, rewards, means)
        value, pulls = paper.v_zero_allocation(prior, rewards)
        best, solutions = exact.inner_solutions(problem, "irs.v-zero", outcome)
        assert value == pytest.approx(best, abs=1e-12)
        assert tuple(pulls) in _allocations(solutions, 2)
        value, sequence = paper.v_emax_sequence(prior, rewards)
        best, solutions = exact.inner_solutions(problem, "irs.v-emax", outcome)
        assert value == pytest.approx(best, abs=1e-9)
        assert tuple(sequence) in solutions
        fh = 5 * paper.fh_means(prior, rewards).max()
        assert fh == pytest.approx(exact.inner_value(problem, "irs.fh", outcome), abs=1e-12)


def _single_arm_by_brute_force(beliefs, lam):
    """Best payoff of the single-armed problem with at least one pull, less T lam (from its sum)."""
    horizon = len(beliefs) - 1
    gamma = [b.expected_max(0, lam) for b in beliefs]
    best = -math.inf
    for actions in itertools.product((0, 1), repeat=horizon):
        total, n = 0.0, 0
        for t, pull in enumerate(actions, start=1):
            total += beliefs[n].mean(0) if pull else lam
            total -= (horizon - t) * (gamma[n + pull] - gamma[n])
            n += pull
        if n:
            best = max(best, total)
    return best - horizon * lam


@pytest.mark.parametrize("gaussian", [False, True])
def test_index_benefit_matches_brute_force(gaussian):
    rng = np.random.default_rng(1)
    for _ in range(15):
        prior = _random_prior(rng, 1, gaussian)
        _, rewards = paper.sample_outcome(prior, 6, rng)
        beliefs = paper.belief_trajectory(prior, 0, rewards[0])
        for lam in prior.mean(0) + rng.normal(size=3) * 0.3:
            lam = lam if gaussian else min(max(lam, 0.01), 0.99)
            brute = _single_arm_by_brute_force(beliefs, lam)
            assert paper.index_benefit(beliefs, 0, lam) == pytest.approx(brute, abs=1e-12)
        index = paper.index_value(prior, 0, rewards[0])
        assert index >= prior.mean(0) - 1e-12
        assert paper.index_benefit(beliefs, 0, index) == pytest.approx(0, abs=1e-9)
        star = paper.index_value(prior, 0, rewards[0], star=True)
        assert paper.index_star_benefit(beliefs, 0, star) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("gaussian", [False, True])
def test_last_decision_is_myopic(gaussian):
    rng = np.random.default_rng(2)
    for _ in range(10):
        prior = _random_prior(rng, 3, gaussian)
        myopic = int(np.argmax([prior.mean(a) for a in range(3)]))
        for rule in ("irs.fh", "irs.v-zero", "irs.v-emax", "irs.index"):
            assert paper.RULES[rule](1, prior, rng) == myopic


@pytest.mark.parametrize("gaussian", [False, True])
def test_numpy_baseline_matches_paper_on_the_same_future(gaussian, monkeypatch):
    rng = np.random.default_rng(3)
    for _ in range(60):
        arms, horizon = int(rng.integers(2, 5)), int(rng.integers(1, 14))
        monkeypatch.setattr(numpy_paths, "BLOCK", int(rng.integers(2, 8)))
        monkeypatch.setattr(numpy_paths, "ROWS", int(rng.integers(2, 8)))
        prior = _random_prior(rng, arms, gaussian)
        make = numpy_paths._GaussianState if gaussian else numpy_paths._BernoulliState
        state = make(prior)
        _, rewards = paper.sample_outcome(prior, horizon, rng)
        value, pulls = paper.v_zero_allocation(prior, rewards)
        means = np.diff(paper.v_zero_sums(prior, rewards), axis=1)
        got_value, got_pulls = numpy_paths.allocate(means)
        assert got_value == pytest.approx(value, abs=1e-12)
        assert list(got_pulls) == list(pulls)

        seed = int(rng.integers(10**9))
        future = state.future(np.random.default_rng(seed), horizon)
        winner = numpy_paths.index_winner(future, state.mean())
        whole = state.future(np.random.default_rng(seed), horizon)
        if whole.steps() < horizon:
            whole.extend()
        rewards = np.diff(whole.sums, axis=1) if gaussian else whole.draws.astype(float)
        indices = paper.index_values(prior, rewards, iterations=45)
        assert indices[winner] == pytest.approx(indices.max(), abs=1e-9)
        gamma = whole.gamma(np.arange(arms), 0.47)
        for a in range(arms):
            beliefs = paper.belief_trajectory(prior, a, rewards[a])
            assert gamma[a] == pytest.approx([b.expected_max(a, 0.47) for b in beliefs], abs=1e-12)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("rule", ["ts", "irs.fh", "irs.v-zero", "irs.index"])
def test_numpy_baseline_has_the_papers_law(rule, gaussian):
    """The first decision of a short run; three proportions within 4.5 standard errors."""
    prior = (
        paper.Gaussian((0.1, 0, -0.2), (0.6, 1, 1.5), (1, 0.5, 2))
        if gaussian
        else paper.Bernoulli((2, 1, 0.7), (2, 1, 1.2))
    )
    size, horizon = (120, 5) if rule == "irs.index" else (600, 8)
    rng = np.random.default_rng(4)
    slow = [paper.RULES[rule](horizon, prior, rng) for _ in range(size)]
    make = numpy_paths._GaussianState if gaussian else numpy_paths._BernoulliState
    state, work = make(prior), numpy_paths.Workspace(3, horizon)
    fast = [numpy_paths.RULES[rule](state, horizon, rng, work) for _ in range(4 * size)]
    for arm in range(3):
        p, q = np.mean(np.equal(slow, arm)), np.mean(np.equal(fast, arm))
        error = math.sqrt(max(q * (1 - q), 0.01) * (1 / size + 1 / (4 * size)))
        assert abs(p - q) < 4.5 * error, (arm, p, q)


def test_paths_have_the_right_shape():
    rng = np.random.default_rng(5)
    for prior in (
        paper.Bernoulli((1, 1), (1, 2)),
        paper.Gaussian((0, 0.2), (1, 1), (1, 0.5)),
    ):
        means, rewards = paper.sample_outcome(prior, 5, rng)
        for module in (paper, numpy_paths):
            for rule in module.RULES:
                actions = module.simulate_path(rule, prior, means, rewards, rng)
                assert actions.shape == (5,)
                assert set(actions) <= {0, 1}
                assert paper.regret(actions, means) >= 0
