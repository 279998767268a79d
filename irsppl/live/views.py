"""What an experiment shows of its state: tables of arms, counts, and why a decision was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irsppl.bandit import Bandit
from irsppl.live.decide import Choice, Plan, decide
from irsppl.live.journal import Event
from irsppl.live.models import Library
from irsppl.live.state import EXPIRED, PENDING, TOLD, State, fold


def _beliefs(state: State) -> tuple[np.ndarray, np.ndarray]:
    belief = state.held.current()
    return np.asarray(belief.predictive_mean(), float), np.asarray(belief.stated_sd(), float)


def arms(state: State) -> list[dict[str, Any]]:
    """One row per arm, retired ones included."""
    mean, sd = _beliefs(state)
    played, rewards = np.array(state.arms, int), np.array(state.rewards, float)
    rewarded = np.frombuffer(bytes(state.status), np.uint8) == TOLD
    known = np.bincount(played[rewarded], minlength=state.num_arms)
    earned = np.bincount(played[rewarded], rewards[rewarded], minlength=state.num_arms)
    return [
        {
            "arm": arm,
            "label": label,
            "open": state.open[arm],
            "pulls": int(state.counts[arm]),
            "pending": int(state.waiting[arm]),
            "told": int(known[arm]),
            "reward": float(earned[arm]),
            "mean": float(mean[arm]),
            "sd": float(sd[arm]),
        }
        for arm, label in enumerate(state.labels)
    ]


def status(state: State) -> dict[str, Any]:
    found = np.bincount(np.frombuffer(bytes(state.status), np.uint8), minlength=3)
    return {
        "horizon": state.horizon,
        "period": state.period,
        "remaining": state.remaining,
        "pending": int(found[PENDING]),
        "told": int(found[TOLD]),
        "expired": int(found[EXPIRED]),
        "reward": float(np.nansum(np.array(state.rewards, float))),
        "budget": state.budget,
        "events": state.seq,
        "arms": arms(state),
    }


def explanation(plan: Plan, then: State, event: Event) -> dict[str, Any]:
    """Why the decision `event` was made in the state `then`, with the decision drawn once more."""
    assert event.arm is not None
    choice = decide(plan, then)
    mean, sd = _beliefs(then)
    return {
        "asked_at": event.at,
        "remaining": then.remaining,
        "replayed": choice.arm == event.arm and choice.propensity == event.propensity,
        "random": {
            "seed": plan.seed,
            "period": then.period,
            "futures": len(choice.drawn),
            "drawn": choice.drawn.tolist(),
            "uniform": choice.uniform,
        },
        "arms": [
            {name: row[name] for name in ("label", "open", "mean", "sd", "pulls", "pending")}
            | {"probability": float(share)}
            for row, share in zip(arms(then), choice.shares, strict=True)
        ],
        "told": _why(choice, then, event.arm, mean, sd),
    }


def reasons(
    plan: Plan, start: Bandit, events: Sequence[Event], last: int, library: Library
) -> dict[int, str]:
    """Why each of the last decisions was made, by period: one walk through the journal."""
    asked = [event for event in events if event.kind == "ask"][-last:]
    if not asked:
        return {}
    begin = asked[0].seq
    then, words = fold(start, events[:begin], library), {}
    for place in range(begin, len(events)):
        event = events[place]
        if event.kind == "ask":
            assert event.arm is not None and event.period is not None
            words[event.period] = _why(decide(plan, then), then, event.arm, *_beliefs(then))
        if event.kind == "correct":  # the past is another one from here on
            then = fold(start, events[: place + 1], library)
        else:
            then.apply(event)
    return words


def _why(choice: Choice, then: State, arm: int, mean: np.ndarray, sd: np.ndarray) -> str:
    label = then.labels[arm]
    best = max(then.open_arms, key=lambda a: mean[a])
    text = (
        f"{label} was played with probability {choice.shares[arm]:.3g}: believed to pay "
        f"{mean[arm]:.4g} (s.d. {sd[arm]:.2g})"
    )
    if arm == best:
        return text + ", the most of all arms."
    drawn = np.mean(choice.drawn == arm)
    if drawn == 0:
        return text + f"; the floor gave it its turn, {then.labels[best]} was believed best."
    return (
        text + f", less than {then.labels[best]} ({mean[best]:.4g}), but in {drawn:.0%} of the "
        f"sampled futures trying it pays off within the {then.remaining} periods left."
    )
