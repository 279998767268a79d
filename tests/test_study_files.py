"""Studies as data: files, own policies, beliefs for arms, and what is refused before any work."""

import json

import numpy as np
import pytest

import irsppl
from irsppl.studies import find_study, run_study
from irsppl.studies.named import _existing

from .test_studies import small

STUDY_FILE = """
from irsppl.studies import Study

def first(key, bandit):
    return 0 * bandit.period

study = Study(
    name="own",
    title="My own",
    arms=["normal(0,1,noise=1)x2"],
    horizon=4,
    policies={"first": first, "mine": "ts"},
    penalties=["ts"],
    options={"labels": ["left", "right"]},
)
"""


def test_a_study_file_with_an_own_policy(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(STUDY_FILE)
    result = run_study(path, 10, tmp_path)
    assert result.data["policy"].values.tolist() == ["first", "mine"]
    assert result.data["arm"].values.tolist() == ["left", "right"]
    pulls = result.data["pulls"].sel(policy="first", horizon=4).values
    np.testing.assert_array_equal(pulls, [4, 0])
    # The text of a function is part of what a study is.
    path.write_text(STUDY_FILE.replace("0 * bandit", "1 + 0 * bandit"))
    with pytest.raises(ValueError, match=r"study\.policies\.first"):
        run_study(path, 10, tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("study = 3", "must define study"),
        ("import nothing_of_this_name", "could not be run: ModuleNotFoundError"),
    ],
)
def test_bad_study_files(tmp_path, text, told):
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        find_study(path)
    with pytest.raises(ValueError, match="no study file"):
        find_study(tmp_path / "missing.py")
    with pytest.raises(ValueError, match="known: bernoulli_10"):
        find_study("bernouli")


def test_bad_input_is_refused_before_any_work(tmp_path):
    for changes, told in (
        ({"policies": ("ts", "opt")}, "finitely many"),
        ({"policies": ("tss",)}, "unknown policy 'tss'"),
        ({"penalties": ("nope",)}, "unknown penalty"),
    ):
        with pytest.raises(ValueError, match=told):
            run_study(small(**changes), out=tmp_path)
    with pytest.raises(ValueError, match="replications must be at least 2"):
        run_study(small(), 1, out=tmp_path)
    with pytest.raises(ValueError, match="no printed figures"):
        run_study(small(), out=tmp_path, compare=True)
    with pytest.raises(ValueError, match="names a folder"):
        small(name="../up")
    assert not list(tmp_path.iterdir())


def test_what_this_version_lacks_is_left_out_visibly():
    study = _existing(small(policies=("ts", "from-the-future"), penalties=("ts", "later")))
    assert study.policies == ("ts",) and study.penalties == ("ts",)
    assert study.left_out == ("from-the-future", "later")


def test_a_belief_can_stand_for_the_arms(tmp_path):
    study = small(arms=irsppl.NormalNormal([0.0, 0.2], [1.0, 1.0], [1.0, 2.0]), horizons=())
    result = run_study(study, 10, tmp_path)
    changed = small(arms=irsppl.NormalNormal([0.0, 0.3], [1.0, 1.0], [1.0, 2.0]), horizons=())
    with pytest.raises(ValueError, match=r"study\.arms"):
        run_study(changed, 10, tmp_path)
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["irsppl"] == irsppl.__version__ and manifest["key"] == 0


def test_a_benchmark_without_closed_form_is_sampled(tmp_path):
    study = small(
        arms=irsppl.DirichletCategorical([[1.0, 2, 1], [2, 1, 1]], [0, 0.5, 2]),
        horizons=(),
        policies=("greedy",),
        penalties=("irs.fh", "ideal"),
    )
    result = run_study(study, 30, tmp_path, block=15)
    bounds = irsppl.bound(study.bandit(), ["irs.fh", "ideal"], num_samples=30)
    for name, bound in bounds.items():
        cell = result.data.sel(penalty=name, horizon=6)
        assert cell["bound"].item() == pytest.approx(bound.value, rel=1e-12)
        assert cell["regret_bound"].item() == pytest.approx(bound.regret_bound, rel=1e-9)
