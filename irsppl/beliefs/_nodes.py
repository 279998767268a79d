"""Where the nodes of a posterior go: close together round each of its modes, far apart between.

A mode that lies between nodes is lost without a trace, and the nodes themselves cannot tell. So
modes are looked for first, at scales from that of the prior down to the narrowest that has mass;
then each gets nodes on its own scale; then a finer and different set of nodes has to agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Latents, mean rewards and log-posterior at unconstrained points.
Weigh = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]

# Nodes reach to where the log density has fallen by this much, and the search for that goes out
# to e^30 times a mode's width.
_FALL = 20.0
_FAR = 30.0
# A summit has been climbed once the log density falls by less than this to its neighbours.
_FLAT = 0.1
# At most so many summits are climbed at a time, with about so many points.
_CLIMBS = 32
_POINTS = 256
_ROUNDS = 80
# Summits so far below the highest have no mass, were they e^20 times as wide.
_LOWEST = 40.0
# Two summits with a dip less deep than this between them are one mode.
_DIP = 0.3
# Modes with a smaller share of the mass get no nodes of their own; the finer set counts them all.
_LEAST_SHARE = 1e-7
# Each mode has room for so many nodes at least. Half as many would be two standard deviations
# apart where modes are e^4 times as far from each other as they are wide.
_NODES_PER_MODE = 8
# A summit so much narrower than the middle half of its mode is a spike on a broad back: it gets
# nodes on its own scale too.
_SPIKE = 0.25


class Laid(NamedTuple):
    """Nodes in order of the latent."""

    latent: np.ndarray
    means: np.ndarray
    logs: np.ndarray  # log-weights that add to one
    gap: float  # how far mean and standard deviation are from those of the finer nodes


class Modes(NamedTuple):
    """From left to right."""

    centres: np.ndarray
    widths: np.ndarray
    shares: np.ndarray  # of the posterior's mass
    peaks: np.ndarray
    spikes: np.ndarray  # width of the summit itself


class Scale(NamedTuple):
    """t(x) = sum_k asinh((x - centre_k) / width_k): even steps of t are small round each centre.

    Smooth everywhere, so that the trapezoid rule in t has the accuracy that it is known for. With
    one centre, x = centre + width sinh(t).
    """

    centres: np.ndarray
    widths: np.ndarray

    def t(self, x: np.ndarray) -> np.ndarray:
        return np.sum(np.arcsinh((x[:, None] - self.centres) / self.widths), axis=1)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """dt / dx."""
        return np.sum(1 / np.hypot(x[:, None] - self.centres, self.widths), axis=1)

    def x(self, t: np.ndarray) -> np.ndarray:
        if len(self.centres) == 1:
            return self.centres[0] + self.widths[0] * np.sinh(t)
        # Newton's steps from a table, none of which leaves its cell.
        even = np.linspace(-_FAR - 5, _FAR + 5, 281)
        knots = np.unique(self.centres[:, None] + self.widths[:, None] * np.sinh(even))
        at = self.t(knots)
        cell = np.clip(np.searchsorted(at, t) - 1, 0, len(knots) - 2)
        low, high = knots[cell], knots[cell + 1]
        x = low + (high - low) * (t - at[cell]) / np.maximum(at[cell + 1] - at[cell], 1e-300)
        for _ in range(12):
            x = np.clip(x - (self.t(x) - t) / self.slope(x), low, high)
        return x

    def reach(self) -> tuple[float, float]:
        """t at both ends of the search."""
        out = self.widths * np.sinh(_FAR)
        ends = np.array([np.min(self.centres - out), np.max(self.centres + out)])
        low, high = self.t(ends)
        return float(low), float(high)


def lay(weigh: Weigh, start: np.ndarray, num_nodes: int) -> Laid | None:
    """Nodes for a posterior, or None where no point has a finite one.

    start: points from which to look for modes, the more places the better.
    """

    def logs_at(x: np.ndarray) -> np.ndarray:
        return weigh(x)[2]

    summits = _summits(logs_at, np.unique(start[np.isfinite(start)]))
    if summits is None:
        return None
    modes = _modes(logs_at, *summits, max(4 * num_nodes, 1024))
    scale = _scale(modes, _LEAST_SHARE, max(num_nodes // _NODES_PER_MODE, 1), 1.0)
    t = np.linspace(*scale.reach(), max(4 * num_nodes, 1024))
    x = scale.x(t)
    logs = logs_at(x) - np.log(scale.slope(x))
    inside = np.flatnonzero(logs >= logs.max() - _FALL)
    first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, len(t) - 1)
    x = scale.x(np.linspace(t[first], t[last], num_nodes))
    latent, means, logs = weigh(x)
    logs = logs - np.log(scale.slope(x))
    if not np.all(np.isfinite(means)) or not np.isfinite(logs.max()):
        return None
    # Far from what the prior expects logs are huge: their sum would round away what they add to.
    logs = logs - logs.max()
    logs = logs - np.logaddexp.reduce(logs)
    return Laid(latent, means, logs, _gap(weigh, modes, x, means, logs))


def _scale(modes: Modes, least: float, most: int, factor: float) -> Scale:
    """With a centre for each mode of at least this share, the heaviest if they are too many."""
    heavy = np.argsort(-modes.shares, kind="stable")[:most]
    kept = np.sort(heavy[modes.shares[heavy] >= least])
    spiked = kept[modes.spikes[kept] < _SPIKE * modes.widths[kept]]
    return Scale(
        np.concatenate([modes.centres[kept], modes.peaks[spiked]]),
        factor * np.concatenate([modes.widths[kept], modes.spikes[spiked]]),
    )


def _gap(weigh: Weigh, modes: Modes, x: np.ndarray, means: np.ndarray, logs: np.ndarray) -> float:
    """How far mean and standard deviation are from those of four times as many nodes.

    These lie on another scale, so that none falls where a node is, and all modes count. The
    standard deviation is looked at because two lost modes may balance.
    """
    num_nodes = len(x)
    shifted = modes._replace(centres=modes.centres + 0.3 * modes.widths)
    scale = _scale(shifted, 0.0, 4 * max(num_nodes // _NODES_PER_MODE, 1), 0.7)
    low = min(x[0], np.min(modes.centres - 10 * modes.widths))
    high = max(x[-1], np.max(modes.centres + 10 * modes.widths))
    first, last = scale.t(np.array([low, high]))
    fine = scale.x(np.linspace(first, last, 4 * num_nodes))
    _, fine_means, fine_logs = weigh(fine)
    fine_logs = fine_logs - np.log(scale.slope(fine))
    found, wanted = _moments(means, logs), _moments(fine_means, fine_logs)
    gap = float(np.max(np.abs(found - wanted)))
    return gap if np.isfinite(gap) else float(found[1])


def _moments(means: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of the mean reward."""
    weights = np.exp(logs - logs.max())
    real = (weights > 0) & np.isfinite(means)
    weights, means = weights[real] / weights[real].sum(), means[real]
    mean = weights @ means
    return np.array([mean, np.sqrt(weights @ (means - mean) ** 2)])


def _summits(
    logs_at: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Maxima of the log density that may matter, and steps over which it hardly changes there."""
    steps = (x[-1] - x[0]) * 2.0 ** np.arange(-3, 8)
    x = np.concatenate([x[0] - steps[::-1], x, x[-1] + steps])
    logs = logs_at(x)
    for _ in range(_ROUNDS):
        if not np.isfinite(logs.max()):
            return None
        at, fall, step = _maxima(x, logs)
        # Of a smooth summit between points, less than the fall is still to be climbed.
        hopeful = logs[at] + fall + _LOWEST > logs.max()
        at_end = (at == 0) | (at == len(x) - 1)
        rough = (fall >= _FLAT) & ~at_end & (step > 4 * np.spacing(np.abs(x[at])))
        work = at[hopeful & rough]
        work = work[np.argsort(-logs[work], kind="stable")][:_CLIMBS]
        parts = int(np.clip(_POINTS // (2 * max(len(work), 1)), 4, 32))
        inner = np.arange(1, parts) / parts
        more = [x[i] + side * inner for i in work for side in (x[i + 1] - x[i], x[i - 1] - x[i])]
        more += [
            x[i] + (1 if i else -1) * (x[-1] - x[0]) * 2.0 ** np.arange(4)
            for i in at[at_end & hopeful]
            if abs(x[i]) < 1e30
        ]
        if not more:
            break
        new = np.setdiff1d(np.concatenate(more), x)
        if not len(new):
            break
        x, logs = np.concatenate([x, new]), np.concatenate([logs, logs_at(new)])
        order = np.argsort(x)
        x, logs = x[order], logs[order]
    at, _, step = _maxima(x, logs)
    high = logs[at] >= logs.max() - _LOWEST
    kept = _parted(logs, at[high])
    step = step[high][np.isin(at[high], kept)]
    best = np.sort(np.argsort(-(logs[kept] + np.log(step)), kind="stable")[: 2 * _CLIMBS])
    return x[kept][best], step[best]


def _maxima(x: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where no neighbour is higher; how far it is down to the lower one; and the spacing there."""
    padded = np.concatenate([[-np.inf], logs, [-np.inf]])
    at = np.flatnonzero((logs >= padded[:-2]) & (logs > padded[2:]))
    left, right = np.maximum(at - 1, 0), np.minimum(at + 1, len(x) - 1)
    fall = logs[at] - np.minimum(logs[left], logs[right])
    return at, fall, (x[right] - x[left]) / (right - left)


def _parted(logs: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Maxima with a dip between any two; the highest of those without."""
    kept: list[int] = []
    for i in at:
        if kept and logs[kept[-1] : i].min() > min(logs[kept[-1]], logs[i]) - _DIP:
            kept[-1] = max(kept[-1], int(i), key=lambda j: logs[j])
        else:
            kept.append(int(i))
    return np.array(kept)


def _modes(
    logs_at: Callable[[np.ndarray], np.ndarray], peaks: np.ndarray, steps: np.ndarray, count: int
) -> Modes:
    """What lies round each summit, as far as the lowest point between it and the next."""
    scale = Scale(peaks, steps)
    t = np.linspace(*scale.reach(), count)
    x = scale.x(t)
    heights = logs_at(x)
    logs = heights - np.log(scale.slope(x))
    below = np.cumsum(np.exp(logs - logs.max()))
    near = np.searchsorted(x, peaks).clip(0, count - 1)
    between = [a + int(np.argmin(heights[a : b + 1])) for a, b in itertools.pairwise(near)]
    first, last = [0, *between], [*between, count - 1]
    levels = np.array(
        [
            below[a] + np.array([0.25, 0.5, 0.75]) * (below[b] - below[a])
            for a, b in zip(first, last, strict=True)
        ]
    )
    low, middle, high = scale.x(np.interp(levels.ravel(), below, t)).reshape(-1, 3).T
    spikes = []
    for a, b in zip(first, last, strict=True):
        top = a + int(np.argmax(heights[a : b + 1]))
        fallen = np.flatnonzero(heights < heights[top] - 0.5)
        left, right = fallen[fallen < top], fallen[fallen > top]
        ends = left[-1] if len(left) else 0, right[0] if len(right) else count - 1
        spikes.append((x[ends[1]] - x[ends[0]]) / 2)
    shares = np.array([below[b] - below[a] for a, b in zip(first, last, strict=True)]) / below[-1]
    widths = np.maximum((high - low) / 1.35, steps * 1e-3)
    return Modes(middle, widths, shares, peaks, np.maximum(spikes, steps * 1e-3))
