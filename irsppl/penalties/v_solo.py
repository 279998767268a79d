"""IRS.V-Solo: V-Zero with a leave-one-out penalty made of one-armed values."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._leave_one_out import Draw, LeaveOneOut, Pilot
from irsppl.penalties._view import View

_PILOT = 256
_TRIED = (0.6, 0.75, 0.9, 1.05)


class VSolo(LeaveOneOut):
    """The (n+1)-th pull of arm a pays mu_hat_{a,n} - Z_a(n), with

        Z_a(n) = scale (r_{a,n+1} - mu_hat_{a,n}) sum_g w_g(a) [v_g(n+1, s+1) - v_g(n+1, s)]

    for 0/1 rewards. v_g(n, s): what the arm alone, after s successes in n pulls, is still worth
    against a known option lam_g; w_g(a): the probability that the best of the other arms lies in
    cell g, given the first level x T rewards of each. So an arm pays for the good news that its
    next reward brings. Other rewards: the change of v less its mean. Any scale gives a bound; None
    picks it on a pilot (0.9, or 0.8 for two arms, where there is no pilot). As a policy: the arm
    with the most pulls in the best plan for a sampled future.
    """

    name: ClassVar[str] = "irs.v-solo"
    bound_only: ClassVar[bool] = False
    level: float = eqx.field(static=True, default=0.45)
    scale: float | None = eqx.field(static=True, default=None)
    picked: float | None = eqx.field(static=True, default=None)  # on a pilot

    def __init__(
        self, level: float = 0.45, scale: float | None = None, *, picked: float | None = None
    ):
        if not (isinstance(level, (int, float)) and 0 < level <= 1):
            raise ValueError(f"level must be a share of the horizon, in (0, 1], got {level!r}")
        if scale is not None and not (isinstance(scale, (int, float)) and math.isfinite(scale)):
            raise ValueError(f"scale must be a finite number or None, got {scale!r}")
        self.level, self.scale = float(level), None if scale is None else float(scale)
        self.picked = picked

    @property
    def label(self) -> str:
        settings = [f"level={self.level:g}"] * (self.level != 0.45)
        settings += [] if self.scale is None else [f"scale={self.scale:g}"]
        return f"{self.name} ({', '.join(settings)})" if settings else self.name

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.level,)

    def scale_for(self, num_arms: int) -> float:
        """The scale that was given or picked, else one that suits so many arms."""
        if self.scale is not None:
            return self.scale
        if self.picked is not None:
            return self.picked
        return 0.8 if num_arms == 2 else 0.9

    def solve(self, bandit: Bandit, view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _solve(view, self.scale_for(bandit.num_arms) * view.weights(self.level))

    def fitted(self, bandit: Bandit, draw: Draw, known: dict[str, float]) -> VSolo:
        if self.scale is not None or self.picked is not None:
            return self

        def look(outcomes: Outcome) -> tuple[View, View]:
            view = self.view(bandit, outcomes)
            return view, view

        pilot = Pilot(bandit, draw, _PILOT, known, self.levels, look)
        values: list[list[np.ndarray]] = []
        sums: list[np.ndarray] = []
        for view in pilot.each():
            found = [_solve(view, scale * view.weights(self.level)) for scale in _TRIED]
            values.append([value for value, _, _ in found])
            sums.append(found[0][2])
        estimates = np.concatenate(values, axis=1) @ pilot.intercept([np.concatenate(sums)])
        # The estimates rise more steeply above the best scale than below: a cubic follows them.
        scales = np.linspace(_TRIED[0] - 0.1, _TRIED[-1] + 0.05, 61)
        best = scales[np.argmin(np.polyval(np.polyfit(_TRIED, estimates, 3), scales))]
        return VSolo(self.level, picked=round(float(best), 4))

    def report(self) -> dict[str, Any]:
        return {} if self.picked is None else {"scale": self.picked}


def _solve(view: View, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return view.solve(view.charges(weights[:, :, None]))
