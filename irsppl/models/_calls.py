"""Calling the user's function: its signature, and its errors in plain words."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array

from irsppl.models._distributions import Distribution, layers
from irsppl.models._model import Visit


def calling(
    function: Callable[..., Any], joint: bool, reward_site: str, say: str
) -> Callable[[Any, Any], Any]:
    """call(arm, reward) for the user's signature."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {"kwargs": inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)}
    kinds = inspect.Parameter
    open_ended = any(p.kind is kinds.VAR_KEYWORD for p in parameters.values())
    named = {k: p for k, p in parameters.items() if p.kind in (0, 1, 3)}
    reward = next((k for k in ("reward", reward_site) if k in named), None)
    if reward is None and not open_ended:
        shape = "arm, reward=None" if joint else "reward=None"
        raise ValueError(
            say + f"the function must take an argument `reward`: `def model({shape}): ...`, with "
            f'`numpyro.sample("{reward_site}", ..., obs=reward)`; it takes '
            + (f"({', '.join(parameters)})" if parameters else "no argument")
        )
    reward = reward or "reward"
    arm = None
    if joint:
        positional = [k for k, p in named.items() if p.kind in (0, 1) and k != reward]
        arm = "arm" if "arm" in named or (not positional and open_ended) else None
        arm = arm or next(iter(positional), None)
        if arm is None:
            raise ValueError(
                say + "a joint model must take the arm: `def model(arm, reward=None): ...`; for "
                "independent arms use from_numpyro"
            )
    missing = [k for k, p in named.items() if p.default is kinds.empty and k not in (reward, arm)]
    if missing:
        hint = "; if the arms share latents use from_numpyro_joint" if "arm" in missing else ""
        raise ValueError(
            say + f"argument(s) without a value: {', '.join(missing)}; give defaults or bind them "
            f"with functools.partial{hint}"
        )
    in_place = arm in named and named[arm].kind is kinds.POSITIONAL_ONLY
    reward_in_place = reward in named and named[reward].kind is kinds.POSITIONAL_ONLY
    return Call(
        function,
        None if in_place else arm,
        None if reward_in_place else reward,
        (0,) * in_place + (1,) * reward_in_place,
    )


@dataclasses.dataclass(frozen=True)
class Call:
    """call(arm, reward): the user's function in its own signature. An object, to be pickled."""

    function: Callable[..., Any]
    arm: str | None  # the keyword that takes the arm, if one does
    reward: str | None
    in_place: tuple[int, ...]  # which of (arm, reward) the function takes by position only

    def __call__(self, arm: Any, reward: Any) -> Any:
        named = {self.reward: reward, self.arm: arm}
        kwargs = {name: value for name, value in named.items() if name is not None}
        return self.function(*((arm, reward)[i] for i in self.in_place), **kwargs)


TRACER_ERRORS = (
    jax.errors.ConcretizationTypeError,  # and its kinds: booleans, whole numbers
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.UnexpectedTracerError,
)


def run(call: Callable, arm: Any, reward: Any, key: Array, reward_site: str, name: str) -> Visit:
    """One run on a draw from the prior, with the user's errors in plain words."""
    order = itertools.count()

    def choose(site: str, fn: Distribution) -> Array:
        if any(isinstance(layer, dist.ImproperUniform) for layer in layers(fn)):
            return jnp.zeros(fn.shape())  # cannot be drawn; refused once all sites are known
        return fn.sample(jax.random.fold_in(key, next(order)))

    visit, say = Visit(choose, reward_site), f"arm model {name}: "
    try:
        with visit:
            call(arm, reward)
        return visit
    except TRACER_ERRORS as error:
        first = str(error).strip().splitlines()[0]
        about = "the arm or a random value" if arm is not None else "a random value"
        raise ValueError(
            say + f"the model treats {about} as a plain Python number (`if`, `int()`, `range()`, a "
            "list index, a NumPy function); use jnp.where, jnp arrays and shapes that are fixed. "
            f"JAX says: {first}"
        ) from error
    except Exception as error:
        text = str(error).split("\n----")[0].strip()  # JAX adds a note on its tracebacks
        text = _explained(error) or f"{type(error).__name__}: {text or 'without a word'}"
        raise ValueError(say + f"the model raised {text}") from error


def _explained(error: Exception) -> str | None:
    """What a bare `assert` of NumPyro's meant, by where it stands."""
    if not isinstance(error, AssertionError) or str(error):
        return None
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    owner = type(trace.tb_frame.f_locals.get("self")).__name__
    if owner.startswith("ZeroInflated"):
        base = type(trace.tb_frame.f_locals.get("base_dist")).__name__
        return (
            f"AssertionError: NumPyro's zero-inflated distributions take counts only, and the "
            f"base is {base}, a density; zero with probability gate and an amount otherwise is "
            f"dist.HurdleDistribution(dist.{base}(...), gate=...)"
        )
    where = f"{trace.tb_frame.f_globals.get('__name__', '?')}, line {trace.tb_lineno}"
    return f"AssertionError, without a word, in {owner} ({where}): check the arguments there"
