"""Agents of other libraries: objects that pull an arm and are told of rewards, as policies."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Player, Policy
from irsppl.policies.generators import reseeded, seed_of


class AgentPolicy(Policy):
    """A fresh agent for each replication, told of each reward when it arrives.

    Made by `from_agent`, which documents the arguments. An agent goes by what it is told and never
    sees the bandit, so nothing here depends on the belief but the futures that it meets.
    """

    name: ClassVar[str] = "agent"
    traceable: ClassVar[bool] = False
    reason = "it is an agent that learns as it plays"
    make: Callable[[int], Any] = eqx.field(static=True)
    pull: Callable[[Any], Hashable] = eqx.field(static=True)
    update: Callable[[Any, Hashable, float], Any] = eqx.field(static=True)
    arms: tuple[Hashable, ...] | None = eqx.field(static=True)
    label: str = eqx.field(static=True)

    def check(self, bandit: Bandit) -> None:
        agent_arms = self._arms(self.make(0), bandit.num_arms)
        if len(agent_arms) != bandit.num_arms:
            raise ValueError(
                f"the agent has {len(agent_arms)} arms, {list(agent_arms)}, but the bandit "
                f"{bandit.num_arms}: give arms=[...], the agent's names in the bandit's order"
            )

    def _arms(self, agent: Any, num_arms: int) -> tuple[Hashable, ...]:
        if self.arms is not None:
            return self.arms
        found = getattr(agent, "arms", None)
        if found is None or isinstance(found, int):
            return tuple(range(num_arms if found is None else found))
        return tuple(getattr(arm, "action_token", arm) for arm in found)

    def __call__(self, key: Array, bandit: Bandit) -> Any:
        return self.player(seed_of(key), bandit).decide(key, bandit)

    def player(self, seed: int, bandit: Bandit) -> Player:
        agent = self.make(seed)
        return _AgentPlayer(self, agent, self._arms(agent, bandit.num_arms))


class _AgentPlayer(Player):
    reads_bandit: ClassVar[bool] = False

    def __init__(self, policy: AgentPolicy, agent: Any, names: tuple[Hashable, ...]):
        super().__init__(self._decide)
        self.policy, self.agent, self.names = policy, agent, names

    def _decide(self, key: Array, bandit: Bandit) -> int:
        name: Any = self.policy.pull(self.agent)
        if isinstance(name, list | np.ndarray) and np.size(name) == 1:
            name = np.ravel(np.asarray(name, object))[0]
        if name in self.names:
            return self.names.index(name)
        raise ValueError(
            f"policy {self.policy.label!r} pulled {name!r}, but its arms are {list(self.names)}"
        )

    def learn(self, arm: int, reward: float) -> None:
        self.policy.update(self.agent, self.names[arm], reward)


def from_agent(
    agent: Any,
    *,
    arms: Sequence[Hashable] | None = None,
    pull: Callable[[Any], Hashable] | None = None,
    update: Callable[[Any, Hashable, float], Any] | None = None,
) -> AgentPolicy:
    """A policy from an object that learns as it plays: of bayesianbandits, MABWiser, or your own.

    agent: an object with `pull()` and `update(arm, reward)`; a bayesianbandits `Agent`; a MABWiser
    `MAB` (its first pulls go round the arms until a reward is known: it cannot predict before); or
    a function that makes one, called with a seed if it takes an argument. An object is copied, as
    it stands, for each replication, and the random generators found in the copy are seeded anew;
    what was played before the bandit's present state it must have been told already.
    arms: the agent's names of arms 0, 1, ... (default: its own `arms`, else the numbers).
    pull(agent) -> name, update(agent, name, reward): for any other interface.

    Agents are told of rewards in the order in which they arrive, late ones late. They do not see
    costs, so a budget is refused.
    """
    if inspect.isclass(agent) or (inspect.isroutine(agent) and callable(agent)):
        make, example = _maker(agent)
    else:
        make, example = (lambda seed: reseeded(copy.deepcopy(agent), seed)), agent
    if (pull is None) != (update is None):
        raise ValueError("pull and update belong together: give both or neither")
    if pull is None or update is None:
        pull, update = _interface(example)
    names = None if arms is None else tuple(arms)
    if names is not None and len(set(names)) != len(names):
        raise ValueError(f"arms must be different names, got {list(names)}")
    label = getattr(agent, "__name__", None) or type(example).__name__
    return AgentPolicy(make, pull, update, names, label)


def _maker(factory: Callable[..., Any]) -> tuple[Callable[[int], Any], Any]:
    try:
        takes_seed = any(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
            for p in inspect.signature(factory).parameters.values()
        )
    except (TypeError, ValueError):
        takes_seed = False
    if takes_seed:
        return factory, factory(0)

    def make(seed: int) -> Any:
        return reseeded(factory(), seed)

    return make, factory()


def _interface(agent: Any) -> tuple[Callable[[Any], Hashable], Callable[..., Any]]:
    """(pull, update) of an agent whose methods we know."""
    if all(callable(getattr(agent, name, None)) for name in ("predict", "partial_fit")):
        return _predict, lambda agent, name, reward: agent.partial_fit([name], [reward])
    if callable(getattr(agent, "pull", None)) and callable(getattr(agent, "update", None)):
        if callable(getattr(agent, "select_for_update", None)):  # bayesianbandits
            return (lambda agent: agent.pull()), (
                lambda agent, name, r: agent.select_for_update(name).update(np.array([r]))
            )
        return (lambda agent: agent.pull()), (lambda agent, n, reward: agent.update(n, reward))
    raise ValueError(
        "agent must have pull() and update(arm, reward), or be an agent of bayesianbandits or "
        f"MABWiser, or come with pull= and update=, got {agent!r}"
    )


def _predict(agent: Any) -> Hashable:
    if getattr(agent, "_is_initial_fit", True):
        return agent.predict()
    # MABWiser predicts from data only.
    turn = getattr(agent, "_irsppl_turn", 0)
    agent._irsppl_turn = turn + 1
    return agent.arms[turn % len(agent.arms)]
