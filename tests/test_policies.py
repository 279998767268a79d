"""Decisions: myopic at the end, compiled kernels and JAX agree, propensities, the paper's index."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl.beliefs import FiniteRewards
from irsppl.policies import POLICIES, find_policy
from irsppl.simulation import _BATCH, decide_many

from .conftest import within
from .oracles import paper as oracle
from .registry import FAMILIES


def bernoulli(belief):
    return isinstance(belief, irsppl.BetaBernoulli)


# Policies that are not defined for every family say so; these are the questions that they ask.
SERVED = {
    "opt": lambda belief: isinstance(belief, FiniteRewards),
    "fh-gittins": bernoulli,
    "lagr-rt": bernoulli,
    "lagr-ot": bernoulli,
    "ucb1": lambda belief: belief.reward_scale() is not None,
    "kl-ucb": lambda belief: belief.divergence is not None,
}
NOT_MYOPIC = {"ts", "random", "irs.index*", "ts-ratio"}  # the last is for budgets


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - NOT_MYOPIC))
def test_every_policy_is_myopic_in_the_last_period(policy, belief):
    bandit = irsppl.Bandit(belief, 1)
    if policy in SERVED and not SERVED[policy](belief):
        with pytest.raises(ValueError, match=r"use|Use|scale|instead"):
            irsppl.choose(bandit, policy)
        return
    best = int(np.argmax(belief.predictive_mean()))
    shares = irsppl.action_probabilities(bandit, policy, num_samples=64)
    assert shares[best] == 1.0


@pytest.mark.parametrize("family", ["beta-bernoulli", "normal-normal", "gamma-poisson"])
@pytest.mark.parametrize("policy", ["ts", "irs.fh", "irs.v-zero", "irs.index", "irs.index*"])
def test_compiled_and_traced_decisions_have_one_law(family, policy):
    """Propensities from the CPU kernel and from JAX; 4 standard errors per arm."""
    bandit = irsppl.Bandit(FAMILIES[family](), 5)
    found = find_policy(policy)
    compiled = irsppl.action_probabilities(bandit, policy, key=1, num_samples=20_000)
    keys = jax.random.split(jax.random.key(2), (3000 // _BATCH, _BATCH))
    arms = np.asarray(decide_many(found, keys, bandit))
    traced = np.bincount(arms, minlength=3) / len(arms)
    for a, b in zip(compiled, traced, strict=True):
        p = np.clip((a + b) / 2, 1e-3, 1 - 1e-3)
        within(a, np.sqrt(p * (1 - p) / 20_000), b, np.sqrt(p * (1 - p) / len(arms)))


@pytest.mark.parametrize("policy", ["irs.v-emax"])
@pytest.mark.parametrize("family", ["beta-bernoulli", "normal-normal"])
def test_compiled_and_traced_v_emax_have_one_law(policy, family):
    belief = jax.tree.map(lambda leaf: leaf[1:], FAMILIES[family]())
    bandit = irsppl.Bandit(belief, 10)
    compiled = irsppl.action_probabilities(bandit, policy, key=1, num_samples=20_000)
    keys = jax.random.split(jax.random.key(2), (3000 // _BATCH, _BATCH))
    arms = np.asarray(decide_many(find_policy(policy), keys, bandit))
    p = np.clip(compiled[0], 1e-3, 1 - 1e-3)
    within(
        (arms == 0).mean(),
        np.sqrt(p * (1 - p) / len(arms)),
        compiled[0],
        np.sqrt(p * (1 - p) / 20_000),
    )


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_indices_agree_with_the_papers_pseudo_code(family, star):
    """Same futures: JAX, the compiled kernel and the plain NumPy bisection give one index."""
    from .oracles.index import index_given

    if family == "bernoulli":
        belief = irsppl.BetaBernoulli([1.0, 2.0, 4.0], [1.0, 3.0, 2.0])
        prior = oracle.Bernoulli([1.0, 2.0, 4.0], [1.0, 3.0, 2.0])
    else:
        belief = irsppl.NormalNormal([0.0, 0.3, -0.2], [1.0, 0.5, 2.0], [1.0, 1.0, 0.7])
        prior = oracle.Gaussian([0.0, 0.3, -0.2], [1.0, 0.5, 2.0], [1.0, 1.0, 0.7])
    bandit = irsppl.Bandit(belief, 15)
    policy = irsppl.Index(star=star)
    solve, draw = jax.jit(policy.indices_given), jax.jit(jax.vmap(bandit.sample_outcome))
    for seed in range(12):
        outcomes = draw(jax.random.split(jax.random.key(seed), 1))
        rewards = np.asarray(outcomes.rewards[0], np.float64)
        expected = oracle.index_values(prior, rewards, star=star)
        np.testing.assert_allclose(solve(bandit, outcomes), expected, atol=2e-4)
        _, kernel = index_given(*belief.kernel_state(), rewards[:, None, :], star)
        np.testing.assert_allclose(kernel, expected, atol=1e-7)


def test_index_of_several_futures_is_the_root_of_the_mean():
    from .oracles.index import index_given

    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 3.0])
    bandit = irsppl.Bandit(belief, 10)
    draw = jax.jit(jax.vmap(bandit.sample_outcome))
    outcomes = draw(jax.random.split(jax.random.key(5), 4))
    ours = jax.jit(irsppl.Index(num_futures=4).indices_given)(bandit, outcomes)
    futures = np.asarray(outcomes.rewards, np.float64).transpose(1, 0, 2)
    _, kernel = index_given(*belief.kernel_state(), np.ascontiguousarray(futures), False)
    np.testing.assert_allclose(ours, kernel, atol=2e-4)
    one = jax.jit(irsppl.Index().indices_given)
    parts = jax.tree.map(np.asarray, outcomes)
    each = [one(bandit, jax.tree.map(lambda x, i=i: x[i : i + 1], parts)) for i in range(4)]
    assert not np.allclose(ours, np.mean(each, axis=0), atol=1e-3)  # not the mean of the roots


def test_lookahead_caps_what_the_index_plans_for():
    belief = irsppl.BetaBernoulli([1.0, 6.0], [1.0, 4.0])
    short = irsppl.action_probabilities(irsppl.Bandit(belief, 3), "irs.index", num_samples=5000)
    capped = irsppl.action_probabilities(
        irsppl.Bandit(belief, 300), irsppl.Index(lookahead=3), num_samples=5000
    )
    long = irsppl.action_probabilities(irsppl.Bandit(belief, 300), "irs.index", num_samples=5000)
    within(capped[0], np.sqrt(0.25 / 5000), short[0], np.sqrt(0.25 / 5000))
    assert abs(long[0] - short[0]) > 0.1


def test_opt_plays_on_from_one_table(monkeypatch):
    from irsppl.penalties import ideal

    solved = []
    real = ideal.solve
    monkeypatch.setattr(ideal, "solve", lambda *a: solved.append(a) or real(*a))
    monkeypatch.setattr(ideal, "_solved", [])
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.5], [1.0, 1.0]), 12)
    rng = np.random.default_rng(0)
    while int(bandit.remaining):
        arm = irsppl.choose(bandit, "opt")
        fresh = irsppl.Bandit(bandit.belief, int(bandit.remaining))
        value = {a: _q(fresh, a) for a in (0, 1)}
        assert value[arm] == pytest.approx(max(value.values()), abs=1e-9)
        bandit = bandit.pull(arm, int(rng.random() < 0.5))
    roots = [a for a in solved if a[2] == 12]
    assert len(roots) == 1


def _q(bandit, arm):
    """Value of pulling `arm` now and playing on optimally."""
    mean = float(bandit.belief.predictive_mean()[arm])
    total = mean
    if int(bandit.remaining) > 1:
        for reward, p in ((1, mean), (0, 1 - mean)):
            later = irsppl.Bandit(bandit.belief.update(arm, reward), int(bandit.remaining) - 1)
            total += p * irsppl.bound(later, "ideal").value
    return total


def test_action_probabilities_are_exact_for_deterministic_policies(belief):
    shares = irsppl.action_probabilities(irsppl.Bandit(belief, 5), "greedy")
    assert shares.sum() == 1 and set(shares) == {0.0, 1.0}
    random = irsppl.action_probabilities(irsppl.Bandit(belief, 5), "random", num_samples=3000)
    for share in random:
        within(share, np.sqrt(2 / 9 / 3000), 1 / 3)


def test_thompson_sampling_matches_probabilities_of_being_best():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([2.0, 1.0], [1.0, 1.0]), 9)
    share = irsppl.action_probabilities(bandit, "ts", num_samples=20_000)
    within(share[0], np.sqrt(0.25 / 20_000), 2 / 3)  # P(Beta(2,1) > U) = E[Beta(2,1)]


def test_a_users_function_is_a_policy():
    def second(key, bandit):
        return jnp.asarray(1)

    bandit = irsppl.Bandit(irsppl.BetaBernoulli([2.0, 1.0], [1.0, 1.0]), 4)
    assert irsppl.choose(bandit, second) == 1
    data = irsppl.simulate(bandit, {"mine": second}, num_replications=50)
    assert (data["pulls"].sel(policy="mine", arm="1") == 4).all()
