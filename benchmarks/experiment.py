"""What an experiment costs beside its database: ratios of two things, side by side in one run.

    python benchmarks/experiment.py

5 Beta arms, 10,000 periods, irs.index, SQLite with full synchronisation.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import numpyro.distributions as dist
import sqlalchemy as sa

import irsppl
from irsppl.live import store
from irsppl.live.journal import Event

ROUNDS, BLOCK = 12, 40
# To see what is the processor's work alone. What is acknowledged can be lost then.
NO_SYNC = ("journal_mode=WAL", "synchronous=OFF")
DELAYS = {
    "no delay": None,
    "delay of 5": 5,
    "geometric delay of 100": dist.GeometricProbs(0.01),
    "geometric delay of 10,000": dist.GeometricProbs(1e-4),
}


def bandit(horizon, delay=None):
    return irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 5, [1.0] * 5), horizon, delay=delay)


def timed(work, times):
    start = time.perf_counter()
    for i in range(times):
        work(i)
    return (time.perf_counter() - start) / times


def ask_and_tell(folder):
    """ask + tell, against two durable INSERTs of one row each, in alternating blocks."""
    experiment = irsppl.Experiment.create(folder / "shop.db", bandit(10_000))
    truth, rng = np.linspace(0.3, 0.5, 5), np.random.default_rng(0)
    bare = sqlite3.connect(folder / "shop.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("PRAGMA synchronous=FULL")  # always: it is the measure
    bare.execute("create table bare (seq integer primary key, told text, at real)")

    def both(_):
        decision = experiment.ask()
        experiment.tell(decision.id, int(rng.random() < truth[decision.arm]))

    def insert(i):
        for _ in range(2):
            bare.execute("begin immediate")
            bare.execute("insert into bare (told, at) values ('x', 1.0)")
            bare.execute("commit")

    timed(both, 20), timed(insert, 20)
    times = np.array([[timed(both, BLOCK), timed(insert, BLOCK)] for _ in range(ROUNDS)])
    work = []
    for act in (both, insert):
        start = time.process_time()
        timed(act, 300)
        work.append(1e3 * (time.process_time() - start) / 300)
    print(f"processor's time: {work[0]:.2f} ms for ask + tell, {work[1]:.2f} ms for two INSERTs")
    experiment.close(), bare.close()
    return times


def many_pending(folder, name, delay=None):
    """An ask with 10,000 decisions pending, against one with 10, in alternating blocks."""
    made = []
    for pending in (10_000, 10):
        where = folder / f"{name}-{pending}.db"
        made.append(irsppl.Experiment.create(where, bandit(20_000, delay)))
        write(made[-1], pending, told=False)
    for experiment in made:
        timed(lambda i, e=experiment: e.ask(), 10)
    times = np.array([[timed(lambda i, e=e: e.ask(), BLOCK) for e in made] for _ in range(ROUNDS)])
    for experiment in made:
        experiment.close()
    return times


def write(experiment, decisions, told):
    """So many decisions into the journal at once, with their rewards or without."""
    rng = np.random.default_rng(0)
    with experiment._writing() as tx:
        state = experiment._state
        for first in range(0, decisions, 500):
            events = []
            for period in range(first, min(first + 500, decisions)):
                arm = int(rng.integers(5))
                event = Event(state.seq, "ask", time.time(), period, arm, propensity=0.2)
                events.append(event.sealed(state.digest))
                state.apply(events[-1])
                if told:
                    reward = float(rng.random() < 0.5)
                    event = Event(state.seq, "tell", time.time(), period, reward=reward)
                    events.append(event.sealed(state.digest))
                    state.apply(events[-1])
            store.append(tx, events)
            if state.seq >= experiment._next_snapshot:
                experiment._snapshot(tx)


def over_http(folder):
    """ask + tell by 8 clients over HTTP, against 8 threads in one process."""
    path = folder / "web.db"
    experiment = irsppl.Experiment.create(path, bandit(10_000))
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # As `irsppl serve` does, but with the same pragmas as here.
    program = f"""
from irsppl.live import store
from irsppl.cli import main
store._PRAGMAS = {store._PRAGMAS!r}
main(["serve", {str(path)!r}, "--port", "{port}"])
"""
    server = subprocess.Popen([sys.executable, "-c", program])
    headers = {"content-type": "application/json"}

    def call(web, path, body):
        web.request("POST", path, json.dumps(body), headers)
        return json.loads(web.getresponse().read())

    def visit_web(web):
        decision = call(web, "/decisions", {})
        call(web, f"/decisions/{decision['id']}/reward", {"reward": decision["period"] % 2})

    def visit(_):
        decision = experiment.ask()
        experiment.tell(decision.id, decision.period % 2)

    def connected():
        return http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    for _ in range(600):
        try:
            visit_web(connected())
            break
        except OSError:
            time.sleep(0.2)
    webs = [connected() for _ in range(8)]

    def all_at_once(work, things):
        threads = [
            threading.Thread(target=lambda x=x: [work(x) for _ in range(BLOCK // 8)])
            for x in things
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - start) / (BLOCK // 8 * 8)

    for web in webs:
        visit_web(web)
    times = np.array(
        [[all_at_once(visit_web, webs), all_at_once(visit, range(8))] for _ in range(ROUNDS)]
    )
    server.terminate()
    server.wait()
    experiment.close()
    return times


def opening(folder):
    """Opening a journal of 100,000 events, against reading all its rows."""
    path = folder / "long.db"
    experiment = irsppl.Experiment.create(path, bandit(60_000), "ts")
    write(experiment, 50_000, told=True)
    experiment.close()

    def read(_):
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            rows = connection.execute(sa.select(store._journal)).fetchall()
        assert len(rows) == 100_000
        engine.dispose()

    def reopen(_):
        irsppl.Experiment.open(path).close()

    def without_snapshot(_):
        again = irsppl.Experiment.open(path)
        with again._store.transaction() as tx:
            store.drop_snapshots(tx)
        again.close()

    timed(reopen, 1), timed(read, 1)
    times = np.array([[timed(reopen, 1), timed(read, 1)] for _ in range(5)])
    without_snapshot(0)
    replay = np.array([[timed(reopen, 1), timed(read, 1)] for _ in range(3)])
    return times, replay


def told(name, times, limit):
    ratio = np.median(times[:, 0]) / np.median(times[:, 1])
    print(
        f"{name}: {1e3 * np.median(times[:, 0]):.2f} ms against "
        f"{1e3 * np.median(times[:, 1]):.2f} ms, ratio {ratio:.2f} (wanted: at most {limit})",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-sync", action="store_true", help="writes do not wait for the disk")
    if parser.parse_args().no_sync:
        store._PRAGMAS = NO_SYNC
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        told("ask + tell / two durable INSERTs", ask_and_tell(folder), 3)
        for name, delay in DELAYS.items():
            times = many_pending(folder, name, delay)
            told(f"ask with 10,000 pending / with 10, {name}", times, 2)
        told("8 clients over HTTP / 8 threads in process", over_http(folder), 2)
        times, replay = opening(folder)
        told("open 100,000 events / read them", times, 3)
        told("the same without a snapshot", replay, 3)


if __name__ == "__main__":
    main()
