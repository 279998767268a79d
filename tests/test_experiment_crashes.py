"""Killed processes and damaged files: nothing acknowledged is lost, no belief is ever wrong."""

import os
import random
import shutil
import tempfile
import warnings

import jax
import numpy as np
import pytest

import irsppl
from irsppl.live.codec import DamagedError

from . import crashes


def bandit(horizon=5000):
    return irsppl.Bandit(irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]), horizon)


def test_killed_processes_on_sqlite(tmp_path):
    where = tmp_path / "shop.db"
    irsppl.Experiment.create(where, bandit(), seed=1).close()
    notes = crashes.storm(where, tmp_path / "notes", kills=5, workers=3)
    asked, told = crashes.judge(where, bandit(), notes, tmp_path / "calm.db")
    assert asked > 10 and told > 5


@pytest.fixture
def postgres():
    """The URL of a real server; its folder is short and readable, for the user it runs as."""
    pgserver = pytest.importorskip("pgserver")
    folder = tempfile.mkdtemp(prefix="pg")
    os.chmod(folder, 0o755)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pgserver.get_server(folder)
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def test_killed_processes_on_postgresql(tmp_path, postgres):
    where = postgres
    irsppl.Experiment.create(where, bandit(), seed=1).close()
    notes = crashes.storm(where, tmp_path / "notes", kills=3, workers=2)
    asked, told = crashes.judge(where, bandit(), notes, tmp_path / "calm.db")
    assert asked > 5 and told > 2
    with irsppl.Experiment.open(where) as experiment:
        one = experiment.ask(request="again")
        assert experiment.ask(request="again") == one
        experiment.tell(one.id, 0)
        experiment.tell(one.id, 1, correct=True)
        with experiment._writing() as tx:
            experiment._snapshot(tx)
        assert len(experiment.log()) == experiment.status()["period"]
        with irsppl.Experiment.open(where) as again:
            assert equal(leaves(again), leaves(experiment))
    with pytest.raises(ValueError, match="already holds"):
        irsppl.Experiment.create(where, bandit())


# ------------------------------------------------------------------ damaged files


def played(where, periods):
    """An experiment with one reward pending; the state after each event."""
    experiment = irsppl.Experiment.create(where, bandit(100), "ts", seed=2)
    last = None
    for _ in range(periods):
        decision = experiment.ask()
        if last is not None:
            experiment.tell(last.id, last.period % 2)
        last = decision
    return experiment


def leaves(experiment):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(experiment.bandit)]


def equal(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_power_cut_while_writing(tmp_path):
    """The write-ahead log is cut, or torn, within the last write: all before it is there."""
    where, log = tmp_path / "shop.db", tmp_path / "shop.db-wal"
    experiment = played(where, 10)
    acknowledged, before = log.stat().st_size, leaves(experiment)
    seq = experiment.status()["events"]
    experiment.tell(experiment.pending[0], 1)
    whole, after = log.read_bytes(), leaves(experiment)
    main = where.read_bytes()
    experiment.close()
    assert len(whole) > acknowledged
    dice = random.Random(0)
    cuts = [acknowledged, acknowledged + 1, len(whole) - 1]
    cuts += [dice.randrange(acknowledged, len(whole)) for _ in range(10)]
    copy = tmp_path / "copy.db"
    for cut in cuts:
        for torn in (b"", bytes(dice.randrange(256) for _ in range(len(whole) - cut))):
            for path in tmp_path.glob("copy.db*"):
                path.unlink()
            copy.write_bytes(main)
            (tmp_path / "copy.db-wal").write_bytes(whole[:cut] + torn)
            with irsppl.Experiment.open(copy) as again:
                assert again.status()["events"] == seq
                assert equal(leaves(again), before)
                again.ask()
    copy.write_bytes(main)
    (tmp_path / "copy.db-wal").write_bytes(whole)
    (tmp_path / "copy.db-shm").unlink(missing_ok=True)
    with irsppl.Experiment.open(copy) as again:
        assert equal(leaves(again), after)


@pytest.mark.parametrize("snapshot", [False, True])
def test_flipped_bits_and_cut_files(tmp_path, snapshot):
    """Opened as it was, or refused in plain words; a wrong belief never."""
    where = tmp_path / "shop.db"
    experiment = played(where, 30)
    if snapshot:
        with experiment._writing() as tx:
            experiment._snapshot(tx)
    true, seq = leaves(experiment), experiment.status()["events"]
    experiment.close()
    data = where.read_bytes()
    dice = random.Random(1)
    used = [i for i in range(len(data)) if data[i]]
    copy = tmp_path / "copy.db"
    refused = 0
    places = dice.sample(used, 60) + dice.sample(range(len(data)), 10)
    versions = [("flip", i) for i in places]
    versions += [("cut", dice.randrange(len(data))) for _ in range(10)]
    for kind, place in versions:
        for path in tmp_path.glob("copy.db*"):
            path.unlink()
        bad = bytearray(data)
        if kind == "flip":
            bad[place] ^= 1 << dice.randrange(8)
        else:
            del bad[place:]
        copy.write_bytes(bad)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                again = irsppl.Experiment.open(copy)
        except ValueError as error:
            refused += 1
            assert "damaged" in str(error) or "experiment" in str(error), (kind, place, error)
            continue
        with again:
            assert again.status()["events"] == seq, (kind, place)
            assert equal(leaves(again), true), (kind, place)
    assert refused > 10


def test_a_lost_or_changed_event_is_named(tmp_path):
    import sqlite3

    where = tmp_path / "shop.db"
    played(where, 6).close()
    for change, told in (
        ("update irsppl_journal set reward = 1 - reward where seq = 4", "event 4 is not what"),
        ("update irsppl_journal set arm = 2 where seq = 3", "event 3"),
        ("delete from irsppl_journal where seq = 5", "event 5 is missing"),
    ):
        copy = tmp_path / f"{len(told)}{told[6]}.db"
        shutil.copy(where, copy)
        with sqlite3.connect(copy) as raw:
            raw.execute(change)
        raw.close()
        with pytest.raises(DamagedError, match=told):
            irsppl.Experiment.open(copy)


def test_a_damaged_snapshot_is_not_needed(tmp_path):
    import sqlite3

    where = tmp_path / "shop.db"
    experiment = played(where, 6)
    with experiment._writing() as tx:
        experiment._snapshot(tx)
    true = leaves(experiment)
    experiment.close()
    with sqlite3.connect(where) as raw:
        raw.execute("update irsppl_snapshot set data = cast(x'00' || substr(data, 2) as blob)")
    raw.close()
    with pytest.warns(UserWarning, match="journal is read instead"):
        again = irsppl.Experiment.open(where)
    assert equal(leaves(again), true)
    again.close()
    # A snapshot that knows more than the journal: the journal has lost something.
    with sqlite3.connect(where) as raw:
        raw.execute("delete from irsppl_journal where seq >= 9")
    raw.close()
    with pytest.raises(DamagedError, match="lost"):
        irsppl.Experiment.open(where)
