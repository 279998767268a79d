"""Is it worth going on? What stopping now could cost, and how sure that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import MOST_FUTURES, as_count, as_key
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, ExactLaws, InKernels
from irsppl.bounds import Bound, Bounds, bound
from irsppl.certificates import APPROXIMATE, FEWEST, default_penalties
from irsppl.inner import knapsack
from irsppl.inner.cpu import families
from irsppl.penalties.base import total_weight
from irsppl.policies.paths import seeds_of

_DRAWS = 20_000
# Rewards that the futures of a bound may hold in all: it sets how many are sampled.
_REWARDS = 5 * 10**6


@dataclasses.dataclass(frozen=True)
class ArmAdvice:
    """What is believed of one open arm."""

    label: str
    mean: float
    interval: tuple[float, float]  # holds the arm's true mean with probability 95 %
    best: float  # probability to be the best arm
    best_stderr: float


@dataclasses.dataclass(frozen=True)
class Advice:
    """What stopping now, and playing one arm to the end, could cost.

    pulls: how often that arm is played then, on average; 0 where not playing is better. value: what
    it earns on average. bound: what nobody can earn more than on average in what
    remains, and its standard error. loss: bound + 2 standard errors - value, so at most the average
    cost of stopping.
    loss_95: with probability 95 % somebody who knew every arm's mean would gain no more by it;
    like loss, two standard errors (of the quantile's rank among the draws) are added.
    """

    period: int
    remaining: int
    arms: tuple[ArmAdvice, ...]
    best: str
    pulls: float
    value: float
    bound: float
    bound_stderr: float
    penalty: str
    loss: float
    loss_95: float
    history: tuple[dict[str, float], ...] = ()
    approximate: bool = False  # the bound is (see `irsppl.Certificate`)

    @property
    def share(self) -> float:
        """loss as a share of what is left to earn (NaN where that is not positive)."""
        return self.loss / self.bound if self.bound > 0 else float("nan")

    @property
    def share_95(self) -> float:
        return self.loss_95 / self.bound if self.bound > 0 else float("nan")

    @property
    def text(self) -> str:
        arm = next(arm for arm in self.arms if arm.label == self.best)
        # Not all periods that are planned for: the money buys fewer, or play is likely to end.
        how = f"{self.pulls:.4g} times, all that can be expected,"
        if self.pulls == self.remaining:
            how = f"for the {self.remaining} periods that remain"
        words = (
            f"{self.best} is the best arm with probability {arm.best:.1%}. Stopping now and "
            f"{f'playing it {how}' if self.pulls else 'keeping the money'} "
            f"earns {self.value:.4g}; it "
            f"costs at most {self.loss:.3g}{_of(self.share)} on average "
            f"(95 %: {self.loss_95:.3g}{_of(self.share_95)})."
        )
        earlier = [row for row in self.history if row["period"] < self.period]
        if earlier:
            then = earlier[-1]
            words += f" At period {then['period']:.0f} it was {then['loss']:.3g} at most."
        words += f" {APPROXIMATE}." if self.approximate else ""
        if self.loss <= 0.01 * abs(self.bound):
            return words + " Little can be gained by going on."
        return words + " Going on may be worth it."

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        added = {"share": self.share, "share_95": self.share_95, "text": self.text}
        return dataclasses.asdict(self) | added


def _of(share: float) -> str:
    return f", {share:.1%} of what is left" if np.isfinite(share) else ""


def advise(
    bandit: Bandit,
    key: Any = 0,
    num_samples: int | None = None,
    history: tuple[dict[str, float], ...] = (),
    bounded: Bandit | None = None,
) -> Advice:
    """Advice for a bandit at some moment of its play.

    bounded: a bandit in which one can do all that can be done in this one; its bound is taken.
    """
    bandit.check_open()
    key = as_key(key)
    stop = stopping(bandit, key)
    draws, mean, chosen, value = stop.draws, stop.mean, stop.arm, stop.value
    if num_samples is not None:  # the loss rests on the standard error
        num_samples = as_count("num_samples", num_samples, FEWEST, MOST_FUTURES)
    else:
        num_samples = int(np.clip(_REWARDS // (bandit.num_arms * int(bandit.remaining)), 100, 4000))
    bounded = bandit if bounded is None else bounded
    most = bound(bounded, default_penalties(bounded), jax.random.fold_in(key, 1), num_samples)
    most = _tightest(bounded.belief, most) if isinstance(most, Bounds) else most
    arms = described(bandit.arm_labels, mean, draws)
    return Advice(
        period=int(bandit.period),
        remaining=int(bandit.remaining),
        arms=arms,
        best=arms[chosen].label,
        pulls=stop.pulls,
        value=value,
        bound=most.value,
        bound_stderr=most.stderr,
        penalty=most.penalty,
        loss=max(0.0, most.value + 2 * most.stderr - value),
        loss_95=stop.loss_95,
        history=history,
        approximate=most.approximate,
    )


def _tightest(belief: Belief, bounds: Bounds) -> Bound:
    """The exact ones serve where a mean has no variance: samples seldom show what it can be, so
    that their average, and its error, come out too small, even below what stopping earns."""
    exact = [found for found in bounds.values() if found.exact]
    if exact and isinstance(belief, ExactLaws) and belief.without_variance():
        return min(exact, key=lambda found: found.value)
    return bounds.tightest


def described(
    labels: Sequence[str],
    mean: Float[np.ndarray, " K"],
    draws: Float[np.ndarray, "S K"],
    playable: Sequence[bool] | None = None,
) -> tuple[ArmAdvice, ...]:
    """What draws of the arms' true means say of each; the best is one that can be played."""
    rivals = draws if playable is None else np.where(np.asarray(playable), draws, -np.inf)
    ties = rivals == rivals.max(axis=1, keepdims=True)
    wins = ties / ties.sum(axis=1, keepdims=True)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return tuple(
        ArmAdvice(
            label,
            float(mean[arm]),
            (float(low[arm]), float(high[arm])),
            float(wins[:, arm].mean()),
            float(wins[:, arm].std() / np.sqrt(len(draws))),
        )
        for arm, label in enumerate(labels)
    )


@dataclasses.dataclass(frozen=True)
class Stopping:
    """What stopping now earns: no more decisions, one arm to the end."""

    draws: Float[np.ndarray, "S K"]  # of the arms' true means
    mean: Float[np.ndarray, " K"]
    arm: int
    pulls: float
    value: float
    loss_95: float


def stopping(bandit: Bandit, key: Array) -> Stopping:
    draws = draw_means(bandit.belief, key)
    mean = np.asarray(bandit.belief.predictive_mean(), np.float64)
    pulls = _pulls_alone(bandit)
    arm = int(np.argmax(pulls * mean))
    value = float(pulls[arm] * mean[arm])
    if bandit.access.may_stop and value < 0:  # not playing is possible, and free
        value, pulls = 0.0, np.zeros_like(pulls)
    gains = _best_knowing(bandit, draws) - pulls[arm] * draws[:, arm]
    rank = 0.95 + 2 * np.sqrt(0.95 * 0.05 / _DRAWS)  # two standard errors above the 95 %
    loss_95 = max(0.0, float(np.quantile(gains, rank)))
    return Stopping(draws, mean, arm, float(pulls[arm]), value, loss_95)


def draw_means(belief: Belief, key: Array) -> Float[np.ndarray, "S K"]:
    """Draws of the arms' true means; on the host where two numbers say all of an arm."""
    if not isinstance(belief, InKernels):
        return np.asarray(_draw(belief, jax.random.split(key, _DRAWS)), np.float64)
    state = belief.kernel_state()
    out = np.empty((_DRAWS, belief.num_arms))
    families.sample_means(*state, seeds_of(key, "advice", 0, _DRAWS), np.empty(4, np.uint64), out)
    return out


@eqx.filter_jit
def _draw(belief: Belief, keys: Array) -> Float[Array, "S K"]:
    return jax.vmap(belief.sample_means)(keys)


def _periods(bandit: Bandit) -> float:
    """Periods that remain, on average where the end is not known."""
    return total_weight(bandit) + bandit.end.beyond(int(bandit.period))


def _pulls_alone(bandit: Bandit) -> Float[np.ndarray, " K"]:
    """How often each arm can be pulled from now on, if no other is."""
    if bandit.access.binds:
        return np.asarray(bandit.access.most(bandit), np.float64)
    return np.full(bandit.num_arms, _periods(bandit))


def _best_knowing(bandit: Bandit, means: Float[np.ndarray, "S K"]) -> Float[np.ndarray, " S"]:
    """What knowing all means could earn, at the very most."""
    periods = _periods(bandit)
    if "budget" not in bandit.constraints:
        return periods * means.max(axis=1)
    money, costs = bandit.purse.account()
    return knapsack.split_value(means, costs, money, periods)
