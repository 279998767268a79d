"""Pictures of results. Each takes data and an optional `ax`, and returns the Matplotlib Axes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by nearly every eye, then others that differ from it and from
# each other in lightness too; where those come close, broken lines tell them apart.
_SOLID = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800"),
    *("#882255", "#332288", "#7F7F7F", "#8C564B", "#66C200", "#00BFC4"),
)
_BROKEN = (
    *("#6A3D9A", "#E31A1C", "#004D40", "#FB9A99", "#1F3A5F", "#FDBF6F", "#A6CEE3", "#B2DF8A"),
    *("#C2A5CF", "#5C4033", "#FF00AA", "#808000", "#4B6FFF"),
)
_COLOURS = _SOLID + _BROKEN
_MARKERS = "osD^vP*X<>hpd"
# (colour, marker, line), one after the other; on a second round through the colours lines are dots.
_LOOKS = [
    (colour, _MARKERS[i % len(_MARKERS)], "-" if i < len(_SOLID) else "-.")
    for i, colour in enumerate(_COLOURS)
] + [(colour, _MARKERS[(i + 5) % len(_MARKERS)], ":") for i, colour in enumerate(_COLOURS)]
# Names met in every study look the same in every figure. Those often drawn together come first.
_KNOWN = (
    *("irs.fh", "ts", "irs.index", "irs.v-emax", "irs.v-zero", "irs.ff", "opt", "irs.index*"),
    *("bayes-ucb", "ids", "ogi", "lagr-rt", "greedy", "irs.v-zero-separable"),
    *("irs.mix", "random", "fh-gittins", "ucb1", "kl-ucb", "epsilon-greedy", "lagr-ot", "zero"),
    *("ts-ratio", "irs.v-solo", "irs.v-fit", "irs.index-16", "irs.index-64"),
)
_SAME = {"ideal": "opt", "lagrangian": "lagr-rt"}


def plot_regret(data: xr.Dataset, bounds: Any = None, *, ax: Axes | None = None) -> Axes:
    """Mean regret of each policy of a simulation, least first, with two standard errors.

    The figures are those of `irsppl.summary`: steadied ones where the simulation has them.

    bounds: one or several bounds (as `irsppl.bound` returns them): dashed lines that no policy can
    lie left of, with a band of two standard errors where they are sampled.
    """
    _check_data(data, ("policy", "replication"))
    named = _bound_items(bounds)
    ax = _axes(ax, height=1.6 + 0.4 * data.sizes["policy"])
    data = data.assign(regret=data.get("steadied_regret", data["regret"]))
    mean, error = _mean_error(data)
    order = np.argsort(mean, kind="stable")
    names = data["policy"].values[order].tolist()
    styles = _styles([*data["policy"].values.tolist(), *named])
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
    ax.set_xlim(*_from_zero((mean + error)[mean <= limit], named))
    ax.set_yticks(range(len(names)), map(_text, names))
    ax.set_ylim(len(names) - 0.5, -0.5)  # the best on top
    for name, (bound, off) in named.items():
        label, colour = f"{name}: {bound:.3g}" + (f" ± {off:.1g}" if off else ""), styles[name]
        ax.axvline(bound, linestyle="--", color=colour["color"], label=_text(label))
        if off:
            ax.axvspan(bound - off, bound + off, color=colour["color"], alpha=0.12, linewidth=0)
    over = f" over {data.attrs['horizon']} periods" if "horizon" in data.attrs else ""
    ax.set_xlabel(f"regret{over} (reward), mean ± 2 s.e. of {_replications(data)}")
    ax.set_ylabel("policy")
    return _finish(ax, "regret bounds")


def plot_periods(data: xr.Dataset, bounds: Any = None, *, ax: Axes | None = None) -> Axes:
    """Regret so far, period by period, of a simulation run with `per_period=True`.

    bounds: dashed lines that the mean regret of no policy stays under at the end of the horizon.
    """
    _check_data(data, ("policy", "replication"))
    if "period_regret" not in data:
        raise ValueError("data has no period_regret: simulate with per_period=True")
    named = _bound_items(bounds)
    ax = _axes(ax)
    names = data["policy"].values.tolist()
    styles = _styles([*names, *named])
    periods = data["period"].values + 1
    mean, error = _mean_error(data)
    limit = _limit(mean)
    for i, name in enumerate(names):
        so_far = np.cumsum(data["period_regret"].values[i])
        style = styles[name] | {"markevery": [len(periods) - 1]}
        label = f"{name} (ends at {so_far[-1]:.4g})" if mean[i] > limit else name
        ax.plot(periods, so_far, label=_text(label), **style)
        # Periods are dependent, so only the end has a standard error at hand.
        ax.errorbar(periods[-1], so_far[-1], yerr=error[i], capsize=3, color=style["color"])
    ax.set_ylim(*_from_zero((mean + error)[mean <= limit], named))
    for name, (bound, off) in named.items():
        label, colour = f"{name}, bound at the end", styles[name]["color"]
        ax.axhline(bound, linestyle="--", color=colour, label=_text(label))
        if off:
            ax.axhspan(bound - off, bound + off, color=colour, alpha=0.12, linewidth=0)
    ax.set_xlabel(f"period ({_replications(data)})")
    ax.set_ylabel("regret so far (reward), mean; ± 2 s.e. at the end")
    return _finish(ax)


def plot_horizons(data: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Regret against the horizon, from the data of a study.

    Lines with full markers: policies, mean and two standard errors. Dashed with open markers, in
    the same colour where policy and penalty share a name: regret that no policy can get below, with
    two standard errors where that is sampled. A policy far above the others runs off the top, and
    the legend says where it ends.
    """
    _check_data(data, ("policy", "horizon", "replication"))
    if "regret_bound" not in data:
        raise ValueError("data has no regret_bound: plot_horizons takes the data of a study")
    ax = _axes(ax, legend_height(data.sizes["policy"] + data.sizes["penalty"]))
    horizons = data["horizon"].values
    policies, penalties = data["policy"].values.tolist(), data["penalty"].values.tolist()
    penalties = [name for name in penalties if name != "ts"]  # zero by definition
    styles = _styles([*policies, *penalties])
    means, errors = _mean_error(data)
    limit = _limit(means[:, -1]) if policies else np.inf
    for name, mean, error in zip(policies, means, errors, strict=True):
        off = mean[-1] > limit
        label = f"{name} (off the scale: {mean[-1]:.4g} at the end)" if off else name
        ax.plot(horizons, mean, label=_text(label), **styles[name])
        band = {"color": styles[name]["color"], "alpha": 0.1, "linewidth": 0}
        ax.fill_between(horizons, mean - error, mean + error, **band)
    bounds = data["regret_bound"].sel(penalty=penalties).values
    spread = np.zeros_like(bounds)
    if "regret_bound_stderr" in data:
        spread = 2 * data["regret_bound_stderr"].sel(penalty=penalties).values
    shown = (means + errors)[means[:, -1] <= limit] if policies else means
    bottom, top = _from_zero(shown, {"": (bounds.max(initial=0.0), 0.0)})
    for name, bound, off in zip(penalties, bounds, spread, strict=True):
        what = "bound" if bound.max() > bottom else "bound (below zero)"
        style = styles[name] | {"linestyle": "--", "markerfacecolor": "white"}
        ax.plot(horizons, bound, label=_text(f"{name}, {what}"), **style)
        if np.any(off > 0):
            band = {"color": style["color"], "alpha": 0.1, "linewidth": 0}
            ax.fill_between(horizons, bound - off, bound + off, **band)
    ax.set_ylim(bottom, top)
    ax.set_xlabel("horizon (periods)")
    ax.set_ylabel(f"regret over the horizon (reward)\nmean ± 2 s.e. of {_replications(data)}")
    ax.set_title(_text(data.attrs.get("title", "")))
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

    belief: before the data (or a bandit, for its belief and its arms' names); arms, rewards: the
    data, in order. Up to "now": quantiles of the arm's mean reward and the predictive mean, after
    each reward of the arm. From there: `num_paths` trajectories of the predictive mean, along
    rewards sampled from the belief, as if the arm were pulled `horizon` more times. Penalties and
    policies are made of such trajectories: the wider they fan out, the more there is to learn. ax:
    one Axes per arm. Returns the Axes `[K]`.
    """
    from irsppl._checks import as_count, as_key
    from irsppl.bandit import Bandit
    from irsppl.beliefs import Belief, evolution

    if isinstance(belief, Bandit):
        labels = belief.labels if labels is None else labels
        belief = belief.belief
    if not isinstance(belief, Belief):
        raise ValueError(
            "belief must be an irsppl belief such as BetaBernoulli(...), or a Bandit, got "
            f"{belief!r}"
        )
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
    found = evolution(belief, arms, rewards, levels, horizon, num_paths, as_key(key))
    for arm, (panel, name) in enumerate(zip(panels, names, strict=True)):
        colour = _COLOURS[arm % len(_COLOURS)]
        now = int(found.counts[-1, arm])
        # The last word at each count: rewards of other arms may tell of this one too.
        steps = np.searchsorted(found.counts[:, arm], np.arange(now + 1), side="right") - 1
        low, lower, _, upper, high = found.quantiles[steps, :, arm].T
        seen = np.arange(now + 1)
        panel.fill_between(seen, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.fill_between(seen, lower, upper, color=colour, alpha=0.3, linewidth=0)
        panel.plot(seen, found.means[steps, arm], color=colour, linewidth=2)
        coming = now + np.arange(horizon + 1)
        panel.plot(coming, found.futures[:, arm].T, color="0.45", linewidth=0.7, alpha=0.7)
        panel.vlines(now, low[-1], high[-1], color=colour, linewidth=1.5, zorder=3)
        panel.vlines(now, lower[-1], upper[-1], color=colour, linewidth=5, zorder=3)
        panel.plot(now, found.means[-1, arm], "o", color=colour, markeredgecolor="white", zorder=4)
        panel.axvline(now, color="0.3", linewidth=0.8, linestyle=":")
        top = panel.get_xaxis_transform()
        panel.text(now + 0.02 * horizon, 0.98, "now", transform=top, va="top", color="0.3")
        panel.set_title(_text(str(name)))
        panel.set_xlabel("rewards of this arm")
        _finish(panel)
    panels[0].set_ylabel("mean reward")
    _belief_legend(panels[0])
    return panels


def _panels(count: int, given: Sequence[Axes] | None) -> np.ndarray:
    """One Axes per arm, in rows of at most four, as full as can be."""
    if given is not None:
        panels = np.asarray(given, object).ravel()
        if len(panels) != count:
            raise ValueError(f"ax must be {count} Axes, one per arm, got {len(panels)}")
        return panels
    import matplotlib.pyplot as plt

    rows = -(-count // 4)
    columns = -(-count // rows)
    figure = plt.figure(figsize=(1.5 + 2.8 * columns, 1 + 3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for spare in grid.ravel()[count:]:
        figure.delaxes(spare)
    for panel in grid.ravel()[:count]:  # sharing an axis hides its numbers
        panel.tick_params(labelbottom=True)
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


def legend_height(entries: int) -> float:
    """The height of a figure (inches) beside which a legend with so many entries finds room."""
    return max(5.0, 0.5 + 0.25 * entries)


def _mean_error(data: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean regret, and two standard errors, over replications (not a number: not played)."""
    if has_means(data):
        return data["mean_regret"].values, 2 * data["mean_regret_stderr"].values
    regret = data["regret"].transpose("replication", ...).values
    played = np.sum(~np.isnan(regret), axis=0)
    return np.nanmean(regret, axis=0), 2 * np.nanstd(regret, axis=0, ddof=1) / np.sqrt(played)


def has_means(data: xr.Dataset) -> bool:
    """Whether a study's data hold the means of just these replications: there may be very many."""
    return "mean_regret" in data and data.attrs.get("replications") == data.sizes["replication"]


def _from_zero(
    regret: np.ndarray, bounds: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """The range of a regret axis. A bound far below zero says nothing, and may lie outside it."""
    highest = max(np.nanmax(regret, initial=0.0), *(b for b, _ in bounds.values()), 1e-9)
    return -0.03 * highest, 1.08 * highest


def _limit(regret: np.ndarray) -> float:
    """A policy beyond this is told in words: drawn to scale it would squeeze all others."""
    if len(regret) < 3:
        return 8 * float(np.min(regret, initial=np.inf))
    return 4 * float(np.median(regret))


def _check_data(data: Any, dims: tuple[str, ...]) -> None:
    """Refuse what is not the result that the figure shows, and say which figure does."""
    import xarray as xr

    made = "a study (run_study(...).data)" if "horizon" in dims else "irsppl.simulate"
    if not isinstance(data, xr.Dataset) or "regret" not in data:
        given = type(data).__name__ if isinstance(data, xr.Dataset) else repr(data)
        raise ValueError(f"data must be the xarray.Dataset of {made}, got {given}")
    if set(data["regret"].dims) != set(dims):
        instead = "plot_regret" if "horizon" in dims else "plot_horizons, or data.sel(horizon=...)"
        raise ValueError(
            f"data must be that of {made}, with regret over {', '.join(dims)}; got one over "
            f"{', '.join(map(str, data['regret'].dims))}: use {instead}"
        )


def _replications(data: xr.Dataset) -> str:
    """How many were played: of policies that met fewer at some horizons, both numbers."""
    if has_means(data):
        played = np.atleast_1d(data["played"].values)
    else:
        regret = data["regret"].transpose("replication", ...).values
        played = np.sum(~np.isnan(regret), axis=0) if regret.size else np.zeros(1, int)
    low, high = int(played.min()), int(played.max())
    return f"{high:,} replications" if low == high else f"{low:,} to {high:,} replications"


def _text(words: str) -> str:
    """As it stands: matplotlib reads formulas between dollars, and hides legends of `_private`."""
    return (" " if words.startswith("_") else "") + words.replace("$", r"\$")


def _finish(ax: Axes, title: str | None = None) -> Axes:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(alpha=0.25)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def _styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line of each name: fixed for known names, by the name's own number else.

    A name that is not known gives way where its look is taken: first to a colour that nobody has.
    """
    twins = {name: _SAME.get(name, name) for name in names}
    looks = {name: _LOOKS[_KNOWN.index(name)] for name in twins.values() if name in _KNOWN}
    for name in sorted(set(twins.values()) - looks.keys()):
        begin = zlib.crc32(name.encode()) % len(_COLOURS)
        order = [*range(begin, len(_LOOKS)), *range(begin)]
        colours = {colour for colour, _, _ in looks.values()}
        free = [_LOOKS[i] for i in order if _LOOKS[i] not in looks.values()]
        fresh = [look for look in free if look[0] not in colours]
        looks[name] = (fresh or free or _LOOKS)[0]
    keys = ("color", "marker", "linestyle")
    return {
        name: dict(zip(keys, looks[twin], strict=True)) | {"markersize": 6}
        for name, twin in twins.items()
    }


def _bound_items(bounds: Any) -> dict[str, tuple[float, float]]:
    """{name: (regret bound, two standard errors)} from bounds in any form that makes sense."""
    if bounds is None:
        return {}
    if hasattr(bounds, "regret_bound"):
        bounds = [bounds]
    if not isinstance(bounds, Mapping):
        several = isinstance(bounds, Iterable) and not isinstance(bounds, str)
        if not several or not all(hasattr(b, "regret_bound") for b in bounds):
            raise ValueError(
                "bounds must be what irsppl.bound returns, or {name: regret bound}, got "
                f"{bounds!r}"
            )
        bounds = {b.penalty: b for b in bounds}
    found = {}
    for name, bound in bounds.items():
        value = getattr(bound, "regret_bound", bound)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ValueError(f"bounds[{name!r}] must be a bound or a number, got {bound!r}")
        found[str(name)] = float(value), 2 * float(getattr(bound, "regret_stderr", 0.0))
    return found
