"""IRS.Mix: V-Zero for an arm's first pulls, FH for the rest; the cost does not grow with T."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from irsppl._checks import as_count, side_key
from irsppl._fields import changed
from irsppl.bandit import Bandit
from irsppl.beliefs import Conjugate, for_simulation
from irsppl.inner.mixture import mix, mix_batch
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import HostPayoff, Inner
from irsppl.penalties.base import CONJUGATE, PayoffPenalty, future_means, natural_means

_DEFAULT = 200


class FirstPulls(HostPayoff):
    """The first n0 pulls of an arm pay `prefix[a, n]`, all later ones `later[a]`."""

    prefix: Float[ArrayLike, "... K n0"]
    later: Float[ArrayLike, "... K"]

    def solve(self, bandit: Bandit, periods: Array) -> Inner:
        value, pulls = mix(jnp.asarray(self.prefix), jnp.asarray(self.later), periods, bandit.size)
        return Inner(value, jnp.argmax(pulls), pulls)  # the most pulled arm, as in V-Zero

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        prefix, later = (np.asarray(table, np.float64) for table in (self.prefix, self.later))
        return np.asarray(mix_batch(prefix, later, int(bandit.remaining))[0], np.float64)


class Mix(PayoffPenalty):
    """The first n0 pulls of an arm pay mu_hat_{a, n-1}, as in V-Zero, later ones mu_hat_{a, T-1}.

    n0 = floor(T0 / K), at least 1: T0 is about the number of pulls that are planned with care.

    Dual feasible, because either payoff is E[mu_a | G] with the decision maker's history within G:
    before pull n of arm a that history holds n - 1 <= T - 1 rewards of the arm, and what it holds
    of other arms says nothing of this one, since arms are independent.

    W falls from W^FH (n0 = 0) to W^V-Zero (n0 >= T - 1) as T0 grows: see docs/long-horizons.md.
    """

    name: ClassVar[str] = "irs.mix"
    host_needs: ClassVar[frozenset[str] | None] = CONJUGATE
    grows: ClassVar[bool] = False
    settles: ClassVar[bool] = True
    T0: int = eqx.field(static=True)

    def __init__(self, T0: int = _DEFAULT):
        self.T0 = as_count("T0", T0)

    @property
    def label(self) -> str:
        return self.name if self.T0 == _DEFAULT else f"{self.name} (T0={self.T0})"

    def check(self, bandit: Bandit) -> None:
        if not bandit.belief.is_independent:
            raise ValueError(
                f"{self.name} needs independent arms: with correlated ones, what a pull pays "
                "depends on the pulls of other arms; use 'irs.v-zero-separable' or 'irs.fh'"
            )

    def early_pulls(self, bandit: Any) -> int:
        """n0, at most the horizon (beyond it nothing changes)."""
        return min(max(1, self.T0 // bandit.num_arms), bandit.size)

    def payoff(self, bandit: Bandit, outcome: Outcome) -> FirstPulls:
        n0 = self.early_pulls(bandit)
        belief = outcome.belief or bandit.belief
        known = bandit.remaining - 1
        if bandit.pending_counts is None:
            prefix = belief.along(outcome.rewards[:, :n0]).own_means()[:, :n0]
        else:  # pending rewards come first in each row, and then are known
            prefix = future_means(bandit, outcome)[:, :n0]
            known = known + bandit.pending_counts
        return FirstPulls(prefix, belief.along(outcome.rewards).means(known))

    def decide(self, key: Array, bandit: Bandit) -> Array:
        if not isinstance(bandit.belief, Conjugate):
            return super().decide(key, bandit)
        # Only n0 rewards per arm and one later mean are drawn, so T may be as long as you like.
        n0 = self.early_pulls(bandit)
        bandit = settled(side_key(key, "pending"), bandit)
        belief = bandit.belief
        assert isinstance(belief, Conjugate)
        _, rewards, later = belief.sample_prefix(key, n0, bandit.remaining - 1)
        prefix = belief.along(rewards).own_means()[:, :n0]
        return jnp.asarray(FirstPulls(prefix, later).solve(bandit, bandit.remaining).action)

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> FirstPulls:
        belief = bandit.belief
        assert isinstance(belief, Conjugate)
        (xi, nu), n0 = belief.natural_state(), self.early_pulls(bandit)
        rewards, remaining = np.asarray(outcomes.rewards), int(bandit.remaining)
        # Without a copy of all rewards in float64.
        prefix = natural_means((xi, nu), rewards[:, :, : min(n0, remaining) - 1])
        later = xi[None, :] + rewards[:, :, : remaining - 1].sum(axis=2, dtype=np.float64)
        return FirstPulls(prefix, later / (nu[None, :] + (remaining - 1)))

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        # Without the record of pulls, posterior means are computed only as far as they count.
        return super().values(bandit if bandit.pending else bandit.trimmed(bandit.size), outcomes)


def settled(key: Array, bandit: Bandit) -> Bandit:
    """The state in which pending rewards have arrived, each drawn from the belief; keeps no record.

    Rewards are exchangeable: drawing the pending ones, updating, and drawing the rest from the
    belief so reached has the law of drawing all at once. No array as long as the horizon is made,
    and with nothing pending nothing is drawn.
    """
    if bandit.pulled is None or bandit.seen is None:
        return bandit
    num_arms = bandit.num_arms
    waiting = jax.lax.cond(
        jnp.any((bandit.pulled >= 0) & ~bandit.seen),
        lambda: jnp.asarray(bandit.pending_counts, jnp.int32),
        lambda: jnp.zeros(num_arms, jnp.int32),
    )
    dynamic, static = eqx.partition(for_simulation(bandit.belief), eqx.is_array)

    def arrive(state: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        dynamic, waiting, key = state
        belief = eqx.combine(dynamic, static)
        key, own = jax.random.split(key)
        arm = jnp.argmax(waiting)
        reward = belief.draw(own, 1).rewards[arm, 0]
        updated = eqx.filter(belief.given(arm, reward), eqx.is_array)
        return updated, waiting.at[arm].add(-1), key

    dynamic, _, _ = jax.lax.while_loop(
        lambda state: jnp.any(state[1] > 0), arrive, (dynamic, waiting, key)
    )
    bare = bandit.trimmed(bandit.size)
    return changed(bare, belief=eqx.combine(dynamic, static))
