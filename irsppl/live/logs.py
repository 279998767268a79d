"""The log of an experiment for others, and what another policy would have earned by it."""

from __future__ import annotations

import dataclasses
import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from irsppl._checks import as_count
from irsppl.bandit import Bandit
from irsppl.live.beliefs import HostBelief
from irsppl.live.decide import Plan, decide, plan_for
from irsppl.live.journal import Event
from irsppl.live.models import Library
from irsppl.live.state import State, fold
from irsppl.penalties import reward_sds
from irsppl.policies import AgentPolicy, find_policy

COLUMNS = ("decision", "period", "asked_at", "arm", "label", "propensity", "reward", "told_at")


def frame(events: Sequence[Event], labels: Sequence[str], name: Any) -> Any:
    """One row per decision; reward and told_at are NaN while a reward is awaited."""
    import pandas as pd

    asked = [event for event in events if event.kind == "ask"]
    reward = np.full(len(asked), np.nan)
    told_at = np.full(len(asked), np.nan)
    for event in events:
        if event.kind in ("tell", "correct"):
            reward[event.period], told_at[event.period] = event.reward, event.at
    return pd.DataFrame(
        {
            "decision": [name(event.period) for event in asked],
            "period": np.arange(len(asked)),
            "asked_at": np.array([event.at for event in asked], float),
            "arm": np.array([event.arm for event in asked], int),
            "label": [labels[event.arm or 0] for event in asked],
            "propensity": np.array([event.propensity for event in asked], float),
            "reward": reward,
            "told_at": told_at,
        },
        columns=list(COLUMNS),
    )


def open_bandit(log: Any, num_arms: int) -> dict[str, Any]:
    """The told decisions as the dictionary that the Open Bandit Pipeline takes."""
    rewarded = log[log["reward"].notna()]
    return {
        "n_rounds": len(rewarded),
        "n_actions": num_arms,
        "context": np.ones((len(rewarded), 1)),  # there is none: every decision is alike
        "action_context": np.eye(num_arms),
        "action": rewarded["arm"].to_numpy(),
        "position": None,
        "reward": rewarded["reward"].to_numpy(),
        "expected_reward": None,
        "pscore": rewarded["propensity"].to_numpy(),
    }


@dataclasses.dataclass(frozen=True)
class OffPolicy:
    """Mean reward per decision of another policy, estimated from the log.

    stderr: at least what it would be were the belief right. effective: decisions that the weights
    are worth, (sum w)^2 / sum w^2. Where it is 0, the log has played nothing of what the target
    plays: stderr and interval are not numbers then. left_out: decisions with a reward that are not
    used, because an arm of the target was not open then: not added yet, or retired. unseen: the
    target's probability of arms that the log could not have played then, its mean over decisions.
    Above 0 nothing is unbiased: "ips" counts those arms as earning nothing, "snips" as much as the
    others, "dr" what was believed.
    """

    method: str
    value: float
    stderr: float
    decisions: int
    effective: float
    left_out: int = 0
    unseen: float = 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval, Student's t with as many degrees as effective decisions less one."""
        number = isinstance(level, numbers.Real) and not isinstance(level, bool)
        if not (number and 0 < level < 1):
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        from scipy.special import stdtrit

        half = float(stdtrit(max(self.effective - 1, 1), 0.5 + level / 2)) * self.stderr
        return self.value - half, self.value + half

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.method}: {self.value:.5g} (95% interval {low:.5g} to {high:.5g})"


def evaluate(
    events: Sequence[Event],
    start: Bandit,
    labels: Sequence[str],
    target: Any,
    seed: int = 0,
    library: Library | None = None,
    made_by: Plan | None = None,
) -> dict[str, OffPolicy]:
    """Estimates by inverse propensities, self-normalised, and doubly robust.

    target: a label, probabilities ({label: p} or `[K]`), or a policy, which is asked what it would
    have played at each moment of the log. made_by: how the log's decisions were made; without it
    every arm is taken to have had a chance.
    """
    policy, fixed, seed = None, None, as_count("seed", seed, 0, 2**63 - 1)
    if isinstance(target, str) and target in labels:
        fixed = np.eye(len(labels))[list(labels).index(target)]
    elif isinstance(target, Mapping):
        unknown = [str(label) for label in target if label not in labels]
        if unknown:
            raise ValueError(f"target names unknown arms {unknown}; labels: {', '.join(labels)}")
        fixed = np.array([float(target.get(label, 0.0)) for label in labels])
    elif isinstance(target, list | tuple | np.ndarray):
        fixed = np.asarray(target, float)
    else:
        policy = find_policy(target, start)
        if isinstance(policy, AgentPolicy):
            raise ValueError(
                "target must be a policy or a function that goes by the bandit: an agent goes by "
                "what it was told, and has not been told of this log"
            )
    if fixed is not None and (
        fixed.shape != (len(labels),)
        or not np.all(np.isfinite(fixed) & (fixed >= 0))
        or abs(fixed.sum() - 1) > 1e-9
    ):
        raise ValueError(
            f"target must be probabilities of {len(labels)} arms that add up to 1, got {target!r}"
        )
    final = {e.period: e.reward for e in events if e.kind in ("tell", "correct")}
    plan = None if policy is None else plan_for(policy, seed, 0.0, start)
    state = State(start, library)
    rows: list[tuple[float, float, float, float]] = []  # weight, reward, q of the arm, q of target
    played: list[int] = []
    left_out, unseen = 0, 0.0
    for place, event in enumerate(events):
        if event.kind == "ask" and event.period in final:
            assert event.arm is not None and event.propensity is not None
            means = _means(state)
            shares = fixed if plan is None else decide(plan, state).shares
            assert shares is not None
            if set(np.flatnonzero(shares)) <= set(state.open_arms):
                shares, reward = shares[: len(means)], final[event.period]
                assert reward is not None
                weight = float(shares[event.arm]) / event.propensity
                rows.append((weight, reward, float(means[event.arm]), float(shares @ means)))
                played.append(event.arm)
                unseen += 0.0 if made_by is None else _out_of_reach(made_by, state, shares)
            else:
                left_out += 1
        if event.kind == "correct":  # the past is another one from here on
            state = fold(start, events[: place + 1], library)
        else:
            state.apply(event)
    if len(rows) < 2:
        raise ValueError(
            f"an estimate needs two rewards at least, the log has {len(rows)}"
            + f" of decisions at which all arms of the target were open ({left_out} others)"
            * bool(left_out)
        )
    unseen /= len(rows)
    if unseen > 0:
        warnings.warn(
            f"{unseen:.1%} of what the target plays are arms that the log could not have played at "
            "that moment: an arm that no sampled future gave has probability 0 without a floor, "
            "and one that the money did not buy has it always. No estimate is unbiased then, and "
            'no interval covers it: "ips" counts those pulls as earning nothing, "snips" as '
            'much as the others, "dr" what was believed of them',
            stacklevel=3,
        )
    table = np.array(rows)
    spread = reward_sds(state.held.current())[played]
    squares = spread**2 + (_means(state)[played] - table[:, 2]) ** 2
    return _estimates(table, squares, left_out, unseen)


def _out_of_reach(plan: Plan, state: State, target: np.ndarray) -> float:
    """Probability of the target's arms that the log's own decision could not have played."""
    if set(np.flatnonzero(target)) <= set(state.affordable) and plan.floor > 0:
        return 0.0
    return float(target[decide(plan, state).shares[: len(target)] == 0].sum())


def _means(state: State) -> np.ndarray:
    if isinstance(state.held, HostBelief):
        _, xi, nu, _ = state.held.natural()
        return xi / nu
    return np.asarray(state.held.current().predictive_mean(), np.float64)


def _estimates(
    rows: Float[np.ndarray, "n 4"], squares: Float[np.ndarray, " n"], left_out: int, unseen: float
) -> dict[str, OffPolicy]:
    """squares: what is believed in the end of (reward - q of the arm)^2, before it was seen."""
    weight, reward, q_played, q_target = rows.T
    many = len(rows)
    plain = weight * reward
    robust = q_target + weight * (reward - q_played)

    total = weight.mean()

    # A few rewards that happen to be alike, as rare ones are, show no error. What was believed of
    # them does: if rightly, this is the error of the weighted rewards beyond it.
    believed = float(np.sqrt((weight**2 * squares).sum())) / many

    def error(terms: np.ndarray, least: float = 0.0) -> float:
        # A log that never played what the target plays tells nothing of it, nor of how far off the
        # estimate is: terms that are all 0 would make that 0.
        found = float(terms.std(ddof=1) / np.sqrt(many))
        return max(found, least) if total > 0 else float("nan")

    def spread(centre: float) -> float:
        # What rewards were beyond what was believed is uncorrelated with it: the errors add up.
        beyond, rest = weight * (reward - q_played), weight * (q_played - centre)
        return max(error(beyond + rest), math.hypot(error(beyond, believed), error(rest)))

    worth = float(weight.sum() ** 2 / (weight**2).sum()) if total > 0 else 0.0
    ratio = plain.mean() / total if total > 0 else float("nan")
    told = many, worth, left_out, unseen
    return {
        "ips": OffPolicy("inverse propensity", float(plain.mean()), spread(0.0), *told),
        "snips": OffPolicy("self-normalised", float(ratio), float(spread(ratio) / total), *told),
        "dr": OffPolicy("doubly robust", float(robust.mean()), error(robust, believed), *told),
    }
