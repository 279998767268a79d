"""IRS.V-Zero: a pull pays what its arm's earlier pulls have taught; allocate T pulls at best."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import one_of
from irsppl.bandit import Bandit
from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.inner.lattice import check_size
from irsppl.outcomes import Outcome
from irsppl.penalties._base import (
    Inner,
    Penalty,
    host_future_means,
    inner_of_sequence,
    lattice_after_pending,
)
from irsppl.penalties._reveal import at_each, by_arrival, periods_of
from irsppl.penalties._spend import spend
from irsppl.penalties.fh import FORMS


class VZero(Penalty):
    """The n-th pull of arm a pays mu_hat_{a, n-1} (paper, eq. penalty-irs-vzero).

    Under a delay its policy plans on what will have arrived if an arm is pulled without a break;
    the bound would need the order of pulls, so `irs.v-zero-separable` gives that. form: where the
    horizon has a law, "sampled" reveals T with each future; "survivor" weights each period by the
    chance that it is played, which is tighter, but the order of pulls matters: small cases only.
    """

    name: ClassVar[str] = "irs.v-zero"
    on_host: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})
    form: str = eqx.field(static=True, default="sampled")

    def __check_init__(self) -> None:
        one_of("form", self.form, FORMS)

    @property
    def label(self) -> str:
        return self.name if self.form == "sampled" else f"{self.name} ({self.form})"

    def check(self, bandit: Bandit) -> None:
        if self._over_counts(bandit):
            check_size(self.name, bandit.num_arms, bandit.size, "'irs.v-zero-separable'")
            if bandit.delay is not None:
                raise ValueError(
                    f"{self.name} plans over counts of pulls here, which do not tell what a delay "
                    "has let through; use 'irs.v-zero-separable'"
                )

    def check_bound(self, bandit: Bandit) -> None:
        if bandit.delay is not None:
            raise ValueError(
                f"{self.name} gives no bound under a delay, because what a pull pays would depend "
                "on the order of the pulls; use 'irs.v-zero-separable', 'irs.fh' or 'irs.ff'"
            )

    def _over_counts(self, bandit: Bandit) -> bool:
        """Correlated arms, or weights: what a pull pays depends on the counts of all arms."""
        weighted = bandit.survivor is not None and self.form == "survivor"
        return weighted or not bandit.belief.is_independent

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        belief = outcome.belief or bandit.belief
        periods = periods_of(bandit, outcome)
        if self._over_counts(bandit):
            payoff = lattice_after_pending(bandit, belief.lattice_means(outcome.rewards), first=1)
            if bandit.survivor is not None and self.form == "survivor":
                payoff, periods = payoff * lattice_weights(bandit, payoff), bandit.remaining
            return inner_of_sequence(bandit, payoff, periods, most_pulled=True)
        means = self._means(bandit, outcome)
        if bandit.purse is not None:
            return spend(bandit, "groups", means)
        payoffs = jnp.pad(jnp.cumsum(means, axis=1), ((0, 0), (1, 0)))
        value, pulls = allocate(payoffs, periods)
        # Any arm with a pull would be a first action; the most pulled one makes it like TS for
        # long horizons (paper, Proposition on asymptotic behaviour).
        return Inner(value, jnp.argmax(pulls), pulls)

    def _means(self, bandit: Bandit, outcome: Outcome) -> Float[Array, "K N"]:
        """What the n-th pull of each arm pays."""
        rewards, known = by_arrival(bandit, outcome)
        return at_each((outcome.belief or bandit.belief).path_means(rewards), known[:, :-1])

    def spends(self, bandit: Bandit) -> str | None:
        return None if self._over_counts(bandit) else "groups"

    def spending(self, bandit: Bandit, outcome: Outcome) -> Array:
        return self._means(bandit, outcome)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        means = host_future_means(bandit, outcomes)
        if means is None:
            return super().values(bandit, outcomes)
        payoffs = np.zeros_like(means)
        np.cumsum(means[:, :, :-1], axis=2, out=payoffs[:, :, 1:])
        return allocate_batch(payoffs)[0]


def lattice_weights(bandit: Bandit, payoff: Float[Array, "K ..."]) -> Float[Array, "1 ..."]:
    """The chance that each point of the lattice of counts is played: its counts add to a period."""
    num_arms, size = payoff.shape[:2]
    period = sum(jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij"))
    return jnp.take(bandit.weights(), period, mode="fill", fill_value=0)[None]
