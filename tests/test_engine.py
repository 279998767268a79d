"""The CPU engine: families, rules and limits against exact laws.

What a rule does from one state is compared with its exact law: every future of a tiny bandit is
solved by the traced twin and weighted by its probability. What a path does between decisions is
compared with the traced loop, arm by arm, for a rule without randomness. Statistical tests use
fixed seeds and refuse p < LEVEL = 1e-4; with about 30 of them, fresh seeds would raise a false
alarm with probability 0.3 percent.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import irsppl
from irsppl import engine
from irsppl.engine import dispatch
from irsppl.engine.families import family_of
from irsppl.engine.situation import situation_of
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu import compiling
from irsppl.inner.cpu.rng import streams
from irsppl.penalties import FH
from irsppl.policies import find_policy, paths
from irsppl.policies.greedy import best_allowed

LEVEL = 1e-4
DECISIONS = 40_000
SURVIVOR = np.array([1.0, 0.8, 0.5, 0.3, 0.1])
CHANCE = np.array([[0.21, 0.71, 0.5], [0.63, 0.43, 0.12], [0.92, 0.81, 0.37]])  # [point, arm]


def separate_model(reward=None):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.31, 0.47, 0.22])))
    numpyro.sample("reward", dist.Bernoulli(probs=jnp.asarray(CHANCE[:, 0])[z]), obs=reward)


def other_model(reward=None):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.42, 0.35, 0.23])))
    numpyro.sample("reward", dist.Bernoulli(probs=jnp.asarray(CHANCE[:, 1])[z]), obs=reward)


def joint_model(arm, reward=None):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.array([0.31, 0.47, 0.22])))
    numpyro.sample("reward", dist.Bernoulli(probs=jnp.asarray(CHANCE)[z, arm]), obs=reward)


@functools.cache
def belief_of(kind):
    if kind == "beta":
        return irsppl.BetaBernoulli([1.1, 2.3], [1.6, 2.0])
    if kind == "points":
        return irsppl.from_numpyro([separate_model, other_model])
    return irsppl.from_numpyro_joint(joint_model, num_arms=2)


def random_delay():
    return dist.Categorical(probs=jnp.array([0.5, 0.2, 0.0, 0.3]))


# name: (arguments of Bandit, pulls made before the decision: (arm, reward or None while pending))
LIMITS = {
    "none": (dict(horizon=4), []),
    "waiting": (dict(horizon=5), [(0, None), (1, 1)]),
    "delay": (dict(horizon=5, delay=[1, 2]), [(0, None), (1, None)]),
    "never": (dict(horizon=4, delay=[np.inf, 1]), [(0, None)]),
    "random delay": (dict(horizon=4, delay=random_delay), [(0, None)]),
    "budget": (dict(costs=[1, 1.5], budget=5), [(1, 1)]),
    "equal costs": (dict(costs=[1, 1], budget=5), [(1, 1)]),
    "budget and horizon": (dict(costs=[1, 1.5], budget=5, horizon=4), [(0, 1)]),
    "budget and delay": (dict(costs=[1, 1.5], budget=5, delay=1), [(1, None)]),
    "law": (dict(horizon=SURVIVOR), [(0, 1)]),
    "law and delay": (dict(horizon=SURVIVOR, delay=1), [(1, None)]),
}


@functools.cache
def bandit_of(kind, limits):
    options, pulls = LIMITS[limits]
    options = {name: value() if callable(value) else value for name, value in options.items()}
    bandit = irsppl.Bandit(belief_of(kind), **options)
    for pull in pulls:
        bandit = bandit.pull(*pull)
    return bandit


BUDGETS = ["budget", "equal costs"]  # with little money, and with much for its prices
# `irs.fh`, `irs.v-zero` and `irs.index` ask most of limits: each meets a delay, a budget and a law,
# and each limit one of them. Points meet every limit, Beta arms a delay, a budget and a law, joint
# ones a delay and a law. Other pairs are left out: a part's code does not know with whom it is
# compiled.
PAIRS = {
    ("points", "ts"): ["none", "budget"],
    ("points", "irs.fh"): ["none", "waiting", "delay", "random delay", "budget and delay", "law"],
    ("points", "irs.v-zero"): ["none", "never", "random delay", "budget and horizon", "law"],
    ("points", "irs.v-zero-separable"): ["delay", "law and delay"],
    ("points", "irs.index"): [
        "none",
        "waiting",
        "random delay",
        "law and delay",
        "budget",
        "equal costs",
    ],
    ("points", "irs.mix"): ["none", "waiting"],
    ("points", "ts-ratio"): ["budget"],
    ("beta", "irs.fh"): ["budget and horizon"],
    ("beta", "irs.v-zero"): ["budget"],
    ("beta", "irs.index"): ["delay", "law", "budget and horizon", "budget and delay"],
    ("beta", "irs.v-emax"): ["none", "law"],
    ("joint", "ts"): ["none"],
    ("joint", "irs.fh"): ["random delay"],
    ("joint", "irs.v-zero-separable"): ["none", "law"],
    ("joint", "irs.index"): ["delay"],
}


# Rules that are not asked for by name alone: with pulls that Mix does not plan one by one.
POLICIES = {"irs.mix": irsppl.Mix(T0=4)}

# ---- exact laws


def futures(bandit, rule):
    """Every future that matters to the rule, with its probability: (means, rewards, delays, T)."""
    arms, size = bandit.num_arms, bandit.horizon
    tables = bandit.belief.reward_tables()
    if rule in ("ts", "ts-ratio"):
        means, chances = point_means(bandit.belief, tables)
        rewards = np.zeros((len(means), arms, size))
    else:
        rewards = np.array(list(itertools.product((0.0, 1.0), repeat=arms * size)))
        rewards = rewards.reshape(-1, arms, size)
        chances = reward_chances(bandit.belief, tables, rewards)
        means = np.zeros((len(rewards), arms))
    delays, delay_chances = delay_laws(bandit)
    periods, period_chances = [None], [1.0]
    if bandit.end.binds:
        left = np.asarray(bandit.end.table.values)[int(bandit.period) :]
        period_chances = (left - np.append(left[1:], 0.0)) / left[0]
        periods = list(range(1, len(left) + 1))
    picked = np.array(list(itertools.product(*map(range, map(len, (means, delays, periods))))))
    i, j, k = picked.T
    weight = chances[i] * delay_chances[j] * np.asarray(period_chances)[k]
    delays = None if not bandit.arrivals.late else np.asarray(delays)[j]
    periods = None if periods[0] is None else np.asarray(periods)[k]
    return means[i], rewards[i], delays, periods, weight


def point_means(belief, tables):
    mu = np.asarray(belief.mu, float)
    if not belief.is_independent:
        return mu, tables.weights
    picks = np.array(list(itertools.product(range(mu.shape[1]), repeat=mu.shape[0])))
    means = np.stack([mu[a, picks[:, a]] for a in range(mu.shape[0])], axis=1)
    chances = np.prod([tables.weights[a, picks[:, a]] for a in range(mu.shape[0])], axis=0)
    return means, chances


def reward_chances(belief, tables, rewards):
    wins = rewards.sum(axis=2)
    losses = rewards.shape[2] - wins
    if tables.likelihood is None:  # Beta arms
        a, b = np.asarray(belief.alpha, float), np.asarray(belief.beta, float)
        from scipy.special import betaln

        return np.exp((betaln(a + wins, b + losses) - betaln(a, b)).sum(axis=1))
    chance = tables.likelihood[..., 1]  # [K, N], or [N, K]
    if belief.is_independent:
        fits = chance[None] ** wins[..., None] * (1 - chance[None]) ** losses[..., None]
        return np.prod((fits * tables.weights[None]).sum(axis=2), axis=1)
    fits = chance[None] ** wins[:, None, :] * (1 - chance[None]) ** losses[:, None, :]
    return np.prod(fits, axis=2) @ tables.weights


def delay_laws(bandit):
    """Delays [K, N] that can matter, with probabilities; those that cannot are set to never."""
    if not bandit.arrivals.late:
        return [None], np.ones(1)
    arms, size = bandit.num_arms, bandit.horizon
    cdf, waited = np.asarray(bandit.arrivals.cdf, float), np.asarray(bandit.waited())
    pending = np.asarray(bandit.pending_counts)
    options = []
    for arm in range(arms):
        mass = np.diff(cdf[arm], prepend=0.0)
        mass = np.append(mass, 1 - mass.sum())
        for n in range(size):
            if n >= pending[arm] + int(bandit.remaining) - 1:
                options.append([(size, 1.0)])
                continue
            law = np.where(np.arange(len(mass)) >= waited[arm, n], mass, 0.0)
            if not law.any():  # its law had promised it earlier: it may come at any moment
                options.append([(int(waited[arm, n]), 1.0)])
                continue
            law = law / law.sum()
            options.append([(d, p) for d, p in enumerate(law) if p > 1e-9])
    every = list(itertools.product(*options))
    delays = np.array([[d for d, _ in one] for one in every]).reshape(-1, arms, size)
    return delays, np.array([np.prod([p for _, p in one]) for one in every])


@functools.cache
def twin(rule):
    """The traced rule on given futures; one program for each shape."""
    policy = find_policy(POLICIES.get(rule, rule))

    @jax.jit
    def solve(bandit, means, rewards, delays, periods):
        def one(m, r, d, t):
            outcome = irsppl.Outcome(m, r, None, d, t)
            if rule == "ts-ratio":
                return best_allowed(bandit, m / bandit.purse.costs)
            if rule == "irs.index":
                batch = jax.tree.map(lambda leaf: leaf[None], outcome)
                found = policy.indices_given(bandit, batch)
                return (
                    jnp.argmax(found) if not bandit.access.binds else policy.priced(bandit, found)
                )
            return policy.penalty.inner(bandit, outcome).action

        return jax.vmap(one)(means, rewards, delays, periods)

    return solve


def exact_law(bandit, rule):
    """P(stop), P(arm 0), P(arm 1), ..."""
    means, rewards, delays, periods, weight = futures(bandit, rule)
    bandit = bandit.without_record()
    arms = twin(rule)(bandit, jnp.asarray(means), jnp.asarray(rewards), delays, periods)
    return np.bincount(np.asarray(arms) + 1, weight, minlength=bandit.num_arms + 1)


def fits(sample, law):
    """Whether counts of decisions pass a chi-square test against their law."""
    seen = np.bincount(sample + 1, minlength=len(law))
    assert seen[law < 1e-9].sum() == 0
    seen, law = seen[law >= 1e-9], law[law >= 1e-9]
    if len(law) == 1:
        return True
    return stats.chisquare(seen, law / law.sum() * seen.sum()).pvalue > LEVEL


@pytest.mark.parametrize(
    ("kind", "rule", "limits"),
    [(*pair, limits) for pair, every in PAIRS.items() for limits in every],
)
def test_decisions_have_their_exact_law(kind, rule, limits):
    bandit = bandit_of(kind, limits)
    policy = find_policy(POLICIES.get(rule, rule))
    kernel = engine.kernel(policy, bandit.without_record())
    assert kernel is not None
    law = exact_law(bandit, rule)
    assert law.sum() == pytest.approx(1, abs=1e-6)
    assert fits(kernel.decisions(streams((0, 1), 7, 0, DECISIONS)), law)


def test_survivor_form_does_not_plan_by_the_law():
    bandit = bandit_of("points", "law")
    known = irsppl.Bandit(bandit.belief, int(bandit.remaining))
    kernel = engine.kernel(find_policy(FH("survivor")), bandit)
    assert fits(kernel.decisions(streams((0, 1), 8, 0, DECISIONS)), exact_law(known, "irs.fh"))


# ---- whole paths


STEADY = [("greedy", "beta", limits) for limits in LIMITS if limits != "waiting"]
STEADY += [("greedy", "joint", "random delay"), ("ucb1", "beta", "random delay")]
STEADY += [("ogi", "points", "law and delay")]


@pytest.mark.parametrize(("rule", "kind", "limits"), STEADY)
def test_paths_without_chance_equal_the_traced_loop(rule, kind, limits):
    bandit = bandit_of(kind, limits)
    if not bandit.arrivals.late:
        bandit = bandit.trimmed(int(bandit.remaining))
    greedy = find_policy(rule)
    drawn = draw_outcomes(bandit, jax.random.key(3), 0, 64).bare()
    keys = jax.random.split(jax.random.key(0), 64)
    if bandit.constraints:
        expected = paths.play_constrained(greedy, bandit, drawn, keys)[0]
    else:
        expected = paths.play_traced(greedy, bandit, drawn.rewards, keys)
    played = engine.kernel(greedy, bandit).paths(
        np.asarray(drawn.rewards), streams((0, 1), 2, 0, 64), drawn.delays, drawn.periods
    )
    np.testing.assert_array_equal(played, np.asarray(expected))


@pytest.mark.parametrize("limits", ["random delay", "budget and delay"])
def test_a_path_decides_like_its_own_states(limits):
    """The third action of paths on one future has the law of decisions from the state there."""
    options, _ = LIMITS[limits]
    options = {name: value() if callable(value) else value for name, value in options.items()}
    bandit = irsppl.Bandit(belief_of("points"), **options)
    size, count = bandit.horizon, DECISIONS
    rewards = np.zeros((count, 2, size))
    rewards[:, 0, 0] = 1
    delays = np.ones((count, 2, size), int)
    fh = find_policy("irs.fh")
    played = engine.kernel(fh, bandit).paths(rewards, streams((0, 1), 5, 0, count), delays, None)
    third = played[(played[:, 0] == 0) & (played[:, 1] == 1), 2].astype(int)
    assert third.size > 1000
    state = bandit.pull(0).pull(1).arrive(0, 1)
    there = engine.kernel(fh, state).decisions(streams((0, 1), 6, 0, count))
    table = [np.bincount(x + 1, minlength=3) for x in (third, there)]
    table = np.stack(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(table).pvalue > LEVEL


@pytest.mark.parametrize("rule", ["ids", "bayes-ucb"])
def test_what_a_path_carries_is_what_its_states_say(rule):
    """Several rewards come in at once, and each arm is one that a fresh state may play."""
    bandit = irsppl.Bandit(belief_of("beta"), 12, delay=random_delay())
    policy, seeds, rng = find_policy(rule), streams((0, 1), 9, 0, 1), np.random.default_rng(2)
    rewards = (rng.random((1, 2, 12)) < 0.5).astype(float)
    delays = rng.choice([0, 1, 3], (1, 2, 12))
    played = engine.kernel(policy, bandit).paths(rewards, seeds, delays)[0]
    due, most = {}, 0
    for t, arm in enumerate(played):
        arrived = [i for i, (when, _) in due.items() if when == t]
        most = max(most, len(arrived))
        for i in arrived:
            bandit = bandit.arrive(i, due[i][1])
        possible = engine.kernel(policy, bandit).decisions(streams((0, 1), t, 0, 400))
        assert arm in possible
        n = int(bandit.counts[arm])
        due[t] = (t + 1 + delays[0, arm, n], rewards[0, arm, n])
        bandit = bandit.pull(int(arm))
    assert most > 1


def test_chunks_and_threads_change_nothing():
    bandit = bandit_of("points", "delay")
    runs = [
        irsppl.simulate(bandit, "irs.fh", 0, 40, workers=workers, progress=False)
        for workers in (1, 2)
    ]
    parts = [irsppl.simulate(bandit, "irs.fh", 0, 20, start=s, progress=False) for s in (0, 20)]
    np.testing.assert_array_equal(runs[0].regret, runs[1].regret)
    halves = np.concatenate([part.regret.values for part in parts], axis=1)
    np.testing.assert_array_equal(runs[0].regret, halves)


@pytest.mark.parametrize(
    ("kind", "rule", "limits"),
    [
        ("beta", "irs.index", "law"),
        ("points", "irs.fh", "law"),
        ("points", "irs.fh", "random delay"),
        ("points", "irs.v-zero", "budget and horizon"),
    ],
)
def test_paths_are_those_of_one_at_a_time(kind, rule, limits, monkeypatch):
    """However many futures are copied at a time, as far as those are played."""
    bandit = bandit_of(kind, limits)
    drawn = draw_outcomes(bandit, jax.random.key(7), 0, 60).bare()
    given = (np.asarray(drawn.rewards), streams((0, 1), 3, 0, 60), drawn.delays, drawn.periods)
    kernel = engine.kernel(find_policy(rule), bandit)
    together = kernel.paths(*given)
    monkeypatch.setattr(dispatch, "_BLOCK_BYTES", 1)
    np.testing.assert_array_equal(together, kernel.paths(*given))
    np.testing.assert_array_equal(together, kernel.paths(*given, threads=2))
    if drawn.periods is not None:
        ends = np.asarray(drawn.periods)
        assert len(set(ends.tolist())) > 1
        np.testing.assert_array_equal(np.sum(together >= 0, axis=1), ends)


# ---- where there is a kernel, and where it is kept


def test_what_has_no_kernel_runs_in_jax():
    bandit = bandit_of("points", "none")

    def mine(key, bandit):
        return jnp.argmax(bandit.belief.predictive_mean())

    assert engine.kernel(find_policy(mine), bandit) is None
    assert engine.kernel(find_policy("irs.v-emax"), bandit) is None  # of points
    assert engine.kernel(find_policy("irs.v-zero"), bandit_of("joint", "none")) is None
    assert irsppl.choose(bandit, mine) == int(mine(None, bandit))


def test_plans_have_room_for_what_is_pending(monkeypatch):
    """Also where only the number of pending pulls is given, without their periods, as experiments
    do: kernels do not look whether an array has room."""
    asked = []

    def watched(belief, needs):
        def make(rewards, futures):
            asked.append(rewards)
            return family_of(belief, needs)(rewards, futures)

        return make

    monkeypatch.setattr(dispatch, "family_of", watched)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3), 19)
    state = situation_of(bandit)._replace(period=12, remaining=7, waiting=np.array([3, 0, 9]))
    for policy, wanted in ((irsppl.Index(), 7 + 9), (irsppl.Index(lookahead=2), 2 + 9)):
        dispatch.kernel_for(policy, state).decisions(np.arange(3, dtype=np.uint64))
        assert asked.pop() == wanted


def test_with_much_money_the_best_index_for_its_cost_is_played():
    """Means known nearly for sure are the indices; the limits of cost are 1, 1.5 and 2."""
    for means, wanted in (([1.0, 1.4, 1.9], 0), ([1.0, 1.6, 1.9], 1), ([1.0, 1.6, 2.2], 2)):
        belief = irsppl.NormalNormal(means, [1e-4] * 3, [1e-4] * 3)
        bandit = irsppl.Bandit(belief, costs=[1, 1.5, 2], budget=100)
        kernel = engine.kernel(irsppl.Index(), bandit)
        assert set(kernel.decisions(np.arange(50, dtype=np.uint64)).tolist()) == {wanted}
    nothing = irsppl.NormalNormal([-1.0, -2.0, -3.0], [1e-4] * 3, [1e-4] * 3)
    kernel = engine.kernel(irsppl.Index(), irsppl.Bandit(nothing, costs=[1, 1.5, 2], budget=100))
    assert set(kernel.decisions(np.arange(5, dtype=np.uint64)).tolist()) == {-1}


def test_no_kernel_goes_by_what_was_compiled_before_it():
    """A function has its caller's liberties with numbers there only: numba alone would serve what
    it compiled for the first caller, in which x - x is 0 whatever x, to all."""

    @compiling.njit()
    def nothing(x):
        return x - x

    @compiling.njit(fastmath=True)
    def bold(x):
        return nothing(x)

    @compiling.njit(error_model="numpy")
    def strict(x):
        return nothing(x)

    assert bold(np.inf) == 0.0
    assert np.isnan(strict(np.inf)) and np.isnan(nothing(np.inf))
