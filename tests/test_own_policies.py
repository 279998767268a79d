"""Policies of one's own: plain Python, objects with state, agents of other libraries."""

import datetime
import os
import random
import secrets
import time
import traceback
import uuid
import warnings
from os import urandom
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl.policies import PlainPolicy, Policy, find_policy, from_agent

from . import user_models
from .conftest import within

K, T = 3, 20
BANDIT = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * K, [1.0] * K), T)
quietly = pytest.mark.filterwarnings("ignore:policy .* is played in plain Python")

GENERATOR = np.random.default_rng(0)
HISTORY = []


def with_an_if(key, bandit):
    if bandit.period < K:
        return int(bandit.period)
    return int(np.argmax(np.asarray(bandit.belief.predictive_mean())))


def with_an_if_traced(key, bandit):
    return jnp.where(bandit.period < K, bandit.period, jnp.argmax(bandit.belief.predictive_mean()))


def global_numpy(key, bandit):
    return np.random.randint(K)  # noqa: NPY002


def global_random(key, bandit):
    if random.random() < 0.5:
        return random.randrange(K)
    return jnp.argmax(bandit.belief.predictive_mean())


def own_generator(key, bandit):
    return GENERATOR.integers(K)


def fresh_generator(key, bandit):
    return np.random.default_rng().integers(K)


def seldom_random(key, bandit):
    """Traced thrice, it tells the same story in 97 of 100 cases."""
    if np.random.default_rng().random() < 0.01:
        return 0
    return jnp.argmax(bandit.belief.predictive_mean())


def keeps_a_list(key, bandit):
    HISTORY.append(bandit.period)
    return len(HISTORY) % K


class Counter:
    def __init__(self):
        self.calls = 0

    def __call__(self, key, bandit):
        self.calls += 1
        return self.calls % K

    def method(self, key, bandit):
        return self(key, bandit)


class OwnPolicy(Policy):
    name = "own"

    def __call__(self, key, bandit):
        return 0 if bandit.period < 2 else 1


def counting():
    calls = 0

    def closure(key, bandit):
        nonlocal calls
        calls += 1
        return calls % K

    return closure


PLAIN = {
    "if": with_an_if,
    "numpy's generator": global_numpy,
    "Python's generator": global_random,
    "own generator": own_generator,
    "fresh generator": fresh_generator,
    "fresh generator that seldom matters": seldom_random,
    "list": keeps_a_list,
    "object": Counter(),
    "method": Counter().method,
    "closure": counting(),
    "policy object": OwnPolicy(),
}


@quietly
@pytest.mark.parametrize("name", PLAIN)
def test_what_jax_cannot_trace_is_played_in_python(name):
    policy = PLAIN[name]
    assert isinstance(find_policy(policy, BANDIT), PlainPolicy)
    assert irsppl.choose(BANDIT, policy) in range(K)
    data = irsppl.simulate(BANDIT, {"mine": policy, "ts": "ts"}, num_replications=12)
    assert (data["pulls"].sum("arm") == T).all()
    if name not in ("if", "policy object"):  # what it draws or counts is not frozen by a trace
        assert len({tuple(row) for row in data["pulls"].sel(policy="mine").values}) > 1
    shares = irsppl.action_probabilities(BANDIT, policy, num_samples=20)
    assert shares.sum() == pytest.approx(1) and shares.min() > 0


CHANCE = {
    "Random()": lambda: random.Random().random(),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "secrets": lambda: secrets.randbelow(100) / 100,
    "os.urandom": lambda: os.urandom(1)[0] / 256,
    "by another name": lambda: urandom(1)[0] / 256,
    "uuid": lambda: uuid.uuid4().int % 100 / 100,
    "RandomState()": lambda: np.random.RandomState().random(),
    "time": lambda: time.time() % 1,
    "perf_counter": lambda: perf_counter() % 1,
    "datetime": lambda: datetime.datetime.now().microsecond / 1e6,
}


class Shared:
    calls = 0

    def __call__(self):
        type(self).calls += 1
        return 0.5


def helper():
    HISTORY.append(0)
    return 0.5


def with_an_attribute():
    with_an_attribute.calls = getattr(with_an_attribute, "calls", 0) + 1
    return 0.5


def with_a_default(seen=[]):  # noqa: B006
    seen.append(0)
    return 0.5


def in_a_module():
    user_models.CALLS += 1
    return 0.5


MEMORY = {
    "function of the file": helper,
    "class": Shared(),
    "attribute": with_an_attribute,
    "default": with_a_default,
    "module": in_a_module,
}


@pytest.mark.parametrize("name", CHANCE | MEMORY)
def test_what_seldom_matters_is_found_too(name, monkeypatch):
    """It tells the same story each time that it is traced, and would be compiled for good."""
    monkeypatch.setattr(user_models, "CALLS", 0, raising=False)
    HISTORY.clear()
    source = (CHANCE | MEMORY)[name]

    def policy(key, bandit):
        return 0 if source() < 0 else jnp.argmax(bandit.belief.predictive_mean())

    assert not find_policy(policy, BANDIT).traceable
    assert not HISTORY and not Shared.calls and not user_models.CALLS
    assert not vars(with_an_attribute) and with_a_default.__defaults__ == ([],)


def test_generators_with_a_seed_and_fixed_settings_are_compiled():
    def policy(key, bandit):
        shift = random.Random(5).random() + np.random.default_rng(5).random() + Settings.width
        return jnp.argmax(bandit.belief.predictive_mean() + shift)

    class Settings:
        width = 1

    assert find_policy(policy, BANDIT).traceable


def test_asking_whether_it_traces_leaves_no_trace():
    HISTORY.clear()
    counter, state = Counter(), GENERATOR.bit_generator.state
    before = random.getstate()
    for policy in (keeps_a_list, counter, own_generator, global_random):
        find_policy(policy, irsppl.Bandit(BANDIT.belief, 19))
    assert HISTORY == [] and counter.calls == 0
    assert GENERATOR.bit_generator.state == state and random.getstate() == before


def test_what_jax_can_trace_runs_compiled_and_without_a_word():
    def by_key(key, bandit):
        return jax.random.randint(key, (), 0, bandit.num_arms)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for policy in (with_an_if_traced, by_key, lambda key, bandit: 1):
            assert find_policy(policy, BANDIT).traceable
            irsppl.simulate(BANDIT, {"mine": policy}, num_replications=12)


def test_the_cost_is_told_once_with_numbers():
    with pytest.warns(UserWarning, match=r"'with_an_if' is played.*360 decisions at .* ms") as told:
        irsppl.simulate(BANDIT, with_an_if, num_replications=18)
    assert len([w for w in told if "plain Python" in str(w.message)]) == 1


@quietly
def test_plain_and_traced_versions_of_a_rule_earn_the_same():
    rules = {"plain": with_an_if, "traced": with_an_if_traced}
    for options in ({}, {"delay": 2}, {"horizon": np.linspace(1, 0.4, T)}):
        bandit = irsppl.Bandit(BANDIT.belief, **({"horizon": T} | options))
        data = irsppl.simulate(bandit, rules, num_replications=12)
        for name in ("value", "reward", "regret", "pulls"):
            np.testing.assert_array_equal(*data[name].values)


@quietly
def test_replications_of_plain_functions_follow_the_key():
    few = irsppl.simulate(BANDIT, global_numpy, key=5, num_replications=10)
    state = np.random.get_state()[1]  # noqa: NPY002
    many = irsppl.simulate(BANDIT, global_numpy, key=5, num_replications=24)
    np.testing.assert_array_equal(few["value"], many["value"][:, :10])
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


@quietly
def test_certificates_of_plain_functions_and_agents():
    for policy in (with_an_if, from_agent(Thompson)):
        told = irsppl.certify(BANDIT, policy, "irs.ff", num_replications=60, num_samples=60)
        assert 0.5 < told.ratio < 1.1


@quietly
def test_a_mistake_of_the_users_shows_as_it_is():
    def broken(key, bandit):
        if bandit.period > 1:
            return {}["missing"]
        return 0

    with pytest.raises(KeyError, match="missing") as caught:
        irsppl.simulate(BANDIT, broken, num_replications=3)
    assert "broken" in [frame.name for frame in traceback.extract_tb(caught.tb)]
    with pytest.raises(ZeroDivisionError):
        irsppl.choose(BANDIT, lambda key, bandit: 1 // 0)
    for nothing in (None, 0.5, True, [1], "0"):
        with pytest.raises(ValueError, match="must return one arm"):
            irsppl.choose(BANDIT, lambda key, bandit, nothing=nothing: nothing)


# ------------------------------------------------------------------ agents


class Thompson:
    """An agent for Bernoulli rewards with the methods `pull` and `update`."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.alpha, self.beta, self.told = np.ones(K), np.ones(K), []

    def pull(self):
        return int(np.argmax(self.rng.beta(self.alpha, self.beta)))

    def update(self, arm, reward):
        self.alpha[arm] += reward
        self.beta[arm] += 1 - reward


class Token:
    def __init__(self, name):
        self.action_token = name


class LikeBayesianBandits:
    """The interface of bayesianbandits' Agent: names, lists, `select_for_update`."""

    def __init__(self):
        self.inner, self.arms, self.selected = Thompson(), [Token(n) for n in "abc"], None

    def pull(self):
        self.selected = self.inner.pull()
        return ["abc"[self.selected]]

    def select_for_update(self, name):
        self.selected = "abc".index(name)
        return self

    def update(self, y):
        assert y.shape == (1,)
        self.inner.update(self.selected, y[0])


class LikeMABWiser:
    """The interface of MABWiser's MAB: it predicts only after a first fit."""

    def __init__(self):
        self.inner, self.arms, self._is_initial_fit = Thompson(), ["x", "y", "z"], False

    def predict(self):
        if not self._is_initial_fit:
            raise RuntimeError("call fit before prediction")
        return self.arms[self.inner.pull()]

    def partial_fit(self, decisions, rewards):
        self._is_initial_fit = True
        for name, reward in zip(decisions, rewards, strict=True):
            self.inner.update(self.arms.index(name), reward)


def seeded_thompson(seed):
    agent = Thompson()
    agent.rng = np.random.default_rng(seed)
    return agent


AGENTS = {
    "object": lambda: from_agent(Thompson()),
    "class": lambda: from_agent(Thompson),
    "factory with a seed": lambda: from_agent(seeded_thompson),
    "bayesianbandits": lambda: from_agent(LikeBayesianBandits()),
    "MABWiser": lambda: from_agent(LikeMABWiser()),
    "any other": lambda: from_agent(
        Thompson(),
        arms=["a", "b", "c"],
        pull=lambda agent: "abc"[agent.pull()],
        update=lambda agent, name, reward: agent.update("abc".index(name), reward),
    ),
}


@quietly
@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("options", [{}, {"delay": 4}], ids=["at once", "late"])
def test_agents_that_sample_earn_what_thompson_sampling_does(name, options):
    """Copies that shared random numbers, or missed rewards, would not; 4 paired s.e."""
    bandit = irsppl.Bandit(BANDIT.belief, T, **options)
    policies = {"agent": AGENTS[name](), "ts": "ts"}
    data = irsppl.simulate(bandit, policies, key=2, num_replications=250)
    difference = np.subtract(*data["value"].values)
    within(difference.mean(), difference.std(ddof=1) / np.sqrt(250), 0.0)
    again = irsppl.simulate(bandit, policies, key=2, num_replications=20)
    np.testing.assert_array_equal(again["value"], data["value"][:, :20])


@quietly
def test_agents_hear_of_rewards_in_order_of_arrival():
    logs = []

    class Listens(Thompson):
        def __init__(self):
            super().__init__()
            self.log = []
            logs.append(self.log)
            self.turn = 0

        def pull(self):
            self.turn += 1
            self.log.append("pull")
            return self.turn % 2  # arms 1, 0, 1, 0, ...

        def update(self, arm, reward):
            self.log.append((arm, reward))

    belief = irsppl.NormalNormal([0.0, 0.0], [1.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, 6, delay=[3, 1])
    rewards = np.arange(12.0).reshape(1, 2, 6)  # arm 0: 0, 1, ...; arm 1: 6, 7, ...
    outcomes = irsppl.Outcome(np.zeros((1, 2)), rewards, delays=[[[3] * 6, [1] * 6]])
    irsppl.simulate(bandit, from_agent(Listens), outcomes=outcomes)
    expected = ["pull", "pull", (1, 6.0), "pull", "pull", (1, 7.0), "pull", (0, 0.0), "pull"]
    assert logs[-1] == expected
    # A pull that was pending when the simulation starts is heard of as well.
    begun = bandit.pull(1)
    irsppl.simulate(begun, from_agent(Listens), outcomes=outcomes)
    assert logs[-1][:3] == ["pull", (1, 6.0), "pull"]


def test_what_is_no_agent_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"pull\(\) and update\(arm, reward\)"):
        from_agent(object())
    with pytest.raises(ValueError, match="from_agent"):
        irsppl.choose(BANDIT, Thompson())
    with pytest.raises(ValueError, match="not the class"):
        irsppl.choose(BANDIT, irsppl.Index)
    two = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 5)
    with pytest.raises(ValueError, match=r"3 arms.*the bandit 2"):
        irsppl.choose(two, from_agent(LikeMABWiser()))
    with pytest.raises(ValueError, match="'Thompson' pulled"):
        irsppl.simulate(two, from_agent(Thompson()), num_replications=40)
    with pytest.raises(ValueError, match="agent does not plan for a budget"):
        irsppl.choose(irsppl.Bandit(BANDIT.belief, costs=1, budget=5), from_agent(Thompson()))
    with pytest.raises(ValueError, match="belong together"):
        from_agent(Thompson(), pull=lambda agent: 0)


def test_draws_of_other_threads_do_not_make_a_policy_plain(monkeypatch):
    """A Dask worker's threads draw from the global generator while a policy is traced."""
    from irsppl.policies import _tracing

    real, calls = _tracing._trace, []

    def disturbed(*arguments):
        calls.append(1)
        if len(calls) == 1:
            random.random()
        return real(*arguments)

    monkeypatch.setattr(_tracing, "_trace", disturbed)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1, 1], [1, 1]), 3)
    assert _tracing.why_plain(lambda key, bandit: bandit.period % 2, bandit) is None
    drawn = _tracing.why_plain(lambda key, bandit: bandit.period % 2 * random.randrange(2), bandit)
    assert drawn is not None and len(calls) > 1
