"""What play of clouds asks of a user's model, and who answers: kernels of its own, or XLA.

Play holds C clouds of a model in each of S replications. Both classes keep their points in whatever
form serves them, and answer alike, up to rounding; neither lets one cloud's answer depend on who
else asks.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from irsppl.beliefs import batch
from irsppl.engine.densities import Densities, transcribed
from irsppl.engine.families.weights import SUMS, largest
from irsppl.inner.arrays import Ints, Words
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.elementary import functions
from irsppl.inner.cpu.rng import KERNEL

# Clouds in one XLA call, always: one program, which no grouping can change.
TOGETHER: Final = 16
_exp = functions(np.float32)["exp"]


# Programs with loops that run at once in two threads can wait for each other for ever.
_one_program = threading.Lock()


def ask(program: Callable[..., Any], *given: Any) -> Any:
    """What an XLA program answers, as NumPy arrays."""
    with _one_program:
        return jax.tree.map(np.asarray, program(*given))


def rows(of: Any, which: Any) -> Any:
    """Some of the clouds."""
    return jax.tree.map(lambda leaf: leaf[which], of)


def words(seeds: Words) -> NDArray[np.uint32]:
    """Seeds [B] as keys of JAX, [B, 2]."""
    return np.stack([seeds >> np.uint64(32), seeds & np.uint64(2**32 - 1)], 1).astype(np.uint32)


def padded(who: np.ndarray, size: int) -> np.ndarray:
    """So many, the last one again and again."""
    return who[np.minimum(np.arange(size), who.size - 1)]


def in_calls(given: Any) -> Iterator[tuple[Any, int]]:
    """Arrays of all clouds cut into calls of one size, and how many of a call are not padding."""
    every = np.arange(len(jax.tree.leaves(given)[0]))
    for i in range(0, every.size, TOGETHER):
        own = every[i : i + TOGETHER]
        yield rows(given, padded(own, TOGETHER)), own.size


class Rows(NamedTuple):
    """What play itself needs to weigh a reward, of S replications of C clouds of N points."""

    addresses: Ints  # [C] of the models' kernels; 0: the model has none
    groups: Ints  # [C, k], and the next two: `Densities.tables`
    slots: Ints  # [C, k, w]
    constants: NDArray[np.floating]  # [C, k, v]
    features: NDArray[np.floating]  # [S, C, M, N]
    logs: NDArray[np.floating]  # [N], work


def answers(
    models: Any, groups: Any, params: Any, points_z: Any, copies: int, dtype: Any
) -> tuple[list[Answers], Rows]:
    """Who answers for each of several models, and what play can answer itself.

    groups: which clouds are of each; params [clouds of the model, N, ...]: where the points of all
    replications start; points_z [clouds, N, d]: the same in unconstrained space.
    """
    found = [transcribed(model, np.dtype(dtype)) for model in models]
    clouds, points = sum(map(len, groups)), len(jax.tree.leaves(params[0])[0][0])
    width = max((own.num_features for own in found if own), default=1)
    tables = [own.tables if own else _NO_TABLES for own in found]
    member = [next(g for g, group in enumerate(groups) if c in group) for c in range(clouds)]
    addresses = [own.address if own else 0 for own in found]
    kinds, slots, constants = (_stacked([tables[g][i] for g in member]) for i in range(3))
    rows = Rows(
        np.array([addresses[g] for g in member], np.int64),
        kinds,
        slots,
        constants.astype(dtype),
        np.zeros((copies, clouds, width, points), dtype),
        np.zeros(points, dtype),
    )
    made: list[Answers] = []
    for model, own, group, start, z in zip(models, found, groups, params, points_z, strict=True):
        if own is None:
            made.append(ByXla(model, start, copies, dtype))
        else:
            made.append(ByKernels(own, z, rows.features, np.array(group)))
    return made, rows


_NO_TABLES = np.zeros(1, np.int64), np.zeros((1, 1), np.int64), np.zeros((1, 1))


def _stacked(tables: Any) -> Any:
    """Tables of several clouds in one, with zeros where some are larger."""
    shape = np.max([table.shape for table in tables], axis=0)
    out = np.zeros((len(tables), *shape), tables[0].dtype)
    for to, table in zip(out, tables, strict=True):
        to[tuple(map(slice, table.shape))] = table
    return out


class Answers(abc.ABC):
    """A model's points in S replications. Clouds are named by their replications and places among
    the C, [B] each."""

    model: Any

    @abc.abstractmethod
    def begin(self) -> None:
        """All points where they start."""

    @abc.abstractmethod
    def settle(self, who: Ints, places: Ints, z: Any, params: Any) -> None:
        """New points of clouds, [B, N, ...], in both spaces, as `posteriors` or a move has them."""

    @abc.abstractmethod
    def params(self, who: Ints, places: Ints, z: Any) -> dict[str, np.ndarray]:
        """Points as the model calls them, [B, N, ...]; z: the same in unconstrained space."""

    @abc.abstractmethod
    def densities(self, who: Ints, places: Ints, rewards: Any, arms: Any) -> NDArray[np.floating]:
        """Log-densities [B, N] of one reward of each cloud at its points."""

    @abc.abstractmethod
    def posteriors(self, z: Any, rewards: Any, arms: Any, seen: Any) -> Any:
        """Of unconstrained points [B, N, d], given the first seen [B] of rewards [B, L]: a
        `batch.Weighed` of NumPy arrays, params empty where nobody needs them."""

    @abc.abstractmethod
    def laws(
        self, who: Ints, places: Ints, z: Any, weights: Any, seeds: Any, atoms: int
    ) -> NDArray[np.floating]:
        """Probabilities [B, K, R, N] of R rewards for plans (see `irsppl.beliefs.batch.laws`), at
        points z [B, N, d] that have been settled; weights [B, N], seeds [B]."""


class ByXla(Answers):
    """For any model."""

    def __init__(self, model: Any, params: dict[str, np.ndarray], copies: int, dtype: Any):
        self.model, self._start, self._copies = model, params, copies
        # Rewards have the precision of the latents.
        kinds = (leaf.dtype for leaf in params.values())
        self._dtype = next((kind for kind in kinds if np.issubdtype(kind, np.floating)), dtype)

    def begin(self) -> None:
        def copied(leaf: np.ndarray) -> np.ndarray:
            return np.broadcast_to(leaf, (self._copies, *leaf.shape)).copy()

        self._params = {name: copied(leaf) for name, leaf in self._start.items()}

    def settle(self, who: Ints, places: Ints, z: Any, params: Any) -> None:
        for name, leaf in params.items():
            self._params[name][who, places] = leaf

    def params(self, who: Ints, places: Ints, z: Any) -> dict[str, np.ndarray]:
        return {name: leaf[who, places] for name, leaf in self._params.items()}

    def densities(self, who: Ints, places: Ints, rewards: Any, arms: Any) -> NDArray[np.floating]:
        every = np.arange(who.size)
        full = padded(every, self._copies)
        given = self.params(who[full], places[full], None)
        numbers = rewards[full].astype(self._dtype), arms[full].astype(np.int32)
        return ask(batch.densities, self.model, given, *numbers)[: who.size]

    def posteriors(self, z: Any, rewards: Any, arms: Any, seen: Any) -> Any:
        parts = []
        for given, size in in_calls((z, rewards, arms, seen)):
            given[3][size:] = 0  # padding has seen nothing: it costs nothing
            parts.append(rows(ask(batch.posteriors, self.model, *given), slice(size)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def laws(
        self, who: Ints, places: Ints, z: Any, weights: Any, seeds: Any, atoms: int
    ) -> NDArray[np.floating]:
        parts = []
        for given, size in in_calls((self.params(who, places, z), weights, words(seeds))):
            made = ask(batch.laws, self.model, atoms, *given, np.int32(size))
            parts.append(made[:size])
        return np.concatenate(parts)


class ByKernels(Answers):
    """For models that could be transcribed. XLA draws rewards for plans where kernels cannot."""

    def __init__(self, own: Densities, z: NDArray[np.floating], features: Any, clouds: Ints):
        """features [S, C, M, N]: of all clouds, of which some are this model's."""
        self.model, self._own, self._clouds = own.model, own, clouds
        self._start, self._features = own.points(z).features, features

    def begin(self) -> None:
        self._features[:, self._clouds, : self._own.num_features] = self._start

    def settle(self, who: Ints, places: Ints, z: Any, params: Any) -> None:
        new = self._own.points(z).features
        self._features[who, self._clouds[places], : self._own.num_features] = new

    def params(self, who: Ints, places: Ints, z: Any) -> dict[str, np.ndarray]:
        return self._own.named(self._own.points(z))

    def densities(self, who: Ints, places: Ints, rewards: Any, arms: Any) -> NDArray[np.floating]:
        rewards = rewards[:, None]
        one = np.ones(who.size, np.int64)
        return self._rows(who, places, arms[:, None], rewards, one)[:, 0]

    def posteriors(self, z: Any, rewards: Any, arms: Any, seen: Any) -> Any:
        found: Any = self._own.points(z)
        own, every, kinds = self._own, np.arange(len(z)), self._own.kinds(arms, rewards)
        sums = own.rows(found.features, every, kinds, rewards, seen.astype(np.int64), True)[:, 0]
        logs = found.prior + sums
        logs[np.isnan(logs)] = -np.inf
        return batch.Weighed({}, found.mu, logs)

    def laws(
        self, who: Ints, places: Ints, z: Any, weights: Any, seeds: Any, atoms: int
    ) -> NDArray[np.floating]:
        arms = self.model.num_arms
        if atoms < 0:
            values = np.asarray(self.model.reward_values, weights.dtype)
            rewards = np.broadcast_to(values, (who.size, arms, values.size))
        else:
            chosen = np.empty((who.size, atoms), np.int64)
            _spread(weights, chosen)
            points = np.take_along_axis(z, chosen[:, :, None], axis=1)
            rewards = self._drawn(points, seeds)
        count = np.full(who.size * arms, rewards.shape[2], np.int64)
        flat = np.ascontiguousarray(rewards.reshape((-1, rewards.shape[2])))
        kinds = np.broadcast_to(np.tile(np.arange(arms), who.size)[:, None], flat.shape)
        own = np.repeat(who, arms), np.repeat(places, arms)
        logs = self._rows(*own, kinds, flat, count).astype(np.float32, copy=False)
        out = logs.reshape((who.size, arms, *logs.shape[1:]))
        _as_laws(
            out, weights.astype(np.float32, copy=False), atoms < 0, np.empty(z.shape[1], np.float32)
        )
        return out

    def _drawn(self, points: Any, seeds: Any) -> Any:
        """A reward of each arm at each of R points."""
        found = self._own.draws(points, seeds)
        if found is not None:
            return found
        parts = []
        for given, size in in_calls((points, words(seeds))):
            parts.append(ask(batch.reward_atoms, self.model, *given)[:size])
        return np.concatenate(parts)

    def _rows(self, who: Ints, places: Ints, arms: Any, rewards: Any, counts: Ints) -> Any:
        features = self._features.reshape((-1, *self._features.shape[2:]))
        which = who * self._features.shape[1] + self._clouds[places]
        return self._own.rows(features, which, self._own.kinds(arms, rewards), rewards, counts)


@njit(**KERNEL)
def _spread(weights: Any, out: Any) -> None:
    """For each cloud [B, N], points [B, R] that are spread evenly over its weights."""
    for b in range(out.shape[0]):
        total = 0.0
        for j in range(weights.shape[1]):
            total += weights[b, j]
        point, running = 0, np.float64(weights[b, 0])
        for r in range(out.shape[1]):
            level = (r + 0.5) / out.shape[1] * total
            while running < level and point < weights.shape[1] - 1:
                point += 1
                running += weights[b, point]
            out[b, r] = point


@njit(**SUMS)
def _row_as_shares(row: Any, top: Any, weights: Any) -> Any:
    """Likelihoods as shares of the largest; what is expected of them."""
    expected = np.float32(0.0)
    for j in range(row.size):
        fit = _exp(row[j] - top)
        row[j] = fit
        expected += fit * weights[j]
    return expected


@njit(**KERNEL)
def _as_laws(logs: Any, weights: Any, exact: bool, total: Any) -> None:
    """Log-densities [B, K, R, N] into probabilities, in place; total [N] is work.

    exact: they are all rewards that there are. Else an atom stands for 1 / R of what is expected.
    """
    for b in range(logs.shape[0]):
        for k in range(logs.shape[1]):
            total[:] = np.float32(0.0)
            for r in range(logs.shape[2]):
                row = logs[b, k, r]
                if exact:
                    for j in range(row.size):
                        row[j] = _exp(row[j])
                    continue
                top = largest(row)
                if not top > -np.inf:
                    row[:] = np.float32(0.0)
                    continue
                expected = _row_as_shares(row, top, weights[b])
                for j in range(row.size):
                    row[j] /= expected
                    total[j] += row[j]
            if exact:
                continue
            even = np.float32(1.0 / logs.shape[2])
            for r in range(logs.shape[2]):
                row = logs[b, k, r]
                for j in range(row.size):
                    # A point at which no atom is possible has no law: all alike.
                    row[j] = row[j] / total[j] if total[j] > 0.0 else even
