"""Reading a NumPyro function: checks, a trial on its prior, and what its structure allows."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from irsppl._checks import as_count
from irsppl._xla_cache import make_room
from irsppl.models import _quantiles as quantiles
from irsppl.models._calls import calling, run
from irsppl.models._conjugacy import find_conjugacy
from irsppl.models._distributions import CATEGORICAL, is_discrete, unwrap
from irsppl.models._laws import prior_tables, read_laws
from irsppl.models._linear_gaussian import find_linear_gaussian
from irsppl.models._means import closed_mean
from irsppl.models._model import ArmModel, Visit, broadcasting
from irsppl.models._sites import check_law, check_same_latents, check_traced_arm, read_sites
from irsppl.models._tails import check_tail
from irsppl.models._trial import (
    Trial,
    check_trial,
    discrete_values,
    reward_support,
    try_out,
    with_values,
)

# What a function was read as last. Whatever it refers to may have changed since: it is read anew.
_LAST: weakref.WeakKeyDictionary[Any, tuple[Any, weakref.ref[ArmModel]]] = (
    weakref.WeakKeyDictionary()
)


@broadcasting
def read_arm(
    function: Callable[..., Any],
    *,
    num_arms: int | None = None,
    joint: bool = False,
    reward_site: str = "reward",
    mean: Any = None,
    values: Any = None,
) -> ArmModel:
    """Read a NumPyro function, or raise a `ValueError` that says what to change in it.

    function: `def arm(reward=None)` with one observed site, or with `joint=True`
    `def model(arm, reward=None)`, whose latents are shared by the `num_arms` arms.
    reward_site: name of the observed site.
    mean: where NumPyro has no mean for the reward's law, or another is meant: the name of a
    `numpyro.deterministic` site, or a function of the latents (a dict), for joint models of
    (latents, arm).
    values: the reward of each category, for rewards that are categories 0, 1, ...
    """
    if not callable(function):
        raise ValueError(
            f"an arm must be a function such as `def arm(reward=None): ...`, got {function!r}"
        )
    make_room()  # every model brings programs of its own
    inner = getattr(function, "func", function)  # of a functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    say = f"arm model {name}: "
    if joint:
        if num_arms is None:
            raise ValueError(say + "num_arms is needed for a joint model")
        num_arms = as_count("num_arms", num_arms)
    else:
        num_arms = 1
    call = calling(function, joint, reward_site, say)
    table = _category_values(values, say)
    arms = _some_arms(num_arms) if joint else [None]
    structures = [read_sites(call, arm, reward_site, name) for arm in arms]
    sites = structures[0]
    for arm, other in zip(arms[1:], structures[1:], strict=True):
        check_same_latents(sites, other, arm, say)
    if joint:
        check_traced_arm(call, reward_site, name)
    check_law(call, sites, joint, reward_site, table, say)

    model = ArmModel(
        name=name,
        num_arms=num_arms,
        joint=joint,
        latents=sites,
        dim=sum(site.size for site in sites.values()),
        mean_method=_mean_method(call, joint, reward_site, mean, table, say),
        _call=call,
        _reward_site=reward_site,
        category_values=table,
        _user_mean=mean,
    )
    return _measured(model, say)


def _category_values(values: Any, say: str) -> np.ndarray | None:
    if values is None:
        return None
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(say + f"values must be a list of numbers, got {values!r}") from error
    if table.ndim != 1 or table.size < 2 or not np.all(np.isfinite(table)):
        raise ValueError(
            say + f"values must be at least two finite numbers, one per category, got {values!r}"
        )
    if len(np.unique(table)) != table.size:
        raise ValueError(say + f"values must be distinct, got {values!r}")
    return table


def _some_arms(num_arms: int) -> list[Any]:
    """Arms to run the function for, one by one: all, or for many arms the first and last few.

    NumPy's whole numbers: unlike JAX's they may be looked at while tracing, unlike Python's they
    have an array's methods.
    """
    few = num_arms <= 32
    arms = range(num_arms) if few else [*range(16), *range(num_arms - 16, num_arms)]
    return [np.int32(arm) for arm in arms]


def _mean_method(
    call: Callable, joint: bool, reward_site: str, mean: Any, values: np.ndarray | None, say: str
) -> str:
    name = say.removeprefix("arm model ").removesuffix(": ")
    visits: list[tuple[Visit, Any]] = []

    def trace(key: Array) -> None:
        visit = run(call, np.int32(0) if joint else None, None, key, reward_site, name)
        visits.append((visit, closed_mean(visit.reward["fn"])))

    jax.eval_shape(trace, jax.random.key(0))
    visit, closed = visits[0]
    fn = visit.reward["fn"]
    if mean is not None and values is not None:
        raise ValueError(say + "give mean= or values=, not both")
    if mean is not None:
        if isinstance(mean, str):
            known = [n for n in visit.values if n != reward_site]
            if mean not in known:
                raise ValueError(
                    say + f"mean={mean!r} is no site of the model; sites: {', '.join(known)}"
                )
            if np.shape(visit.values[mean]) != ():
                raise ValueError(
                    say + f"mean={mean!r} must be one number, the site has shape "
                    f"{np.shape(visit.values[mean])}"
                )
        elif not callable(mean):
            raise ValueError(
                say + "mean must be the name of a deterministic site or a function of the "
                f"latents, got {mean!r}"
            )
        return "user"
    if isinstance(unwrap(fn), CATEGORICAL) and values is None:
        raise ValueError(
            say + f"the reward is a category ({type(unwrap(fn)).__name__}), not an amount; say "
            "what each category is worth with values=[...], one number per category"
        )
    if values is not None:
        if not is_discrete(fn):
            raise ValueError(
                say + f"values= is for rewards that are categories 0, 1, ..., but the reward is "
                f"{type(unwrap(fn)).__name__}"
            )
        return "values"
    return "quadrature" if closed is None else "closed form"


def _measured(model: ArmModel, say: str) -> ArmModel:
    """The model with its support, accuracy and structure filled in, after a trial on the prior."""
    laws = read_laws(model)
    last = laws[-1]
    if last.beyond:
        raise ValueError(
            say + f"the last arm, {model.num_arms - 1}, points past the end of an array "
            f"({last.beyond[0]}); JAX would silently use another entry: check num_arms and the "
            "lengths of what is indexed by the arm"
        )
    model = _with_uniforms(dataclasses.replace(model, _tables=prior_tables(model, laws[0])))
    trial = try_out(model, say)
    if model.mean_method == "closed form" and np.any(np.isnan(trial.means)):
        # NumPyro gives NaN for means it does not know, for those that do not exist, and where its
        # formula underflows.
        model = dataclasses.replace(model, mean_method="quadrature")
        trial = try_out(model, say)
    function, meaning = model.given().function, _meaning(model, trial)
    known = _read_before(function, meaning)
    if known is not None:
        return known
    check_trial(model, trial, say)
    model = dataclasses.replace(
        model,
        mean_error=float(np.max(trial.errors)),
        latents=with_values(model, trial),
        support=reward_support(model, trial, say),
    )
    if model.has_discrete:
        model = _with_uniforms(dataclasses.replace(model, _counts=discrete_values(model, trial)))
    conjugate = find_conjugacy(model, laws, trial)
    _check_family(conjugate, say)
    form = find_linear_gaussian(model, laws, trial)
    if conjugate is None and form is None:
        check_tail(model, trial.means, say)
    model = dataclasses.replace(model, conjugate=conjugate, linear_gaussian=form)
    with contextlib.suppress(TypeError):  # as in `_read_before`
        _LAST[function] = meaning, weakref.ref(model)
    return model


def _meaning(model: ArmModel, trial: Trial) -> Any:
    """All that a function was read as, the numbers in the program of its trial included."""
    _, reward_site, values, mean = model.given()
    sites = [dataclasses.replace(site, values=None) for site in model.latents.values()]
    table = None if values is None else values.tolist()
    kind = model.num_arms, model.joint, model.mean_method
    return repr((*kind, reward_site, table, sites)), trial.program, mean


def _read_before(function: Any, meaning: Any) -> ArmModel | None:
    """The last model that was read from a function, if it means the same now.

    Compiled programs know a model by its identity, so that what is read again shares them.
    """
    try:
        before, known = _LAST[function]
    except (KeyError, TypeError):  # TypeError: it cannot be hashed, or referred to weakly
        return None
    return known() if before == meaning else None


def _check_family(conjugate: tuple[str, dict[str, Any]] | None, say: str) -> None:
    """Two families have priors under which the expected reward is infinite; no trial shows it."""
    family, parameters = conjugate or ("", {})
    least = {"GammaExponential": 1.0, "NormalInverseGamma": 0.5}.get(family)
    if least is not None and np.any(np.asarray(parameters["shape"]) <= least):
        raise ValueError(
            say + "under the prior the expected reward is infinite or does not exist: the prior's "
            f"shape (concentration) must be above {least:g}, got {parameters['shape']}"
        )


def _with_uniforms(model: ArmModel) -> ArmModel:
    """The model with the number of uniforms its prior takes, if it has a map from them."""
    uniforms = quantiles.Uniforms(None)
    try:
        jax.eval_shape(lambda: model.from_uniforms(uniforms))
    except quantiles.NoInverse:
        return dataclasses.replace(model, has_icdf=False, num_uniforms=0)
    return dataclasses.replace(model, has_icdf=True, num_uniforms=uniforms.used)
