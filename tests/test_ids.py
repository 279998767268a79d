"""IDS against slow quadrature, and in play."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import irsppl
from irsppl import engine
from irsppl.engine import ids as ids_rule
from irsppl.engine.ids import bernoulli, mixture
from irsppl.engine.ids.mixture import minimise
from irsppl.engine.ids.nodes import unit_nodes
from irsppl.inner.cpu.rng import streams
from irsppl.policies import IDS
from irsppl.policies.ids import _cell_terms, _weighted_terms
from irsppl.policies.ids import best_mixture as unjitted_mixture

from . import kernels
from .conftest import within
from .oracles import ids as oracle
from .registry import FAMILIES

best_mixture = jax.jit(unjitted_mixture)  # one program instead of thirty

BERNOULLI = [
    ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]),
    ([8.0, 3.0], [5.0, 2.0]),
    ([30.0, 5, 0.6], [20.0, 4, 0.7]),
]
GAUSSIAN = [
    ([0.0, 0.3], [1.0, 0.5], [1.0, 0.3]),
    ([0.6, 0.1, -0.2], [0.3, 0.8, 1.0], [0.5, 1.0, 4.0]),
]


U_SHAPED = [
    ([0.02, 3.0], [0.02, 2.0]),
    ([0.05, 3.0], [0.05, 1.0]),
    ([0.1, 30.0, 2.0], [0.1, 18.0, 1.0]),
    ([0.08, 5.567, 1.942, 0.258], [0.122, 2.575, 3.039, 0.634]),
    ([0.03, 0.04], [0.05, 0.03]),
    ([0.036, 6.912, 0.227], [0.158, 164.059, 7.972]),
]
HEAVY = {
    "exponential, equal means": ("exponential", [1.2, 3.0], [0.2, 2.0]),
    "exponential, mixed": ("exponential", [2.2, 3.0], [1.2, 2.5]),
    "exponential, three": ("exponential", [1.5, 3.0, 4.0], [0.5, 2.5, 3.0]),
    "exponential, body far below the mean": ("exponential", [1.05, 3.0], [0.05, 2.0]),
    "normal-inverse-gamma": ("student", [0.0, 0.2], [1.0, 2.0], [0.7, 3.0], [1.0, 2.0]),
}


@pytest.mark.parametrize("information", ["mutual", "variance"])
@pytest.mark.parametrize("arms", BERNOULLI, ids=lambda arms: f"{len(arms[0])} arms")
def test_ids_on_bernoulli_arms_agrees_with_the_slow_computation(arms, information):
    alpha, beta = (np.array(x) for x in arms)
    check_ids(
        irsppl.BetaBernoulli(alpha, beta), oracle.Bernoulli(alpha, beta), information, rel=2e-5
    )


@pytest.mark.parametrize("information", ["mutual", "variance"])
@pytest.mark.parametrize("arms", GAUSSIAN, ids=lambda arms: f"{len(arms[0])} arms")
def test_ids_on_gaussian_arms_agrees_with_the_slow_computation(arms, information):
    check_ids(irsppl.NormalNormal(*arms), oracle.Gaussian(*arms), information, rel=2e-3)


def check_ids(belief, slow, information, rel):
    form = ids_rule.MUTUAL if information == "mutual" else ids_rule.VARIANCE
    regret, gain = oracle.terms(slow, information)
    ours, told, mixture = kernels.ids_terms(*belief.kernel_state(), form)
    np.testing.assert_allclose(ours, regret, rtol=rel)
    np.testing.assert_allclose(told, gain, rtol=rel, atol=1e-7)
    least = oracle.least_ratio(regret, gain)
    assert oracle.ratio(regret, gain, mixture) == pytest.approx(least, rel=1e-3)
    policy = IDS(information)
    traced = jax.jit(policy.terms)(jax.random.key(0), irsppl.Bandit(belief, 9))
    np.testing.assert_allclose(traced[0], regret, rtol=rel + 1e-3)
    np.testing.assert_allclose(traced[1], gain, rtol=rel + 1e-3, atol=1e-6)
    i, j, q = best_mixture(*traced)
    assert oracle.ratio(regret, gain, (int(i), int(j), float(q))) == pytest.approx(least, rel=5e-3)


def law_of(i, j, q, count):
    law = np.zeros(count)
    law[int(i)] += float(q)
    law[int(j)] += 1 - float(q)
    return law


@pytest.mark.parametrize("information", ["mutual", "variance"])
@pytest.mark.parametrize("arms", U_SHAPED, ids=str)
def test_u_shaped_priors_are_integrated_to_their_ends(arms, information):
    """Kernel and traced rule against sums in the logit; no draws, so no false alarms."""
    alpha, beta = (np.array(x) for x in arms)
    mean = alpha / (alpha + beta)
    form = ids_rule.MUTUAL if information == "mutual" else ids_rule.VARIANCE
    regret, gain = oracle.beta_line(alpha, beta).terms(information)
    right = law_of(*minimise(regret, gain, mean.size), mean.size)
    ours, told, found = kernels.ids_terms(0, alpha, alpha + beta, 0, form)
    np.testing.assert_allclose(ours - ours[0], mean[0] - mean, atol=1e-8)
    np.testing.assert_allclose(ours, regret, rtol=1e-5)
    np.testing.assert_allclose(told, gain, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(law_of(*found, mean.size), right, atol=1e-4)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), 50)
    traced = jax.jit(IDS(information).terms)(jax.random.key(0), bandit)
    np.testing.assert_allclose(traced[0] - traced[0][0], mean[0] - mean, atol=2e-5)
    np.testing.assert_allclose(traced[0], regret, rtol=1e-3)
    np.testing.assert_allclose(traced[1], gain, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(law_of(*best_mixture(*traced), mean.size), right, atol=3e-3)


@pytest.mark.parametrize("arms", HEAVY.values(), ids=HEAVY)
def test_heavy_tails_are_not_cut_off(arms):
    """Regrets differ as the means do; regret and information as sums over a long line have them."""
    kind, *numbers = arms
    if kind == "exponential":
        belief, slow = irsppl.GammaExponential(*numbers), oracle.inverse_gamma_line(*numbers)
    else:
        mean, precision, shape, rate = map(np.array, numbers)
        belief = irsppl.NormalInverseGamma(*numbers)
        scale = np.sqrt(rate / shape / precision)
        slow = oracle.student_line(mean, scale, 2 * shape)
    regret, gain = slow.terms("variance")
    mean = np.asarray(belief.predictive_mean())
    found = jax.jit(IDS().terms)(jax.random.key(0), irsppl.Bandit(belief, 50))
    np.testing.assert_allclose(found[0] - found[0][0], mean[0] - mean, atol=2e-5)
    np.testing.assert_allclose(found[0], regret, rtol=2e-3)
    np.testing.assert_allclose(found[1], gain, rtol=5e-3)
    right = law_of(*minimise(regret, gain, mean.size), mean.size)
    np.testing.assert_allclose(law_of(*best_mixture(*found), mean.size), right, atol=5e-3)


def two_points(chance, low, high):
    def model(reward=None):
        z = numpyro.sample("z", dist.Bernoulli(probs=jnp.array(chance)))
        numpyro.sample("reward", dist.Bernoulli(probs=jnp.where(z == 1, high, low)), obs=reward)

    return model


@pytest.mark.parametrize(
    "arms",
    [
        [(0.002, 0.01, 0.99), (0.5, 0.3, 0.35)],  # all that speaks for it is unlikely
        [(0.3, 0.2, 0.6), (0.3, 0.2, 0.6), (0.8, 0.1, 0.6), (0.2, 0.2, 0.9)],  # ties
    ],
    ids=["unlikely", "ties"],
)
def test_few_points_are_all_looked_at(arms):
    """Exact; the kernel's decisions are within 4 standard errors of 40,000 (false alarm 1e-4 for
    each of at most two arms)."""
    belief = irsppl.from_numpyro([two_points(*arm) for arm in arms])
    regret, gain = oracle.points_terms(
        [(low, high) for _, low, high in arms], [(1 - p, p) for p, _, _ in arms]
    )
    found = jax.jit(IDS().terms)(jax.random.key(0), irsppl.Bandit(belief, 50))
    np.testing.assert_allclose(found[0], regret, rtol=1e-4)
    np.testing.assert_allclose(found[1], gain, rtol=1e-4, atol=1e-9)
    law = law_of(*minimise(regret, gain, len(arms)), len(arms))
    assert 0 < law.max() < 1
    kernel = engine.kernel(IDS(), irsppl.Bandit(belief, 50).without_record())
    drawn = kernel.decisions(streams((0, 1), 7, 0, 40_000))
    shares = np.bincount(drawn, minlength=len(arms)) / 40_000
    assert np.all(np.abs(shares - law) <= 4 * np.sqrt(law * (1 - law) / 40_000) + 1e-6)


@pytest.mark.parametrize("strength", [2e4, 4e6, 1e9])
def test_strong_priors_take_few_nodes(strength):
    """One Gauss rule as fine as the strong arm wants would have a hundred thousand."""
    alpha, beta = np.array([strength, 1.0, 0.2]), np.array([strength, 1.0, 0.7])
    assert unit_nodes(alpha, beta, 10).x.size < 1000
    ours, _, _ = kernels.ids_terms(0, alpha, alpha + beta, 0)
    mean = alpha / (alpha + beta)
    np.testing.assert_allclose(ours - ours[0], mean[0] - mean, atol=1e-8)
    # The first arm's mean is 1/2, but for a spread that counts to the second order.
    x = np.linspace(0.5, 1, 100_001)
    best = 1 - np.trapezoid(stats.beta.cdf(x, 1, 1) * stats.beta.cdf(x, 0.2, 0.7), x)
    np.testing.assert_allclose(ours, best - mean, rtol=1e-3 if strength < 1e6 else 2e-5)


@pytest.mark.parametrize("pulls", [1000, 30_000, 10**6])
@pytest.mark.parametrize(
    "arms", [BERNOULLI[0], BERNOULLI[2], U_SHAPED[2], ([0.2, 5e5], [0.7, 4e5])], ids=str
)
def test_nodes_for_long_horizons_say_the_same(arms, pulls):
    """One Gauss rule or panels of it, in the middle or towards the ends."""
    alpha, beta = (np.array(x) for x in arms)
    state = np.array([alpha, alpha + beta])
    regret, gain, _ = kernels.ids_terms(0, *state, 0)
    rule = ids_rule.bernoulli_rule(ids_rule.MUTUAL, *state, pulls)
    assert rule.x.size < 10 * np.sqrt(pulls) + 1000
    bernoulli.beta_mixture(rule)
    found = np.empty((2, alpha.size))
    mixture.score(ids_rule.MUTUAL, alpha.size, rule.small[0], rule.cross, *found)
    np.testing.assert_allclose(found[0], regret, rtol=3e-5)
    np.testing.assert_allclose(found[1], gain, rtol=3e-5, atol=1e-9)


def test_two_arms_attain_the_least_ratio():
    """Against a fine grid of mixtures of all three arms."""
    rng = np.random.default_rng(3)
    weights = np.array([w for w in itertools.product(np.arange(41), repeat=3) if sum(w) == 40]) / 40
    for _ in range(40):
        regret, gain = rng.exponential(size=(2, 3))
        i, j, q = minimise(regret, gain, 3)
        found = oracle.ratio(regret, gain, (i, j, q))
        everywhere = (weights @ regret) ** 2 / (weights @ gain)
        assert found <= everywhere.min() * (1 + 1e-9)
        assert found == pytest.approx(oracle.least_ratio(regret, gain), rel=1e-4)
        traced = best_mixture(jnp.asarray(regret), jnp.asarray(gain))
        assert oracle.ratio(
            regret, gain, [float(x) if k == 2 else int(x) for k, x in enumerate(traced)]
        ) == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("least", [1.0, 0.05])
def test_carried_tables_stay_true(least):
    """After hundreds of one-step updates a path still decides as a computation from scratch."""
    alpha, beta = np.array([1.0, 1.0, 2.0]) * least, np.array([1.0, 2.0, 1.0]) * least
    rng = np.random.default_rng(5)
    rewards = (rng.random((3, 3, 400)) < np.array([0.5, 0.45, 0.55])[None, :, None]).astype(float)
    seeds = streams((0, 1), 2, 0, 3)
    actions = kernels.simulate_paths("ids", 0, alpha, alpha + beta, 0, rewards, seeds)
    for s in range(3):
        xi, nu, pulls = alpha.copy(), alpha + beta, np.zeros(3, int)
        for t, arm in enumerate(actions[s, :-1]):
            if t % 23 == 0 or t > 390:
                _, _, (i, j, q) = kernels.ids_terms(0, xi, nu, 0)
                possible = {i} if q > 1 - 1e-6 else {j} if q < 1e-6 else {i, j}
                assert arm in possible
            xi[arm] += rewards[s, arm, pulls[arm]]
            nu[arm] += 1
            pulls[arm] += 1


@pytest.mark.parametrize("family", ["beta-bernoulli", "normal-normal"])
def test_ids_from_cells_and_from_draws_agrees_with_quadrature(family):
    """What other beliefs are given, on beliefs where better is known."""
    belief = FAMILIES[family]()
    regret, gain, _ = kernels.ids_terms(*belief.kernel_state(), ids_rule.VARIANCE)
    cells = jax.jit(_cell_terms)(belief)
    np.testing.assert_allclose(cells[0], regret, rtol=0.01)
    np.testing.assert_allclose(cells[1], gain, rtol=0.02)
    keys = jax.random.split(jax.random.key(1), 100_000)
    draws = jax.jit(jax.vmap(belief.sample_means))(keys)
    drawn = jax.jit(_weighted_terms)(draws, jnp.full(100_000, 1e-5))
    np.testing.assert_allclose(drawn[0], regret, rtol=0.05)
    np.testing.assert_allclose(drawn[1], gain, rtol=0.05)


def test_two_bernoulli_arms_reproduce_the_independent_figure_of_ids(paper):
    """2.526 (0.009) at T = 200; 4 standard errors. OGI and Bayes-UCB: as printed, + 3 to 5 %."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(2), np.ones(2)), 200)
    names = ["ids", "bayes-ucb", "ogi", "fh-gittins"]
    data = irsppl.simulate(bandit, names, key=7, num_replications=8000)
    regret = data["regret"].mean("replication")
    error = data["regret"].std("replication") / np.sqrt(8000)
    figure = {
        name: (float(regret.sel(policy=name)), float(error.sel(policy=name))) for name in names
    }
    within(*figure["ids"], *paper["independent"]["bernoulli_2"]["IDS"])
    for name, printed in (("bayes-ucb", 2.72), ("ogi", 2.43)):
        assert printed * 0.97 < figure[name][0] < printed * 1.09, name
    optimum = paper["independent"]["bernoulli_2"]["OPT"][0]
    assert figure["fh-gittins"][0] > optimum - 4 * figure["fh-gittins"][1]


@pytest.mark.parametrize("kind", ["separate", "joint"])
def test_points_have_a_rule_of_their_own(kind):
    """The kernel's mixture is that of the traced policy, after every few rewards; false alarm: each
    of 8 comparisons is at 4 standard errors of 4,000 decisions."""

    def alone(reward=None):
        skill = numpyro.sample("skill", dist.Normal(0.0, 1.5))
        numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)

    def tied(arm, reward=None):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("reward", dist.Bernoulli(logits=level + slope * (arm - 1.0)), obs=reward)

    belief = irsppl.from_numpyro(alone, num_arms=3)
    if kind == "joint":
        belief = irsppl.from_numpyro_joint(
            tied, num_arms=3, representation="particles", num_particles=256
        ).for_simulation()
    policy = IDS()
    terms = jax.jit(policy.terms)
    first = belief.update([0] * 9, [1, 1, 0, 1, 1, 1, 0, 1, 1])  # known rather well, and good
    bandit, mixed = irsppl.Bandit(first, 12), 0
    for arm, reward in [(0, 1), (1, 0), (2, 1), (2, 0)]:
        bandit = bandit.pull(arm, reward)
        first, second, share = best_mixture(*terms(jax.random.key(0), bandit))
        law = np.zeros(3)
        law[int(first)] += float(share)
        law[int(second)] += 1 - float(share)
        mixed += len(np.unique([first, second])) > 1
        kernel = engine.kernel(policy, bandit.without_record())
        drawn = kernel.decisions(streams((0, 1), 7, 0, 4000))
        found = np.bincount(drawn, minlength=3) / 4000
        assert np.all(np.abs(found - law) <= 4 * np.sqrt(law * (1 - law) / 4000) + 1e-3)
    assert mixed >= 2
    last = bandit
    while int(last.remaining) > 1:
        last = last.pull(0, 1)
    myopic = int(np.argmax(last.belief.predictive_mean()))
    decided = engine.kernel(policy, last.without_record()).decisions(streams((0, 1), 7, 0, 8))
    assert np.all(decided == myopic)
