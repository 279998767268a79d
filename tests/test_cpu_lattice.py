"""The numba kernels of the V-EMax inner problem over the lattice of pull counts.

Statistical tests have fixed seeds, so they pass or fail for good.  Each compares at 4 combined
standard errors, a false alarm in 16,000 under a fresh seed; with 6 of them, one correct version
in 2,600 would fail.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from irsppl.inner.cpu import emax, families, rng
from irsppl.inner.cpu.emax import beta_exceeds
from irsppl.inner.cpu.families import sample_path

from .kernels import decide, simulate_paths
from .oracles.lattice import emax_sequence, gamma_lattice
from .oracles.rows import as_rows

BERNOULLI, GAUSSIAN = families.BETA_BERNOULLI, families.NORMAL_NORMAL
POISSON, EXPONENTIAL = families.GAMMA_POISSON, families.GAMMA_EXPONENTIAL
ALL = (BERNOULLI, GAUSSIAN, POISSON, EXPONENTIAL)

# Three arms of each family: xi, nu, noise sd.
BELIEFS = {
    BERNOULLI: ([3.0, 1.0, 1.5], [4.0, 2.0, 4.0], [1.0, 1.0, 1.0]),
    GAUSSIAN: ([0.0, 0.3, 0.5], [1.0, 2.0, 1.0], [1.0, 0.5, 2.0]),
    POISSON: ([2.0, 3.0, 4.5], [1.0, 2.0, 2.5], [1.0, 1.0, 1.0]),
    EXPONENTIAL: ([2.0, 2.2, 3.0], [2.0, 3.0, 2.5], [1.0, 1.0, 1.0]),
}


def expected_max_2(family, xi, nu, sd=1.0):
    """E[max(mu_1, mu_2)] of two arms with beliefs xi, nu, sd [2]."""
    x, n, s = as_rows(xi, nu, sd, (2,))
    work, gammas = np.empty((emax.ROWS, 2)), np.empty(1)
    work[[emax.MEAN1, emax.MEAN2], 0] = x / n
    emax.fill(family, x, n, s, *emax.pair_start(family, x, n), 1, work, gammas)
    return gammas[0]


def emax_batch_2(family, xi, nu, sd, rewards):
    """Values and first arms of two arms along rewards [S, 2, T]."""
    return emax.emax_batch_2(family, *as_rows(xi, nu, sd, (2,)), np.asarray(rewards, np.float64))


def belief(family, num_arms):
    return tuple(np.array(v[:num_arms]) for v in BELIEFS[family])


def mean_law(family, xi, nu, sd):
    """Posterior law of an arm's mean, frozen in scipy."""
    if family == BERNOULLI:
        return stats.beta(xi, nu - xi)
    if family == GAUSSIAN:
        return stats.norm(xi / nu, sd / math.sqrt(nu))
    if family == POISSON:
        return stats.gamma(xi, scale=1.0 / nu)
    return stats.invgamma(nu + 1.0, scale=xi)


def quad_max(family, xi, nu, sd):
    """E[max_a mu_a] by adaptive quadrature of 1 - prod F."""
    laws = [mean_law(family, *v) for v in zip(xi, nu, sd, strict=True)]

    def tail(x):
        return -math.expm1(sum(float(np.log1p(-law.sf(x))) for law in laws))

    lo = max(float(law.ppf(1e-16)) for law in laws)
    hi = max(float(law.ppf(1.0 - 1e-9)) for law in laws)
    cuts = sorted({lo, hi, *(float(law.median()) for law in laws if lo < law.median() < hi)})
    total = sum(
        integrate.quad(tail, a, b, limit=300, epsabs=1e-12)[0] for a, b in itertools.pairwise(cuts)
    )
    if family == EXPONENTIAL:
        total += integrate.quad(tail, hi, np.inf, epsabs=1e-11)[0]
    return lo + total


def outcome(generator, family, xi, nu, sd, horizon, runs=None):
    """Rewards [K, T], or [runs, K, T], drawn by numpy."""
    shape = (len(xi),) if runs is None else (runs, len(xi))
    full = (*shape, horizon)
    if family == BERNOULLI:
        theta = generator.beta(xi, nu - xi, shape)
        return (generator.uniform(size=full) < theta[..., None]).astype(float)
    if family == GAUSSIAN:
        theta = generator.normal(xi / nu, sd / np.sqrt(nu), shape)
        return theta[..., None] + sd[:, None] * generator.normal(size=full)
    if family == POISSON:
        theta = generator.gamma(xi, 1.0 / nu, shape)
        return generator.poisson(np.broadcast_to(theta[..., None], full)).astype(float)
    scale = xi / generator.gamma(nu + 1.0, 1.0, shape)
    return generator.exponential(size=full) * scale[..., None]


def along(xi, nu, rewards):
    """xi and nu after 0 .. T rewards, [K, T + 1] each."""
    before = np.zeros((len(xi), 1))
    xs = np.asarray(xi)[:, None] + np.concatenate([before, np.cumsum(rewards, axis=1)], axis=1)
    return xs, np.asarray(nu)[:, None] + np.arange(rewards.shape[1] + 1)


def brute_force(means, gamma_at, horizon):
    """Best total payoff over all K^T sequences, and the first sequence that attains it."""
    best, best_sequence = -np.inf, None
    for sequence in itertools.product(range(len(means)), repeat=horizon):
        total = payoff_of(sequence, means, gamma_at)
        if total > best + 1e-12:
            best, best_sequence = total, sequence
    return best, best_sequence


def payoff_of(sequence, means, gamma_at):
    counts, total = [0] * len(means), 0.0
    for t, arm in enumerate(sequence):
        here = gamma_at(tuple(counts))
        total += means[arm][counts[arm]]
        counts[arm] += 1
        total += (len(sequence) - t - 1) * (here - gamma_at(tuple(counts)))
    return total


# --- E[max]


def test_beta_exceeds():
    generator = np.random.default_rng(1)
    for i in range(60):
        a, b, c, d = (
            generator.uniform(0.3, 12.0, 4)
            if i % 2
            else generator.integers(1, 200, 4).astype(float)
        )
        x, y = stats.beta(a, b), stats.beta(c, d)
        ends = [0.0, *sorted([float(x.median()), float(y.median())]), 1.0]
        want = sum(
            integrate.quad(lambda u, x=x, y=y: x.pdf(u) * y.cdf(u), lo, hi, limit=400)[0]
            for lo, hi in itertools.pairwise(ends)
        )
        assert beta_exceeds(a, b, c, d) == pytest.approx(want, abs=1e-8)
        assert beta_exceeds(a, b, c, d) + beta_exceeds(c, d, a, b) == pytest.approx(1.0, abs=1e-12)
    assert beta_exceeds(1.0, 1.0, 2.0, 1.0) == pytest.approx(1.0 / 3.0, abs=1e-14)
    # Large parameters: the sum that ends because a is whole, in logarithms.
    a, b, c, d = 700, 350.5, 1300.0, 640.25
    i = np.arange(a)

    def log_beta(u, v):
        return np.vectorize(math.lgamma)(u) + math.lgamma(v) - np.vectorize(math.lgamma)(u + v)

    terms = log_beta(c + i, b + d) - np.log(b + i) - log_beta(1.0 + i, b) - log_beta(c, d)
    assert beta_exceeds(float(a), b, c, d) == pytest.approx(np.exp(terms).sum(), abs=1e-9)


def test_beta_exceeds_next_to_certainty():
    """P(X > Y) = E[(1 - Y)^b] for X ~ Beta(1, b); with b = 0.001 it was 0.55 instead of 0.998."""
    for b, c, d in ((1e-3, 5.0, 1.5), (3e-3, 0.4, 0.7), (1e-3, 2e-3, 3.0)):
        want = math.exp(special.betaln(c, d + b) - special.betaln(c, d))
        assert beta_exceeds(1.0, b, c, d) == pytest.approx(want, abs=2e-6)
        assert beta_exceeds(b, 1.0, d, c) == pytest.approx(1.0 - want, abs=2e-6)


@pytest.mark.parametrize("family", ALL)
def test_expected_max_of_two(family):
    xi, nu, sd = belief(family, 2)
    rewards = outcome(np.random.default_rng(2), family, xi, nu, sd, 12)
    xs, ns = along(xi, nu, rewards)
    for n in [(0, 0), (1, 0), (0, 1), (5, 7), (12, 3)]:
        now = np.array([xs[a, n[a]] for a in range(2)]), np.array([ns[a, n[a]] for a in range(2)])
        want = quad_max(family, *now, sd)
        assert expected_max_2(family, *now, sd) == pytest.approx(want, abs=2e-9)


@pytest.mark.parametrize("family", ALL)
def test_gamma_lattice(family):
    """Two arms against the closed forms everywhere, three against adaptive quadrature."""
    generator = np.random.default_rng(3)
    xi, nu, sd = belief(family, 2)
    rewards = outcome(generator, family, xi, nu, sd, 30)
    xs, ns = along(xi, nu, rewards)
    table = gamma_lattice(family, xi, nu, sd, rewards)
    assert table.shape == (31, 31)
    for i, j in itertools.product(range(31), repeat=2):
        if i + j > 30:
            assert np.isnan(table[i, j])
        else:
            want = expected_max_2(family, [xs[0, i], xs[1, j]], [ns[0, i], ns[1, j]], sd)
            assert table[i, j] == pytest.approx(want, abs=1e-9)
    xi, nu, sd = belief(family, 3)
    rewards = outcome(generator, family, xi, nu, sd, 6)
    xs, ns = along(xi, nu, rewards)
    table = gamma_lattice(family, xi, nu, sd, rewards)
    for n in [(0, 0, 0), (1, 2, 3), (6, 0, 0), (0, 2, 4)]:
        now = [np.array([v[a, n[a]] for a in range(3)]) for v in (xs, ns)]
        assert table[n] == pytest.approx(quad_max(family, *now, sd), abs=2e-9)


def test_gamma_is_a_martingale():
    """E[Gamma(n + e_a) | n] = Gamma(n) over the next Bernoulli reward, to 1e-12."""
    generator = np.random.default_rng(4)
    for _ in range(20):
        a, b = generator.uniform(0.4, 9.0, (2, 3))
        xi, nu = a, a + b
        rewards = generator.integers(0, 2, (3, 3)).astype(float)
        for arm in range(3):
            tables = []
            for r in (0.0, 1.0):
                # The second reward of `arm` is the one that is averaged over.
                rewards[arm, 1] = r
                tables.append(gamma_lattice(BERNOULLI, xi, nu, 1.0, rewards, 64))
            n = [1, 0, 0] if arm else [0, 1, 0]
            n[arm] = 1
            after = list(n)
            after[arm] = 2
            p = (xi[arm] + rewards[arm, 0]) / (nu[arm] + 1.0)
            now, down, up = tables[0][tuple(n)], tables[0][tuple(after)], tables[1][tuple(after)]
            assert p * up + (1.0 - p) * down == pytest.approx(now, abs=1e-12)
        for arm in range(2):
            x, n = xi[:2].copy(), nu[:2].copy()
            now, p = expected_max_2(BERNOULLI, x, n), x[arm] / n[arm]
            n[arm] += 1.0
            down = expected_max_2(BERNOULLI, x, n)
            x[arm] += 1.0
            up = expected_max_2(BERNOULLI, x, n)
            assert p * up + (1.0 - p) * down == pytest.approx(now, abs=1e-12)


# --- the inner problem


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("horizon", [1, 2, 6])
def test_two_arms_against_all_sequences(family, horizon):
    generator = np.random.default_rng(5)
    xi, nu, sd = belief(family, 2)
    rewards = outcome(generator, family, xi, nu, sd, horizon, runs=6)
    values, first = emax_batch_2(family, xi, nu, sd, rewards)
    for s in range(6):
        xs, ns = along(xi, nu, rewards[s])

        @functools.cache
        def gamma_at(n, xs=xs, ns=ns):
            now = [np.array([v[a, n[a]] for a in range(2)]) for v in (xs, ns)]
            return quad_max(family, *now, sd) if horizon <= 2 else expected_max_2(family, *now, sd)

        best, sequence = brute_force(xs / ns, gamma_at, horizon)
        assert values[s] == pytest.approx(best, abs=1e-8 if horizon <= 2 else 1e-10)
        assert first[s] == sequence[0]


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(("num_arms", "horizon"), [(2, 5), (3, 5)])
def test_sequences_against_all_sequences(family, num_arms, horizon):
    generator = np.random.default_rng(6)
    xi, nu, sd = belief(family, num_arms)
    for _ in range(4):
        rewards = outcome(generator, family, xi, nu, sd, horizon)
        xs, ns = along(xi, nu, rewards)
        table = gamma_lattice(family, xi, nu, sd, rewards)
        best, sequence = brute_force(xs / ns, table.__getitem__, horizon)
        for given in (table, table.ravel()):
            value, got = emax_sequence(given, (xs / ns)[:, :horizon], horizon)
            assert value == pytest.approx(best, abs=1e-11)
            # Two orders of the same pulls may tie but for rounding: then either is a best one.
            if got.tolist() != list(sequence):
                again = payoff_of(got.tolist(), xs / ns, table.__getitem__)
                assert again == pytest.approx(best, abs=1e-11)
            assert got.dtype == np.int32


def test_worked_example(paper):
    example = paper["worked_example"]
    priors = np.array(example["priors"], float)
    rewards = np.array(example["outcome"]["rewards"], float)
    xi, nu = priors[:, 0], priors.sum(axis=1)
    xs, ns = along(xi, nu, rewards)
    table = gamma_lattice(BERNOULLI, xi, nu, 1.0, rewards)
    value, sequence = emax_sequence(table, xs / ns, example["T"])
    assert value == pytest.approx(5.806207681207685, abs=1e-12)
    assert (sequence + 1).tolist() == [1, 2, 2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("family", ALL)
def test_two_armed_kernel_against_the_general_one(family):
    """A long horizon, so that a drift of the recurrences would show."""
    generator = np.random.default_rng(7)
    xi, nu, sd = belief(family, 2)
    horizon = 200 if family in (BERNOULLI, GAUSSIAN) else 40
    rewards = outcome(generator, family, xi, nu, sd, horizon, runs=3)
    values, first = emax_batch_2(family, xi, nu, sd, rewards)
    for s in range(3):
        xs, ns = along(xi, nu, rewards[s])
        table = gamma_lattice(family, xi, nu, sd, rewards[s])
        value, sequence = emax_sequence(table, xs / ns, horizon)
        assert values[s] == pytest.approx(value, abs=1e-9)
        assert first[s] == sequence[0]


def test_arms_far_apart_stay_finite():
    """Beliefs so distinct that the recurrence's factors vanish; then arm 1 is simply better."""
    horizon = 600
    rewards = np.stack([np.zeros(horizon), np.ones(horizon)])[None]
    values, first = emax_batch_2(BERNOULLI, [1.0, 400.0], [400.0, 401.0], 1.0, rewards)
    assert first[0] == 1
    means = (400.0 + np.arange(horizon)) / (401.0 + np.arange(horizon))
    # Gamma is the mean of arm 1, and T Gamma[0] - sum Gamma + sum of means collapses.
    assert values[0] == pytest.approx(horizon * means[0], rel=1e-12)


def test_ties_go_to_the_lowest_arm():
    rewards = np.ones((1, 2, 7))
    _, first = emax_batch_2(GAUSSIAN, [1.0, 1.0], [2.0, 2.0], 1.0, rewards)
    assert first[0] == 0
    table = np.zeros((4, 4, 4))
    _, sequence = emax_sequence(table, np.full((3, 3), 0.25), 3)
    assert sequence.tolist() == [0, 0, 0]


# --- the bound and the policy


def test_bound_exceeds_the_optimum_by_enumeration():
    """All outcomes of two Bernoulli arms: V* <= W^V-EMax <= T E max, without sampling."""
    xi, nu, horizon = np.array([1.0, 1.5]), np.array([2.0, 2.5]), 4
    outcomes = np.array(list(itertools.product((0.0, 1.0), repeat=2 * horizon)))
    outcomes = outcomes.reshape(-1, 2, horizon)
    chance = np.ones(len(outcomes))
    for a in range(2):
        x = np.full(len(outcomes), xi[a])
        for n in range(horizon):
            p = x / (nu[a] + n)
            chance *= np.where(outcomes[:, a, n] > 0.5, p, 1.0 - p)
            x += outcomes[:, a, n]
    assert chance.sum() == pytest.approx(1.0)
    values, _ = emax_batch_2(BERNOULLI, xi, nu, 1.0, outcomes)

    @functools.cache
    def optimum(left, x0, n0, x1, n1):
        if left == 0:
            return 0.0
        p, q = x0 / n0, x1 / n1
        first = p * (1.0 + optimum(left - 1, x0 + 1, n0 + 1, x1, n1))
        first += (1.0 - p) * optimum(left - 1, x0, n0 + 1, x1, n1)
        second = q * (1.0 + optimum(left - 1, x0, n0, x1 + 1, n1 + 1))
        second += (1.0 - q) * optimum(left - 1, x0, n0, x1, n1 + 1)
        return max(first, second)

    best = optimum(horizon, 1.0, 2.0, 1.5, 2.5)
    bound = chance @ values
    sampled = horizon * expected_max_2(BERNOULLI, xi, nu)
    assert best - 1e-12 <= bound < best + 0.5 * (sampled - best)


def test_bound_two_uniform_arms():
    """Regret bound 1.56 (0.007) at T = 200, from computations apart from these."""
    generator = np.random.default_rng(8)
    prior = (np.ones(2), np.full(2, 2.0), np.ones(2))
    rewards = outcome(generator, BERNOULLI, *prior, 200, runs=4000).astype(np.float32)
    values, _ = emax_batch_2(BERNOULLI, *prior, rewards)
    sample = 200.0 * 2.0 / 3.0 - values
    error = math.hypot(sample.std() / math.sqrt(sample.size), 0.007)
    assert error < 0.05
    assert abs(sample.mean() - 1.56) < 4.0 * error


@pytest.mark.parametrize("family", ALL)
def test_sampled_futures_have_the_right_law(family):
    """How often arm 0 is played: the kernel's own futures against numpy's; 4 comparisons."""
    generator = np.random.default_rng(70 + family)
    xi, nu = {
        BERNOULLI: ([2.0, 5.5], [4.0, 9.5]),
        GAUSSIAN: ([0.0, 0.6], [2.0, 3.0]),
        POISSON: ([3.6, 6.0], [2.0, 3.0]),
        EXPONENTIAL: ([4.0, 5.0], [3.2, 4.0]),
    }[family]
    xi, nu, sd = np.array(xi), np.array(nu), np.array([0.8, 0.7])
    runs, horizon = 3000, 20
    seeds = generator.integers(0, 2**63, runs).astype(np.uint64)
    inside = decide("irs.v-emax", family, xi, nu, sd, horizon, seeds) == 0
    rewards = outcome(generator, family, xi, nu, sd, horizon, runs=runs)
    outside = emax_batch_2(family, xi, nu, sd, rewards)[1] == 0
    error = math.hypot(inside.std(), outside.std()) / math.sqrt(runs)
    assert 0.05 < outside.mean() < 0.95
    assert abs(inside.mean() - outside.mean()) < 4.0 * error


@pytest.mark.parametrize("family", ALL)
def test_paths_are_a_chain_of_decisions(family):
    """The path kernel carries what it knows of the beliefs; decisions afresh must agree."""
    generator = np.random.default_rng(9)
    xi0, nu0, sd = belief(family, 2)
    horizon = 25
    rewards = outcome(generator, family, xi0, nu0, sd, horizon, runs=4)
    seeds = np.arange(4, dtype=np.uint64) + 3
    actions = simulate_paths("irs.v-emax", family, xi0, nu0, sd, rewards, seeds)
    assert actions.shape == (4, horizon)
    assert actions.dtype == np.int16
    np.testing.assert_array_equal(
        simulate_paths("irs.v-emax", family, xi0, nu0, sd, rewards[2:], seeds[2:]), actions[2:]
    )
    np.testing.assert_array_equal(
        decide("irs.v-emax", family, xi0, nu0, sd, horizon, seeds), actions[:, 0]
    )
    work = np.empty((emax.ROWS, horizon + 1))
    gammas, path = np.empty(horizon * (horizon + 1) // 2), np.empty(horizon)
    for s in range(4):
        state = np.empty(4, np.uint64)
        rng.seed_state(seeds[s], state)
        xi, nu, pulls = xi0.copy(), nu0.copy(), [0, 0]
        for t in range(horizon):
            left, arm = horizon - t, int(np.argmax(xi / nu))
            if left > 1:
                for a, row in enumerate((emax.MEAN1, emax.MEAN2)):
                    sample_path(state, family, xi[a], nu[a], sd[a], left, path, 0)
                    work[row, :left] = path[:left] if a == 0 else path[left - 1 :: -1][:left]
                emax.fill(family, xi, nu, sd, *emax.pair_start(family, xi, nu), left, work, gammas)
                arm = emax.solve_2(left, work, gammas)[1]
            assert arm == actions[s, t]
            xi[arm] += rewards[s, arm, pulls[arm]]
            nu[arm] += 1.0
            pulls[arm] += 1
        # At the end of the path there is nothing left to learn.
        assert decide("irs.v-emax", family, xi, nu, sd, 1, seeds[:1])[0] == np.argmax(xi / nu)


def test_policy_two_uniform_arms():
    """The policy earns less than its bound allows and more than Thompson sampling (3.55)."""
    generator = np.random.default_rng(10)
    means = generator.uniform(size=(300, 2))
    rewards = (generator.uniform(size=(300, 2, 200)) < means[:, :, None]).astype(float)
    actions = simulate_paths(
        "irs.v-emax", BERNOULLI, [1.0, 1.0], [2.0, 2.0], 1.0, rewards, np.arange(300)
    )
    pulled = np.take_along_axis(means, actions.astype(np.int64), axis=1)
    sample = (means.max(axis=1, keepdims=True) - pulled).sum(axis=1)
    error = sample.std() / math.sqrt(sample.size)
    assert 2.239 - 4.0 * error < sample.mean() < 3.55


def test_wrong_arguments_are_named():
    prior = ([1.0, 1.0], [2.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="rewards"):
        emax_batch_2(BERNOULLI, *prior, np.zeros((1, 3, 3)))
    with pytest.raises(ValueError, match="rewards"):
        gamma_lattice(BERNOULLI, *prior, np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="mu_hat"):
        emax_sequence(np.zeros((4, 4)), np.zeros((2, 2)), 3)
    with pytest.raises(ValueError, match="gammas"):
        emax_sequence(np.zeros((3, 4)), np.zeros((2, 3)), 3)
