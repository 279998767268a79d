"""Every model of the zoo reads, and what is read agrees with itself."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from irsppl.models import load_model_file, read_arm
from tests.conftest import within

ZOO = sorted((pathlib.Path(__file__).parent.parent / "models").glob("*.py"))
SIZE = 4096


# Functions are read again as the models that they were, with all that was compiled for these.
file_of = functools.cache(load_model_file)


@functools.cache
def read(path):
    """The loaded file and one model per distinct function."""
    loaded = file_of(path)
    options = {"values": loaded.values, "mean": loaded.mean, "reward_site": loaded.reward_site}
    if loaded.joint:
        options |= {"joint": True, "num_arms": loaded.num_arms}
    return loaded, [read_arm(f, **options) for f in dict.fromkeys(loaded.functions)]


@functools.cache
def tried(path):
    """(model, params [S], arms [S], rewards [S], means [S]) for each model, arms in turn."""
    found = []
    for model in read(path)[1]:

        def one(u, key, arm, model=model):
            at = arm if model.joint else None
            params = model.prior_from_uniforms(u)
            return params, model.sample_reward(key, params, at), model.mean(params, at)

        u = np.random.default_rng(1).random((SIZE, model.num_uniforms), np.float32)
        arms = np.arange(SIZE) % model.num_arms
        keys = jax.random.split(jax.random.key(2), SIZE)
        params, rewards, means = jax.jit(jax.vmap(one))(u, keys, arms)
        found.append((model, params, arms, rewards, means))
    return found


every_file = pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)


def test_the_zoo_is_large_and_explains_itself():
    assert len(ZOO) >= 12
    for path in ZOO:
        text = path.read_text()
        assert text.startswith('"""') and "Reward:" in text.split('"""')[1], path.name
        assert "import irsppl." not in text and "from irsppl." not in text, path.name


@every_file
def test_reads(path):
    loaded, models = read(path)
    assert loaded.num_arms >= 2
    assert len(loaded.functions) in (1, loaded.num_arms)
    for model in models:
        assert model.has_icdf
        assert model.mean_error < 1e-4
        assert model.support.check(model.support.inside)


@every_file
def test_mean_is_the_mean_of_the_rewards(path):
    for model, _, _, rewards, means in tried(path):
        assert np.all(np.isfinite(means)) and np.all(model.support.check(rewards))
        gap = np.asarray(rewards - means, float)
        within(gap.mean(), gap.std() / np.sqrt(SIZE), 0.0)


@every_file
def test_densities_are_numpyros(path):
    loaded, _ = read(path)
    functions = list(dict.fromkeys(loaded.functions))
    for function, (model, params, arms, rewards, _) in zip(functions, tried(path), strict=True):
        seen = np.asarray(rewards[:16])
        if model.category_values is not None:
            seen = np.searchsorted(loaded.values, seen)
        elif model.support.integer:
            seen = seen.astype(int)

        def both(params, reward, given, arm, model=model, function=function):
            at = (arm,) if model.joint else ()
            ours = model.log_prior(params) + model.log_likelihood(params, reward, *at)
            kinds = {k: v for k, v in params.items() if model.latents[k].discrete}
            z = model.unconstrain(params)
            back = model.constrain(z, kinds)
            jacobian = model.log_prior_unconstrained(z, kinds) - model.log_prior(params)
            with jax.numpy_rank_promotion("allow"):
                theirs, _ = log_density(function, at, {"reward": given}, params)
            return ours, theirs, back, jacobian

        few = {k: v[:16] for k, v in params.items()}
        ours, theirs, back, jacobian = jax.jit(jax.vmap(both))(few, rewards[:16], seen, arms[:16])
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        assert np.all(np.isfinite(jacobian))
        for name in few:
            np.testing.assert_allclose(back[name], few[name], rtol=2e-3, atol=1e-5)


@every_file
def test_likelihood_normalises(path):
    """Summed over the rewards there are, or integrated over a wide grid, it gives one."""
    for model, params, arms, rewards, _ in tried(path):
        values = model.reward_values
        weights = np.ones(1)
        atom = 0.0
        if values is None and model.support.integer:
            values = np.arange(4000.0)
        elif values is None:
            # A wide grid, dense where the rewards are, and at an end where a density may be steep.
            rewards = np.asarray(rewards)
            scale = np.median(np.abs(rewards[rewards != 0]))
            if model.support.low == 0:
                t = np.linspace(-60, 12, 20_000)
                values = scale * np.exp(t)
                weights = values * (t[1] - t[0])
            else:
                t = np.linspace(-10, 10, 20_000)
                values, weights = scale * np.sinh(t), scale * np.cosh(t) * (t[1] - t[0])
            atom = 1.0 if np.any(rewards == 0) else 0.0

        def mass(params, arm, model=model, values=values, weights=weights, atom=atom):
            at = arm if model.joint else None
            each = jax.vmap(lambda r: model.log_likelihood(params, r, at))
            total = jnp.sum(jnp.exp(each(jnp.asarray(values))) * weights)
            return total + atom * jnp.exp(model.log_likelihood(params, 0.0, at))

        few = {k: v[:6] for k, v in params.items()}
        total = jax.jit(jax.vmap(mass))(few, arms[:6])
        np.testing.assert_allclose(total, 1, rtol=2e-3)


@pytest.mark.parametrize("stem", ["article_features", "pricing"])
def test_linear_gaussian_files_are_noticed(stem):
    path = next(p for p in ZOO if p.stem == stem)
    (model,) = read(path)[1]
    form = model.linear_gaussian
    assert form is not None and form.features.shape == (5, model.dim)


def test_enumerable_file():
    path = next(p for p in ZOO if p.stem == "drug_candidates")
    (model,) = read(path)[1]
    _, log_prior = model.enumerate_latents()
    np.testing.assert_allclose(np.exp(log_prior), [0.6, 0.3, 0.1], rtol=1e-6)


# ---- files
GOOD = """
import numpyro, numpyro.distributions as dist
def arm(reward=None):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(x, 1.0), obs=reward)
"""


def load(tmp_path, text, name="model.py"):
    path = tmp_path / name
    path.write_text(text)
    return load_model_file(path)


def test_conventions_of_a_file(tmp_path):
    shared = load(tmp_path, GOOD + "num_arms = 3\n")
    assert (shared.num_arms, shared.joint, len(shared.functions)) == (3, False, 1)
    named = load(tmp_path, GOOD + "labels = ['a', 'b']\n")
    assert named.num_arms == 2 and named.labels == ["a", "b"]
    listed = load(tmp_path, GOOD + "arms = [arm, arm]\nvalues = [1, 2]\n")
    assert listed.num_arms == 2 and listed.values == [1.0, 2.0]
    two = load(tmp_path, GOOD + GOOD.replace("def arm", "def other"))
    assert [f.__name__ for f in two.functions] == ["arm", "other"] and two.num_arms == 2
    hidden = load(tmp_path, GOOD + GOOD.replace("def arm", "def _helper") + "num_arms = 1\n")
    assert len(hidden.functions) == 1
    joint = load(tmp_path, GOOD.replace("(reward", "(arm, reward") + "num_arms = 4\n")
    assert joint.joint and joint.num_arms == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "no arm found; define arms"),
        (GOOD, r"how many arms are there\? Define num_arms = N beside arm"),
        (GOOD + "num_arms = 0\n", "num_arms must be a whole number of at least 1, got 0"),
        (GOOD + "num_arms = 2\nlabels = ['a']\n", "2 arms, 1 labels"),
        (GOOD + "arms = []\n", "arms is empty"),
        (GOOD + "arms = [arm, 3]\n", "arms must be a list of functions"),
        (GOOD + "arms = [arm, arm]\nnum_arms = 3\n", "num_arms = 3, but there are 2 arm functions"),
        (GOOD + "joint = True\narms = [arm, arm]\n", "a joint model is one function"),
        ("1 / 0\n", "could not be run: ZeroDivisionError: division by zero"),
        ("def arm(\n", "could not be run: SyntaxError"),
    ],
)
def test_bad_files(tmp_path, text, words):
    with pytest.raises(ValueError, match=words):
        load(tmp_path, text)


def test_missing_files(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        load_model_file(tmp_path / "nothing.py")
    (tmp_path / "model.txt").write_text(GOOD)
    with pytest.raises(ValueError, match="must be a Python file"):
        load_model_file(tmp_path / "model.txt")
