"""What one piece of a large study costs on one core, and what runs at internet scale would.

    python benchmarks/scale.py

Processor seconds, so that a busy machine gives the same figures; compilation is not counted.
"""

from __future__ import annotations

import pathlib
import tempfile
import time

import irsppl
from irsppl.studies.store import Store
from irsppl.studies.work import Work

# (arms, horizon, replications measured).
CASES = [(2, 10, 20_000), (10, 100, 2000), (10, 1000, 500), (100, 1000, 16)]
LONG = [(10, 10_000, 16)]
POLICIES = ("ts", "irs.fh", "irs.index")
PENALTIES = ("irs.ff", "irs.v-zero")


def seconds(work: Work, kind: str, name: str, horizon: int, count: int) -> float:
    """Processor seconds of a replication, the second time a piece of this size is made."""
    for _ in range(2):
        begin = time.process_time()
        work((kind, name, horizon, 0, count), 1)
        taken = time.process_time() - begin
    return taken / count


def one(arms: int, horizon: int, count: int, names: tuple[str, ...], kind: str) -> list[str]:
    belief = irsppl.BetaBernoulli([1.0] * arms, [1.0] * arms)
    bandit = irsppl.Bandit(belief, horizon).without_record()
    policies = {name: irsppl.policies.find_policy(name) for name in POLICIES}
    penalties = {name: irsppl.penalties.find_penalty(name) for name in PENALTIES}
    work = Work(0, {horizon: bandit}, policies, penalties)
    for name in ("ts", "irs.ff", "irs.fh", "irs.v-zero"):
        work.exact[name, horizon] = penalties.get(name, irsppl.penalties.find_penalty(name)).exact(
            bandit
        )
    cells = []
    for name in names:
        if kind == "bound" and work.exact[name, horizon] is not None:
            cells.append("exact")
            continue
        each = seconds(work, kind, name, horizon, count)
        # Core hours of 10^6 replications.
        cells.append(f"{1e6 * each:.3g} us ({1e6 * each / 3600:.2g} h)")
    return cells


def written(count: int, pieces: int = 50) -> None:
    """What the client does with each piece that comes: one file, on disk before the next."""
    import numpy as np

    arrays = {n: np.random.default_rng(0).normal(size=count) for n in ("value", "regret")}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(pathlib.Path(folder))
        begin = time.perf_counter()
        for i in range(pieces):
            store.save(("policy", "ts", 10, i), arrays)
        each = (time.perf_counter() - begin) / pieces
        size = sum(p.stat().st_size for p in pathlib.Path(folder).iterdir()) / pieces
    print(f"pieces of {count:,}: {size / 1e6:.2g} MB and {1e3 * each:.2g} ms each (wall time)")


if __name__ == "__main__":
    print("microseconds of one core for one path (core hours for 10^6 paths)")
    print(
        "| arms | horizon | " + " | ".join([*POLICIES, *(f"{p}, bound" for p in PENALTIES)]) + " |"
    )
    print("|---:|---:|" + "---:|" * (len(POLICIES) + len(PENALTIES)))
    for arms, horizon, count in CASES:
        cells = one(arms, horizon, count, POLICIES, "policy")
        cells += one(arms, horizon, count, PENALTIES, "bound")
        print(f"| {arms:,} | {horizon:,} | " + " | ".join(cells) + " |", flush=True)
    for arms, horizon, count in LONG:
        cells = one(arms, horizon, count, POLICIES, "policy")
        print(f"| {arms:,} | {horizon:,} | " + " | ".join([*cells, "", ""]) + " |", flush=True)
    for count in (1000, 100_000):
        written(count)
