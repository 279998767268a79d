"""`irsppl experiment`: the same experiment from the command line, and its report."""

import csv
import html.parser
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import irsppl
from irsppl.cli import main


def run(capsys, *arguments):
    """(exit code, standard output, standard error)"""
    try:
        code = main([str(a) for a in ("experiment", *arguments)])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def as_json(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0 and out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def file(tmp_path, capsys):
    path = tmp_path / "shop.db"
    arms = ["--arms", "beta(1,1)x3", "--horizon", 20, "--labels", "a,b,c"]
    made = as_json(capsys, "create", path, *arms, "--policy", "ts", "--seed", 1, "--floor", 0.1)
    assert (made["horizon"], made["policy"], made["seed"], made["floor"]) == (20, "ts", 1, 0.1)
    return path


@pytest.mark.parametrize(
    "arms, wanted",
    [
        ("exponential(2.5,3)", stats.invgamma(2.5, scale=3).std()),
        ("exponential(1.5,3)", None),  # infinite: not in JSON
        ("nig(0,2,1.05,3)", stats.t(2.1, scale=np.sqrt(3 / 2.1)).std()),
    ],
)
def test_the_standard_deviation_of_a_heavy_tail(capsys, tmp_path, arms, wanted):
    path = tmp_path / "x.db"
    made = as_json(capsys, "create", path, "--arms", f"{arms}x2", "--horizon", 5)
    assert made["arms"][0]["sd"] == (wanted and pytest.approx(wanted, rel=1e-5))
    if wanted is None:
        assert irsppl.Experiment.open(path).arms()[0]["sd"] == np.inf
        assert "inf" in run(capsys, "status", path)[1]


def test_from_nothing_to_a_report(capsys, file, tmp_path):
    one = as_json(capsys, "ask", file, "--request", "visit")
    assert set(one) == {"id", "arm", "label", "propensity", "period"}
    assert as_json(capsys, "ask", file, "--request", "visit") == one
    batch = as_json(capsys, "ask", file, "--count", 3)["decisions"]
    assert [d["period"] for d in batch] == [1, 2, 3]
    assert as_json(capsys, "tell", file, one["id"], 1)["pending"] == 3
    assert as_json(capsys, "status", file)["told"] == 1
    assert as_json(capsys, "explain", file, one["id"])["replayed"]
    arms = as_json(capsys, "arms", file, "--add", "beta(2,1)", "--label", "d", "--retire", "a")
    assert [(row["label"], row["open"]) for row in arms["arms"]] == [
        ("a", False), ("b", True), ("c", True), ("d", True)
    ]  # fmt: skip
    assert as_json(capsys, "expire", file, "--after", 0)["expired"] == [d["id"] for d in batch]
    rows = as_json(capsys, "log", file)["log"]
    assert [row["reward"] for row in rows] == [1, None, None, None]
    as_json(capsys, "log", file, "--out", tmp_path / "log.csv")
    with open(tmp_path / "log.csv") as table:
        assert len(list(csv.DictReader(table))) == 4
    as_json(capsys, "log", file, "--out", tmp_path / "log.parquet")
    assert pd.read_parquet(tmp_path / "log.parquet")["reward"].count() == 1
    advice = as_json(capsys, "advise", file, "--samples", 100)
    assert {"loss", "loss_95", "bound", "value", "text", "arms"} <= set(advice)
    page = tmp_path / "now.html"
    assert as_json(capsys, "report", file, page, "--samples", 100) == {"out": str(page)}
    assert page.read_text().startswith("<!doctype html>")
    told = as_json(capsys, "tell", file, one["id"], 0, "--correct")
    assert (told["reward"], told["pending"]) == (0, 0)
    for command in ("status", "arms", "log"):
        code, out, _ = run(capsys, command, file)
        assert code == 0 and "b" in out
    with irsppl.Experiment.open(file) as experiment:
        assert experiment.status()["period"] == 4


def test_bad_input_is_one_line(capsys, file, tmp_path):
    for arguments, told in (
        (("ask", tmp_path / "no.db"), "no experiment"),
        (("tell", file, "x-1", 1), "id must be"),
        (("ask", file, "--count", 21), "at most 20"),
        (("create", file, "--arms", "beta(1,1)", "--horizon", 3), "already holds"),
        (("create", tmp_path / "x.db", "--arms", "beta(1,1)"), "--horizon"),
        (
            (
                "create",
                tmp_path / "y.db",
                "--arms",
                "beta(1,1)x2",
                "--horizon",
                3,
                "--labels",
                "a,",
            ),
            "got ''",
        ),
        (("arms", file, "--add", "beta(1,1)"), "--label"),
        (("arms", file, "--label", "new"), "--add"),
        (("arms", file, "--add", "beta(1,1)", "--label", "new", "--retire", "x"), "unknown label"),
        (("log", file, "--out", "x.doc"), ".csv"),
        (("explain", file, "x"), "id must be"),
        (("frobnicate", file), "invalid choice"),
    ):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and out == "" and err.count("\n") == 1 and told in err
    assert len(as_json(capsys, "arms", file)["arms"]) == 3  # what could not be done whole was not


def test_a_model_file_that_would_change_nothing_is_refused(capsys, file, tmp_path):
    """Arms that are kept as numbers, also those of a model file that is read as conjugate."""
    conjugate = tmp_path / "b.db"
    path = tmp_path / "arm.py"
    path.write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "num_arms = 2\n"
        "def arm(reward=None):\n"
        "    p = numpyro.sample('p', dist.Beta(1, 1))\n"
        "    numpyro.sample('reward', dist.Bernoulli(p), obs=reward)\n"
    )
    as_json(capsys, "create", conjugate, path, "--horizon", 5)
    rest = {"tell": ["x", 1], "explain": ["x"], "report": ["r"], "expire": ["--after", 0]}
    actions = ("ask", "tell", "status", "explain", "advise", "log", "report", "expire", "arms")
    for where, command in ((conjugate, "status"), *((file, action) for action in actions)):
        for option in (["--model", path], ["--accept-changed-model"]):
            code, out, err = run(capsys, command, where, *rest.get(command, []), *option)
            assert code == 2 and out == "" and "would change nothing" in err
    assert main(["serve", str(file), "--model", str(path)]) == 2
    with pytest.raises(ValueError, match=r"model='x\.py' would change nothing"):
        irsppl.Experiment.open(file, model="x.py")


def test_a_model_goes_by_its_name_again(capsys, tmp_path):
    path = tmp_path / "x.db"
    as_json(capsys, "create", path, "conversion", "--horizon", 5, "--policy", "greedy")
    assert as_json(capsys, "ask", path, "--model", "conversion")["period"] == 0


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in (
            "meta",
            "link",
            "br",
            "polyline",
            "path",
            "circle",
        ) and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("polyline", "path", "circle"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_report_stands_alone(tmp_path):
    """No script, no outside address, labels as text, the experiment's numbers."""
    labels = ["<script>alert(1)</script>", "b & c", '"x" onload=1']
    belief = irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5])
    bandit = irsppl.Bandit(belief, 20, labels=labels)
    with irsppl.Experiment.create(tmp_path / "shop.db", bandit, "ts") as experiment:
        experiment.report(tmp_path / "empty.html", 100)
        rng = np.random.default_rng(0)
        for d in experiment.ask(15)[:12]:
            experiment.tell(d.id, int(rng.random() < 0.5))
        experiment.report(tmp_path / "now.html", 100)
        status = experiment.status()
        experiment.ask(5)
        experiment.report(tmp_path / "end.html", 100)
    for name in ("empty", "now", "end"):
        text = (tmp_path / f"{name}.html").read_text()
        reader = Reader()
        reader.feed(text)
        assert reader.open == [] and "script" not in {tag for tag, _ in reader.tags}
        assert not re.search(r"https?://|src=|@import|url\(", text)
        shown = "".join(reader.text)
        assert all(label in shown for label in labels)
        assert not any(key.startswith("on") for _, attrs in reader.tags for key in attrs)
    shown = (tmp_path / "now.html").read_text()
    assert "15 of 20" in shown and f"{status['reward']:.6g}" in shown and "95 %" in shown
    assert "Nothing remains" in (tmp_path / "end.html").read_text()


def test_intervals_of_a_report_are_the_beliefs_to_the_end(tmp_path):
    """Skew beliefs, one arm retired, then all played: ends of 95 % intervals by SciPy, to four
    standard errors of 20,000 draws (false alarms below 1e-3 for all twelve)."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1] * 3, [20] * 3), 40, labels=["a", "b", "c"])

    def check(experiment, page):
        experiment.report(page, 100)
        for row, arm in zip(experiment.arms(), experiment.believed(), strict=True):
            law = stats.beta(1 + row["reward"], 20 + row["told"] - row["reward"])
            for level, end in zip((0.025, 0.975), arm.interval, strict=True):
                assert abs(law.cdf(end) - level) < 4 * (0.025 * 0.975 / 20_000) ** 0.5
            assert f"{arm.interval[0]:.4g} to {arm.interval[1]:.4g}" in page.read_text()
        assert sum(arm.best for arm in experiment.believed()) == pytest.approx(1)

    with irsppl.Experiment.create(tmp_path / "shop.db", bandit, "ts") as experiment:
        for number in range(10):
            experiment.tell(experiment.ask().id, int(number == 7))
        experiment.retire_arm("b")
        check(experiment, tmp_path / "now.html")
        assert experiment.believed()[1].best == 0
        while experiment.remaining:
            experiment.tell(experiment.ask().id, 0)
        check(experiment, tmp_path / "end.html")
