"""Delays, budgets and unknown horizons, against enumeration of everything that can happen.

Where no sampling is involved the agreement is to 1e-9: every outcome of a tiny bandit is solved and
weighted by its probability. `tests/oracles/enumerate.py` shares no code with the package.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl._checks import side_key
from irsppl.budgets import read_budget
from irsppl.penalties import FH, VEMax, VZero, find_penalty

from .oracles import enumerate as en
from .registry import ENUMERATED

ARMS = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
PRIOR = np.array([0.3, 0.5, 0.2])
CHANCE = np.array([[0.2, 0.7, 0.5], [0.6, 0.4, 0.1], [0.9, 0.8, 0.3]])  # [point, arm]
DELAYS = {0: 0.5, 1: 0.2, 3: 0.3}
SURVIVOR = [1.0, 0.8, 0.5, 0.1]


def joint_model(arm, reward=None):
    z = numpyro.sample("z", dist.Categorical(probs=jnp.asarray(PRIOR)))
    numpyro.sample("reward", dist.Bernoulli(probs=jnp.asarray(CHANCE)[z, arm]), obs=reward)


@functools.cache
def beliefs(kind):
    """(ours, the oracle's), in float64."""
    if kind == "independent":
        alpha, beta = [1.0, 2.0], [1.5, 1.0]
        return irsppl.BetaBernoulli(alpha, beta), en.BetaBernoulli(alpha, beta)
    arms = {"joint": 2, "joint-3": 3}[kind]
    table = CHANCE[:, :arms]
    ours = irsppl.from_numpyro_joint(joint_model, num_arms=arms)
    return ours, en.JointDiscrete(PRIOR, np.stack([1 - table, table], axis=-1), (0.0, 1.0))


def random_delay():
    return dist.Categorical(probs=jnp.array([0.5, 0.2, 0.0, 0.3]))


# name: (arguments of Bandit, arguments of the oracle's Problem)
CASES = {
    "delay 1": (dict(horizon=4, delay=1), dict(horizon=4, delay=1)),
    "delay 2": (dict(horizon=4, delay=2), dict(horizon=4, delay=2)),
    "delay 3, T = 6": (dict(horizon=6, delay=3), dict(horizon=6, delay=3)),
    "delay per arm": (
        dict(horizon=4, delay=[1, np.inf]),
        dict(horizon=4, delay=[1, math.inf]),
    ),
    "random delay": (
        dict(horizon=4, delay=random_delay),
        dict(horizon=4, delay=[DELAYS, DELAYS]),
    ),
    "budget": (dict(costs=[1, 1.5], budget=4), dict(costs=[1, 1.5], budget=4)),
    "budget and horizon": (
        dict(costs=[0.3, 0.1], budget=0.6, horizon=4),
        dict(costs=[0.3, 0.1], budget=0.6, horizon=4),
    ),
    "budget and delay": (
        dict(costs=[1, 1.5], budget=4, delay=1),
        dict(costs=[1, 1.5], budget=4, delay=1),
    ),
    "survivor": (dict(horizon=np.array(SURVIVOR)), dict(survival=SURVIVOR)),
    "survivor and delay": (
        dict(horizon=np.array(SURVIVOR), delay=1),
        dict(survival=SURVIVOR, delay=1),
    ),
}
PENALTIES = {
    "delay": ["ts", "irs.fh", "irs.ff", "irs.v-zero-separable"],
    "random delay": ["irs.fh", "irs.ff", "irs.v-zero-separable"],
    "budget": ["zero", "ts", "irs.fh", "irs.ff", "irs.v-zero", "irs.v-zero-separable"],
    "budget and delay": ["irs.fh", "irs.ff", "irs.v-zero-separable"],
    "survivor": [FH("survivor"), "irs.ff", VZero("survivor"), VEMax("survivor")],
    "survivor and delay": [FH("survivor"), "irs.ff"],
}
ROWS = [
    (case, kind, penalty)
    for case in CASES
    for kind in ("independent", "joint")
    for penalty in PENALTIES[case if case in PENALTIES else case.split()[0]]
    if case != "delay 3, T = 6" or kind == "independent"
]


def build(case, kind):
    ours, theirs = beliefs(kind)
    options, rules = CASES[case]
    options = {k: v() if callable(v) else v for k, v in options.items()}
    return irsppl.Bandit(ours, **options), en.Problem(theirs, **rules)


def some_outcomes(problem, most=256):
    """Every outcome with its probability, or so many at random, equally weighted (then None)."""
    arms, n = problem.belief.num_arms, problem.periods
    delays = any(len(law) > 1 for law in problem.delay_laws)
    if not delays and 2 ** (arms * n) <= most:
        return list(en.outcomes(problem)), True
    rng = np.random.default_rng(5)
    found = []
    for _ in range(40):
        rewards = rng.integers(0, 2, (arms, n))
        late = [rng.choice(list(law), p=list(law.values()), size=n) for law in problem.delay_laws]
        found.append(en.outcome_from_rewards(problem, rewards, None, late))
    return found, False


def stacked(outcomes, bandit, means, periods=None):
    """The oracle's outcomes as a batch of ours."""
    rewards = jnp.asarray(np.array([o.rewards for o in outcomes], float))
    delays = length = None
    if bandit.arrivals.late:
        late = np.array([o.delays for o in outcomes], float)
        delays = jnp.asarray(np.minimum(late, 2**20), jnp.int32)
    if bandit.end.binds:
        length = jnp.full(len(outcomes), periods or bandit.horizon, jnp.int32)
    return irsppl.Outcome(jnp.asarray(means), rewards, None, delays, length)


@pytest.mark.parametrize(
    ("case", "kind", "penalty"), ROWS, ids=lambda x: x if isinstance(x, str) else x.label
)
def test_inner_values_and_bounds_equal_enumeration(case, kind, penalty):
    with jax.enable_x64(True):
        bandit, problem = build(case, kind)
        penalty = find_penalty(penalty)
        outcomes, complete = some_outcomes(problem)
        assert bandit.horizon == problem.periods
        rng = np.random.default_rng(3)
        means = rng.uniform(size=(len(outcomes), bandit.num_arms))
        got = penalty.values(bandit, stacked(outcomes, bandit, means))
        shown = outcomes if penalty.name != "ts" else outcomes[:20]
        want = np.array(
            [
                en.inner_value(
                    problem,
                    penalty.name,
                    en.Outcome(o.rewards, o.delays, tuple(m), o.probability),
                )
                for o, m in zip(shown, means, strict=False)
            ]
        )
        np.testing.assert_allclose(got[: len(want)], want, rtol=0, atol=1e-9)
        if complete and penalty.name != "ts":
            mean = float(np.dot([o.probability for o in outcomes], got))
            assert mean == pytest.approx(en.bound(problem, penalty.name), abs=1e-9)
            assert mean >= en.optimal_value(problem) - 1e-9
            exact = penalty.exact(bandit)
            if exact is not None:
                assert exact == pytest.approx(mean, abs=1e-6)


def test_three_correlated_arms_equal_enumeration():
    with jax.enable_x64(True):
        ours, theirs = beliefs("joint-3")
        bandit, problem = irsppl.Bandit(ours, 3), en.Problem(theirs, 3)
        outcomes, _ = some_outcomes(problem, most=512)
        batch = stacked(outcomes, bandit, np.zeros((len(outcomes), 3)))
        best = en.optimal_value(problem)
        value = {"ts": en.bound(problem, "ts")}
        for name in ENUMERATED:
            got = find_penalty(name).values(bandit, batch)
            value[name] = float(np.dot([o.probability for o in outcomes], got))
            assert value[name] == pytest.approx(en.bound(problem, name), abs=1e-9)
            assert value[name] >= best - 1e-9
        assert value["irs.ff"] <= value["irs.fh"] + 1e-12 <= value["ts"] + 2e-12
        assert value["irs.v-emax"] <= value["ts"] + 1e-12


@pytest.mark.parametrize("penalty", ["irs.fh", "irs.v-zero", "irs.v-emax"])
def test_sampled_horizon_equals_the_sum_over_horizons(penalty):
    """T revealed: each T's bound, weighted by P(T); no tighter than survivor weights for V-Zero."""
    with jax.enable_x64(True):
        bandit, problem = build("survivor", "independent")
        outcomes, _ = some_outcomes(problem)
        chance = -np.diff([*SURVIVOR, 0.0])
        total = 0.0
        for periods, p in enumerate(chance, start=1):
            batch = stacked(outcomes, bandit, np.zeros((len(outcomes), 2)), periods)
            got = find_penalty(penalty).values(bandit, batch)
            total += p * float(np.dot([o.probability for o in outcomes], got))
        want = en.sampled_horizon_bound(problem.belief, SURVIVOR, penalty)
        assert total == pytest.approx(want, abs=1e-9)
        exact = find_penalty(penalty).exact(bandit)
        assert exact is None or exact == pytest.approx(want, abs=1e-6)
        survivor = en.bound(problem, penalty)
        assert (want <= survivor + 1e-12) if penalty == "irs.fh" else (survivor <= want + 1e-12)


# ------------------------------------------------------------------ play


def known_means(problem, past):
    data = [(arm, int(reward)) for arm, reward in past if reward is not None]
    return problem.belief.means(problem.belief.count(data))


@pytest.mark.parametrize("case", ["delay 2", "delay per arm", "budget", "budget and delay"])
def test_greedy_earns_what_enumeration_says(case):
    """Rewards reach a policy when they should, late ones several at once, and money runs out."""
    with jax.enable_x64(True):
        bandit, problem = build(case, "joint")
        outcomes, complete = some_outcomes(problem)
        assert complete
        batch = stacked(outcomes, bandit, np.zeros((len(outcomes), 2)))
        data = irsppl.simulate(bandit, "greedy", outcomes=batch)
        earned = float(np.dot([o.probability for o in outcomes], data["reward"].values[0]))

        def greedy(past):
            means = known_means(problem, past)
            options = problem.options(tuple(arm for arm, _ in past))
            return max(options, key=lambda a: (means[a], -a))

        assert earned == pytest.approx(en.policy_value(problem, greedy), abs=1e-9)


def test_random_delays_deliver_in_any_order():
    with jax.enable_x64(True):
        bandit, problem = build("random delay", "joint")
        outcomes, _ = some_outcomes(problem)
        batch = stacked(outcomes, bandit, np.zeros((len(outcomes), 2)))
        data = irsppl.simulate(bandit, "greedy", outcomes=batch)
        for s, outcome in enumerate(outcomes):
            actions = ()
            for _ in range(problem.periods):
                means = known_means(problem, en.history(problem, actions, outcome))
                actions = (*actions, max(range(2), key=lambda a: (means[a], -a)))
            assert data["pulls"].values[0, s].tolist() == [actions.count(0), actions.count(1)]


@pytest.mark.parametrize(
    "options, fields, told",
    [
        ({"horizon": 6}, {"periods": 3}, "periods must be 6"),
        ({"horizon": 6}, {"delays": np.full((2, 6), 2)}, "known at once"),
        ({"horizon": np.linspace(1, 0.5, 6)}, {"periods": 7}, "from 0 to 6"),
        ({"horizon": 6, "delay": [2, np.inf]}, {"delays": np.full((2, 6), 2)}, "no random ones"),
    ],
)
def test_futures_that_cannot_be_are_refused(options, fields, told):
    """They were played, by some policies, and regret was that of other periods."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), **options)
    outcome = irsppl.Outcome([0.6, 0.4], np.ones((2, 6)), **fields)
    with pytest.raises(ValueError, match=told):
        irsppl.solve_inner(bandit, "ts", outcome)
    with pytest.raises(ValueError, match=told):
        irsppl.simulate(bandit, "greedy", outcomes=jax.tree.map(lambda part: part[None], outcome))


def test_delays_and_ends_have_streams_of_their_own():
    """Not one of the keys that parameters and rewards are drawn from (see `side_key`)."""
    key = jax.random.key(3)
    own = [side_key(key, name) for name in ("delays", "periods", "pending", "prior")]
    used = [*jax.random.split(key, 64), *own]
    words = {tuple(np.asarray(jax.random.key_data(k)).tolist()) for k in used}
    assert len(words) == len(used)


def test_play_ends_when_the_sampled_horizon_does():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), np.array(SURVIVOR))
    data = irsppl.simulate(bandit, ["random", "opt"], key=3, num_replications=4000)
    played = data["pulls"].sum("arm").values
    assert np.array_equal(played[0], played[1])  # the same futures, so the same ends
    share = [(played[0] >= t).mean() for t in (1, 2, 3, 4)]
    # four shares at 4 standard errors: false alarm below 3e-4
    np.testing.assert_allclose(share, SURVIVOR, atol=4 * math.sqrt(0.25 / 4000))
    best = irsppl.bound(bandit, "ideal").value
    value = data["value"].sel(policy="opt").values
    assert abs(value.mean() - best) < 4 * value.std() / math.sqrt(4000)
    assert best == pytest.approx(
        en.optimal_value(en.Problem(en.BetaBernoulli([1, 1], [1, 1]), survival=SURVIVOR)), abs=1e-6
    )


def test_a_geometric_horizon_is_discounting():
    """Going on with probability 1/2: V* is that of plain discounted value iteration, to 1e-6."""
    keep, depth = 0.5, 32  # what is cut off is below 1e-9

    @functools.cache
    def value(wins_a, losses_a, wins_b, losses_b):
        """Best discounted sum from here, given that this period is played."""
        if wins_a + losses_a + wins_b + losses_b >= depth:
            return 0.0
        p, q = (1 + wins_a) / (2 + wins_a + losses_a), (1 + wins_b) / (2 + wins_b + losses_b)
        one = p + keep * (
            p * value(wins_a + 1, losses_a, wins_b, losses_b)
            + (1 - p) * value(wins_a, losses_a + 1, wins_b, losses_b)
        )
        two = q + keep * (
            q * value(wins_a, losses_a, wins_b + 1, losses_b)
            + (1 - q) * value(wins_a, losses_a, wins_b, losses_b + 1)
        )
        return max(one, two)

    bandit = irsppl.Bandit(ARMS, dist.Geometric(1 - keep))
    assert irsppl.bound(bandit, "ideal").value == pytest.approx(keep * value(0, 0, 0, 0), abs=1e-6)
    # One win of arm 1 later, play is known to go on.
    later = bandit.pull(1, 1.0)
    assert irsppl.bound(later, "ideal").value == pytest.approx(value(0, 0, 1, 0), abs=1e-6)
    assert irsppl.choose(later, "opt") == 1


@pytest.mark.parametrize(
    "options",
    [
        dict(horizon=12, delay=0),
        dict(horizon=12, delay=[0, 0]),
        dict(horizon=dist.Delta(12)),
        dict(horizon=np.ones(12)),
    ],
    ids=["delay 0", "delays 0", "point mass", "survivors 1"],
)
def test_trivial_constraints_are_the_plain_case(options):
    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])
    plain, same = irsppl.Bandit(belief, 12), irsppl.Bandit(belief, **options)
    assert not same.constraints and same.horizon == 12
    one, two = (irsppl.simulate(b, "irs.fh", key=1, num_replications=50) for b in (plain, same))
    assert one.equals(two)


def test_unit_costs_are_the_plain_case():
    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])
    plain, same = irsppl.Bandit(belief, 8), irsppl.Bandit(belief, costs=[1, 1], budget=8)
    keys = jax.random.split(jax.random.key(4), 20)
    batch = jax.jit(jax.vmap(plain.sample_truth))(keys)
    for name in ("zero", "ts", "irs.fh", "irs.ff", "irs.v-zero", "irs.v-zero-separable"):
        one, two = (find_penalty(name).values(b, batch) for b in (plain, same))
        np.testing.assert_allclose(one, two, rtol=1e-5)


# ------------------------------------------------------------------ state


def test_pending_pulls_are_part_of_the_state():
    belief = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, 6, delay=2)
    bandit = bandit.pull(0).pull(1).pull(0)
    assert bandit.pending == (0, 1, 2) and int(bandit.remaining) == 3
    # From now on: pull 0 is due at once, 1 and 2 one and two decisions later.
    assert bandit.waited()[:, :3].tolist() == [[3, 1, 0], [2, 0, 0]]
    bandit = bandit.arrive(0, 1.0)
    assert bandit.pending == (1, 2)
    assert bandit.belief.predictive_mean().tolist() == pytest.approx([2 / 3, 1 / 2])
    for policy in ("irs.fh", "irs.v-zero", "irs.index"):
        assert irsppl.choose(bandit, policy) in (0, 1)
    data = irsppl.simulate(bandit, ["irs.fh"], num_replications=10)
    assert np.all(data["pulls"].sum("arm") == 3)
    bounds = irsppl.bound(bandit, ["ts", "irs.fh", "irs.ff"], num_samples=2000)
    # T - 1 = 2 decisions ahead both pending rewards are known and one new one is not yet.
    assert bounds["irs.ff"].value <= bounds["irs.fh"].value + 4 * bounds["irs.fh"].stderr
    assert bounds["irs.fh"].value <= bounds["ts"].value + 4 * bounds["irs.fh"].stderr


def test_bounds_in_mid_run_equal_enumeration():
    """With pulls pending, W^FH and W^FF from here on are means over all that they may bring."""
    with jax.enable_x64(True):
        belief = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
        bandit = irsppl.Bandit(belief, 4, delay=1).pull(0, 1.0).pull(1)
        assert bandit.pending == (1,)
        rows = list(itertools.product([0.0, 1.0], repeat=8))
        chance, fh, ff = [], [], []
        laws = en.BetaBernoulli([2, 1], [1, 1])
        for row in rows:
            rewards = np.array(row).reshape(2, 4)
            data = [(a, int(r)) for a in range(2) for r in rewards[a]]
            chance.append(laws.probability(laws.count(data)))
            outcome = irsppl.Outcome([0.5, 0.5], rewards)
            fh.append(irsppl.solve_inner(bandit, "irs.fh", outcome).value.item())
            ff.append(irsppl.solve_inner(bandit, "irs.ff", outcome).value.item())
            # Two decisions are left; by the last one only the pending reward of arm 1 has come.
            mean = [2 / 3, (1 + rewards[1, 0]) / 3]
            assert fh[-1] == pytest.approx(2 * max(mean))
            assert ff[-1] == pytest.approx(max(2 / 3, 1 / 2) + max(mean))
        assert sum(chance) == pytest.approx(1)


def test_money_is_counted_exactly():
    bandit = irsppl.Bandit(
        irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), costs=[0.1, 0.3], budget=0.9
    )
    assert bandit.horizon == 9 and bandit.budget == pytest.approx(0.9)
    for _ in range(3):
        bandit = bandit.pull(1, 1.0)
    assert int(bandit.remaining) == 0 and bandit.budget == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="nothing remains to be played"):
        bandit.pull(0, 1.0)
    poor = irsppl.Bandit(ARMS, costs=[0.1, 0.3], budget=0.2)
    with pytest.raises(ValueError, match=r"arm 1 costs more than the 0\.2 that is left"):
        poor.pull(1, 1.0)


@pytest.mark.parametrize(
    ("costs", "budget", "expected"),
    [
        ([1, 2], 50, (1.0, [1, 2], 50)),
        ([2, 4], 7, (2.0, [1, 2], 3)),  # the odd unit of money buys nothing
        ([0.1, 0.2], 0.3, (0.1, [1, 2], 3)),  # 0.1 + 0.2 > 0.3 in floating point
        ([0.2, 0.3], 1.0, (0.1, [2, 3], 10)),
        ([1 / 3, 0.5], 2.0, (1 / 6, [2, 3], 12)),
        ([1e-5, 3e-5], 1e-4, (1e-5, [1, 3], 10)),
        ([2.0, 9.0], 3.0, (1.0, [2, 4], 3)),  # what cannot be paid costs one unit too much
        ([1, 2], 9000, (1.0, [1, 2], 9000)),
    ],
)
def test_units_of_money(costs, budget, expected):
    for given in (costs, np.array(costs, np.float32))[: 1 if 1 / 3 in costs else 2]:
        purse = read_budget(given, budget, 2)
        assert purse.unit == pytest.approx(expected[0], rel=1e-6)
        assert (purse.costs.tolist(), int(purse.money)) == expected[1:]
        assert purse.grid_costs.min() >= 1


def test_what_is_affordable_stays_so_without_a_common_unit():
    purse = read_budget([math.sqrt(2), math.pi], 6 * math.sqrt(2), 2)
    assert 6 * int(purse.costs[0]) <= int(purse.money)
    rng = np.random.default_rng(10)
    for costs in rng.uniform(0.7, 3.0, (60, 2)):
        purse = read_budget(costs, 7.3, 2)
        for n in itertools.product(range(11), repeat=2):
            if np.dot(n, costs) <= 7.3:
                assert np.dot(n, np.asarray(purse.costs, np.int64)) <= int(purse.money)
                assert np.dot(n, purse.grid_costs) <= int(purse.grid_money)


def test_it_stops_where_every_pull_would_lose():
    belief = irsppl.NormalNormal(mean=[-5.0, -4.0], sd=[0.1, 0.1], noise_sd=[1.0, 1.0])
    bandit = irsppl.Bandit(belief, costs=[1, 2], budget=6)
    for policy in ("ts", "irs.v-zero", "ts-ratio", "greedy"):
        assert irsppl.choose(bandit, policy) == -1
    data = irsppl.simulate(bandit, ["irs.fh"], num_replications=4)
    assert np.all(data["pulls"] == 0) and np.all(data["value"] == 0)
    # Ten draws all stop: two arms and stopping share 13 by Laplace's rule.
    shares = irsppl.action_probabilities(bandit, "ts", num_samples=10)
    np.testing.assert_allclose(shares, 1 / 13)


def test_no_order_among_bounds_with_unequal_costs():
    """Beta(1, 2) at 1, Beta(2, 1) at 1.5, budget 4: irs.ff exceeds irs.fh (docs/budgets.md)."""
    with jax.enable_x64(True):
        belief = irsppl.BetaBernoulli([1.0, 2.0], [2.0, 1.0])
        bandit = irsppl.Bandit(belief, costs=[1, 1.5], budget=4)
        problem = en.Problem(en.BetaBernoulli([1, 2], [2, 1]), costs=[1, 1.5], budget=4)
        outcomes, complete = some_outcomes(problem)
        assert complete
        batch = stacked(outcomes, bandit, np.zeros((len(outcomes), 2)))
        value = {"V*": en.optimal_value(problem), "ts": en.bound(problem, "ts")}
        for name in ("irs.fh", "irs.ff"):
            got = find_penalty(name).values(bandit, batch)
            value[name] = float(np.dot([o.probability for o in outcomes], got))
        rounded = {name: round(v, 3) for name, v in value.items()}
        assert rounded == {"V*": 1.722, "ts": 1.881, "irs.fh": 1.767, "irs.ff": 1.768}
        sampled = irsppl.bound(bandit, "ts", num_samples=20_000)
        assert abs(sampled.value - value["ts"]) < 4 * sampled.stderr  # false alarm 6e-5


def test_awkward_costs_keep_the_bound_valid():
    """Irrational costs on a grid: costs rounded down can only raise the bound."""
    belief = irsppl.BetaBernoulli([1.0, 2.0], [1.5, 1.0])
    costs = [math.sqrt(2) / 10, math.pi / 10]
    fine = irsppl.Bandit(belief, costs=costs, budget=1.0)
    assert fine.purse.cells <= 4096 and fine.horizon == 7
    theirs = en.Problem(en.BetaBernoulli([1.0, 2.0], [1.5, 1.0]), costs=costs, budget=1.0)
    outcome = irsppl.Outcome([0.4, 0.9], np.ones((2, 7)))
    got = irsppl.solve_inner(fine, "ts", outcome).value.item()
    allowed = en.allocations(theirs) @ np.array([0.4, 0.9])
    assert got == pytest.approx(allowed.max(), rel=1e-6)


@pytest.mark.parametrize("case", ["delay 1", "budget", "survivor"])
@pytest.mark.parametrize("kind", ["independent", "joint"])
def test_a_policy_can_be_certified_under_every_constraint(case, kind):
    """The default penalties serve, and the bound is above V*, which is above the policy; 4 s.e."""
    with jax.enable_x64(True):
        bandit, problem = build(case, kind)
        told = irsppl.certify(bandit, "greedy", num_replications=400, num_samples=400)
    best = en.optimal_value(problem)
    assert told.upper.value >= best - 4 * told.upper.stderr - 1e-9
    assert told.lower.value <= best + 4 * told.lower.stderr + 1e-9
    assert 0 < told.ratio < 1.5 and "greedy earns" in str(told)
