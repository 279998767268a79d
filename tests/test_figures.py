"""Figures: names told apart, nothing squeezed, errors shown, bad input refused."""

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

import irsppl
from irsppl.bounds import Bound
from irsppl.plots import (
    _COLOURS,
    _KNOWN,
    _LOOKS,
    _panels,
    plot_belief,
    plot_horizons,
    plot_periods,
    plot_regret,
)
from irsppl.policies import POLICIES

from .test_plots import check_labels, dashed, simulated, studied

matplotlib.use("Agg")
BOUND = Bound("irs.fh", 10.0, 0.1, 0.4, 0.1)


@pytest.fixture(autouse=True)
def _close():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def looks(ax):
    return {
        line.get_label().partition(" (off")[0]: (
            to_hex(line.get_color()),
            line.get_marker(),
            line.get_linestyle(),
        )
        for line in ax.lines
        if line.get_linestyle() != "--"
    }


def test_twelve_names_have_twelve_colours():
    names = ["irs.mix", "random", *_KNOWN[:8], "mine", "another of mine"]
    ax = plot_horizons(studied(names, ("ideal",)))
    check_labels(ax)
    assert len({colour for colour, _, _ in looks(ax).values()}) == 12


def test_every_known_name_has_a_look_of_its_own_in_every_figure():
    assert set(POLICIES) <= set(_KNOWN) and len(set(_LOOKS)) == len(_LOOKS)
    assert len(set(_COLOURS)) == len(_COLOURS) >= len(_KNOWN)
    everyone = looks(plot_horizons(studied(list(_KNOWN), ("ts",))))
    assert len(set(everyone.values())) == len(_KNOWN)
    for name in ("ogi", "lagr-ot", "kl-ucb"):
        assert looks(plot_horizons(studied([name, "mine"], ("ts",))))[name] == everyone[name]


def test_an_own_policy_looks_the_same_beside_others():
    one = looks(plot_horizons(studied(["ts", "my rule"], ("ts",))))
    other = looks(plot_horizons(studied(["my rule", "opt", "irs.fh"], ("ts",))))
    assert one["my rule"] == other["my rule"]


def test_many_own_policies_are_told_apart():
    names = [f"rule {i}" for i in range(30)]
    assert len(set(looks(plot_horizons(studied(names, ("ts",)))).values())) == 30


@pytest.mark.parametrize("names", [["ts", "random"], ["ts", "irs.fh", "opt", "random"]])
def test_a_bad_policy_does_not_flatten_the_others(names):
    data = studied(names, ("ts", "ideal"))
    data["regret"].loc[{"policy": "random"}] *= 20
    ax = plot_horizons(data)
    check_labels(ax)
    assert ax.get_ylim()[1] < 5
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert any(t.startswith("random (off the scale: ") for t in told)


def test_sampled_bounds_have_bands():
    data = studied(["ts", "opt"], ("ts", "irs.fh", "ideal"))
    spread = np.zeros(data["regret_bound"].shape)
    spread[1] = 0.05
    data["regret_bound_stderr"] = (("penalty", "horizon"), spread)
    ax = plot_horizons(data)
    assert len(ax.collections) == 2 + 1  # two policies, one sampled bound
    for plot, along in ((plot_regret, 0), (plot_periods, 1)):
        ax = plot(simulated(), {"irs.fh": BOUND, "ideal": 1.0})
        check_labels(ax)
        assert len(dashed(ax)) == 2 and len(ax.patches) == 1
        edges = ax.patches[0].get_window_extent().transformed(ax.transData.inverted())
        assert [edges.min[along], edges.max[along]] == pytest.approx([0.2, 0.6])


def test_the_number_of_replications_is_stated():
    assert "50 replications" in plot_regret(simulated()).get_xlabel()
    assert "50 replications" in plot_periods(simulated()).get_xlabel()
    data = studied()
    assert "of 200 replications" in plot_horizons(data).get_ylabel()
    data["regret"][:, 0, 100:] = np.nan
    assert "100 to 200 replications" in plot_horizons(data).get_ylabel()


def test_every_panel_of_a_belief_has_its_numbers():
    names = [f"treatment {a}" for a in range(6)]
    belief = irsppl.NormalNormal(np.zeros(6), np.ones(6), np.ones(6))
    bandit = irsppl.Bandit(belief, 5, labels=names)
    panels = plot_belief(bandit, [0, 0], [1, 0], horizon=5, num_paths=3)
    panels[0].figure.canvas.draw()
    assert [panel.get_title() for panel in panels] == names
    for panel in [*panels, *_panels(1, None), *_panels(5, None), *_panels(7, None)]:
        panel.figure.canvas.draw()
        assert any(label.get_text() for label in panel.get_xticklabels() if label.get_visible())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: plot_regret(None), "data must be the xarray.Dataset of irsppl.simulate, got None"),
        (lambda: plot_regret([1, 2]), "data must be"),
        (lambda: plot_regret(simulated(), "ts"), "bounds must be what irsppl.bound returns"),
        (lambda: plot_regret(simulated(), {"ts": "x"}), r"bounds\['ts'\] must be"),
        (lambda: plot_regret(simulated(), 3), "bounds must be"),
        (lambda: plot_regret(studied()), "use plot_horizons"),
        (lambda: plot_periods(None), "data must be"),
        (lambda: plot_periods(studied()), "use plot_horizons"),
        (lambda: plot_horizons(simulated()), "data of a study|that of a study"),
        (lambda: plot_horizons(None), "data must be the xarray.Dataset of a study"),
        (lambda: plot_belief(None), "belief must be an irsppl belief"),
        (lambda: plot_belief("beta(1,1)"), "belief must be an irsppl belief"),
    ],
)
def test_bad_input_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_several_bounds_in_a_list():
    other = Bound("irs.ff", 9.0, 0.0, 0.9, 0.0)
    ax = plot_regret(simulated(), [BOUND, other])
    assert [line.get_xdata()[0] for line in dashed(ax)] == [0.4, 0.9]
