"""The multipliers that make the Lagrangian bound smallest."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.lagrangian.relaxation import MAX_BYTES, Relaxation, table_size

TAUS: Final = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)  # of the Huber smoothing, a run for each
_ITERATIONS: Final = 200  # of a run, at most
_MEMORY: Final = 30  # steps that a run remembers


@dataclass(frozen=True, eq=False)
class LagrangianBound:
    """The best Lagrangian bound found, and the multipliers that give it."""

    value: float  # exact L(multipliers): an upper bound on V*, converged or not
    multipliers: Floats = field(repr=False)  # [T]
    tau: float  # the smoothing width at which they were found
    alpha: Floats = field(repr=False)
    beta: Floats = field(repr=False)

    @property
    def horizon(self) -> int:
        return self.multipliers.size


@njit(cache=True, nogil=True)
def _direction(g: Floats, steps: Floats, changes: Floats, newest: int, held: int) -> Floats:
    """Minus the L-BFGS inverse Hessian times the gradient (two-loop recursion).

    ``steps`` and ``changes`` [m, T] are ring buffers of the last ``held`` moves of the point and of
    the gradient.
    """
    size = steps.shape[0]
    d = -g
    share = np.empty(size)
    for back in range(held):
        i = (newest - back) % size
        share[i] = np.sum(steps[i] * d) / np.sum(steps[i] * changes[i])
        d -= share[i] * changes[i]
    if held > 0:
        y = changes[newest]
        d *= np.sum(steps[newest] * y) / np.sum(y * y)
    for back in range(held - 1, -1, -1):
        i = (newest - back) % size
        d += (share[i] - np.sum(changes[i] * d) / np.sum(steps[i] * changes[i])) * steps[i]
    return d


def _lbfgs(relaxation: Relaxation, point: Floats, tau: float) -> Floats:
    """Minimise L_tau from ``point``.

    Written out here because SciPy's L-BFGS-B calls LAPACK on small matrices in every iteration,
    whose threads, on a busy machine, cost several times what the recursions do.
    """
    value, gradient = relaxation.objective(point, tau)
    steps = np.empty((_MEMORY, point.size))
    changes = np.empty((_MEMORY, point.size))
    newest = -1
    held = 0
    for _ in range(_ITERATIONS):
        direction = _direction(gradient, steps, changes, newest, held)
        slope = float(gradient @ direction)
        # -slope is about twice what is left to gain.  There is no use in solving a stage more
        # exactly than its smoothing distorts it.
        if -slope <= 1e-5 * tau * max(1.0, abs(value)):
            break
        # Bisection for the weak Wolfe conditions; multipliers are of order one, so is a first step.
        step = 1.0 if held else 0.1 / float(np.abs(direction).max())
        low, high = 0.0, np.inf
        for _ in range(30):
            new_point = point + step * direction
            new_value, new_gradient = relaxation.objective(new_point, tau)
            if new_value > value + 1e-4 * step * slope:
                high = step
            elif new_gradient @ direction < 0.9 * slope:
                low = step
            else:
                break
            step = 2.0 * low if high == np.inf else 0.5 * (low + high)
        if new_value >= value:
            break
        change = new_gradient - gradient
        if change @ direction > 0.0:
            newest = (newest + 1) % _MEMORY
            steps[newest] = new_point - point
            changes[newest] = change
            held = min(held + 1, _MEMORY)
        point, value, gradient = new_point, new_value, new_gradient
    return point


def minimize_lagrangian(alpha: ArrayLike, beta: ArrayLike, horizon: int) -> LagrangianBound:
    """Minimise L over the multipliers.

    One evaluation costs O(G T^3 / 6) for G distinct arms, about 2 ns a state.  Two uniform arms,
    T = 200: 145.8769 (to about 6e-5) in about 1 s; ten, T = 500: 460.3668 in 10 to 20 s.

    alpha, beta: ``[K]`` Beta parameters; arms with equal ones are computed once. horizon: number of
    periods T.
    """
    relaxation = Relaxation(alpha, beta, horizon)
    horizon = relaxation.horizon
    need = 4 * table_size(horizon) + 6 * (horizon + 1) * (horizon + 2)
    if need > MAX_BYTES:
        raise ValueError(
            f"horizon {horizon}: the Lagrangian recursion needs {need / 1e6:,.0f} MB, above the "
            f"limit of {MAX_BYTES / 1e6:,.0f} MB; shorten the horizon"
        )
    relaxation.allocate()
    means = relaxation.priors[:, 0] / relaxation.priors.sum(axis=1)
    lam = np.full(horizon, means.max())
    best = (np.inf, lam, 0.0)
    for tau in TAUS:
        lam = _lbfgs(relaxation, lam, tau)
        exact, _ = relaxation.objective(lam, 0.0)
        if exact < best[0]:
            best = (exact, lam, tau)
    value, lam, tau = best
    pairs = relaxation.priors[relaxation.group]
    return LagrangianBound(
        value=value,
        multipliers=lam,
        tau=tau,
        alpha=pairs[:, 0].copy(),
        beta=pairs[:, 1].copy(),
    )
