"""Pictures: labelled axes, dashed bounds in matching colours, no label on top of another."""

import itertools

import jax
import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

import irsppl
from irsppl.beliefs import evolution
from irsppl.plots import plot_horizons, plot_periods, plot_regret
from irsppl.policies import POLICIES
from irsppl.results import summary

matplotlib.use("Agg")

NAMES = ["ts", "irs.fh", "irs.v-zero", "my own policy, with a rather long name"]
BOUNDS = {"irs.fh": 0.2, "irs.v-zero": 0.9, "ideal": 1.4}


def simulated(names=NAMES, horizon=30, regrets=None):
    """What `simulate` returns with per_period=True, made up."""
    rng = np.random.default_rng(0)
    regrets = np.linspace(3, 1.5, len(names)) if regrets is None else np.asarray(regrets)
    weights = np.arange(horizon, 0, -1.0)
    return xr.Dataset(
        {
            "regret": (
                ("policy", "replication"),
                regrets[:, None] + rng.normal(size=(len(names), 50)),
            ),
            "period_regret": (("policy", "period"), regrets[:, None] * weights / weights.sum()),
        },
        coords={"policy": names, "period": np.arange(horizon)},
        attrs={"horizon": horizon},
    )


def studied(names=NAMES, penalties=("ts", "irs.fh", "irs.v-zero", "ideal")):
    rng = np.random.default_rng(1)
    horizons = np.array([10, 25, 50, 75, 100, 125, 150, 200])
    growth = np.sqrt(horizons / 200)
    regrets = np.linspace(3.5, 2.2, len(names))[:, None] * growth
    bounds = np.linspace(0, 2.0, len(penalties))[:, None] * growth
    return xr.Dataset(
        {
            "regret": (
                ("policy", "horizon", "replication"),
                regrets[:, :, None] + rng.normal(size=(len(names), len(horizons), 200)),
            ),
            "regret_bound": (("penalty", "horizon"), bounds),
        },
        coords={"policy": list(names), "penalty": list(penalties), "horizon": horizons},
        attrs={"title": "Made-up arms"},
    )


@pytest.mark.parametrize("draw", [plot_regret, plot_periods, plot_horizons])
def test_names_are_shown_as_they_are(draw):
    """Two dollars were a formula, one that cannot be read an error, `_mine` not in the legend."""
    names = ["_mine", "$5 or $10", r"$\frac{$", "ts"]
    figure = draw((studied if draw is plot_horizons else simulated)(names)).figure
    figure.draw_without_rendering()
    shown = {text.get_text().strip() for text in figure.findobj(Text)}
    assert {name.replace("$", r"\$") for name in names} <= shown


def check_labels(ax):
    """Axis labels are there, and no two texts of the drawn figure overlap."""
    assert ax.get_xlabel() and ax.get_ylabel()
    figure = ax.figure
    figure.canvas.draw()
    texts = [
        text
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_visible() and text.get_text().strip()
    ]
    inside = figure.bbox
    boxes = []
    for text in texts:
        box = text.get_window_extent()
        # Ticks beyond the limits are kept by Matplotlib but not drawn.
        if box.width and inside.overlaps(box) and _shown(ax, text):
            boxes.append((text.get_text(), box))
    assert len(boxes) > 6
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), f"{one!r} overlaps {other!r}"
        assert a.x0 >= 0 and a.x1 <= inside.x1 and a.y0 >= 0 and a.y1 <= inside.y1, one


def _shown(ax, text):
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if text in (tick.label1, tick.label2):
                return min(limits) <= tick.get_loc() <= max(limits)
    return True


def dashed(ax):
    return [line for line in ax.lines if line.get_linestyle() == "--"]


def test_regret_of_policies_sorted_with_bounds():
    ax = plot_regret(simulated(), BOUNDS)
    check_labels(ax)
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert shown == NAMES[::-1]  # least regret first, and the axis points down
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert [line.get_xdata()[0] for line in dashed(ax)] == list(BOUNDS.values())
    assert "30 periods" in ax.get_xlabel()


def test_regret_takes_bounds_in_every_form():
    class One:
        penalty, regret_bound = "irs.fh", 0.5

    assert [line.get_xdata()[0] for line in dashed(plot_regret(simulated(), One()))] == [0.5]
    several = plot_regret(simulated(), {"irs.fh": One()})
    assert [line.get_xdata()[0] for line in dashed(several)] == [0.5]
    assert not dashed(plot_regret(simulated()))


def test_regret_shows_the_figures_of_the_table():
    data = simulated()
    data["steadied_regret"] = data["regret"].mean("replication") + data["regret"] / 50
    (table, drawn) = (summary(data.assign(value=data["regret"])), plot_regret(data))
    for bar in drawn.containers:
        (mean, row), (_, error) = bar.lines[0].get_xydata()[0], bar.lines[1]
        name = drawn.get_yticklabels()[int(row)].get_text()
        assert mean == table.loc[name, "regret"]
        assert error.get_xdata()[0] - mean == pytest.approx(2 * table.loc[name, "regret s.e."])


def test_a_policy_far_off_does_not_squeeze_the_others():
    data = simulated(["ts", "irs.fh", "random"], regrets=[2.0, 1.8, 40.0])
    ax = plot_regret(data, BOUNDS)
    check_labels(ax)
    assert ax.get_xlim()[1] < 4
    assert any("40" in text.get_text() for text in ax.texts)
    ax = plot_periods(data)
    check_labels(ax)
    assert ax.get_ylim()[1] < 4
    assert any("ends at 40" in text.get_text() for text in ax.get_legend().get_texts())


def test_regret_period_by_period():
    data = simulated()
    ax = plot_periods(data, BOUNDS)
    check_labels(ax)
    curve = ax.lines[0]
    np.testing.assert_allclose(curve.get_ydata()[-1], data["period_regret"][0].sum())
    assert curve.get_xdata()[0] == 1 and curve.get_xdata()[-1] == 30
    assert len(dashed(ax)) == len(BOUNDS)
    with pytest.raises(ValueError, match="per_period=True"):
        plot_periods(data.drop_vars("period_regret"))


def test_regret_against_the_horizon():
    ax = plot_horizons(studied())
    check_labels(ax)
    assert ax.get_title() == "Made-up arms"
    bounds = {line.get_label(): line for line in dashed(ax)}
    solid = {line.get_label(): line for line in ax.lines if line not in bounds.values()}
    assert list(solid) == NAMES
    assert list(bounds) == ["irs.fh, bound", "irs.v-zero, bound", "ideal, bound"]
    assert bounds["irs.fh, bound"].get_color() == solid["irs.fh"].get_color()
    assert len(ax.collections) == len(NAMES)  # bands of two standard errors


def test_a_bound_below_zero_does_not_squeeze_the_rest():
    data = studied(penalties=("irs.fh", "lagrangian"))
    data["regret_bound"].loc[{"penalty": "lagrangian"}] = -12.0
    ax = plot_horizons(data)
    check_labels(ax)
    assert ax.get_ylim()[0] > -1
    assert any("below zero" in text.get_text() for text in ax.get_legend().get_texts())


def test_every_policy_there_is_can_be_told_from_every_other():
    names = list(POLICIES)
    ax = plot_horizons(studied(names, ("irs.fh", "ideal")))
    check_labels(ax)
    styles = [
        (to_hex(line.get_color()), line.get_marker(), line.get_linestyle())
        for line in ax.lines
        if line.get_linestyle() != "--"
    ]
    assert len(set(styles)) == len(names)
    eight = plot_horizons(studied(names[:8], ("ts",)))
    assert len({line.get_color() for line in eight.lines if line.get_linestyle() != "--"}) == 8


def test_a_name_looks_the_same_in_every_figure():
    first = plot_horizons(studied(["ts", "irs.index", "opt"], ("ideal",)))
    other = plot_horizons(studied(["mine", "opt", "irs.index"], ("ideal",)))
    colour = {line.get_label(): line.get_color() for line in first.lines}
    again = {line.get_label(): line.get_color() for line in other.lines}
    assert colour["opt"] == again["opt"] == again["ideal, bound"]
    assert colour["irs.index"] == again["irs.index"] != again["mine"]


@pytest.mark.parametrize("plot", [plot_regret, plot_periods, plot_horizons])
def test_own_axes_are_drawn_on(plot):
    ax = Figure().subplots()
    assert plot(studied() if plot is plot_horizons else simulated(), ax=ax) is ax


@pytest.fixture(autouse=True)
def _close():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_quantiles_of_a_belief_are_between_the_points_they_are_read_off():
    """A Beta(1, 1) mean before data and a Beta(2, 1) mean after a success, in single precision."""
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    belief = irsppl.BetaBernoulli([1.0], [1.0])
    seen = np.array([0]), np.array([1.0])
    found = evolution(belief, *seen, levels, horizon=2, num_paths=2, key=jax.random.key(0))
    wanted = [levels, np.sqrt(levels)]
    np.testing.assert_allclose(found.quantiles[:, :, 0], wanted, atol=1e-4)
