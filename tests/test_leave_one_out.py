"""Leave-one-out penalties: enumeration, the definition, known values, errors."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special

import irsppl
from irsppl import outcomes
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu.one_armed import HAT_MEANS, KNOTS
from irsppl.penalties import PENALTIES, VFit, VSolo, _leave_one_out, v_fit
from irsppl.penalties._controls import LevelMax, OneArmed, SecondBest
from irsppl.penalties._view import View, arms_of

from .oracles import enumerate as enumeration
from .oracles import leave_one_out as oracle
from .registry import SMOOTH, made
from .test_penalties import all_outcomes

BERNOULLI = {
    "two uniform arms": ([1.0, 1.0], [1.0, 1.0], 6),
    "two unequal arms": ([3.0, 1.0], [1.0, 2.0], 5),
    "three unequal arms": ([0.5, 2.0, 1.0], [1.5, 1.0, 1.0], 4),
}
# Values that float32 holds exactly, as sampled rewards are float32.
CATEGORICAL = {
    "two arms, three values": ([[1.0, 2.0, 1.0], [2.0, 0.5, 1.0]], [0.0, 0.5, 1.0], 3),
    "three arms, three values": (
        [[1.0, 2.0, 1.0], [2.0, 0.5, 1.0], [1.0, 1.0, 1.0]],
        [-1.0, 0.5, 2.0],
        2,
    ),
}
SCALES = [0.8, 1.3, -0.7]


def bernoulli(name):
    alpha, beta, horizon = BERNOULLI[name]
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon)
    return bandit, enumeration.Problem(enumeration.BetaBernoulli(alpha, beta), horizon)


def categorical(name):
    alpha, values, horizon = CATEGORICAL[name]
    bandit = irsppl.Bandit(irsppl.DirichletCategorical(alpha, values), horizon)
    return bandit, enumeration.Problem(enumeration.DirichletCategorical(alpha, values), horizon)


@pytest.mark.parametrize("name", BERNOULLI)
@pytest.mark.parametrize("scale", SCALES)
def test_values_of_every_outcome_are_those_of_the_definition(name, scale):
    bandit, problem = bernoulli(name)
    batch, _, listed = all_outcomes(problem)
    penalty = VSolo(scale=scale)
    values = penalty.values(bandit, batch)
    arms = arms_of(bandit)
    alpha, beta, horizon = BERNOULLI[name]
    for i in np.linspace(0, len(listed) - 1, 12).astype(int):
        rewards = np.asarray(batch.rewards[i], int)
        means, z = oracle.bernoulli_penalties(
            alpha, beta, rewards, round(0.45 * horizon), arms.edges, arms.lams, scale
        )
        assert values[i] == pytest.approx(oracle.best_value(means - z), abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*BERNOULLI, *CATEGORICAL])
def test_never_below_the_optimum_and_free_for_those_who_do_not_look_ahead(name, scale):
    bandit, problem = bernoulli(name) if name in BERNOULLI else categorical(name)
    batch, probabilities, _ = all_outcomes(problem)
    penalty = VSolo(scale=scale)
    optimum = irsppl.bound(bandit, "ideal").value
    assert penalty.values(bandit, batch) @ probabilities >= optimum - 1e-9
    view = View(bandit, batch)
    z = view.charges(scale * view.weights(0.45)[:, :, None])
    rewards = np.asarray(view.futures.rewards)
    assert np.abs(z).max() > 0.01
    assert oracle.conditional_defect(rewards, probabilities, z) < 1e-12
    for seed in range(3):
        assert oracle.policy_defect(rewards, probabilities, z, seed) < 1e-12


@pytest.mark.parametrize("name", ["two uniform arms", "three unequal arms"])
def test_tighter_than_v_zero(name):
    """The exact bounds, by enumeration."""
    bandit, problem = bernoulli(name)
    batch, probabilities, _ = all_outcomes(problem)
    solo = VSolo().values(bandit, batch) @ probabilities
    zero = enumeration.bound(problem, "irs.v-zero")
    optimum = irsppl.bound(bandit, "ideal").value
    assert solo - optimum < 0.75 * (zero - optimum)


@pytest.mark.parametrize("name", ["two uniform arms", "three unequal arms"])
@pytest.mark.parametrize("seed", range(2))
def test_every_combination_of_features_is_allowed(name, seed):
    """Random coefficients of all features and prices: feasible, and never below the optimum."""
    bandit, problem = bernoulli(name)
    batch, probabilities, _ = all_outcomes(problem)
    penalty = VFit("full")
    view = View(bandit, batch, penalty.shares)
    prices = penalty.prices(view)
    size = len(penalty._start(bandit))
    chosen = np.random.default_rng(seed).normal(size=size) / 10
    z = penalty.charges(view, chosen, prices)
    rewards = np.asarray(view.futures.rewards)
    assert np.abs(z).max() > 0.01
    assert oracle.conditional_defect(rewards, probabilities, z) < 1e-12
    values, counts, sums = penalty.solve_with(view, chosen, prices)
    np.testing.assert_allclose(sums, z.sum(axis=(1, 2)), atol=1e-9)
    some = np.linspace(0, len(values) - 1, 10).astype(int)
    means = view.futures.means[:, :, :-1]
    expected = [oracle.best_value(means[i] - z[i]) for i in some]
    np.testing.assert_allclose(values[some], expected, atol=1e-9)
    assert values @ probabilities >= irsppl.bound(bandit, "ideal").value - 1e-9
    # The slopes that the fit follows: what each feature collects at the best counts.
    step = 1e-6 * np.random.default_rng(seed + 9).normal(size=size)
    moved, _, _ = penalty.solve_with(view, chosen + step, prices)
    slopes = penalty.collected(view, prices, counts)
    assert np.median(np.abs(moved - values + slopes @ step)) < 1e-10


def test_a_fit_is_at_least_as_tight_and_reports_what_it_found():
    """4 combined standard errors: a false alarm once in 30,000."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    found = irsppl.bound(bandit, ["irs.v-solo", VFit("quick")], key=1, num_samples=3000)
    solo, fit = found["irs.v-solo"], found["irs.v-fit (quick)"]
    assert fit.value < solo.value + 4 * np.hypot(solo.stderr, fit.stderr)
    assert fit.value > irsppl.bound(bandit, "ideal").value
    assert (
        fit.fitted["coefficients"].shape == (1, 2, 1) and len(fit.fitted["price_coefficients"]) == 2
    )
    with pytest.raises(ValueError, match="unknown features 'all'; known: full, quick, standard"):
        VFit("all")
    kept = [*fit.fitted["coefficients"].ravel(), *fit.fitted["price_coefficients"]]
    again = irsppl.bound(bandit, VFit("quick", kept), key=1, num_samples=3000)
    np.testing.assert_allclose(again.samples, fit.samples)  # the pilot is not among them
    with pytest.raises(ValueError, match="coefficients must be 4 finite numbers"):
        irsppl.bound(bandit, VFit("quick", [1.0]))


def test_blocks_of_futures_change_nothing(monkeypatch):
    """Neither the bound nor the fit, whether a pilot is kept or drawn anew at each look."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    whole = irsppl.bound(bandit, VFit("quick"), key=1, num_samples=256)
    for cells, kept in ((2**13, 2**20), (2**13, 0)):  # of 128 futures
        monkeypatch.setattr(outcomes, "_BLOCK_CELLS", cells)
        monkeypatch.setattr(_leave_one_out, "_KEPT_CELLS", kept)
        monkeypatch.setattr(v_fit, "_pilot_size", lambda *_: 512)
        parts = irsppl.bound(bandit, VFit("quick"), key=1, num_samples=256)
        if kept:
            first = parts
        np.testing.assert_array_equal(parts.samples, first.samples)
    found = whole.fitted
    same = VFit("quick", (*found["coefficients"].ravel(), *found["price_coefficients"]))
    parts = irsppl.bound(bandit, same, key=1, num_samples=256)
    np.testing.assert_array_equal(parts.samples, whole.samples)


@pytest.mark.parametrize("control", [SecondBest(), LevelMax(0.45), OneArmed(0.45)])
def test_controls_have_the_means_they_claim(control):
    bandit, problem = bernoulli("three unequal arms")
    batch, probabilities, _ = all_outcomes(problem)
    assert control.values(bandit, batch) @ probabilities == pytest.approx(control.mean(bandit))
    view = View(bandit, batch, VFit("full").shares)  # whatever else its tables hold
    assert control.of(view) @ probabilities == pytest.approx(control.mean(bandit))


def test_hats_over_a_normal_innovation_have_their_exact_means():
    """A row of a Gaussian table is a martingale difference because of these."""
    x, w = np.polynomial.legendre.leggauss(400)
    edges = np.concatenate([[-12.0], KNOTS[1:-1], [12.0]])
    half = np.diff(edges)[:, None] / 2
    e = (edges[:-1, None] + half * (1 + x)).ravel()
    weights = (half * w).ravel() * np.exp(-(e**2) / 2) / np.sqrt(2 * np.pi)
    at = (e - KNOTS[0]) / (KNOTS[1] - KNOTS[0])
    i = np.clip(at, 0, len(KNOTS) - 2).astype(int)
    means = np.zeros(len(KNOTS))
    np.add.at(means, i, weights * (1 - (at - i)))
    np.add.at(means, i + 1, weights * (at - i))
    np.testing.assert_allclose(HAT_MEANS, means, atol=1e-13)


@pytest.mark.parametrize("name", SMOOTH)
def test_penalties_of_other_families_have_mean_zero_at_every_pull(name):
    """z-scores of 60 means of 4,000 futures, each also times what the arm has shown.

    The largest of 120 exceeds 5 with probability below 1e-4; the seed is fixed.
    """
    bandit = irsppl.Bandit(made(name), 20)
    view = View(bandit, draw_outcomes(bandit, jax.random.key(1), 0, 4000))
    z = view.charges(view.weights(0.45)[:, :, None])
    for factor in (1.0, np.tanh(view.futures.means[:, :, :-1])):
        x = z * factor
        score = x.mean(axis=0) / np.maximum(x.std(axis=0), 1e-12) * np.sqrt(len(x))
        assert np.abs(score).max() < 5
    if view.futures.normals is not None:
        level = np.sort(special.ndtr(view.futures.normals), axis=0)
        even = (np.arange(len(level)) + 0.5) / len(level)
        # Kolmogorov's distance: beyond 2.6 / sqrt(S) with probability 3e-6 each.
        assert np.abs(level - even[:, None, None]).max() < 2.6 / np.sqrt(len(level))


@pytest.mark.parametrize("name", SMOOTH)
def test_other_families_gain_on_v_zero(name):
    """4 combined standard errors: a false alarm once in 30,000."""
    bandit = irsppl.Bandit(made(name), 20)
    outcomes = draw_outcomes(bandit, jax.random.key(2), 0, 4000)
    gain = PENALTIES["irs.v-zero"].values(bandit, outcomes) - VSolo().values(bandit, outcomes)
    assert gain.mean() > -4 * gain.std() / np.sqrt(len(gain))


def test_known_figures_of_two_bernoulli_arms():
    """T = 20: above V*, with a small error, and a scale picked on other futures."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    solo = irsppl.bound(bandit, "irs.v-solo", key=1, num_samples=4000)
    zero = irsppl.bound(bandit, "irs.v-zero", key=1, num_samples=4000)
    optimum = irsppl.bound(bandit, "ideal").value
    assert optimum < solo.value < zero.value - 4 * zero.stderr
    assert solo.value - optimum < 0.6 * (zero.value - optimum)
    assert 0.5 <= solo.fitted["scale"] <= 1.1
    again = irsppl.bound(bandit, VSolo(scale=solo.fitted["scale"]), key=1, num_samples=4000)
    np.testing.assert_allclose(again.samples, solo.samples)  # the pilot is not among them


def test_one_inner_problem():
    start = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0, 1.0], [1.0, 1.0, 1.0]), 20)
    outcome = start.sample_outcome(4)
    solved = irsppl.solve_inner(start, "irs.v-solo", outcome)
    batch = jax.tree.map(lambda leaf: leaf[None], outcome)
    assert float(solved.value) == pytest.approx(VSolo().values(start, batch)[0], rel=1e-6)
    assert int(np.sum(solved.pulls)) == 20


def test_arms_written_in_numpyro():
    """Two logistic-normal arms: slopes from a matched Beta. V* and FF are exact figures.

    5 standard errors above V*: a false alarm once in three million; the seed is fixed.
    """

    def arm(reward=None):
        skill = numpyro.sample("skill", dist.Normal(0, 1.5))
        numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)

    bandit = irsppl.Bandit(irsppl.from_numpyro(arm, num_arms=2, num_particles=64), 20)
    solo = irsppl.bound(bandit, "irs.v-solo", key=1, num_samples=2000)
    optimum, feedback = 12.2098, 12.5112
    assert solo.value > optimum - 5 * solo.stderr
    assert solo.value < optimum + 0.6 * (feedback - optimum)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: VSolo(level=0), "level must be a share of the horizon"),
        (lambda: VSolo(level=1.5), "level must be a share of the horizon"),
        (lambda: VSolo(scale=float("nan")), "scale must be a finite number"),
        (lambda: VSolo(scale="big"), "scale must be a finite number"),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_refused_with_a_reason():
    arms = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="would need 2,000 MB of tables for 5000 periods"):
        irsppl.bound(irsppl.Bandit(arms, 5000), "irs.v-solo")
    with pytest.raises(ValueError, match="two arms"):
        irsppl.bound(irsppl.Bandit(irsppl.BetaBernoulli([1.0], [1.0]), 5), "irs.v-solo")
