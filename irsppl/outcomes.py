"""`Outcome`: one future, with the arms' true means and the reward of every pull of every arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import as_floats, as_numbers, is_concrete, require_finite
from irsppl._fields import changed


class Outcome(eqx.Module):
    """A future (the paper's omega): what each arm's mean is and what each of its pulls would pay.

    `rewards[a, n]` is the reward of pull number n of arm a from now on (not of period n); where
    pulls are pending, an arm's row starts with the rewards of those. `belief` is set when posterior
    means along this future must be computed within a belief drawn together with it (particles);
    otherwise the bandit's own belief serves. `delays[a, n]` goes with `rewards[a, n]` in bandits
    with random delays (infinity: never seen); `periods` is how long play goes on from now, where
    the horizon has a law. Several futures, for `simulate(outcomes=)`: a leading axis S throughout.
    """

    means: Float[Array, "*S K"]
    rewards: Float[Array, "*S K N"]
    belief: Any = None
    delays: Int[Array, "*S K N"] | None = None
    periods: Int[Array, "*S"] | None = None

    def __init__(
        self, means: Any, rewards: Any, belief: Any = None, delays: Any = None, periods: Any = None
    ):
        self.means = as_floats("means", means, ndim=None)
        self.rewards = as_floats("rewards", rewards, ndim=None).astype(self.means.dtype)
        shape = self.rewards.shape
        if len(shape) not in (2, 3) or shape[:-1] != self.means.shape:
            raise ValueError(
                "means must be [K] and rewards [K, N], one row per arm, or [S, K] and [S, K, N] "
                f"for several futures, got shapes {self.means.shape} and {shape}"
            )
        if belief is not None and not isinstance(belief, eqx.Module):
            raise ValueError(f"belief must be an irsppl belief or None, got {belief!r}")
        self.belief = belief
        self.delays = None if delays is None else _as_delays(delays, shape)
        self.periods = None if periods is None else _as_periods(periods, shape[:-2])
        require_finite("means", self.means)
        require_finite("rewards", self.rewards)

    @property
    def num_arms(self) -> int:
        return self.means.shape[-1]

    def bare(self) -> Outcome:
        """The same without the belief that came with it: what a policy is played against."""
        return changed(self, belief=None)

    def __repr__(self) -> str:
        if is_concrete(self.means) and isinstance(self.means, (jax.Array, np.ndarray)):
            means = np.array2string(np.asarray(self.means), precision=4)
        else:
            means = str(self.means)
        return f"Outcome(means={means}, rewards: {tuple(self.rewards.shape)})"


def _as_delays(delays: Any, shape: tuple[int, ...]) -> Array:
    if is_concrete(delays):
        host = np.real(as_numbers("delays", delays)).astype(np.float64)
        if host.shape != shape or not np.all((host >= 0) & (host == np.rint(host))):
            raise ValueError(
                "delays must be one whole number of at least 0 (or infinity) for each of "
                f"rewards {tuple(shape)}, got {delays!r}"
            )
        delays = np.minimum(host, 2**30)
    return jnp.asarray(delays).astype(jnp.int32)


def _as_periods(periods: Any, shape: tuple[int, ...]) -> Array:
    if is_concrete(periods):
        host = np.real(as_numbers("periods", periods)).astype(np.float64)
        whole = np.all((host >= 0) & (host == np.rint(host)) & (host < 2**31))
        if host.shape != shape or not whole:
            raise ValueError(
                "periods must be a whole number of at least 0, one for each future, "
                f"got {periods!r}"
            )
        periods = host.astype(np.int32)
    return jnp.asarray(periods, jnp.int32)


def prefix(outcome: Outcome, length: int) -> Outcome:
    """The outcome with its rewards cut to the first `length` pulls of each arm."""
    delays = None if outcome.delays is None else outcome.delays[:, :length]
    return changed(outcome, rewards=jnp.asarray(outcome.rewards)[:, :length], delays=delays)


# Arms x pulls of the futures that the host works on at once: their arrays take some 30 MB.
_BLOCK_CELLS = 2**19


def block_size(num_arms: int, length: int) -> int:
    """Futures of a block on the host: a power of two."""
    return 1 << max(0, (_BLOCK_CELLS // (num_arms * length)).bit_length() - 1)


def blocks(outcomes: Outcome) -> Iterator[Outcome]:
    """A batch of futures, axis S first, in blocks on the host that take little memory."""
    count = len(outcomes.rewards)
    size = block_size(*outcomes.rewards.shape[1:])
    if count <= size:
        yield outcomes
        return
    host = jax.tree.map(np.asarray, outcomes)
    for start in range(0, count, size):
        cut = slice(start, start + size)
        yield jax.tree.map(lambda leaf, cut=cut: leaf[cut], host)
