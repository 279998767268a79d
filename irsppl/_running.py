"""Means and standard errors of samples that come block by block, in the memory of one block."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Standard errors by which the mean of a sample may miss the mean of zero that it is known to have.
FARTHEST = 8
# Samples that the spread of a column has to rest on, (sum x^2)^2 / sum x^4.
_FEWEST = 20
# Kurtosis that a column may have which samples may not follow where it is extreme. Beyond it rare
# futures matter: slopes fitted without them would say that they pull the mean along.
_MOST_KURTOSIS = 15
# More is allowed where so many samples show the tails, and that they follow the column there: by
# E[x^2 e^2] / (E[x^2] E[e^2]), e being what the fit leaves of them (1 where it tells nothing of x).
_SAMPLES_PER_KURTOSIS = 100
_MOST_LEFT_IN_TAILS = 20


class RunningMean:
    """The mean of samples, steadied by control variates of mean 0, and its standard error.

    Kept between blocks: how many samples there were, and the triangular factor R of the matrix
    [1, controls, samples] = QR. R of two blocks together is R of one stacked on the other (Golub
    and Van Loan, section 5.2, as in parallel QR), and holds all that least squares needs.
    """

    def __init__(self) -> None:
        self.count = 0
        self.origin = 0.0  # the first sample: samples that are all alike have no spread at all
        self.factor: np.ndarray | None = None
        self.squares = self.fourths = np.zeros(())  # of the controls, summed
        self.saturating = np.zeros(0, bool)
        # For each control that saturates: products of [1, controls, samples] times its square.
        self.tails: np.ndarray | float = 0.0

    def add(
        self,
        samples: np.ndarray,
        controls: Sequence[np.ndarray] = (),
        saturating: Sequence[bool] = (),
    ) -> None:
        """samples [S], and as many controls [S] as ever before; saturating: those that samples may
        not follow where they are extreme."""
        ones = np.ones(len(samples))
        if self.factor is None:
            self.origin = float(samples[0])
        apart = np.asarray(samples, np.float64) - self.origin
        block = np.stack([ones, *controls, apart], axis=1)
        squares = block[:, 1:-1] ** 2
        self.squares = self.squares + squares.sum(axis=0)
        self.fourths = self.fourths + (squares**2).sum(axis=0)
        self.saturating = np.asarray(saturating or [False] * len(controls), bool)
        extreme = squares.T[self.saturating]
        self.tails += np.array([block.T @ (block * weight[:, None]) for weight in extreme])
        if self.factor is not None:
            block = np.concatenate([self.factor, block])
        self.factor = np.asarray(np.linalg.qr(block, mode="r"))
        self.count += len(samples)

    def mean_error(self) -> tuple[float, float]:
        """Mean and standard error; the error of a single sample is NaN."""
        if self.factor is None:
            raise ValueError("there are no samples yet")
        if not np.all(np.isfinite(self.factor)):  # for the caller to notice, and to say why
            return math.nan, math.nan
        size = self.factor.shape[1]
        factor = np.zeros((size, size))
        factor[: len(self.factor)] = self.factor
        norms = np.linalg.norm(factor, axis=0)
        spreads = np.linalg.norm(factor[1:, 1:-1], axis=0)  # about the mean: less the first row
        # Fitting a slope costs a degree of freedom each; too few samples would not pay for it.
        enough = self.count >= 20 * len(spreads)
        # A column that is so far from its mean of zero, or whose spread so few samples make, shows
        # rounding, or lacks events that are too rare to be seen: a fit would not know of them.
        sound = math.sqrt(self.count) * np.abs(factor[0, 1:-1]) < FARTHEST * spreads
        sound &= self.squares**2 > _FEWEST * self.fourths
        used = np.flatnonzero((spreads > 1e-12 * norms[1:-1]) & sound & enough)
        mean, error, left = self._fit(factor, spreads, used)
        wild = (self._left_in_tails(left) > _MOST_LEFT_IN_TAILS)[used]
        if wild.any():
            mean, error, _ = self._fit(factor, spreads, used[~wild])
        return mean, error

    def _fit(
        self, factor: np.ndarray, spreads: np.ndarray, used: np.ndarray
    ) -> tuple[float, float, np.ndarray]:
        """Mean, standard error, and what is left as a combination of [1, controls, samples]."""
        scale = np.concatenate([[math.sqrt(self.count)], spreads[used]])
        columns = np.concatenate([[0], 1 + used])
        # Columns of one length. Controls that say the same but for rounding: a fit to the rounding
        # would bias the mean, hence the limit on how unlike the columns must be.
        design = factor[:, columns] / scale
        turned, lengths, directions = np.linalg.svd(design, full_matrices=False)
        kept = lengths > 1e-4 * lengths[0]
        inverse = (directions[kept].T / lengths[kept]) @ turned[:, kept].T
        fitted = inverse @ factor[:, -1]
        residual = (factor[:, -1] - design @ fitted)[1:]
        degrees = self.count - int(kept.sum())
        spread = np.linalg.norm(residual) / math.sqrt(degrees) if degrees > 0 else math.nan
        left = np.zeros(len(factor))
        left[columns], left[-1] = -fitted / scale, 1.0
        mean = self.origin - left[0]
        # The controls' own means are off too, which the slopes carry over: the error of the
        # intercept of a regression, at least spread / sqrt(count) (Lavenberg and Welch, 1981).
        return float(mean), float(spread * np.linalg.norm(inverse[0]) / scale[0]), left

    def _left_in_tails(self, left: np.ndarray) -> np.ndarray:
        """[C]: see `_MOST_LEFT_IN_TAILS`; 0 where a control does not saturate or is tame, infinite
        where too few samples show its tails."""
        share = np.zeros(len(self.saturating))
        if self.factor is None or not self.saturating.any():
            return share
        squares, fourths = self.squares[self.saturating], self.fourths[self.saturating]
        kurtosis = self.count * fourths / np.maximum(squares**2, 1e-300)
        whole = squares * np.sum((self.factor @ left) ** 2)
        found = self.count * (self.tails @ left @ left) / np.maximum(whole, 1e-300)
        found[kurtosis * _SAMPLES_PER_KURTOSIS > self.count] = np.inf
        found[kurtosis <= _MOST_KURTOSIS] = 0.0
        share[self.saturating] = found
        return share
