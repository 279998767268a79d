"""Whether JAX may compile a user's function: it must trace, and tell the same story each time."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import random
import types
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from irsppl._checks import depends_on_input
from irsppl.bandit import Bandit
from irsppl.policies.generators import fresh_seeds, global_state, restore_global, same_global

# What a trace draws from a random generator is a constant of the program. Functions that read
# neither key nor bandit are traced so often, others thrice, before they are taken to draw nothing.
_TRACES_OF_A_CONSTANT = 8
_TRACES = 3

# {function: {structure of the bandit: reason or None}}
_known: weakref.WeakKeyDictionary[Any, dict[Any, str | None]] = weakref.WeakKeyDictionary()


def why_plain(function: Callable[..., Any], bandit: Bandit) -> str | None:
    """Why `function(key, bandit)` must be called in Python for each decision; None: it need not."""
    dynamic, static = eqx.partition(bandit, eqx.is_array)
    leaves, structure = jax.tree.flatten(dynamic)
    key = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
    try:
        hash(function)
        known = _known.setdefault(function, {})
    except TypeError:  # no hash or no weak reference: asked anew each time
        known = {}
    if key not in known:
        known[key] = _why_plain(function, dynamic, static)
    return known[key]


def _why_plain(function: Callable[..., Any], dynamic: Any, static: Any) -> str | None:
    try:
        hash(function)
    except TypeError:
        return "it has no hash"
    state = _State(function)
    try:
        with fresh_seeds() as seeds:
            traced, constant = _trace(function, dynamic, static)
        if seeds:
            return "it makes a random generator of its own, seeded anew each time"
        if state.changed() or _draws(function, dynamic, static, state.generators):
            return "it keeps state of its own, or draws random numbers without the key"
        for _ in range((_TRACES_OF_A_CONSTANT if constant else _TRACES) - 1):
            if _trace(function, dynamic, static)[0] != traced:
                return "it does not repeat itself: it keeps state or draws without the key"
    except Exception as error:
        # A mistake of the user's own shows again, with its own traceback, when Python calls it.
        return f"{type(error).__name__} while JAX traced it"
    finally:
        state.restore()
    return None


def _draws(function: Callable[..., Any], dynamic: Any, static: Any, before: Any) -> bool:
    """Whether a trace draws from the global random generators: if so, every trace does.

    Other threads draw from them too (a Dask worker's do), so that one trace is no proof.
    """
    for _ in range(_TRACES):
        if same_global(before, global_state()):
            return False
        before = global_state()
        _trace(function, dynamic, static)
    return not same_global(before, global_state())


def _trace(function: Callable[..., Any], dynamic: Any, static: Any) -> tuple[str, bool]:
    """The program as text, and whether it looks at neither key nor bandit."""

    def decide(key: Any, dynamic: Any) -> Any:
        return function(key, eqx.combine(dynamic, static))

    closed, result = jax.make_jaxpr(decide, return_shape=True)(jax.random.key(0), dynamic)
    shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", float)
    if shape != () or not jax.dtypes.issubdtype(dtype, np.integer):
        raise TypeError("no arm")  # Python will call it again, and say what it returned
    constant = not any(depends_on_input(closed.jaxpr))
    return f"{closed.jaxpr} {[np.asarray(c).tolist() for c in closed.consts]}", constant


class _State:
    """What a function could remember between calls, as far as it is to be found."""

    def __init__(self, function: Any):
        self.places = list(_places(function))
        self.before = [(get(), _frozen(get())) for get, _ in self.places]
        self.generators = global_state()

    def changed(self) -> bool:
        return any(
            get() is not value or _frozen(get()) != frozen
            for (get, _), (value, frozen) in zip(self.places, self.before, strict=True)
        )

    def restore(self) -> None:
        """As it was before any trace, so that no tracer stays behind in someone's list."""
        restore_global(self.generators)
        for (get, put), (value, frozen) in zip(self.places, self.before, strict=True):
            if get() is not value:
                put(value)
            if frozen is not None and _frozen(value) != frozen:
                _refill(value, pickle.loads(frozen))


_Place = tuple[Callable[[], Any], Callable[[Any], Any]]


def _places(function: Any) -> Iterator[_Place]:
    """(read, write) of the variables that a function refers to outside itself."""
    if isinstance(function, partial):
        for value in (*function.args, *function.keywords.values()):
            yield _fixed(value)
        function = function.func
    if isinstance(function, types.MethodType):
        yield _fixed(function.__self__)
        function = function.__func__
    elif not isinstance(function, types.FunctionType):
        yield _fixed(function)
        return
    held = "cell_contents"
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            if _may_remember(cell.cell_contents):
                yield partial(getattr, cell, held), partial(setattr, cell, held)
    scope = function.__globals__
    for name in inspect.getclosurevars(function).globals:
        if _may_remember(scope[name]):
            yield partial(scope.__getitem__, name), partial(scope.__setitem__, name)


def _fixed(value: Any) -> _Place:
    return lambda: value, lambda new: None


def _may_remember(value: Any) -> bool:
    return not isinstance(value, types.ModuleType | types.FunctionType | type)


def _frozen(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # no pickle of it, or a tracer in it
        return None


def _refill(value: Any, old: Any) -> None:
    if isinstance(value, list):
        value[:] = old
    elif isinstance(value, dict | set):
        value.clear()
        value.update(old)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = old.bit_generator.state
    elif isinstance(value, np.random.RandomState):
        value.set_state(old.get_state())
    elif isinstance(value, random.Random):
        value.setstate(old.getstate())
    elif hasattr(value, "__dict__"):
        value.__dict__.clear()
        value.__dict__.update(old.__dict__)
