"""The laws of a model's sites, and what the program shows of their parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from irsppl._checks import host64
from irsppl.models import _quantiles as quantiles
from irsppl.models._distributions import Distribution, unwrap
from irsppl.models._model import ArmModel
from irsppl.models._structure import Fact, facts
from irsppl.models._trial import Trial

# Parameters in NumPyro's names, with the number of event dimensions each has.
PARAMETERS: dict[type, dict[str, int]] = {
    dist.Beta: {"concentration1": 0, "concentration0": 0},
    dist.Uniform: {"low": 0, "high": 0},
    dist.Normal: {"loc": 0, "scale": 0},
    dist.MultivariateNormal: {"loc": 1, "scale_tril": 2},
    dist.Gamma: {"concentration": 0, "rate": 0},
    dist.Exponential: {"rate": 0},
    dist.InverseGamma: {"concentration": 0, "rate": 0},
    dist.Dirichlet: {"concentration": 1},
    dist.StudentT: {"df": 0, "loc": 0, "scale": 0},
    dist.BernoulliProbs: {"probs": 0},
    dist.CategoricalProbs: {"probs": 1},
    dist.Poisson: {"rate": 0},
}


@dataclasses.dataclass(frozen=True)
class Law:
    """A site's law: its type and what the program shows of its parameters."""

    kind: type
    parameters: dict[str, Fact]
    component: type | None = None  # of a mixture of one family; the parameters are then its own

    def constant(self, name: str) -> np.ndarray | None:
        value = self.parameters[name].constant
        return None if value is None else host64(jax.device_get(value))

    def constants(self) -> list[np.ndarray] | None:
        found = [self.constant(name) for name in self.parameters]
        return None if any(value is None for value in found) else found  # type: ignore[return-value]


class Laws:
    """The laws of all sites of a model for one arm, as facts about the flat latents."""

    def __init__(self, model: ArmModel, arm: Any):
        self.model = model
        self.beyond: list[str] = []  # arrays indexed past their end
        names: list[tuple[str, type, type | None, list[str]]] = []

        def outputs(flat: Array) -> list[Array]:
            names.clear()
            visit = model.visit(filled(model, flat), arm)
            found: list[Array] = []
            sites = [(name, fn) for name, fn, _ in visit.sites]
            for name, fn in [*sites, ("", visit.reward["fn"])]:
                kind, component, shape = type(unwrap(fn)), None, fn.shape()
                mixed = kind is dist.MixtureSameFamily and not fn.event_shape
                if mixed:
                    mixture = unwrap(fn)
                    fn, shape = mixture.component_distribution, (*shape, mixture.mixture_size)
                    component = type(unwrap(fn))
                parameters = PARAMETERS.get(component or kind, {})
                found.extend(_parameter(fn, key, dims, shape) for key, dims in parameters.items())
                if mixed:
                    found.append(jnp.broadcast_to(mixture.mixing_distribution.probs, shape))
                extra = ["weights"] if mixed else []
                names.append((name, kind, component, [*parameters, *extra]))
            return found

        size = total_size(model)
        known = iter(facts(outputs, jnp.zeros((size,)), self.beyond))
        self.priors = {
            name: Law(kind, {key: next(known) for key in keys}, component)
            for name, kind, component, keys in names
        }
        self.reward = self.priors.pop("")


def size_of(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def total_size(model: ArmModel) -> int:
    return sum(size_of(site.shape) for site in model.latents.values())


def starts_of(model: ArmModel) -> dict[str, int]:
    """Where each latent begins among the flat latents (in their own space, not z)."""
    sizes = [size_of(site.shape) for site in model.latents.values()]
    return dict(zip(model.latents, np.cumsum([0, *sizes]).tolist(), strict=False))


def filled(model: ArmModel, flat: Array) -> Any:
    starts = starts_of(model)

    def choose(name: str, fn: Distribution) -> Array:
        site = model.latents[name]
        part = flat[starts[name] : starts[name] + size_of(site.shape)].reshape(site.shape)
        return part.astype(jnp.result_type(int)) if site.discrete else part

    return choose


def _parameter(fn: Distribution, name: str, event_dims: int, shape: tuple[int, ...]) -> Array:
    """A parameter of the law inside `fn`, in the full shape of the site (batch and event)."""
    inner = unwrap(fn)
    value = jnp.asarray(getattr(inner, name))
    event = value.shape[value.ndim - event_dims :]
    batch = shape[: len(shape) - len(inner.event_shape)]
    return jnp.broadcast_to(value, (*batch, *event))


def prior_tables(model: ArmModel, laws: Laws) -> dict[str, Any]:
    """Inverse-CDF tables for the priors with constant parameters that need them."""
    found = {}
    for name, law in laws.priors.items():
        values = law.constants()
        if values is not None and not model.latents[name].discrete:
            kind = law.component or law.kind
            table = quantiles.tables_for(kind, dict(zip(law.parameters, values, strict=True)))
            if table is not None:
                found[name] = table
    return found


def read_laws(model: ArmModel) -> list[Laws]:
    """The laws for every arm; of very large joint models for the first and last arm only."""
    if not model.joint:
        return [Laws(model, None)]
    arms = range(model.num_arms)
    some = arms if len(arms) <= 256 else (arms[0], arms[-1])
    return [Laws(model, np.int32(arm)) for arm in some]


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Equal but for rounding, which may be large at a few extreme draws."""
    return bool(np.mean(np.abs(ours - theirs) <= 2e-3 + 1e-3 * np.abs(theirs)) > 0.99)


def flat_draws(model: ArmModel, trial: Trial) -> np.ndarray:
    """The flat latents of each prior draw `[S, n]`. (JAX hands dicts back in sorted order.)"""
    draws = [np.asarray(trial.params[name], np.float64) for name in model.latents]
    parts = [each.reshape(len(each), -1) for each in draws]
    return np.concatenate(parts, axis=1)
