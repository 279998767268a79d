"""Beliefs of the natural families as kernels take them."""

import numpy as np


def as_rows(xi, nu, noise_sd, shape):
    """The three belief arrays as contiguous float64 of ``shape``."""
    given = (np.asarray(v, np.float64) for v in (xi, nu, noise_sd))
    return tuple(np.ascontiguousarray(np.broadcast_to(v, shape)) for v in given)
