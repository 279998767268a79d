"""Means of samples that come in blocks: those of all samples at once, by the textbook's formula."""

import math

import jax
import numpy as np
import pytest

import irsppl
from irsppl._running import RunningMean
from irsppl.bounds import Sampler


def at_once(samples, controls):
    """Least squares on everything together; the mean is the intercept."""
    design = np.stack([np.ones(len(samples)), *controls], axis=1)
    fitted = np.linalg.solve(design.T @ design, design.T @ samples)
    residual = samples - design @ fitted
    spread = math.sqrt(residual @ residual / (len(samples) - design.shape[1]))
    return fitted[0], spread * math.sqrt(np.linalg.inv(design.T @ design)[0, 0])


def in_blocks(samples, controls, cuts):
    running = RunningMean()
    for part in np.split(np.arange(len(samples)), cuts):
        running.add(samples[part], [control[part] for control in controls])
    return running.mean_error()


@pytest.mark.parametrize("cuts", [[], [1], [2, 3, 500], range(10, 1000, 10)], ids=str)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_blocks_give_the_mean_of_all_samples(number, cuts):
    rng = np.random.default_rng(3)
    controls = [rng.normal(size=1000) * 10.0**i for i in range(number)]
    samples = 1e3 + sum(controls, np.zeros(1000)) + 0.1 * rng.normal(size=1000)
    wanted = at_once(samples, controls)
    assert in_blocks(samples, controls, list(cuts)) == pytest.approx(wanted, rel=1e-11)


def test_without_controls_it_is_the_plain_mean():
    samples = np.random.default_rng(4).normal(size=500)
    wanted = samples.mean(), samples.std(ddof=1) / math.sqrt(500)
    assert in_blocks(samples, [], [100, 101]) == pytest.approx(wanted, rel=1e-13)


def test_samples_all_alike_have_no_error_and_a_single_one_has_none_to_tell():
    assert in_blocks(np.full(90, 0.1), [], [30]) == (0.1, 0.0)
    mean, error = in_blocks(np.array([2.0]), [], [])
    assert mean == 2.0 and math.isnan(error)


def test_what_is_not_a_number_stays_one():
    assert all(map(math.isnan, in_blocks(np.array([1.0, np.inf, 2.0]), [], [])))


def test_columns_of_rounding_and_of_events_too_rare_to_be_seen_are_left_alone():
    """Each would take the mean with it: the one stands for it, the other knows three samples."""
    rng = np.random.default_rng(5)
    samples = 7.0 + rng.normal(size=1000)
    plain = samples.mean(), samples.std(ddof=1) / math.sqrt(1000)
    rounding = 1e-9 + 1e-10 * rng.normal(size=1000)
    rare = np.where(np.arange(1000) < 3, 50.0, -0.1)
    assert in_blocks(samples, [rounding, rare], [400]) == pytest.approx(plain, rel=1e-12)
    often = np.where(np.arange(1000) % 20 == 0, 19.0, -1.0)
    assert in_blocks(samples + often, [often], [400])[1] == pytest.approx(plain[1], rel=0.01)


def test_what_leave_one_out_penalties_charge_in_all_is_such_a_column():
    bandit = irsppl.Bandit(irsppl.GammaPoisson([1.0, 2.0, 0.3], [1.0, 2.0, 0.2]), 4)
    penalty = irsppl.VSolo(scale=0.6)
    sampler = Sampler(bandit, [penalty], {}, None, False, None)
    columns, saturating = sampler._columns(sampler.values(jax.random.key(0), 20))
    (charged,) = (c for c, ends in zip(columns, saturating, strict=True) if ends)
    assert len(columns) > 1
    np.testing.assert_array_equal(charged, sampler.values(jax.random.key(0), 20)[penalty._sum])


def test_a_column_with_heavy_tails_serves_where_samples_follow_it_there():
    rng = np.random.default_rng(8)
    tails = rng.normal(size=20_000) ** 3  # of kurtosis 46
    noise = rng.normal(size=20_000)

    def error(samples, count):
        running = RunningMean()
        for block in np.split(np.arange(count), 4):
            running.add(samples[block], [tails[block]], [True])
        return running.mean_error()[1] * math.sqrt(count)

    follows, saturates = noise + tails, noise + np.clip(tails, None, 6)
    few = (noise + tails)[:2000].std()
    assert error(follows, 20_000) == pytest.approx(1, rel=0.05)
    assert error(saturates, 20_000) == pytest.approx(saturates.std(), rel=1e-3)  # left out
    assert error(follows, 2000) == pytest.approx(few, rel=1e-3)  # too few to know


def test_long_futures_charge_more_and_are_no_rarity():
    """Five times the error where a law of the horizon lets what is charged in all look rare."""
    errors = {}
    for name, horizon in {"law": np.linspace(1, 0.01, 100), "known": 50}.items():
        bandit = irsppl.Bandit(irsppl.BetaBernoulli([1] * 5, [1] * 5), horizon)
        errors[name] = irsppl.bound(bandit, "irs.v-solo", key=0, num_samples=4000).stderr
    assert errors["law"] < 3 * errors["known"]
