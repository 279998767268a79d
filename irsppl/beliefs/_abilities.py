"""What some beliefs can do beside what `Belief` asks of all; callers ask with `isinstance`."""

import abc
from typing import Any, NamedTuple, Self

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool

from irsppl._checks import is_concrete
from irsppl.inner.arrays import Floats
from irsppl.inner.laws import Continuous, expected_best

Law = Any  # a law of one number on the host: see irsppl.inner.laws


class ExactMax(eqx.Module):
    """E[max] of posterior means in closed form or as a sum, on the host in float64."""

    @abc.abstractmethod
    def exact_expected_best(self, counts: np.ndarray | None) -> float | None:
        """E[max_a of the posterior means after counts[b] rewards of each arm b].

        counts None: of the true means. None where there is neither a closed form nor a sum.
        """


class ExactLaws(ExactMax):
    """Independent arms, each with a known law of its posterior mean."""

    @abc.abstractmethod
    def law(self, n: int | None) -> list[Law] | None:
        """Laws of the posterior mean of each arm after n rewards (n None: of mu_a).

        None where there is no closed form and too much to sum: bounds are then sampled.
        """

    def without_variance(self) -> list[int]:
        """Arms whose mean has an infinite variance."""
        laws = enumerate(self.law(None) or ())
        return [a for a, law in laws if isinstance(law, Continuous) and law.has_no_variance]

    def exact_expected_best(self, counts: np.ndarray | None) -> float | None:
        if counts is None or np.all(counts == counts[0]):
            laws = self.law(None if counts is None else int(counts[0]))
            return None if laws is None else expected_best(laws)
        each = [self.law(int(n)) for n in counts]
        chosen = [laws[arm] for arm, laws in enumerate(each) if laws is not None]
        return expected_best(chosen) if len(chosen) == len(each) else None


class RewardTables(NamedTuple):
    """What planning over counts of finitely many rewards starts from, on the host in float64.

    Dirichlet arms have no points: `weights` are their parameters [K, C], and no likelihood.
    """

    weights: np.ndarray  # [K, N], or [N] where the arms share the points
    likelihood: np.ndarray | None  # [K, N, C] or [N, K, C], rows sum to one
    values: np.ndarray  # [K, C], rising where there are points


class FiniteRewards(eqx.Module):
    """Rewards may take finitely many values: `ideal` and `opt` plan over their counts."""

    @abc.abstractmethod
    def reward_tables(self) -> RewardTables | None:
        """None where the rewards of this very belief may take infinitely many values."""


class NormalScores(eqx.Module):
    """Rewards of a continuous law, which can be read as standard normal numbers."""

    @abc.abstractmethod
    def normal_scores(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        """Of rewards [S, K, T]; before each, its mean [S, K, T] and pseudo-count [1, K, T]."""


class PathVariances(eqx.Module):
    """Posterior variances of the means that depend on the rewards, not on their number alone."""

    @abc.abstractmethod
    def path_sds(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        """[S, K, T+1] after 0 .. T rewards, with means [S, K, T+1], pseudo-counts [1, K, T+1]."""


class InKernels(abc.ABC):  # no pytree, for the engine's own state is none
    """A sum and a count per arm say all: the natural families of the compiled kernels."""

    @abc.abstractmethod
    def kernel_state(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """(code in irsppl.inner.cpu.families, xi [K], nu [K], noise_sd [K]), float64."""


class Upkeep(eqx.Module):
    """A record of the rewards seen, from which the belief renews itself on the way."""

    @abc.abstractmethod
    def recorded(self) -> tuple[Any, int]:
        """(rewards seen, of each arm where each has a record; how many a record has room for)."""

    @abc.abstractmethod
    def sized(self, horizon: int) -> Self:
        """The same belief with room for `horizon` rewards of an arm."""

    @abc.abstractmethod
    def for_simulation(self) -> Self:
        """The same belief without upkeep that thousands of simulated paths could not afford."""

    @abc.abstractmethod
    def wants_care(self) -> Bool[Array, ""]:
        """Whether `tended` should be called; traceable, asked after every update."""

    @abc.abstractmethod
    def tended(self, before: Any) -> Self:
        """After what the host sees to, shapes unchanged: points moved, new nodes, a warning.

        before: the belief without the newest reward.
        """

    def check_resolution(self, periods: int) -> None:
        """Warn where so many further rewards of an arm would be too much for it as it is.

        Asked before whole futures are worked on in compiled programs, which cannot tend a belief.
        """

    def with_room(self, count: int) -> Self:
        """The same belief with room for `count` more rewards: doubled, for few compilations."""
        seen, size = self.recorded()
        if not is_concrete(seen):
            return self
        needed = int(np.max(np.asarray(seen))) + count
        return self if needed <= size else self.sized(2 * needed)


def for_simulation(belief: Any) -> Any:
    """The belief without upkeep, where it has any."""
    return belief.for_simulation() if isinstance(belief, Upkeep) else belief


def sized(belief: Any, horizon: int) -> Any:
    """The belief with room for so many rewards of an arm, where it keeps a record of them."""
    return belief.sized(horizon) if isinstance(belief, Upkeep) else belief
