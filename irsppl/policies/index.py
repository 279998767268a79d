"""IRS.Index and IRS.Index*: a sampled approximation of the finite-horizon Gittins index."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irsppl._checks import as_count, side_key
from irsppl.bandit import Bandit
from irsppl.beliefs import Future
from irsppl.inner.single_arm import benefit, largest_worth
from irsppl.outcomes import Outcome, prefix
from irsppl.penalties import PerArm
from irsppl.penalties.arrivals import at_each, by_arrival, periods_of
from irsppl.penalties.mix import settled
from irsppl.policies._base import Policy, last_period


class Index(Policy):
    """Each arm's index is the known option that makes it barely worth trying in sampled futures.

    num_futures: futures per decision; the index is the root of their mean phi (1: the paper's).
    lookahead: plan for at most that many periods (an anytime policy for very long horizons).
    star: the paper's heuristic variant IRS.Index*, which is not myopic in the last period.

    Under a budget an arm's index is that for the pulls of it which the money left can pay, and the
    indices are what pulls are worth in the knapsack of that money: the arm with the most pulls is
    played. With much money that is the arm with the best index per cost, and in the end it also
    counts what the last of the money can buy.
    """

    name: ClassVar[str] = "irs.index"
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})
    num_futures: int = eqx.field(static=True)
    lookahead: int | None = eqx.field(static=True)
    star: bool = eqx.field(static=True)

    def __init__(self, num_futures: int = 1, lookahead: int | None = None, star: bool = False):
        self.num_futures = as_count("num_futures", num_futures)
        self.lookahead = None if lookahead is None else as_count("lookahead", lookahead)
        if not isinstance(star, bool):
            raise ValueError(f"star must be True or False, got {star!r}")
        self.star = star

    @property
    def grows(self) -> bool:
        return self.lookahead is None

    def settled(self, bandit: Bandit) -> bool:
        return not self.star and last_period(bandit)

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if not bandit.access.binds:
            return jnp.argmax(self.indices(key, bandit, only_best=True))
        return self.priced(bandit, self.indices(key, bandit))

    def priced(self, bandit: Bandit, indices: Float[Array, " K"]) -> Array:
        """The arm to pull where not every one may always be, given the indices."""
        return jnp.asarray(PerArm(indices).solve(bandit, bandit.remaining).action)

    def indices(self, key: Array, bandit: Bandit, only_best: bool = False) -> Float[Array, " K"]:
        """The sampled index of each arm; only_best: no closer than it takes to find the best."""
        keys = jax.random.split(key, self.num_futures)
        size = self.lookahead
        if size is None or size >= bandit.size or bandit.arrivals.late:
            outcomes = jax.vmap(bandit.sample_outcome)(keys)
            return self.indices_given(bandit, outcomes, only_best)

        def look(key: Array) -> Outcome:
            # No more rewards than are planned for, so pending ones cannot come first in the rows:
            # they arrive beforehand, and means along the future start from the belief they leave.
            belief = settled(side_key(key, "pending"), bandit).belief
            outcome = belief.draw(key, size)
            periods = bandit.end.sample(key, bandit, running=True)
            return Outcome(outcome.means, outcome.rewards, belief, periods=periods)

        return self.indices_given(bandit.trimmed(size), jax.vmap(look)(keys), only_best)

    def indices_given(
        self, bandit: Bandit, outcomes: Any, only_best: bool = False
    ) -> Float[Array, " K"]:
        """The index of each arm for given futures (`outcomes` has a leading axis)."""
        belief = bandit.belief
        size = bandit.size
        if self.lookahead is not None and bandit.pending_counts is None:
            size = min(size, self.lookahead)  # nothing pending: later rewards are not needed

        in_order = not bandit.arrivals.late and bandit.pending_counts is None

        def on_time(table: Array, known: Array) -> Array:
            return table if in_order else at_each(table, known)

        def look(outcome: Outcome) -> tuple[Future, Array, Array, Array]:
            # Under a delay an arm is judged by what will have arrived if it is pulled on and on.
            rewards, known = by_arrival(bandit, prefix(outcome, size))
            future = (outcome.belief or belief).along(rewards)
            horizon = periods_of(bandit, outcome)
            if self.lookahead is not None:
                horizon = jnp.minimum(horizon, self.lookahead)
            if bandit.access.binds:  # an arm that may not be pulled is left out later
                horizon = jnp.clip(bandit.access.most(bandit), 1, horizon)
            return future, known, on_time(future.own_means(), known), horizon

        futures, counts, means, horizons = jax.vmap(look)(outcomes)

        def phi(lam: Array) -> Array:
            def one(future: Future, known: Array, means: Array, horizon: Array) -> Array:
                gamma = on_time(future.expected_max(lam), known)
                return benefit(means, gamma, lam, horizon, self.star)

            return jnp.mean(jax.vmap(one)(futures, counts, means, horizons), axis=0)

        low = belief.predictive_mean()  # phi >= 0 up to the predictive mean (not for the variant)
        return largest_worth(phi, low, low + 4 * belief.mean_sd(), only_best)
