"""Quadrature: one continuous latent per arm, on a fixed grid of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl.beliefs._points import Points
from irsppl.models import ArmModel, Params

# Nodes lie evenly over +-6 standard deviations of the prior mapped to a standard normal. 256 of
# them are 0.047 apart, below the posterior's standard deviation after a thousand rewards of a
# typical model; the rule is spacing <= posterior sd.
DEFAULT_NODES = 256
_REACH = 6.0


class Quadrature(Points):
    """Independent arms on fixed nodes, one continuous latent each.

    Nodes lie on quantiles of each prior, weighted by the density of the quantile's normal score.
    """

    def __init__(
        self,
        models: Sequence[ArmModel],
        groups: Sequence[Sequence[int]],
        num_nodes: int,
        reason: str,
    ):
        params, weights = [], []
        for model, group in zip(models, groups, strict=True):
            nodes, log_weights = _nodes(model, num_nodes)
            copies = len(group)
            params.append(jax.tree.map(lambda leaf, n=copies: jnp.stack([leaf] * n), nodes))
            weights.append(jnp.stack([log_weights] * copies))
        super().__init__(models, groups, params, weights, "quadrature", reason)

    def mean_error(self) -> Float[Array, " K"]:
        """Estimated error of the predictive means: how far each half of the nodes is from all.

        Every second node is the same rule at twice the spacing, in two ways. For a smooth
        posterior the rule itself is far better than its halves (their error is near the fourth
        root of its own, relative to the posterior's standard deviation), so the estimate is on the
        safe side. What lies beyond the ends is added as if weights went on falling as they do
        there; infinite where they rise, because the data lie beyond the nodes.
        """
        return _mean_error(self)


@eqx.filter_jit
def _mean_error(belief: Quadrature) -> Float[Array, " K"]:
    rows = []
    for group, params in zip(belief.groups, belief.params, strict=True):
        (latent,) = params.values()
        arms = np.array(group)
        # Points are kept in order of their mean reward; nodes lie in order of the latent.
        order = jnp.argsort(latent.reshape(*latent.shape[:2], -1)[..., 0], axis=1)
        mu = jnp.take_along_axis(belief.mu[arms], order, axis=1)
        logs = jnp.take_along_axis(belief.log_weights[arms], order, axis=1)
        every = _mean(logs, mu)
        halves = [jnp.abs(_mean(logs[:, i::2], mu[:, i::2]) - every) for i in (0, 1)]
        beyond = _beyond(logs, mu, every) + _beyond(logs[:, ::-1], mu[:, ::-1], every)
        rows.append(jnp.maximum(*halves) + beyond)
    return belief._join(rows)


def _mean(log_weights: Float[Array, "G N"], mu: Float[Array, "G N"]) -> Float[Array, " G"]:
    return jnp.sum(jax.nn.softmax(log_weights, axis=1) * mu, axis=1)


def _beyond(logs: Float[Array, "G N"], mu: Float[Array, "G N"], mean: Array) -> Float[Array, " G"]:
    """Error of the mean from leaving out what lies before the first node: a geometric tail."""
    weight = jnp.exp(logs[:, 0])
    ratio = jnp.exp(logs[:, 0] - logs[:, 1])
    next_mu = 2 * mu[:, 0] - mu[:, 1]
    tail = weight * ratio / (1 - ratio) * jnp.abs(next_mu - mean)
    tail = jnp.where(ratio < 1, tail, jnp.inf)
    return jnp.where(weight > 1e-30, tail, 0)  # also where both weights are zero


def can_serve(model: ArmModel) -> bool:
    return model.dim == 1 and not model.has_discrete and model.has_icdf


def quadrature(
    models: Sequence[ArmModel], groups: Sequence[Sequence[int]], num_nodes: int, reason: str
) -> Quadrature:
    """The belief on `num_nodes` nodes per arm."""
    return Quadrature(models, groups, num_nodes, reason)


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
