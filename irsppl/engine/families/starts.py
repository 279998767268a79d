"""Beliefs of points on the host: how play of them begins, and single decisions with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from irsppl._checks import host64
from irsppl.beliefs import (
    Cloud,
    JointPoints,
    MoveState,
    PointBelief,
    Points,
    RewardTables,
    batch,
    num_parts,
    thin,
)
from irsppl.beliefs.particles import JointParticles, Particles
from irsppl.beliefs.quadrature import Quadrature
from irsppl.engine.families import cloud
from irsppl.engine.families.curves import Arm, Curves, curves
from irsppl.engine.families.joint import joint_points
from irsppl.engine.families.points import points
from irsppl.engine.families.registry import Maker, makes

# Reward atoms of plans, where rewards may take infinitely many values. A cloud that moves draws
# them anew from what it then expects, and can do with fewer.
ATOMS = 256
_MOVING_ATOMS = 32
# A cloud that can move needs fewer points than one that cannot: a simulation takes a share of them,
# but no fewer than so many.
_SHARE, _LEAST = 1 / 4, 256


class Held(NamedTuple):
    """Weighted points. C clouds: one per arm, or a single one for all."""

    joint: bool
    smooth: bool  # standing for a density (see `points.Points`)
    models: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...]  # which clouds are of each model
    params: tuple[dict[str, np.ndarray], ...]  # [clouds of the model, M, ...]
    weights: np.ndarray  # [C, M]
    mu: np.ndarray  # [K, M]
    dtype: np.dtype


class Start(NamedTuple):
    """Where play begins. N: M points in whole blocks."""

    held: Held
    tables: cloud.Tables
    weights: np.ndarray  # [C, N]
    atoms: int  # R where plans draw from atoms, -1 where rewards are few, 0 where no plan draws
    moving: bool
    part: np.ndarray  # [C, M], and all below: what moves need
    rewards: np.ndarray  # [C, B] seen so far
    arms: np.ndarray  # [C, B]
    seen: np.ndarray  # [C]
    move_state: MoveState  # [C] each


def start_of(belief: Any, needs: frozenset[str]) -> Start | None:
    """How paths begin where only the user's model can say what a reward does to the belief.

    None where fixed tables say all (`Points`). needs: what the rule asks; one that draws no rewards
    needs no tables of atoms.
    """
    many, moving = _has_many(belief), isinstance(belief, Cloud) and belief.moving
    if not many and not moving:
        return None
    held = _held(belief)
    atoms = (_MOVING_ATOMS if moving else ATOMS) if _plans(needs) else 0
    atoms = atoms if many else -1
    clouds, count = held.weights.shape
    if not moving:
        nothing, one = np.zeros((clouds, 0)), cast(Any, np.ones(clouds))
        zero, move_state = np.zeros(clouds, np.int64), MoveState(one, one, one)
        part, weights = np.zeros((clouds, count), np.int64), _in_blocks(held.weights)
        tables = _tables(held, atoms)
        return Start(held, tables, weights, atoms, False, part, nothing, nothing, zero, move_state)
    lead = (lambda x: np.asarray(x)[None]) if held.joint else np.asarray
    part, chosen = lead(belief.part), None
    if count > _LEAST:
        size = max(_LEAST, int(_SHARE * count))
        part = part % num_parts(size)
        heights = held.mu.mean(axis=0, keepdims=True) if held.joint else held.mu
        chosen = thin(held.weights, part, heights, size)
        held, part = _taken(held, chosen), np.take_along_axis(part, chosen, axis=1)
    tables = _few(belief, held, chosen) if atoms < 0 else _tables(held, atoms)
    rewards = lead(belief.rewards)
    return Start(
        held,
        tables,
        _in_blocks(held.weights),
        atoms,
        True,
        part,
        rewards,
        lead(belief.arms) if held.joint else np.zeros(rewards.shape),
        lead(belief.seen),
        MoveState(*cast(Any, (lead(belief.inflation), lead(belief.step), lead(belief.acceptance)))),
    )


def _plans(needs: frozenset[str]) -> bool:
    """Whether a rule draws rewards."""
    return bool(needs - {"means", "quantile", "gain"})


def _held(belief: Any) -> Held:
    joint = not belief.is_independent
    lead = (lambda x: np.asarray(x)[None]) if joint else np.asarray
    params = (belief.params,) if joint else belief.params
    weights = np.exp(np.asarray(lead(belief.log_weights), np.float64))
    mu = np.asarray(belief.mu, np.float64)
    return Held(
        joint,
        isinstance(belief, Quadrature) or (isinstance(belief, Cloud) and belief.moving),
        tuple(model for model, _ in belief.parts),
        ((0,),) if joint else tuple(map(tuple, belief.groups)),
        tuple({name: lead(leaf) for name, leaf in own.items()} for own in params),
        weights / weights.sum(axis=1, keepdims=True),
        mu.T if joint else mu,
        np.asarray(belief.log_weights).dtype,
    )


def _taken(held: Held, chosen: np.ndarray) -> Held:
    """Only the chosen points [C, m] of each cloud, equally weighted."""

    def gather(leaf: np.ndarray, own: np.ndarray) -> np.ndarray:
        return np.stack([row[points] for row, points in zip(leaf, own, strict=True)])

    params = tuple(
        {name: gather(leaf, chosen[list(group)]) for name, leaf in own.items()}
        for own, group in zip(held.params, held.groups, strict=True)
    )
    rows = np.broadcast_to(chosen, (len(held.mu), chosen.shape[1]))
    return held._replace(
        params=params,
        weights=np.full(chosen.shape, 1.0 / chosen.shape[1]),
        mu=np.take_along_axis(held.mu, rows, axis=1),
    )


def _in_blocks(weights: np.ndarray) -> np.ndarray:
    """Weights [C, M] with points that weigh nothing."""
    return np.pad(weights, ((0, 0), (0, cloud.whole_blocks(weights.shape[1]) - weights.shape[1])))


def _few(belief: Any, held: Held, chosen: np.ndarray | None) -> cloud.Tables:
    """Tables where rewards are few, of the chosen points [C, M]."""
    found = belief.reward_tables()
    mass = np.moveaxis(found.likelihood, 1, 0) if held.joint else found.likelihood  # [K, N, R]
    if chosen is not None:
        rows = np.broadcast_to(chosen, held.mu.shape)
        mass = np.take_along_axis(mass, rows[:, :, None], axis=1)
    return cloud.Tables(held.mu, np.moveaxis(mass, 1, 2), np.asarray(found.values, np.float64))


def _tables(held: Held, atoms: int) -> cloud.Tables:
    """Tables of atoms that stand for rewards that are many."""
    arms, points = held.mu.shape
    mass = np.zeros((arms, atoms, points), np.float32)
    for model, group, own in zip(held.models, held.groups, held.params, strict=True):
        for place, c in enumerate(group):
            if atoms:
                one = {name: leaf[place : place + 1] for name, leaf in own.items()}
                weights = held.weights[c : c + 1].astype(held.dtype)
                seeds = np.array([[0, c]], np.uint32)
                made = np.asarray(batch.laws(model, atoms, one, weights, seeds, np.int32(1)))
                mass[slice(None) if held.joint else slice(c, c + 1)] = made[0]
    return cloud.Tables(held.mu, mass, np.zeros((arms, 0)))


# ------------------------------------------------------------------ points that stay


# By points: a loop of decisions asks every time.
_KEPT: dict[Any, Any] = {}
_MOST_KEPT = 16


def _kept(held: Held, kind: str, make: Callable[[], Any]) -> Any:
    """What was made of these points, if it is remembered."""
    leaves = [leaf.tobytes() for own in held.params for leaf in own.values()]
    place = (kind, held.models, held.groups, held.mu.shape, *leaves)
    if place not in _KEPT:
        found = make()
        while len(_KEPT) >= _MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[place] = found
    return _KEPT[place]


def curves_of(belief: Any) -> Curves | None:
    """How rewards that are many are taken in by points that stay where they are, else None."""
    moving = isinstance(belief, Cloud) and belief.moving
    if moving or not _has_many(belief):
        return None
    held = _held(belief)
    return _kept(held, "curves", lambda: curves(_arms(held)))


def _planning_tables(belief: Any, needs: frozenset[str]) -> RewardTables:
    """Atoms that stand for rewards that are many, in the place of a finite belief's tables.

    needs: what the rule asks; for one that draws no rewards there is a single atom.
    """
    held = _held(belief)
    mass = np.ones((len(held.mu), 1, held.mu.shape[1]))
    if _plans(needs):
        found = _kept(held, "curves", lambda: curves(_arms(held)))
        mass = found.mass if found else _kept(held, "atoms", lambda: _tables(held, ATOMS).mass)
    weights = held.weights[0] if held.joint else held.weights
    law = np.moveaxis(mass, 2, 0 if held.joint else 1)
    return RewardTables(weights, law, np.zeros(mass.shape[:2]))


def _has_many(belief: Any) -> bool:
    """Whether it is of points, and rewards may take infinitely many values."""
    of_points = isinstance(belief, PointBelief)
    return of_points and any(model.reward_values is None for model, _ in belief.parts)


def _arms(held: Held) -> tuple[Arm, ...]:
    """What evaluates the densities of each arm."""
    found: list[Any] = [None] * len(held.mu)
    for model, group, own in zip(held.models, held.groups, held.params, strict=True):
        for place, c in enumerate(group):
            one = {name: leaf[place] for name, leaf in own.items()}
            for arm in range(len(held.mu)) if held.joint else (c,):
                found[arm] = Arm(model, one, arm if held.joint else None)
    return tuple(found)


# ---- parts for play from tables


@makes(Points, Quadrature, Particles, JointPoints, JointParticles)
def _(belief: PointBelief, needs: frozenset[str]) -> Maker | None:
    mu, tables = host64(belief.mu), functools.cache(lambda: _belief_tables(belief, needs))
    if belief.is_independent:
        smooth = isinstance(belief, Quadrature)
        return lambda horizon, _: points(*tables(), mu, horizon, smooth)
    if needs & {"path", "prefix"}:
        return None
    return lambda horizon, _: joint_points(*tables(), mu, horizon, "separable" in needs)


def _belief_tables(belief: PointBelief, needs: frozenset[str]) -> RewardTables:
    """`reward_tables`, remembered while the points stay where they are."""
    if _has_many(belief):
        return _planning_tables(belief, needs)
    weights = np.exp(host64(belief.log_weights))
    few = _kept(_held(belief), "few", belief.reward_tables)  # perhaps with other weights
    return few._replace(weights=weights / weights.sum(axis=-1, keepdims=True))
