"""Kernels of users' models, compiled: the answers of XLA, the same play, kept on disk."""

import functools
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import irsppl
from irsppl import engine
from irsppl.beliefs import _batch as batch
from irsppl.engine import answers
from irsppl.engine.densities import transcribed
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu import compiling
from irsppl.inner.cpu.elementary import functions
from irsppl.inner.cpu.rng import KERNEL, streams
from irsppl.models import read_arm
from irsppl.policies import find_policy

from .test_lockstep import heavy, heavy_bandit, heavy_futures, leaning
from .test_transcribe import SINGLE

# Plain Python tells of numbers that are none on the side that a model does not choose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_draws_end_where_a_law_has_no_parameters():
    def arm(reward=None):
        size = numpyro.sample("size", dist.Gamma(2.0, 2.0))
        numpyro.sample("reward", dist.NegativeBinomial2(1.0, size), obs=reward)

    own = transcribed(read_arm(arm), SINGLE)
    z = np.full((1, 4, 1), -95.0, np.float32)
    assert own.draws(z, np.array([1], np.uint64)).shape == (1, 1, 4)


def test_elementary_functions():
    """To a few of the last digits, and for what is infinite, zero or no number as NumPy has it."""
    exact = {
        "exp": np.exp,
        "log": np.log,
        "log1p": np.log1p,
        "expm1": np.expm1,
        "logistic": special.expit,
        "tanh": np.tanh,
        "logit": special.logit,
    }
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(-25, 4.4, 3000))
    near = rng.uniform(0, 1, 3000)
    odd = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0])
    for dtype in (np.float32, np.float64):
        codes = functions(dtype)
        for name, its in exact.items():
            code = codes[name]

            @compiling.njit(**(KERNEL | {"cache": False}), fastmath={"contract"})
            def run(x, out, code=code):
                for j in range(x.size):
                    out[j] = code(x[j])

            x = np.concatenate([size, -size, near, -near, odd]).astype(dtype)
            out = np.empty_like(x)
            run(x, out)
            with np.errstate(all="ignore"):
                want = its(x.astype(np.longdouble if name != "logit" else np.float64))
            want = want.astype(np.float64)
            # What numbers of this type cannot hold in full is zero.
            want[np.abs(want) < np.finfo(dtype).tiny] = 0
            same = np.isfinite(want) & (np.abs(want) <= np.finfo(dtype).max)
            few = (16 if name == "logit" else 4) * np.finfo(dtype).eps
            np.testing.assert_allclose(
                out[same], want[same], rtol=few, atol=few * (name == "logit"), err_msg=name
            )
            finite = np.isfinite(out[~same])
            assert not finite.any(), name
            assert np.array_equal(np.isnan(out), np.isnan(want)), name
            assert np.array_equal(np.isposinf(out[-8:]), np.isposinf(want[-8:])), name


@functools.cache
def models():
    one = heavy_bandit().belief.models[0]
    return one, irsppl.from_numpyro_joint(leaning, num_arms=2, num_particles=16).model


@pytest.mark.parametrize("which", [0, 1], ids=["many rewards", "few rewards, joint"])
def test_kernels_and_xla_answer_alike(which):
    model, rng = models()[which], np.random.default_rng(6)
    arms = model.num_arms
    z = rng.normal(size=(2, 40, 2)).astype(np.float32)
    constrained = jax.jit(jax.vmap(jax.vmap(model.constrain)))
    params = jax.tree.map(np.asarray, constrained(z))
    (own,), _ = answers.answers([model], [(0, 1)], [params], [z], 3, np.float32)
    other = answers.ByXla(model, params, 3, np.float32)
    assert isinstance(own, answers.ByKernels)
    who, places = np.array([2, 0, 2]), np.array([0, 1, 1])
    many = model.reward_values is None
    new = rng.normal(size=(3, 40, 2)).astype(np.float32)
    rewards = rng.normal(size=(3, 128)) if many else rng.integers(0, 2, (3, 128))
    rewards, pulled = rewards.astype(np.float32), rng.integers(0, arms, (3, 128)).astype(np.int32)
    seen = np.array([5, 0, 70], np.int32)
    weights = rng.dirichlet(np.ones(40), 3).astype(np.float32)
    seeds = np.array([3, 4, 5], np.uint64)
    found = []
    for by in (own, other):
        by.begin()
        now = by.posteriors(new, rewards, pulled, seen)
        by.settle(who, places, new, jax.tree.map(np.asarray, constrained(new)))
        logs = by.densities(who, places, rewards[:, 0].astype(float), pulled[:, 0])
        still = by.densities(np.array([1]), np.array([1]), rewards[:1, 0], pulled[:1, 0])
        laws = by.laws(who, places, new, weights, seeds, 32 if many else -1)
        assert laws.shape == (3, arms, 32 if many else 2, 40)
        found.append(
            (*now[1:], logs, still, by.params(who, places, new), *([] if many else [laws]))
        )
        # Both are laws; of many rewards, those that are drawn differ.
        np.testing.assert_allclose(laws.sum(axis=2), 1, rtol=1e-4)
    for mine, its in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-4)


def test_atoms_drawn_by_kernels_are_those_of_xla():
    """The mean reward of plans at each point, over 400 clouds: as far apart as chance allows."""
    model = models()[0]
    rng = np.random.default_rng(8)
    z = np.tile(rng.normal(size=(1, 32, 2)).astype(np.float32), (400, 1, 1))
    own, seeds = transcribed(model, SINGLE), np.arange(400, dtype=np.uint64)
    mine = own.draws(z, seeds)[:, 0]
    words = np.stack([seeds, seeds + 1], axis=1).astype(np.uint32)
    its = np.asarray(batch.reward_atoms(model, z, words))[:, 0]
    assert mine.shape == its.shape == (400, 32)
    for point in range(0, 32, 8):
        assert stats.ks_2samp(mine[:, point], its[:, point]).pvalue > 2.5e-4
    assert len(np.unique(mine)) == mine.size, "no draw is made twice"


def light(reward=None):
    """More features than `heavy` has."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    low = dist.Exponential(rate[0] + 0.1)
    both = dist.MixtureGeneral(
        dist.Categorical(probs=jnp.array([0.4, 0.6])), [low, dist.Exponential(rate[1] + 0.3)]
    )
    numpyro.sample("reward", both, obs=reward)


def sorting(reward=None):
    """No kernels: a sort."""
    place = numpyro.sample("place", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("reward", dist.Normal(jnp.sort(place)[1], 0.3), obs=reward)


def tied(arm, reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.StudentT(4.0, place + slope * arm, 0.5), obs=reward)


def played_both_ways(monkeypatch, bandit, rewards, seeds):
    mine = engine.kernel(find_policy("ts"), bandit).played(rewards, seeds)
    monkeypatch.setattr(answers, "transcribed", lambda model, dtype: None)
    return mine, engine.kernel(find_policy("ts"), bandit).played(rewards, seeds)


@pytest.mark.parametrize("arms", ["one model", "three models", "joint"])
def test_play_by_kernels_is_play_by_xla(monkeypatch, arms):
    """Thompson sampling draws nothing from the model: rounding may turn a decision, hardly more.
    Of three models one has no kernels."""
    options = {"representation": "particles", "num_particles": 64}
    if arms == "one model":
        bandit, (rewards, seeds) = heavy_bandit(), heavy_futures()
    else:
        belief = (
            irsppl.from_numpyro_joint(tied, num_arms=3, **options)
            if arms == "joint"
            else irsppl.from_numpyro([heavy, light, sorting, heavy], **options)
        )
        bandit = irsppl.Bandit(belief, 12).trimmed(12)
        rewards = np.asarray(draw_outcomes(bandit, jax.random.key(3), 0, 10).rewards)
        seeds = streams((0, 1), 2, 0, 10)
    kernels = [transcribed(model, SINGLE) is not None for model, _ in bandit.belief.parts]
    assert kernels == ([True, True, False] if arms == "three models" else [True])
    mine, its = played_both_ways(monkeypatch, bandit, rewards, seeds)
    same = (mine.arms == its.arms).all(axis=1)
    assert same.mean() >= 0.8 and np.allclose(mine.ess[same], its.ess[same], rtol=0.05)
    assert len(np.unique(mine.arms)) > 1


def test_a_second_process_reads_kernels_from_disk(tmp_path):
    code = """
import numpy as np
from irsppl.inner.cpu.compiling import from_text
text = '''import numpy as np
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

@njit(**KERNEL)
def twice(x):
    for j in range(x.size):
        x[j] *= 2.0
'''
x = np.ones(3)
twice = from_text(text)["twice"]
twice(x)
print(x.sum(), sum(twice.stats.cache_hits.values()))
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    hits = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        total, count = done.stdout.split()
        assert math.isclose(float(total), 6.0)
        hits.append(int(count))
    assert hits == [0, 1]
