"""Processes that ask and tell and are killed at random moments; what they were told must be true.

`python -m benchmarks.crashes` runs it at full size, `test_experiment_crashes.py` at a small one.
"""

import json
import multiprocessing
import os
import pathlib
import random
import signal
import time

import numpy as np

import irsppl
from irsppl.live.state import fold

# Forked from a process that has imported everything but has not started JAX: a start costs little.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.test_studies", "irsppl.live.experiment"])


def reward_of(period):
    """Known to all without talking, so that repeated tells agree."""
    return (period * 7919) % 3 % 2


def work(where, folder, number):
    """Ask and tell until killed, or until nothing remains; write down what was acknowledged."""
    notes = os.open(folder / f"{number}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*told):
        os.write(notes, (json.dumps(told) + "\n").encode())

    dice = random.Random(number)
    experiment = irsppl.Experiment.open(where)
    mine = []
    while True:
        try:
            if dice.random() < 0.2:
                made = experiment.ask(3)
            else:
                made = [experiment.ask(request=f"{number}-{dice.random()}")]
        except ValueError as error:
            if "remain" not in str(error):
                note("error", str(error))
            return
        for d in made:
            note("ask", d.id, d.period, d.arm, d.propensity)
        mine += made
        while len(mine) > 3 or (mine and dice.random() < 0.6):
            d = mine.pop(dice.randrange(len(mine)))
            experiment.tell(d.id, reward_of(d.period))
            note("tell", d.id, d.period, reward_of(d.period))


def storm(where, folder, kills, workers=4, seed=0, patience=0.3):
    """Run `workers` processes and kill -9 one at a random moment, `kills` times; their notes.

    Without kills they run until nothing remains to be played.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    dice = random.Random(seed)
    running, number = [], 0

    def begin():
        nonlocal number
        process = context.Process(target=work, args=(where, folder, number), daemon=True)
        process.start()
        running.append((process, folder / f"{number}.txt"))
        number += 1

    for _ in range(workers):
        begin()
    for _ in range(kills):
        while True:  # somebody who has begun to work
            ready = [one for one in running if one[1].exists() and one[1].stat().st_size]
            if len(ready) >= min(2, workers):
                break
            time.sleep(0.01)
        victim = dice.choice(ready)
        time.sleep(dice.random() * patience)
        assert victim[0].is_alive(), "all was played before the last kill: give a longer horizon"
        os.kill(victim[0].pid, signal.SIGKILL)
        victim[0].join()
        running.remove(victim)
        begin()
    for process, _ in running:
        if kills:
            os.kill(process.pid, signal.SIGKILL)
        process.join()
    notes = []
    for path in folder.glob("*.txt"):
        notes += [json.loads(line) for line in path.read_text().splitlines()]
    return notes


def judge(where, bandit, notes, other):
    """Every acknowledged event is there once, periods are complete, and the belief is right.

    other: where to play the same events again, undisturbed.
    """
    assert not [note for note in notes if note[0] == "error"]
    with irsppl.Experiment.open(where) as experiment:
        events, held = experiment.events(), experiment.bandit
        facts = experiment._facts
    asks = [event for event in events if event.kind == "ask"]
    tells = {event.period: event.reward for event in events if event.kind == "tell"}
    assert [event.period for event in asks] == list(range(len(asks))) and len(
        asks
    ) <= bandit.horizon
    assert len(tells) == sum(event.kind == "tell" for event in events)  # none twice
    told = [tuple(note[1:]) for note in notes if note[0] == "ask"]
    assert len({note[0] for note in told}) == len(told)  # no decision was given to two
    for id, period, arm, propensity in told:
        assert id == f"{facts['uid']}-{period}"
        assert (asks[period].arm, asks[period].propensity) == (arm, propensity)
    for _, _, period, reward in (note for note in notes if note[0] == "tell"):
        assert tells[period] == reward
    replayed = fold(bandit, events).bandit()
    np.testing.assert_array_equal(held.belief.predictive_mean(), replayed.belief.predictive_mean())
    # An undisturbed run of the same questions and answers decides the same.
    with irsppl.Experiment.create(other, bandit, "irs.index", seed=facts["seed"]) as calm:
        for event in events:
            if event.kind == "ask":
                decision = calm.ask()
                assert (decision.arm, decision.propensity) == (event.arm, event.propensity)
            else:
                calm.tell(calm._id(event.period), event.reward)
        np.testing.assert_array_equal(
            held.belief.predictive_mean(), calm.bandit.belief.predictive_mean()
        )
    return len(asks), len(tells)
