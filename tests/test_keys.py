"""No random key is used twice within one decision or one future.

JAX's own check, on traced programs. Not on for the whole session, because many tests give one key
to two implementations on purpose.
"""

import jax
import numpyro.distributions as dist
import pytest
from jax.experimental.key_reuse._core import check_key_reuse

import irsppl
from irsppl.penalties import PENALTIES
from irsppl.policies import POLICIES

from .registry import FAMILIES

KEY = jax.random.key(0)


def two_arms(**constraints):
    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])
    return irsppl.Bandit(belief, constraints.pop("horizon", 4), **constraints)


BANDITS = {
    "plain": two_arms(),
    "pending": two_arms().pull(0),
    "delay": two_arms(delay=dist.Poisson(1.0)),
    "budget": two_arms(costs=[1.0, 2.0], budget=4.0),
    "law": two_arms(horizon=dist.Geometric(0.5)),
}


def served(check, bandit):
    try:
        check(bandit)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", BANDITS)
def test_a_decision_uses_no_key_twice(name):
    bandit, checked = BANDITS[name], 0
    for policy in POLICIES.values():
        if policy.traceable and served(policy.verify, bandit):
            check_key_reuse(policy, KEY, bandit)
            checked += 1
    for penalty in PENALTIES.values():
        if penalty.traceable and not penalty.bound_only and served(penalty.verify, bandit):
            check_key_reuse(penalty.decide, KEY, bandit)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", [*BANDITS, *FAMILIES])
def test_a_future_uses_no_key_twice(name):
    bandit = BANDITS[name] if name in BANDITS else irsppl.Bandit(FAMILIES[name](), 3)
    check_key_reuse(bandit.sample_outcome, KEY)
    check_key_reuse(bandit.sample_truth, KEY)
