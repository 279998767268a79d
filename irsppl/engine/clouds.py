"""Paths of a rule on a belief made of points, where rewards are many or clouds have to move.

Replications advance together (`irsppl.engine.lockstep`); what that does not know of the user's
model is asked for all of them at once (`irsppl.engine.answers`). Groups have one fixed size, short
ones are padded, and a cloud's random numbers come from its replication's own seed: no chunking of a
simulation changes what a replication does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from irsppl._settings import settings, under
from irsppl.beliefs import MoveState, batch, parts_of, too_few
from irsppl.engine import renewal
from irsppl.engine.answers import TOGETHER, answers, ask, padded, rows, words
from irsppl.engine.families import cloud
from irsppl.engine.families.starts import Start
from irsppl.engine.lockstep import (
    ASKS_DENSITY,
    ASKS_MOVE,
    DONE,
    Inbox,
    Stage,
    advance,
    begin,
    moved,
    take_in_rows,
)
from irsppl.engine.situation import Situation
from irsppl.policies.paths import Played

# Below this share of its points, in effective sample size, a cloud is moved. New points begin with
# about 0.8; moving them sooner than this did not bring Thompson sampling any closer to a dense grid
# (`benchmarks/thompson_grid.py`).
_LEAST_ESS = 0.3
# Replications side by side: clouds that move have tables of their own, of so many bytes in all.
_TABLE_BYTES = 192 * 2**20
_TOGETHER = (16, 32, 64, 128, 256)
# Rewards of a cloud are kept in room for a power of two, so that horizons share programs.
_LEAST_ROOM = 128


def played(
    make: Callable[[], CloudPlay],
    limits_of: Callable[[slice], Any],
    state: Situation,
    rewards: np.ndarray,
    periods: np.ndarray,
    seeds: np.ndarray,
    threads: int,
) -> Played:
    """All replications, group by group: rewards [S, K, N], periods [S], seeds [S].

    limits_of: the limits of some of the replications.
    """
    idle = [make()]
    size = idle[0].together
    groups = [slice(i, i + size) for i in range(0, seeds.size, size)]
    threads = max(1, min(threads, len(groups)))
    idle += [make() for _ in range(1, threads)]
    given = settings()

    def one(group: slice) -> Any:
        play = idle.pop()
        with under(given):
            made = play.group(limits_of(group), state, rewards[group], periods[group], seeds[group])
        idle.append(play)
        return made

    if threads == 1:
        parts = [one(group) for group in groups]
    else:
        pool = ThreadPoolExecutor(threads, "irsppl")
        try:
            parts = list(pool.map(one, groups))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    arms, ess, poor = (np.concatenate(field) for field in zip(*parts, strict=True))
    return Played(arms, ess, poor)


class CloudPlay:
    """Plays a rule; belongs to one thread at a time. Made anew for each call of `paths`."""

    def __init__(
        self,
        start: Start,
        rule: Any,
        room: int,
        horizon: int,
        separable: bool,
    ):
        """room: most rewards that the bandit can still see; horizon: of futures within plans."""
        self.start, self.rule = start, rule
        arms, atoms, _ = start.tables.mass.shape
        size = start.weights.shape[1]
        self.together = _TOGETHER[-1]
        if start.moving:
            own = arms * atoms * size * (16 if start.held.joint else 12)
            fits = [n for n in _TOGETHER if n * own <= _TABLE_BYTES]
            self.together = fits[-1] if fits else _TOGETHER[0]
        count, clouds = self.together, len(start.weights)
        kind = (start.moving, start.held.smooth, start.held.joint, separable)
        self.clouds: Any = cloud.make_clouds(start.tables, count, horizon, *kind)
        kept = max(_LEAST_ROOM, int(np.max(start.seen, initial=0)) + room)
        self.kept = 1 << (kept - 1).bit_length()
        self.stage = Stage(
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros((count, 4), np.uint64),
            np.zeros(count, np.int64),
            np.zeros(count),
            np.zeros((count, clouds, self.kept)),
            np.zeros((count, clouds, self.kept), np.int64),
            np.zeros((count, clouds), np.int64),
            np.ones((count, clouds)),
            np.zeros(count),
        )
        self.inbox = Inbox(
            np.zeros((count, room + 1), np.int64),
            np.zeros((count, room + 1)),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(2, np.int64),
        )
        self.row = np.zeros(size)
        held = start.held
        self.start_z = [
            np.array(ask(batch.unconstrained, model, own))
            for model, own in zip(held.models, held.params, strict=True)
        ]
        given = held.models, held.groups, held.params, self.start_z
        self.models, self.rows = answers(*given, count, held.dtype)
        # Of each cloud its model, and its place among the clouds of that.
        self.member, self.place = np.zeros((2, clouds), np.int64)
        for g, group in enumerate(start.held.groups):
            self.member[list(group)], self.place[list(group)] = g, range(len(group))

    def group(
        self,
        limits: Any,
        state: Situation,
        rewards: np.ndarray,
        periods: np.ndarray,
        seeds: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As many replications as `together`, or fewer: arms [S, T], ess, poor."""
        start, stage, count = self.start, self.stage, seeds.size
        short = self.together - count
        self.seeds = np.pad(np.asarray(seeds, np.uint64), (0, short))
        self._begin(count)
        actions = np.full((self.together, state.size), -1, np.int16)
        rewards = np.pad(rewards, ((0, short), (0, 0), (0, 0)))
        periods = np.pad(periods, (0, short))
        enough = _LEAST_ESS * start.part.shape[1] if start.moving else 0.0
        parts, work = (self.rule, self.clouds, limits), (self.rows, self.row)
        now = (state.period, state.remaining, state.counts, state.waiting)
        while True:
            advance(parts, stage, self.inbox, work, enough, now, rewards, periods, actions)
            if np.all(stage.status == DONE):
                least, poor = stage.least[:count].copy(), self.poor[:count]
                return actions[:count], least, poor | too_few(least, start.part.shape[1])
            self._for_each_group(ASKS_DENSITY, lambda g, who: self._weigh(g, who, enough))
            self._for_each_group(ASKS_MOVE, self._move)

    def _begin(self, count: int) -> None:
        start, stage = self.start, self.stage
        begin(self.clouds, stage, self.inbox, start.weights, self.seeds, count)
        for model in self.models:
            model.begin()
        self.z = [self._repeated(z) for z in self.start_z]
        self.part = self._repeated(start.part)
        every: list[Any] = [np.tile(x, (self.together, 1)) for x in start.move_state]
        self.move_state = MoveState(*every)
        self.number = np.zeros(self.together, np.int64)
        self.poor = np.zeros(self.together, bool)
        old = min(start.rewards.shape[1], self.kept)
        stage.record[:, :, :old] = start.rewards[None, :, :old]
        stage.record_arms[:, :, :old] = start.arms[None, :, :old]
        for c, g in enumerate(self.member):  # padded with a possible reward
            stage.record[:, c, old:] = start.held.models[g].support.inside
        stage.record_arms[:, :, old:] = 0
        stage.seen[:] = start.seen[None]
        stage.inflation[:] = start.move_state.inflation[None]
        sizes = 1.0 / np.sum(start.weights**2, axis=1)
        stage.least[:] = np.min(sizes / start.move_state.inflation)

    def _repeated(self, leaf: np.ndarray) -> np.ndarray:
        """A copy for each replication."""
        return np.broadcast_to(leaf, (self.together, *leaf.shape)).copy()

    def _for_each_group(self, status: int, answer: Callable[[int, np.ndarray], None]) -> None:
        asking = np.flatnonzero(self.stage.status == status)
        if not asking.size:
            return
        groups = self.member[self._cloud_of(asking)]
        for g in range(len(self.start.held.models)):
            who = asking[groups == g]
            if who.size:
                answer(g, who)

    def _cloud_of(self, who: np.ndarray) -> np.ndarray:
        return np.zeros(who.size, np.int64) if self.start.held.joint else self.stage.arm[who]

    def _places(self, who: np.ndarray) -> np.ndarray:
        return self.place[self._cloud_of(who)]

    def _weigh(self, g: int, who: np.ndarray, enough: float) -> None:
        """Densities of the rewards that these replications bring in."""
        rewards, arms = self.stage.reward[who], self.stage.arm[who]
        logs = self.models[g].densities(who, self._places(who), rewards, arms)
        take_in_rows(self.clouds, self.stage, who, logs, self.row, enough)

    def _move(self, g: int, who: np.ndarray) -> None:
        """New points: by importance sampling where that does, else by MCMC."""
        if not self.start.held.models[g].has_discrete:
            made, good = renewal.renew(self.models[g], self._asked(g, who))
            if good.any():
                part = parts_of(self.start.part.shape[1])
                self._settle(g, who[good], rows(made, good), part, np.ones(good.sum()))
            who = who[~good]
        for i in range(0, who.size, TOGETHER):
            self._walk(g, who[i : i + TOGETHER])

    def _asked(self, g: int, who: np.ndarray) -> renewal.Asked:
        stage, clouds, own = self.stage, self.clouds, self._cloud_of(who)
        points, dtype = self.start.part.shape[1], self.move_state.inflation.dtype
        return renewal.Asked(
            self.z[g][who, self._places(who)],
            clouds.weights[who, own, :points],
            clouds.new[who, :points],
            stage.record[who, own].astype(dtype),
            stage.record_arms[who, own].astype(np.int32),
            stage.seen[who, own].astype(np.int32),
            self.seeds[who],
            self.number[who],
        )

    def _walk(self, g: int, who: np.ndarray) -> None:
        """Resampled and moved by MCMC, in a call of one size."""
        model, size = self.start.held.models[g], who.size
        full = padded(who, TOGETHER)
        own, asked = self._cloud_of(full), self._asked(g, full)
        with np.errstate(divide="ignore"):
            logs = np.log(asked.before).astype(self.move_state.inflation.dtype)
        given: Any = (
            self.models[g].params(full, self._places(full), asked.z),
            logs,
            self.part[full, own].astype(np.int32),
            *asked[3:6],
            MoveState(*(x[full, own] for x in self.move_state)),
            words(asked.seeds),
            asked.number.astype(np.int32),
        )
        moved = ask(batch.move, model, batch.CloudBatch(*given), np.int32(size))
        z = ask(batch.unconstrained, model, moved.params)
        z, moved = rows((z, moved), slice(size))
        for kept, new in zip(self.move_state, moved.move_state, strict=True):
            kept[who, own[:size]] = new
        self.poor[who] |= moved.poor.any(axis=1)
        weights = np.exp(moved.log_weights.astype(np.float64))
        weights /= weights.sum(axis=1, keepdims=True)
        made = renewal.Renewed(moved.params, z, moved.mu, weights)
        inflation = np.maximum(moved.move_state.inflation.astype(np.float64), 1.0)
        self._settle(g, who, made, np.sort(parts_of(logs.shape[1])), inflation)

    def _settle(
        self, g: int, who: np.ndarray, made: renewal.Renewed, part: np.ndarray, inflation: Any
    ) -> None:
        """New points of the clouds that these replications asked for, and their tables."""
        clouds, own, places = self.clouds, self._cloud_of(who), self._places(who)
        part = np.broadcast_to(part, made.weights.shape)
        if not self.start.held.joint:
            if np.any(made.mu[:, 1:, 0] < made.mu[:, :-1, 0]):
                order = np.argsort(made.mu[:, :, 0], axis=1, kind="stable")
                at = np.arange(who.size)[:, None], order
                made, part = jax.tree.map(lambda leaf: leaf[at], (made, part))
            first = who[clouds.slot[who] == 0] + 1
            for array in (clouds.mu, clouds.mu32, clouds.likelihood, clouds.law, clouds.logs):
                array[first] = array[0]
        self.number[who] += 1
        self.models[g].settle(who, places, made.z, made.params)
        self.z[g][who, places], self.part[who, own] = made.z, part
        self.move_state.inflation[who, own] = inflation
        clouds.slot[who] = who + 1
        mu = np.moveaxis(made.mu, 2, 1)
        cloud.place(clouds, who + 1, self.stage.arm[who], mu, self._laws(g, who, made))
        moved(clouds, self.stage, who, made.weights, inflation)

    def _laws(self, g: int, who: np.ndarray, made: renewal.Renewed) -> np.ndarray:
        """Probabilities of rewards [B, K, R, N] for plans."""
        atoms = self.start.atoms
        if not atoms:
            return np.zeros((who.size, made.mu.shape[2], 0, made.mu.shape[1]), np.float32)
        weights = made.weights.astype(self.move_state.inflation.dtype)
        number = np.uint64(2**31) + self.number[who].astype(np.uint64)
        seeds = (self.seeds[who] << np.uint64(32)) | number
        return self.models[g].laws(who, self._places(who), made.z, weights, seeds, atoms)
