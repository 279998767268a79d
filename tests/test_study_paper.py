"""Studies beside the paper's figures; arms as text."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

import irsppl
from irsppl._fields import changed
from irsppl.penalties import PENALTIES
from irsppl.policies import POLICIES
from irsppl.studies import STUDIES, comparison, parse_arms, run_study, study_table
from irsppl.studies.one_stream import one_stream_outcomes
from irsppl.studies.report import comparison_text, paper_figures, table_text

from .test_studies import TIMES, small

# ------------------------------------------------------------------ beside the paper


def made_up(name, regrets, bounds):
    """Data of a study whose regrets alternate about given means with standard error 0.01."""
    spread = np.where(np.arange(100) % 2, 1.0, -1.0) * 0.01 * np.sqrt(99)
    samples = [mean + spread for mean in regrets.values()]
    horizon = STUDIES[name].horizon
    return xr.Dataset(
        {
            "regret": (("policy", "horizon", "replication"), np.array(samples)[:, None, :]),
            "regret_bound": (("penalty", "horizon"), np.array([[b] for b in bounds.values()])),
            "regret_bound_stderr": (("penalty", "horizon"), np.zeros((len(bounds), 1))),
            TIMES: ("policy", np.full(len(regrets), 1e-3)),
        },
        coords={"policy": list(regrets), "penalty": list(bounds), "horizon": [horizon]},
        attrs={"table_horizon": horizon, "replications": 100},
    )


def test_one_row_for_a_bound_and_its_policy():
    data = made_up(
        "bernoulli_2", {"opt": 2.3, "lagr-ot": 2.6}, {"ideal": 2.24, "lagrangian": -12.5}
    )
    table = study_table(data)
    assert list(table.index) == ["opt", "lagr-ot"]
    assert table.loc["opt", "regret_bound"] == 2.24
    assert table.loc["lagr-ot", "regret_bound"] == -12.5
    assert "-5" not in table_text(table).splitlines()[-1].split("|")[6]


def test_z_scores_are_in_combined_standard_errors():
    data = made_up("bernoulli_2", {"ts": 3.55, "opt": 2.25}, {"irs.fh": 1 / 6})
    table = comparison(STUDIES["bernoulli_2"], data).set_index(["quantity", "name"])
    rounding = 0.01 / np.sqrt(12)
    row = table.loc[("regret", "ts")]
    assert row["paper_z"] == pytest.approx(0.10 / np.sqrt(0.01**2 + 0.021**2 + rounding**2))
    assert row["independent_z"] == pytest.approx(0)
    assert table.loc[("regret", "opt")]["paper_z"] == pytest.approx(0.01 / np.hypot(0.01, rounding))
    assert table.loc[("regret_bound", "irs.fh")]["paper_z"] == pytest.approx(2.16, abs=0.01)
    assert table.loc[("regret_bound", "irs.fh")]["independent_z"] == 0
    assert "+2.2" in comparison_text(table.reset_index())


def test_every_printed_figure_belongs_to_a_study():
    for study in STUDIES.values():
        if study.paper is None:
            continue
        figures = paper_figures(study.paper)
        names = {*study.policies, *study.penalties, *study.left_out}
        for quantity, rows in figures.items():
            assert set(rows) <= names, (study.name, quantity)
        assert set(study.policies) <= set(POLICIES) and set(study.penalties) <= set(PENALTIES)


def test_figures_agree_with_the_tables_in_the_tests(paper):
    printed = paper_figures("gaussian_10")["regret"]["irs.v-zero"]["paper"]
    row = paper["tables"]["gaussian_10"]["rows"]["IRS.V-Zero"]
    assert printed == [row["regret"], row["se"]]


def test_the_paper_studies_are_those_of_the_paper(paper):
    for name, table in paper["tables"].items():
        study = STUDIES[name]
        assert study.horizon == table["T"] and study.replications == table["S"]
        assert len(study.all_horizons()) >= 8 and max(study.all_horizons()) == study.horizon
        belief = study.belief()
        assert belief.num_arms == table["K"]
        if table["family"] == "gaussian":
            noise = np.broadcast_to(table["noise_sd"], table["K"])
            np.testing.assert_allclose(belief.noise_sd, noise)


def test_one_stream_uses_the_random_numbers_of_the_means_again():
    belief = parse_arms("normal(0,1,noise=1)x2")
    drawn = one_stream_outcomes(belief, 5, seed=0, start=3, count=4)
    assert drawn.rewards.shape == (4, 2, 5)
    # The first two rewards of arm 0 are its mean plus the very noise that made the two means.
    np.testing.assert_allclose(
        drawn.rewards[:, 0, :2] - drawn.means[:, :1], drawn.means, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="GammaPoisson"):
        one_stream_outcomes(parse_arms("poisson(1,1)x2"), 5, 0, 0, 1)


def test_one_stream_stands_beside_the_rest(tmp_path):
    study = small(paper="gaussian_2", horizons=(), penalties=("ts", "irs.v-zero"))
    result = run_study(study, 20, tmp_path, block=10, compare=True, shared_stream=True)
    beside = comparison(study, result.data).set_index(["quantity", "name"])
    assert np.isfinite(beside.loc[("regret", "ts"), "one_stream"])
    assert np.isfinite(beside.loc[("regret_bound", "irs.v-zero"), "one_stream"])
    assert "one stream" in (result.folder / "compare.md").read_text()
    plain = run_study(study, 20, tmp_path, block=10)
    assert plain.computed == 0 and not any(n.startswith("one_stream") for n in plain.data)


# ------------------------------------------------------------------ arms as text


def test_arms_are_read():
    belief = parse_arms(["beta(3,1)", " Beta( beta=2, alpha=1 ) x 2"])
    np.testing.assert_array_equal(belief.alpha, [3, 1, 1])
    np.testing.assert_array_equal(belief.beta, [1, 2, 2])
    belief = parse_arms("normal(0,1,noise=0.5)x10")
    assert belief.num_arms == 10 and float(belief.noise_sd[3]) == 0.5
    assert isinstance(parse_arms("poisson(1,2)"), irsppl.GammaPoisson)
    assert isinstance(parse_arms("exponential(3,2)"), irsppl.GammaExponential)
    assert isinstance(parse_arms("nig(0,1,2,1e-1)"), irsppl.NormalInverseGamma)


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        ("beta(1", "must look like"),
        ("gauss(0,1)", "unknown family of arms 'gauss'; known: beta"),
        ("beta(1)", r"lacks beta: write beta\(alpha,beta\)"),
        ("beta(1,2,3)", "too many"),
        ("beta(1,gamma=2)", "does not know 'gamma'"),
        ("beta(1,alpha=2)", "gives twice 'alpha'"),
        ("beta(1,x)", "must be a number, got 'x'"),
        ("beta(1,1)x0", "at least one"),
        ("beta(-1,1)", "alpha must be positive"),
        (["beta(1,1)", "normal(0,1,1)"], "one family, got beta, normal"),
        ([], "at least one arm"),
    ],
)
def test_bad_arms(arms, told):
    with pytest.raises(ValueError, match=told):
        parse_arms(arms)


def test_a_study_notices_another_model_in_the_same_belief():
    from irsppl.studies.identity import described

    @dataclasses.dataclass
    class Holder:
        function: object

    def one():
        return 1

    def two():
        return 2

    assert described(Holder(one)) == described(Holder(one)) != described(Holder(two))
    assert described([Holder(one), {"deep": Holder(two)}]) != described(
        [Holder(one), {"deep": Holder(one)}]
    )
    assert described("ts") == "ts" and described(irsppl.Index(2)) != described(irsppl.Index(3))


def test_futures_given_by_hand_must_fit_the_bandit():
    bandit = small().bandit()
    drawn = one_stream_outcomes(bandit.belief, 6, seed=0, start=0, count=8)
    data = irsppl.simulate(bandit, ["greedy"], outcomes=drawn)
    best = 6 * np.asarray(drawn.means).max(axis=1)
    np.testing.assert_allclose((data["value"] + data["regret"]).values[0], best, rtol=1e-5)
    written = irsppl.Outcome(np.asarray(drawn.means), np.asarray(drawn.rewards).tolist())
    assert irsppl.simulate(bandit, ["greedy"], outcomes=written).identical(data)
    short = one_stream_outcomes(bandit.belief, 5, seed=0, start=0, count=8)
    with pytest.raises(ValueError, match=r"rewards \[S, 2, 6\]"):
        irsppl.simulate(bandit, ["greedy"], outcomes=short)
    with pytest.raises(ValueError, match="cannot both"):
        irsppl.simulate(bandit, ["greedy"], means=[0.0, 1.0], outcomes=drawn)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), 6)
    drawn = one_stream_outcomes(bandit.belief, 6, seed=0, start=0, count=8)
    with pytest.raises(ValueError, match="reward of a Bernoulli arm must be 0 or 1"):
        irsppl.simulate(bandit, ["greedy"], outcomes=changed(drawn, rewards=drawn.rewards + 1))
    with pytest.raises(ValueError, match=r"means must .* between the least and the largest"):
        irsppl.simulate(bandit, ["greedy"], outcomes=changed(drawn, means=drawn.means + 1))
