"""Weighted points along a sampled future: how each reward shifts the weights."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl.beliefs._future import Counts, IndependentFuture
from irsppl.inner.nodes import expected_best_lattice

# Nodes of integration for E[max_a mu_a] over the lattice: the same everywhere keep it a martingale.
_LATTICE_POINTS = 256


class SortedSums(eqx.Module):
    """Sums over points in the order of their means, so that a new lam is a look-up."""

    mu: Float[Array, "K N"]  # rising
    of_means: Float[Array, "K T N"]
    of_weights: Float[Array, "K T N"]

    def __init__(self, mu: Float[Array, "K N"], weights: Float[Array, "K T N"]):
        self.mu = mu
        self.of_means = jnp.cumsum(weights * mu[:, None, :], axis=2)
        self.of_weights = jnp.cumsum(weights, axis=2)

    def expected_max(self, lam: Float[Array, " K"]) -> Float[Array, "K T"]:
        # E[max(mu, lam)] = lam P(mu <= lam) + (sum of w mu above lam).
        below = jax.vmap(lambda m, x: jnp.searchsorted(m, x, side="right"))(self.mu, lam)
        take = jnp.maximum(below - 1, 0)[:, None, None]
        at = jnp.broadcast_to(take, (*self.of_means.shape[:2], 1))
        some = (below > 0)[:, None]
        weight = jnp.where(some, jnp.take_along_axis(self.of_weights, at, axis=2)[..., 0], 0)
        low = jnp.where(some, jnp.take_along_axis(self.of_means, at, axis=2)[..., 0], 0)
        return lam[:, None] * weight + self.of_means[:, :, -1] - low


class PointsFuture(IndependentFuture):
    """Weights of the points after each reward; compiled programs drop what is not asked for."""

    mu: Float[Array, "K N"]
    log_weights: Float[Array, "K N"]  # before the first reward
    log_likelihoods: Float[Array, "K T N"]
    weights: Float[Array, "K T+1 N"]
    sums: SortedSums

    def __init__(
        self,
        mu: Float[Array, "K N"],
        log_weights: Float[Array, "K N"],
        log_likelihoods: Float[Array, "K T N"],
    ):
        self.mu, self.log_weights, self.log_likelihoods = mu, log_weights, log_likelihoods
        steps = jnp.concatenate([log_weights[:, None], log_likelihoods], axis=1)
        self.weights = jax.nn.softmax(jnp.cumsum(steps, axis=1), axis=-1)
        self.sums = SortedSums(mu, self.weights)

    def means(self, counts: Counts) -> Array:
        if isinstance(counts, tuple) or np.ndim(counts) > 1:
            return super().means(counts)
        # One vector of counts: the weights on the way there need not be known.
        num_arms, size = self.log_likelihoods.shape[:2]
        counts = jnp.broadcast_to(jnp.asarray(counts), (num_arms,))
        known = jnp.arange(size)[None, :] < counts[:, None]
        total = jnp.where(known[:, :, None], self.log_likelihoods, 0).sum(axis=1)
        return jnp.sum(jax.nn.softmax(self.log_weights + total, axis=1) * self.mu, axis=1)

    def own_means(self) -> Array:
        return jnp.einsum("ktn,kn->kt", self.weights, self.mu)

    def expected_max(self, lam: Array) -> Array:
        return self.sums.expected_max(lam)

    def expected_best(self) -> Array:
        # E max = top - sum over cells of (width) prod_a (mean of F_a there): exact where every
        # point is a node, and elsewhere of second order in what F_a rises by within a cell.
        nodes = jnp.sort(self.mu.ravel())
        if len(nodes) > _LATTICE_POINTS:
            nodes = nodes[np.linspace(0, len(nodes) - 1, _LATTICE_POINTS).round().astype(int)]
        gaps = jnp.diff(nodes)
        # How much of each cell lies above each point.
        above = nodes[None, None, 1:] - self.mu[:, :, None]
        above = jnp.clip(above / jnp.maximum(gaps, jnp.finfo(gaps.dtype).tiny)[None, None], 0, 1)
        cdf = jnp.einsum("ktn,knj->ktj", self.weights, above, precision="highest")
        return expected_best_lattice(cdf, gaps, nodes[-1])
