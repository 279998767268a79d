"""What a traced program is made of here: values, and the operations that kernels have code for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

# What a value goes by.
POINT: Final = 1
REWARD: Final = 2
CHANCE: Final = 4


class Untranscribable(Exception):
    """Why a program cannot be written as scalar code."""


class Node:
    """A value that is known at run time only; equal ones are one node of a `Program`."""

    __slots__ = ("args", "kind", "level", "op")

    def __init__(self, op: str, args: tuple[Any, ...], kind: str, level: int):
        self.op, self.args, self.kind, self.level = op, args, kind, level


class Key:
    """Stands for a random key: which one does not matter."""


# Code of each operation, {k} its arguments; and what works it out where they are known while code
# is written (None: that is left to the compiler).
OPERATIONS: Final[dict[str, tuple[str, Callable[..., Any] | None]]] = {
    "add": ("{0} + {1}", np.add),
    "sub": ("{0} - {1}", np.subtract),
    "mul": ("{0} * {1}", np.multiply),
    "div": ("{0} / {1}", np.divide),
    "neg": ("-{0}", np.negative),
    "max": ("larger({0}, {1})", np.maximum),
    "min": ("smaller({0}, {1})", np.minimum),
    "eq": ("{0} == {1}", np.equal),
    "ne": ("{0} != {1}", np.not_equal),
    "lt": ("{0} < {1}", np.less),
    "le": ("{0} <= {1}", np.less_equal),
    "gt": ("{0} > {1}", np.greater),
    "ge": ("{0} >= {1}", np.greater_equal),
    "and": ("{0} & {1}", np.bitwise_and),
    "or": ("{0} | {1}", np.bitwise_or),
    "xor": ("{0} ^ {1}", np.bitwise_xor),
    "not": ("not {0}", np.logical_not),
    "select": ("({1} if {0} else {2})", None),
    "is_finite": ("np.abs({0}) < INF", np.isfinite),
    "abs": ("np.abs({0})", np.abs),
    "sqrt": ("np.sqrt({0})", np.sqrt),
    "floor": ("np.floor({0})", np.floor),
    "ceil": ("np.ceil({0})", np.ceil),
    "pow": ("{0} ** {1}", np.power),
    "rem": ("np.fmod({0}, {1})", np.fmod),
    "rem of integers": ("np.int64(np.fmod({0}, {1}))", np.fmod),
    "float": ("F({0})", float),
    "int": ("np.int64({0})", int),
    "int32": ("whole({0})", lambda x: int(np.clip(x, -(2.0**31), 2.0**31 - 1)) if x == x else 0),
    "bool": ("{0} != 0", bool),
    "exp": ("exp({0})", np.exp),
    "log": ("log({0})", np.log),
    "log1p": ("log1p({0})", np.log1p),
    "expm1": ("expm1({0})", None),
    "logistic": ("logistic({0})", None),
    "tanh": ("tanh({0})", None),
    "lgamma": ("math.lgamma({0})", None),
    "erf": ("math.erf({0})", None),
    "erfc": ("math.erfc({0})", None),
    "sin": ("math.sin({0})", None),
    "cos": ("math.cos({0})", None),
    "tan": ("math.tan({0})", None),
    "atan2": ("math.atan2({0}, {1})", None),
    "sinh": ("math.sinh({0})", None),
    "cosh": ("math.cosh({0})", None),
}
# Random variates, by the function of `jax.random` that a program calls. Its last argument is the
# number of the draw: no two are the same.
DRAWS: Final = {
    "_uniform": "{0} + ({1} - {0}) * unit(rng)",
    "_normal": "F(random.normal(rng))",
    "_exponential": "F(random.exponential(rng))",
    "_gamma": "F(random.gamma(rng, np.float64({0})))",
    # Of a small shape most variates are too small for a number; their logarithms are not.
    "log gamma": "F(math.log(random.gamma(rng, np.float64({0}) + 1.0))"
    " + math.log(1.0 - random.uniform(rng)) / np.float64({0}))",
    "_poisson": "np.int64(random.poisson(rng, np.float64({0})) if 0.0 < {0} < 1e15 else 0)",
    "_bernoulli": "random.uniform(rng) < {0}",
    "_laplace": "F(random.exponential(rng) - random.exponential(rng))",
    "_cauchy": "F(math.tan(math.pi * (random.uniform(rng) - 0.5)))",
    "_logistic": "logit(unit(rng))",
    "_gumbel": "-log(F(random.exponential(rng)))",
}
CODE: Final = {name: code for name, (code, _) in OPERATIONS.items()} | DRAWS

# How much of the compiler's time an operation takes, where that is more than a few instructions.
COSTS: Final = {"exp": 10, "log": 10, "log1p": 15, "expm1": 25, "logistic": 12, "tanh": 30}
