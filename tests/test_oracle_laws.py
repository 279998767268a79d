"""The oracles' laws of the families, the paper's rules and the NumPy baseline."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from .oracles import enumerate as exact
from .oracles import laws, numpy_paths, paper
from .test_oracles import allocations

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
        assert tuple(pulls) in allocations(solutions, 2)
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
