"""Policies, one file each. To add one: a file, and a line in `POLICIES`."""

from typing import Any

from irsppl._checks import one_of
from irsppl.bandit import Bandit
from irsppl.penalties import PENALTIES, Penalty, Relaxation
from irsppl.policies._base import Player as Player
from irsppl.policies._base import Policy as Policy
from irsppl.policies.agent import AgentPolicy as AgentPolicy
from irsppl.policies.agent import from_agent as from_agent
from irsppl.policies.bayes_ucb import BayesUCB as BayesUCB
from irsppl.policies.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
from irsppl.policies.fh_gittins import FHGittins as FHGittins
from irsppl.policies.function import FunctionPolicy as FunctionPolicy
from irsppl.policies.function import PlainPolicy as PlainPolicy
from irsppl.policies.function import playable
from irsppl.policies.greedy import Greedy as Greedy
from irsppl.policies.ids import IDS as IDS
from irsppl.policies.index import Index as Index
from irsppl.policies.irs import IRS as IRS
from irsppl.policies.irs import irs_policy
from irsppl.policies.kl_ucb import KLUCB as KLUCB
from irsppl.policies.lagrangian import LagrangianIndex as LagrangianIndex
from irsppl.policies.ogi import OGI as OGI
from irsppl.policies.opt import Opt as Opt
from irsppl.policies.random import Random as Random
from irsppl.policies.ts_ratio import TSRatio as TSRatio
from irsppl.policies.ucb1 import UCB1 as UCB1

_PLAYED = [p for p in PENALTIES.values() if isinstance(p, Penalty) and not p.bound_only]
POLICIES: dict[str, Policy] = {
    **{p.name: irs_policy(p) for p in _PLAYED},
    "random": Random(),
    "greedy": Greedy(),
    "irs.index": Index(),
    "irs.index*": Index(star=True),
    "irs.index-16": Index(num_futures=16),
    "irs.index-64": Index(num_futures=64),
    "opt": Opt(),
    "bayes-ucb": BayesUCB(),
    "ids": IDS(),
    "ogi": OGI(),
    "fh-gittins": FHGittins(),
    "lagr-rt": LagrangianIndex("random"),
    "lagr-ot": LagrangianIndex("optimal"),
    "ucb1": UCB1(),
    "kl-ucb": KLUCB(),
    "epsilon-greedy": EpsilonGreedy(),
    "ts-ratio": TSRatio(),
}


_OURS = frozenset(type(policy) for policy in POLICIES.values())


def find_policy(policy: Any, bandit: Bandit | None = None) -> Policy:
    """A policy from its name, itself, a penalty, or a function `policy(key, bandit) -> arm`.

    bandit: check that the policy can be played there, and how: compiled or in plain Python.
    """
    found = _find(policy)
    if bandit is None:
        return found
    found.verify(bandit)
    return playable(found, bandit.without_record(), _OURS)


def _find(policy: Any) -> Policy:
    if isinstance(policy, type):
        raise ValueError(f"policy must be an object, not the class: write {policy.__name__}()")
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Relaxation):
        if not isinstance(policy, Penalty) or policy.bound_only:
            raise ValueError(f"penalty {policy.name!r} gives a bound only, not a policy")
        return irs_policy(policy)
    if isinstance(policy, str):
        return POLICIES[one_of("policy", policy, POLICIES)]
    if callable(policy):
        return FunctionPolicy(policy)
    hint = ""
    if hasattr(policy, "update") or hasattr(policy, "partial_fit"):
        hint = "; an agent that learns as it plays: irsppl.policies.from_agent(agent)"
    raise ValueError(
        "policy must be a name, a Policy, or a function policy(key, bandit) -> arm, got "
        f"{policy!r}{hint}"
    )
