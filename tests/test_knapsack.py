"""Knapsack solvers, in JAX and compiled, against every allocation and every sequence.

Payoffs of kind "integers" add up without rounding in both precisions and tie often, so values,
counts and sequences must be equal; those of kind "noise" have no ties.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import irsppl
from irsppl import budgets
from irsppl.inner import knapsack
from irsppl.inner.cpu import knapsack as kernels
from irsppl.inner.lattice import solve_lattice
from tests.oracles import knapsack as oracle

DTYPES = (np.float32, np.float64)
KINDS = ("integers", "noise")
# Shapes of the small problems, shared by all tests so that each solver compiles once.
ARMS, CELLS, SIZE, MOST = 3, 8, 5, 5
SOLVERS = {
    "constant": (
        knapsack.knapsack_constant,
        functools.partial(knapsack.knapsack_batch, "constant"),
    ),
    "groups": (knapsack.knapsack_groups, functools.partial(knapsack.knapsack_batch, "groups")),
    "feedback": (
        knapsack.knapsack_feedback,
        functools.partial(knapsack.knapsack_batch, "feedback"),
    ),
}


@functools.cache
def jitted(kind, cells, size, bounded):
    """The JAX solver over a batch of tables, costs, money and periods."""

    def solve(table, costs, money, periods):
        room = knapsack.Room(costs, money, periods, cells, size, bounded)
        return SOLVERS[kind][0](table, room)

    return jax.jit(jax.vmap(solve))


def draw(generator, kind, shape):
    if kind == "integers":
        return generator.integers(-2, 4, shape).astype(float)
    return generator.normal(0.3, 1.0, shape)


def cumulative(steps):
    return np.concatenate([np.zeros_like(steps[..., :1]), steps.cumsum(-1)], axis=-1)


def tolerance(dtype):
    return 20 * float(np.finfo(dtype).eps)


def both(kind, tables, costs, money, periods, cells, size, bounded):
    """(values, pulls or sequences) by JAX and by the kernels, for costs [S, K] that vary.

    The kernels take one vector of costs for a batch: they get the problems one group at a time.
    """
    traced = jitted(kind, cells, size, bounded)(tables, costs, money, periods)
    values = np.empty(len(tables), tables.dtype)
    found = np.full(np.shape(traced[1]), -1 if kind == "feedback" else 0, np.int32)
    for cost in {tuple(c) for c in costs.tolist()}:
        group = np.flatnonzero((costs == cost).all(1))
        limit = periods[group] if bounded else None
        value, pulls = SOLVERS[kind][1](tables[group], np.array(cost), money[group], limit)
        assert value.dtype == (np.float64 if kind == "feedback" else tables.dtype)
        values[group] = value
        found[group, : pulls.shape[1]] = pulls
    return [(np.asarray(v), np.asarray(f)) for v, f in (traced, (values, found))]


def small_problems(seed, shape, dtype, num=150):
    """Tables of both kinds, with costs, money and periods; dearest arms may be out of reach."""
    generator = np.random.default_rng(seed)
    tables = np.concatenate([draw(generator, kind, (num, *shape)) for kind in KINDS])
    costs = np.tile(generator.integers(1, 5, (15, ARMS)), (2 * num // 15, 1))
    money = generator.integers(0, CELLS + 1, 2 * num)
    periods = generator.integers(0, SIZE + 1, 2 * num)
    return tables.astype(dtype), costs, money, periods, num


def compare(results, answers, num, dtype):
    """Equal everywhere for the first `num` problems (integers), values to rounding for the rest."""
    for values, found in results:
        for i, (value, solution) in enumerate(answers):
            assert values[i] == pytest.approx(value, rel=tolerance(dtype), abs=tolerance(dtype))
            if i < num:
                assert values[i] == value
            assert found[i].tolist() == list(solution), (i, values[i], value)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_against_every_allocation(dtype, bounded):
    with jax.enable_x64(dtype is np.float64):
        values, costs, money, periods, num = small_problems(1, (ARMS,), dtype)
        results = both("constant", values, costs, money, periods, CELLS, SIZE, bounded)
    answers = []
    for i in range(len(values)):
        row = [[n * float(v) for n in range(CELLS + 1)] for v in values[i]]
        limit = int(periods[i]) if bounded else None
        answers.append(oracle.best_allocation(row, costs[i].tolist(), int(money[i]), limit))
    compare(results, answers, num, dtype)
    # The cases meant to be there are there: nothing affordable, binding periods, ties.
    assert (money < costs.min(1)).sum() > 10
    assert (periods < money // costs.min(1)).sum() > 50


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_against_every_allocation(dtype, bounded):
    with jax.enable_x64(dtype is np.float64):
        steps, costs, money, periods, num = small_problems(2, (ARMS, MOST), dtype)
        payoffs = cumulative(steps)
        results = both("groups", payoffs, costs, money, periods, CELLS, SIZE, bounded)
    answers = []
    for i in range(len(payoffs)):
        limit = int(periods[i]) if bounded else None
        rows = payoffs[i].astype(float).tolist()
        answers.append(oracle.best_allocation(rows, costs[i].tolist(), int(money[i]), limit))
    compare(results, answers, num, dtype)


@pytest.mark.parametrize("axes", ["money", "money, at most so many pulls", "periods and money"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_feedback_against_every_sequence(dtype, axes):
    bounded, by_period = axes != "money", axes == "periods and money"
    shape = (ARMS, SIZE, CELLS + 1) if by_period else (ARMS, CELLS + 1)
    with jax.enable_x64(dtype is np.float64):
        payoff, costs, money, periods, num = small_problems(3, shape, dtype, num=60)
        if not bounded:  # no more pulls than SIZE, and few enough sequences to go through
            money = np.minimum(money, SIZE)
        results = both("feedback", payoff, costs, money, periods, CELLS, SIZE, bounded)
    answers = []
    for i in range(len(payoff)):
        table = payoff[i].astype(float)

        def pays(a, t, s, table=table):
            return table[a, t, s] if by_period else table[a, s]

        limit = int(periods[i]) if bounded else None
        value, arms = oracle.best_feedback(pays, costs[i].tolist(), int(money[i]), limit)
        answers.append((value, [*arms, *[-1] * (SIZE - len(arms))]))
    compare(results, answers, num, dtype)


def test_nothing_to_gain_stops_at_once():
    """No money, no period, nothing that pays, or only what pays nothing: value 0, no pulls."""
    payoffs = cumulative(np.array([[[1.0] * 4, [2.0] * 4]]))
    costs = np.array([3, 4])
    for table, money, periods in (
        (payoffs, 2, 4),
        (payoffs, 0, 4),
        (payoffs, 8, 0),
        (-payoffs, 8, 4),
        (0 * payoffs, 8, 4),
    ):
        each = table[:, :, 1]
        spent = np.repeat(each[:, :, None], 9, axis=2)
        for batch, given in (
            (functools.partial(knapsack.knapsack_batch, "constant"), each),
            (functools.partial(knapsack.knapsack_batch, "groups"), table),
            (functools.partial(knapsack.knapsack_batch, "feedback"), spent),
        ):
            value, found = batch(given, costs, money, periods)
            assert value.tolist() == [0.0]
            assert np.all(found <= 0)
    assert knapsack.knapsack_batch("groups", payoffs[:, :, :1], costs, 8)[0].tolist() == [0.0]


def test_payoffs_that_fall_and_rise_again():
    """A count in the middle of a row may be worth skipping, and an early loss worth taking."""
    payoffs = np.array([[[0.0, -1.0, 5.0, 4.0, 9.0], [0.0, 2.0, 1.0, 3.5, 0.0]]])
    for money, counts in ((1, (0, 1)), (2, (2, 0)), (3, (2, 1)), (4, (4, 0)), (5, (4, 1))):
        value, pulls = knapsack.knapsack_batch("groups", payoffs, np.array([1, 1]), money)
        assert tuple(pulls[0]) == counts
        assert value[0] == payoffs[0, 0, counts[0]] + payoffs[0, 1, counts[1]]


@pytest.mark.parametrize("bounded", [False, True])
def test_minus_infinity_forbids(bounded):
    """Integer problems with a quarter of the pulls forbidden, in all three forms."""
    values, costs, money, periods, num = small_problems(12, (ARMS,), np.float32)
    steps = small_problems(13, (ARMS, MOST), np.float32)[0]
    spent = small_problems(14, (ARMS, CELLS + 1), np.float32)[0]
    generator = np.random.default_rng(15)
    payoffs = cumulative(steps)
    for table in (values, payoffs[:, :, 1:], spent):
        table[generator.random(table.shape) < 0.25] = -np.inf
    money = np.minimum(money, SIZE)  # for the sequences
    answers = {"constant": [], "groups": [], "feedback": []}
    for i in range(num):
        limit = int(periods[i]) if bounded else None
        given = costs[i].tolist(), int(money[i]), limit
        rows = [[n * float(v) if n else 0.0 for n in range(CELLS + 1)] for v in values[i]]
        answers["constant"].append(oracle.best_allocation(rows, *given))
        answers["groups"].append(oracle.best_allocation(payoffs[i].tolist(), *given))
        value, arms = oracle.best_feedback(lambda a, t, s, i=i: float(spent[i, a, s]), *given)
        answers["feedback"].append((value, [*arms, *[-1] * (SIZE - len(arms))]))
    for kind, table in (("constant", values), ("groups", payoffs), ("feedback", spent)):
        results = both(kind, table, costs, money, periods, CELLS, SIZE, bounded)
        compare(results, answers[kind], num, np.float32)


def test_an_arm_that_runs_out_of_counts_replaces_no_other():
    """Arm 0 pays more for its money, but has two counts only."""
    payoffs = np.arange(3.0) * np.array([[[1.0], [0.6]]])
    value, pulls = knapsack.knapsack_batch("groups", payoffs, np.array([1, 1]), 4)
    assert pulls.tolist() == [[2, 2]]
    assert value.tolist() == [2 * 1.0 + 2 * 0.6]


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_and_jax_agree_on_larger_problems(dtype, bounded):
    """JAX goes through every count; the kernel leaves out those that another arm dominates."""
    generator = np.random.default_rng(4)
    arms, cells, size, num = 5, 70, 24, 12
    costs = np.tile(np.array([[3, 2, 7, 1, 4]]), (num, 1))
    money = generator.integers(50, cells + 1, num)
    periods = generator.integers(10, size + 1, num)
    # Settling averages, as in use: most counts of most arms are dominated. Then plain noise.
    noise = generator.normal(size=(num, arms, cells))
    steps = 1 + generator.random((num, arms, 1)) + 0.2 * noise.cumsum(2) / np.arange(1, cells + 1)
    steps[num // 2 :] = noise[num // 2 :]
    payoffs = cumulative(steps).astype(dtype)
    values = steps[:, :, 0].astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        for kind, table in (("groups", payoffs), ("constant", values)):
            one, two = both(kind, table, costs, money, periods, cells, size, bounded)
            np.testing.assert_allclose(one[0], two[0], rtol=tolerance(dtype))
            np.testing.assert_array_equal(one[1], two[1])
            # The counts are affordable and earn the value.
            assert np.all(one[1] @ costs[0] <= money)
            assert not bounded or np.all(one[1].sum(1) <= periods)
            if kind == "groups":
                earned = np.take_along_axis(table, one[1][:, :, None], 2).sum((1, 2))
            else:
                earned = (table * one[1]).sum(1)
            np.testing.assert_allclose(earned, one[0], rtol=10 * tolerance(dtype))
        # Constant payoffs are groups with straight rows.
        straight = np.arange(cells + 1, dtype=dtype) * values[:, :, None]
        lines = both("groups", straight, costs, money, periods, cells, size, bounded)
        for found in lines:
            np.testing.assert_allclose(found[0], one[0], rtol=tolerance(dtype))


def test_much_money_goes_to_the_arm_that_pays_best_for_it():
    """Where the table stops short of the money; every cell of a plain table over all of it."""
    generator = np.random.default_rng(5)
    costs, money = np.array([3, 4, 7, 2]), np.arange(0, 120)
    values = generator.normal(0.3, 1.0, (120, 4))
    values[:40] = np.rint(2 * values[:40])  # with ties
    periods = np.full(120, 200)
    found, pulls = kernels.constant(values, costs, money, periods, 120, 200, False)
    for v, limit, value, counts in zip(values, money, found, pulls, strict=True):
        table = np.zeros(limit + 1)
        for m in range(limit + 1):
            paid = (table[m - costs[a]] + v[a] for a in range(4) if costs[a] <= m)
            table[m] = max([0.0, *paid])
        assert value == pytest.approx(table[limit], rel=1e-12, abs=1e-12)
        assert counts @ v == pytest.approx(value, rel=1e-12, abs=1e-12)
        assert counts @ costs <= limit and np.all(counts >= 0)


def test_double_is_not_solved_in_single():
    """Two arms that differ by less than single precision can see."""
    values = np.array([[1.0, 1.0 + 1e-10]])
    costs = np.array([1, 1])
    assert knapsack.knapsack_batch("constant", values, costs, 4)[1].tolist() == [[0, 4]]
    lines = np.arange(5) * values[:, :, None]
    assert knapsack.knapsack_batch("groups", lines, costs, 4)[1].tolist() == [[0, 4]]
    spent = np.repeat(values[:, :, None], 5, axis=2)
    assert knapsack.knapsack_batch("feedback", spent, costs, 4)[1].tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize("periods", [None, 3999])
def test_thousands_of_small_payoffs_lose_nothing(periods):
    """Single payoffs are added in double: a bound was 4e-5 of itself below what a known arm earns.

    Full feedback, costs 0.001 and 1, budget 4, means known: 7.98073, where 7.98105 is earned.
    """
    each = np.float32(0.001995)
    payoff = np.full((1, 1, 4001), each)
    value, _ = knapsack.knapsack_batch("feedback", payoff, np.array([1]), 4000, periods)
    assert value[0] == pytest.approx((periods or 4000) * float(each), rel=1e-12)


def test_costs_money_and_periods_are_data(compilations):
    """Playing on, or other costs, compiles nothing; nor does it change what a table holds."""

    @jax.jit
    def solve(payoffs, *limits):
        return knapsack.knapsack_groups(payoffs, knapsack.Room(*limits, CELLS, SIZE))

    generator = np.random.default_rng(5)
    payoffs = jnp.asarray(cumulative(generator.normal(size=(ARMS, MOST))), jnp.float32)
    before = None
    for money, periods, costs in itertools.product((8, 5), (5, 2), ([1, 2, 3], [2, 2, 9])):
        given = jnp.array(costs), jnp.array(money), jnp.array(periods)
        value, _ = solve(payoffs, *given)
        rows = np.asarray(payoffs, float).tolist()
        assert float(value) == pytest.approx(
            oracle.best_allocation(rows, costs, money, periods)[0], abs=1e-5
        )
        before = len(compilations) if before is None else before
    assert len(compilations) == before


def test_accelerators_get_the_jax_solvers(monkeypatch):
    """The same call, answered by the other solver: one result."""
    generator = np.random.default_rng(6)
    costs, money, periods = np.array([1, 2, 3]), np.array([8, 3, 7]), np.array([5, 5, 2])
    tables = {
        "constant": draw(generator, "integers", (3, ARMS)),
        "groups": cumulative(draw(generator, "integers", (3, ARMS, MOST))),
        "feedback": draw(generator, "integers", (3, ARMS, SIZE, CELLS + 1)),
    }
    kernels = {k: SOLVERS[k][1](t, costs, money, periods) for k, t in tables.items()}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for kind, table in tables.items():
        value, found = SOLVERS[kind][1](table.astype(np.float32), costs, money, periods)
        np.testing.assert_array_equal(value, kernels[kind][0])
        np.testing.assert_array_equal(found, kernels[kind][1])


@pytest.mark.parametrize(
    ("costs", "money", "periods", "message"),
    [
        ([1, 2], 4, None, r"costs must be one whole number per arm, \[3\]"),
        ([1, 0, 2], 4, None, r"costs must be whole numbers of at least 1, got \[1, 0, 2\]"),
        ([1.0, 1.5, 2.0], 4, None, "costs must be whole numbers"),
        ([1, 2, 3], -1, None, "money must be whole numbers of at least 0, got -1"),
        ([1, 2, 3], 2.5, None, "money must be whole"),
        ([1, 2, 3], [1, 2, 3], None, r"money must be one number or \[2\], got \(3,\)"),
        ([1, 2, 3], 4, -2, "periods must be whole numbers of at least 0, got -2"),
    ],
)
def test_bad_arguments_are_named(costs, money, periods, message):
    with pytest.raises(ValueError, match=message):
        knapsack.knapsack_batch("constant", np.ones((2, 3)), costs, money, periods)


def test_bad_tables_are_named():
    costs = np.array([1, 2, 3])
    with pytest.raises(ValueError, match=r"values must have shape \[S, K\], got \(3,\)"):
        knapsack.knapsack_batch("constant", np.ones(3), costs, 4)
    with pytest.raises(ValueError, match=r"payoffs must have shape \[S, K, N \+ 1\]"):
        knapsack.knapsack_batch("groups", np.ones((2, 3)), costs, 4)
    with pytest.raises(ValueError, match=r"money must be whole, from 0 to 4 \(table\), got 5"):
        knapsack.knapsack_batch("feedback", np.ones((2, 3, 5)), costs, 5)
    with pytest.raises(ValueError, match="periods must be given"):
        knapsack.knapsack_batch("feedback", np.ones((2, 3, 4, 5)), costs, 4)
    with pytest.raises(ValueError, match=r"money must be whole, from 0 to 8 \(cells\), got 9"):
        knapsack.knapsack_constant(jnp.ones(3), knapsack.Room(costs, 9, 2, 8, 5))
    with pytest.raises(ValueError, match=r"payoffs must be \[K, N \+ 1\] = \(3, None\), got"):
        knapsack.knapsack_groups(jnp.ones((2, 4)), knapsack.Room(costs, 8, 2, 8, 5))
    with pytest.raises(ValueError, match=r"payoff must be .* = \(3, 5, 9\), got \(3, 4, 9\)"):
        knapsack.knapsack_feedback(jnp.ones((3, 4, 9)), knapsack.Room(costs, 8, 2, 8, 5))
    with pytest.raises(ValueError, match="allowed must have payoff's shape"):
        solve_lattice(jnp.ones((2, 4, 4)), 3, 2, 4, jnp.ones((2, 4), bool))


# --- the lattice of counts with arms that are not always allowed


@pytest.mark.parametrize(("arms", "size"), [(1, 6), (2, 6), (3, 5)])
def test_lattice_with_a_mask_against_every_sequence(arms, size):
    generator = np.random.default_rng(7)
    num = 60
    payoff = draw(generator, "integers", (num, arms, *(size,) * arms))
    allowed = generator.random(payoff.shape) < 0.7
    totals = generator.integers(0, size, num)

    def solve(payoff, total, allowed):
        return solve_lattice(payoff, total, arms, size, allowed)

    values, sequences = jax.jit(jax.vmap(solve))(payoff.astype(np.float32), totals, allowed)
    shorter = 0
    for i in range(num):
        value, best = oracle.best_on_lattice(payoff[i], allowed[i], totals[i])
        assert float(values[i]) == value
        assert np.asarray(sequences[i]).tolist() == [*best, *[-1] * (size - 1 - len(best))]
        shorter += len(best) < totals[i]
    assert shorter > 5  # stopping early was put to the test


def test_lattice_without_a_mask_plays_all_periods():
    """All allowed is the plain lattice, but for the right to stop."""
    generator = np.random.default_rng(8)
    payoff = jnp.asarray(generator.normal(size=(2, 6, 6)), jnp.float32)
    solve = jax.jit(solve_lattice, static_argnums=(2, 3))
    plain = solve(jnp.abs(payoff), 5, 2, 6)
    masked = solve(jnp.abs(payoff), 5, 2, 6, jnp.ones((2, 6, 6), bool))
    assert float(plain[0]) == float(masked[0])
    np.testing.assert_array_equal(plain[1], masked[1])
    negative = solve(-jnp.abs(payoff), 4, 2, 6)
    assert float(negative[0]) < 0
    assert np.asarray(negative[1] >= 0).tolist() == [True] * 4 + [False]
    stopped = solve(-jnp.abs(payoff), 4, 2, 6, jnp.ones((2, 6, 6), bool))
    assert float(stopped[0]) == 0
    assert np.asarray(stopped[1]).tolist() == [-1] * 5


def test_lattice_of_affordable_counts_is_the_knapsack():
    """Payoffs that depend on the own count only: the order is free, the values agree."""
    generator = np.random.default_rng(9)
    size, costs, money, periods = 6, np.array([2, 3]), 11, 4
    steps = generator.normal(0.3, 1, size=(20, 2, size)).astype(np.float32)
    one, two = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    payoff = np.stack([steps[:, 0][:, one], steps[:, 1][:, two]], axis=1)
    spent = costs[0] * one + costs[1] * two
    allowed = jnp.asarray([spent + c <= money for c in costs])
    solve = jax.jit(jax.vmap(lambda p: solve_lattice(p, periods, 2, size, allowed)[0]))
    expected, _ = knapsack.knapsack_batch("groups", cumulative(steps), costs, money, periods)
    np.testing.assert_allclose(solve(payoff), expected, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ more units than cells


def test_pulls_that_may_be_split_are_a_linear_programme():
    rng, split = np.random.default_rng(0), jax.jit(knapsack.split_value)
    for _ in range(60):
        arms = rng.integers(1, 7)
        values, costs = rng.normal(0.3, 1, arms), rng.integers(1, 50, arms)
        money, periods = int(rng.integers(50, 3000)), int(rng.integers(1, 80))
        limits = dict(A_ub=[costs, np.ones(arms)], b_ub=[money, periods])
        most = -linprog(-values, **limits).fun
        assert knapsack.split_value(values[None], costs, money, periods)[0] == pytest.approx(
            most, abs=1e-9
        )
        traced = split(jnp.asarray(values, jnp.float32), costs, money, periods)
        assert float(traced) == pytest.approx(most, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("costs, budget", [([1, 1.007], 30), ([1, 1.7, 2.345], 120)])
def test_a_coarse_grid_buys_less_than_one_pull_too_much(costs, budget, monkeypatch):
    """Against the knapsack over every unit, for means of all kinds."""
    monkeypatch.setattr(budgets, "_CELLS", 256)
    num_arms = len(costs)
    belief = irsppl.BetaBernoulli([1.0] * num_arms, [1.0] * num_arms)
    bandit = irsppl.Bandit(belief, costs=costs, budget=budget)
    money, units = bandit.purse.account()
    assert bandit.purse.step > 1
    rng = np.random.default_rng(1)
    for _ in range(4):
        means = rng.random(num_arms).astype(np.float32)
        exact = np.zeros(money + 1)
        for spent in range(1, money + 1):
            pays = [exact[spent - c] + m for c, m in zip(units, means, strict=True) if c <= spent]
            exact[spent] = max([exact[spent - 1], *pays])
        rewards = np.zeros((num_arms, bandit.horizon))
        plan = irsppl.solve_inner(bandit, "ts", irsppl.Outcome(means, rewards))
        assert exact[-1] * (1 - 1e-6) <= plan.value < exact[-1] + means.max()
        assert np.all(plan.pulls <= money // np.array(units))
        batch = bandit.access.constant_values(bandit, means[None].astype(float), None)
        assert batch[0] == pytest.approx(float(plan.value), rel=1e-5)


def test_the_best_arm_alone_has_no_regret_on_a_coarse_grid():
    belief = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, costs=[1, 1.0007], budget=300)

    def first(key, bandit):
        return 0 * bandit.period

    data = irsppl.simulate(bandit, first, means=[0.9, 0.1], num_replications=4)
    assert np.allclose(data["value"], 270, rtol=1e-6) and np.all(data["regret"] < 1e-4)
