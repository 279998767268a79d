"""The command line: one JSON object, one line per error, and the numbers of the Python API."""

import json
import pathlib
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest
import xarray as xr

import irsppl
from irsppl.cli import main
from irsppl.studies import STUDIES

ROOT = pathlib.Path(__file__).parent.parent
GAUSSIAN = ["--arms", "normal(0,1,noise=1)", "--arms", "normal(0.5,1,noise=2)", "--horizon", "5"]
ALIKE = ("--arms", "beta(1,1)x2", "--horizon", 2)


def gaussian():
    return irsppl.Bandit(irsppl.NormalNormal([0.0, 0.5], [1.0, 1.0], [1.0, 2.0]), 5)


def run(capsys, *arguments):
    """(exit code, standard output, standard error)"""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def as_json(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0 and out.count("\n") == 1
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_bound_agrees_with_python(capsys):
    names = ["ts", "irs.v-zero", "irs.ff"]
    options = [part for name in names for part in ("--penalty", name)]
    told = as_json(capsys, "bound", *GAUSSIAN, *options, "--samples", 60, "--seed", 3)
    bounds = irsppl.bound(gaussian(), names, key=3, num_samples=60)
    assert list(told["bounds"]) == names and told["tightest"] == bounds.tightest.penalty
    for name, bound in bounds.items():
        shown = told["bounds"][name]
        assert shown["value"] == bound.value and shown["stderr"] == bound.stderr
        assert shown["regret_bound"] == bound.regret_bound and shown["exact"] == bound.exact
    assert (told["horizon"], told["num_arms"], told["seed"]) == (5, 2, 3)


def test_constraints_agree_with_python(capsys):
    arms = ["--arms", "beta(1,1)x2"]
    late = as_json(capsys, "bound", *arms, "--horizon", 9, "--delay", 3, "--penalty", "irs.ff")
    belief = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
    expected = irsppl.bound(irsppl.Bandit(belief, 9, delay=3), "irs.ff").value
    assert late["bounds"]["irs.ff"]["value"] == expected
    each = as_json(
        capsys, "bound", *arms, "--horizon", 9, "--delay", "3,inf", "--penalty", "irs.ff"
    )
    assert each["bounds"]["irs.ff"]["value"] < expected  # less is ever seen
    options = ["--costs", "1,2", "--budget", 5, "--policy", "random", "--replications", 20]
    dear = as_json(capsys, "simulate", *arms, *options)
    pulls = dear["policies"]["random"]["pulls"]
    assert pulls[0] + 2 * pulls[1] <= 5
    code, _, err = run(capsys, "simulate", *arms, "--costs", "1,0", "--budget", 5)
    assert code == 2 and "costs must be positive" in err and err.count("\n") == 1


def test_simulate_agrees_with_python(capsys, tmp_path):
    told = as_json(
        capsys, "simulate", *GAUSSIAN, "--policy", "ts", "--policy", "irs.fh", "--replications", 50,
        "--seed", 2, "--per-period", "--out", tmp_path / "data.nc",
    )  # fmt: skip
    data = irsppl.simulate(
        gaussian(), ["ts", "irs.fh"], key=2, num_replications=50, per_period=True
    )
    table = irsppl.summary(data)
    for name in ("ts", "irs.fh"):
        shown = told["policies"][name]
        assert shown["regret"] == table.loc[name, "regret"]
        assert shown["value_stderr"] == table.loc[name, "value s.e."]
        assert shown["period_regret"] == data["period_regret"].sel(policy=name).values.tolist()
        assert sum(shown["pulls"]) == pytest.approx(5)
    with xr.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as saved:
        assert (saved["regret"].values == data["regret"].values).all()


def test_a_fixed_truth(capsys):
    told = as_json(
        capsys, "simulate", *GAUSSIAN, "--policy", "greedy", "--truth", "-1,2", "--replications", 30
    )
    assert told["truth"] == [-1, 2]
    shown = told["policies"]["greedy"]
    assert shown["value"] + shown["regret"] == pytest.approx(10, rel=1e-5)


def test_small_negative_numbers_are_no_options(capsys, tmp_path):
    """As Python and a CSV file write them."""
    path = tmp_path / "x.db"
    as_json(capsys, "experiment", "create", path, "--arms", "normal(0,1,1)", "--horizon", 3)
    for reward in (-1e-05, -2.5e-20, -0.5):
        id = as_json(capsys, "experiment", "ask", path)["id"]
        assert as_json(capsys, "experiment", "tell", path, id, reward)["reward"] == reward


def test_numbers_that_json_lacks_become_null(capsys):
    told = as_json(capsys, "simulate", *GAUSSIAN, "--replications", 1)
    assert told["policies"]["ts"]["regret_stderr"] is None


def test_tables_for_people(capsys, tmp_path):
    code, out, _ = run(
        capsys, "bound", *GAUSSIAN, "--penalty", "irs.ff", "--out", tmp_path / "bound.json"
    )
    assert code == 0 and "regret at least" in out and "exact" in out
    assert json.loads((tmp_path / "bound.json").read_text())["bounds"]["irs.ff"]["exact"]
    two = "--samples", 2, "--seed", 1  # which happen to be alike: no error, and yet sampled
    code, out, _ = run(capsys, "bound", *ALIKE, "--penalty", "zero", *two)
    assert code == 0 and "2.0000 (0.0000)" in out and "exact" not in out
    code, out, _ = run(capsys, "simulate", *GAUSSIAN, "--replications", 20, "--per-period")
    assert code == 0 and "mean pulls" in out and "mean regret of each period" in out
    code, out, _ = run(capsys, "studies")
    assert code == 0 and all(name in out for name in STUDIES)
    assert set(as_json(capsys, "studies")["studies"]) == set(STUDIES)


STUDY = """
from irsppl.studies import Study
study = Study(name="tiny", title="Tiny", arms="normal(0,1,noise=1)x2", horizon=5,
              horizons=(3,), policies=("ts", "greedy"), penalties=("ts", "irs.ff"),
              replications=20)
"""


def test_a_study_from_a_file(capsys, tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(STUDY)
    told = as_json(capsys, "study", path, "--out", tmp_path)
    assert told["replications"] == 20 and told["pieces_computed"] > 0
    assert told["table"]["greedy"]["regret"] > 0
    assert told["table"]["irs.ff"]["regret"] is None
    for file in told["files"]:
        assert pathlib.Path(file).is_file()
    code, out, _ = run(capsys, "study", path, "--out", tmp_path, "--replications", 20)
    assert code == 0 and "regret bound" in out and "figure.png" in out
    code, _, err = run(capsys, "study", path, "--out", tmp_path, "--seed", 1)
    assert code == 2 and "key was 0 and is now 1" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bound", "--horizon", "5"], "either --arms"),
        (["bound", "--arms", "beta(1,1)"], "--horizon"),
        (["bound", "--arms", "beta(1,1)", "--horizon", "0"], "horizon must be at least 1"),
        (["bound", "--arms", "beta(1,1)", "--horizon", "few"], "invalid int value: 'few'"),
        (["bound", "--arms", "coin(1)", "--horizon", "5"], "unknown family of arms 'coin'"),
        (["bound", "--arms", "beta(1,1)", "--horizon", "5", "--penalty", "x"], "unknown penalty"),
        (["bound", *GAUSSIAN, "--penalty", "ideal"], "finitely many"),
        (["bound", "nowhere.py", "--horizon", "5"], "no model file nowhere.py"),
        (["simulate", *GAUSSIAN, "--policy", "x"], "unknown policy 'x'"),
        (["simulate", *GAUSSIAN, "--truth", "1,a"], "--truth must be numbers"),
        (["simulate", *GAUSSIAN, "--truth", "1"], "means must have 2 entries"),
        (["simulate", *GAUSSIAN, "--truth", "1,,2"], "--truth must be numbers"),
        (["bound", *GAUSSIAN, "--costs", "1,2,", "--budget", "9"], "--costs must be numbers"),
        (["bound", *GAUSSIAN, "--delay", ""], "--delay must be numbers"),
        (["bound", *GAUSSIAN, "--out", ""], "--out"),
        (["simulate", *GAUSSIAN, "--replications", "0"], "num_replications must be at least 1"),
        (["study", "nothing"], "unknown study 'nothing'; known: bernoulli_10"),
        (["study", "quickstart", "--compare"], "no printed figures"),
        (["study", "nowhere.py"], "no study file nowhere.py"),
        (["juggle"], "invalid choice: 'juggle'"),
        ([], "required: COMMAND"),
    ],
)
def test_errors_take_one_line_and_code_2(capsys, arguments, told):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == ""
    assert told in err and err.count("\n") == 1 and err.startswith("irsppl")


def test_help_shows_examples(capsys):
    for arguments in (["--help"], ["bound", "--help"], ["study", "--help"]):
        code, out, _ = run(capsys, *arguments)
        assert code == 0 and "irsppl bound    --arms 'beta(3,1)'" in out


def test_a_model_file(capsys, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "num_arms = 3\n"
        "def arm(reward=None):\n"
        "    p = numpyro.sample('p', dist.Beta(1, 1))\n"
        "    numpyro.sample('reward', dist.Bernoulli(p), obs=reward)\n"
    )
    code, out, err = run(capsys, "bound", path, "--horizon", 6, "--penalty", "irs.ff", "--json")
    if not hasattr(irsppl, "from_numpyro"):
        assert code == 2 and "cannot read NumPyro models" in err and err.count("\n") == 1
        return
    told = json.loads(out)
    known = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3), 6)
    assert told["num_arms"] == 3
    assert told["bounds"]["irs.ff"]["value"] == pytest.approx(irsppl.bound(known, "irs.ff").value)


# A shell lets jobs in the background ignore Ctrl-C, and so do all that they start, this test's
# process among them. (Not by preexec_fn: to fork a process that runs JAX may deadlock.)
LISTENING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_an_interrupted_study_says_so_and_ends_with_130(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(STUDY)
    command = [sys.executable, "-c", LISTENING, "-m", "irsppl", "study", str(path)]
    command += ["--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--replications", "1000000"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    chunks = tmp_path / "tiny" / "chunks"
    while process.poll() is None and not list(chunks.glob("policy-*.chunk")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run it again to go on" in err and "Traceback" not in err


# ------------------------------------------------------------------ files that misbehave, lost work

NOISY = """
import os, sys
import numpyro, numpyro.distributions as dist
print("loading")
os.write(1, b"from below\\n")
num_arms = 2
def arm(reward=None):
    print("called")
    p = numpyro.sample("p", dist.Beta(1, 1))
    numpyro.sample("reward", dist.Bernoulli(p), obs=reward)
"""


def test_as_a_module_json_is_all_of_standard_output(tmp_path):
    """Whatever a model file prints."""
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    command = [sys.executable, "-m", "irsppl", "bound", path, "--horizon", "6", "--json"]
    done = subprocess.run(
        [*map(str, command), "--penalty", "ts"], capture_output=True, text=True, cwd=ROOT
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["num_arms"] == 2 and told["bounds"]["ts"]["exact"] is True
    for word in ("loading", "from below", "called"):
        assert word in done.stderr


def test_printing_in_process_goes_to_standard_error(capsys, tmp_path):
    path = tmp_path / "noisy.py"
    path.write_text(NOISY.replace("os.write", "print"))
    told = as_json(capsys, "bound", path, "--horizon", 6, "--penalty", "ts")
    assert told["num_arms"] == 2


@pytest.mark.parametrize("command", [["bound"], ["simulate"], ["study"]])
@pytest.mark.parametrize("code", ["7", "0", "", "'no'"])
def test_a_file_that_ends_the_program_is_an_error(capsys, tmp_path, command, code):
    path = tmp_path / "ends.py"
    path.write_text(f"import sys\nsys.exit({code})\n")
    options = ["--out", tmp_path] if command == ["study"] else ["--horizon", 6]
    result, out, err = run(capsys, *command, path, *options)
    assert result == 2 and out == "" and err.count("\n") == 1
    assert "ends.py" in err and ("sys.exit" in err or "SystemExit" in err)


@pytest.mark.parametrize("command", ["bound", "simulate"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    capsys, tmp_path, command, monkeypatch
):
    for name in ("bound", "simulate"):
        module = import_module("irsppl.simulation" if name == "simulate" else "irsppl.bounds")
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("worked before looking"))
    (tmp_path / "file").write_text("")
    for out in ("/nowhere/x.nc", tmp_path, tmp_path / "file" / "x.nc"):
        code, _, err = run(capsys, command, *GAUSSIAN, "--out", out)
        assert code == 2 and "--out" in err and err.count("\n") == 1
    code, _, err = run(capsys, "study", "quickstart", "--out", tmp_path / "file")
    assert code == 2 and err.count("\n") == 1


def test_results_that_cannot_be_written_in_the_end_are_kept(capsys, tmp_path, monkeypatch):
    """A disk that is full, or a folder that is gone, when all the work is done."""
    from irsppl.studies import report

    write = report.write_netcdf

    def fails(data, path):
        if path.name == "x.nc":
            raise OSError(28, "No space left on device")
        write(data, path)

    monkeypatch.setattr(report, "write_netcdf", fails)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    options = ["--policy", "greedy", "--replications", 10, "--out", tmp_path / "sub" / "x.nc"]
    code, out, err = run(capsys, "simulate", *GAUSSIAN, *options)
    assert code == 1 and "greedy" in out and "No space left" in err
    (kept,) = tmp_path.glob("irsppl-kept-*")
    assert str(kept) in err
    with xr.open_dataset(kept, engine="h5netcdf") as saved:
        assert saved.sizes["replication"] == 10


def test_a_study_that_cannot_write_its_table_keeps_its_pieces(capsys, tmp_path, monkeypatch):
    from irsppl.studies import report

    path = tmp_path / "tiny.py"
    path.write_text(STUDY.replace('"irs.ff"', '"ts"').replace('("ts", "ts")', '("ts",)'))
    monkeypatch.setattr(
        report, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    code, _, err = run(capsys, "study", path, "--out", tmp_path)
    assert code == 2 and "Nothing is lost" in err and "No space left" in err
    monkeypatch.undo()
    told = as_json(capsys, "study", path, "--out", tmp_path)
    assert told["pieces_computed"] == 0 and told["pieces_reused"] > 0


# ------------------------------------------------------------------ progress


def test_lines_now_and_then_off_a_terminal(capsys, monkeypatch):
    from irsppl import _progress

    clock = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    for show, expected in ((None, 4), (False, 0)):
        with _progress.Progress(1000, "ts, opt", "rep", show, initial=200) as told:
            for _ in range(80):  # 8 s of work in each hundredth: a line for every tenth
                clock[0] += 4.0
                told.update(10)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) >= expected and (expected or not lines)
        if lines:
            assert lines[0].startswith("irsppl: ts, opt: 2") and "left" in lines[0]
            assert "of 1,000 reps" in lines[0] and len(lines) <= 12
    with _progress.Progress(100, "quick", "rep") as told:
        for _ in range(100):
            clock[0] += 0.05
            told.update(1)
    assert capsys.readouterr().err == ""  # over before anybody wonders


def test_a_long_command_says_how_far_it_is(capsys, monkeypatch):
    from irsppl import _progress

    monkeypatch.setattr(_progress, "_SECONDS", 0.0)
    code, out, err = run(
        capsys, "simulate", *GAUSSIAN, "--policy", "greedy", "--replications", 5000, "--json"
    )
    assert code == 0 and json.loads(out) and "irsppl: greedy: " in err and "left" in err
    irsppl.simulate(gaussian(), "greedy", num_replications=5000, progress=False)
    assert capsys.readouterr().err == ""


def test_only_the_calling_thread_runs_xla(monkeypatch):
    """Other threads have kernels draw: two XLA programs with loops at once can wait for ever."""
    import threading

    from irsppl import futures

    module = import_module("irsppl.simulation")
    drawn, played = set(), set()
    draw, account = futures._draw, module._account
    monkeypatch.setattr(
        futures, "_draw", lambda *a: (drawn.add(threading.get_ident()), draw(*a))[1]
    )
    monkeypatch.setattr(
        module, "_account", lambda *a: (played.add(threading.get_ident()), account(*a))[1]
    )
    here = threading.get_ident()
    irsppl.simulate(gaussian(), ["greedy"], num_replications=50, workers=2)
    assert not drawn and played and here not in played
    played.clear()
    unknown = irsppl.NormalInverseGamma([0.0, 0.5], [1.0, 1.0], [3.0, 3.0], [1.0, 1.0])
    irsppl.simulate(irsppl.Bandit(unknown, 4), ["greedy"], num_replications=50, workers=2)
    assert drawn == played == {here}


def test_an_interruption_waits_for_no_thread(monkeypatch):
    """Whatever the other threads do meanwhile, the caller has its exception at once."""
    import threading

    from irsppl._workers import run_chunks

    release = threading.Event()

    def work(futures, start, stop):
        if start == 0:
            release.wait(60)
            return None
        raise KeyboardInterrupt

    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_chunks(lambda *c: None, work, [(0, 1, 1), (1, 2, 1)], False, "", 2)
        assert time.monotonic() - begin < 30
    finally:
        release.set()


def test_models_of_the_zoo_go_by_their_names(capsys):
    code, out, _ = run(capsys, "models", "--json")
    told = json.loads(out)
    assert code == 0 and {"revenue", "conversion"} <= set(told["models"])
    assert "quickstart" in told["examples"]
    assert all(pathlib.Path(m["file"]).is_file() and m["what"] for m in told["models"].values())
    code, out, _ = run(capsys, "models", "revenue")
    assert code == 0 and "def " in out and "numpyro" in out
    code, _, err = run(capsys, "bound", "revenu", "--horizon", 5)
    assert code == 2 and "unknown model 'revenu'" in err and "revenue" in err
    code, _, err = run(capsys, "bound", "models/revenu.py", "--horizon", 5)
    assert code == 2 and "there is no model file" in err
