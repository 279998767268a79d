"""What values a reward can take."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions import constraints

from irsppl.models._distributions import WRAPPERS, ZERO_INFLATED, plain_constraint


@dataclasses.dataclass(frozen=True)
class RewardSupport:
    """The values a reward can take, whatever the latents are."""

    low: float = -np.inf
    high: float = np.inf
    integer: bool = False
    open_low: bool = False  # low itself is impossible (an open end)
    open_high: bool = False
    values: np.ndarray | None = None  # the possible rewards, when they are finitely many
    inside: float = 0.0  # a possible reward, to pad buffers with

    def check(self, reward: Any) -> np.ndarray:
        """Whether each reward is possible; the shape follows `reward`. Host values only."""
        host = np.asarray(reward, dtype=np.float64)
        if self.values is not None:
            gaps = np.abs(host[..., None] - self.values)
            return np.any(gaps <= 1e-6 * (1 + np.abs(self.values)), axis=-1)
        ok = np.isfinite(host) & (host >= self.low) & (host <= self.high)
        if self.open_low:
            ok &= host > self.low
        if self.open_high:
            ok &= host < self.high
        if self.integer:
            ok &= host == np.round(host)
        return ok

    def __str__(self) -> str:
        if self.values is not None:
            shown = [f"{v:g}" for v in self.values]
            if len(shown) > 12:
                shown = [*shown[:3], "...", shown[-1]]
            return "one of " + ", ".join(shown)
        kind = "a whole number" if self.integer else "a number"
        ends = []
        if np.isfinite(self.low):
            ends.append(f"{'above' if self.open_low else 'of at least'} {self.low:g}")
        if np.isfinite(self.high):
            ends.append(f"{'below' if self.open_high else 'of at most'} {self.high:g}")
        return " and ".join([f"{kind} {ends[0]}", *ends[1:]]) if ends else kind


def ends(fn: dist.Distribution) -> tuple[Array, Array, bool, bool, bool]:
    """(low, high, integer, low is open, high is open) of a scalar law; the first two may be traced.

    Where NumPyro's own support is wider than the truth the ends are too: they serve to refuse
    what can never happen, the likelihood does the rest.
    """
    if isinstance(fn, WRAPPERS):
        return ends(fn.base_dist)
    if isinstance(fn, ZERO_INFLATED):
        low, high, integer, _, open_high = ends(fn.base_dist)
        # The atom at zero closes an end at zero.
        return jnp.minimum(low, 0.0), jnp.maximum(high, 0.0), integer, False, open_high
    if isinstance(fn, dist.MixtureGeneral):
        parts = [ends(component) for component in fn.component_distributions]
        low = jnp.min(jnp.stack([part[0] for part in parts]))
        high = jnp.max(jnp.stack([part[1] for part in parts]))
        integer, open_low, open_high = (all(part[i] for part in parts) for i in (2, 3, 4))
        return low, high, integer, open_low, open_high
    if isinstance(fn, dist.FoldedDistribution):
        return jnp.zeros(()), jnp.asarray(jnp.inf), False, False, False
    support = plain_constraint(fn.support)
    integer = bool(support.is_discrete)
    if support is constraints.boolean:
        return jnp.zeros(()), jnp.ones(()), True, False, False
    lower = getattr(support, "lower_bound", None)
    upper = getattr(support, "upper_bound", None)
    closed_low = isinstance(
        support, (type(constraints.greater_than_eq(0.0)), type(constraints.interval(0.0, 1.0)))
    )
    closed_high = isinstance(
        support, (type(constraints.less_than_eq(0.0)), type(constraints.interval(0.0, 1.0)))
    )
    if isinstance(support, type(constraints.open_interval(0.0, 1.0))):
        closed_low = closed_high = False
    return (
        jnp.asarray(-jnp.inf if lower is None else lower, dtype=float).reshape(()),
        jnp.asarray(jnp.inf if upper is None else upper, dtype=float).reshape(()),
        integer,
        lower is not None and not integer and not closed_low,
        upper is not None and not integer and not closed_high,
    )
