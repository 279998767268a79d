"""What beliefs become along one sampled future: `future = belief.along(rewards)`.

K arms, N rewards of each. Arms come first in every answer.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# How many rewards of each arm are known: a number for all, `[K]` or `[K, ...]`, or a `lattice`.
Counts = Any


class Future(eqx.Module):
    """The rewards that every arm would give, ready to be asked what they teach."""

    @abc.abstractmethod
    def means(self, counts: Counts) -> Float[Array, "K ..."]:
        """`[a, ...]`: posterior mean of arm a given the first counts[b] rewards of every arm b."""

    @abc.abstractmethod
    def own_means(self) -> Float[Array, "K N+1"]:
        """`[a, n]`: posterior mean of arm a given its own first n rewards and no others."""

    @abc.abstractmethod
    def expected_max(self, lam: Float[Array, " K"]) -> Float[Array, "K N+1"]:
        """`[a, n]`: E[max(mu_a, lam_a)] given arm a's own first n rewards and no others."""

    @abc.abstractmethod
    def expected_best(self) -> Float[Array, "..."]:
        """`[n_1, ..., n_K]`: E[max_a mu_a] given the first n_b rewards (0..N) of every arm b."""


class IndependentFuture(Future):
    """Of independent arms: all means are entries of one table, `own_means`."""

    def means(self, counts: Counts) -> Array:
        found = at_counts(self.own_means(), counts)
        return jnp.stack(jnp.broadcast_arrays(*found)) if isinstance(found, list) else found


class CorrelatedFuture(Future):
    """Of arms that tell of each other."""

    @abc.abstractmethod
    def separable(
        self, own: Int[Array, "K M"], others: Int[Array, "... M"]
    ) -> tuple[Float[Array, "K M"], Float[Array, "K M"]]:
        """`[a, m]`: (mean, sd) of mu_a given own[a, m] of its rewards and `others` of each other.

        others: `[M]`, the same for all arms, or `[K, M]`, so many of each.
        """


def lattice(num_arms: int, size: int) -> tuple[np.ndarray, ...]:
    """Every vector of counts from 0 to size - 1: one axis per arm, as `numpy.ix_` writes it."""
    return np.ix_(*[np.arange(size)] * num_arms)


def at_counts(tables: Float[Array, "K N ..."], counts: Counts) -> Any:
    """tables[b] at counts[b] for every arm b: `[K, ...]`; of a lattice a list that broadcasts."""
    if isinstance(counts, tuple):
        return [  # rows at an axis of a lattice
            row.reshape(at.shape + row.shape[1:]) if at.size == len(row) else row[at]
            for row, at in zip(tables, counts, strict=True)
        ]
    if isinstance(counts, np.ndarray) and np.array_equal(
        counts, np.broadcast_to(np.arange(tables.shape[1]), tables.shape[:2])
    ):
        return tables  # all of them, known before anything is compiled: nothing to look up
    counts = jnp.asarray(counts)
    if counts.ndim == 0:
        counts = jnp.broadcast_to(counts, tables.shape[:1])
    return jax.vmap(lambda row, at: row[at])(tables, counts)
