"""Random numbers for the CPU kernels: one independent stream per replication.

A stream is a ``uint64[4]`` array, the state of a xoshiro256++ generator, which every function
below takes as its first argument and advances in place.  A replication's stream is seeded from
one ``uint64`` by :func:`seed_state`, and :func:`streams` derives those seeds from a key, a label
and the replication's number alone.  Splitting a batch into chunks, or running the chunks on
several threads, therefore changes no draw.

Every sampler is exact up to floating point: no normal approximation, no truncated support.
"""

import math
from typing import Any, Final

import numpy as np
from numba.core.options import DefaultOptions
from numpy.typing import NDArray

from irsppl.inner.arrays import Words
from irsppl.inner.cpu.compiling import njit

KERNEL: Final[dict[str, Any]] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
"""Options of every kernel that allocates nothing: pass as ``njit(**KERNEL)``.

The numpy error model leaves out the test for a zero divisor, which would stop vectorisation. No
kernel is called from C, and a wrapper for that would take time to compile.
Where numba has the (private) switch, reference counts are left out too: a function that takes an
array and contains a loop otherwise pays two atomic operations a call, which made the samplers
below two to seven times slower.  The owner of the arrays must be a caller that counts, so a
function that creates an array cannot use these options.
"""
if hasattr(DefaultOptions, "_nrt"):
    KERNEL["_nrt"] = False
# What inlined code calls is inlined with it. Within a function that long, tight loops lose
# registers, and what is rarely reached only takes time to compile: these stay on their own.
APART: Final = {**KERNEL, "forceinline": False}

# numba promotes uint64 with a signed literal to float64, so every constant that meets a uint64
# must be a uint64 itself.
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_A: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B: Final = np.uint64(0x94D049BB133111EB)
_ZERO, _ONE, _S11, _S17, _S19, _S23, _S27, _S30, _S31, _S32, _S41, _S45 = map(
    np.uint64, (0, 1, 11, 17, 19, 23, 27, 30, 31, 32, 41, 45)
)
_LOW8, _BIT8, _LOW32 = map(np.uint64, (0xFF, 0x100, 0xFFFFFFFF))
_ULP: Final = 2.0**-53

POISSON_SWITCH: Final = 10.0  # mean from which Poisson draws are by rejection, not by search

_LAYERS: Final = 256
# Left edge of the tail for 256 layers of equal area: the value at which the topmost layer ends
# exactly at the mode.  A test recomputes the closing error.
_NORMAL_EDGE: Final = 3.6541528853610088
_EXPONENTIAL_EDGE: Final = 7.697117470131050


def _ziggurat(edge: float, tail_area: float, normal_law: bool) -> tuple[NDArray, NDArray]:
    """Corners of 256 equal-area layers under exp(-x^2/2) or exp(-x).

    Returns ``x [257]``, decreasing from the width of the base strip to 0, and ``f [257]``, the
    density's height at each ``x`` (the base strip's entry is not used).
    """

    def height(x: float) -> float:
        return math.exp(-0.5 * x * x) if normal_law else math.exp(-x)

    def inverse(f: float) -> float:
        return math.sqrt(-2.0 * math.log(f)) if normal_law else -math.log(f)

    area = edge * height(edge) + tail_area
    x = np.zeros(_LAYERS + 1)
    f = np.ones(_LAYERS + 1)
    # The base strip also holds the tail: its width is what a rectangle of that area would need.
    x[0] = area / height(edge)
    x[1] = edge
    for i in range(1, _LAYERS):
        f[i] = height(x[i])
        if i + 1 < _LAYERS:
            x[i + 1] = inverse(f[i] + area / x[i])
    return x, f


_NX, _NF = _ziggurat(
    _NORMAL_EDGE, math.sqrt(math.pi / 2.0) * math.erfc(_NORMAL_EDGE / math.sqrt(2.0)), True
)
_EX, _EF = _ziggurat(_EXPONENTIAL_EDGE, math.exp(-_EXPONENTIAL_EDGE), False)


@njit(**KERNEL)
def _mix(z: np.uint64) -> np.uint64:
    """Finalizer of splitmix64: a bijection of the 64-bit words that spreads every bit."""
    z = (z ^ (z >> _S30)) * _MIX_A
    z = (z ^ (z >> _S27)) * _MIX_B
    return z ^ (z >> _S31)


@njit(**KERNEL)
def seed_state(seed: np.uint64, state: Words) -> None:
    """Fill ``state`` (uint64 [4]) from one 64-bit seed by splitmix64.

    The four words are images of four different inputs of a bijection, so at most one of them can
    be zero and the all-zero state, the only bad one, cannot occur.
    """
    z = np.uint64(seed)
    for i in range(4):
        z += _GOLDEN
        state[i] = _mix(z)


@njit(cache=True, nogil=True)
def _streams(
    key0: np.uint64, key1: np.uint64, label: np.uint64, start: np.uint64, count: int
) -> Words:
    base = _mix(((key0 & _LOW32) << _S32 | (key1 & _LOW32)) + _GOLDEN)
    base = _mix((base ^ label) + _GOLDEN)
    seeds = np.empty(count, np.uint64)
    number = start
    for i in range(count):
        # Two rounds with a key in between.  Handing out base + s * _GOLDEN unmixed would be
        # wrong: seed_state steps by the same constant, so neighbours would share state words.
        seeds[i] = _mix(_mix(number * _GOLDEN + base) ^ base)
        number += _ONE
    return seeds


def streams(key_words: tuple[int, int], label_hash: int, start: int, count: int) -> Words:
    """Seeds of replications ``start .. start + count - 1``.

    key_words: two words of 32 bits each (the data of a JAX key, say); higher bits are ignored.
    label_hash: any integer that identifies what the stream is for; taken modulo 2**64. start,
    count: first replication number and how many. Returns uint64 [count]: Seed ``i`` depends on
    (key, label, ``start + i``) only.  Under one key and label, different replications never share a
    seed.
    """
    if count < 0 or start < 0:
        raise ValueError(f"start and count must not be negative, got {start} and {count}")
    words = [np.uint64(int(word) & (2**64 - 1)) for word in (*key_words, label_hash)]
    return _streams(*words, np.uint64(start), count)


@njit(**KERNEL)
def advance(
    s0: np.uint64, s1: np.uint64, s2: np.uint64, s3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """One step of xoshiro256++ on its four words: 64 random bits and the next four words.

    For loops that keep the state in registers; elsewhere use :func:`next_uint64`.
    """
    total = s0 + s3
    result = ((total << _S23) | (total >> _S41)) + s0
    t2 = s2 ^ s0
    t3 = s3 ^ s1
    return result, s0 ^ t3, s1 ^ t2, t2 ^ (s1 << _S17), (t3 << _S45) | (t3 >> _S19)


@njit(**KERNEL)
def next_uint64(state: Words) -> np.uint64:
    """Next 64 random bits of the stream (xoshiro256++)."""
    result, state[0], state[1], state[2], state[3] = advance(state[0], state[1], state[2], state[3])
    return result


@njit(**KERNEL)
def unit(bits: np.uint64) -> float:
    """The upper 53 of 64 random bits as a number in [0, 1)."""
    return np.float64(np.int64(bits >> _S11)) * _ULP


@njit(**KERNEL)
def uniform(state: Words) -> float:
    """Uniform on [0, 1), a multiple of 2**-53."""
    return unit(next_uint64(state))


@njit(**APART)
def _normal_slow(state: Words, layer: int, x: float) -> float:
    """|z| for a point that fell outside the part of its layer that is surely under the curve."""
    while True:
        if layer == 0:
            # Beyond the edge: exponential proposal, the classical tail method.
            while True:
                step = -math.log(1.0 - uniform(state)) / _NORMAL_EDGE
                if -2.0 * math.log(1.0 - uniform(state)) >= step * step:
                    return _NORMAL_EDGE + step
        y = _NF[layer] + uniform(state) * (_NF[layer + 1] - _NF[layer])
        if y < math.exp(-0.5 * x * x):
            return x
        bits = next_uint64(state)
        layer = np.int64(bits & _LOW8)
        x = unit(bits) * _NX[layer]
        if x < _NX[layer + 1]:
            return x


@njit(**APART)
def normal(state: Words) -> float:
    """Standard normal, by a ziggurat of 256 layers."""
    bits = next_uint64(state)
    # One word serves three independent purposes: 8 bits of layer, 1 of sign, 53 of position.
    layer = np.int64(bits & _LOW8)
    x = unit(bits) * _NX[layer]
    if x >= _NX[layer + 1]:
        x = _normal_slow(state, layer, x)
    return -x if (bits & _BIT8) != _ZERO else x


@njit(**APART)
def _exponential_slow(state: Words, layer: int, x: float) -> float:
    """Counterpart of :func:`_normal_slow`."""
    shift = 0.0
    while True:
        if layer == 0:
            # The law has no memory: the tail is the edge plus a fresh draw.
            shift += _EXPONENTIAL_EDGE
        else:
            y = _EF[layer] + uniform(state) * (_EF[layer + 1] - _EF[layer])
            if y < math.exp(-x):
                return shift + x
        bits = next_uint64(state)
        layer = np.int64(bits & _LOW8)
        x = unit(bits) * _EX[layer]
        if x < _EX[layer + 1]:
            return shift + x


@njit(**KERNEL)
def exponential(state: Words) -> float:
    """Exponential with mean one, by a ziggurat of 256 layers."""
    bits = next_uint64(state)
    layer = np.int64(bits & _LOW8)
    x = unit(bits) * _EX[layer]
    if x >= _EX[layer + 1]:
        x = _exponential_slow(state, layer, x)
    return x


@njit(**APART)
def _gamma_slow(state: Words, d: float, c: float, x: float, v: float, u: float) -> float:
    """Rest of :func:`_gamma_large` once the squeeze has refused ``(x, u)``."""
    v3 = v * v * v
    while v <= 0.0 or math.log(u) >= 0.5 * x * x + d * (1.0 - v3 + math.log(v3)):
        x = normal(state)
        v = 1.0 + c * x
        v3 = v * v * v
        u = uniform(state)
    return d * v3


@njit(**KERNEL)
def _gamma_large(state: Words, shape: float) -> float:
    """Gamma of unit scale for shape >= 1 (Marsaglia and Tsang, 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    x = normal(state)
    v = 1.0 + c * x
    u = uniform(state)
    xx = x * x
    # The squeeze accepts nearly always and spares both logarithms.
    if v > 0.0 and u < 1.0 - 0.0331 * xx * xx:
        return d * v * v * v
    return _gamma_slow(state, d, c, x, v, u)


@njit(**KERNEL)
def gamma(state: Words, shape: float) -> float:
    """Gamma of unit scale, ``shape > 0``."""
    if shape >= 1.0:
        return _gamma_large(state, shape)
    # G(shape) = G(shape + 1) U^(1/shape); an exponential is -log U and is never infinite.
    return _gamma_large(state, shape + 1.0) * math.exp(-exponential(state) / shape)


@njit(**KERNEL)
def beta(state: Words, a: float, b: float) -> float:
    """Beta(a, b), ``a > 0`` and ``b > 0``."""
    if a < 1.0 and b < 1.0:
        # Both Gamma variates can underflow to zero, so form their ratio in logarithms.
        x = math.log(_gamma_large(state, a + 1.0)) - exponential(state) / a
        y = math.log(_gamma_large(state, b + 1.0)) - exponential(state) / b
        return 1.0 / (1.0 + math.exp(y - x))
    x = gamma(state, a)
    return x / (x + gamma(state, b))


@njit(**APART)
def binomial(state: Words, n: int, p: float) -> int:
    """Number of successes in ``n`` trials of probability ``p``.

    Inversion while min(n p, n (1-p)) < 10, otherwise transformed rejection (Hormann, 1993,
    "The generation of binomial random variates"), whose cost does not grow with ``n``.
    """
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    small = p if p <= 0.5 else 1.0 - p
    odds = small / (1.0 - small)
    k = 0.0
    if n * small < 10.0:
        # P(0) cannot underflow here: it is at least about exp(-14).
        mass = math.exp(n * math.log(1.0 - small))
        u = uniform(state)
        while u >= mass and k < n:
            u -= mass
            k += 1.0
            mass *= odds * (n + 1 - k) / k
    else:
        sd = math.sqrt(n * small * (1.0 - small))
        b = 1.15 + 2.53 * sd
        a = -0.0873 + 0.0248 * b + 0.01 * small
        centre = n * small + 0.5
        v_sure = 0.92 - 4.2 / b
        while True:
            u = uniform(state) - 0.5
            v = uniform(state)
            room = 0.5 - abs(u)
            k = math.floor((2.0 * a / room + b) * u + centre)
            if room >= 0.07 and v <= v_sure:
                break
            if k < 0.0 or k > n:
                continue
            v = v * (2.83 + 5.1 / b) * sd / (a / (room * room) + b)
            mode = math.floor((n + 1) * small)
            ratio = (
                math.lgamma(mode + 1.0)
                + math.lgamma(n - mode + 1.0)
                - math.lgamma(k + 1.0)
                - math.lgamma(n - k + 1.0)
                + (k - mode) * math.log(odds)
            )
            if math.log(v) <= ratio:
                break
    count = np.int64(k)
    return count if p <= 0.5 else n - count


@njit(**KERNEL)
def poisson_inversion(state: Words, lam: float, none: float) -> int:
    """Poisson of a small mean ``lam``, given ``none = exp(-lam)``, by sequential search."""
    k = 0.0
    mass = none
    u = uniform(state)
    # Rounding can leave u a hair above the total mass; the terms then vanish, hence the cap.
    while u >= mass and k < 200.0:
        u -= mass
        k += 1.0
        mass *= lam / k
    return np.int64(k)


@njit(**APART)
def poisson(state: Words, lam: float) -> int:
    """Poisson of mean ``lam``.

    Inversion below ``POISSON_SWITCH``, otherwise transformed rejection (Hormann, 1993, "The
    transformed rejection method for generating Poisson random variables").
    """
    if lam <= 0.0:
        return 0
    if lam < POISSON_SWITCH:
        return poisson_inversion(state, lam, math.exp(-lam))
    root = math.sqrt(lam)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    # With the published constants the acceptance ratio exceeds one by up to 0.6 percent at small
    # means and the sure region is 0.5 percent too wide at some others (found on a grid of means
    # from 10 to 1e6).  A slightly larger hat and a smaller region make the law exact.
    hat = 1.006 * (1.1239 + 1.1328 / (b - 3.4))
    v_sure = 0.988 * (0.9277 - 3.6224 / (b - 2.0))
    while True:
        u = uniform(state) - 0.5
        v = uniform(state)
        room = 0.5 - abs(u)
        k = math.floor((2.0 * a / room + b) * u + lam + 0.43)
        if room >= 0.07 and v <= v_sure:
            break
        if k < 0.0 or (room < 0.013 and v > room):
            continue
        v = v * hat / (a / (room * room) + b)
        if math.log(v) <= k * math.log(lam) - lam - math.lgamma(k + 1.0):
            break
    return np.int64(k)
