"""IRS.V-Fit: leave-one-out penalties of several kinds, combined on a pilot."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from irsppl._checks import one_of
from irsppl.bandit import Bandit
from irsppl.inner.leave_one_out import Arms
from irsppl.outcomes import Outcome
from irsppl.penalties._leave_one_out import Draw, LeaveOneOut, Pilot
from irsppl.penalties._moments import moments
from irsppl.penalties._prices import Prices
from irsppl.penalties._view import View


class Features(NamedTuple):
    """What is combined: see `VFit`."""

    ends: tuple[float, ...]  # shares of the horizon at which one-armed values end
    levels: tuple[float, ...]  # shares of the other arms' rewards that are looked at
    hats: int  # functions of the option lam that split each of them
    prices: tuple[float, ...]  # shares of the horizon after which the best arms are priced
    pilot: int  # futures, at least; more where they are cheap


FEATURES = {
    "quick": Features((1.0,), (0.1, 0.45), 1, (1.0,), 300),
    "standard": Features((1.0, 0.4), (0.03, 0.1, 0.2, 0.45, 0.75), 1, (1.0,), 500),
    "full": Features((1.0, 0.5, 0.2), (0.0125, 0.033, 0.1, 0.2, 0.45, 0.75), 3, (1.0, 0.3), 800),
}
# Where hats peak, in the prior law of the best of the other arms.
_PEAKS = {1: (0.5,), 3: (0.08, 0.4, 0.75)}
_EVALUATIONS = 25
_ROUNDS = 2
# Coefficients are of the order of 1 to 50. Larger ones belong to features that hardly anything
# moves, in a pilot at least: a fit would bet on what is too rare to be seen there, or on rounding.
_LARGEST = 100.0
# A pilot that is too small is fitted to its noise: more futures while arms x periods are few.
_PILOT_CELLS, _MOST_PILOT = 4_000_000, 4000


def _pilot_size(least: int, bandit: Bandit) -> int:
    cheap = _PILOT_CELLS // (bandit.num_arms * int(bandit.remaining))
    return max(least, min(cheap, 5 * least, _MOST_PILOT))


class VFit(LeaveOneOut):
    """The (n+1)-th pull of arm a pays mu_hat_{a,n} - sum_f c_f Z_f, with many Z like V-Solo's.

    Each looks at another share of the other arms' rewards, plans up to another last pull, and minds
    other options lam; for Bernoulli and Gaussian arms there are prices too, what the best arms will
    have shown less what is expected of it. features: "quick", "standard" or "full", in order of
    cost. The coefficients minimise the bound on a pilot and are then frozen: the bound is estimated
    on fresh futures. Without a pilot it is V-Solo. coefficients: those of an earlier fit, instead
    of a pilot.
    """

    name: ClassVar[str] = "irs.v-fit"
    features: str = eqx.field(static=True, default="full")
    coefficients: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def __init__(self, features: str = "full", coefficients: tuple[float, ...] | None = None):
        self.features = one_of("features", features, FEATURES)
        self.coefficients = None if coefficients is None else tuple(map(float, coefficients))

    def check(self, bandit: Bandit) -> None:
        if not bandit.belief.is_independent:
            raise ValueError(
                f"{self.name} needs independent arms: here a reward of one arm tells of the others;"
                " use 'irs.v-solo', 'irs.v-zero-separable' or 'irs.ff'"
            )
        super().check(bandit)
        given, needed = self.coefficients, len(self._start(bandit))
        if given is not None and (len(given) != needed or not np.all(np.isfinite(given))):
            raise ValueError(
                f"coefficients must be {needed} finite numbers for these arms and features="
                f"{self.features!r}, got {len(given)}: {given!r}"
            )

    @property
    def label(self) -> str:
        return self.name if self.features == "full" else f"{self.name} ({self.features})"

    @property
    def _kinds(self) -> Features:
        return FEATURES[self.features]

    @property
    def levels(self) -> tuple[float, ...]:
        return self._kinds.levels

    @property
    def shares(self) -> tuple[float, ...]:
        return self._kinds.ends

    @property
    def _shape(self) -> tuple[int, int, int]:
        kinds = self._kinds
        return len(kinds.ends), len(kinds.levels), kinds.hats

    def _start(self, bandit: Bandit) -> np.ndarray:
        """Coefficients of V-Solo, `[ends, levels, hats]`."""
        start = np.zeros(self._shape)
        start[0, self.levels.index(0.45)] = 0.8 if bandit.num_arms == 2 else 0.9
        prices = len(self._kinds.prices) * (2 if bandit.num_arms == 2 else 4)
        exact = moments(bandit.belief).exact  # elsewhere the means of prices would not be zero
        return np.append(start, np.zeros(prices if exact else 0))

    def solve(self, bandit: Bandit, view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chosen = self._start(bandit) if self.coefficients is None else self.coefficients
        return self.solve_with(view, np.asarray(chosen), self.prices(view))

    def prices(self, view: View) -> Prices | None:
        return Prices(view, self._kinds.prices) if view.arms.exact else None

    def solve_with(
        self, view: View, chosen: np.ndarray, prices: Prices | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S]) for coefficients [F]."""
        return view.solve(self.charges(view, chosen, prices))

    def charges(self, view: View, chosen: np.ndarray, prices: Prices | None) -> np.ndarray:
        """Z [S, K, T] for coefficients [F]."""
        count = int(np.prod(self._shape))
        charged = view.charges(self._weights(view, chosen[:count].reshape(self._shape)))
        if prices is not None and np.any(chosen[count:]):
            prices.add(chosen[count:], charged)
        return charged

    def collected(self, view: View, prices: Prices | None, counts: np.ndarray) -> np.ndarray:
        """[S, F]: what each feature charges for the first counts [S, K] pulls of each arm."""
        peaks = hats(view.arms, self._kinds.hats)
        totals = view.totals(counts)
        out = np.empty((len(totals), *self._shape))
        for i, share in enumerate(self.levels):
            of_options = np.einsum("sag,saeg->seg", view.weights(share), totals)
            out[:, :, i, :] = of_options @ peaks.T
        found = out.reshape(len(totals), -1)
        if prices is None:
            return found
        return np.concatenate([found, prices.collected(counts)], axis=1)

    def _weights(self, view: View, chosen: np.ndarray) -> np.ndarray:
        """[S, K, ends, G] of a combination: what multiplies each column of the tables."""
        by_option = chosen @ hats(view.arms, self._kinds.hats)  # [ends, levels, G]
        futures, arms, cells = view.weights(self.levels[0]).shape
        total = np.zeros((futures, arms, len(by_option), cells))
        for i, share in enumerate(self.levels):
            total += view.weights(share)[:, :, None, :] * by_option[None, None, :, i]
        return total

    def fitted(self, bandit: Bandit, draw: Draw, known: dict[str, float]) -> VFit:
        if self.coefficients is not None:
            return self
        from scipy.optimize import minimize

        kinds = self._kinds
        size = _pilot_size(kinds.pilot, bandit)

        def look(outcomes: Outcome) -> tuple[View, tuple[View, Prices | None]]:
            view = View(bandit, outcomes, self.shares)
            return view, (view, self.prices(view))

        pilot = Pilot(bandit, draw, size, known, kinds.levels, look)
        every = [self.collected(*part, part[0].schedule.most()) for part in pilot.each()]
        intercept = pilot.intercept(list(np.concatenate(every).T))

        def estimate(chosen: np.ndarray) -> tuple[float, np.ndarray]:
            values, slopes = [], []
            for view, prices in pilot.each():
                value, counts, _ = self.solve_with(view, chosen, prices)
                values.append(value)
                slopes.append(-self.collected(view, prices, counts))
            return float(intercept @ np.concatenate(values)), np.concatenate(slopes)

        best = self._start(bandit)
        for _ in range(_ROUNDS):
            _, slopes = estimate(best)
            # In coordinates in which the features' subgradients are about uncorrelated and alike.
            spread = np.atleast_2d(np.cov(slopes, rowvar=False))
            if not np.trace(spread) > 0:  # no feature moves anything: one period, or a sure winner
                break
            spread += np.diag(1e-3 * np.diag(spread) + 1e-12 * np.trace(spread))
            turn = np.linalg.inv(np.linalg.cholesky(spread)).T

            def objective(
                step: np.ndarray, at: np.ndarray = best, turn: np.ndarray = turn
            ) -> tuple[float, np.ndarray]:
                far = at + turn @ step
                value, slopes = estimate(np.clip(far, -_LARGEST, _LARGEST))
                return value, turn.T @ np.where(np.abs(far) < _LARGEST, intercept @ slopes, 0)

            options = {"maxfun": _EVALUATIONS}
            start = np.zeros(len(best))
            found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
            best = np.clip(best + turn @ found.x, -_LARGEST, _LARGEST)
        return VFit(self.features, tuple(best))

    def work(self, bandit: Bandit) -> int:
        return 2 * _ROUNDS * _EVALUATIONS * _pilot_size(self._kinds.pilot, bandit)

    def report(self) -> dict[str, Any]:
        if self.coefficients is None:
            return {}
        count = int(np.prod(self._shape))
        chosen = np.asarray(self.coefficients)
        return {
            "coefficients": chosen[:count].reshape(self._shape),  # [ends, levels, hats]
            "price_coefficients": chosen[count:],
            **self._kinds._asdict(),
        }


def hats(arms: Arms, count: int) -> np.ndarray:
    """[count, G]: functions of the option that add up to one, straight between their peaks."""
    if count == 1:
        return np.ones((1, len(arms.lams)))
    prior = arms.weights(arms.prior_cdfs()[None])[0].mean(axis=0)
    peaks = np.interp(_PEAKS[count], np.cumsum(prior), arms.lams)
    return np.stack([np.interp(arms.lams, peaks, row) for row in np.eye(count)])
