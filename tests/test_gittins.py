"""The finite-horizon Gittins index against a bisected stopping recursion and known properties."""

from functools import cache

import numpy as np
import pytest

from irsppl.inner import bellman, gittins

from . import kernels


def slow_index(alpha, beta, remaining):
    """Bisection on the rate, with the stopping problem solved by plain recursion."""

    def worth_a_pull(rate):
        @cache
        def value(s, f, left):
            return max(0.0, pull(s, f, left)) if left else 0.0

        def pull(s, f, left):
            mean = (alpha + s) / (alpha + beta + s + f)
            win, lose = value(s + 1, f, left - 1), value(s, f + 1, left - 1)
            return mean - rate + mean * win + (1.0 - mean) * lose

        return pull(0, 0, remaining) > 0.0

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if worth_a_pull(middle) else (low, middle)
    return low


# Between rates of the grid, 2,000 in whole chunks.
SPACING = 1 / (31 * 65)


@pytest.fixture(scope="module")
def table():
    return gittins.index_table(0.7, 1.8, 60)


def states(horizon):
    """All (remaining, successes, failures) of a table, as three arrays."""
    r, s, f = np.meshgrid(*[np.arange(horizon + 1)] * 3, indexing="ij")
    keep = (r >= 1) & (r + s + f <= horizon)
    return r[keep], s[keep], f[keep]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.3, 2.5), (4.0, 1.2), (12.0, 30.0)])
@pytest.mark.parametrize("remaining", [1, 2, 3, 5, 9])
def test_index_matches_the_bisected_recursion(alpha, beta, remaining):
    exact = gittins.gittins_index(alpha, beta, remaining)
    assert exact == pytest.approx(slow_index(alpha, beta, remaining), abs=1e-13)


def test_index_by_hand():
    assert gittins.gittins_index(1.0, 1.0, 1) == 0.5
    # One success keeps the arm, one failure ends it: (1/2 + 1/2 2/3) / (1 + 1/2).
    assert gittins.gittins_index(1.0, 1.0, 2) == pytest.approx(5.0 / 9.0, abs=1e-15)


def test_arguments_broadcast():
    index = gittins.gittins_index(np.array([[1.0], [2.0]]), [1.0, 2.0, 3.0], 7)
    assert index.shape == (2, 3)
    assert index[1, 2] == gittins.gittins_index(2.0, 3.0, 7)


def test_index_grows_with_the_horizon_from_the_mean():
    remaining = np.arange(1, 120)
    index = gittins.gittins_index(2.0, 3.0, remaining)
    assert index[0] == pytest.approx(0.4, abs=1e-15)
    assert np.all(np.diff(index) > 0.0)
    assert index[-1] < 1.0


def test_index_is_the_best_rate_of_reward():
    """At the index, playing the arm to the end or not at all are both worth nothing extra."""
    index = float(gittins.gittins_index(1.0, 1.0, 30))
    # A second arm of known mean, just below or above the index, is left or preferred at the start.
    known = 1e9
    for shift, arm in ((-1e-4, 1), (1e-4, 0)):
        mean = index + shift
        solution = bellman.solve_two_bernoulli([known * mean, 1.0], [known * (1.0 - mean), 1.0], 30)
        assert solution.action([[0, 0], [0, 0]]) == arm


def test_table_is_close_to_the_exact_index_everywhere(table):
    r, s, f = states(60)
    assert r.size == table.size
    exact = gittins.gittins_index(0.7 + s, 1.8 + f, r)
    error = kernels.gittins_at(table, r, s, f) - exact
    assert not np.isnan(table).any()
    assert np.abs(error).max() < 0.2 * SPACING
    assert np.abs(error).mean() < 0.005 * SPACING
    # The interpolated function is convex: apart from float32 rounding errors are upwards.
    assert error.min() > -2e-7


def test_table_has_the_right_shape(table):
    r, s, f = states(60)
    index = kernels.gittins_at(table, r, s, f)
    one = r == 1
    np.testing.assert_allclose(index[one], (0.7 + s[one]) / (2.5 + s[one] + f[one]), atol=1e-7)
    more = r + s + f < 60
    slack = 0.2 * SPACING
    assert np.all(kernels.gittins_at(table, r[more] + 1, s[more], f[more]) >= index[more] - slack)
    assert np.all(kernels.gittins_at(table, r[more], s[more] + 1, f[more]) > index[more] - slack)
    assert np.all(kernels.gittins_at(table, r[more], s[more], f[more] + 1) < index[more] + slack)
    assert table.nbytes == 4 * 60 * 61 * 62 // 6


def test_coarse_grids_and_large_priors():
    for alpha, beta, cells in ((1.0, 1.0, 1), (25.0, 3.0, 40), (0.05, 0.05, 300)):
        coarse = gittins.index_table(alpha, beta, 12, num_rates=cells)
        r, s, f = states(12)
        exact = gittins.gittins_index(alpha + s, beta + f, r)
        spacing = 1 / (31 * -(-cells // 31))  # whole chunks
        assert np.abs(kernels.gittins_at(coarse, r, s, f) - exact).max() < 0.5 * spacing


def test_threads_change_nothing(monkeypatch):
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(gittins.os, "cpu_count", lambda threads=threads: threads)
        found.append(gittins.index_table(1.0, 1.0, 40))
    np.testing.assert_array_equal(*found)


def test_paths_follow_the_largest_index():
    rng = np.random.default_rng(0)
    tables = [gittins.index_table(1.0, 1.0, 25), gittins.index_table(2.0, 1.0, 25)]
    group = np.array([0, 1, 0])
    rewards = rng.integers(0, 2, (20, 3, 25))
    actions = kernels.follow(kernels.gittins(tables, group), rewards)
    assert actions.dtype == np.int16
    for i in range(20):
        s, f = np.zeros(3, int), np.zeros(3, int)
        for t in range(25):
            index = [kernels.gittins_at(tables[g], 25 - t, s[a], f[a]) for a, g in enumerate(group)]
            arm = int(np.argmax(index))
            assert actions[i, t] == arm
            won = rewards[i, arm, s[arm] + f[arm]]
            s[arm] += won
            f[arm] += 1 - won


def test_policy_is_nearly_optimal():
    rng = np.random.default_rng(1)
    means = rng.uniform(size=(20_000, 2))
    rewards = (rng.uniform(size=(20_000, 2, 50)) < means[:, :, None]).astype(np.int8)
    solution = kernels.solve_bernoulli([1, 1], [1, 1], 50)
    optimal = kernels.follow(kernels.optimal(solution), rewards)
    index = kernels.follow(kernels.gittins([gittins.index_table(1, 1, 50)], [0, 0]), rewards)
    value = [np.take_along_axis(means, a.astype(int), 1).sum(axis=1) for a in (optimal, index)]
    loss = value[0] - value[1]
    error = loss.std() / np.sqrt(loss.size)
    assert -4.5 * error < loss.mean() < 0.1 + 4.5 * error


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="remaining"):
        gittins.gittins_index(1.0, 1.0, 0)
    with pytest.raises(ValueError, match="positive"):
        gittins.index_table(0.0, 1.0, 5)
    with pytest.raises(ValueError, match="MB"):
        gittins.index_table(1.0, 1.0, 1200)
