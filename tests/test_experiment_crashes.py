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
from irsppl.live import wal
from irsppl.live.codec import DamagedError
from irsppl.live.state import fold

from . import crashes


def bandit(horizon=5000):
    return irsppl.Bandit(irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]), horizon)


def test_killed_processes_on_sqlite(tmp_path):
    where = tmp_path / "shop.db"
    irsppl.Experiment.create(where, bandit(), seed=1).close()
    notes = crashes.storm(where, tmp_path / "notes", kills=5, workers=3)
    asked, told = crashes.judge(where, bandit(), notes, tmp_path / "calm.db")
    assert asked > 10 and told > 5


def test_processes_at_the_end_of_the_money(tmp_path):
    """Three processes until nothing remains: no period twice, no more than there was to spend."""
    where, costs, budget = tmp_path / "shop.db", [1.5, 2.5], 60
    belief = irsppl.BetaBernoulli([3.0, 1.0], [1.0, 1.0])
    money = irsppl.Bandit(belief, 35, costs=costs, budget=budget)
    irsppl.Experiment.create(where, money, "ts-ratio", seed=1, floor=0.3).close()
    notes = crashes.storm(where, tmp_path / "notes", kills=0, workers=3)
    assert not [note for note in notes if note[0] == "error"]
    asked = sorted((period, arm) for kind, _, period, arm, *_ in notes if kind == "ask")
    with irsppl.Experiment.open(where) as experiment:
        status, table = experiment.status(), experiment.log()
    spent = sum(costs[arm] for arm in table["arm"])
    assert spent <= budget and status["budget"] == pytest.approx(budget - spent)
    assert asked == list(enumerate(table["arm"])) and len(asked) <= 35
    assert status["remaining"] < 3  # who asks for three at once may leave two


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


class Copies:
    """A file and its write-ahead log as they were, to be opened with some damage."""

    def __init__(self, where, experiment):
        self.where = where
        self.main = where.read_bytes()
        self.log = where.with_name(where.name + "-wal").read_bytes()
        self.events = experiment.events()
        self.start = experiment._start
        self.copy = where.with_name("copy.db")

    def opened(self, main=None, log=None):
        """(events, their number is right) or the words of refusal, and warnings."""
        for path in self.copy.parent.glob("copy.db*"):
            path.unlink()
        self.copy.write_bytes(self.main if main is None else main)
        self.copy.with_name("copy.db-wal").write_bytes(self.log if log is None else log)
        return self.again()

    def again(self):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                experiment = irsppl.Experiment.open(self.copy)
            except ValueError as error:
                words = str(error)
                assert "damaged" in words or "no experiment" in words, words
                return None, words
        with experiment:
            known = experiment.status()["events"]
            # Whatever is there is believed as it should be, bit by bit.
            true = fold(self.start, self.events[:known]).bandit()
            assert equal(leaves(experiment), [np.asarray(leaf) for leaf in jax.tree.leaves(true)])
            if experiment.remaining:
                experiment.ask()
        return known, " ".join(str(one.message) for one in told)


def flipped(data, place, dice):
    bad = bytearray(data)
    bad[place] ^= 1 << dice.randrange(8)
    return bytes(bad)


def torn(data, place, dice):
    """A sector that was not written, or was written with something else."""
    start = place // 512 * 512
    other = bytes(512) if dice.random() < 0.5 else dice.randbytes(512)
    return data[:start] + other[: len(data) - start] + data[start + 512 :]


def test_a_power_cut_while_writing(tmp_path):
    """The write-ahead log is cut, or torn, within the last write: all before it is there."""
    where = tmp_path / "shop.db"
    with played(where, 10) as experiment:
        acknowledged = where.with_name("shop.db-wal").stat().st_size
        seq = experiment.status()["events"]
        experiment.tell(experiment.pending[0], 1)
        files = Copies(where, experiment)
    whole, dice = files.log, random.Random(0)
    assert len(whole) > acknowledged
    cuts = [acknowledged, acknowledged + 1, acknowledged + 24, len(whole) - 1]
    cuts += [dice.randrange(acknowledged, len(whole)) for _ in range(8)]
    for cut in cuts:
        for rest in (b"", bytes(len(whole) - cut), dice.randbytes(len(whole) - cut)):
            assert files.opened(log=whole[:cut] + rest)[0] == seq, (cut, rest[:4])
    assert files.opened() == (seq + 1, "")


def test_a_damaged_write_ahead_log(tmp_path, monkeypatch):
    """Cut anywhere: what is there is right. Flipped or torn anywhere: refused with the number of
    writes that are lost, again and again; within the last write, dropped with a warning."""
    monkeypatch.setattr(wal, "PATIENCE", 0.0)  # nobody else is writing
    where = tmp_path / "shop.db"
    with played(where, 16) as experiment:
        files = Copies(where, experiment)
    log, seq, dice = files.log, len(files.events), random.Random(2)
    for _ in range(12):
        known, words = files.opened(log=log[: dice.randrange(len(log))])
        assert (known or 0) <= seq
    last = log.rindex(log[16:24])  # the salts in the head of the last frame
    places = [0, 3, 9, 17, 21, 30, 40, 44, last - 500, last - 4200]
    places += [dice.randrange(last - 4500) for _ in range(30)]
    for place in places:
        for harm in (flipped, torn) if 512 < place < last - 4700 else (flipped,):
            bad = harm(log, place, dice)
            if bad == log:
                continue
            for look in (lambda bad=bad: files.opened(log=bad), files.again):
                known, words = look()
                assert known is None and "had been acknowledged" in words, (harm, place, words)
    for place in (last + 30, last + 4000):
        known, words = files.opened(log=flipped(log, place, dice))
        assert known == seq - 1 and "the end of its write-ahead log" in words


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_damaged_file(tmp_path, snapshot):
    """Flipped, torn and cut, with its log beside it and without: opened as it was, or refused in
    plain words; a wrong belief never."""
    where = tmp_path / "shop.db"
    experiment = played(where, 30)
    if snapshot:
        with experiment._writing() as tx:
            experiment._snapshot(tx)
    before = Copies(where, experiment)
    experiment.close()
    after = Copies.__new__(Copies)
    vars(after).update(vars(before), main=where.read_bytes(), log=b"")
    assert len(after.main) > len(before.main) / 2
    dice, refused = random.Random(1), 0
    for files, count in ((before, 15), (after, 60)):
        used = [i for i in range(len(files.main)) if files.main[i]]
        versions = [flipped(files.main, place, dice) for place in dice.sample(used, count)]
        versions += [torn(files.main, place, dice) for place in dice.sample(used, count // 3)]
        versions += [files.main[: dice.randrange(len(files.main))] for _ in range(count // 6)]
        for bad in versions:
            known, words = files.opened(main=bad)
            refused += known is None
            assert known in (None, len(before.events)), words
    assert refused > 20


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
