"""Arrays of points on the host, as kernels like them."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine.families.weights import BLOCK, LEAST_LOG
from irsppl.inner.arrays import Floats, Ints, Singles

_LINE: Final = 64  # bytes of a cache line


def room(shape: Any, dtype: Any = np.float64) -> NDArray:
    """An array without contents that begins with a cache line.

    NumPy's own begin anywhere. Where every other load reaches over the end of a line, a pass over
    points takes up to a third longer.
    """
    size = math.prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
    raw = np.empty(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def lined_up(array: Any) -> NDArray:
    """The same where `room` puts it."""
    made = room(array.shape, array.dtype)
    made[...] = array
    return made


class Work(NamedTuple):
    """Work arrays of points, and rewards that are many. K arms, N points, R reward atoms."""

    tallies: Ints  # [R]
    scores: Singles  # [N]
    # Each arm's future: point, rewards drawn, weights after each of them, 1 / their sum, means.
    point: Ints  # [K]
    place: Ints  # [K] of the point among the arm's points in order of their means
    drawn: Ints  # [K]
    path: Singles  # [K, T + 1, N]
    scale: Floats  # [K, T + 1]
    trail: Floats  # [K, T + 1]
    ends: Ints  # [K, T + 1, 2]: the stretch that counts, which narrows
    # Where rewards are many, they come as places on curves of log-likelihoods, or as rows of their
    # own (`irsppl.engine.families.curves`); atoms then serve plans only.
    curves: Singles  # [K, G or 0, N]
    exact: Singles  # [B, N]


def work_arrays(arms: int, horizon: int, points: int, atoms: int) -> Work:
    """For futures of T rewards."""
    each = (arms, horizon + 1)
    return Work(
        room(atoms, np.int64),
        room(points, np.float32),
        lined_up(np.zeros(arms, np.int64)),
        lined_up(np.zeros(arms, np.int64)),
        lined_up(np.zeros(arms, np.int64)),
        room((*each, points), np.float32),
        room(each),
        room(each),
        lined_up(np.zeros((*each, 2), np.int64)),
        room((arms, 0, points), np.float32),
        room((0, points), np.float32),
    )


def blocks(array: NDArray, axis: int, fill: str) -> NDArray:
    """The array with whole blocks of points: what is added is "zero", or as the "last" one."""
    more = -array.shape[axis] % BLOCK
    pad = [(0, more if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, pad) if fill == "zero" else np.pad(array, pad, mode="edge")


def likelihoods(law: NDArray) -> tuple[Floats, Singles, Floats]:
    """From probabilities [K, N, R]: rows by atom [K, R, N], their logarithms, sums along R.

    Only ratios between points matter: the largest of a row is 1, which keeps weights in range.
    """
    by_atom = np.ascontiguousarray(np.moveaxis(law, 1, 2))
    top = by_atom.max(axis=2, keepdims=True)
    scaled = by_atom / np.where(top > 0, top, 1.0)
    return scaled, finite_logs(scaled), np.cumsum(law, axis=2)


def finite_logs(likelihood: NDArray) -> Singles:
    """Logarithms on the host, of zero very low instead: they are multiplied by counts."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(likelihood), LEAST_LOG).astype(np.float32)
