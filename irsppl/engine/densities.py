"""Densities of a user's model in kernels of its own: play of clouds asks these instead of XLA.

`Densities` holds two kernels for a model. `points` works out, from unconstrained latents, all that
depends on a point alone: its prior, its means, and features from which densities of rewards follow.
`row` works out those densities, of one reward at all points of a cloud; other kernels call it by
its address, and so need not be compiled for each model. Both are generated
(`irsppl.engine.transcribe`), and their text is what they are kept on disk by.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import jax
import numba
import numpy as np
from numba.extending import intrinsic

from irsppl.beliefs import batch
from irsppl.engine.transcribe import (
    CHANCE,
    POINT,
    REWARD,
    Key,
    Node,
    Program,
    Text,
    Untranscribable,
)
from irsppl.inner.cpu.compiling import address_of, from_text, njit
from irsppl.inner.cpu.rng import KERNEL

_HEADER: Final = """import math

import numpy as np

from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.elementary import functions
from irsppl.inner.cpu.rng import KERNEL

globals().update(functions("{dtype}"))
"""
# Products may be fused with sums; sums keep their order, on which logarithms rely.
_POINTS: Final = """
@njit(**KERNEL, fastmath={{"contract"}})
def points(z, constants, out):
    {start}
    for block in range(out.size // {size}):
        at, to = np.uint64(block * {read}), np.uint64(block * {size})
        for point in range({width}):
            j = np.uint64(point)
            {each}
"""
# Points at a time. What is worked out of them lies a fixed number of places apart, and places are
# unsigned: else the compiler would not see that nothing is overwritten, and not vectorise.
_WIDTH: Final = 32
_ROW: Final = """
@njit(**KERNEL, fastmath={"contract"})
def row(f, k, r, groups, slots, constants, to):
"""
_GROUP: Final = """    if groups[k] == {group}:
        {start}
        for j in range(to.size):
            {each}
"""
# Points at which kernels are compared with JAX, and how close they must be.
_TRIED: Final = 16
_CLOSE: Final = 1e-3
# Features are kept as floats.
_READ: Final = {"float": "{}", "int": "np.int64({})", "bool": "{} != 0"}
_DRAWN: Final = """
@njit(**KERNEL)
def drawn(z, seeds, rng, constants, out):
    {start}
    for b in range(seeds.size):
        random.seed_state(seeds[b], rng)
        for n in range(z.shape[1]):
            {each}
"""


class Weighed(NamedTuple):
    """What `Densities.points` says of points [B, N]."""

    features: np.ndarray  # [B, M, N]
    prior: np.ndarray  # [B, N] log-density of the unconstrained latents
    mu: np.ndarray  # [B, N, K]; K = 1 for separate arms
    latents: np.ndarray  # [B, P, N], one by one (`Densities.named`)


class Densities:
    """A model without discrete latents, in kernels. Rewards are of a kind: their arm, and where
    only few can be, which of them they are (`kinds`)."""

    def __init__(self, model: Any, dtype: np.dtype):
        self.model, self.dtype = model, dtype
        program = Program()
        z = np.empty(model.dim, object)
        z[:] = [program.leaf(f"z{i}", POINT) for i in range(model.dim)]
        reward = np.array(program.leaf("r", REWARD), object)
        arms: list[Any] = list(range(model.num_arms)) if model.joint else [None]
        self.values = model.reward_values

        def at_point(z: Any) -> Any:
            params = model.constrain(z)
            means = [model.mean(params, arm) for arm in arms]
            return model.log_prior_unconstrained(z), means, params

        def of_rewards(z: Any, reward: Any) -> Any:
            params = model.constrain(z)
            known = [reward] if self.values is None else [dtype.type(v) for v in self.values]
            return [model.log_likelihood(params, value, arm) for arm in arms for value in known]

        traced, shapes = jax.make_jaxpr(at_point, return_shape=True)(np.zeros(model.dim, dtype))
        prior, *rest = program.run(traced, z)
        means, latents = rest[: len(arms)], rest[len(arms) :]
        given = np.zeros(model.dim, dtype), dtype.type(0)
        logs = [x.item() for x in program.run(jax.make_jaxpr(of_rewards)(*given), z, reward)]

        def spread(node: Any) -> bool:  # worked out for each reward anew
            return isinstance(node, Node) and bool(node.level & REWARD)

        used = {x for node in program.nodes if spread(node) for x in node.args} | set(
            x for x in logs if isinstance(x, Node)
        )
        features = [n for n in program.nodes if n in used and n.level == POINT]
        flat = [x for leaf in latents for x in leaf.ravel()]
        self.num_features = max(len(features), 1)
        self._num_values = self.num_features + 1 + len(arms) + len(flat)
        self._shapes = {name: (s.shape, s.dtype) for name, s in shapes[2].items()}
        text = _HEADER.format(dtype=dtype.name)
        self.constants, code = _points_text(program, z, prior.item(), means, flat, features)
        text += code
        code, tables = _rows_text(program, reward.item(), features, logs)
        self.tables = (*tables[:2], tables[2].astype(dtype))
        self.constants = np.array(self.constants, dtype)
        made = from_text(text + code)
        self._points, self._row = made["points"], made["row"]
        number = numba.from_dtype(dtype)
        vector, integers = numba.types.Array(number, 1, "C"), numba.types.Array(numba.int64, 1, "C")
        matrix, places = numba.types.Array(number, 2, "C"), numba.types.Array(numba.int64, 2, "C")
        given_types = matrix, numba.int64, number, integers, places, matrix, vector
        self.address = address_of(self._row, given_types)
        self._drawn, self._drawn_constants = None, np.zeros(0)

        def rewards(z: Any, key: Any) -> Any:
            return [model.sample_reward(key, model.constrain(z), arm) for arm in arms]

        if self.values is None:
            with contextlib.suppress(Untranscribable):
                traced = jax.make_jaxpr(rewards)(given[0], jax.random.key(0))
                found = [x.item() for x in program.run(traced, z, np.array(Key(), object))]
                constants, code = _drawn_text(program, z, found)
                self._drawn = from_text(_HEADER.format(dtype=dtype.name) + code)["drawn"]
                self._drawn_constants = np.array(constants, dtype)

    def points(self, z: np.ndarray) -> Weighed:
        """z: unconstrained, [B, N, d]."""
        size = z.shape[:2]
        short = -size[1] % _WIDTH
        z = np.pad(z, ((0, 0), (0, short), (0, 0)), mode="edge") if short else z
        blocks = z.reshape((size[0], -1, _WIDTH, z.shape[2])).swapaxes(2, 3)
        out = np.empty((*blocks.shape[:2], self._num_values, _WIDTH), self.dtype)
        self._points(np.ascontiguousarray(blocks).reshape(-1), self.constants, out.reshape(-1))
        values = out.swapaxes(1, 2).reshape((size[0], self._num_values, -1))[:, :, : size[1]]
        ends = np.cumsum([self.num_features, 1, self.model.num_arms])
        features, prior, mu, latents = np.split(values, ends, axis=1)
        return Weighed(np.ascontiguousarray(features), prior[:, 0], np.moveaxis(mu, 1, 2), latents)

    def named(self, points: Weighed) -> dict[str, np.ndarray]:
        """Latents as the model calls them, [B, N, ...]."""
        found, start = {}, 0
        for name, (shape, dtype) in self._shapes.items():
            count = int(np.prod(shape, dtype=int))
            part = np.moveaxis(points.latents[:, start : start + count], 1, 2)
            found[name] = part.reshape((*part.shape[:2], *shape)).astype(dtype, copy=False)
            start += count
        return found

    def kinds(self, arms: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        """Of rewards, any shape; arms, where they are several, in one that fits."""
        kinds = np.zeros(rewards.shape, np.int64)
        if self.model.joint:
            kinds[:] = arms
        if self.values is None:
            return kinds
        which = np.abs(rewards[..., None] - self.values).argmin(axis=-1)
        return kinds * len(self.values) + which

    def draws(self, z: np.ndarray, seeds: np.ndarray) -> np.ndarray | None:
        """A reward of each arm at points [B, R, d]: [B, K, R]. None: only XLA can draw them."""
        if self._drawn is None:
            return None
        out = np.empty((len(z), self.model.num_arms, z.shape[1]), self.dtype)
        self._drawn(
            np.ascontiguousarray(z), seeds, np.zeros(4, np.uint64), self._drawn_constants, out
        )
        return out

    def rows(
        self,
        features: np.ndarray,
        which: np.ndarray,
        kinds: np.ndarray,
        rewards: np.ndarray,
        counts: np.ndarray,
        together: bool = False,
    ) -> np.ndarray:
        """Log-densities [B, L, N] of rewards [B, L], the first counts[B] of each, at the points of
        clouds which[B] among features [Q, M, N]; together: their sums [B, 1, N]."""
        shape = (which.size, 1 if together else rewards.shape[1], features.shape[2])
        if kinds.shape != rewards.shape or len(kinds) != len(which):
            raise ValueError(f"kinds {kinds.shape} must be those of rewards {rewards.shape}")
        out = np.zeros(shape, self.dtype)
        _add_rows(self.address, features, which, kinds, rewards, counts, self.tables, together, out)
        return out


@intrinsic
def add_row(typing, address, f, kind, reward, groups, slots, constants, to):  # type: ignore[no-untyped-def]
    """Calls the `row` of a model, which is data for its caller: one caller serves all models."""
    given = (f, kind, reward, groups, slots, constants, to)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args[1:]
        function = context.call_conv.get_function_type(numba.types.none, kinds)
        target = builder.inttoptr(args[0], function.as_pointer())
        context.call_conv.call_function(builder, target, numba.types.none, kinds, args[1:])
        return context.get_dummy_value()

    return numba.types.none(address, *given), code


@njit(**KERNEL)
def _add_rows(
    address: int,
    features: Any,
    which: Any,
    kinds: Any,
    rewards: Any,
    counts: Any,
    tables: Any,
    together: bool,
    out: Any,
) -> None:
    for b in range(which.size):
        f = features[which[b]]
        for n in range(counts[b]):
            to = out[b, 0 if together else n]
            reward = out.dtype.type(rewards[b, n])
            add_row(address, f, kinds[b, n], reward, tables[0], tables[1], tables[2], to)


def _points_text(
    program: Program, z: Any, prior: Any, means: Any, flat: Any, features: Any
) -> tuple[list[float], str]:
    text = Text({leaf: f"z{i}" for i, leaf in enumerate(z)})
    means = [mean.item() for mean in means]
    start = text.lines(program, [prior, *means, *flat, *features], 0)
    each = [f"z{i} = z[at + np.uint64({i * _WIDTH}) + j]" for i in range(len(z))]
    each += text.lines(program, [prior, *means, *flat, *features], POINT)
    values = [*(features or [0.0]), prior, *means, *flat]
    for i, x in enumerate(values):
        each.append(f"out[to + np.uint64({i * _WIDTH}) + j] = {text.value(x)}")
    start = [f"c{i} = constants[{i}]" for i in range(len(text.constants))] + start
    code = _POINTS.format(
        start=_block(start or ["pass"], 4),
        each=_block(each, 12),
        width=_WIDTH,
        read=len(z) * _WIDTH,
        size=len(values) * _WIDTH,
    )
    return text.constants, code


def _drawn_text(program: Program, z: Any, rewards: list[Any]) -> tuple[list[float], str]:
    text = Text({leaf: f"z{i}" for i, leaf in enumerate(z)})
    start = text.lines(program, rewards, 0)
    each = [f"z{i} = z[b, n, {i}]" for i in range(len(z))]
    each += text.lines(program, rewards, POINT | CHANCE)
    each += [f"out[b, {a}, n] = {text.value(x)}" for a, x in enumerate(rewards)]
    start = [f"c{i} = constants[{i}]" for i in range(len(text.constants))] + start
    code = _DRAWN.format(start=_block(start or ["pass"], 4), each=_block(each, 12))
    return text.constants, code


def _rows_text(program: Program, reward: Node, features: list[Node], logs: list[Any]) -> Any:
    """Code that adds the log-density of one reward r of kind k at each of a cloud's points to `to`.

    f [M, N]: features. Kinds with the same code are a group, and have their own slots, the features
    that they take, and constants.
    """
    place = {node: i for i, node in enumerate(features)}
    texts: dict[str, int] = {}
    groups, slots, constants = [], [], []
    for log in logs:
        own = [n for n in _taken(log) if n in place]
        text = Text({reward: "r", **{node: f"x{i}" for i, node in enumerate(own)}})
        start = text.lines(program, [log], REWARD)
        each = [f"x{i} = {_READ[node.kind].format(f'f{i}[j]')}" for i, node in enumerate(own)]
        each += [*text.lines(program, [log], POINT | REWARD), f"to[j] += {text.value(log)}"]
        head = [f"c{i} = constants[k, {i}]" for i in range(len(text.constants))]
        head += [f"f{i} = f[slots[k, {i}]]" for i in range(len(own))]
        start = _block([*head, *start] or ["pass"], 8)
        code = _GROUP.format(group="{group}", start=start, each=_block(each, 12))
        groups.append(texts.setdefault(code, len(texts)))
        slots.append([place[n] for n in own])
        constants.append(text.constants)
    code = _ROW + "".join(code.format(group=g) for code, g in texts.items())
    return code, (np.array(groups), _padded(slots, np.int64), _padded(constants, np.float64))


def _taken(log: Any) -> list[Node]:
    """The values that a density is made of, once each, in the order in which it takes them."""
    found: dict[Node, None] = {}
    left = [log]
    while left:
        node = left.pop()
        if isinstance(node, Node) and node not in found:
            found[node] = None
            if node.level & REWARD:
                left += reversed(node.args)
    return list(found)


def _padded(rows: list[list[Any]], dtype: Any) -> np.ndarray:
    out = np.zeros((len(rows), max(1, *map(len, rows))), dtype)
    for to, row in zip(out, rows, strict=True):
        to[: len(row)] = row
    return out


def _block(lines: Iterable[str], indent: int) -> str:
    return f"\n{' ' * indent}".join(lines)


@functools.lru_cache(64)
def transcribed(model: Any, dtype: np.dtype) -> Densities | None:
    """Kernels for a model; None where only XLA can work out its densities."""
    if model.has_discrete or not model.dim:
        return None
    try:
        own = Densities(model, dtype)
        return own if _agrees(own) else None
    except Exception:  # whatever a model brings with it that was not thought of: XLA answers
        return None


def _agrees(own: Densities) -> bool:
    """Whether kernels say what JAX says, at a few points: whatever JAX may come to mean by an
    operation, no wrong number passes."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(_TRIED, own.model.dim)).astype(own.dtype)
    if own.values is None:
        rewards = own.model.support.inside + rng.normal(size=_TRIED) * np.arange(_TRIED)
    else:
        rewards = np.resize(own.values, _TRIED)
    rewards = rewards.astype(own.dtype)
    prior, mu, logs = map(np.asarray, batch.at_points(own.model, z, rewards))
    found, arms = own.points(z[None]), own.model.num_arms
    which = np.zeros(arms, np.int64)
    given = np.broadcast_to(rewards, (arms, _TRIED))
    kinds = own.kinds(np.arange(arms)[:, None], given)
    rows = own.rows(found.features, which, kinds, given, np.full(arms, _TRIED))  # [K, L, N]
    own_logs = np.diagonal(rows, axis1=1, axis2=2).T
    pairs = (found.prior[0], prior), (found.mu[0], mu), (own_logs, logs)
    return all(np.allclose(a, b, rtol=_CLOSE, atol=_CLOSE) for a, b in pairs)
