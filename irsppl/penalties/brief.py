"""Long horizons: futures of which only what a bound looks at is drawn.

A future of a million periods has a million rewards per arm. TS looks at none of them, FH at their
sum, Mix at the first few and the sum, FF at every period, of which one from each of some hundred
blocks, drawn at random, gives the same mean. Parameters and first rewards are those of the whole
future with the same key; what follows them is drawn in sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl.bandit import Bandit
from irsppl.beliefs import Conjugate, path_sums
from irsppl.inner.mixture import mix_batch
from irsppl.penalties.base import MOST_QUADRATURES
from irsppl.penalties.ff import FF
from irsppl.penalties.fh import FH
from irsppl.penalties.mix import Mix
from irsppl.penalties.ts import TS

# Periods of FF that are looked at one by one, and the length of later blocks beside their start.
_EACH = 256
_BLOCK = 0.05
# What FH pays less the true mean of its arm: of mean zero, and most of what varies in Mix.
TOWER = "irs.fh less its arm"


class Brief(eqx.Module):
    """What is drawn of a batch of futures."""

    means: Float[Array, "S K"]
    sums: Float[Array, "S K size+1"]  # of the first 0, 1, ... rewards
    total: Float[Array, "S K"]  # of T - 1 rewards
    lost: Float[Array, " S"]  # by the leader at full feedback, against the best arm


def brief_serves(bandit: Bandit, penalties: Mapping[str, Any]) -> bool:
    """Whether brief futures will do; below some thousand periods whole ones are as cheap."""
    long = int(bandit.remaining) > MOST_QUADRATURES and not bandit.constraints
    known = all(type(p) in (TS, FH, FF, Mix) for p in penalties.values())
    return long and known and not bandit.pending and isinstance(bandit.belief, Conjugate)


def blocks(first: int, periods: int) -> Int[np.ndarray, " G+1"]:
    """Ends of rising blocks that cover first, ..., periods - 1."""
    ends = [first]
    while ends[-1] < periods:
        ends.append(min(periods, ends[-1] + max(1, int(_BLOCK * ends[-1]))))
    return np.asarray(ends)


@eqx.filter_jit
def _draw(bandit: Bandit, keys: Array, size: int, periods: int, feedback: bool) -> Brief:
    belief = bandit.belief
    assert isinstance(belief, Conjugate)
    ends = blocks(size, periods) if feedback else np.asarray([size])
    starts, lengths = jnp.asarray(ends[:-1], jnp.int32), jnp.asarray(np.diff(ends), jnp.int32)

    def one(key: Array) -> Brief:
        parameter_key, reward_key = jax.random.split(key)
        means, parameters = belief.sample_parameters(parameter_key)
        sums = path_sums(belief.sample_rewards(reward_key, parameters, size))
        # The arms' own keys are those of numbers below num_arms.
        level_key, sum_key = jax.random.split(jax.random.fold_in(reward_key, belief.num_arms))
        level = jax.random.uniform(level_key, (len(ends) - 1,))
        at = starts + jnp.minimum((level * lengths).astype(jnp.int32), lengths - 1)
        top = jnp.max(means)

        def loss(total: Array, n: Array) -> Array:
            leader = jnp.argmax((belief.xi + total) / (belief.nu + n))
            return top - means[leader]

        def more(known: Any, step: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            total, n = known
            number, until, length = step
            own = jax.random.fold_in(sum_key, number)
            total = total + belief.sample_sum(own, parameters, until - n)
            return (total, until), length * loss(total, until)

        early = jax.vmap(loss, in_axes=(1, 0))(sums[:, :size], jnp.arange(size))
        numbers = jnp.arange(len(ends) - 1)
        start = (sums[:, -1], jnp.asarray(size, jnp.int32))
        (total, n), later = jax.lax.scan(more, start, (numbers, at, lengths))
        last = jax.random.fold_in(sum_key, len(ends))
        total = total + belief.sample_sum(last, parameters, periods - 1 - n)
        return Brief(means, sums, total, jnp.sum(early) + jnp.sum(later))

    return jax.vmap(one)(keys)


def brief_values(
    bandit: Bandit, penalties: Mapping[str, Any], keys: Array
) -> dict[str, Float[np.ndarray, " S"]]:
    """Inner values (FF: unbiased estimates of them) of the futures with these keys, by name."""
    belief, periods = bandit.belief, int(bandit.remaining)
    assert isinstance(belief, Conjugate)
    xi, nu = belief.natural_state()
    early = [p.early_pulls(bandit) for p in penalties.values() if isinstance(p, Mix)]
    feedback = any(isinstance(p, FF) for p in penalties.values())
    size = max([min(_EACH, periods - 1) if feedback else 1, *early])
    size = min(size, periods - 1)
    # Arrays of the whole horizon have no place here: only its number counts.
    drawn = _draw(bandit.trimmed(size), keys, size, periods, feedback)
    means, sums, total = (np.asarray(x, np.float64) for x in (drawn.means, drawn.sums, drawn.total))
    later = (xi + total) / (nu + (periods - 1))
    chosen = later.argmax(axis=1)[:, None]
    paid, truth = (np.take_along_axis(x, chosen, axis=1)[:, 0] for x in (later, means))
    values = {TOWER: periods * (paid - truth)}
    best = periods * means.max(axis=1)
    lost = np.asarray(drawn.lost, np.float64)
    found: dict[type, np.ndarray] = {TS: best, FH: periods * paid, FF: best - lost}
    for name, penalty in penalties.items():
        if type(penalty) in found:
            values[name] = found[type(penalty)]
        else:
            n0 = min(penalty.early_pulls(bandit), size)
            prefix = (xi[:, None] + sums[:, :, :n0]) / (nu[:, None] + np.arange(n0))
            values[name] = np.asarray(mix_batch(prefix, later, periods)[0], np.float64)
    return values
