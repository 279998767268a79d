"""Arrays of points on the host, as kernels like them."""

from __future__ import annotations

import math
from typing import Any, Final

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


def room_for_futures(
    arms: int, horizon: int, points: int
) -> tuple[Ints, Ints, Ints, Singles, Floats, Floats, Ints]:
    """Of each arm a point, its place, rewards drawn; the path, scale, trail and ends after each."""
    each = (arms, horizon + 1)
    point, place, drawn = np.zeros((3, arms), np.int64)
    path, ends = room((*each, points), np.float32), np.zeros((*each, 2), np.int64)
    return point, place, drawn, path, np.empty(each), np.empty(each), ends


def blocks(array: NDArray, axis: int, fill: str) -> NDArray:
    """The array with whole blocks of points: what is added is "zero", or as the "last" one."""
    more = -array.shape[axis] % BLOCK
    pad = [(0, more if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, pad) if fill == "zero" else np.pad(array, pad, mode="edge")


def finite_logs(likelihood: NDArray) -> Singles:
    """Logarithms on the host, of zero very low instead: they are multiplied by counts."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(likelihood), LEAST_LOG).astype(np.float32)
