"""Four processes ask and tell while one after the other is killed (kill -9) at a random moment.

    python benchmarks/crashes.py            # 50 kills on SQLite, 20 on PostgreSQL (pgserver)

Prints how many events the survivors hold; any acknowledged event that is missing, or a belief that
differs from an undisturbed run's, is an AssertionError.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import irsppl
from tests import crashes


def bandit():
    return irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 5, [1.0] * 5), 100_000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sqlite", type=int, default=50, help="kills on SQLite")
    parser.add_argument("--postgresql", type=int, default=20, help="kills on PostgreSQL")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    os.chmod(folder, 0o755)
    for name, kills in (("sqlite", args.sqlite), ("postgresql", args.postgresql)):
        if not kills:
            continue
        server, where = None, folder / "shop.db"
        if name == "postgresql":
            import pgserver

            server = pgserver.get_server(folder / "data")
            where = server.get_uri()
        irsppl.Experiment.create(where, bandit(), seed=1).close()
        start = time.time()
        # A worker that begins again on PostgreSQL takes longer to get going.
        patience = 0.3 if server is None else 8.0
        notes = crashes.storm(where, folder / name, kills, 4, seed=kills, patience=patience)
        asked, told = crashes.judge(where, bandit(), notes, folder / f"{name}-calm.db")
        print(
            f"{name}: {kills} kills in {time.time() - start:.0f} s, {len(notes)} acknowledged "
            f"events, {asked} decisions and {told} rewards in the journal: all there, none twice",
            flush=True,
        )
        if server is not None:
            server.cleanup()


if __name__ == "__main__":
    main()
