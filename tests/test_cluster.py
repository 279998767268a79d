"""Two worker processes give the numbers of one, byte for byte, whoever is killed on the way."""

import os
import pathlib
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl import _cluster
from irsppl.cli import main
from irsppl.studies import Study, open_study, run_study
from tests.test_studies import same, undrawn  # noqa: F401

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    options = {"memory_limit": 0, "dashboard_address": ":0", "env": _cluster.ONE_XLA_THREAD}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def swing(key, bandit):
    """Traced, so that a piece is an XLA program."""
    return (bandit.period + (jax.random.uniform(key) < 0.5)) % 2


def slow(key, bandit):
    """Not traceable: played in plain Python, some milliseconds a decision."""
    time.sleep(0.004)
    return int(np.random.default_rng(int(bandit.period)).integers(2))


def study(**changes):
    given = {
        "name": "two",
        "title": "Two arms",
        "arms": "beta(1,1)x2",
        "horizon": 4,
        "policies": {"ts": "ts", "swing": swing},
        "penalties": ("irs.ff", "irs.v-zero"),
        "replications": 60,
    }
    return Study(**(given | changes))


def gaussian():
    return irsppl.Bandit(irsppl.NormalNormal([0.0, 0.3], [1.0, 1.0], [1.0, 2.0]), 4)


def test_simulate_and_bound_are_the_same_on_a_cluster(client):
    policies = {"ts": "ts", "swing": swing}
    options = {"num_replications": 70, "per_period": True}
    here = irsppl.simulate(gaussian(), policies, **options)
    there = irsppl.simulate(gaussian(), policies, **options, client=client)
    assert "period_regret" in here and "steadied_value" in here
    same(here, there)
    one, two = (
        irsppl.bound(gaussian(), ["irs.v-zero", "irs.ff"], num_samples=70, client=c)
        for c in (None, client)
    )
    assert one["irs.v-zero"].samples.tobytes() == two["irs.v-zero"].samples.tobytes()
    assert one["irs.v-zero"].value == two["irs.v-zero"].value and one.picked == two.picked


def test_workers_take_the_clients_precision(client):
    with jax.enable_x64(True):
        data = [irsppl.simulate(gaussian(), "greedy", 0, 20, client=c) for c in (None, client)]
    same(*data)
    narrow = irsppl.simulate(gaussian(), "greedy", 0, 20)
    assert (data[0]["value"].values != narrow["value"].values).any()


@pytest.mark.usefixtures("undrawn")
def test_a_study_on_a_cluster_resumes_and_is_the_same(client, tmp_path):
    here = run_study(study(), out=tmp_path / "here", block=10)
    fewer = run_study(study(), 20, tmp_path / "there", block=10, client=client)
    there = run_study(study(), 60, tmp_path / "there", client=client)
    assert there.reused == fewer.computed and there.computed == here.computed - fewer.computed
    same(here.data, there.data)
    lazy = open_study(there.folder)
    assert lazy["regret"].chunks is not None
    np.testing.assert_array_equal(lazy["regret"], here.data["regret"])
    assert lazy["policy"].values.tolist() == ["ts", "swing"]


@pytest.mark.usefixtures("undrawn")
def test_killed_workers_cost_their_piece_only(client, tmp_path):
    """One killed by -9, then both at once, so that nobody is left who has what pieces share."""
    plain = study(policies={"slow": slow}, penalties=("irs.ff",), replications=160)
    with pytest.warns(UserWarning, match="plain Python"):
        undisturbed = run_study(plain, out=tmp_path / "a", block=10)
    folder = tmp_path / "b" / "two" / "chunks"
    files = []

    def kill_workers():
        for wanted, number in ((3, 1), (8, 2)):
            while len(list(folder.glob("policy-*.chunk"))) < wanted:
                time.sleep(0.01)
            for pid in list(client.run(os.getpid).values())[:number]:
                os.kill(pid, signal.SIGKILL)
            files.append({p: p.stat().st_mtime_ns for p in folder.glob("*.chunk")})

    killer = threading.Thread(target=kill_workers)
    killer.start()
    there = run_study(plain, out=tmp_path / "b", block=10, client=client)
    killer.join()
    assert len(files) == 2 and all(len(f) < undisturbed.computed for f in files)
    now = {p: p.stat().st_mtime_ns for p in folder.glob("*.chunk")}
    assert files[0].items() <= files[1].items() <= now.items(), "a finished piece was made again"
    assert there.computed == undisturbed.computed
    same(undisturbed.data, there.data)


class Draw:
    """A reward of an arm, drawn by a worker."""

    def __init__(self, arm):
        self.arm = arm

    def __call__(self, number, threads):
        from numpyro import handlers

        with handlers.seed(rng_seed=number):
            return float(handlers.trace(self.arm).get_trace()["reward"]["value"])


def test_arms_of_a_model_file_reach_the_workers(client):
    """A module that only the client has loaded: its functions travel as they are."""
    from irsppl.models import load_model_file

    path = pathlib.Path(__file__).parent.parent / "models" / "conversion.py"
    draw = Draw(load_model_file(path).functions[0])
    there = dict(_cluster.on_cluster(client, draw, [1, 2, 3], str))
    assert there == {number: draw(number, 1) for number in (1, 2, 3)}


def test_what_goes_wrong_is_told_as_it_is_here(client, tmp_path, monkeypatch):
    def off(key, bandit):
        return jnp.asarray(7)

    with pytest.raises(ValueError, match="7"):
        irsppl.simulate(gaussian(), {"off": off}, 0, 20, client=client)
    here = _cluster._versions()
    monkeypatch.setattr(_cluster, "_versions", lambda: here | {"numba": "0.1"})
    with pytest.raises(ValueError, match=r"other versions.*numba .* \(the client has 0\.1\)"):
        irsppl.simulate(gaussian(), "greedy", 0, 20, client=client)
    for call in (irsppl.simulate, irsppl.bound):
        with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
            call(gaussian(), "ts", client="tcp://somewhere:1")
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
        run_study(study(), out=tmp_path, client=3)


def test_the_command_line_takes_an_address(client, tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from irsppl.studies import Study\n"
        "def own(key, bandit):\n    return bandit.period % 2\n"
        "study = Study(name='mine', title='t', arms='beta(1,1)x2', horizon=4,\n"
        "              policies={'own': own}, penalties=('irs.ff',))\n"
    )
    arguments = ["study", str(tmp_path / "mine.py"), "--replications", "20", "--json"]
    arguments += ["--out", str(tmp_path)]
    assert main([*arguments, "--dask", client.scheduler.address]) == 0
    assert '"pieces_computed"' in capsys.readouterr().out

    def refuse(*_, **__):
        raise OSError("nobody answers")

    monkeypatch.setattr(distributed, "Client", refuse)
    assert main([*arguments, "--dask", "nowhere"]) == 2
    assert "--dask must be local or the address" in capsys.readouterr().err
