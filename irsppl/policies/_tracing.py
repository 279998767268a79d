"""Whether JAX may compile a user's function: it must trace, and tell the same story each time."""

from __future__ import annotations

import pickle
import random
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from irsppl._checks import depends_on_input, names_in
from irsppl.bandit import Bandit
from irsppl.policies.generators import (
    LIBRARIES,
    global_state,
    package,
    restore_global,
    same_global,
    sources,
)

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
        with sources() as reasons:
            traced, constant = _trace(function, dynamic, static)
        if reasons:
            return reasons[0]
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
        code = function.func if isinstance(function, partial) else function
        home = package(getattr(code, "__module__", None))
        self.places = list(_places([_fixed(function)], home, set()))
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
# What remembers nothing itself, only in what it refers to.
_CODE = (partial, type, types.FunctionType, types.MethodType, types.ModuleType)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def _places(variables: Iterable[_Place], home: str, seen: set[int]) -> Iterator[_Place]:
    """(read, write) of these variables, and of those that the user's own code reaches from them."""
    for read, write in variables:
        value = read()
        if not isinstance(value, _CODE):
            yield read, write
        if id(value) not in seen:
            seen.add(id(value))
            yield from _places(_variables(value, home), home, seen)


def _variables(thing: Any, home: str) -> list[_Place]:
    """What a thing remembers outside itself."""
    if isinstance(thing, partial):
        return [_fixed(part) for part in (thing.func, *thing.args, *thing.keywords.values())]
    if isinstance(thing, types.MethodType):
        return [_fixed(thing.__self__), _fixed(thing.__func__)]
    if isinstance(thing, types.FunctionType) and _own(thing.__module__, home):
        defaults = (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        found = [_fixed(part) for part in (thing.__dict__, *defaults)]
        for cell in thing.__closure__ or ():
            found.append((partial(_contents, cell), partial(setattr, cell, "cell_contents")))
        names, scopes = set(names_in(thing.__code__)), [thing.__globals__]
        for name in names & scopes[0].keys():
            if isinstance(part := scopes[0][name], types.ModuleType) and _own(part.__name__, home):
                scopes.append(vars(part))
        for scope in scopes:
            found += [
                (partial(scope.get, name), partial(scope.__setitem__, name))
                for name in names & scope.keys()
            ]
        return found
    if isinstance(thing, type) and _own(thing.__module__, home):
        own = [name for name in vars(thing) if not name.startswith("__")]
        inherited = [_fixed(base) for base in thing.__bases__]
        return [(partial(vars(thing).get, n), partial(setattr, thing, n)) for n in own] + inherited
    return [] if isinstance(thing, _CODE) else [_fixed(type(thing))]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _own(module: str | None, home: str) -> bool:
    """Whether this is the user's code: the policy's package, or what is not installed."""
    root = package(module)
    file = getattr(sys.modules.get(str(module)), "__file__", None) or ""
    return root == home or not (root in LIBRARIES or file.startswith(_INSTALLED))


def _fixed(value: Any) -> _Place:
    return lambda: value, lambda new: None


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
