"""Enumeration: every combination of a model's discrete latents, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from irsppl.beliefs._points import Points, copied
from irsppl.beliefs._types import ArmModel


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
        index = np.minimum(np.arange(most), len(log_prior) - 1)
        log_weights = np.where(np.arange(most) < len(log_prior), log_prior[index], -np.inf)
        padded = jax.tree.map(lambda leaf, i=index: leaf[i], points), jnp.asarray(log_weights)
        own, even = copied(padded, len(group))
        params.append(own)
        weights.append(even)
    return Points(models, groups, params, weights, "enumeration", reason)
