"""What a model's jaxpr proves about how parameters depend on the latents.

Numbers can only fail to refute that a parameter *is* a latent, or an affine function of the
latents: `where(theta > 0.999999, 1, theta)` agrees with theta nearly everywhere. So the program
itself is read. Each intermediate value is given the strongest of these descriptions that its
operations allow; anything else is unknown.

- constant: does not depend on the latents; its value is known;
- picked: every element is one element of the latents, unchanged;
- power: a scalar, constant times a power of one positive latent;
- affine: an affine function of the latents.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class LinearGaussianForm:
    """reward of arm a ~ Normal(features[a] @ theta + offset[a], noise_sd[a]), theta ~ N(mean, cov).

    theta is the concatenation of the latents in the order of `ArmModel.latents`, host float64.
    """

    features: Float[np.ndarray, "K d"]
    mean: Float[np.ndarray, " d"]
    cov: Float[np.ndarray, "d d"]
    noise_sd: Float[np.ndarray, " K"]
    offset: Float[np.ndarray, " K"]


@dataclasses.dataclass(frozen=True)
class Fact:
    """What is known of one value of the program. No field set: nothing."""

    constant: Any = None
    picked: np.ndarray | None = None  # index into the flat latents, in the value's shape
    power: tuple[int, float] | None = None  # (index of the latent, exponent)
    affine: bool = False


UNKNOWN = Fact()
# They move elements without changing them.
_MOVES = {
    "slice",
    "dynamic_slice",
    "gather",
    "squeeze",
    "reshape",
    "broadcast_in_dim",
    "transpose",
    "rev",
    "copy",
    "copy_p",
    "expand_dims",
    "concatenate",
    "stack",
    "unstack",
    "split",
}
_LINEAR = {"add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "pad"}
_BILINEAR = {"mul", "dot_general"}
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALL_NAMES = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_jvp_call_jaxpr",
}


def facts(function: Any, flat_latents: jax.Array, beyond: list[str]) -> list[Fact]:
    """Facts about each output of `function`, a traceable function of the flat latents `[n]`.

    beyond: is told of arrays indexed past their end, which JAX does not call an error.
    """
    closed = jax.make_jaxpr(function)(flat_latents)
    index = np.arange(flat_latents.shape[0], dtype=np.int32)
    return _walk(closed.jaxpr, closed.consts, [_picked(index)], beyond)


def _picked(index: np.ndarray) -> Fact:
    return Fact(
        picked=index, affine=True, power=(int(index.reshape(())), 1.0) if index.size == 1 else None
    )


def _walk(jaxpr: Any, consts: list[Any], inputs: list[Fact], beyond: list[str]) -> list[Fact]:
    known: dict[Any, Fact] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update({var: Fact(constant=c) for var, c in zip(jaxpr.constvars, consts, strict=True)})

    def look(atom: Any) -> Fact:
        return Fact(constant=atom.val) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        out = _step(eqn, [look(atom) for atom in eqn.invars], beyond)
        known.update(zip(eqn.outvars, out, strict=True))
    return [look(atom) for atom in jaxpr.outvars]


def _bind(eqn: Any, values: list[Any]) -> list[Any]:
    out = eqn.primitive.bind(*values, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _step(eqn: Any, inputs: list[Fact], beyond: list[str]) -> list[Fact]:
    """Facts about the outputs of one operation."""
    name = eqn.primitive.name
    nothing = [UNKNOWN] * len(eqn.outvars)
    _check_range(eqn, inputs, beyond)
    if name not in _CALL_NAMES and all(fact.constant is not None for fact in inputs):
        return [Fact(constant=v) for v in _bind(eqn, [fact.constant for fact in inputs])]
    if name in _CALL_NAMES:
        for field in _CALLS:
            inner = eqn.params.get(field)
            if inner is not None:
                jaxpr, consts = getattr(inner, "jaxpr", inner), getattr(inner, "consts", [])
                if len(jaxpr.invars) != len(inputs):
                    return nothing
                return _walk(jaxpr, consts, inputs, beyond)
        return nothing
    linear = all(fact.affine or fact.constant is not None for fact in inputs)
    if name in _MOVES or name == "select_n":
        return _move(eqn, inputs, linear)
    if name == "convert_element_type":
        new, old = eqn.params["new_dtype"], eqn.invars[0].aval.dtype
        widening = (
            jnp.issubdtype(new, jnp.floating)
            and jnp.issubdtype(old, jnp.floating)
            and jnp.finfo(new).nmant >= jnp.finfo(old).nmant
        )
        return inputs if widening else nothing
    affine = False
    if name in _LINEAR:
        affine = linear
    elif name in _BILINEAR:
        affine = linear and any(fact.constant is not None for fact in inputs)
    elif name == "div":
        affine = inputs[0].affine and inputs[1].constant is not None
    return [Fact(affine=affine, power=_power(eqn, inputs))] * len(eqn.outvars)


def _check_range(eqn: Any, inputs: list[Fact], beyond: list[str]) -> None:
    """Note an index, known as a number, that points past the end of what it indexes."""
    name = eqn.primitive.name
    if name == "dynamic_slice" and all(fact.constant is not None for fact in inputs[1:]):
        starts = [int(np.asarray(fact.constant)) for fact in inputs[1:]]
        axes = range(len(starts))
    elif name == "gather" and inputs[1].constant is not None:
        indices = np.asarray(inputs[1].constant)
        axes = eqn.params["dimension_numbers"].start_index_map
        if indices.size == 0 or indices.shape[-1] != len(axes):
            return
        starts = indices.reshape(-1, len(axes)).max(axis=0).tolist()
    else:
        return
    shape, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    for axis, start in zip(axes, starts, strict=True):
        if start + sizes[axis] > shape[axis]:
            beyond.append(f"index {start} into an array of length {shape[axis]}")


def _move(eqn: Any, inputs: list[Fact], linear: bool) -> list[Fact]:
    name = eqn.primitive.name
    nothing = [UNKNOWN] * len(eqn.outvars)
    if name in ("concatenate", "stack"):
        moved, fixed = inputs, []
    elif name == "select_n":
        moved, fixed = inputs[1:], inputs[:1]
    else:
        moved, fixed = inputs[:1], inputs[1:]
    # Which elements are taken must not depend on the latents.
    if any(fact.constant is None for fact in fixed):
        return nothing
    if all(fact.picked is not None for fact in moved):
        values = iter([jnp.asarray(fact.picked) for fact in moved])
        arguments = [
            fact.constant if fact.constant is not None else next(values) for fact in inputs
        ]
        if name == "gather":
            # NaN, the fill for out-of-range floats, is no whole number.
            eqn = eqn.replace(params={**eqn.params, "fill_value": -1})
        out = [np.asarray(value) for value in _bind(eqn, arguments)]
        if all(np.all(index >= 0) for index in out):
            return [_picked(index) for index in out]
        return nothing
    power = moved[0].power if len(moved) == 1 and eqn.outvars[0].aval.size == 1 else None
    return [Fact(affine=linear, power=power)] * len(eqn.outvars)


def _power(eqn: Any, inputs: list[Fact]) -> tuple[int, float] | None:
    """Constant times a power of one latent, through products, quotients, roots and powers."""
    if any(var.aval.size != 1 for var in eqn.outvars):
        return None
    if any(fact.power is None and fact.constant is None for fact in inputs):
        return None
    name, first = eqn.primitive.name, inputs[0]
    if name in ("mul", "div"):
        powers = [fact.power for fact in inputs]
        sites = {power[0] for power in powers if power is not None}
        if len(sites) != 1:
            return None
        left, right = (0.0 if power is None else power[1] for power in powers)
        return sites.pop(), left + right if name == "mul" else left - right
    if first.power is None:
        return None
    site, exponent = first.power
    factor = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2}.get(name)
    if name == "integer_pow":
        factor = eqn.params["y"]
    elif name == "pow" and inputs[1].constant is not None:
        factor = float(np.asarray(inputs[1].constant).reshape(()))
    return None if factor is None else (site, exponent * factor)
