"""Pictures of results. Each takes data and an optional `ax`, and returns the Matplotlib Axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by nearly every eye; yellow comes last, faint on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
_MARKERS = "osD^vP*X<>hp"
# Names met in every study look the same in every figure.
_KNOWN = (
    *("irs.fh", "ts", "irs.index", "irs.v-emax", "irs.v-zero", "irs.ff", "opt", "irs.index*"),
    *("bayes-ucb", "ids", "ogi", "lagr-rt", "lagr-ot", "random", "greedy"),
)
_SAME = {"ideal": "opt", "lagrangian": "lagr-rt"}


def plot_regret(data: xr.Dataset, bounds: Any = None, *, ax: Axes | None = None) -> Axes:
    """Mean regret of each policy of a simulation, least first, with two standard errors.

    bounds: one or several bounds (as `irsppl.bound` returns them): dashed lines that no policy can
    lie left of.
    """
    ax = _axes(ax, height=1.6 + 0.4 * data.sizes["policy"])
    mean, error = _mean_error(data)
    order = np.argsort(mean, kind="stable")
    names = data["policy"].values[order].tolist()
    styles = _styles([*data["policy"].values.tolist(), *_bound_names(bounds)])
    limit = _limit(mean)
    for row, (i, name) in enumerate(zip(order, names, strict=True)):
        if mean[i] > limit:
            words, colour, edge = (
                f"{mean[i]:.4g} →",
                styles[name]["color"],
                ax.get_yaxis_transform(),
            )
            ax.text(0.99, row, words, color=colour, transform=edge, ha="right", va="center")
        else:
            style = styles[name] | {"linestyle": "none", "capsize": 3}
            ax.errorbar(mean[i], row, xerr=error[i], **style)
    ax.set_xlim(*_from_zero(mean[mean <= limit] + error[mean <= limit], bounds))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)  # the best on top
    for name, bound in _bound_items(bounds):
        label = f"{name}: {bound:.3g}"
        ax.axvline(bound, linestyle="--", color=styles[name]["color"], label=label)
    ax.set_xlabel(f"regret over {data.attrs['horizon']} periods (reward), mean ± 2 s.e.")
    ax.set_ylabel("policy")
    return _finish(ax, "regret bounds")


def plot_periods(data: xr.Dataset, bounds: Any = None, *, ax: Axes | None = None) -> Axes:
    """Regret so far, period by period, of a simulation run with `per_period=True`.

    bounds: dashed lines that the mean regret of no policy stays under at the end of the horizon.
    """
    if "period_regret" not in data:
        raise ValueError("data has no period_regret: simulate with per_period=True")
    ax = _axes(ax)
    names = data["policy"].values.tolist()
    styles = _styles([*names, *_bound_names(bounds)])
    periods = data["period"].values + 1
    mean, error = _mean_error(data)
    limit = _limit(mean)
    for i, name in enumerate(names):
        so_far = np.cumsum(data["period_regret"].values[i])
        style = styles[name] | {"markevery": [len(periods) - 1]}
        label = f"{name} (ends at {so_far[-1]:.4g})" if mean[i] > limit else name
        ax.plot(periods, so_far, label=label, **style)
        # Periods are dependent, so only the end has a standard error at hand.
        ax.errorbar(periods[-1], so_far[-1], yerr=error[i], capsize=3, color=style["color"])
    ax.set_ylim(*_from_zero(mean[mean <= limit] + error[mean <= limit], bounds))
    for name, bound in _bound_items(bounds):
        label = f"{name}, bound at the end"
        ax.axhline(bound, linestyle="--", color=styles[name]["color"], label=label)
    ax.set_xlabel("period")
    ax.set_ylabel("regret so far (reward), mean; ± 2 s.e. at the end")
    return _finish(ax)


def plot_horizons(data: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Regret against the horizon, from the data of a study.

    Solid: policies, mean and two standard errors. Dashed, in the same colour where policy and
    penalty share a name: regret that no policy can get below.
    """
    ax = _axes(ax)
    horizons = data["horizon"].values
    policies, penalties = data["policy"].values.tolist(), data["penalty"].values.tolist()
    penalties = [name for name in penalties if name != "ts"]  # zero by definition
    styles = _styles([*policies, *penalties])
    means, errors = _mean_error(data)
    for name, mean, error in zip(policies, means, errors, strict=True):
        ax.plot(horizons, mean, label=name, **styles[name])
        band = {"color": styles[name]["color"], "alpha": 0.1, "linewidth": 0}
        ax.fill_between(horizons, mean - error, mean + error, **band)
    bounds = data["regret_bound"].sel(penalty=penalties).values
    bottom, top = _from_zero(means + errors, {"": bounds.max(initial=0.0)})
    for name, bound in zip(penalties, bounds, strict=True):
        told = "bound" if bound.max() > bottom else "bound (below zero)"
        style = styles[name] | {"linestyle": "--", "markerfacecolor": "white"}
        ax.plot(horizons, bound, label=f"{name}, {told}", **style)
    ax.set_ylim(bottom, top)
    ax.set_xlabel("horizon (periods)")
    ax.set_ylabel("regret over the horizon (reward)")
    ax.set_title(data.attrs.get("title", ""))
    return _finish(ax)


# ------------------------------------------------------------------ shared


def _axes(ax: Axes | None, height: float = 5) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(8, height), layout="constrained")[1]


def _mean_error(data: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean regret, and two standard errors, over replications."""
    regret = data["regret"].transpose("replication", ...).values
    return regret.mean(axis=0), 2 * regret.std(axis=0, ddof=1) / np.sqrt(len(regret))


def _from_zero(regret: np.ndarray, bounds: Any) -> tuple[float, float]:
    """The range of a regret axis. A bound far below zero says nothing, and may lie outside it."""
    highest = max(regret.max(initial=0.0), *(b for _, b in _bound_items(bounds)), 1e-9)
    return -0.03 * highest, 1.08 * highest


def _limit(regret: np.ndarray) -> float:
    """A policy beyond this is told in words: drawn to scale it would squeeze all others."""
    return 4 * float(np.median(regret))


def _finish(ax: Axes, title: str | None = None) -> Axes:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(alpha=0.25)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def _place(name: str) -> int:
    return _KNOWN.index(name) if name in _KNOWN else len(_KNOWN)


def _styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each name: fixed for known names, the next free ones for others."""
    styles: dict[str, dict[str, Any]] = {}
    taken: set[tuple[str, str]] = set()
    twins = {name: _SAME.get(name, name) for name in names}
    # Known names choose first, whatever order they come in.
    for twin in sorted(dict.fromkeys(twins.values()), key=_place):
        place = _place(twin) + (0 if twin in _KNOWN else len(styles))
        # Their own colour and marker; else a free colour; else the markers must tell them apart.
        colours = sorted(_COLOURS, key=lambda c: sum(c == used for used, _ in taken))
        own = _COLOURS[place % len(_COLOURS)]
        colour = own if all(own != used for used, _ in taken) else colours[0]
        markers = _MARKERS[place % len(_MARKERS) :] + _MARKERS
        marker = next((m for m in markers if (colour, m) not in taken), markers[0])
        taken.add((colour, marker))
        styles[twin] = {"color": colour, "marker": marker, "markersize": 6}
    return {name: styles[twin] for name, twin in twins.items()}


def _bound_items(bounds: Any) -> list[tuple[str, float]]:
    """(name, regret bound) from one bound, several, or `{name: number or bound}`."""
    if bounds is None:
        return []
    if not isinstance(bounds, Mapping):
        bounds = {bounds.penalty: bounds}
    return [(str(n), float(getattr(b, "regret_bound", b))) for n, b in bounds.items()]


def _bound_names(bounds: Any) -> list[str]:
    return [name for name, _ in _bound_items(bounds)]
