"""Malformed calls, extreme sizes and results that are no numbers: told at once, by name."""

import re
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl import _progress
from irsppl.futures import outcome_keys
from irsppl.penalties import Inner, Penalty, brief, find_penalty
from irsppl.results import finite_result

from .conftest import mean_by_controls, within

GOOD = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 2.0])
BANDIT = irsppl.Bandit(GOOD, 4)
WAITING = BANDIT.pull(0)


def arm(reward=None):
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    numpyro.sample("reward", dist.Bernoulli(theta), obs=reward)


# (call, what its message must hold: the argument's name first of all)
CALLS = {
    # ---- laws of horizons and delays (one for all arms; one or one per arm)
    "horizon batch": (
        lambda: irsppl.Bandit(GOOD, dist.Poisson(jnp.array([1.0, 2.0]))),
        "horizon must be one distribution.*batch of shape",
    ),
    "horizon delta batch": (
        lambda: irsppl.Bandit(GOOD, dist.Delta(jnp.array([4.0, 5.0]))),
        "horizon must be one distribution",
    ),
    "horizon event": (
        lambda: irsppl.Bandit(GOOD, dist.Multinomial(3, jnp.array([0.5, 0.5]))),
        "horizon .* not single numbers",
    ),
    "horizon continuous": (lambda: irsppl.Bandit(GOOD, dist.Gamma(2.0)), "horizon .*continuous"),
    "horizon negative": (
        lambda: irsppl.Bandit(GOOD, dist.DiscreteUniform(-2, 5)),
        "horizon .*negative values",
    ),
    "horizon fraction": (lambda: irsppl.Bandit(GOOD, dist.Delta(2.5)), "horizon .*at 2.5"),
    "horizon rate": (
        lambda: irsppl.Bandit(GOOD, dist.Poisson(-1.0, validate_args=False)),
        "horizon .*invalid rate",
    ),
    "horizon nan law": (
        lambda: irsppl.Bandit(GOOD, dist.Geometric(jnp.nan, validate_args=False)),
        "horizon .*invalid probs",
    ),
    "horizon text": (lambda: irsppl.Bandit(GOOD, ["0.5", "0.2"]), "horizon must be a whole number"),
    "horizon bools": (lambda: irsppl.Bandit(GOOD, [True, False]), "horizon must be a whole number"),
    "horizon none": (lambda: irsppl.Bandit(GOOD), "horizon must be a whole number"),
    "delay batch": (
        lambda: irsppl.Bandit(GOOD, 5, delay=dist.Poisson(jnp.array([1.0, 2.0, 3.0]))),
        "delay must be one distribution or one per arm",
    ),
    "delay event": (
        lambda: irsppl.Bandit(GOOD, 5, delay=dist.Multinomial(3, jnp.array([0.5, 0.5]))),
        "delay .* not single numbers",
    ),
    "delay continuous": (lambda: irsppl.Bandit(GOOD, 5, delay=dist.Normal()), "delay .*continuous"),
    "delay rate": (
        lambda: irsppl.Bandit(GOOD, 5, delay=dist.Poisson(-1.0, validate_args=False)),
        "delay .*rate",
    ),
    "delay text": (lambda: irsppl.Bandit(GOOD, 5, delay="5"), "delay must be a whole number"),
    # ---- sizes
    "horizon 1e9": (lambda: irsppl.Bandit(GOOD, 10**9), "horizon must be at most .*Mix"),
    "horizon 2**31": (lambda: irsppl.Bandit(GOOD, 2**31), "horizon must be at most"),
    "horizon 2**70": (lambda: irsppl.Bandit(GOOD, 2**70), "horizon must be at most"),
    "tiny costs": (
        lambda: irsppl.Bandit(GOOD, costs=[1e-9, 1.0], budget=5),
        "costs must be at least",
    ),
    "tiny costs, horizon": (
        lambda: irsppl.Bandit(GOOD, 5, costs=[1e-12, 1.0], budget=5),
        "costs must be at least",
    ),
    "many pulls": (
        lambda: irsppl.Bandit(GOOD, costs=[1e-4, 1.0], budget=1e4),
        "budget pays for 100,000,000 pulls",
    ),
    "budget text": (lambda: irsppl.Bandit(GOOD, costs=[1, 2], budget="5"), "budget must be"),
    "costs text": (lambda: irsppl.Bandit(GOOD, costs=["1", "2"], budget=5), "costs must be"),
    "costs huge": (
        lambda: irsppl.Bandit(GOOD, costs=[1e308, 1e308], budget=1e-308),
        "budget must pay",
    ),
    "seed -1": (lambda: irsppl.choose(BANDIT, "ts", key=-1), "key must be a seed from 0"),
    "seed 2**64": (lambda: irsppl.choose(BANDIT, "ts", key=2**64), "key must be a seed from 0"),
    # ---- play
    "arrive text": (lambda: WAITING.arrive("0", 1), "pull must be a whole number"),
    "arrive none": (lambda: WAITING.arrive(None, 1), "pull must be a whole number"),
    "arrive float": (lambda: WAITING.arrive(0.0, 1), "pull must be a whole number"),
    "arrive list": (lambda: WAITING.arrive([0], 1), "pull must be a whole number"),
    "arrive other": (lambda: WAITING.arrive(3, 1), "pull must be a pending pull"),
    "arrive huge": (lambda: WAITING.arrive(2**40, 1), "pull must be a pending pull"),
    "arrive no reward": (lambda: WAITING.arrive(0, None), "reward must be"),
    "arrive rewards": (lambda: WAITING.arrive(0, [1]), "reward must be one number"),
    "arrive reward text": (lambda: WAITING.arrive(0, "1"), "reward must be"),
    "pull text": (lambda: BANDIT.pull(0, "x"), "reward must be"),
    "pull arm text": (lambda: BANDIT.pull("0", 1), "arm must be"),
    "pull arm none": (lambda: BANDIT.pull(None, 1), "arm must be"),
    "update text": (lambda: GOOD.update(0, "x"), "reward must be"),
    "update ragged": (lambda: GOOD.update([[0], [1, 2]], 1), "arm must be"),
    # ---- something else than a bandit
    **{
        f"no bandit: {name}": (call, "bandit must be an irsppl.Bandit")
        for name, call in {
            "choose": lambda: irsppl.choose(GOOD, "ts"),
            "action_probabilities": lambda: irsppl.action_probabilities(None, "ts"),
            "bound": lambda: irsppl.bound(3, "ts"),
            "simulate": lambda: irsppl.simulate("x", ["ts"]),
            "certify": lambda: irsppl.certify([BANDIT], "ts"),
            "solve_inner": lambda: irsppl.solve_inner(GOOD, "ts", irsppl.Outcome([1.0], [[1.0]])),
        }.items()
    },
    # ---- other arguments
    "policy class": (lambda: irsppl.choose(BANDIT, irsppl.Index), r"policy .*write Index\(\)"),
    "penalty class": (lambda: irsppl.bound(BANDIT, irsppl.Mix), r"penalty .*write Mix\(\)"),
    "policy array": (lambda: irsppl.choose(BANDIT, np.ones(3)), "policy must be a name"),
    "labels number": (lambda: irsppl.Bandit(GOOD, 4, labels=3), "labels must be 2 different"),
    "labels text": (lambda: irsppl.Bandit(GOOD, 4, labels="ab"), "labels must be 2 different"),
    "workers": (lambda: irsppl.bound(BANDIT, "ts", workers="a"), "workers must be a whole"),
    "workers simulate": (lambda: irsppl.simulate(BANDIT, "ts", workers=0), "workers must be"),
    "progress": (lambda: irsppl.bound(BANDIT, "ts", progress="yes"), "progress must be True"),
    "progress certify": (lambda: irsppl.certify(BANDIT, "ts", progress=3), "progress must be"),
    "per_period": (lambda: irsppl.simulate(BANDIT, "ts", per_period=None), "per_period must be"),
    "outcomes": (lambda: irsppl.simulate(BANDIT, ["ts"], outcomes=5), "outcomes must be"),
    "means nan": (lambda: irsppl.simulate(BANDIT, ["ts"], means=[np.nan, 0.5]), "means must be"),
    "means text": (lambda: irsppl.simulate(BANDIT, ["ts"], means="x"), "means must be"),
    "num_samples": (lambda: irsppl.bound(BANDIT, "ts", num_samples=1e4), "num_samples must be"),
    "from_numpyro": (lambda: irsppl.from_numpyro(None), "arm must be a NumPyro function"),
    "from_numpyro 3": (lambda: irsppl.from_numpyro(3), "arm must be a NumPyro function"),
    "from_numpyro text": (lambda: irsppl.from_numpyro("arm"), "arm must be a NumPyro function"),
    "joint": (lambda: irsppl.from_numpyro_joint(None, 2), "model must be a NumPyro function"),
    "numpyro key": (lambda: irsppl.from_numpyro(arm, num_arms=2, key="x"), "key must be"),
    "numpyro site": (lambda: irsppl.from_numpyro(arm, reward_site=3), "reward_site must be"),
    "numpyro points": (lambda: irsppl.from_numpyro(arm, num_particles=2.5), "num_particles must"),
    "numpyro kind": (
        lambda: irsppl.from_numpyro(arm, representation=np.ones(2)),
        "unknown representation",
    ),
    "summary": (lambda: irsppl.summary(None), "data must be what simulate"),
    "outcome delays": (lambda: irsppl.Outcome([0.5], [[1]], delays="x"), "delays must be"),
    "outcome periods": (lambda: irsppl.Outcome([0.5], [[1]], periods="x"), "periods must be"),
    "outcome belief": (lambda: irsppl.Outcome([0.5], [[1]], belief=5), "belief must be"),
    "cdf": (lambda: GOOD.cdf("x"), "x must be"),
    "cdf nan": (lambda: GOOD.cdf(np.nan), "x must be one finite number"),
    "cdf shape": (lambda: GOOD.cdf([0.1, 0.2, 0.3]), "x must be one finite number"),
    "expected_max": (lambda: GOOD.expected_max(None), "lam must be"),
    "sample_outcome": (lambda: BANDIT.sample_outcome("x"), "key must be"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_malformed_call_is_told_which_argument(name):
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_laws_for_each_arm_stay_welcome_for_delays():
    bandit = irsppl.Bandit(GOOD, 5, delay=dist.Poisson(jnp.array([1.0, 2.0])))
    assert bandit.arrivals.cdf.shape == (2, 5)
    never = irsppl.Bandit(GOOD, 5, delay=[10**400, 0])
    assert never.arrivals.fixed == (5, 0)
    assert irsppl.Bandit(GOOD, dist.Geometric(0.5)).end.binds


def test_a_seed_has_64_bits_in_either_mode():
    """JAX alone would take the low 32 bits, so that 5 and 2**33 + 5 were one seed."""
    from irsppl._checks import as_key

    seeds = [0, 5, 2**31, 2**32 - 1, 2**32 + 5, 2**33 + 5, 2**63, 2**64 - 1]
    data = [np.asarray(jax.random.key_data(as_key(seed))).tolist() for seed in seeds]
    assert len({tuple(words) for words in data}) == len(seeds)
    with jax.enable_x64(True):
        wide = [np.asarray(jax.random.key_data(as_key(seed))).tolist() for seed in seeds]
    assert data == wide


def test_whole_numbers_beyond_32_bits_do_not_wrap():
    for numbers in ([2**33, 1], np.array([2**33, 1]), [2**62, 1]):
        far = irsppl.NormalNormal(numbers, [1, 1], [1, 1])
        np.testing.assert_allclose(far.predictive_mean(), np.asarray(numbers, float))
    with pytest.raises(ValueError, match="alpha must be positive and finite"):
        irsppl.BetaBernoulli([10**60, 1], [1, 1])
    with pytest.raises(ValueError, match="alpha must be at most 1e9"):
        irsppl.BetaBernoulli([1e12, 1], [1, 1])


def test_a_price_that_nobody_can_pay_is_only_too_dear():
    bandit = irsppl.Bandit(GOOD, costs=[1.0, 1e300], budget=3)
    assert bandit.access.allowed(bandit).tolist() == [True, False] and bandit.budget == 3


# ---------------------------------------------------------------- certificates


def test_a_certificate_promises_its_lower_limit():
    certificate = irsppl.certify(BANDIT, "ts", "ts", num_replications=200, num_samples=200)
    low, high = certificate.interval(0.95)
    told = str(certificate)
    promised = float(told.split("at least ")[1].split("%")[0]) / 100
    assert low - 0.001 <= promised <= low < certificate.ratio < high
    assert "97.5% confidence" in told and "95% interval" in told and "estimate" in told


def test_no_certificate_promises_more_than_all():
    from irsppl.certificates import Certificate, Estimate

    lucky = Certificate("p", "ts", Estimate(1.2, 0.01), Estimate(1.0, 0.0))
    assert "at least 100.0% of the optimum" in str(lucky)


@pytest.mark.parametrize("name", ["num_replications", "num_samples"])
@pytest.mark.parametrize("count", [1, 2, 29])
def test_a_certificate_takes_enough_replications(name, count):
    with pytest.raises(ValueError, match=f"{name} must be at least 30, got {count}"):
        irsppl.certify(BANDIT, "ts", "ts", **{name: count})


@pytest.mark.parametrize("level", ["x", None, True, 1j, np.nan])
def test_a_level_is_a_number(level):
    certificate = irsppl.certify(BANDIT, "ts", "ts", num_replications=200, num_samples=200)
    with pytest.raises(ValueError, match="level must lie strictly between"):
        certificate.interval(level)


# ---------------------------------------------------------------- the gate


def broken(value):
    """A bandit whose belief no call of ours should make."""
    belief = jax.tree.map(lambda leaf: leaf.at[1].set(value), GOOD)
    return irsppl.Bandit(belief, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda b: irsppl.bound(b, "irs.ff"),
        lambda b: irsppl.bound(b, "irs.v-zero", num_samples=40),
        lambda b: irsppl.choose(b, "greedy"),
        lambda b: irsppl.action_probabilities(b, "ts"),
        lambda b: irsppl.simulate(b, "ts", num_replications=4),
        lambda b: irsppl.certify(b, "ts", "ts"),
        lambda b: irsppl.solve_inner(b, "irs.fh", irsppl.Outcome([0.5, 0.5], np.ones((2, 4)))),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_is_planned_from_a_belief_that_is_no_number(call, value):
    with pytest.raises(ValueError, match="bandit: the belief in arm 1 has the mean reward nan"):
        call(broken(value))


class Nameless(Penalty):
    """A user's penalty that divides by zero."""

    name: ClassVar[str] = "nameless"

    def inner(self, bandit, outcome):
        return Inner(0.0 * outcome.means[0] / 0.0, jnp.asarray(0), jnp.zeros(2, jnp.int32))


def test_no_result_leaves_that_is_no_number():
    with pytest.raises(ValueError, match=r"bound nameless came to nan.*BetaBernoulli belief"):
        irsppl.bound(BANDIT, Nameless(), num_samples=40)
    with pytest.raises(ValueError, match="inner problem of nameless came to nan"):
        irsppl.solve_inner(BANDIT, Nameless(), irsppl.Outcome([0.5, 0.5], np.ones((2, 4))))
    with pytest.raises(ValueError, match=r"policy ts came to inf in 1 of 2 cases.*scale rewards"):
        finite_result(BANDIT, "policy ts", value=[1.0, np.inf])


# ---------------------------------------------------------------- long horizons


@pytest.mark.parametrize(
    "belief",
    [
        irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]),
        # Far from zero, where rounding in float32 is not small beside a number.
        irsppl.NormalNormal([10.0, 10.5, 11.0], [1.0, 2.0, 0.5], [1.0, 0.5, 2.0]),
    ],
    ids=["beta", "normal"],
)
def test_futures_without_their_bulk_give_the_same_bounds(belief, monkeypatch):
    """Against exact figures (FF, FH, TS) and whole futures (Mix): 4 s.e., 1 in 16,000 each."""
    monkeypatch.setattr(brief, "_EACH", 16)  # so that 80 periods have blocks of several
    bandit = irsppl.Bandit(belief, 80)
    needed = {p.label: p for p in map(find_penalty, ("ts", "irs.fh", "irs.ff", irsppl.Mix(T0=30)))}
    keys = outcome_keys(jax.random.key(5), 0, 2000)
    found = brief.brief_values(bandit, needed, keys)
    tower = found.pop(brief.TOWER)
    best = needed["ts"].exact(bandit)
    column = found["ts"] - best
    for name, penalty in needed.items():
        exact = penalty.exact(bandit)
        if exact is None:
            whole = irsppl.bound(bandit, penalty, num_samples=2000)
            truth, error = whole.value, whole.stderr
        else:
            truth, error = exact, 0.0
        controls = [] if name == "ts" else [column, tower]
        within(*mean_by_controls(found[name], controls), truth, error)
    within(*mean_by_controls(tower, []), 0.0)
    # Means and first rewards are those of the whole future with the same key.
    drawn = brief._draw(bandit.trimmed(16), keys, 16, 80, True)
    whole = jax.jit(jax.vmap(bandit.sample_truth))(keys[:1000])
    np.testing.assert_allclose(drawn.means[:1000], whole.means, rtol=1e-6)
    sums = np.asarray(whole.rewards)[:, :, :5].sum(axis=2)
    np.testing.assert_allclose(drawn.sums[:1000, :, 5], sums, rtol=1e-4, atol=1e-4)


def test_blocks_cover_every_period_once():
    ends = brief.blocks(256, 1_000_000)
    assert ends[0] == 256 and ends[-1] == 1_000_000 and np.all(np.diff(ends) > 0)
    assert len(ends) < 200


def test_a_bound_over_a_million_periods_is_quick():
    """Whole futures, 2e10 rewards, would take minutes: here nothing as long as the horizon."""
    bandit = irsppl.Bandit(irsppl.NormalNormal([0.0, 0.5, 1.0], [1.0, 2.0, 0.5], [1.0] * 3), 10**6)
    found = irsppl.bound(bandit, ["irs.ff", irsppl.Mix(T0=30), "irs.fh"], num_samples=400)
    assert found["irs.fh"].exact and found["irs.ff"].value < found["irs.fh"].value
    assert 0 < found["irs.ff"].regret_stderr < 20


def test_what_takes_hours_is_refused_and_what_takes_minutes_is_told(monkeypatch, capsys):
    bandit = irsppl.Bandit(GOOD, 200_000)
    with pytest.raises(ValueError, match=r"num_samples must be at most 250,000 .*Mix"):
        irsppl.bound(bandit, "zero", num_samples=10**6)
    monkeypatch.setattr(_progress, "_SECONDS", 0.0)
    irsppl.bound(BANDIT, "zero", num_samples=5000)
    assert re.search(r"zero: \d+% of 5,000 reps; about \d+ s left", capsys.readouterr().err)
