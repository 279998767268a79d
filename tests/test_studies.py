"""Studies: resumed runs end with the same numbers, damage is noticed, print stands beside them."""

import dataclasses
import os
import random
import re
import shutil
import signal
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import irsppl
from irsppl.studies import (
    STUDIES,
    Study,
    comparison,
    report,
    run_study,
    study_table,
)
from irsppl.studies.page import certificates
from irsppl.studies.report import table_text
from irsppl.studies.run import _Runner
from irsppl.studies.store import Store, alone

from . import crashes

TIMES = "seconds_per_path"


def small(**changes):
    study = Study(
        name="small",
        title="Two Gaussian arms",
        arms=("normal(0,1,noise=1)", "normal(0.2,1,noise=2)"),
        horizon=6,
        horizons=(3,),
        policies=("ts", "irs.fh", "greedy"),
        penalties=("ts", "irs.ff", "irs.v-zero"),
        replications=40,
    )
    return dataclasses.replace(study, **changes)


def same(one, other):
    """Every array byte for byte, timings aside."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        if name != TIMES:
            assert one[name].values.tobytes() == other[name].values.tobytes(), name


@pytest.fixture
def undrawn(monkeypatch):
    """No pictures, which take most of a small run's time, for tests that look at its numbers."""
    monkeypatch.setattr(report, "figure_files", lambda data: {"png": b"", "svg": b""})
    monkeypatch.setattr(report, "narrow_figure", lambda data: b"")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run_study(small(), out=tmp_path_factory.mktemp("done"), block=10)


def test_a_second_run_computes_nothing_and_says_the_same(done):
    again = run_study(small(), out=done.folder.parent, block=10)
    assert again.computed == 0 and again.reused == done.computed
    same(done.data, again.data)


def test_pictures_are_drawn_where_one_is_missing_or_older_than_its_data(
    done, tmp_path, monkeypatch
):
    shutil.copytree(done.folder, tmp_path / "small")
    drawn, data = [], tmp_path / "small" / "data.nc"
    monkeypatch.setattr(
        report, "figure_files", lambda _: drawn.append(1) or {"png": b"", "svg": b""}
    )
    monkeypatch.setattr(report, "narrow_figure", lambda _: b"")

    def draws(*replications):
        drawn.clear()
        assert run_study(small(), *replications, out=tmp_path).computed == 0
        return bool(drawn)

    before = data.stat().st_mtime_ns
    assert not draws() and not draws() and data.stat().st_mtime_ns == before
    for name in ("figure.png", "figure.svg", "report.html"):
        (tmp_path / "small" / name).unlink()
        assert draws() and not draws()
        os.utime(tmp_path / "small" / name, ns=(before, before))
        assert draws() and not draws()
    assert draws(30) and not draws(30)  # whole blocks of 10: nothing is computed
    assert draws() and not draws()
    data.write_bytes(data.read_bytes()[:-1])
    assert draws() and not draws()


@pytest.mark.usefixtures("undrawn")
def test_how_a_run_is_repeated_is_how_it_was_run(tmp_path):
    study = small(horizons=(), policies=("greedy",), penalties=("ts",))
    result = run_study(study, 10, tmp_path, key=7)
    shown = (result.folder / "report.html").read_text()
    assert "irsppl study small.py --replications 10 --seed 7<" in shown


@pytest.mark.usefixtures("undrawn")
def test_figures_beside_the_paper_are_not_left_over_from_another_run(tmp_path):
    study = dataclasses.replace(
        STUDIES["worked_example"], horizons=(), policies=("greedy",), penalties=("ts",)
    )
    table = run_study(study, 10, tmp_path, compare=True).folder / "compare.md"
    assert "10 replications" in table.read_text()
    run_study(study, 20, tmp_path)
    assert "20 replications" in table.read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_fresh_run_gives_identical_arrays(done, tmp_path):
    same(done.data, run_study(small(), out=tmp_path, block=10).data)


def test_blocks_give_the_numbers_of_one_long_simulation(done):
    for horizon in (3, 6):
        bandit = small().bandit(horizon)
        data = irsppl.simulate(bandit, ["ts", "irs.fh", "greedy"], num_replications=40)
        for name in ("value", "regret"):
            ours = done.data[name].sel(horizon=horizon).values
            np.testing.assert_array_equal(ours, data[name].values)
        bounds = irsppl.bound(bandit, ["ts", "irs.ff", "irs.v-zero"], num_samples=40)
        for name, bound in bounds.items():
            cell = done.data.sel(penalty=name, horizon=horizon)
            assert cell["bound"].item() == pytest.approx(bound.value, rel=1e-12)
            assert cell["bound_stderr"].item() == pytest.approx(bound.stderr, rel=1e-9)
            assert cell["regret_bound"].item() == pytest.approx(bound.regret_bound, abs=1e-12)
            if not bound.exact:
                np.testing.assert_array_equal(cell["inner_value"], bound.samples)
    assert done.data["pulls"].sum("arm").values == pytest.approx(
        np.broadcast_to([3.0, 6.0], (3, 2))
    )


@pytest.mark.usefixtures("undrawn")
def test_a_seed_taken_from_a_clock_is_that_of_policies_and_bounds(tmp_path):
    """Beyond 32 bits, of which bounds took the low ones: those of another seed."""
    key, study = 2**60 + 5, small(horizons=(), policies=("greedy",), penalties=("irs.v-zero",))
    data = run_study(study, 40, tmp_path, key, block=10).data.isel(horizon=0)
    bound = irsppl.bound(study.bandit(), "irs.v-zero", key=key, num_samples=40)
    np.testing.assert_array_equal(data["inner_value"][0], bound.samples)
    played = irsppl.simulate(study.bandit(), "greedy", key=key, num_replications=40)
    np.testing.assert_array_equal(data["regret"][0], played["regret"][0])
    with pytest.raises(ValueError, match="key must be at most 9,223,372,036,854,775,807"):
        run_study(study, 40, tmp_path, 2**63)


@pytest.mark.usefixtures("undrawn")
def test_more_replications_go_on_from_those_there_are(tmp_path):
    fewer = run_study(small(), 20, tmp_path / "a", block=10)
    more = run_study(small(), 40, tmp_path / "a", block=10)
    assert more.reused == fewer.computed and more.computed > 0
    same(more.data, run_study(small(), 40, tmp_path / "b", block=10).data)


@pytest.mark.usefixtures("undrawn")
def test_a_new_policy_or_horizon_leaves_the_others_alone(done, tmp_path):
    run_study(small(policies=("ts",), horizons=()), out=tmp_path, block=10)
    more = run_study(small(), out=tmp_path, block=10)
    assert more.reused > 0
    same(done.data, more.data)


# ------------------------------------------------------------------ interruption and damage


def run_to_be_killed(folder):
    run_study(small(horizons=()), 120, folder, block=3, progress=False)


def chunk_files(folder):
    return {p.name: p.stat().st_mtime_ns for p in (folder / "small" / "chunks").glob("*.chunk")}


@pytest.mark.usefixtures("undrawn")
def test_killed_three_times_and_resumed_equals_an_undisturbed_run(tmp_path):
    """kill -9 at moments drawn at random; nothing finished is done again, nothing differs."""
    study = small(horizons=())
    undisturbed = run_study(study, 120, tmp_path / "whole", block=3)
    total = undisturbed.computed
    moments = random.Random(7)
    before = {}
    for share in (0.2, 0.45, 0.7):
        process = crashes.context.Process(target=run_to_be_killed, args=(tmp_path / "killed",))
        process.start()
        wanted = int(total * (share + moments.uniform(-0.1, 0.1)))
        while len(chunk_files(tmp_path / "killed")) < wanted and process.is_alive():
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.02))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
        after = chunk_files(tmp_path / "killed")
        assert before.items() <= after.items(), "a finished chunk was computed again"
        before = after
    resumed = run_study(study, 120, tmp_path / "killed", block=3)
    assert resumed.reused == len(before) and resumed.computed == total - len(before)
    same(undisturbed.data, resumed.data)


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_chunk_is_computed_again_and_only_that(done, tmp_path):
    run_study(small(), out=tmp_path, block=10)
    files = sorted((tmp_path / "small" / "chunks").glob("policy-*.chunk"))
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 1
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:-7])
    files[2].write_bytes(b"")
    files[3].write_bytes(files[4].read_bytes())  # whole, but under another's name
    repaired = run_study(small(), out=tmp_path, block=10)
    assert repaired.computed == 4
    same(done.data, repaired.data)


def test_two_runs_do_not_write_to_one_folder(done):
    """Their data and pictures would be mixed; whoever came first goes on."""
    with (
        alone(done.folder),
        pytest.raises(ValueError, match=r"another run is writing to .*small: wait"),
    ):
        run_study(small(), out=done.folder.parent, block=10)
    with alone(done.folder):
        pass


def test_a_chunk_is_whole_or_absent(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save(("policy", "a/b*", 3), {"x": np.arange(3.0)})
    np.testing.assert_array_equal(store.load(("policy", "a/b*", 3))["x"], [0, 1, 2])
    assert store.load(("policy", "a/b?", 3)) is None  # its name on disk differs too

    def fail(*_):
        raise OSError("the power is gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="power"):
        store.save(("policy", "new", 3), {"x": np.zeros(2)})
    with pytest.raises(OSError, match="power"):
        store.save(("policy", "a/b*", 3), {"x": np.zeros(2)})
    assert store.load(("policy", "new", 3)) is None
    np.testing.assert_array_equal(store.load(("policy", "a/b*", 3))["x"], [0, 1, 2])


def test_results_of_another_run_are_not_mixed(done):
    out = done.folder.parent
    for study, key, block, told in (
        (small(), 1, 10, "key was 0 and is now 1"),
        (small(), 0, 20, "block was 10 and is now 20"),
        (small(arms="normal(0,1,noise=3)x2"), 0, 10, "study.arms was"),
        (small(horizon=7), 0, 10, "study.horizon was 6 and is now 7"),
        (small(policies={"ts": "irs.fh"}), 0, 10, "study.policies.ts was 'ts' and is now 'irs.fh'"),
    ):
        with pytest.raises(ValueError, match=told) as error:
            run_study(study, out=out, key=key, block=block)
        assert "another folder" in str(error.value)
    (out / "small" / "manifest.json").rename(out / "kept")
    (out / "small" / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        run_study(small(), out=out, block=10)
    (out / "kept").rename(out / "small" / "manifest.json")


def test_another_version_is_not_mixed_in(done, monkeypatch):
    monkeypatch.setattr(irsppl, "__version__", "99")
    with pytest.raises(ValueError, match=r"irsppl was .* and is now '99'"):
        run_study(small(), out=done.folder.parent, block=10)


# ------------------------------------------------------------------ what comes out


def test_files_and_table(done):
    names = {path.name for path in done.folder.iterdir()}
    wanted = {
        "report.html",
        "table.md",
        "table.csv",
        "figure.png",
        "figure.svg",
        "data.nc",
        "manifest.json",
    }
    assert wanted <= names and not any(name.endswith(".tmp") for name in names)
    shown = (done.folder / "report.html").read_text()
    assert "data:image/png" in shown and "irsppl study small.py --replications 40<" in shown
    assert not re.search(r'(src|href)="(?!data:)', shown) and "<script" not in shown
    table = study_table(done.data)
    value = done.data["value"].sel(horizon=6, policy="greedy").mean().item()
    told = certificates(done.data)
    upper = done.data["bound"].sel(horizon=6, penalty=told.attrs["penalty"]).item()
    assert told.loc["greedy", "share"] == pytest.approx(value / upper, abs=0.2)
    assert (told["surely"] <= told["share"]).all()
    assert list(table.index) == ["ts", "irs.fh", "greedy", "irs.ff", "irs.v-zero"]
    at = done.data.sel(horizon=6)
    assert table.loc["ts", "improvement"] == 0 and table.loc["ts", "regret_bound"] == 0
    regrets = at["regret"].mean("replication")
    assert table.loc["greedy", "regret"] == pytest.approx(regrets.sel(policy="greedy").item())
    assert table.loc["irs.fh", "improvement"] == pytest.approx(
        1 - (regrets.sel(policy="irs.fh") / regrets.sel(policy="ts")).item()
    )
    assert table.loc["irs.ff", "bound_improvement"] == pytest.approx(
        (at["regret_bound"].sel(penalty="irs.ff") / regrets.min()).item()
    )
    assert (done.data[TIMES] > 0).all()
    text = table_text(table)
    assert text.count("**") == 4 and "exact" in text
    assert len({len(line) for line in text.splitlines()}) == 1  # aligned


def test_exact_is_what_was_not_sampled(done):
    """An error of 0 does not tell: replications may be alike by chance. Few certify nothing."""
    assert dict(study_table(done.data)["bound_exact"].dropna()) == {
        "ts": True,
        "irs.ff": True,
        "irs.v-zero": False,
    }
    alike = done.data.copy()
    for name in ("regret_bound_stderr", "mean_regret_stderr"):
        alike[name] = xr.zeros_like(alike[name])
    lines = table_text(study_table(alike)).splitlines()
    shown = {line.split("|")[1].strip(): line for line in lines}
    assert "(exact)" in shown["irs.ff"] and "(exact)" not in shown["irs.v-zero"] + shown["greedy"]
    assert len(certificates(alike)) == 3
    assert not len(certificates(alike.assign_attrs(replications=29)))


def test_certificates_go_by_a_bound_that_is_surely_low(done):
    """Of a mean without variance the least estimate lay far below what policies earn."""
    data, row = done.data.copy(deep=True), {"penalty": "irs.v-zero"}
    data["bound"].loc[row] = data["bound"].sel(penalty="irs.ff") - 0.5
    for error, penalty in ((0.2, "irs.v-zero"), (0.3, "irs.ff")):
        data["bound_stderr"].loc[row] = error
        assert certificates(data).attrs["penalty"] == penalty


def test_the_limit_of_a_share_minds_the_error_of_the_bound(done):
    """share = 1 - gap / bound: where only the bound is uncertain, by gap / bound of its error."""
    data = done.data.copy()
    for name in ("regret_bound_stderr", "mean_regret_stderr"):
        data[name] = xr.zeros_like(data[name])
    data["bound_stderr"] = xr.full_like(data["bound_stderr"], 0.1)
    told = certificates(data).loc["greedy"]
    upper = data["bound"].sel(horizon=6).min().item()
    off = 1.96 * (1 - told["share"]) * 0.1 / upper
    assert told["share"] - told["surely"] == pytest.approx(off, rel=1e-6) and off > 0


def test_data_file_is_enough_to_draw_again(done):
    from matplotlib.figure import Figure

    from irsppl.plots import plot_horizons

    with xr.open_dataset(done.folder / "data.nc", engine="h5netcdf") as data:
        same(done.data, data.load())
    ax = plot_horizons(data, ax=Figure().subplots())
    assert len(ax.lines) == 3 + 2


def test_figures_too_large_for_memory_stay_on_disk(done, tmp_path, monkeypatch):
    """The limit lowered to nothing: the same numbers, lazily; the table from the means kept."""
    shutil.copytree(done.folder, tmp_path / "small")
    for module in ("gather", "report"):
        monkeypatch.setattr(f"irsppl.studies.{module}.MOST_IN_MEMORY", 0)
    monkeypatch.setattr("irsppl.studies.gather._ZARR_CHUNK", 30)  # 40 replications: two chunks
    result = run_study(small(), out=tmp_path)
    assert result.computed == 0
    loads = []
    monkeypatch.setattr(xr.Variable, "load", lambda *_, **__: loads.append(1))
    pd.testing.assert_frame_equal(study_table(result.data), study_table(done.data))
    monkeypatch.undo()
    assert not loads and not isinstance(result.data["regret"].variable._data, np.ndarray)
    same(done.data, result.data)
    with xr.open_dataset(result.folder / "data.nc", engine="h5netcdf") as data:
        assert "regret" not in data and "mean_regret" in data and "bound" in data
    regret = done.data["regret"]
    np.testing.assert_allclose(done.data["mean_regret"], regret.mean("replication"), rtol=1e-12)
    error = regret.std("replication", ddof=1) / np.sqrt(40)
    np.testing.assert_allclose(done.data["mean_regret_stderr"], error, rtol=1e-12)
    half = done.data.isel(replication=slice(20))  # the means kept are not those of a part
    wanted = regret.isel(replication=slice(20)).sel(policy="ts", horizon=6).mean().item()
    assert study_table(half).loc["ts", "regret"] == pytest.approx(wanted, rel=1e-12)


def test_the_worked_example_solves_its_outcome(tmp_path):
    study = STUDIES["worked_example"]
    study = dataclasses.replace(
        study, horizons=(), policies=(), penalties=("zero", "ts", "irs.fh", "ideal")
    )
    result = run_study(study, 20, tmp_path, compare=True)
    beside = comparison(study, result.data)
    exact = beside[beside["quantity"] == "outcome_value"]
    assert len(exact) == 4 and (exact["independent_z"].abs() < 1e-3).all()
    assert (result.folder / "compare.md").read_text().count("outcome value") == 4
    assert "inner value" in (result.folder / "table.md").read_text()


def test_the_time_left_counts_only_what_is_left(done, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.options, self.done = options, 0
            bars.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def set_postfix_str(self, text):
            pass

        def update(self, amount):
            self.done += amount

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    runner = _Runner(small(), 0, Store(done.folder / "chunks"), True, None)
    runner.run(60, 10, False)
    work = [bar for bar in bars if "initial" in bar.options][-1]
    assert 0 < work.options["initial"] < work.options["total"]
    assert work.options["initial"] + work.done == work.options["total"]
