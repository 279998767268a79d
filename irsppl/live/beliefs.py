"""The belief of a running experiment: two numbers per arm on the host where these say all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from irsppl import beliefs
from irsppl._fields import changed
from irsppl.beliefs import Natural, Points
from irsppl.beliefs.quadrature import Quadrature, Record


class HostBelief:
    """Conjugate arms as sums and numbers of rewards, in float64: an update costs nothing."""

    def __init__(self, start: beliefs.Belief, sums: np.ndarray | None = None, seen: Any = None):
        self.start = start
        assert isinstance(start, beliefs.InKernels)
        self.family, self.xi, self.nu, self.noise = start.kernel_state()
        size = start.num_arms
        self.sums = np.zeros(size) if sums is None else np.array(sums, np.float64)
        self.seen = np.zeros(size) if seen is None else np.array(seen, np.float64)

    def update(self, arm: int, reward: float) -> None:
        self.sums[arm] += reward
        self.seen[arm] += 1

    def natural(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        return self.family, self.xi + self.sums, self.nu + self.seen, self.noise

    def current(self) -> beliefs.Belief:
        """The belief itself."""
        start, n, total = self.start, self.seen, self.sums
        if not n.any():
            return start

        if isinstance(start, beliefs.NormalNormal):
            nu = self.nu + n
            fields = {"mean": (self.xi + total) / nu, "sd": self.noise / np.sqrt(nu)}
        else:
            assert isinstance(start, Natural)
            added = start.added(total, n).items()
            fields = {name: np.asarray(getattr(start, name), float) + x for name, x in added}
        kept = {name: x.astype(getattr(start, name).dtype) for name, x in fields.items()}
        return changed(start, **{name: jnp.asarray(value) for name, value in kept.items()})

    def joined(self, more: beliefs.Belief) -> HostBelief:
        """With one more arm."""
        pad = np.zeros(more.num_arms)
        return HostBelief(
            joined(self.start, more), np.append(self.sums, pad), np.append(self.seen, pad)
        )

    def packed(self) -> dict[str, Any]:
        return {"start": self.start, "sums": self.sums, "told": self.seen}


class JaxBelief:
    """Any other belief, updated reward by reward in the order of the journal."""

    def __init__(self, belief: beliefs.Belief):
        self.belief = belief

    def update(self, arm: int, reward: float) -> None:
        self.belief = self.belief.update(arm, reward)

    def current(self) -> beliefs.Belief:
        return self.belief

    def joined(self, more: beliefs.Belief) -> JaxBelief:
        return JaxBelief(joined(self.belief, more))

    def packed(self) -> dict[str, Any]:
        return {"belief": self.belief}


Held = HostBelief | JaxBelief


def hold(belief: beliefs.Belief) -> Held:
    return HostBelief(belief) if isinstance(belief, beliefs.InKernels) else JaxBelief(belief)


def unpacked(kept: dict[str, Any]) -> Held:
    if "belief" in kept:
        return JaxBelief(kept["belief"])
    return HostBelief(kept["start"], kept["sums"], kept["told"])


# ---- arms that come and go


def joined(belief: beliefs.Belief, more: beliefs.Belief) -> beliefs.Belief:
    """The arms of both, where they are independent and of one conjugate family."""
    if type(belief) is not type(more):
        raise ValueError(
            f"an arm that is added must be of the experiment's own kind, "
            f"{type(belief).__name__}, got {type(more).__name__}"
        )
    if isinstance(belief, Points) and isinstance(more, Points):
        return _joined_points(belief, more)
    if not isinstance(belief, beliefs.Conjugate):
        raise ValueError(
            f"arms can be added where they are independent, not to {type(belief).__name__}: begin "
            "another experiment with all arms"
        )
    fields = {}
    for field in dataclasses.fields(belief):
        old, new = getattr(belief, field.name), getattr(more, field.name)
        if np.ndim(old) and len(old) == belief.num_arms and field.name != "values":
            if np.shape(old)[1:] != np.shape(new)[1:]:
                raise ValueError(
                    f"the added arm's {field.name} must have shape {np.shape(old)[1:]} per arm, "
                    f"got {np.shape(new)[1:]}"
                )
            fields[field.name] = jnp.concatenate([old, jnp.asarray(new, old.dtype)])
        elif not np.array_equal(old, new):
            raise ValueError(f"the added arm must have the {field.name} of the others")
    return changed(belief, **fields)


def restricted(belief: beliefs.Belief, arms: Sequence[int]) -> beliefs.Belief:
    """The belief of some of the arms; refused, with the reason, where they cannot be told apart."""
    if len(arms) == belief.num_arms:
        return belief
    rows = np.asarray(arms, int)
    if isinstance(belief, Points):
        return _restricted_points(belief, rows)
    if isinstance(belief, beliefs.LinearGaussian):
        names = ["features", "noise_sd", "offset"]
    elif isinstance(belief, beliefs.Conjugate):
        names = [f.name for f in dataclasses.fields(belief) if f.name != "values"]
    else:
        raise ValueError(
            f"arms can be retired where they are independent or linear Gaussian, not from "
            f"{type(belief).__name__}: begin another experiment without the arm"
        )
    return changed(belief, **{name: getattr(belief, name)[rows] for name in names})


# ---- NumPyro arms: rows of points, each arm in the group of its model


def _row_fields(belief: Points) -> list[str]:
    """Fields whose arrays have one row for each arm."""
    apart = ("params", "record", "key", "warned")
    known = [f.name for f in dataclasses.fields(belief) if not f.metadata.get("static")]
    return [name for name in known if name not in apart]


def _joined_points(belief: Points, more: Points) -> Points:
    if belief.kind != more.kind or belief.num_points != more.num_points:
        raise ValueError(
            f"an arm that is added must be represented as the others are, by {belief.num_points} "
            f"points of kind {belief.kind}, got {more.num_points} of kind {more.kind}: give "
            "representation= and num_particles="
        )
    fields = {
        name: _stacked(getattr(belief, name), getattr(more, name)) for name in _row_fields(belief)
    }
    if isinstance(belief, Quadrature) and isinstance(more, Quadrature):
        old, new = belief.record, more.record
        if old is not None and new is not None:
            fields["record"] = Record(
                _stacked(old.rewards, new.rewards),
                _stacked(old.times, new.times, 0.0),
                jnp.concatenate([old.seen, new.seen]),
            )
    last = belief.num_arms
    fields["groups"] = (*belief.groups, *(tuple(last + a for a in g) for g in more.groups))
    fields["models"] = (*belief.models, *more.models)
    fields["params"] = (*belief.params, *more.params)
    return changed(belief, **fields)


def _stacked(old: Any, new: Any, fill: float | None = None) -> Any:
    """Rows below each other; the narrower are filled up, with their last number or with `fill`."""
    old, new = jnp.asarray(old), jnp.asarray(new, old.dtype)
    if old.ndim > 1:
        wide = max(old.shape[1], new.shape[1])

        def widened(rows: Any) -> Any:
            short = ((0, 0), (0, wide - rows.shape[1]))
            if fill is None:
                return jnp.pad(rows, short, mode="edge")
            return jnp.pad(rows, short, constant_values=fill)

        old, new = widened(old), widened(new)
    return jnp.concatenate([old, new])


def _restricted_points(belief: Points, rows: np.ndarray) -> Points:
    fields = {name: getattr(belief, name)[rows] for name in _row_fields(belief)}
    if isinstance(belief, Quadrature) and (record := belief.record) is not None:
        fields["record"] = Record(record.rewards[rows], record.times[rows], record.seen[rows])
    place = {int(arm): i for i, arm in enumerate(rows)}
    groups, models, params = [], [], []
    for group, model, points in zip(belief.groups, belief.models, belief.params, strict=True):
        kept = [i for i, arm in enumerate(group) if arm in place]
        if kept:
            groups.append(tuple(place[group[i]] for i in kept))
            models.append(model)
            params.append({name: leaf[np.array(kept)] for name, leaf in points.items()})
    fields |= {"groups": tuple(groups), "models": tuple(models), "params": tuple(params)}
    return changed(belief, **fields)
