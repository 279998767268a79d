"""Bounds and certificates: exact figures, standard errors, honest choice among several."""

import math

import jax
import numpy as np
import pytest

import irsppl
from irsppl.penalties import PENALTIES

from .conftest import mean_by_controls, optimised, within
from .oracles import laws as oracle
from .registry import EXACT, FAMILIES
from .test_beliefs import oracle_arms


def two_bernoulli(horizon=200):
    return irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), horizon)


def test_worked_example_bounds(worked):
    """Six bounds of the paper's example against full enumeration, 4 standard errors each."""
    bandit, _, example = worked
    names = {
        "zero": "zero",
        "TS": "ts",
        "IRS.FH": "irs.fh",
        "IRS.V-Zero": "irs.v-zero",
        "IRS.V-EMax": "irs.v-emax",
        "ideal": "ideal",
    }
    with optimised():
        bounds = irsppl.bound(bandit, list(names.values()), key=5, num_samples=20_000)
    for printed, name in names.items():
        within(bounds[name].value, bounds[name].stderr, example["bounds_exact"][printed])
    assert {n for n in bounds if bounds[n].stderr == 0} == {"ts", "irs.fh", "ideal"}
    assert bounds.tightest.penalty == "ideal"


def test_exact_bounds_need_no_sampling(paper):
    """Figures known to eight decimals: two and ten Bernoulli arms, ten Gaussian ones."""
    bounds = irsppl.bound(two_bernoulli(), ["irs.fh", "irs.ff"])
    assert bounds["irs.fh"].regret_bound == pytest.approx(1 / 6, abs=1e-9)
    assert bounds["irs.ff"].regret_bound == pytest.approx(0.97967182, abs=1e-7)
    ten = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(10), np.ones(10)), 500)
    assert irsppl.bound(ten, "irs.ff").regret_bound == pytest.approx(2.94344482, abs=1e-7)
    gaussian = irsppl.Bandit(irsppl.NormalNormal(np.zeros(10), np.ones(10), np.ones(10)), 500)
    assert irsppl.bound(gaussian, "irs.ff").regret_bound == pytest.approx(6.1461, abs=5e-5)
    for estimate in bounds.values():
        assert estimate.stderr == 0.0 and estimate.samples is None and estimate.exact


@pytest.mark.parametrize("name", EXACT)
def test_exact_bounds_of_every_family(name):
    belief = FAMILIES[name]()
    arms = oracle_arms(belief)
    bandit = irsppl.Bandit(belief, 5)
    assert irsppl.bound(bandit, "ts").value == pytest.approx(oracle.w_ts(arms, 5), rel=1e-7)
    assert irsppl.bound(bandit, "irs.fh").value == pytest.approx(oracle.w_fh(arms, 5), rel=1e-7)
    assert irsppl.bound(bandit, "irs.ff").value == pytest.approx(oracle.w_ff(arms, 5), rel=1e-7)


def test_sampled_bounds_agree_with_exact_ones(belief):
    """The path values of TS, FH and FF average to the exact bounds; 4 standard errors."""
    bandit = irsppl.Bandit(belief, 5)
    keys = jax.random.split(jax.random.key(2), 4000)
    outcomes = jax.jit(jax.vmap(bandit.sample_outcome))(keys)
    for name in ("ts", "irs.fh", "irs.ff"):
        exact = PENALTIES[name].exact(bandit)
        if exact is None:
            arms = oracle_arms(belief)
            exact = {"ts": oracle.w_ts, "irs.fh": oracle.w_fh, "irs.ff": oracle.w_ff}[name](arms, 5)
        values = PENALTIES[name].values(bandit, outcomes)
        within(values.mean(), values.std() / math.sqrt(len(values)), exact)


def test_bounds_are_ordered_in_every_family(belief):
    """V-Zero <= FH <= TS and FF <= FH, V-EMax <= TS, beyond 4 combined standard errors."""
    # Laws of Dirichlet means take long; the error of `ts`, sampled there, is the larger by far.
    slow = isinstance(belief, irsppl.DirichletCategorical)
    bandit = irsppl.Bandit(belief, 4 if slow else 6)
    names = ["ts", "irs.fh", "irs.ff", "irs.v-zero"]
    with optimised():
        w = dict(irsppl.bound(bandit, names, key=3, num_samples=250))
        w["irs.v-emax"] = irsppl.bound(bandit, "irs.v-emax", key=3, num_samples=60 if slow else 250)

    def below(a, b):
        assert w[a].value <= w[b].value + 4 * math.hypot(w[a].stderr, w[b].stderr) + 1e-9, (a, b)

    below("irs.fh", "ts")
    below("irs.ff", "irs.fh")
    below("irs.v-zero", "irs.fh")
    below("irs.v-emax", "ts")


def test_two_bernoulli_arms_reproduce_the_independent_figures(paper):
    """Regret bounds 1.126 (0.002) and 1.56 (0.007), standard errors below 0.01."""
    known = paper["independent"]["bernoulli_2"]
    w = irsppl.bound(two_bernoulli(), ["irs.v-zero", "irs.v-emax"], key=1, num_samples=20_000)
    for name, printed in (("irs.v-zero", "bound IRS.V-Zero"), ("irs.v-emax", "bound IRS.V-EMax")):
        assert w[name].stderr < 0.01
        within(w[name].regret_bound, w[name].regret_stderr, *known[printed])


def test_optimum_with_two_uniform_arms():
    assert irsppl.bound(two_bernoulli(60), "ideal").value == pytest.approx(
        38.562343246635564, abs=1e-9
    )
    assert irsppl.bound(two_bernoulli(200), "ideal").value == pytest.approx(131.094081, abs=1e-6)


def test_exact_bounds_do_not_depend_on_the_float_flag():
    plain = irsppl.bound(irsppl.Bandit(irsppl.BetaBernoulli([0.3, 1.7], [0.9, 1.1]), 12), "irs.ff")
    with jax.enable_x64(True):
        wide = irsppl.bound(
            irsppl.Bandit(irsppl.BetaBernoulli([0.3, 1.7], [0.9, 1.1]), 12), "irs.ff"
        )
    assert plain.value == pytest.approx(wide.value, abs=1e-12)


def test_tightest_is_picked_on_other_samples():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 30)
    bounds = irsppl.bound(bandit, ["ts", "irs.fh", "irs.ff", "irs.v-zero"], num_samples=2000)
    alone = irsppl.bound(bandit, "irs.v-zero", num_samples=2000)
    assert bounds.tightest is bounds[bounds.picked]
    assert bounds["irs.v-zero"].value == alone.value  # same outcomes, nothing taken from the pilot
    assert bounds["irs.v-zero"].samples.shape == (2000,)
    assert "tightest" in repr(bounds)


def test_bound_and_simulate_share_their_outcomes():
    """Future number s is one and the same: TS inner value = value + regret, path by path."""
    bandit = irsppl.Bandit(irsppl.DirichletCategorical([[1.0, 2, 1], [2, 1, 1]], [0, 0.5, 2]), 7)
    best = irsppl.bound(bandit, "ts", key=9, num_samples=300).samples
    data = irsppl.simulate(bandit, ["greedy"], key=9, num_replications=300)
    np.testing.assert_allclose((data["value"] + data["regret"]).values[0], best, rtol=1e-5)


def test_control_variates_sharpen_without_moving():
    bandit = two_bernoulli(50)
    estimate = irsppl.bound(bandit, "irs.v-zero", key=4, num_samples=4000)
    raw = estimate.samples
    plain = raw.std(ddof=1) / math.sqrt(len(raw))
    assert estimate.stderr < plain / 5
    within(estimate.value, estimate.stderr, raw.mean(), plain)


def test_certificate_of_a_known_optimum():
    bandit = two_bernoulli(20)
    certificate = irsppl.certify(bandit, "opt", "ideal", num_replications=4000, num_samples=100)
    within(certificate.lower.value, certificate.lower.stderr, certificate.upper.value)
    low, high = certificate.interval(0.95)
    assert low < certificate.ratio < high and abs(certificate.ratio - 1) < 0.02
    assert certificate.gap.value == pytest.approx(certificate.upper - certificate.lower)
    assert "of the optimum" in str(certificate)


def test_certificate_for_a_users_function():
    def play_first(key, bandit):
        return 0 * bandit.period

    bandit = two_bernoulli(10)
    certificate = irsppl.certify(bandit, play_first, num_replications=2000, num_samples=500)
    within(certificate.lower.value, certificate.lower.stderr, 5.0)
    assert certificate.policy == "play_first" and certificate.ratio < 0.9


def test_ratio_is_nan_with_a_reason_when_the_bound_is_not_positive():
    bandit = irsppl.Bandit(irsppl.NormalNormal([-5.0, -6.0], [0.1, 0.1], [1.0, 1.0]), 4)
    certificate = irsppl.certify(bandit, "random", "ts", num_replications=100, num_samples=100)
    assert math.isnan(certificate.ratio) and "not positive" in certificate.reason
    assert all(map(math.isnan, certificate.interval(0.9)))
    assert certificate.interval(0.9, of="gap")[0] < certificate.gap.value


def test_controls_that_say_the_same_do_not_bias_the_mean():
    """Two controls equal but for float32 rounding: a slope on the rounding would be anything."""
    rng = np.random.default_rng(8)
    control = rng.normal(size=20_000)
    twin = 0.5 * control.astype(np.float32).astype(float) + 1e-7 * (1 + rng.normal(size=20_000))
    raw = control + 0.1 * rng.normal(size=20_000)
    mean, error = mean_by_controls(raw, [control, twin, np.zeros(20_000)])
    alone, alone_error = mean_by_controls(raw, [control])
    assert mean == pytest.approx(alone, abs=1e-6) and error == pytest.approx(alone_error, rel=1e-3)
