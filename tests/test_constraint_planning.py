"""Planning for a constraint helps; what cannot be planned for is refused."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl._fields import changed
from irsppl.constraints import Prompt
from irsppl.horizons import read_horizon
from irsppl.penalties import FH

from .test_constraints import ARMS

# ------------------------------------------------------------------ planning helps


def ignoring_the_delay(key, bandit):
    """irs.fh as if every reward were known before the next decision."""
    blind = changed(bandit, arrivals=Prompt())
    return FH().decide(key, blind.trimmed(blind.horizon))


def test_planning_for_the_delay_does_not_cost():
    belief = irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3)
    bandit = irsppl.Bandit(belief, 15, delay=4)
    policies = {"aware": "irs.fh", "blind": ignoring_the_delay}
    data = irsppl.simulate(bandit, policies, key=11, num_replications=2000)
    gain = (data["value"].sel(policy="aware") - data["value"].sel(policy="blind")).values
    # one-sided, 4 standard errors: false alarm 3e-5 if the two earned the same (`ts`: -9)
    assert gain.mean() > -4 * gain.std() / math.sqrt(len(gain))


def test_planning_for_the_money_beats_the_ratio_rule():
    belief = irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3)
    bandit = irsppl.Bandit(belief, costs=[1, 1.5, 2.5], budget=30)
    data = irsppl.simulate(
        bandit, ["irs.fh", "irs.v-zero", "ts-ratio"], key=7, num_replications=2000
    )
    rule = data["value"].sel(policy="ts-ratio").values
    for policy in ("irs.fh", "irs.v-zero"):
        gain = data["value"].sel(policy=policy).values - rule
        # at 3 standard errors: false alarm 1e-3 if they earned the same
        assert gain.mean() > 3 * gain.std() / math.sqrt(len(gain))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(horizon=5, delay=-1), "delay must be a whole number of at least 0"),
        (dict(horizon=5, delay=1.5), "delay must be a whole number of at least 0"),
        (dict(horizon=5, delay=[1, 2, 3]), r"delay must be one number or one per arm \(2\)"),
        (dict(horizon=5, delay=dist.DiscreteUniform(-2, 3)), "which allows negative values"),
        (dict(horizon=5, delay=dist.Normal(3.0, 1.0)), "which is continuous"),
        (dict(horizon=5, delay=dist.Poisson(jnp.ones(3))), "one distribution or one per arm"),
        (dict(costs=[1, 0], budget=5), "costs must be positive and finite"),
        (dict(costs=[1, -2], budget=5), "costs must be positive and finite"),
        (dict(costs=[1, 2, 3], budget=5), r"costs must be one positive number per arm \(2\)"),
        (dict(costs=[3, 2], budget=1.5), "budget must pay for the cheapest arm at least"),
        (dict(costs=[3, 2], budget=-1), "budget must be positive and finite"),
        (dict(costs=[3, 2]), "budget is missing"),
        (dict(horizon=5, budget=3), "costs is missing"),
        (dict(), "horizon must be a whole number of at least 1, got None"),
        (dict(horizon=dist.Geometric(0.0)), "horizon must be a law that ends"),
        (dict(horizon=dist.Geometric(1e-7)), "horizon must be a law that ends"),
        (dict(horizon=dist.Normal(20.0, 1.0)), "which is continuous"),
        (dict(horizon=dist.DiscreteUniform(-1, 4)), "which allows negative values"),
        (dict(horizon=[0.5, 0.8]), "survivor probabilities"),
        (dict(horizon=[1.2, 0.8]), "survivor probabilities"),
        (dict(horizon=[0.0, 0.0]), "at least one period"),
        (dict(horizon=[1, 0.5], costs=[1, 1], budget=3), "not a law"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        irsppl.Bandit(ARMS, **options)


@pytest.mark.parametrize(
    ("options", "penalty", "message"),
    [
        (dict(horizon=5, delay=1), "irs.v-zero", "no bound under a delay"),
        (dict(horizon=5, delay=1), "irs.v-emax", "does not plan for a delay"),
        (dict(horizon=5, delay=1), "ideal", "does not plan for a delay"),
        (dict(costs=[1, 2], budget=5), "irs.v-emax", "does not plan for a budget"),
        (dict(costs=[1, 2], budget=5), "ideal", "does not plan for a budget"),
        (dict(costs=[1, 2], budget=5, delay=dist.Poisson(1.0)), "irs.ff", "needs a fixed delay"),
        (dict(horizon=[1, 0.5]), "lagrangian", "does not plan for a horizon law"),
    ],
)
def test_combinations_that_do_not_exist_are_refused(options, penalty, message):
    with pytest.raises(ValueError, match=message):
        irsppl.bound(irsppl.Bandit(ARMS, **options), penalty, num_samples=10)


@pytest.mark.parametrize(
    ("options", "policy", "message"),
    [
        (dict(horizon=5, delay=1), "opt", "does not plan for a delay"),
        (dict(horizon=5, delay=1), "fh-gittins", "does not plan for a delay"),
        (dict(costs=[1, 2], budget=5), "irs.mix", "does not plan for a budget"),
        (dict(costs=[1, 2], budget=5), "bayes-ucb", "does not plan for a budget"),
        (dict(horizon=[1, 0.5]), "lagr-ot", "does not plan for a horizon law"),
        (dict(horizon=5), "ts-ratio", "for bandits with costs"),
    ],
)
def test_policies_that_do_not_know_a_constraint_are_refused(options, policy, message):
    with pytest.raises(ValueError, match=message):
        irsppl.choose(irsppl.Bandit(ARMS, **options), policy)


def test_outcomes_by_hand_need_what_is_random():
    late = irsppl.Bandit(ARMS, 3, delay=dist.Poisson(1.0))
    with pytest.raises(ValueError, match=r"outcome\.delays must go with"):
        irsppl.solve_inner(late, "irs.fh", irsppl.Outcome([0.5, 0.5], np.ones((2, 3))))
    unknown = irsppl.Bandit(ARMS, [1, 0.5])
    with pytest.raises(ValueError, match=r"outcome\.periods must tell"):
        irsppl.solve_inner(unknown, "irs.fh", irsppl.Outcome([0.5, 0.5], np.ones((2, 2))))
    with pytest.raises(ValueError, match="delays must be one whole number"):
        irsppl.Outcome([0.5, 0.5], np.ones((2, 2)), delays=[[0, 1], [-1, 2]])


def test_a_reward_later_than_its_law_allows_is_due_not_lost():
    """P(D <= 1) = 1, and the pull has waited three periods: it may come at any moment."""
    law = dist.Categorical(jnp.array([0.5, 0.5]))
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 8, delay=law)
    for arm, reward in ((0, None), (1, 1), (1, 1), (1, 1)):
        bandit = bandit.pull(arm, reward)
    draw = jax.jit(jax.vmap(lambda key: bandit.arrivals.sample(key, bandit)[0, 0]))
    delays = draw(jax.random.split(jax.random.key(0), 50))
    assert set(np.asarray(delays).tolist()) == {4}  # known before the very next decision


@pytest.mark.parametrize(
    "law, mean, periods",
    [
        (dist.BetaBinomial(2.0, 3.0, 20), 8, 20),
        (dist.BetaBinomial(1.0, 9.0, 5), 0.5, 5),
        (dist.NegativeBinomial2(20.0, 1.5), 20, None),
        (dist.GammaPoisson(2.0, 0.1), 20, None),
        (dist.Binomial(10, 0.3), 3, 10),
        (dist.DiscreteUniform(3, 9), 6, 9),
        # Nearly all of it on the last number of a first table, and the rest far behind.
        (
            dist.Categorical(np.eye(5001)[1023] * 0.9999 + np.eye(5001)[5000] * 1e-4),
            1023.3977,
            5000,
        ),
    ],
)
def test_periods_add_up_to_their_mean(law, mean, periods):
    """Where nothing is unknown every policy earns the mean of T, and `irs.ff` is no less."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1e7, 1e7], [1e7, 1e7]), law)
    table = bandit.end.table.values
    assert np.all(np.diff(table) <= 0) and table[-1] > 0 and table[0] <= 1
    assert table.sum() + bandit.end.tail == pytest.approx(mean, rel=2e-6)  # float32 parameters
    assert irsppl.bound(bandit, "ts").value >= 0.5 * mean * (1 - 2e-6)
    assert periods is None or bandit.horizon == periods


def test_probabilities_that_are_a_little_off_do_end():
    """NumPyro's zero-inflated law adds up to 1 but for 1e-7 (JAX's betaln)."""
    law = dist.ZeroInflatedNegativeBinomial2(20.0, 2.0, gate=0.1)
    table = irsppl.Bandit(ARMS, law).end.table.values
    assert table.sum() == pytest.approx(18, rel=1e-6) and table.min() > 0


def test_one_program_reads_a_law_however_far_it_reaches(compilations):
    """A table four times as long compiled everything anew: 30 programs for the first here."""
    short, _ = read_horizon(dist.ZeroInflatedPoisson(0.25, rate=20.0), np.float32)
    first = len(compilations)
    long, end = read_horizon(dist.ZeroInflatedPoisson(0.25, rate=20_000.0), np.float32)
    assert first <= 4 and len(compilations) <= first + 1  # the table itself, on the device
    assert short < 1024 and 16_384 < long < 65_536
    assert end.table.values.sum() + end.tail == pytest.approx(15_000, rel=1e-9)


class Stairs(dist.Distribution):
    """P(X = i) falls in proportion to count - i. It looks at its parameter, as a user's may."""

    arg_constraints: ClassVar = {"count": dist.constraints.positive_integer}
    support = dist.constraints.nonnegative_integer

    def __init__(self, count):
        self.count = count
        super().__init__()

    def log_prob(self, value):
        table = np.arange(int(self.count), 0, -1)
        mass = jnp.asarray(np.log(table / table.sum()))
        return jnp.where(value < self.count, mass[jnp.clip(value, 0, len(mass) - 1)], -jnp.inf)


def test_a_law_may_look_at_its_parameters():
    bandit = irsppl.Bandit(ARMS, 9, delay=Stairs(4))
    np.testing.assert_allclose(bandit.arrivals.cdf[0, :4], [0.4, 0.7, 0.9, 1.0], rtol=1e-6)
