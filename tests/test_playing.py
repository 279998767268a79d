"""Decisions and paths: fresh keys, one meaning of what is read, arms that exist, honest shares."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl.futures import chunks, draw_outcomes
from irsppl.policies import POLICIES, find_policy
from irsppl.policies.paths import player

from .conftest import within
from .registry import FAMILIES

K, T = 3, 20
COSTS = dict(costs=[1, 2, 0.5], budget=12)
CONSTRAINTS = {
    "none": {},
    "fixed delay": dict(delay=[0, 3, float("inf")]),
    "delay law": dict(delay=dist.Poisson(2.0)),
    "budget": dict(horizon=None, **COSTS),
    "budget and delay": dict(horizon=None, delay=2, **COSTS),
    "horizon law": dict(horizon=np.linspace(1, 0.3, T)),
    "horizon law and delay": dict(horizon=np.linspace(1, 0.3, T), delay=2),
}


def bandit_with(name="none"):
    options = {"horizon": T} | CONSTRAINTS[name]
    return irsppl.Bandit(FAMILIES["beta-bernoulli"](), **options)


# ------------------------------------------------------------------ keys


def test_without_a_key_decisions_vary_and_with_one_they_repeat():
    """40 draws of `ts`, whose likeliest arm has at most 0.8: all equal once in 7,000 sessions."""
    bandit = bandit_with()
    assert len({irsppl.choose(bandit, "ts") for _ in range(40)}) > 1
    assert len({irsppl.choose(bandit, "ts", key=4) for _ in range(5)}) == 1
    assert len({irsppl.choose(bandit, "ts", key=t) for t in range(40)}) > 1
    shares = [tuple(irsppl.action_probabilities(bandit, "ts", num_samples=900)) for _ in range(4)]
    assert len(set(shares)) > 1
    again = [irsppl.action_probabilities(bandit, "ts", key=1, num_samples=900) for _ in range(2)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_key_gives_the_same_arm(policy):
    bandit = bandit_with("budget" if policy == "ts-ratio" else "none")
    for key in range(3):
        arms = {irsppl.choose(bandit, policy, key=key) for _ in range(2)}
        assert len(arms) == 1
        decision = irsppl.decide(bandit, policy, key=key, num_samples=20)
        assert {decision.arm} == arms
        assert 1 / 21 <= decision.probability <= 1
        if POLICIES[policy].deterministic:
            assert decision.probability == 1
    shares = irsppl.action_probabilities(bandit, policy, key=1, num_samples=20)
    np.testing.assert_array_equal(
        shares, irsppl.action_probabilities(bandit, policy, key=1, num_samples=20)
    )


# ------------------------------------------------------------------ what a policy reads


def mixed(period, horizon, remaining, counts, pending, money):
    """An arm that changes with everything that may be read."""
    told = 3 * period + horizon + 2 * remaining + counts[1] + 2 * counts[2] + pending[0]
    return (told + 2 * pending[1] + money + (period >= horizon // 2)) % K


def traced(key, bandit):
    pending = bandit.pending_counts
    pending = jnp.zeros(K, int) if pending is None else pending
    money = 0 if not bandit.access.binds else (2 * bandit.budget).astype(int)
    return mixed(bandit.period, bandit.horizon, bandit.remaining, bandit.counts, pending, money)


def noting(reads):
    """The same rule in plain Python; it writes down what it reads."""

    def plain(key, bandit):
        pending = bandit.pending_counts
        pending = np.zeros(K, int) if pending is None else np.asarray(pending)
        assert len(bandit.pending) == pending.sum()
        money = 0 if bandit.budget is None else int(2 * bandit.budget)
        whole = (int(bandit.period), bandit.horizon, int(bandit.remaining))
        counts = np.asarray(bandit.counts)
        means = np.asarray(bandit.belief.predictive_mean()).round(5)
        reads.append((*whole, *counts, *pending, money, *means))
        return int(mixed(*whole, counts, pending, money))

    return plain


def step_by_step(bandit, policy, future):
    """Arms by `choose`, `pull` and `arrive` along the same rewards and delays."""
    start, column, arms, due = int(bandit.period), np.zeros(K, int), [], []
    rewards = np.asarray(future.rewards)
    delays = None if future.delays is None else np.asarray(future.delays)
    for pull in bandit.pending:
        arm = int(bandit.pulled[pull])
        waited = start - pull
        when = start + max(int(delays[arm, column[arm]]) + 1 - waited, 1)
        due.append((when, pull, rewards[arm, column[arm]]))
        column[arm] += 1
    periods = int(bandit.remaining) if future.periods is None else int(future.periods)
    for _ in range(periods):
        if not int(bandit.remaining):
            break
        now = int(bandit.period)
        for when, pull, reward in list(due):
            if when <= now:
                bandit = bandit.arrive(pull, reward)
                due.remove((when, pull, reward))
        arm = irsppl.choose(bandit, policy)
        if not bandit.access.allowed(bandit)[arm]:
            break
        arms.append(arm)
        reward = rewards[arm, column[arm]]
        if delays is None:
            bandit = bandit.pull(arm, reward)
        else:
            due.append((now + int(delays[arm, column[arm]]) + 1, now, reward))
            bandit = bandit.pull(arm)
        column[arm] += 1
    return arms


@pytest.mark.filterwarnings("ignore:policy .* is played in plain Python")
@pytest.mark.parametrize("begun", [False, True], ids=["start", "mid-run"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_what_a_policy_reads_means_the_same_everywhere(name, begun):
    """`choose` and `pull`, the path in JAX and the path in Python: same reads, same arms."""
    bandit = bandit_with(name)
    if begun and not bandit.arrivals.late:
        for arm in (0, 1, 2, 0, 1, 2, 0, 1):
            bandit = bandit.pull(arm, 1)
    elif begun:
        bandit = bandit.pull(1).pull(0).pull(1).pull(2).arrive(1, 1)
    first = bandit_with(name).horizon
    reads, steps, key = [], [], jax.random.key(3)
    played = bandit if bandit.arrivals.late else bandit.trimmed(int(bandit.remaining))
    futures = draw_outcomes(played, key, 0, 2)
    future = jax.tree.map(lambda field: field[0], futures)
    one_by_one = step_by_step(bandit, noting(steps), future)
    ways = {"traced": traced, "plain": noting(reads)}
    for label, function in ways.items():
        play = player(find_policy(function, bandit), played, key, label, 2, None)
        if label == "plain":
            reads.clear()
        arms = play(futures, 0, 1).arms[0]
        assert arms[arms >= 0].tolist() == one_by_one, label
        data = irsppl.simulate(bandit, {label: function}, key=3, num_replications=1)
        assert data["pulls"].values[0, 0].tolist() == [one_by_one.count(a) for a in range(K)]
        if label == "plain":
            assert reads[: len(steps)] == steps
    assert {read[1] for read in steps} == {first}


def test_the_horizon_stays_that_of_the_first_period():
    seen = []

    def look(key, bandit):
        seen.append(bandit.horizon)
        return bandit.period % K

    bandit = bandit_with().pull(0, 1).pull(1, 0)
    irsppl.simulate(bandit, look, num_replications=2)
    irsppl.action_probabilities(bandit, look, num_samples=5)
    irsppl.certify(bandit, look, "ts", num_replications=30, num_samples=30)
    irsppl.simulate(bandit, {"grows": Grows(look)}, num_replications=2)  # arrays cut as it goes
    assert set(seen) == {T}
    assert irsppl.bound(bandit, "irs.v-zero", num_samples=50).value > 0
    assert bandit.trimmed(5).horizon == T and bandit.trimmed(5).size == 5


class Grows(irsppl.policies.FunctionPolicy):
    @property
    def grows(self):
        return True


# ------------------------------------------------------------------ arms that there are not

WRONG = {
    "traced 7": (lambda key, bandit: jnp.where(bandit.period < 2, 7, 7), 7),
    "traced -5": (lambda key, bandit: bandit.period * 0 - 5, -5),
    "traced 70000": (lambda key, bandit: bandit.period * 0 + 65_536, 65_536),
    "constant": (lambda key, bandit: 7, 7),
    "plain": (lambda key, bandit: 7 if bandit.period < 2 else 0, 7),
    "traced -1": (lambda key, bandit: bandit.period * 0 - 1, -1),
    "plain -1": (lambda key, bandit: -1 if bandit.period < 2 else 0, -1),
}


@pytest.mark.filterwarnings("ignore:policy .* is played in plain Python")
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["none", "delay law", "budget"])
def test_an_arm_that_there_is_not_is_refused_by_name(case, name):
    function, arm = WRONG[case]
    bandit = bandit_with(name)
    calls = [
        lambda: irsppl.choose(bandit, function),
        lambda: irsppl.simulate(bandit, {"<lambda>": function}, num_replications=3),
    ]
    if arm == -1 and name == "budget":
        assert calls[0]() == -1
        assert (calls[1]()["pulls"] == 0).all()
        return
    if case in ("traced 7", "plain") and name == "none":
        calls += [
            lambda: irsppl.decide(bandit, function, num_samples=5),
            lambda: irsppl.action_probabilities(bandit, function, num_samples=5),
            lambda: irsppl.certify(bandit, function, "ts", num_replications=30, num_samples=30),
        ]
    for call in calls:
        with pytest.raises(
            ValueError, match=rf"'<lambda>' returned arm {arm}, but arms are 0 to 2"
        ):
            call()


def test_an_arm_that_comes_late_in_a_path_is_refused():
    for name in ("none", "delay law"):
        bandit = bandit_with(name)
        with pytest.raises(ValueError, match="'late' returned arm 3"):
            irsppl.simulate(
                bandit, {"late": lambda key, b: jnp.where(b.period < 15, 0, 3)}, num_replications=2
            )


# ------------------------------------------------------------------ compilations


@pytest.fixture
def no_cache():
    """A persistent cache would hide compilations."""
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.parametrize("name", ["none", "delay law"])
def test_another_number_of_replications_compiles_nothing(name, no_cache, compilations):
    belief = FAMILIES["gamma-exponential"]()
    bandit = irsppl.Bandit(belief, **({"horizon": T} | CONSTRAINTS[name]))
    irsppl.simulate(bandit, [traced, "ts"], num_replications=40)
    irsppl.action_probabilities(bandit, "ts", num_samples=64)
    irsppl.bound(bandit, "irs.v-zero-separable", num_samples=40)
    assert len(compilations) > 0
    warm = len(compilations)
    for count in (42, 33, 7, 250):
        irsppl.simulate(bandit, [traced, "ts"], num_replications=count)
        irsppl.bound(bandit, "irs.v-zero-separable", num_samples=count)
        irsppl.action_probabilities(bandit, "ts", num_samples=count)
    assert len(compilations) == warm


def test_chunks_come_in_few_sizes():
    bandit = bandit_with()
    sizes = {chunks(bandit, total)[0][2] for total in range(1, 20_000, 37)}
    assert len(sizes) <= 3
    for total in (1, 15, 31, 40, 42, 257, 5000):
        plan = chunks(bandit, total)
        assert [start for start, *_ in plan[1:]] == [stop for _, stop, _ in plan[:-1]]
        assert plan[0][0] == 0 and plan[-1][1] == total
        surplus = sum(size for *_, size in plan) - total
        assert surplus < max(total, 16)


# ------------------------------------------------------------------ propensities


def rarely(key, bandit):
    """Arms 0, 1, 2 with probabilities 0.8, 0.15, 0.05."""
    return jnp.searchsorted(jnp.array([0.8, 0.95]), jax.random.uniform(key))


def test_no_arm_that_can_be_played_has_probability_zero():
    bandit = bandit_with()
    for policy in (rarely, "ts", "random"):
        shares = irsppl.action_probabilities(bandit, policy, key=0, num_samples=5)
        assert shares.min() >= 1 / 8 and shares.sum() == pytest.approx(1)
    shares = irsppl.action_probabilities(bandit, rarely, key=0, num_samples=4000)
    for share, p in zip(shares, (0.8, 0.15, 0.05), strict=True):
        within(share, np.sqrt(p * (1 - p) / 4000), p)
    poor = irsppl.Bandit(FAMILIES["beta-bernoulli"](), costs=[1, 5, 1], budget=4)
    shares = irsppl.action_probabilities(poor, "random", num_samples=50)
    assert shares[1] == 0 and shares[[0, 2]].min() > 0 and shares.sum() < 1  # it may stop


def test_weights_from_decisions_are_unbiased():
    """E[1{arm = a} / probability] = 1 - (1 - p_a)^(n + 1), by exchangeability; 4 s.e. per arm."""
    n, decisions = 20, 250
    bandit = bandit_with()
    made = [irsppl.decide(bandit, rarely, key=s, num_samples=n) for s in range(decisions)]
    assert [d.arm for d in made[:20]] == [irsppl.choose(bandit, rarely, key=s) for s in range(20)]
    for arm, p in enumerate((0.8, 0.15, 0.05)):
        weights = np.array([(d.arm == arm) / d.probability for d in made])
        within(weights.mean(), weights.std() / np.sqrt(decisions), 1 - (1 - p) ** (n + 1))


def test_the_index_policy_looks_no_closer_than_it_must():
    """Bisection that stops once the best arm is clear finds the arm that all of it would find."""
    bandit, policy = bandit_with("delay law").pull(0).pull(1), irsppl.Index()
    keys = jax.random.split(jax.random.key(6), 100)
    full, quick = (
        jax.jit(jax.vmap(lambda key, only=only: policy.indices(key, bandit, only)))(keys)
        for only in (False, True)
    )
    np.testing.assert_array_equal(np.argmax(full, axis=1), np.argmax(quick, axis=1))
