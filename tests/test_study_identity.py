"""A piece of a study is reused for the study it was made for, and for no other; constraints."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl.studies import Study, run_study, study_table
from irsppl.studies.identity import described
from irsppl.studies.manifest import fingerprints
from irsppl.studies.report import table_notes, table_text

from .test_studies import undrawn  # noqa: F401

ROOT = pathlib.Path(__file__).parent.parent


def tiny(**changes):
    study = Study(
        name="tiny",
        title="Two coins",
        arms="beta(1,1)x2",
        horizon=4,
        policies=("greedy",),
        penalties=("ts", "irs.ff"),
    )
    return dataclasses.replace(study, **changes)


# ------------------------------------------------------------------ identity


@pytest.mark.usefixtures("undrawn")
def test_without_a_manifest_nothing_of_another_study_is_reused(tmp_path):
    """Whoever deletes the manifest gets no old numbers: other arms, seed, constraint or policy."""
    first = run_study(tiny(), 10, tmp_path)
    manifest = first.folder / "manifest.json"
    for changes, key in (
        ({"arms": "beta(1,2)x2"}, 0),
        ({}, 1),
        ({"policies": {"greedy": "random"}, "penalties": ()}, 0),
    ):
        manifest.unlink()
        other = run_study(tiny(**changes), 10, tmp_path, key)
        # Where only the policy is another, exact bounds are still right: they steady the others.
        assert other.reused == (3 if "policies" in changes else 0), (changes, key)
        fresh = run_study(tiny(**changes), 10, tmp_path / "fresh" / str(changes) / str(key), key)
        assert other.data["regret"].values.tobytes() == fresh.data["regret"].values.tobytes()
    for changes in ({"costs": [1, 2], "budget": 4}, {"delay": 2}, {"delay": dist.Poisson(1.0)}):
        other, own = fingerprints(tiny(options=changes), 0), fingerprints(tiny(), 0)
        for part in ("policies", "penalties"):
            assert not set(other[part].values()) & set(own[part].values())
    manifest.unlink()
    again = run_study(tiny(), 10, tmp_path)  # and nothing of the first was overwritten
    assert again.computed == 0 and again.reused == first.computed
    assert again.data["regret"].values.tobytes() == first.data["regret"].values.tobytes()


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_manifest_costs_nothing(tmp_path):
    first = run_study(tiny(), 10, tmp_path)
    manifest = first.folder / "manifest.json"
    for damage in ("{", "[]", '{"study": 3}'):
        manifest.write_text(damage)
        with pytest.raises(ValueError, match="is damaged") as error:
            run_study(tiny(), 10, tmp_path)
        assert "delete" not in str(error.value) and "move this one file" in str(error.value)
    manifest.rename(tmp_path / "away")  # as the message says
    assert run_study(tiny(), 10, tmp_path).computed == 0


def test_results_of_an_older_version_are_left_alone(tmp_path):
    first = run_study(tiny(), 10, tmp_path)
    manifest = first.folder / "manifest.json"
    then = json.loads(manifest.read_text())
    del then["format"]
    manifest.write_text(json.dumps(then))
    before = {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}
    with pytest.raises(ValueError, match="another version") as error:
        run_study(tiny(), 10, tmp_path)
    assert "another folder" in str(error.value) and "delete" not in str(error.value)
    assert before == {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}


SCALE = 2.0


def _uses_a_global(key, bandit):
    return 0 * bandit.period + SCALE


def _maker(number):
    def policy(key, bandit):
        return 0 * bandit.period + number

    return policy


def test_what_a_function_does_not_say_itself_belongs_to_it(monkeypatch):
    assert described(_maker(0)) == described(_maker(0)) != described(_maker(1))
    before = described(_uses_a_global)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert described(_uses_a_global) != before
    one, two = {}, {}
    exec("def f(key, bandit): return 0", one)
    exec("def f(key, bandit): return 1", two)
    assert described(one["f"]) != described(two["f"])
    assert (
        described(dist.Poisson(4.0)) == described(dist.Poisson(4.0)) != described(dist.Poisson(5.0))
    )
    assert described(np.array([1.0, 0.5])) != described(np.array([1.0, 0.4]))
    law = dist.Categorical(probs=np.ones(3) / 3)
    before = described(law)
    assert (
        law.logits is not None and described(law) == before
    )  # what it has worked out since is no news


def test_the_same_in_every_process():
    """Hash seeds and addresses differ between processes; what a study is must not."""
    code = (
        "import jax.numpy as jnp, numpyro.distributions as dist, irsppl\n"
        "from irsppl.studies.identity import described\n"
        "two = jnp.array([0.5, 0.5])\n"
        "law = dist.MixtureSameFamily(dist.Categorical(probs=two), dist.Poisson(two))\n"
        "print(described(law), described(irsppl.Index(2)), described({'a': {1, 'x', 'y', 'z'}}), "
        "described(irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])))"
    )
    lines = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert lines[0] == lines[1] and lines[0].strip()


# ------------------------------------------------------------------ what a study may be


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/abs", "a\\b", "a\n", "\x00", ".hid", 3])
def test_names_that_leave_the_folder_are_refused(name):
    with pytest.raises(ValueError, match="name must be"):
        tiny(name=name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arms": None}, "arms must be texts"),
        ({"arms": 3}, "arms must be texts"),
        ({"arms": [None]}, "arms must look like"),
        ({"options": {"foo": 1}}, r"options must be arguments of Bandit \(delay, costs, budget"),
        ({"options": {"horizon": 3}}, "give it as horizon="),
        ({"options": 3}, "options must be a mapping"),
        ({"horizon": None}, "horizon must be a whole number"),
        ({"horizon": dist.Geometric(0.3), "horizons": (3,)}, "horizons must be empty"),
    ],
)
def test_bad_studies(changes, told):
    with pytest.raises(ValueError, match=told):
        tiny(**changes)


# ------------------------------------------------------------------ constraints


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"delay": 2}},
        {"options": {"costs": [1, 2], "budget": 5}, "horizon": None},
        {"horizon": np.array([1.0, 0.8, 0.5, 0.2])},
    ],
    ids=["delay", "budget", "horizon law"],
)
def test_a_study_under_each_constraint(changes, tmp_path):
    """Runs, resumes, and calls a bound only what is one; the numbers are those of `bound`."""
    study = tiny(**changes, policies=("irs.v-zero",), penalties=("irs.ff", "irs.v-zero"))
    late = "delay" in study.options
    if late:
        with pytest.warns(UserWarning, match="irs.v-zero is left out of the bounds"):
            result = run_study(study, 20, tmp_path, block=20)
    else:
        result = run_study(study, 20, tmp_path, block=20)
    table = study_table(result.data)
    assert table.loc["irs.ff", "role"] == "bound"
    assert table.loc["irs.v-zero", "role"] == ("policy" if late else "policy, bound")
    assert np.isnan(table.loc["irs.v-zero", "regret_bound"]) == late
    assert ("no bound here: irs.v-zero" in table_notes(table, result.data)) == late
    assert np.isfinite(table["regret"].dropna()).all() and "policy" in table_text(table)
    names = result.data["penalty"].values.tolist()
    bounds = irsppl.bound(study.bandit(), names, num_samples=20)
    for name in names:
        cell = result.data.sel(penalty=name, horizon=study.periods)
        assert cell["bound"].item() == pytest.approx(bounds[name].value, rel=1e-6)
    assert (result.folder / "figure.png").stat().st_size > 1000


def test_a_share_above_one_is_explained(tmp_path):
    result = run_study(tiny(), 10, tmp_path)
    data = result.data.copy(deep=True)
    for name in ("regret", "mean_regret"):
        data[name] = data[name] * 0 + 0.1
    table = study_table(data)
    assert table["bound_improvement"].max() > 1
    assert "above 100 % because" in table_notes(table, data)
    assert "above 100 %" not in table_notes(study_table(result.data), result.data) or (
        study_table(result.data)["bound_improvement"].max() > 1
    )
