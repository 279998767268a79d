"""Leave-one-out penalties under delays, budgets, laws of the horizon and in mid-run.

Every outcome of tiny bandits: never below the optimum, and free on average for policies that do not
look ahead. The optimum and the rules of play are those of `tests/oracles`.
"""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl.penalties import VFit, VSolo, find_penalty
from irsppl.penalties._controls import known_means
from irsppl.penalties._view import View

from .oracles import enumerate as en
from .oracles import leave_one_out as oracle

LATE = {0: 0.6, 2: 0.4}
SURVIVOR = [1.0, 0.8, 0.5, 0.1]
TWO = ([1.0, 2.0], [1.5, 1.0])
THREE = ([0.5, 2.0, 1.0], [1.5, 1.0, 1.0])
VALUES = [-1.0, 0.5, 2.0]
CATEGORIES = [[1.0, 2.0, 1.0], [2.0, 0.5, 1.0]]


@dataclasses.dataclass
class Case:
    """options: of Bandit; rules: of the oracle's Problem; pulls: (arm, reward or None) so far."""

    prior: Any
    options: dict
    rules: dict
    pulls: tuple = ()
    values: Any = None

    def bandit(self):
        options = {k: v() if callable(v) else v for k, v in self.options.items()}
        if self.values is None:
            bandit = irsppl.Bandit(irsppl.BetaBernoulli(*self.prior), **options)
        else:
            bandit = irsppl.Bandit(irsppl.DirichletCategorical(self.prior, self.values), **options)
        for arm, reward in self.pulls:
            bandit = bandit.pull(arm) if reward is None else bandit.pull(arm, reward)
        return bandit

    def belief(self, seen=()):
        if self.values is not None:
            return en.DirichletCategorical(self.prior, self.values)
        alpha, beta = (list(x) for x in self.prior)
        for arm, reward in seen:
            alpha[arm] += reward
            beta[arm] += 1 - reward
        return en.BetaBernoulli(alpha, beta)


def late():
    return dist.Categorical(probs=jnp.array([0.6, 0.0, 0.4]))


CASES = {
    "delay": Case(TWO, dict(horizon=4, delay=1), dict(horizon=4, delay=1)),
    "delay per arm": Case(
        TWO, dict(horizon=4, delay=[1, np.inf]), dict(horizon=4, delay=[1, np.inf])
    ),
    "random delay": Case(TWO, dict(horizon=3, delay=late), dict(horizon=3, delay=[LATE, LATE])),
    "delay, three arms": Case(THREE, dict(horizon=3, delay=1), dict(horizon=3, delay=1)),
    "delay, categorical": Case(
        CATEGORIES, dict(horizon=3, delay=1), dict(horizon=3, delay=1), values=VALUES
    ),
    "budget": Case(TWO, dict(costs=[1, 1.5], budget=5), dict(costs=[1, 1.5], budget=5)),
    "budget and horizon": Case(
        TWO,
        dict(costs=[3, 1], budget=6, horizon=4),
        dict(costs=[3, 1], budget=6, horizon=4),
    ),
    "budget and delay": Case(
        TWO, dict(costs=[1, 1.5], budget=4, delay=1), dict(costs=[1, 1.5], budget=4, delay=1)
    ),
    "budget, three arms": Case(
        THREE, dict(costs=[1, 2, 1], budget=4), dict(costs=[1, 2, 1], budget=4)
    ),
    "budget, categorical": Case(
        CATEGORIES,
        dict(costs=[1, 1.5], budget=3),
        dict(costs=[1, 1.5], budget=3),
        values=VALUES,
    ),
    "survivor": Case(TWO, dict(horizon=np.array(SURVIVOR)), dict(survival=SURVIVOR)),
    "survivor and delay": Case(
        TWO, dict(horizon=np.array(SURVIVOR), delay=1), dict(survival=SURVIVOR, delay=1)
    ),
    "mid-run": Case(TWO, dict(horizon=6), dict(horizon=6), ((0, 1.0), (1, 0.0))),
    "pending": Case(TWO, dict(horizon=6), dict(horizon=6), ((0, 1.0), (1, None), (1, None))),
    "pending and delay": Case(
        TWO, dict(horizon=5, delay=1), dict(horizon=5, delay=1), ((0, 1.0), (1, None))
    ),
    "pending and random delay": Case(
        TWO, dict(horizon=4, delay=late), dict(horizon=4, delay=[LATE, LATE]), ((1, None),)
    ),
    "pending and budget": Case(
        TWO,
        dict(costs=[1, 2], budget=6),
        dict(costs=[1, 2], budget=6),
        ((0, None), (1, 1.0)),
    ),
}


class Enumerated:
    """All outcomes of a case, from its moment on."""

    def __init__(self, case):
        self.case, self.bandit = case, case.bandit()
        self.start = en.Problem(case.belief(), **case.rules)
        seen = [(arm, r) for arm, r in case.pulls if r is not None]
        self.belief = case.belief(seen)
        arms, self.periods = self.belief.num_arms, int(self.bandit.remaining)
        now = len(case.pulls)
        self.pending = [(arm, now - i) for i, (arm, r) in enumerate(case.pulls) if r is None]
        count = self.periods + max(
            [0, *(sum(a == b for b, _ in self.pending) for a, _ in self.pending)]
        )
        rows = list(itertools.product(range(len(self.belief.values)), repeat=count))
        laws = self.start.delay_laws
        rewards, delays, chances = [], [], []
        for choice in itertools.product(rows, repeat=arms):
            data = [(a, c) for a in range(arms) for c in choice[a]]
            p = self.belief.probability(self.belief.count(data))
            for late, q in self._delays(laws, arms, count):
                rewards.append(choice)
                delays.append(late)
                chances.append(p * q)
        self.rewards = np.asarray(self.belief.values)[np.array(rewards)]
        self.delays = np.array(delays, float) if self.start.delayed else None
        self.chances = np.array(chances)
        assert self.chances.sum() == pytest.approx(1)

    def _delays(self, laws, arms, count):
        """Delays of all pulls with their probability, given how long pending pulls have waited."""
        if all(len(law) == 1 for law in laws):
            yield [[next(iter(law))] * count for law in laws], 1.0
            return
        cells, waited = [], [[0] * count for _ in range(arms)]
        for arm in range(arms):
            for n, (_, ago) in enumerate(p for p in self.pending if p[0] == arm):
                waited[arm][n] = ago
            for n in range(count):
                left = {d: p for d, p in laws[arm].items() if d >= waited[arm][n]}
                cells.append([(d, p / sum(left.values())) for d, p in left.items()])
        for choice in itertools.product(*cells):
            q = np.prod([p for _, p in choice])
            yield np.reshape([d for d, _ in choice], (arms, count)), q

    def batch(self, periods):
        size = self.bandit.size
        fill = ((0, 0), (0, 0), (0, size - self.rewards.shape[2]))
        rewards = jnp.asarray(np.pad(self.rewards, fill, mode="edge"), jnp.float32)
        late = length = None
        if self.delays is not None:
            late = np.pad(np.minimum(self.delays, size), fill, mode="edge")
            late = jnp.asarray(late, jnp.int32)
        if self.bandit.end.binds:
            length = jnp.full(len(rewards), periods, jnp.int32)
        return irsppl.Outcome(jnp.zeros(rewards.shape[:2]), rewards, None, late, length)

    def horizons(self):
        """(periods, probability)."""
        if not self.bandit.end.binds:
            return [(self.periods, 1.0)]
        tail = [*SURVIVOR, 0.0]
        return [(t + 1, tail[t] - tail[t + 1]) for t in range(len(SURVIVOR))]

    def play(self, periods):
        delayed = self.delays is not None
        costs, budget = self.case.rules.get("costs"), self.case.rules.get("budget")
        if costs is not None:
            budget = budget - sum(costs[arm] for arm, _ in self.case.pulls)
        arms = self.belief.num_arms
        return oracle.Play(arms, periods, self.pending, delayed, costs, budget)

    def optimum(self):
        """V* from this moment on; pending rewards without a law of delay are known at once."""
        if not self.case.pulls:
            return en.optimal_value(self.start)
        solver = en._optimal(self.start)
        period = len(self.case.pulls) + 1
        spent = self.start.spent(tuple(arm for arm, _ in self.case.pulls))
        seen = [(arm, int(r)) for arm, r in self.case.pulls if r is not None]
        if self.start.delayed:
            waiting = tuple((arm, i + 1) for i, (arm, r) in enumerate(self.case.pulls) if r is None)
            known = self.start.belief.count(seen)
            return solver.value((period, known, tuple(sorted(waiting)), spent))
        total = 0.0
        prior = self.start.belief.probability(self.start.belief.count(seen))
        for brought in itertools.product([0, 1], repeat=len(self.pending)):
            extra = [(arm, r) for (arm, _), r in zip(self.pending, brought, strict=True)]
            known = self.start.belief.count([*seen, *extra])
            chance = self.start.belief.probability(known) / prior
            total += chance * solver.value((period, known, (), spent))
        return total


@pytest.fixture(scope="module", params=CASES)
def enumerated(request):
    return Enumerated(CASES[request.param])


def charged(penalty, view, chosen):
    """Z [S, K, T] of scale x V-Solo, or of a combination of all features of V-Fit."""
    if isinstance(penalty, VSolo):
        return view.charges(chosen * view.weights(0.45)[:, :, None])
    return penalty.charges(view, chosen, penalty.prices(view))


def combinations(bandit):
    yield from ((VSolo(), scale) for scale in (0.8, 1.3, -0.7))
    fit = VFit("full")
    size = len(fit._start(bandit))
    yield fit, np.random.default_rng(size).normal(size=size) / 10


def test_feasible_and_never_below_the_optimum(enumerated):
    bandit, optimum = enumerated.bandit, enumerated.optimum()
    costs = enumerated.play(1).costs
    for penalty, chosen in combinations(bandit):
        bound = moved = 0.0
        for periods, chance in enumerated.horizons():
            view = View(bandit, enumerated.batch(periods), penalty.shares)
            z = charged(penalty, view, chosen)
            moved = max(moved, np.abs(z).max())
            pays = view.schedule.per_pull(view.futures.means) - z
            values, counts, sums = view.solve(z)
            bound += chance * float(values @ enumerated.chances)
            assert abs(sums @ enumerated.chances) < 1e-12
            play = enumerated.play(periods)
            for i in np.linspace(0, len(values) - 1, 5).astype(int):
                want = oracle.best_plan(pays[i], periods, costs, play.budget)
                assert values[i] == pytest.approx(want, abs=1e-9)
                if costs is None:
                    assert counts[i].sum() == periods
            facts = (enumerated.rewards, enumerated.delays, enumerated.chances, pays)
            for seed in range(2):
                assert play.defect(*facts, seed) < 1e-12
        assert bound >= optimum - 1e-9
        assert moved > 0.01  # it does charge something


@pytest.mark.parametrize("name", ["budget", "budget, three arms", "delay, categorical", "mid-run"])
def test_tighter_than_v_zero(name):
    """Exact bounds: V-Solo closes at least a third of the way from V-Zero to the optimum."""
    case = Enumerated(CASES[name])
    bandit, optimum, batch = case.bandit, case.optimum(), case.batch(case.periods)
    other = "irs.v-zero-separable" if bandit.arrivals.late else "irs.v-zero"
    solo, zero = (
        float(p.values(bandit, batch) @ case.chances) for p in (VSolo(), find_penalty(other))
    )
    assert solo - optimum < (zero - optimum) * 2 / 3


@pytest.mark.parametrize("name", ["delay", "random delay", "survivor and delay", "pending"])
def test_controls_have_the_means_they_claim(name):
    case = Enumerated(CASES[name])
    for control, mean in known_means(case.bandit, (0.1, 0.45)).items():
        found = sum(
            chance * (control.of(View(case.bandit, case.batch(periods))) @ case.chances)
            for periods, chance in case.horizons()
        )
        assert found == pytest.approx(mean, rel=1e-6), control.label
