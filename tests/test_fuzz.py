"""2,000 random calls of the public API: a finite result, or a `ValueError` that names an argument.

Nothing else: no other exception, no NaN and no infinity. Most calls are cheap (constructors, play,
questions to a belief); those that compile share a few bandits. The calls are the same in every run
(`derandomize`), so a failure is a finding and never a matter of luck.
"""

import inspect
import math
import warnings
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings

import irsppl
from irsppl.bounds import Bound, Bounds
from irsppl.certificates import Certificate
from irsppl.penalties import PENALTIES
from irsppl.policies import POLICIES

CALLS = 2000

# ---------------------------------------------------------------- values, good and bad

NO_NUMBERS = [
    None,
    "x",
    "0",
    b"1",
    [],
    [[]],
    [1, [2, 3]],
    [None],
    ["1", "2"],
    {},
    {"a": 1},
    object(),
    int,
    irsppl.Index,
    lambda *args: 0,
    np.array("x"),
    np.array(["1", "2"]),
    np.empty((0, 2)),
    np.zeros((2, 2, 2)),
    1j,
    dist.Normal(),
    dist.Poisson(jnp.array([1.0, 2.0])),
    jax.random.key(0),
]
ODD_NUMBERS = [
    *(math.nan, math.inf, -math.inf, -1, 0, 0.5, 1.5, True, -0.0),
    *(2**31, 2**40, -(2**40), 2**64, 2**70, 10**400),
    *(1e39, -1e39, 1e308, 1e-40, 5e-324),
    *(np.float16(3), np.int8(-3), np.uint64(2**63), np.bool_(True), np.array(2), jnp.asarray(1)),
]
BAD = st.sampled_from(NO_NUMBERS + ODD_NUMBERS)


def mostly(good: st.SearchStrategy, bad: st.SearchStrategy = BAD, odds: int = 6):
    """`good` in most cases, so that calls with a single bad argument are the most common."""
    return st.integers(0, odds).flatmap(lambda i: bad if i == 0 else good)


COUNT = st.sampled_from([1, 2, 3])
USUAL = st.floats(0.125, 10.0, width=32)
EXTREME = st.sampled_from([1e-45, 1e-40, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 3e38, 3.5e38, 1e300])
KEYS = mostly(st.integers(0, 2**64 - 1), odds=12)


@st.composite
def per_arm(draw, size: int, signed: bool = False, least: float = 0.0, odds: int = 20):
    """One number per arm, in one of the forms that users write; extreme with 1 in odds + 1."""
    shift = least if least else 0.0
    one = st.floats(-5, 5, width=32) if signed else USUAL.map(lambda x: x + shift)
    entry = mostly(one, EXTREME, odds=odds) if odds else one
    numbers = draw(st.lists(entry, min_size=size, max_size=size))
    form = draw(st.sampled_from([list, tuple, np.asarray, jnp.asarray, lambda x: np.float32(x)]))
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return form(numbers)


def one_size(draw) -> int:
    """K; now and then another, so that lengths disagree."""
    return draw(mostly(st.just(0), COUNT, odds=15))


FAMILIES = {
    "BetaBernoulli": {"alpha": {}, "beta": {}},
    "NormalNormal": {"mean": {"signed": True}, "sd": {}, "noise_sd": {}},
    "GammaPoisson": {"shape": {}, "rate": {}},
    "GammaExponential": {"shape": {"least": 1.0}, "rate": {}},
    "NormalInverseGamma": {
        "mean": {"signed": True},
        "precision": {},
        "shape": {"least": 0.5},
        "rate": {},
    },
}


@st.composite
def constructions(draw):
    name = draw(st.sampled_from([*FAMILIES, "DirichletCategorical", "LinearGaussian"]))
    size = draw(COUNT)

    def argument(good):
        return draw(mostly(good, odds=15))

    if name == "DirichletCategorical":
        table = per_arm(size * 2).map(lambda x: jnp.reshape(jnp.asarray(x), (size, 2)))
        arguments = {"alpha": argument(table), "values": argument(per_arm(2, signed=True))}
    elif name == "LinearGaussian":
        rows = per_arm(size * 2, signed=True, odds=0).map(
            lambda x: np.reshape(np.asarray(x), (size, 2))
        )
        cov = st.sampled_from([np.eye(2), [[1, 0.5], [0.5, 1]], [[1, 2], [2, 1]], [[1, 0]], 2.0])
        arguments = {
            "features": argument(rows),
            "mean": argument(per_arm(2, signed=True, odds=0)),
            "cov": argument(cov),
            "noise_sd": argument(st.one_of(USUAL, per_arm(size))),
        }
    else:
        arguments = {
            key: argument(per_arm(one_size(draw) or size, **how))
            for key, how in FAMILIES[name].items()
        }
    return getattr(irsppl, name), arguments


BELIEFS = {
    "beta": irsppl.BetaBernoulli([3.0, 1.0], [1.0, 1.0]),
    "normal": irsppl.NormalNormal([0.0, 0.5], [1.0, 2.0], [1.0, 0.5]),
    "poisson": irsppl.GammaPoisson([2.0, 3.0], [1.0, 2.0]),
    "exponential": irsppl.GammaExponential([3.0, 4.0], [2.0, 2.0]),
    "inverse-gamma": irsppl.NormalInverseGamma([0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [1.0, 2.0]),
    "categorical": irsppl.DirichletCategorical([[1.0, 2.0], [2.0, 1.0]], [0.0, 2.0]),
    "linear": irsppl.LinearGaussian(
        features=[[1.0, 0.0], [0.5, 0.5]], mean=[0.0, 0.0], cov=np.eye(2), noise_sd=1.0
    ),
}
BELIEF = st.sampled_from(list(BELIEFS.values()))
LAWS = [
    dist.Geometric(0.5),
    dist.Poisson(2.0),
    dist.Poisson(jnp.array([1.0, 2.0])),
    dist.Delta(3.0),
    dist.Delta(2.5),
    dist.Binomial(4, 0.5),
    dist.DiscreteUniform(-1, 3),
    dist.Exponential(1.0),
    dist.Multinomial(3, jnp.array([0.5, 0.5])),
]
BANDITS = {
    "beta": irsppl.Bandit(BELIEFS["beta"], 5),
    "played": irsppl.Bandit(BELIEFS["beta"], 5).pull(0, 1),
    "normal": irsppl.Bandit(BELIEFS["normal"], 5),
    "pending": irsppl.Bandit(BELIEFS["beta"], 5).pull(0),
    "delay": irsppl.Bandit(BELIEFS["beta"], 5, delay=1),
    "budget": irsppl.Bandit(BELIEFS["beta"], costs=[1, 2], budget=5),
    "law": irsppl.Bandit(BELIEFS["beta"], dist.Binomial(5, 0.5)),
    "over": irsppl.Bandit(BELIEFS["beta"], 1).pull(0, 1),
}


@st.composite
def bandits(draw):
    chances = st.lists(st.floats(0, 1), min_size=1, max_size=5)
    horizon = st.one_of(st.sampled_from([1, 2, 5]), st.sampled_from(LAWS), chances)
    delay = st.one_of(st.integers(0, 6), st.sampled_from([[0, 2], [1, math.inf], *LAWS]))
    arguments = {"belief": draw(mostly(BELIEF, odds=12))}
    if draw(st.integers(0, 5)):
        arguments["horizon"] = draw(mostly(horizon))
    if draw(st.integers(0, 2)) == 0:
        arguments["delay"] = draw(mostly(delay))
    if draw(st.integers(0, 2)) == 0:
        costs = st.one_of(USUAL, per_arm(2), st.sampled_from([[1e-9, 1], [1, 1e300]]))
        arguments["costs"] = draw(mostly(costs))
        arguments["budget"] = draw(mostly(st.one_of(st.floats(1, 50), EXTREME)))
    if draw(st.integers(0, 3)) == 0:
        names = st.sampled_from([["a", "b"], ("a", "b"), ["a", "a"], ["a"], [1, 2], "ab", 3])
        arguments["labels"] = draw(mostly(names))
    return irsppl.Bandit, arguments


# ---------------------------------------------------------------- play and questions

REWARD = st.sampled_from([0, 1, 1.0, 0.0, 2.0, np.float32(1), jnp.asarray(1.0)])
ARM = st.sampled_from([0, 1, np.int64(1), jnp.asarray(0)])


@st.composite
def steps(draw):
    bandit = BANDITS[draw(st.sampled_from(["beta", "played", "normal", "pending", "over"]))]
    if draw(st.booleans()):
        arguments = {"arm": draw(mostly(ARM)), "reward": draw(mostly(REWARD, odds=3))}
        return bandit.pull, arguments
    return bandit.arrive, {"pull": draw(mostly(st.integers(0, 1))), "reward": draw(mostly(REWARD))}


@st.composite
def questions(draw):
    belief = draw(BELIEF)
    kind = draw(st.sampled_from(["update", "cdf", "cdf", "expected_max", "expected_max", "future"]))
    level = mostly(st.one_of(st.floats(-9, 9), EXTREME, per_arm(2, signed=True)), odds=3)
    if kind == "update":
        return belief.update, {"arm": draw(mostly(ARM)), "reward": draw(mostly(REWARD, odds=3))}
    if kind == "cdf":
        return belief.cdf, {"x": draw(level)}
    if kind == "expected_max":
        return belief.expected_max, {"lam": draw(level)}
    arguments = {"key": draw(KEYS), "horizon": draw(mostly(st.sampled_from([1, 5]), odds=3))}
    return draw(st.sampled_from([BELIEFS["beta"], BELIEFS["normal"]])).sample_outcome, arguments


# ---------------------------------------------------------------- calls that plan

PLAIN = st.sampled_from([BANDITS[name] for name in ("beta", "beta", "played", "normal", "over")])
CONSTRAINED = st.sampled_from([BANDITS[name] for name in ("pending", "delay", "budget", "law")])


def function_policy(key, bandit):
    return jnp.argmax(bandit.belief.predictive_mean())


LIGHT_POLICIES = ["greedy", "ts", "irs.fh", "random"]
# What a user's own callable raises is the user's.
NO_POLICY = BAD.filter(lambda x: not isinstance(x, dist.Distribution))
POLICY = st.sampled_from([*LIGHT_POLICIES * 2, "irs.index", function_policy, "nobody"])
LIGHT_PENALTIES = ["ts", "irs.fh", "irs.ff"]
PENALTY = st.sampled_from(
    [*LIGHT_PENALTIES, *LIGHT_PENALTIES, "irs.v-zero", "zero", ["ts", "zero"]]
)
# Every constraint compiles programs of its own: there, few policies and penalties.
CASES = st.one_of(
    st.tuples(mostly(PLAIN, odds=3), POLICY, PENALTY),
    st.tuples(CONSTRAINED, st.sampled_from(["greedy", "irs.mix", "nobody"]), st.just("ts")),
)
FEW = mostly(st.just(8), odds=3)


@st.composite
def plans(draw):
    bandit, policy, penalty = draw(CASES)
    kind = draw(
        st.sampled_from(["choose", "choose", "probabilities", "bound", "bound", "simulate"])
    )
    if kind == "choose":
        return irsppl.choose, {
            "bandit": bandit,
            "policy": draw(mostly(st.just(policy), NO_POLICY, odds=3)),
            "key": draw(KEYS),
        }
    if kind == "probabilities":
        return irsppl.action_probabilities, {
            "bandit": bandit,
            "policy": draw(mostly(st.just(policy), NO_POLICY, odds=3)),
            "key": draw(KEYS),
            "num_samples": draw(FEW),
        }
    if kind == "bound":
        arguments = {
            "bandit": bandit,
            "penalty": draw(mostly(st.just(penalty), odds=3)),
            "key": draw(KEYS),
            "num_samples": draw(FEW),
        }
        if draw(st.integers(0, 3)) == 0:
            arguments["progress"] = draw(mostly(st.just(False), odds=2))
            arguments["workers"] = draw(mostly(st.just(1), odds=2))
        return irsppl.bound, arguments
    arguments = {
        "bandit": bandit,
        "policies": draw(mostly(st.sampled_from([policy, [policy]]), NO_POLICY, odds=3)),
        "key": draw(KEYS),
        "num_replications": draw(FEW),
    }
    for name, good in (
        ("means", st.sampled_from([[0.5, 0.5], [0.5], [2.0, 0.5], [0.5, math.nan]])),
        ("per_period", st.booleans()),
        ("start", st.integers(0, 3)),
        ("outcomes", st.none()),
    ):
        if draw(st.integers(0, 5)) == 0:
            arguments[name] = draw(mostly(good, odds=2))
    return irsppl.simulate, arguments


@st.composite
def proofs(draw):
    """Certificates and inner problems: outcomes by hand, few replications and too few."""
    bandit, policy, penalty = draw(CASES)
    kind = draw(st.sampled_from(["certify", "solve", "solve", "outcome", "arviz", "summary"]))
    rows = st.sampled_from([np.ones((2, 5)), np.zeros((2, 5)), np.ones((2, 2)), np.ones((1, 5))])
    if kind == "certify":
        return irsppl.certify, {
            "bandit": bandit,
            "policy": draw(mostly(st.just(policy), NO_POLICY, odds=3)),
            "penalty": draw(mostly(st.just(penalty), odds=3)),
            "key": draw(KEYS),
            "num_replications": draw(mostly(st.just(32), odds=3)),
            "num_samples": draw(mostly(st.just(32), odds=3)),
        }
    if kind == "solve":
        outcome = irsppl.Outcome([0.5, 0.5], np.ones((2, draw(st.sampled_from([3, 5, 6])))))
        return irsppl.solve_inner, {
            "bandit": bandit,
            "penalty": draw(mostly(st.just(penalty), odds=3)),
            "outcome": draw(mostly(st.just(outcome), odds=3)),
        }
    if kind == "outcome":
        arguments = {"means": draw(mostly(per_arm(2, signed=True))), "rewards": draw(mostly(rows))}
        for name in ("belief", "delays", "periods"):
            if draw(st.integers(0, 3)) == 0:
                arguments[name] = draw(mostly(st.none(), odds=1))
        return irsppl.Outcome, arguments
    if kind == "summary":
        return irsppl.summary, {"data": draw(BAD)}
    return BELIEFS["beta"].to_arviz, {"key": draw(KEYS), "num_draws": draw(FEW)}


@st.composite
def options(draw):
    """Policies and penalties with options of their own."""
    make, name = draw(
        st.sampled_from(
            [(irsppl.Index, "num_futures"), (irsppl.Index, "lookahead"), (irsppl.Mix, "T0")]
        )
    )
    return make, {name: draw(mostly(st.integers(1, 9), odds=1))}


SHARES = {
    constructions: 30,
    bandits: 20,
    steps: 15,
    questions: 18,
    plans: 9,
    proofs: 5,
    options: 3,
}
ANY_CALL = st.sampled_from([make for make, share in SHARES.items() for _ in range(share)]).flatmap(
    lambda make: make()
)


# ---------------------------------------------------------------- what is asked of a call


def numbers_of(result: Any) -> list[np.ndarray]:
    """Every number that a result tells its user."""
    if isinstance(result, Bounds):
        return [n for one in result.values() for n in numbers_of(one)]
    if isinstance(result, Bound):
        told = [result.value, result.stderr, result.regret_bound, result.regret_stderr]
        return [np.asarray(x) for x in [*told, *([] if result.exact else [result.samples])]]
    if isinstance(result, Certificate):
        told = [result.lower, result.upper, result.lower.stderr, result.upper.stderr, result.gap]
        assert math.isnan(result.ratio) == bool(result.reason)
        return [np.asarray(x) for x in told]
    if isinstance(result, irsppl.Bandit):
        return numbers_of(result.belief)
    if isinstance(result, xr.Dataset):
        return [result[name].values for name in result]
    if hasattr(result, "predictive_mean"):
        return [np.asarray(result.predictive_mean()), np.asarray(result.cdf(0.5))]
    if hasattr(result, "posterior"):
        return [result.posterior["mean_reward"].values]
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(result, eqx.is_array_like))]


def names_of(function: Any, arguments: dict[str, Any]) -> set[str]:
    """What a message may call the arguments: their names, or what was given for a name."""
    known = {*inspect.signature(function).parameters, "label"} - {"self"}
    if "policies" in known:
        known.add("policy")
    if isinstance(getattr(function, "__self__", None), irsppl.Bandit):
        known.add("bandit")
    texts = {x for x in arguments.values() if isinstance(x, str)}
    return known | ({*texts} & {*POLICIES, *PENALTIES, "nobody"})


@settings(
    max_examples=CALLS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(call=ANY_CALL)
def test_a_call_gives_finite_numbers_or_names_its_argument(call):
    function, arguments = call
    try:
        result = function(**arguments)
    except ValueError as error:
        named = names_of(function, arguments)
        assert any(name in str(error) for name in named), f"{error} names none of {sorted(named)}"
        return
    for numbers in numbers_of(result):
        if np.issubdtype(numbers.dtype, np.number):
            assert np.all(np.isfinite(numbers)), (numbers, result)
