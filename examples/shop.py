"""A shop shows each visitor a banner: orders come late, the server crashes, a banner is added.

The visitors are simulated, the experiment is real: every decision and every order is in a database
before anybody sees it, and the process that serves visitors is killed (kill -9) on the way. Run:
python examples/shop.py
"""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys

import irsppl

BANNERS = {"plain": 0.10, "photo": 0.13, "discount": 0.16, "free shipping": 0.22}


def orders(period: int, label: str) -> int:
    """Whether this visitor orders, having seen that banner."""
    return int(random.Random(period).random() < BANNERS[label])


def serve(where: str, visitors: int, crash: bool = False) -> None:
    """Some visitors, one after the other; the shop hears of an order about 20 visitors later."""
    with irsppl.Experiment.open(where) as experiment:
        # Who was here before us, and has not been heard of? A new process knows from the database.
        log = experiment.log()
        waiting = list(log[log["reward"].isna()][["decision", "period", "label"]].itertuples())
        dice = random.Random(len(log))
        for number in range(min(visitors, experiment.remaining)):
            seen = experiment.ask()
            if crash and number == visitors // 2:
                os.kill(os.getpid(), signal.SIGKILL)  # no warning, no clean-up
            waiting.append((None, seen.id, seen.period, seen.label))
            if len(waiting) > 20:
                _, id, period, label = waiting.pop(dice.randrange(10))
                experiment.tell(id, orders(period, label))


def main(horizon: int = 1500, out: str = "results") -> None:
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    where = str(folder / "shop.db")
    for path in folder.glob("shop.db*"):
        path.unlink()
    first = list(BANNERS)[:3]
    belief = irsppl.BetaBernoulli(alpha=[1] * 3, beta=[5] * 3)
    bandit = irsppl.Bandit(belief, horizon, labels=first)
    with irsppl.Experiment.create(where, bandit, "irs.index", seed=1, floor=0.01) as experiment:
        print(experiment)
    serve(where, horizon // 4)

    # Another process serves, and dies in the middle.
    command = [sys.executable, __file__, "--serve", where, "--visitors", str(horizon // 4)]
    died = subprocess.run([*command, "--crash"], check=False).returncode
    with irsppl.Experiment.open(where) as experiment:
        status = experiment.status()
        print(f"killed ({died}): {status['period']} decisions are there, {status['pending']} await")
        experiment.add_arm(irsppl.BetaBernoulli([1], [5]), label="free shipping")
    serve(where, horizon // 4)

    with irsppl.Experiment.open(where) as experiment:
        print(experiment.advise(num_samples=400))
    serve(where, horizon)
    with irsppl.Experiment.open(where) as experiment:
        old = experiment.expire(after=0)  # the shop closes: no more orders
        print(f"{len(old)} visitors were never heard of")
        for row in experiment.arms():
            print(f"  {row['label']:14} shown {row['pulls']:4}, {row['mean']:.3f} orders each")
        if experiment.status()["told"] > 1:
            print(experiment.evaluate("plain")["dr"], "for showing the plain banner to all")
        experiment.report(folder / "shop.html")
    print("written:", folder / "shop.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--horizon", type=int, default=1500)
    parser.add_argument("--out", default="results")
    parser.add_argument("--serve", metavar="FILE")
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--crash", action="store_true")
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.visitors, args.crash)
    else:
        main(args.horizon, args.out)
