"""Pictures of results. Each takes data and an optional `ax`, and returns the Matplotlib Axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def plot_belief(
    belief: Any,
    arms: Any = (),
    rewards: Any = (),
    *,
    horizon: int = 30,
    num_paths: int = 20,
    key: Any = 0,
    labels: Sequence[str] | None = None,
    ax: Sequence[Axes] | None = None,
) -> np.ndarray:
    """What is believed of each arm as data come in, and where that may go: one panel per arm.

    belief: before the data; arms, rewards: the data, in order. Up to "now": quantiles of the arm's
    mean reward and the predictive mean, after each reward of the arm. From there: `num_paths`
    trajectories of the predictive mean, along rewards sampled from the belief, as if the arm were
    pulled `horizon` more times. Penalties and policies are made of such trajectories: the wider
    they fan out, the more there is to learn. ax: one Axes per arm. Returns the Axes `[K]`.
    """
    from irsppl._checks import as_count, as_key
    from irsppl.beliefs._evolution import evolution

    arms, rewards = np.asarray(arms, int), np.asarray(rewards, float)
    if arms.ndim != 1 or arms.shape != rewards.shape:
        raise ValueError(
            "arms and rewards must be lists of one length, "
            f"got shapes {arms.shape} and {rewards.shape}"
        )
    horizon = as_count("horizon", horizon)
    num_paths = as_count("num_paths", num_paths)
    names = [f"arm {a}" for a in range(belief.num_arms)] if labels is None else list(labels)
    if len(names) != belief.num_arms:
        raise ValueError(f"labels must be {belief.num_arms} names, one per arm, got {names}")
    belief.check_arm(arms)
    belief.check_reward(arms, rewards)
    panels = _panels(belief.num_arms, ax)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    told = evolution(belief, arms, rewards, levels, horizon, num_paths, as_key(key))
    for arm, (panel, name) in enumerate(zip(panels, names, strict=True)):
        colour = _COLOURS[arm % len(_COLOURS)]
        now = int(told.counts[-1, arm])
        # The last word at each count: rewards of other arms may tell of this one too.
        steps = np.searchsorted(told.counts[:, arm], np.arange(now + 1), side="right") - 1
        low, lower, _, upper, high = told.quantiles[steps, :, arm].T
        seen = np.arange(now + 1)
        panel.fill_between(seen, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.fill_between(seen, lower, upper, color=colour, alpha=0.3, linewidth=0)
        panel.plot(seen, told.means[steps, arm], color=colour, linewidth=2)
        coming = now + np.arange(horizon + 1)
        panel.plot(coming, told.futures[:, arm].T, color="0.45", linewidth=0.7, alpha=0.7)
        panel.vlines(now, low[-1], high[-1], color=colour, linewidth=1.5, zorder=3)
        panel.vlines(now, lower[-1], upper[-1], color=colour, linewidth=5, zorder=3)
        panel.plot(now, told.means[-1, arm], "o", color=colour, markeredgecolor="white", zorder=4)
        panel.axvline(now, color="0.3", linewidth=0.8, linestyle=":")
        top = panel.get_xaxis_transform()
        panel.text(now + 0.02 * horizon, 0.98, "now", transform=top, va="top", color="0.3")
        panel.set_title(name)
        panel.set_xlabel("rewards of this arm")
        _finish(panel)
    panels[0].set_ylabel("mean reward")
    _belief_legend(panels[0])
    return panels


def _panels(count: int, given: Sequence[Axes] | None) -> np.ndarray:
    """One Axes per arm, in rows of at most four."""
    if given is not None:
        panels = np.asarray(given, object).ravel()
        if len(panels) != count:
            raise ValueError(f"ax must be {count} Axes, one per arm, got {len(panels)}")
        return panels
    import matplotlib.pyplot as plt

    columns = min(count, 4)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(1.5 + 2.8 * columns, 1 + 3 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for spare in grid.ravel()[count:]:
        figure.delaxes(spare)
    for row in grid[1:]:
        row[0].set_ylabel("mean reward")
    return grid.ravel()[:count]


def _belief_legend(panel: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shade: dict[str, Any] = {"facecolor": _COLOURS[0], "linewidth": 0}
    entries: dict[str, Any] = {
        "90 % of the belief": Patch(alpha=0.15, **shade),
        "50 %": Patch(alpha=0.45, **shade),
        "predictive mean": Line2D([], [], color=_COLOURS[0], linewidth=2),
        "where it may go (sampled)": Line2D([], [], color="0.45", linewidth=0.7),
    }
    panel.figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=4, frameon=False
    )


# ------------------------------------------------------------------ shared


def _axes(ax: Axes | None, height: float = 5) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(8, height), layout="constrained")[1]


def _mean_error(data: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean regret, and two standard errors, over replications (not a number: not played)."""
    regret = data["regret"].transpose("replication", ...).values
    played = np.sum(~np.isnan(regret), axis=0)
    return np.nanmean(regret, axis=0), 2 * np.nanstd(regret, axis=0, ddof=1) / np.sqrt(played)


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
