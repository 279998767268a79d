"""Short names for the arrays that kernels take; what shape each has is said where it is used."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
