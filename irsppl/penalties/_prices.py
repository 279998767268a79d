"""Penalties made of what the best arms will have shown, for IRS.V-Fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from irsppl.penalties._view import View


class Prices:
    """Penalties of a batch of futures, in this order.

    For each share of the horizon, N periods of it, and each option, the best or second best of the
    other arms after N rewards of each (with two arms there is no second), let S be what arm a is
    worth against the option after N rewards, E[(mu_hat_{a,N} - option)+ | its first n]. The pull
    that finds n rewards is charged S at N less S at n, or T-n-1 times the change of S at the next
    reward. Kept are the paths of S, not the penalties.
    """

    def __init__(self, view: View, shares: tuple[float, ...]):
        self._view = view
        size, horizon = view.arms.plan.rows, round(view.expected)
        kinds = 1 if len(view.arms.units) == 2 else 2
        self._paths: list[np.ndarray] = []  # [S, K, N+1] each
        for share in shares:
            last = max(1, min(size - 1, size - view.horizon + round(share * horizon)))
            found = view.arms.hinges(view.futures, last)
            self._paths += [found[:, kind].astype(view.arms.dtype) for kind in range(kinds)]

    def __len__(self) -> int:
        return 2 * len(self._paths)

    def each(self) -> Iterator[np.ndarray]:
        """[S, K, T] of each pull, one penalty after the other."""
        size = self._view.arms.plan.rows
        for path in self._paths:
            last = path.shape[2] - 1
            left = (np.maximum(size - 1 - np.arange(last), 0) / size).astype(path.dtype)
            row = np.zeros((*path.shape[:2], size), path.dtype)
            np.subtract(path[..., -1:], path[..., :-1], out=row[..., :last])
            yield self._view.schedule.per_pull(row)
            row = np.zeros_like(row)
            np.multiply(path[..., 1:] - path[..., :-1], left, out=row[..., :last])
            yield self._view.schedule.per_pull(row, only_new=True)

    def add(self, chosen: np.ndarray, charged: np.ndarray) -> None:
        """Add the combination with coefficients chosen [F] to charges [S, K, T]."""
        for coefficient, price in zip(chosen, self.each(), strict=True):
            price *= price.dtype.type(coefficient)
            charged += price

    def collected(self, counts: np.ndarray) -> np.ndarray:
        """[S, F]: what each charges for the first counts [S, K] pulls of each arm."""
        most = max(int(counts.max()), 1)
        taken: np.ndarray = np.arange(most) < counts[:, :, None]
        taken = taken.astype(self._view.arms.dtype)
        found = [np.einsum("san,san->s", price[..., :most], taken) for price in self.each()]
        return np.stack(found, axis=1).astype(np.float64)
