"""Tails that are powers, numbers that float32 hardly holds, arms that are all but known."""

import itertools
import math
import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, special

import irsppl
from irsppl.penalties.replay import steadied


@pytest.mark.parametrize("shape", [1.001, 1.01, 1.05, 1.5, 4.0])
def test_one_exponential_arm_earns_its_mean(shape):
    """Whatever is known of the future: all of a mean is found, however far out it lies."""
    bandit = irsppl.Bandit(irsppl.GammaExponential([shape], [1.0]), 3)
    truth = 3 * float(bandit.belief.predictive_mean()[0])
    for name in ("ts", "irs.fh", "irs.ff"):
        assert irsppl.bound(bandit, name).value == pytest.approx(truth, rel=1e-4)  # float32 given


@pytest.mark.parametrize("shape", [0.505, 0.52, 0.6, 1.0, 5.0])
def test_one_arm_of_unknown_variance_earns_its_mean(shape):
    belief = irsppl.NormalInverseGamma([1.0], [0.5], [shape], [1.0])
    for name in ("ts", "irs.fh", "irs.ff"):
        assert irsppl.bound(irsppl.Bandit(belief, 3), name).value == pytest.approx(3, rel=1e-10)


def best_of_two(survivals):
    """E[max] of positive numbers: the integral of 1 - prod F, by quadrature in log x."""

    def rest(u):
        over = [s(math.exp(u)) for s in survivals]
        return (over[0] + over[1] - over[0] * over[1]) * math.exp(u)

    cuts = np.linspace(-40, 700, 75)
    return sum(integrate.quad(rest, a, b)[0] for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize("shape", [1.05, 1.2])
def test_two_exponential_arms(shape):
    """V* of two periods is in closed form: after one reward the mean follows a Pareto law."""
    shapes, rates = [shape, 3.0], [2 * (shape - 1), 2.0]
    bandit = irsppl.Bandit(irsppl.GammaExponential(shapes, rates), 2)
    shapes, rates = (np.asarray(x, float) for x in (bandit.belief.shape, bandit.belief.rate))
    means = rates / (shapes - 1)

    def truth(a, b):
        return lambda x: special.gammainc(a, b / x)

    def after_one(a, b):  # the posterior mean is (b + reward) / a, the reward's tail (1 + r / b)^-a
        return lambda x: min((a * x / b) ** -a, 1.0)

    pairs = list(zip(shapes, rates, strict=True))
    ts = 2 * best_of_two([truth(*pair) for pair in pairs])
    fh = 2 * best_of_two([after_one(*pair) for pair in pairs])
    a, b = pairs[0]
    optimum = means[0] + means[1] + b / a * (a * means[1] / b) ** (1 - a) / (a - 1)
    bounds = irsppl.bound(bandit, ["ts", "irs.fh", "irs.ff"])
    assert bounds["ts"].value == pytest.approx(ts, rel=1e-6)
    assert bounds["irs.fh"].value == pytest.approx(fh, rel=1e-6)
    assert bounds["irs.ff"].value == pytest.approx(means.max() + fh / 2, rel=1e-6)
    assert bounds["irs.ff"].value > optimum


def test_means_without_variance_are_said():
    bandit = irsppl.Bandit(irsppl.GammaExponential([1.5, 3.0], [1.0, 2.0]), 2, labels=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        irsppl.bound(bandit, ["ts", "irs.fh", "irs.ff"])
        irsppl.simulate(bandit, "greedy", num_replications=40, means=[2.0, 1.0])
    for ask in (
        lambda: irsppl.bound(bandit, "irs.v-zero", num_samples=40),
        lambda: irsppl.simulate(bandit, "greedy", num_replications=40),
    ):
        with pytest.warns(UserWarning, match="arm a has an infinite variance") as caught:
            ask()
        assert caught[0].filename == __file__


def test_differences_that_are_rounded_away_are_said():
    with pytest.warns(UserWarning, match=r"kept to 0\.12 in float32.*differ by 0\.001") as caught:
        belief = irsppl.NormalNormal([1e6, 1e6], [1e-3, 1e-3], [1.0, 1.0])
    assert caught[0].filename == __file__
    data = irsppl.simulate(irsppl.Bandit(belief, 5), "greedy", num_replications=200)
    assert float(data["steadied_value"].mean()) == pytest.approx(5e6, rel=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        irsppl.NormalNormal([0.5, 0.6], [1e-8, 1e-8], [1.0, 1.0])  # known, and apart


def test_columns_of_rounding_explain_nothing():
    rng = np.random.default_rng(0)
    raw = np.full(400, 5e6) + rng.normal(0, 1, 400)
    luck = raw - 5e6
    rounding = 3e-2 + 1e-3 * rng.normal(0, 1, 400)
    found = steadied(raw, np.stack([rounding, luck], axis=1))
    np.testing.assert_allclose(found, 5e6, atol=1e-6)


@pytest.mark.parametrize("sd", [1e-8, 1e-3])
def test_leave_one_out_against_a_known_arm(sd):
    """V* of one Gaussian arm against a sure income, by the recursion on a fine grid."""
    bandit = irsppl.Bandit(irsppl.NormalNormal([0.2, 0.1], [1.0, sd], [1.0, 1.0]), 3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()

    def gain(n, means, left):  # over the sure income, n rewards seen; of each of these means
        if not left:
            return np.zeros_like(means)
        step = math.sqrt(1 / (n + 1) - 1 / (n + 2))
        later = gain(n + 1, means[..., None] + step * nodes, left - 1) @ weights
        return np.maximum(0.0, means - 0.1 + later)

    optimum = 0.3 + float(gain(0, np.array(0.2), 3))
    for name in ("irs.v-solo", "irs.v-fit"):
        found = irsppl.bound(bandit, name, num_samples=2000)
        assert optimum - 4 * found.stderr - 1e-3 < found.value < optimum + 0.1


def test_leave_one_out_where_a_correlated_arm_is_known():
    features = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]  # the last arm is known
    linear = irsppl.LinearGaussian(features, [0.2, 0.1], np.eye(2), [1.0] * 3)
    assert math.isfinite(irsppl.bound(irsppl.Bandit(linear, 3), "irs.v-solo", num_samples=40).value)


def lognormal(reward=None):
    level = numpyro.sample("level", dist.Normal(0.0, 0.5))
    numpyro.sample("reward", dist.LogNormal(level, 0.5), obs=reward)


def test_the_law_of_a_mean_is_smooth_between_nodes():
    """After ten rewards of 0.1 the level is N(10 * log 0.1 / 11, 1 / 44): precisions 4 and 40."""
    belief = irsppl.from_numpyro(lognormal, 1).update(np.zeros(10, int), np.full(10, 0.1))
    centre, sd = 10 * math.log(0.1) / 11, math.sqrt(1 / 44)
    for score in (-2.0, -0.7, 0.0, 0.3, 1.6):
        at = math.exp(centre + score * sd + 0.125)
        assert float(belief.cdf(at)[0]) == pytest.approx(special.ndtr(score), abs=2e-3)


# ---- fits to what a pilot does not show


@pytest.mark.parametrize(
    ("belief", "horizon"),
    [
        (irsppl.GammaPoisson([1.0, 0.5, 3.0], [1.0, 0.1, 2.0]), 1),
        (irsppl.BetaBernoulli([1e5, 1.0], [1.0, 1e5]), 5),
        (irsppl.BetaBernoulli([1.0, 1e3], [1e3, 1.0]), 5),
        (irsppl.BetaBernoulli([20.0, 10.0], [5.0, 15.0]), 8),
    ],
    ids=["one period", "surest", "sure", "nearly sure"],
)
def test_where_there_is_nothing_to_learn_a_fitted_bound_is_the_best_mean(belief, horizon):
    """4 standard errors; coefficients of 1e10, which bet on what no future showed, gave 5e-5."""
    bandit = irsppl.Bandit(belief, horizon)
    truth = horizon * float(belief.predictive_mean().max())
    found = irsppl.bound(bandit, "irs.v-fit", num_samples=1000)
    assert abs(found.value - truth) < 4 * found.stderr + 1e-4 * truth
    assert np.abs(found.fitted["coefficients"]).max() <= 100
    certificate = irsppl.certify(
        irsppl.Bandit(belief, 1), "greedy", effort="best", num_samples=40, num_replications=40
    )
    assert certificate.ratio == pytest.approx(1, abs=1e-3)
