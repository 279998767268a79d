"""Quadrature: one continuous latent per arm, on a fixed grid of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.beliefs._points import Points
from irsppl.models import ArmModel, Params

# Nodes lie evenly over +-6 standard deviations of the prior mapped to a standard normal. 256 of
# them are 0.047 apart, below the posterior's standard deviation after a thousand rewards of a
# typical model; the rule is spacing <= posterior sd.
DEFAULT_NODES = 256
_REACH = 6.0


def can_serve(model: ArmModel) -> bool:
    return model.dim == 1 and not model.has_discrete and model.has_icdf


def quadrature(
    models: Sequence[ArmModel], groups: Sequence[Sequence[int]], num_nodes: int, reason: str
) -> Points:
    """Points on quantiles of each prior, weighted by the density of the quantile's normal score."""
    params, weights = [], []
    for model, group in zip(models, groups, strict=True):
        nodes, log_weights = _nodes(model, num_nodes)
        copies = len(group)
        params.append(jax.tree.map(lambda leaf, n=copies: jnp.stack([leaf] * n), nodes))
        weights.append(jnp.stack([log_weights] * copies))
    return Points(models, groups, params, weights, "quadrature", reason)


def _nodes(model: ArmModel, num_nodes: int) -> tuple[Params, Array]:
    from scipy.special import ndtr

    scores = np.linspace(-_REACH, _REACH, num_nodes)
    dtype = jnp.result_type(float)
    # Float32 has no number between 1 - 6e-8 and 1: quantiles of the upper tail need float64.
    with jax.enable_x64(True):
        uniforms = jnp.asarray(ndtr(scores), jnp.float64)[:, None]
        nodes = jax.vmap(model.prior_from_uniforms)(uniforms)
        host = jax.tree.map(lambda leaf: np.asarray(leaf), nodes)
    for name, leaf in host.items():
        if not np.all(np.isfinite(leaf)):
            raise ValueError(
                f"quadrature cannot place nodes for {name!r} of {model.name}: its prior has no "
                "finite quantiles within six standard scores; use representation='particles'"
            )
    params = {name: jnp.asarray(leaf, dtype) for name, leaf in host.items()}
    return params, jnp.asarray(-0.5 * scores**2, dtype)
