"""exp, log and their kin in arithmetic that a loop over points can be vectorised with.

The C library's are calls, one number at a time. Each comes in both precisions, right to a few of
the last digits; infinities, zeros and NaNs are answered as the C library answers them, but results
too small for full precision are zero. `functions` gives those of a precision by name.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL, uniform

_INLINE = {name: value for name, value in KERNEL.items() if name != "cache"} | {"forceinline": True}
_LOG_2 = Fraction("0.693147180559945309417232121458176568")


def functions(dtype: Any) -> dict[str, Any]:
    """Compiled functions of numbers of this type, to be inlined by what calls them; F: the type."""
    return _FUNCTIONS[np.dtype(dtype)]


def _functions(F: Any, word: Any, bits: int, bias: int, degree: int, terms: int) -> dict[str, Any]:
    """F: the type; word: the integers of its size, whose exponents begin at `bits` and are those of
    powers of two plus `bias`; how far both series go."""
    zero, one, two, half, inf, nan = (F(x) for x in (0.0, 1.0, 2.0, 0.5, np.inf, np.nan))
    # Few digits, so that products with whole numbers are exact; and the rest.
    high = F(round(math.log(2.0) * 2.0**9) / 2.0**9)
    low = F(_LOG_2 - Fraction(float(high)))
    per_log_2 = F(1.0 / math.log(2.0))
    below = F(1.0 - np.finfo(F).epsneg)
    most, least = F((bias + 0.999) * math.log(2.0)), F((1 - bias) * math.log(2.0))
    smallest, raised, steps = F(2.0 ** (1 - bias)), F(2.0**bits), word(bits)
    root, mantissa, leading = F(math.sqrt(2.0)), word(2**bits - 1), word(bias << bits)
    shift, offset = word(bits), word(bias)
    taylor = tuple(F(1.0 / math.factorial(n)) for n in range(degree, -1, -1))
    area = tuple(F(2.0 / (2 * n + 1)) for n in range(terms, -1, -1))

    @njit(**_INLINE)
    def exp(x: Any) -> Any:
        inside = x if x < most else most
        inside = inside if inside > least else least
        whole = np.floor(inside * per_log_2 + half)
        rest = (inside - whole * high) - whole * low
        y = taylor[0]
        for c in taylor[1:]:
            y = y * rest + c
        y = y * word((word(np.int32(whole)) + offset) << shift).view(F)
        y = y if x >= least else zero
        y = y if x <= most else inf
        return y if x == x else x

    @njit(**_INLINE)
    def log(x: Any) -> Any:
        tiny = x < smallest
        inside = x * raised if tiny else x
        code = F(inside).view(word)
        power = word((code >> shift) - offset)
        m = word((code & mantissa) | leading).view(F)
        large = m > root
        m = m * half if large else m
        power = word(power + word(large)) - (steps if tiny else word(0))
        # log m = 2 artanh((m - 1) / (m + 1))
        s = (m - one) / (m + one)
        square = s * s
        y = area[0]
        for c in area[1:]:
            y = y * square + c
        whole = F(np.int32(power))
        y = whole * high + (y * s + whole * low)
        y = y if x > zero else (-inf if x == zero else nan)
        return y if x < inf else x  # NaN too

    @njit(**_INLINE)
    def log1p(x: Any) -> Any:
        # What rounding took from 1 + x is a factor that the quotient puts back.
        u = one + x
        part = u - one
        y = log(u)
        exact = y * (x / part)
        y = exact if (part != zero) & (u < inf) else y
        return y if part != zero else x

    @njit(**_INLINE)
    def expm1(x: Any) -> Any:
        u = exp(x)
        part = u - one
        y = part * (x / log(u))
        y = y if (part != zero) & (u < inf) & (u > zero) else part
        return y if part != zero else x

    @njit(**_INLINE)
    def logistic(x: Any) -> Any:
        return one / (one + exp(-x))

    @njit(**_INLINE)
    def logit(x: Any) -> Any:
        return log(x) - log1p(-x)

    @njit(**_INLINE)
    def tanh(x: Any) -> Any:
        size = abs(x)
        t = expm1(two * (size if size < F(20.0) else F(20.0)))
        y = t / (t + two)
        y = y if x >= zero else -y
        return y if x == x else x

    @njit(**_INLINE)
    def larger(x: Any, y: Any) -> Any:
        return x if (x > y) | (x != x) else y

    @njit(**_INLINE)
    def smaller(x: Any, y: Any) -> Any:
        return x if (x < y) | (x != x) else y

    @njit(**_INLINE)
    def whole(x: Any) -> Any:
        """As JAX has it in 32 bits."""
        y = x if x > F(-(2.0**31)) else F(-(2.0**31))
        y = y if y < F(2.0**31) else F(2.0**31)
        y = np.int64(y if x == x else zero)
        return y if y < 2147483647 else np.int64(2147483647)

    @njit(**_INLINE)
    def unit(rng: Any) -> Any:
        """A uniform variate below one, also after rounding."""
        x = F(uniform(rng))
        return x if x < one else below

    return {
        "F": F,
        "INF": inf,
        "NAN": nan,
        "whole": whole,
        "unit": unit,
        "larger": larger,
        "smaller": smaller,
        "exp": exp,
        "log": log,
        "log1p": log1p,
        "expm1": expm1,
        "logistic": logistic,
        "logit": logit,
        "tanh": tanh,
    }


_FUNCTIONS: dict[np.dtype, dict[str, Any]] = {
    np.dtype(np.float32): _functions(np.float32, np.int32, 23, 127, 7, 4),
    np.dtype(np.float64): _functions(np.float64, np.int64, 52, 1023, 13, 10),
}
