"""Policies as rules of the engine. To add one: a file with its `choose`, and a line in `RULES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from irsppl import policies
from irsppl._checks import host64
from irsppl.beliefs import InKernels, LinearGaussian, PointBelief
from irsppl.constraints import Sure
from irsppl.engine import (
    bayes_ucb,
    ids,
    index,
    mix,
    ogi,
    rules,
    tables,
    ucb,
    v_emax,
    v_solo,
    v_zero,
)
from irsppl.engine.families.counts import counts
from irsppl.engine.situation import Situation
from irsppl.inner.cpu.families import BETA_BERNOULLI, NORMAL_NORMAL
from irsppl.penalties import FH, TS, Mix, VEMax, VSolo, VZero, VZeroSeparable
from irsppl.penalties.ideal import optimal_table, planning_root
from irsppl.penalties.lagrangian import solved_tables
from irsppl.policies.irs import HostIRS
from irsppl.policies.kl_ucb import DIVERGENCES
from irsppl.policies.ucb1 import reward_scale


class Rule(NamedTuple):
    """How a policy is compiled: what makes the part, and what the part asks of others."""

    make: Callable[[Situation], Any]
    # Of a family: "means", "future means", "path", "prefix", "index", "separable", "futures",
    # "quantile", "gain"; nothing: its predictive means alone.
    needs: frozenset[str] = frozenset()
    futures: int = 1  # sampled for each arm and decision
    reach: int | None = None  # rewards of an arm that a plan looks at, if not all that may come
    groups: bool = False  # plans pulls one by one
    blind: bool = False  # does not plan by a law of the horizon
    family: Callable[[int, int], Any] | None = None  # makes the family where the belief does not
    decides: bool = True  # whether single decisions are made by it too


def rule_of(policy: policies.Policy, state: Situation) -> Rule | None:
    """The policy's rule in this situation, or None where it has none."""
    if type(policy) in (policies.IRS, HostIRS):
        penalty = policy.penalty  # type: ignore[attr-defined]
        found = SAMPLED.get(type(penalty))
        return None if found is None else found(penalty, state)
    found = RULES.get(type(policy))
    return None if found is None else found(policy, state)


def _index(policy: policies.Index, state: Situation) -> Rule | None:
    many = policy.num_futures > 1
    if many and not state.plain:
        return None
    needs = {"index", "futures"} if many else {"index"}

    def make(state: Situation) -> Any:
        fields = (np.empty(state.num_arms, np.int64), policy.lookahead or 0, policy.star)
        if state.access.binds:
            scores, low, high = np.empty((3, state.num_arms))
            return index.PricedIndex(*fields, scores, low, high, np.empty(state.num_arms, np.int64))
        return index.IndexMany(*fields) if many else index.Index(*fields)

    reach = None
    if policy.lookahead is not None and not state.arrivals.late:
        reach = policy.lookahead + int(state.waiting.max())
    return Rule(make, frozenset(needs), policy.num_futures, reach)


def _ts_ratio(policy: policies.TSRatio, state: Situation) -> Rule:
    def make(state: Situation) -> Any:
        _, costs = state.access.account()
        return rules.TSRatio(np.empty(state.num_arms), np.array(costs, np.float64))

    return Rule(make, frozenset({"means"}))


def _bayes_ucb(policy: policies.BayesUCB, state: Situation) -> Rule:
    def make(state: Situation) -> Any:
        table = bayes_ucb.normal_quantiles(_last(state))
        return bayes_ucb.BayesUCB(np.zeros(state.num_arms), table)

    return Rule(make, frozenset({"quantile"}))


def _ogi(policy: policies.OGI, state: Situation) -> Rule:
    def make(state: Situation) -> Any:
        return ogi.OGI(np.zeros(state.num_arms), ogi.normal_indices(_last(state)))

    return Rule(make, frozenset({"gain"}))


def _last(state: Situation) -> int:
    """Number of the last period, from 1, where the belief is Gaussian; 1 where nobody asks."""
    belief = state.belief
    normal = isinstance(belief, LinearGaussian) or (
        isinstance(belief, InKernels) and belief.kernel_state()[0] == NORMAL_NORMAL
    )
    return state.period + state.remaining if normal else 1


def _ids(policy: policies.IDS, state: Situation) -> Rule | None:
    if isinstance(state.belief, PointBelief):
        return Rule(lambda state: ids.points_rule(state.num_arms))
    if not isinstance(state.belief, InKernels):
        return None
    code, xi, nu, _ = state.belief.kernel_state()
    if code not in (BETA_BERNOULLI, NORMAL_NORMAL):
        return None
    form = ids.MUTUAL if policy.mutual(code == BETA_BERNOULLI) else ids.VARIANCE

    def make(state: Situation) -> Any:
        if code == NORMAL_NORMAL:
            return ids.gaussian_rule(form, nu)
        return ids.bernoulli_rule(form, xi, nu, state.remaining + int(state.waiting.sum()))

    return Rule(make)


def _ucb1(policy: policies.UCB1, state: Situation) -> Rule | None:
    if state.bandit is None:
        return None
    scale = host64(reward_scale(state.bandit, policy.scale))
    return Rule(lambda state: ucb.UCB1(scale))


def _kl_ucb(policy: policies.KLUCB, state: Situation) -> Rule | None:
    if state.bandit is None:
        return None
    name, noise, low, unit = policy.reading(state.bandit)
    # A divergence that is not the rewards' own may be asked for means that it knows nothing of.
    known = name in ("gaussian", state.belief.divergence)
    if not known and name == "bernoulli" and isinstance(state.belief, PointBelief):
        means = host64(state.belief.mu)
        known = bool(np.min(means) >= 0 and np.max(means) <= 1)
    if not known:
        return None
    code, scale = DIVERGENCES.index(name), host64(noise)
    return Rule(lambda state: ucb.KLUCB(code, scale, float(low), float(unit)))


# ------------------------------------------------------------------ by tables


def _opt(policy: policies.Opt, state: Situation) -> Rule | None:
    if state.bandit is None:
        return None
    solved, seen = optimal_table(state.bandit, from_root=False)
    values = planning_root(state.belief).values
    part = tables.Optimal(solved.kind, solved.table, solved.ranks)
    return Rule(lambda state: part, family=lambda *_: counts(seen, values))


def _fh_gittins(policy: policies.FHGittins, state: Situation) -> Rule | None:
    if state.bandit is None:
        return None
    bandit, nothing = state.bandit, np.zeros((state.num_arms, 2))
    coins = np.tile([0.0, 1.0], (state.num_arms, 1))

    def make(state: Situation) -> Any:
        return tables.Gittins(*policy.tables(bandit))

    # Single decisions use the exact index, not the table.
    return Rule(make, family=lambda *_: counts(nothing, coins), decides=False)


def _lagrangian(policy: policies.LagrangianIndex, state: Situation) -> Rule | None:
    if state.bandit is None:
        return None
    solved, wins, losses = solved_tables(state.bandit, policy.first)
    seen = np.stack([losses, wins], axis=1)
    coins = np.tile([0.0, 1.0], (state.num_arms, 1))
    fields = (solved.index, solved.pull, solved.group, solved.tie_tolerance)
    return Rule(
        lambda state: tables.Lagrangian(*fields, policy.tie == "optimal", np.empty_like(wins)),
        family=lambda *_: counts(seen, coins),
    )


# ------------------------------------------------------------------ by penalty


def _fh(penalty: FH, state: Situation) -> Rule | None:
    if state.access.binds and not state.belief.is_independent:
        return None

    def make(state: Situation) -> Any:
        return rules.FH(np.empty(state.num_arms), np.empty(state.num_arms, np.int64))

    return Rule(make, frozenset({"future means"}), blind=penalty.form == "survivor")


def _v_zero(penalty: VZero | VZeroSeparable, state: Situation) -> Rule | None:
    separable = isinstance(penalty, VZeroSeparable)
    blind = isinstance(penalty, VZero) and penalty.form == "survivor"
    if blind and state.end.binds:
        return None
    if state.belief.is_independent:

        def make(state: Situation) -> Any:
            # Rewards of one arm that a plan may know of: those to come and those pending.
            most = state.remaining + int(state.waiting.sum())
            return v_zero.v_zero(state.num_arms, state.remaining, most, separable)

        return Rule(make, frozenset({"path"}), groups=True)
    if not separable or not state._replace(end=Sure()).plain:
        return None
    return Rule(
        lambda state: v_zero.separable(state.num_arms, state.remaining), frozenset({"separable"})
    )


def _mix(penalty: Mix, state: Situation) -> Rule | None:
    early = penalty.early_pulls(state)

    def make(state: Situation) -> Any:
        size = min(early, state.remaining)
        return mix.mix(state.num_arms, size, state.remaining, int(state.waiting.max()))

    return Rule(make, frozenset({"prefix"}))


def _v_emax(penalty: VEMax, state: Situation) -> Rule | None:
    known = not state.end.binds or penalty.form == "sampled"
    if state.num_arms != 2 or state.waiting.any() or not known:
        return None
    if not isinstance(state.belief, InKernels):
        return None
    code, xi, nu, _ = state.belief.kernel_state()
    return Rule(lambda state: v_emax.v_emax(code, xi, nu, state.remaining), frozenset({"path"}))


def _v_solo(penalty: VSolo, state: Situation) -> Rule | None:
    if not isinstance(state.belief, InKernels) or state.access.binds or state.num_arms < 2:
        return None
    code, scale = state.belief.kernel_state()[0], penalty.scale_for(state.num_arms)
    most = state.remaining + int(state.waiting.sum())
    size, form = (state.num_arms, state.remaining, most), (code, scale, penalty.level)
    return Rule(lambda state: v_solo.v_solo(*size, *form), frozenset({"path"}))


_Maker = Callable[[Any, Situation], Rule | None]
RULES: dict[type, _Maker] = {
    policies.Random: lambda policy, _: Rule(lambda state: rules.Random(state.num_arms)),
    policies.Greedy: lambda policy, _: Rule(lambda state: rules.Greedy(state.num_arms)),
    policies.Index: _index,
    policies.TSRatio: _ts_ratio,
    policies.EpsilonGreedy: lambda policy, _: Rule(
        lambda state: rules.EpsilonGreedy(state.num_arms, policy.rate(state))
    ),
    policies.BayesUCB: _bayes_ucb,
    policies.OGI: _ogi,
    policies.UCB1: _ucb1,
    policies.KLUCB: _kl_ucb,
    policies.IDS: _ids,
    policies.Opt: _opt,
    policies.FHGittins: _fh_gittins,
    policies.LagrangianIndex: _lagrangian,
}
# IRS policies, by their penalty.
SAMPLED: dict[type, _Maker] = {
    TS: lambda penalty, _: Rule(
        lambda state: rules.TS(np.empty(state.num_arms)), frozenset({"means"})
    ),
    FH: _fh,
    VZero: _v_zero,
    VZeroSeparable: _v_zero,
    Mix: _mix,
    VEMax: _v_emax,
    VSolo: _v_solo,
}
