"""Users' models in kernels of their own: what JAX says of them, without JAX.

Generated code is run as plain Python, which needs no compiler; `test_transcribed_kernels.py` has it
compiled.
Statistical tests fix their seeds; fresh ones would raise a false alarm with probability 0.1 percent
each.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from irsppl.engine import densities
from irsppl.engine.densities import Densities, transcribed
from irsppl.engine.transcribe import POINT, Program, Untranscribable
from irsppl.models import read_arm

from .test_zoo import ZOO, read

# Plain Python tells of numbers that are none on the side that a model does not choose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SINGLE = np.dtype(np.float32)

# Reward laws, each at a positive latent.
LAWS = {
    "normal": lambda a: dist.Normal(a, 1.0),
    "student-t": lambda a: dist.StudentT(4.0, a, 1.0),
    "log-normal": lambda a: dist.LogNormal(a, 0.5),
    "laplace": lambda a: dist.Laplace(a, 1.0),
    "logistic": lambda a: dist.Logistic(a, 1.0),
    "gumbel": lambda a: dist.Gumbel(a, 1.0),
    "half-normal": lambda a: dist.HalfNormal(a),
    "exponential": lambda a: dist.Exponential(a),
    "gamma": lambda a: dist.Gamma(a + 1.0, 2.0),
    "inverse-gamma": lambda a: dist.InverseGamma(3.0, a),
    "weibull": lambda a: dist.Weibull(a, 2.0),
    "uniform": lambda a: dist.Uniform(0.0, a),
    "beta": lambda a: dist.Beta(a, 2.0),
    "beta at its ends": lambda a: dist.Beta(0.02 * a, 0.03),
    "poisson": lambda a: dist.Poisson(a),
    "negative binomial": lambda a: dist.NegativeBinomial2(a, 2.0),
    "no claims": lambda a: dist.ZeroInflatedPoisson(0.3, a),
    "geometric": lambda a: dist.Geometric(probs=a / (1 + a)),
    # These have densities in kernels, and draws in XLA.
    "truncated": lambda a: dist.TruncatedNormal(a, 1.0, low=0.0),
    "mixture": lambda a: dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array([0.3, 0.7])), dist.Normal(jnp.array([0.0, 1.0]) * a, 1.0)
    ),
}
# Its mean is a sum over hundreds of nodes.
FOR_XLA = {"response_time"}
DRAWN_BY_XLA = {"truncated", "mixture"}


def arm_of(law):
    def arm(reward=None):
        numpyro.sample("reward", law(numpyro.sample("a", dist.LogNormal(0.0, 0.3))), obs=reward)

    return arm


def in_python(text):
    """`from_text` without a compiler."""
    decorator = "from irsppl.inner.cpu.compiling import njit\n"
    assert decorator in text
    names = {}
    exec(text.replace(decorator, "njit = lambda **options: lambda code: code\n"), names)
    return names


@pytest.fixture
def plain(monkeypatch):
    def add_rows(row, features, which, kinds, rewards, counts, tables, together, out):
        for b, n in itertools.product(range(len(which)), range(rewards.shape[1])):
            if n < counts[b]:
                to = out[b, 0 if together else n]
                row(features[which[b]], kinds[b, n], rewards[b, n], *tables, to)

    monkeypatch.setattr(densities, "from_text", in_python)
    monkeypatch.setattr(densities, "address_of", lambda row, types: row)
    monkeypatch.setattr(densities, "_add_rows", add_rows)


def compared(model, own, rewards, rng):
    """What kernels and JAX say of a few points, and of rewards [L] of each arm there."""
    z = rng.normal(size=(1, 5, model.dim)).astype(SINGLE)
    found, arms = own.points(z), model.num_arms
    given = np.broadcast_to(rewards.astype(SINGLE), (arms, len(rewards)))
    kinds = own.kinds(np.arange(arms)[:, None], given)
    which, counts = np.zeros(arms, np.int64), np.full(arms, len(rewards))
    each = own.rows(found.features, which, kinds, given, counts)  # [K, L, N]
    sums = own.rows(found.features, which, kinds, given, counts, together=True)
    np.testing.assert_allclose(sums[:, 0], each.sum(axis=1), rtol=1e-5, atol=1e-5)

    def exactly(z, reward):
        params = model.constrain(z)
        arms = range(model.num_arms) if model.joint else [None]
        logs = jnp.stack([model.log_likelihood(params, reward, arm) for arm in arms])
        means = jnp.stack([model.mean(params, arm) for arm in arms])
        return model.log_prior_unconstrained(z), means, logs, params

    every = jax.jit(jax.vmap(jax.vmap(exactly, (None, 0)), (0, None)))
    prior, mu, logs, params = jax.tree.map(np.asarray, every(z[0], jnp.asarray(given[0])))
    np.testing.assert_allclose(found.prior[0], prior[:, 0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found.mu[0], mu[:, 0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(
        np.moveaxis(each, 2, 0), np.moveaxis(logs, 2, 1), rtol=3e-5, atol=3e-5
    )
    for name, leaf in own.named(found).items():
        np.testing.assert_allclose(leaf[0], params[name][:, 0], rtol=1e-5, atol=1e-6)
        assert leaf.dtype == params[name].dtype
    return logs


@pytest.mark.parametrize("law", LAWS)
def test_densities_and_draws_of_laws(law, plain):
    model = read_arm(arm_of(LAWS[law]))
    own = Densities(model, SINGLE)
    point = np.zeros((1, 1500, 1), np.float32)
    sample = jax.jit(jax.vmap(lambda key: model.sample_reward(key, model.constrain(point[0, 0]))))
    drawn = np.asarray(sample(jax.random.split(jax.random.key(1), 1500)))
    # Some that may be, one that may not (or may, where all numbers may), and none.
    rewards = np.array([*drawn[:5], -2.5, np.inf])
    logs = compared(model, own, rewards, np.random.default_rng(3))
    assert np.isfinite(logs[:, :5]).any() and np.isneginf(logs[:, -1]).all()
    mine = own.draws(point, np.array([7], np.uint64))
    assert (mine is None) == (law in DRAWN_BY_XLA)
    if mine is not None:
        assert stats.ks_2samp(mine[0, 0], drawn).pvalue > 1e-3


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_the_zoo(path, plain):
    """Whatever a model does, kernels either say the same, or there are none and XLA plays."""
    for model in read(path)[1]:
        if model.has_discrete or not model.dim:
            assert transcribed(model, SINGLE) is None
            continue
        if path.stem in FOR_XLA:
            with pytest.raises(Untranscribable, match="operations"):
                Densities(model, SINGLE)
            continue
        own = Densities(model, SINGLE)
        values = model.reward_values
        rewards = np.array([model.support.inside]) if values is None else np.asarray(values)
        compared(model, own, rewards, np.random.default_rng(4))


def traced(function, *given):
    """Elements of what a program returns, where all that it is given is known."""
    program = Program()
    return program.run(jax.make_jaxpr(function)(*given), *map(program.known, given))


def test_operations_on_what_is_known_are_those_of_jax():
    x = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)
    of = {
        "sums and products": lambda x: (x.sum(0), x.prod(1), x.max(), x.min(1), jnp.cumsum(x, 1)),
        "matrices": lambda x: (x @ x.T, jnp.einsum("ij,kj->ik", x, x), x.T.reshape(-1)),
        "pieces": lambda x: (x[1], x[:, ::2], x[::-1], x[jnp.array([1, 0, 1])], jnp.pad(x, 1)),
        "choices": lambda x: (
            jnp.where(x > 0, x, -x),
            jnp.sign(x),
            jnp.clip(x, -1, 1),
            x**3,
            x**-2,
        ),
        "a loop": lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x),
        "a branch": lambda x: jax.lax.cond(x[0, 0] > 1, lambda: x, lambda: -x),
        "whole numbers": lambda x: (jnp.arange(3) % 2, x.astype(int) + 1, (x > 0) & (x < 1)),
        "equations": lambda x: (
            jnp.linalg.cholesky(x.T @ x + jnp.eye(3)),
            jax.scipy.linalg.solve_triangular(x[:, :2], x[:, 1:], lower=True),
            jax.scipy.linalg.solve_triangular(x[:, :2], x[:, 1:], trans=1),
        ),
        "lists": lambda x: (jnp.stack([x, x + 1]), jnp.concatenate([x, x], 1), jnp.square(x)),
    }
    exact = jax.jit(lambda x: {name: jax.tree.leaves(of[name](x)) for name in of})(x)
    for name, function in of.items():
        for mine, its in zip(traced(function, x), exact[name], strict=True):
            assert mine.shape == its.shape, name
            np.testing.assert_allclose(mine.astype(float), its, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "function",
    [
        jnp.sort,
        lambda x: jax.lax.while_loop(lambda y: y[0] < 100, lambda y: y * 2, x),
        lambda x: jnp.linalg.svd(jnp.outer(x, x)),
        lambda x: x[jnp.argmax(x)],
        lambda x: jax.random.normal(jax.random.key(0), (3,)) + x,
    ],
)
def test_what_has_no_scalar_code_says_so(function):
    program = Program()
    x = np.array([program.leaf(f"z{i}", POINT) for i in range(3)], object)
    with pytest.raises(Untranscribable):
        program.run(jax.make_jaxpr(function)(np.ones(3, np.float32)), x)


# What models may do beyond that: kernels say the same, or there are none.
ODD = {
    "a loop without steps": lambda a: (
        a + jax.lax.scan(lambda c, x: (c, c * x), a, jnp.zeros(0))[1].sum()
    ),
    "an infinite power": lambda a: jnp.minimum(jnp.abs(a) ** jnp.inf, 1.0),
    "an infinite whole number": lambda a: a + 0.0 * jnp.stack([a, jnp.inf]).astype(jnp.int32)[1],
    "whole numbers that wrap": lambda a: (
        a + (jnp.arange(3) * 2000000000).sum().astype(float) * 1e-9
    ),
    "whole numbers at their end": lambda a: jnp.clip(jnp.exp(a * 30).astype(jnp.int32), 0, 5) * 1.0,
    "few bits": lambda a: a.astype(jnp.float16).astype(jnp.float32),
    "a table": lambda a: a + jax.random.normal(jax.random.key(0), (3,)).sum(),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_models_have_right_kernels_or_none(name, plain):
    model = read_arm(arm_of(lambda a: dist.Normal(ODD[name](jnp.log(a)), 1.0)))
    own = transcribed.__wrapped__(model, SINGLE)
    if own is not None:
        z = np.linspace(-8, 8, 33, dtype=SINGLE)[None, :, None]
        exact = jax.jit(jax.vmap(lambda z: model.mean(model.constrain(z))))(z[0])
        np.testing.assert_allclose(own.points(z).mu[0, :, 0], exact, rtol=1e-4, atol=1e-4)


@jax.jit
def _normal(key, place):
    """By the name of one of JAX's own."""
    return place + jax.random.laplace(key)


class Own(dist.Laplace):
    """A law with a sampler of its own; twice: one key for two draws."""

    def __init__(self, loc, twice):
        super().__init__(loc, 1.0)
        self.twice = twice

    def sample(self, key, sample_shape=()):
        if not self.twice:
            return _normal(key, self.loc)
        u, v = jax.random.uniform(key), jax.random.uniform(key)
        return self.loc + jnp.where(u < 0.5, jnp.log(2 * u), -jnp.log(2 * (1 - v)))


@pytest.mark.parametrize("twice", [False, True])
def test_samplers_of_ones_own(twice, plain):
    model = read_arm(arm_of(lambda a: Own(a, twice)))
    drawn = Densities(model, SINGLE).draws(
        np.zeros((1, 2000, 1), np.float32), np.array([7], np.uint64)
    )
    if twice:
        assert drawn is None
    else:
        assert stats.kstest(drawn[0, 0], stats.laplace(1.0).cdf).pvalue > 1e-3


def test_wrong_kernels_are_not_used(monkeypatch, plain):
    """Whatever an operation may come to mean: what JAX does not confirm is left to XLA."""
    model = read_arm(arm_of(lambda a: dist.Gumbel(a, 1.0)))
    monkeypatch.setattr(
        densities, "from_text", lambda text: in_python(text.replace(" = exp(", " = 2.0 + exp("))
    )
    assert transcribed.__wrapped__(model, SINGLE) is None
    monkeypatch.setattr(densities, "from_text", in_python)
    assert transcribed.__wrapped__(model, SINGLE) is not None


def test_models_that_differ_in_numbers_share_their_kernels(monkeypatch, plain):
    texts = []
    monkeypatch.setattr(densities, "from_text", lambda text: texts.append(text) or in_python(text))
    for at, noise in ((0.0, 1.0), (2.5, 0.7)):

        def arm(reward=None, at=at, noise=noise):
            place = numpyro.sample("place", dist.Normal(at, 3 * noise + 0.2))
            numpyro.sample("reward", dist.StudentT(3.0 + noise, place, noise), obs=reward)

        Densities(read_arm(arm), SINGLE)
    kernels, draws, *others = texts
    assert others == [kernels, draws]
