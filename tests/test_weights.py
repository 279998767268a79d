"""Arithmetic on the weights of points against plain NumPy."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from irsppl.engine import verbs
from irsppl.engine.families import weights as own
from irsppl.engine.families.cloud import tabulate
from irsppl.engine.families.memory import finite_logs, lined_up, room
from irsppl.engine.families.points import points
from irsppl.inner.cpu.rng import streams

BLOCK = own.BLOCK
POINTS = 3 * BLOCK


def random_state(seed):
    return streams((0, seed), 2, 0, 4)[:4].astype(np.uint64)


def settled(raw):
    weights, sums, span = raw.copy(), np.empty(raw.size // BLOCK), np.zeros(2, np.int64)
    own.settle(weights, sums, raw.sum(), span)
    return weights, sums, span


def test_exponentials_and_logarithms_in_single_precision():
    x = np.linspace(-79, 79, 2001).astype(np.float32)
    found = np.array([own.ratio32(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x.astype(float)), rtol=3e-7)
    assert own.ratio32(np.float32(-1e9)) > 0 and np.isfinite(own.ratio32(np.float32(1e9)))
    x = np.append(10.0 ** np.linspace(-37, 0, 2001), [0.5, 0.7071, 0.70711]).astype(np.float32)
    found = np.array([own.log32(value) for value in x])
    # Two ulps of the logarithm, and what it has near one.
    np.testing.assert_allclose(found, np.log(x.astype(float)), rtol=2e-7, atol=1e-7)
    assert own.log32(np.float32(0.0)) == own.LEAST_LOG


def test_weights_add_to_one_and_points_are_found_by_their_running_sum():
    raw = np.random.default_rng(0).gamma(0.3, size=POINTS)
    raw[5:9] = 0.0
    weights, sums, _ = settled(raw)
    np.testing.assert_allclose(weights, raw / raw.sum(), rtol=1e-14)
    running = np.cumsum(weights)
    np.testing.assert_allclose(sums, running[BLOCK - 1 :: BLOCK], rtol=1e-14)
    for level in np.linspace(0, 1, 500, endpoint=False):
        at = own.find(weights, sums, level)
        assert at == min(np.searchsorted(running, level, side="right"), POINTS - 1)
        assert weights[at] > 0
    raw[-4:] = 0.0
    weights, sums, _ = settled(raw)
    assert own.find(weights, sums, 1.0) == POINTS - 5  # never a point without weight


@pytest.mark.parametrize("low, high", [(0, POINTS), (BLOCK, POINTS), (BLOCK, 2 * BLOCK)])
def test_the_stretch_leaves_out_ends_that_weigh_nothing(low, high):
    raw = np.full(POINTS, 1e-12)
    raw[low:high] = 1.0
    assert settled(raw)[2].tolist() == [low, high]


@pytest.mark.parametrize("n", [7, 1000])  # one by one, and by binomial counts
def test_draws_add_their_log_likelihoods(n):
    rng = np.random.default_rng(1)
    atoms, point, low = 9, 40, BLOCK
    law = rng.dirichlet(np.ones(atoms), size=POINTS)
    logs = np.log(law.T).astype(np.float32)
    counts, scores = np.empty(atoms, np.int64), np.ones(POINTS - low, np.float32)
    total = np.zeros(atoms)
    for seed in range(200):
        scores[:] = 1.0
        own.add_draws(
            random_state(seed), np.cumsum(law[point]), n, logs, point, counts, scores, low
        )
        assert counts.sum() == n and counts.min() >= 0
        exact = counts @ (logs[:, low:] - logs[:, point : point + 1]).astype(float)
        np.testing.assert_allclose(scores, 1 + exact, rtol=1e-4, atol=1e-4 * n)
        total += counts
    share, expected = total / (200 * n), law[point]
    # Nine shares, each within 4.5 standard errors: one false alarm in 16,000.
    assert np.all(np.abs(share - expected) < 4.5 * np.sqrt(expected / (200 * n)))


def test_tables_of_a_cloud():
    mass = np.random.default_rng(2).dirichlet(np.ones(5), size=40).T.astype(np.float32)
    mass[3] = 0.0  # a reward that no point allows
    room, atoms = 2 * BLOCK, 6
    likelihood, logs = np.full((2, atoms, room), np.nan, np.float32)
    law = np.full((room, atoms), np.nan, np.float32)
    tabulate(mass, likelihood, logs, law)
    top = mass.max(axis=1, keepdims=True)
    scaled = np.divide(mass, top, out=np.zeros_like(mass), where=top > 0)
    np.testing.assert_allclose(likelihood[:5, :40], scaled, rtol=1e-6)
    np.testing.assert_allclose(logs[:5, :40], finite_logs(scaled), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(law[:40, :5], np.cumsum(mass, axis=0).T, rtol=1e-6)
    assert np.all(likelihood[5] == 0) and np.all(likelihood[:, 40:] == 0)
    assert np.all(logs[5] == own.LEAST_LOG) and np.all(law[40:] == 1) and np.all(law[:, 5] == 1)


@njit
def draw_all(family, rng, out):
    for s in range(len(out)):
        verbs.draw_means(family, rng, out[s])


@njit
def quantile(family, level):
    return verbs.quantile(family, 0, level, 0.0, -np.inf, 0.0)


@pytest.mark.parametrize("smooth", [False, True])
def test_points_of_a_density_stand_for_what_lies_between_them(smooth):
    mu, even = np.arange(BLOCK, dtype=float)[None], np.full((1, BLOCK), 1 / BLOCK)
    family = points(even, np.ones((1, BLOCK, 1)), np.zeros((1, 1)), mu, 0, smooth)
    family.weights[:], family.means[:] = even, mu.mean()
    own.settle(family.weights[0], family.sums[0], 1.0, family.span[0])
    at = [quantile(family, (k + 0.75) / BLOCK) for k in range(BLOCK)]
    assert at == pytest.approx(mu[0] + 0.25 * smooth * (np.arange(BLOCK) < BLOCK - 1))
    drawn = np.empty((4000, 1))
    draw_all(family, random_state(0), drawn)
    if not smooth:
        assert set(drawn.ravel()) <= set(mu.ravel())
        return
    inner = drawn[(drawn > 0.5) & (drawn < BLOCK - 1.5)]  # the two at the ends reach inwards only
    low, high = 0.5, BLOCK - 1.5
    # One false alarm in 10,000.
    assert stats.kstest(inner, stats.uniform(low, high - low).cdf).pvalue > 1e-4
    assert drawn.min() >= 0 and drawn.max() <= BLOCK - 1


def test_arrays_begin_with_a_cache_line():
    for shape, dtype in (((3, 5), np.float32), (7, np.int64), ((2, 0), np.float64)):
        made = room(shape, dtype)
        assert made.shape == np.empty(shape).shape and made.dtype == dtype
        assert made.flags.c_contiguous and (made.ctypes.data % 64 == 0 or not made.size)
    given = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(lined_up(given), given)
    family = points(
        np.ones((1, BLOCK)), np.ones((1, BLOCK, 1)), np.zeros((1, 1)), np.zeros((1, BLOCK)), 3
    )
    fields = [*family[:-1], *family.work]
    assert all(field.ctypes.data % 64 == 0 for field in fields if field.size)
