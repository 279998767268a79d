"""IRS.Mix: its solver, its bound, its decisions; and long horizons without long arrays.

Statistical tests compare at 4 standard errors: one false alarm in 16,000 comparisons (two-sided).
"""

import itertools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from scipy import stats

import irsppl
from irsppl import engine
from irsppl.inner.cpu.mixture import mix_batch
from irsppl.inner.cpu.rng import streams
from irsppl.inner.mixture import mix
from irsppl.penalties import find_penalty
from irsppl.penalties.mix import settled
from irsppl.policies import find_policy

from .conftest import within
from .kernels import decide, simulate_paths
from .oracles import enumerate as exact
from .oracles import mix as oracle
from .registry import FAMILIES

# (xi, nu, noise) of three arms without round numbers, so that no two allocations tie.
STATES = {
    "beta-bernoulli": (0, [3.17, 1.09, 1.53], [4.31, 2.03, 3.77], [0.0, 0.0, 0.0]),
    "normal-normal": (1, [0.0, 0.12, 0.9], [1.0, 0.25, 4.0], [1.0, 0.5, 2.0]),
    "gamma-poisson": (2, [2.13, 3.07, 4.51], [1.11, 2.03, 2.17], [0.0, 0.0, 0.0]),
    "gamma-exponential": (3, [2.03, 2.11, 3.07], [2.17, 3.03, 2.51], [0.0, 0.0, 0.0]),
}


def gaussian(horizon):
    """The arms of STATES["normal-normal"]; XLA compiles Gaussian samplers quickest."""
    _, xi, nu, noise = STATES["normal-normal"]
    xi, nu, noise = np.array(xi), np.array(nu), np.array(noise)
    return irsppl.Bandit(irsppl.NormalNormal(xi / nu, noise / np.sqrt(nu), noise), horizon)


def batch(means, rewards):
    """Stacked futures [S, K], [S, K, T] as one `Outcome`."""
    one = irsppl.Outcome(means[0], rewards[0])
    return eqx.tree_at(lambda o: (o.means, o.rewards), one, (means, rewards))


# ------------------------------------------------------------------ the solver


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solver_against_every_allocation(dtype):
    """Three arms, n0 = 2, totals on both sides of K n0 = 6; negative payoffs too."""
    rng = np.random.default_rng(1)
    prefix = rng.normal(0.2, 1, (25, 3, 2)).astype(dtype)
    later = rng.normal(0.2, 1, (25, 3)).astype(dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    with jax.enable_x64(dtype is np.float64):
        solve = jax.jit(jax.vmap(lambda p, v, n: mix(p, v, n, 9), in_axes=(0, 0, None)))
        for total in (1, 2, 4, 5, 6, 7, 9):
            values, counts = mix_batch(prefix, later, total)
            traced_values, traced_counts = solve(prefix, later, jnp.asarray(total))
            assert traced_values.dtype == dtype
            for i in range(25):
                rows = oracle.two_part(prefix[i].astype(float), later[i].astype(float), total)
                best, winners = oracle.by_enumeration(rows, total)
                assert values[i] == pytest.approx(best, abs=1e-12)
                assert float(traced_values[i]) == pytest.approx(best, abs=tolerance)
                assert tuple(counts[i]) in winners
                assert tuple(np.asarray(traced_counts[i]).tolist()) in winners


@pytest.mark.parametrize(
    ("num_arms", "n0", "total"), [(1, 4, 3), (1, 4, 9), (5, 7, 34), (5, 7, 90)]
)
def test_solver_against_a_plain_table(num_arms, n0, total):
    rng = np.random.default_rng(2)
    prefix = rng.normal(0.5, 0.3, (6, num_arms, n0))
    later = rng.normal(0.5, 0.3, (6, num_arms))
    values, counts = mix_batch(prefix, later, total)
    assert np.all(counts.sum(axis=1) == total)
    for i in range(6):
        rows = oracle.two_part(prefix[i], later[i], total)
        assert values[i] == pytest.approx(oracle.by_table(rows, total), rel=1e-12)
        assert oracle.worth(rows, counts[i]) == pytest.approx(values[i], rel=1e-12)
        assert np.sum(counts[i] > n0) <= 1  # one arm at most goes beyond n0


def test_solver_of_a_hundred_thousand_pulls():
    """The table is out of reach; an allocation is at most `total` times the best slope better."""
    rng = np.random.default_rng(3)
    prefix, later = rng.random((4, 10, 20)), rng.random((4, 10))
    values, counts = mix_batch(prefix, later, 100_000)
    for i in range(4):
        short = oracle.by_table(oracle.two_part(prefix[i], later[i], 400), 400)
        # Beyond K n0 pulls another 99,600 go to an arm with the best slope, if not before.
        assert values[i] >= short + 99_600 * later[i].max() - 1e-6
        sums = np.concatenate([np.zeros((10, 1)), prefix[i].cumsum(axis=1)], axis=1)
        taker = int(counts[i].argmax())
        others = sum(sums[a, counts[i, a]] for a in range(10) if a != taker)
        beyond = (counts[i, taker] - 20) * later[i, taker]
        assert values[i] == pytest.approx(others + sums[taker, 20] + beyond, rel=1e-12)


# ------------------------------------------------------------------ inner problems and the bound


@pytest.mark.parametrize("wide", [False, True])
def test_inner_problem_from_any_state(wide, compilations):
    """Hand-written futures at horizon 14 and as play goes on, in either precision; one program."""
    alpha, beta, T0 = np.array([3.17, 1.09, 1.53]), np.array([1.14, 0.94, 2.24]), 10
    tolerance = 1e-10 if wide else 1e-5
    rng = np.random.default_rng(4)
    with jax.enable_x64(wide):
        dtype = np.float64 if wide else np.float32
        bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha.astype(dtype), beta.astype(dtype)), 14)
        compiled = []
        for left in range(14, 0, -1):
            rewards = rng.integers(0, 2, (3, 14)).astype(dtype)  # the last ones are not needed
            outcome = irsppl.Outcome(np.full(3, 0.5, dtype), rewards)
            solved = irsppl.solve_inner(bandit, irsppl.Mix(T0=T0), outcome)
            means = [
                oracle.means_along(a, a + b, row)
                for a, b, row in zip(alpha, beta, rewards, strict=True)
            ]
            rows = oracle.payoffs(means, oracle.early(T0, 3), left)
            best = oracle.by_table(rows, left)
            assert float(solved.value) == pytest.approx(best, rel=tolerance)
            pulls = np.asarray(solved.pulls)
            assert pulls.sum() == left and int(solved.action) == pulls.argmax()
            assert oracle.worth(rows, pulls) == pytest.approx(best, rel=tolerance)
            arm, reward = left % 3, int(rng.integers(0, 2))
            bandit = bandit.pull(arm, reward)
            alpha[arm] += reward
            beta[arm] += 1 - reward
            compiled.append(len(compilations))
    assert compiled[0] > 0 and compiled[-1] == compiled[1]  # nothing after the first two periods


def bernoulli(alpha, beta, horizon):
    """A small instance for the package and for the enumeration, and all its futures."""
    problem = exact.Problem(exact.BetaBernoulli(alpha, beta), horizon)
    listed = list(exact.outcomes(problem))
    rewards = np.array([o.rewards for o in listed], np.float32)
    futures = batch(np.zeros(rewards.shape[:2], np.float32), rewards)
    chances = np.array([o.probability for o in listed])
    return irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon), problem, futures, chances


@pytest.mark.parametrize(
    ("alpha", "beta", "horizon"),
    [([1.0, 1.0], [1.0, 1.0], 5), ([3.0, 1.0], [1.0, 2.0], 5), ([0.5, 2.0, 1.0], [1.5, 1, 1], 3)],
)
def test_exact_bound_never_below_the_optimum_and_in_order(alpha, beta, horizon):
    """V* <= V-Zero <= ... <= Mix(T0) <= ... <= FH, summed over every future: no sampling error."""
    bandit, problem, futures, chances = bernoulli(alpha, beta, horizon)
    num_arms = len(alpha)
    bounds = [find_penalty("irs.fh").values(bandit, futures) @ chances]
    for n0 in range(1, horizon):
        ours = irsppl.Mix(T0=num_arms * n0 + 1).values(bandit, futures) @ chances
        assert ours == pytest.approx(exact.bound(problem, oracle.payoff(n0)), abs=1e-9)
        bounds.append(ours)
    v_zero = find_penalty("irs.v-zero").values(bandit, futures) @ chances
    assert bounds[-1] == pytest.approx(v_zero, abs=1e-9)
    assert np.all(np.diff(bounds) <= 1e-12) and bounds[-1] < bounds[0] - 1e-3
    assert exact.optimal_value(problem) <= v_zero + 1e-9


def test_dual_feasible():
    """Mean penalty zero under policies that do not look ahead: every future, to rounding."""
    problem = exact.Problem(exact.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), 4)
    policies = {
        "always the last arm": lambda history: 1,
        "in turn": lambda history: len(history) % 2,
        "win-stay": lambda history: history[-1][0] ^ (not history[-1][1]) if history else 0,
        "at random": lambda history: [0.5, 0.5],
    }
    for n0 in (1, 2, 3):
        for name, policy in policies.items():
            mean = exact.policy_mean_penalty(problem, oracle.payoff(n0), policy)
            assert abs(mean) < 1e-12, (n0, name)


def test_sampled_bound_and_its_control_variates():
    """`bound` for several T0 in one call, against plain means over futures drawn by NumPy."""
    bandit = gaussian(9)
    penalties = [irsppl.Mix(T0=3), irsppl.Mix(T0=6), "irs.mix"]
    found = irsppl.bound(bandit, penalties, num_samples=3000)
    assert list(found) == ["irs.mix (T0=3)", "irs.mix (T0=6)", "irs.mix"]
    _, xi, nu, noise = (np.array(x) for x in STATES["normal-normal"])
    rng = np.random.default_rng(5)
    means = rng.normal(xi / nu, noise / np.sqrt(nu), (20_000, 3))
    rewards = rng.normal(means[:, :, None], noise[None, :, None], (20_000, 3, 9))
    for penalty in penalties:
        estimate = found[find_penalty(penalty).label]
        plain = find_penalty(penalty).values(bandit, batch(means, rewards))
        within(estimate.value, estimate.stderr, plain.mean(), plain.std() / np.sqrt(20_000))
        assert estimate.stderr < 0.2 * estimate.samples.std() / np.sqrt(3000)
    assert find_penalty("irs.mix").T0 == irsppl.Mix().T0 == 200


def test_order_of_the_bounds_at_a_longer_horizon():
    """Ten arms, T = 300, shared futures: V-Zero < Mix(100) < Mix(40) < FH, each by 4 s.e. or more.

    For independent arms the order is a theorem (docs/long-horizons.md). The differences are so
    clear that this would fail by chance less than once in 10^4 seeds.
    """
    rng = np.random.default_rng(6)
    means = rng.random((1500, 10))
    rewards = (rng.random((1500, 10, 300)) < means[:, :, None]).astype(np.float32)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(10), np.ones(10)), 300)
    futures = batch(means.astype(np.float32), rewards)
    penalties = ["irs.v-zero", irsppl.Mix(T0=100), irsppl.Mix(T0=40), "irs.fh"]
    values = [find_penalty(p).values(bandit, futures) for p in penalties]
    for tight, loose in itertools.pairwise(values):
        difference = loose - tight
        assert difference.mean() > 4 * difference.std() / np.sqrt(len(difference))


def test_with_a_large_T0_it_is_v_zero():
    """T0 >= K T: V-Zero's values and, with the same key, its decisions; arms in the last period."""
    bandit = gaussian(9)
    large = irsppl.Mix(T0=27)
    rng = np.random.default_rng(7)
    rewards = rng.normal(size=(40, 3, 9)).astype(np.float32)
    futures = batch(np.zeros((40, 3), np.float32), rewards)
    np.testing.assert_allclose(
        large.values(bandit, futures), find_penalty("irs.v-zero").values(bandit, futures), rtol=1e-6
    )
    for key in range(30):
        assert irsppl.choose(bandit, large, key) == irsppl.choose(bandit, "irs.v-zero", key)


def test_relabelling_arms_relabels_the_solution():
    order = [2, 0, 1]
    mean, sd, noise = np.array([2.0, 1.1, 1.7]), np.array([1.3, 0.9, 2.2]), np.array([1, 0.7, 1.4])
    bandit = irsppl.Bandit(irsppl.NormalNormal(mean, sd, noise), 9)
    moved = irsppl.Bandit(irsppl.NormalNormal(mean[order], sd[order], noise[order]), 9)
    rng = np.random.default_rng(8)
    for T0 in (3, 9):  # 9 pulls are at least K n0, and then the very same number
        for _ in range(5):
            rewards = rng.normal(1.5, 1, (3, 9))
            one = irsppl.solve_inner(bandit, irsppl.Mix(T0=T0), irsppl.Outcome(mean, rewards))
            two = irsppl.solve_inner(
                moved, irsppl.Mix(T0=T0), irsppl.Outcome(mean[order], rewards[order])
            )
            assert float(one.value) == pytest.approx(float(two.value), rel=1e-5)
            np.testing.assert_array_equal(np.asarray(one.pulls)[order], two.pulls)
            assert order[int(two.action)] == int(one.action)


# ------------------------------------------------------------------ decisions


# Shapes large enough for the fourth moments that the standard errors below need.
PREFIXES = {
    "beta-bernoulli": FAMILIES["beta-bernoulli"],
    "normal-inverse-gamma": lambda: irsppl.NormalInverseGamma(
        [0.0, 1.0, 0.5], [1.0, 2.0, 0.5], [6.0, 7.0, 8.0], [5.0, 6.0, 7.0]
    ),
}


@pytest.mark.parametrize("family", PREFIXES)
def test_a_future_without_its_bulk_has_the_right_law(family):
    """Later means: a martingale on the rewards drawn, and their exact marginal law."""
    belief, count = PREFIXES[family](), 4000
    draw = jax.jit(jax.vmap(lambda key, n: belief.sample_prefix(key, 4, n), in_axes=(0, None)))
    keys = jax.random.split(jax.random.key(0), count)
    _, rewards, later = (np.asarray(x, np.float64) for x in draw(keys, jnp.asarray(30)))
    xi, nu = belief.natural_state()
    early = (xi + rewards.sum(axis=2)) / (nu + 4)
    for arm, law in enumerate(belief.law(30)):
        moved, before = (later - early)[:, arm], early[:, arm] - xi[arm] / nu[arm]
        for noise in (moved, moved * before):  # E[later | early] = early
            within(noise.mean(), noise.std() / np.sqrt(count), 0.0)
        if hasattr(law, "points"):
            above = int(np.searchsorted(np.cumsum(law.probabilities), 0.7))
            cut, truth = law.points[above : above + 2].mean(), law.probabilities[: above + 1].sum()
        else:
            cut, truth = getattr(stats, law.name)(*law.args, law.loc, law.scale).ppf(0.7), 0.7
        within((later[:, arm] <= cut).mean(), np.sqrt(truth * (1 - truth) / count), truth)
    # Fewer rewards than are drawn: read off the path.
    _, rewards, later = draw(keys[:50], jnp.asarray(2))
    np.testing.assert_allclose(
        later, (xi + np.asarray(rewards)[:, :, :2].sum(axis=2)) / (nu + 2), rtol=1e-5
    )


@pytest.mark.parametrize("remaining", [6, 14])
@pytest.mark.parametrize("family", STATES)
def test_compiled_decisions_have_the_law_of_whole_futures(family, remaining):
    """Propensities from the kernel and from NumPy's samplers with a plain table, n0 = 3."""
    code, xi, nu, noise = STATES[family]
    arms = decide(irsppl.Mix(T0=9), code, xi, nu, noise, remaining, streams((0, 1), 2, 0, 40_000))
    compiled = np.bincount(arms, minlength=3) / 40_000
    rng = np.random.default_rng(10)
    plain = oracle.shares(rng, family, xi, nu, noise, 3, remaining, 1200)
    for a, b in zip(compiled, plain, strict=True):
        p = np.clip(a, 1e-3, 1 - 1e-3)
        within(b, np.sqrt(p * (1 - p) / 1200), a, np.sqrt(p * (1 - p) / 40_000))


@pytest.fixture(scope="module")
def decide_gaussian():
    """One program for all traced decisions: horizon 14, n0 = 3, the state is data."""

    @jax.jit
    def run(bandit_arrays, keys):
        bandit = eqx.combine(bandit_arrays, static)
        return jax.vmap(lambda key: irsppl.Mix(T0=9).decide(key, bandit))(keys)

    static = eqx.partition(gaussian(14), eqx.is_array)[1]

    def shares(bandit, key, count):
        arms = run(eqx.filter(bandit, eqx.is_array), jax.random.split(jax.random.key(key), count))
        return np.bincount(np.asarray(arms), minlength=3) / count

    return shares


@pytest.mark.parametrize("played", [0, 8])
def test_traced_decisions_have_the_law_of_compiled_ones(decide_gaussian, played):
    """From 14 periods left, and from 6 (fewer than K n0) of the same program."""
    bandit = gaussian(14)
    for i in range(played):
        bandit = bandit.pull(i % 3, 0.3)
    traced = decide_gaussian(bandit, 1, 20_000)
    kernel = engine.kernel(find_policy(irsppl.Mix(T0=9)), bandit)
    arms = kernel.decisions(streams((0, 1), 2, 0, 40_000))
    compiled = np.bincount(arms, minlength=3) / 40_000
    for a, b in zip(compiled, traced, strict=True):
        p = np.clip(a, 1e-3, 1 - 1e-3)
        within(b, np.sqrt(p * (1 - p) / 20_000), a, np.sqrt(p * (1 - p) / 40_000))


def test_pending_rewards_are_drawn_before_a_decision(decide_gaussian):
    """Two pulls of arm 1 and one of arm 2 pending: the law of whole futures that start so."""
    _, xi, nu, noise = STATES["normal-normal"]
    bandit = gaussian(14).pull(1).pull(2).pull(1)
    traced = decide_gaussian(bandit, 2, 20_000)
    rng = np.random.default_rng(11)
    plain = oracle.shares(rng, "normal-normal", xi, nu, noise, 3, 11, 1200, pending=[0, 2, 1])
    for a, b in zip(traced, plain, strict=True):
        p = np.clip(a, 1e-3, 1 - 1e-3)
        within(b, np.sqrt(p * (1 - p) / 1200), a, np.sqrt(p * (1 - p) / 20_000))
    ready = settled(jax.random.key(0), bandit)
    assert ready.pulled is None and int(ready.remaining) == 11
    added = np.asarray(ready.belief.nu) - np.array(nu)
    np.testing.assert_allclose(added, [0, 2, 1], atol=1e-4)


def test_index_with_lookahead_treats_pending_rewards_as_it_did():
    """Index(lookahead=4), three rewards pending: as with whole futures that start with those."""
    bandit = gaussian(9).pull(1).pull(2).pull(1)
    policy = irsppl.Index(lookahead=4)

    @jax.jit
    def both(keys):
        short = jax.vmap(lambda key: policy(key, bandit))(keys)

        def whole(key):
            outcome = jax.tree.map(lambda x: x[None], bandit.sample_outcome(key))
            return jnp.argmax(policy.indices_given(bandit, outcome))

        return short, jax.vmap(whole)(jax.random.split(keys[0], len(keys)))

    arms = [np.asarray(x) for x in both(jax.random.split(jax.random.key(3), 2500))]
    for a, b in zip(*(np.bincount(x, minlength=3) / 2500 for x in arms), strict=True):
        p = np.clip((a + b) / 2, 1e-3, 1 - 1e-3)
        within(a, np.sqrt(p * (1 - p) / 2500), b, np.sqrt(p * (1 - p) / 2500))


def test_one_period_left_is_myopic():
    for family, (code, xi, nu, noise) in STATES.items():
        arms = decide(irsppl.Mix(T0=60), code, xi, nu, noise, 1, streams((0, 1), 2, 0, 50))
        assert set(arms.tolist()) == {int(np.argmax(np.divide(xi, nu)))}, family


def test_compiled_paths_learn_and_keep_to_their_seed():
    """Chunks do not matter, and the better of two arms is pulled in nearly all of 4,000 periods."""
    rng = np.random.default_rng(12)
    means = np.array([0.3, 0.6])
    rewards = (rng.random((6, 2, 4000)) < means[None, :, None]).astype(np.float32)
    seeds = streams((0, 1), 2, 0, 6)
    state = (0, np.ones(2), np.full(2, 2.0), np.zeros(2))
    arms = simulate_paths(irsppl.Mix(T0=100), *state, rewards, seeds)
    np.testing.assert_array_equal(
        arms[2:4], simulate_paths(irsppl.Mix(T0=100), *state, rewards[2:4], seeds[2:4])
    )
    assert (arms == 1).mean() > 0.97
    first = decide(irsppl.Mix(T0=100), *state, 4000, seeds)
    np.testing.assert_array_equal(first, arms[:, 0])


# ------------------------------------------------------------------ long horizons


def largest(jaxpr):
    """Entries of the largest array that a program makes, its inner programs included."""
    most = 0
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            most = max(most, int(np.prod(getattr(variable.aval, "shape", ()))))
        for inner in jaxprs_in_params(equation.params):
            most = max(most, largest(inner))
    return most


@pytest.mark.parametrize("policy", [irsppl.Mix(), irsppl.Index(lookahead=200), "irs.fh"])
def test_no_array_of_a_decision_is_as_long_as_the_horizon(policy):
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(10), np.ones(10)), 100_000)
    found = find_policy(policy)
    found.check(bandit)
    # Without the record of pulls, which is as long as the horizon by its nature.
    arrays, static = eqx.partition(bandit.trimmed(100_000), eqx.is_array)
    program = jax.make_jaxpr(lambda key, a: found(key, eqx.combine(a, static)))(
        jax.random.key(0), arrays
    )
    assert largest(program.jaxpr) <= 10 * 10 * 210


def test_a_decision_costs_the_same_at_any_horizon():
    """T = 100,000 against T = 1,000, T0 = 200, ten arms: the best of nine runs each, in turn."""
    belief = irsppl.BetaBernoulli(np.ones(10), np.ones(10))
    mix = find_policy(irsppl.Mix())
    kernels = [engine.kernel(mix, irsppl.Bandit(belief, T)).decisions for T in (1000, 100_000)]
    seeds = streams((0, 1), 2, 0, 500)
    best = [np.inf, np.inf]
    for _ in range(9):
        for i, kernel in enumerate(kernels):
            start = time.perf_counter()
            kernel(seeds)
            best[i] = min(best[i], time.perf_counter() - start)
    assert best[1] < 1.5 * best[0]


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("T0", [0, -5, 1.5, True, None])
def test_T0_must_be_a_positive_whole_number(T0):
    with pytest.raises(ValueError, match="T0 must be"):
        irsppl.Mix(T0=T0)


class Correlated(irsppl.NormalNormal):
    """Says of itself that its arms are correlated."""

    @property
    def is_independent(self):
        return False


def test_correlated_arms_are_refused():
    bandit = irsppl.Bandit(Correlated([0.0, 0.0], [1.0, 1.0], [1.0, 1.0]), 5)
    with pytest.raises(ValueError, match=r"independent arms.*v-zero-separable"):
        irsppl.choose(bandit, irsppl.Mix(T0=10))
    with pytest.raises(ValueError, match="needs independent arms"):
        irsppl.bound(bandit, "irs.mix")


def test_kernels_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="total must be at least 1"):
        mix_batch(np.ones((1, 2, 3)), np.ones((1, 2)), 0)
    with pytest.raises(ValueError, match="prefix and later"):
        mix_batch(np.ones((1, 2, 3)), np.ones((1, 3)), 4)
