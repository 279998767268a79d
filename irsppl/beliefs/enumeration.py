"""Enumeration: every combination of a model's discrete latents, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.beliefs._points import Points

if TYPE_CHECKING:  # reading models loads NumPyro, which takes a second
    from irsppl.models import ArmModel, Params


def enumeration(models: Sequence[ArmModel], groups: Sequence[Sequence[int]], reason: str) -> Points:
    """Points are the combinations; arms with fewer repeat one of theirs with weight zero."""
    listed = []
    for model in models:
        found = model.enumerate_latents()
        if found is None:
            raise ValueError(
                f"enumeration needs discrete latents with not too many values; {model.name} has "
                "others: use representation='quadrature' or 'particles'"
            )
        listed.append(found)
    most = max(len(log_prior) for _, log_prior in listed)
    params, weights = [], []
    for (points, log_prior), group in zip(listed, groups, strict=True):
        padded, log_weights = _pad(points, log_prior, most)
        copies = len(group)
        params.append(jax.tree.map(lambda leaf, n=copies: jnp.stack([leaf] * n), padded))
        weights.append(jnp.stack([log_weights] * copies))
    return Points(models, groups, params, weights, "enumeration", reason)


def _pad(points: Params, log_prior: np.ndarray, most: int) -> tuple[Params, Array]:
    index = np.minimum(np.arange(most), len(log_prior) - 1)
    log_weights = np.where(np.arange(most) < len(log_prior), log_prior[index], -np.inf)
    return jax.tree.map(lambda leaf: leaf[index], points), jnp.asarray(log_weights)
