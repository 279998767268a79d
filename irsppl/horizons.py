"""Horizons that are not known: a law of the number of periods, as survivor probabilities."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import MOST_PERIODS, as_count, as_numbers, host64, side_key
from irsppl.constraints import End, Moment, Sure
from irsppl.outcomes import Outcome

# An unbounded law is cut where the periods beyond are this small a share of the expected number;
# what any policy could earn there is added to the bounds.
_TAIL = 1e-8
_LONGEST = 2**17
# Numbers whose probabilities are asked for at a time.
_PIECE = 4096
_TOO_LONG = (
    ": the record of pulls and a single future would not fit into memory. Plan for the next "
    "10,000,000 periods, or count in batches of pulls; docs/long-horizons.md tells what long "
    "horizons cost (policies and bounds such as irsppl.Mix(T0=200))"
)


class SurvivorTable:
    """P(T >= 1), P(T >= 2), ... on the host in float64, as part of a bandit's structure."""

    def __init__(self, values: np.ndarray):
        self.values = values
        self._hash = hash(values.tobytes())

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SurvivorTable) and np.array_equal(self.values, other.values)


class Law(End):
    """Nobody knows when play ends, but with what probability each period is played."""

    name: ClassVar[str] = "horizon law"
    instead: ClassVar[str] = "'irs.fh', 'irs.ff' (bound only) or 'irs.v-zero'"
    draws: ClassVar[str] = "periods"

    survivor: Float[Array, " T"]  # P(T >= 1), P(T >= 2), ...
    table: SurvivorTable = eqx.field(static=True)  # the same in full precision
    tail: float = eqx.field(static=True)  # expected periods beyond those that are planned for

    def sample(self, key: Array, bandit: Moment, running: bool) -> Int[Array, ""]:
        weights = self.weights(bandit)
        level = jax.random.uniform(side_key(key, "periods"), (), weights.dtype)
        level = level * weights[0] if running else level
        return jnp.sum(weights > level).astype(jnp.int32)

    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> np.ndarray:
        weights = np.asarray(self.weights(bandit))
        return np.sum(weights[None, :] > uniforms(1), axis=1).astype(np.int32)

    def completed(self, outcome: Outcome) -> Outcome:
        if outcome.periods is None:
            raise ValueError(
                "outcome.periods must tell how long play goes on, because this bandit's horizon "
                "has a law: Outcome(means=..., rewards=..., periods=...)"
            )
        return outcome

    def impossible(self, bandit: Moment, outcomes: Outcome) -> str:
        least, most = int(bandit.period > 0), int(bandit.remaining)
        given = np.asarray(outcomes.periods)
        possible = np.all((given >= least) & (given <= most))
        return "" if possible else f"periods must be from {least} to {most}, what the law allows"

    def weights(self, bandit: Moment) -> Float[Array, " N"]:
        at = bandit.period + jnp.arange(bandit.size)
        later = jnp.take(self.survivor, at, mode="fill", fill_value=0)
        here = jnp.take(self.survivor, bandit.period, mode="clip")
        # At the start nothing has been seen.
        return jnp.where(bandit.period > 0, later / here, later)

    def chances(self, period: int) -> Float[np.ndarray, " T"]:
        later = self.table.values[period:]
        return later / later[0] if period else later

    def beyond(self, period: int) -> float:
        return self.tail / (self.table.values[period] if period else 1.0)


def read_horizon(horizon: Any, dtype: Any) -> tuple[int, End]:
    """Periods to plan for, and when play ends; dtype: of what is believed.

    horizon: a whole number, a NumPyro distribution over 0, 1, ... (mass at 0 earns nothing), or an
    array of P(T >= 1), P(T >= 2), ...
    """
    if _is_number(horizon):
        return as_count("horizon", horizon, maximum=MOST_PERIODS, why=_TOO_LONG), Sure()
    if hasattr(horizon, "log_prob"):
        survivor, tail = _of_law(horizon)
    elif isinstance(horizon, str):
        raise ValueError(f"horizon must be a whole number of at least 1, got {horizon!r}")
    else:
        survivor, tail = _of_array(horizon), 0.0
    survivor = np.trim_zeros(survivor, "b")
    if not survivor.size:
        raise ValueError("horizon must leave a chance of at least one period, got a law that is 0")
    certain = bool(np.all(survivor == 1.0)) and tail == 0.0
    law = Law(jnp.asarray(survivor, dtype), SurvivorTable(survivor), tail)
    return len(survivor), Sure() if certain else law


def _is_number(value: Any) -> bool:
    if value is None or isinstance(value, bool | numbers.Number | np.generic):
        return True
    return isinstance(value, jax.Array | np.ndarray) and np.ndim(value) == 0


def _of_array(horizon: Any) -> np.ndarray:
    survivor = np.empty(0)
    try:
        given = as_numbers("horizon", horizon)
    except ValueError:
        given = np.empty(0)
    if given.dtype != bool and not np.issubdtype(given.dtype, np.complexfloating):
        survivor = host64(given)
    good = survivor.ndim == 1 and survivor.size and np.all(np.isfinite(survivor))
    if good:
        good = survivor[0] <= 1 and survivor[-1] >= 0 and np.all(np.diff(survivor) <= 0)
    if not good:
        raise ValueError(
            "horizon must be a whole number, a NumPyro distribution over 0, 1, ..., or survivor "
            f"probabilities P(T >= 1), P(T >= 2), ... that fall from at most 1, got {horizon!r}"
        )
    as_count("the length of horizon", survivor.size, maximum=MOST_PERIODS, why=_TOO_LONG)
    return survivor


def _of_law(law: Any) -> tuple[np.ndarray, float]:
    """Survivor probabilities of a NumPyro distribution, cut where almost nothing is left."""
    if getattr(law, "batch_shape", ()):
        raise ValueError(
            "horizon must be one distribution, since all arms end together, got a batch of shape "
            f"{law.batch_shape}: {law!r}"
        )
    # A law over finitely many numbers is tabulated whole, if that is no longer than any other's.
    last = float(getattr(law.support, "upper_bound", np.inf))
    whole = last < _LONGEST
    size = int(last) + 1 if whole else 1024
    masses = integer_law("horizon", law)
    while True:
        mass = masses(size)
        beyond = 1.0 - mass.sum()  # P(T >= size)
        # Probabilities that are a little off: after a long stretch of nothing no more is to come.
        ended = size >= _LONGEST and mass[size // 4 :].sum() < 1e-12 and abs(beyond) < 1e-6
        if whole or ended or beyond < 1e-11:
            mass, beyond = mass / mass.sum(), 0.0
        # P(T >= t) for t = 1, ..., size, summed from the small end.
        survivor = np.cumsum(mass[::-1])[::-1][1:] + beyond
        survivor = np.append(survivor, beyond)
        left = np.cumsum(survivor[::-1])[::-1]  # E[(T - t + 1)+] as far as the table goes
        # Geometric beyond the table, or lighter: its periods come to about this. The rate is that
        # of half the table: one number with much mass must not pass for the end.
        half = survivor[size // 2]
        rate = (beyond / half) ** (1 / max(size - 1 - size // 2, 1)) if beyond > 0 else 0.0
        unseen = beyond * rate / (1 - rate) if rate < 1 else np.inf
        if unseen <= 1e-3 * _TAIL * left[0]:
            break
        if size >= _LONGEST:
            raise ValueError(
                f"horizon must be a law that ends: P(T >= {size}) is still {beyond:.3g} for "
                f"{law!r}. Give a law with a finite, shorter mean, or survivor probabilities"
            )
        size *= 4
    survivor = np.minimum(survivor, 1.0)
    enough = int(np.searchsorted(-left, -_TAIL * left[0]))  # first t with little enough left
    if enough >= len(survivor):
        return survivor, float(unseen)
    if not np.any(survivor[enough:] > 0):
        return survivor, 0.0
    return survivor[:enough], float(left[enough] + unseen)


def integer_law(name: str, law: Any) -> Callable[[int], np.ndarray]:
    """Of a NumPyro distribution over 0, 1, ...: size -> P(X = 0), ..., P(X = size - 1), in float64.

    `[size]`, or `[K, size]` for a distribution with one law per arm.
    """
    import numpyro.distributions as dist

    message = f"{name} must be a distribution over 0, 1, 2, ..., got {law!r}"
    if not isinstance(law, dist.Distribution):
        raise ValueError(f"{message}, which is not a NumPyro distribution")
    _check_parameters(message, law)
    if law.event_shape:
        raise ValueError(f"{message}, whose draws are not single numbers")
    if isinstance(law, dist.Delta):
        value = host64(law.v)
        if np.any(value < 0) or np.any(value != np.rint(value)):
            raise ValueError(f"{message}, at {np.asarray(law.v).tolist()}")
        return lambda size: (np.arange(size) == value[..., None]).astype(np.float64)
    if not law.is_discrete:
        raise ValueError(f"{message}, which is continuous")
    lowest = np.min(np.asarray(getattr(law.support, "lower_bound", 0)))
    if lowest < 0 or np.any(_piece(law, -1)[0]):
        raise ValueError(f"{message}, which allows negative values")
    pieces: list[tuple[np.ndarray, np.ndarray]] = []

    def masses(size: int) -> np.ndarray:
        pieces.extend(_piece(law, i) for i in range(len(pieces), -(-size // _PIECE)))
        inside, logs = (np.concatenate(each) for each in zip(*pieces, strict=True))
        if np.any(np.all(np.isnan(logs), axis=0)):
            raise ValueError(f"{message}, whose probabilities are not numbers")
        mass = np.where(inside & np.isfinite(logs), np.exp(logs), 0.0)[:size]
        total = mass.sum(axis=0).max()
        if total > 1 + 1e-4:
            raise ValueError(f"{message}, whose probabilities add up to {total:.4g}")
        return np.moveaxis(mass, 0, -1)

    return masses


def _piece(law: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Of as many values as make a piece: whether they are possible, and log-probabilities.

    All pieces have one shape: however far a law reaches, one program serves. By SciPy where NumPyro
    goes through JAX's `betaln`, which is off by 1e-7.
    """
    import numpyro.distributions as dist
    from scipy import stats

    with jax.enable_x64(True):
        exact = jax.tree.map(_as_float64, law)
        points = _at_each(np.arange(_PIECE) + number * _PIECE, law.batch_shape)
        at = np.asarray(points)
        if isinstance(law, dist.GammaPoisson):
            rate = host64(law.rate)
            logs = stats.nbinom.logpmf(at, host64(law.concentration), rate / (1 + rate))
        elif isinstance(law, dist.BetaBinomial):
            shapes = host64(law.concentration1), host64(law.concentration0)
            logs = stats.betabinom.logpmf(at, np.asarray(law.total_count), *shapes)
        else:
            try:
                inside, logs = _looked_up(exact, points)
            except (TypeError, ValueError, IndexError):  # a law that must see its parameters
                inside, logs = _look_up(exact, points)
            return np.asarray(inside), np.asarray(logs, np.float64)
    return logs > -np.inf, logs


def _look_up(law: Any, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(law.support)(points), jax.vmap(law.log_prob)(points)


_looked_up = jax.jit(_look_up)


def _check_parameters(message: str, law: Any) -> None:
    """NumPyro can be told not to check parameters, and then gives NaN for probabilities."""
    try:
        law.validate_args()
    except ValueError as error:
        raise ValueError(f"{message}: {error}") from error
    if hasattr(law, "base_dist"):
        _check_parameters(message, law.base_dist)


def _at_each(points: np.ndarray, batch: tuple[int, ...]) -> jax.Array:
    """The points, for every law of a batch: `[len(points), *batch]`."""
    column = points.reshape(-1, *[1] * len(batch))
    return jnp.asarray(np.broadcast_to(column, (len(points), *batch)))


def _as_float64(leaf: Any) -> Any:
    if isinstance(leaf, float | jax.Array | np.ndarray):
        host = np.asarray(leaf)
        if np.issubdtype(host.dtype, np.floating):
            return jnp.asarray(host64(host))
    return leaf
