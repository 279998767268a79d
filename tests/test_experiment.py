"""Live experiments: the journal is the truth, whoever writes it and however late rewards come."""

import json
import math
import threading

import jax
import numpy as np
import pytest

import irsppl
from irsppl.live.state import fold

T = 20


def bernoulli(horizon=T, **options):
    return irsppl.Bandit(
        irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]),
        horizon,
        labels=["old", "new", "long shot"],
        **options,
    )


@pytest.fixture
def where(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def experiment(where):
    with irsppl.Experiment.create(where, bernoulli(), seed=3) as made:
        yield made


def same(one, two):
    """Beliefs and bandits that are equal bit by bit."""
    a, b = jax.tree.leaves(one), jax.tree.leaves(two)
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for x, y in zip(a, b, strict=True):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


# ------------------------------------------------------------------ ask and tell


def test_a_course_of_play(experiment, where):
    rng = np.random.default_rng(0)
    bandit = bernoulli()
    for period in range(T):
        assert experiment.remaining == T - period
        decision = experiment.ask()
        assert decision.period == period and 0 < decision.propensity <= 1
        assert decision.label == bandit.arm_labels[decision.arm]
        assert experiment.pending == [decision.id]
        reward = int(rng.random() < 0.5)
        experiment.tell(decision.id, reward)
        bandit = bandit.pull(decision.arm, reward)
    same(experiment.bandit, bandit)
    with pytest.raises(ValueError, match="all 20 periods are over"):
        experiment.ask()
    experiment.close()
    with irsppl.Experiment.open(where) as again:
        same(again.bandit, bandit)
        assert again.status()["told"] == T and again.pending == []
        with pytest.raises(ValueError, match="nothing remains"):
            again.ask()


def test_rewards_come_late_out_of_order_and_in_batches(experiment):
    made = experiment.ask(6)
    assert [d.period for d in made] == list(range(6)) and len({d.id for d in made}) == 6
    experiment.tell(made[4].id, 1)
    experiment.tell({made[0].id: 0, made[5].id: 1})
    bandit = bernoulli()
    for d in made:
        bandit = bandit.pull(d.arm)
    for period, reward in ((4, 1), (0, 0), (5, 1)):
        bandit = bandit.arrive(period, reward)
    same(experiment.bandit, bandit)
    assert experiment.pending == [made[i].id for i in (1, 2, 3)]
    assert experiment.bandit.pending == (1, 2, 3)


def test_wrong_input_changes_nothing(experiment):
    first = experiment.ask()
    before = experiment.status()
    bad = [
        (lambda: experiment.tell("nobody-0", 1), "id must be"),
        (lambda: experiment.tell(first.id.replace("-0", "-1"), 1), "unknown"),
        (lambda: experiment.tell(first.id.replace("-0", "-00"), 1), "unknown"),
        (lambda: experiment.tell(17, 1), "id must be"),
        (lambda: experiment.tell(first.id, 0.5), "must be 0 or 1"),
        (lambda: experiment.tell(first.id, math.nan), "finite"),
        (lambda: experiment.tell(first.id, "1"), "reward must be one finite number"),
        (lambda: experiment.tell(first.id), "reward must be"),
        (lambda: experiment.tell({first.id: 1, "nobody-1": 0}), "id must be"),
        (lambda: experiment.ask(0), "count"),
        (lambda: experiment.ask(T), "at most 19"),
        (lambda: experiment.ask(request=""), "request"),
        (lambda: experiment.expire(after=-1), "after"),
        (lambda: experiment.expire(after=math.nan), "after"),
        (lambda: experiment.retire_arm("nobody"), "unknown label"),
        (lambda: experiment.add_arm(irsppl.BetaBernoulli([1.0], [1.0]), "old"), "taken"),
        (lambda: experiment.add_arm(irsppl.GammaPoisson([1.0], [1.0]), "x"), "BetaBernoulli"),
        (lambda: experiment.add_arm(irsppl.BetaBernoulli([1.0] * 2, [1.0] * 2), "x"), "one arm"),
        (lambda: experiment.add_arm("beta(1,1)", "x"), "one arm"),
    ]
    for act, told in bad:
        with pytest.raises(ValueError, match=told):
            act()
    assert experiment.status() == before


def test_what_create_and_open_refuse(where, tmp_path):
    bandit = bernoulli()
    bad = [
        (dict(bandit="x"), "bandit"),
        (dict(bandit=bandit.pull(0, 1)), "first period"),
        (dict(policy="no such"), "unknown policy"),
        (dict(policy=lambda key, bandit: 0), "function cannot be stored"),
        (dict(policy="ids", bandit=bernoulli(delay=3)), ""),
        (dict(floor=0.4), "floor must lie between"),
        (dict(floor=-0.1), "floor"),
        (dict(floor=math.nan), "floor"),
        (dict(seed=-1), "seed"),
        (dict(seed=1.5), "seed"),
        (dict(where=3), "where"),
        (dict(where=tmp_path / "no" / "folder.db"), "folder"),
        (dict(where="mysql://x/y"), "postgresql"),
    ]
    for given, told in bad[:4] + bad[5:]:
        given = dict(where=where, bandit=bandit) | given
        with pytest.raises(ValueError, match=told):
            irsppl.Experiment.create(**given)
    assert not where.exists()
    with pytest.raises(ValueError, match="no experiment"):
        irsppl.Experiment.open(where)
    assert not where.exists()
    irsppl.Experiment.create(where, bandit).close()
    with pytest.raises(ValueError, match="already holds"):
        irsppl.Experiment.create(where, bandit)
    other = tmp_path / "notes.txt"
    other.write_text("no database at all, but long enough to look at " * 50)
    with pytest.raises(ValueError, match="damaged"):
        irsppl.Experiment.open(other)


def test_a_repeated_request_gets_its_first_answer(experiment):
    one = experiment.ask(request="visit 1")
    two = experiment.ask(request="visit 2")
    assert experiment.ask(request="visit 1") == one != two
    batch = experiment.ask(4, request="visits")
    assert experiment.ask(4, request="visits") == batch and experiment.remaining == T - 6
    with pytest.raises(ValueError, match="was for 4"):
        experiment.ask(3, request="visits")
    with pytest.raises(ValueError, match="was for 1"):
        experiment.ask(1, request="visit 1")


def test_a_second_reward(experiment, where):
    made = experiment.ask(4)
    rewards = [1, 0, 1, 1]
    for d, r in zip(made, rewards, strict=True):
        experiment.tell(d.id, r)
    experiment.tell(made[1].id, 0)
    assert experiment.status()["events"] == 8
    with pytest.raises(ValueError, match="correct=True"):
        experiment.tell(made[1].id, 1)
    with irsppl.Experiment.open(where) as other:
        other.tell(made[1].id, 1, correct=True)
        other.ask()
    bandit = bernoulli()
    for d in made:
        bandit = bandit.pull(d.arm, 1)
    same(experiment.bandit.belief, bandit.belief)
    experiment.tell(made[1].id, 1)  # now it is the known one
    assert [e.kind for e in experiment.events()].count("correct") == 1


def test_rewards_that_never_come(experiment):
    made = experiment.ask(3)
    experiment.tell(made[1].id, 1)
    assert experiment.expire(after=3600) == []
    assert experiment.expire(after=0) == [made[0].id, made[2].id]
    assert experiment.pending == [] and experiment.status()["expired"] == 2
    assert experiment.bandit.pending == ()
    experiment.tell(made[2].id, 1)  # late is better than never
    assert experiment.status()["told"] == 2 and experiment.status()["expired"] == 1


def test_what_expired_stays_so(where):
    """After a restart, from the journal and from a snapshot; with a law of the delay too."""
    with irsppl.Experiment.create(where, bernoulli(delay=4), "ts") as experiment:
        made = experiment.ask(4)
        experiment.tell(made[3].id, 1)
        assert len(experiment.expire(after=0)) == 3 and experiment.expire(after=0) == []
        experiment.tell(made[0].id, 0)
        held = experiment.bandit
        assert held.pending == ()
        with irsppl.Experiment.open(where) as again:
            same(again.bandit, held)
            with again._writing() as tx:
                again._snapshot(tx)
        with irsppl.Experiment.open(where) as again:
            same(again.bandit, held)
            assert again.status()["expired"] == 2
            assert again.explain(again.ask().id)["replayed"]


def test_what_expired_was_not_seen(tmp_path):
    """UCB1's width goes by rewards that were seen, not by pulls that nobody hears of any more. An
    arm whose rewards never come is not tried for ever."""
    with irsppl.Experiment.create(tmp_path / "x.db", bernoulli(), policy="ucb1") as experiment:
        made = experiment.ask(3)  # each arm once
        experiment.tell({d.id: 1 for d in made if d.arm != 2})
        experiment.expire(after=0)
        assert experiment.bandit.counts.tolist() == [1, 1, 1]
        more = experiment.ask()
        assert more.arm != 2
        experiment.expire(after=0)
        assert experiment.bandit.counts.tolist() == [1, 1, 1]
        assert sum(row["pulls"] for row in experiment.arms()) == 4
        experiment.tell({d.id: 0 for d in (*made, more) if d.arm == 2 or d is more})  # after all
        assert experiment.bandit.counts.tolist() == [1 + (more.arm == 0), 1 + (more.arm == 1), 1]


def test_a_batch_is_as_many_questions_without_an_answer(tmp_path):
    """Each later decision of a batch knows the earlier ones as pending, and no rewards between."""
    made = []
    for name, batches in (("one", [8]), ("many", [3, 1, 4]), ("single", [None] * 8)):
        with irsppl.Experiment.create(tmp_path / name, bernoulli(), seed=7) as experiment:
            asked = [experiment.ask(count) for count in batches]
        asked = [asked] if batches[0] is None else asked
        made.append([(d.period, d.arm, d.propensity) for part in asked for d in part])
    assert made[0] == made[1] == made[2]


def test_decisions_are_replayed(where):
    with irsppl.Experiment.create(where, bernoulli(), seed=5, floor=0.1) as experiment:
        rng = np.random.default_rng(1)
        made = [experiment.ask() for _ in range(3)]
        for _ in range(10):
            late = made[int(rng.integers(len(made)))]
            experiment.tell(late.id, experiment_reward(late))
            made.append(experiment.ask())
        for decision in made:
            told = experiment.explain(decision.id)
            assert told["replayed"] and told["arm"] == decision.arm
            chances = [arm["probability"] for arm in told["arms"]]
            assert min(chances) >= 0.1 - 1e-12 and sum(chances) == pytest.approx(1)
            assert chances[decision.arm] == pytest.approx(decision.propensity)
        with pytest.raises(ValueError, match="id must be"):
            experiment.explain("x")


def experiment_reward(decision):
    return decision.period % 2


def test_the_same_seed_decides_alike(tmp_path):
    arms = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(arms)}.db"
        with irsppl.Experiment.create(path, bernoulli(), "ts", seed=seed) as experiment:
            arms.append([d.arm for d in experiment.ask(T)])
    assert arms[0] == arms[1] != arms[2]


def test_propensities_are_those_of_the_policy(tmp_path):
    """Shares of 32 futures against 4,000 samples of the policy itself, pending included.

    The mean over 200 first decisions: z at most 4.5, false alarms below 1e-4 for three arms.
    """
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]), T)
    from irsppl.live.decide import decide, plan_for
    from irsppl.live.journal import Event
    from irsppl.live.state import State
    from irsppl.policies import find_policy

    for name in ("irs.index", "irs.v-zero"):
        state = State(bandit)
        for period, arm in enumerate((1, 1, 2)):
            state.apply(Event(period, "ask", 0.0, period=period, arm=arm))
        shares = []
        for seed in range(200):
            plan = plan_for(find_policy(name), seed, 0.0, bandit)
            assert plan.on_host
            shares.append(decide(plan, state).shares)
        truth = irsppl.action_probabilities(state.bandit(), name, key=1, num_samples=4_000)
        size = len(shares) * 32
        error = np.sqrt(truth * (1 - truth) * (1 / size + 1 / 4_000)) + 1e-6
        assert np.all(np.abs(np.mean(shares, axis=0) - truth) < 4.5 * error), name


# ------------------------------------------------------------------ arms that come and go


def test_an_added_and_a_retired_arm(experiment, where):
    made = experiment.ask(3)
    experiment.tell(made[0].id, 1)
    assert experiment.add_arm(irsppl.BetaBernoulli([50.0], [1.0]), label="star") == 3
    experiment.retire_arm("old")
    experiment.retire_arm("old")
    later = experiment.ask(8)
    assert 0 not in {d.arm for d in later} and "star" in {d.label for d in later}
    for d in later:
        experiment.tell(d.id, 1)
    experiment.tell(made[1].id, 0)  # of whatever arm
    assert experiment.bandit.arm_labels == ("new", "long shot", "star")
    with irsppl.Experiment.open(where) as again:
        same(again.bandit, experiment.bandit)
        assert [row["label"] for row in again.arms()] == ["old", "new", "long shot", "star"]
        assert all(again.explain(d.id)["replayed"] for d in (made[2], later[5]))
        again.retire_arm("new")
        again.retire_arm("long shot")
        with pytest.raises(ValueError, match="last open arm"):
            again.retire_arm("star")
    assert {d.label for d in experiment.ask(3)} == {"star"}


def test_arms_cannot_come_or_go_where_that_has_no_meaning(tmp_path):
    one = irsppl.BetaBernoulli([1.0], [1.0])
    money = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), costs=[1, 2], budget=9)
    with (
        irsppl.Experiment.create(tmp_path / "a.db", money, "irs.v-zero") as experiment,
        pytest.raises(ValueError, match="cost money"),
    ):
        experiment.add_arm(one, "x")
    with (
        irsppl.Experiment.create(tmp_path / "b.db", bernoulli(), floor=1 / 3) as experiment,
        pytest.raises(ValueError, match="no room"),
    ):
        experiment.add_arm(one, "x")


# ------------------------------------------------------------------ constraints


def test_delays_use_their_law(where):
    bandit = bernoulli(delay=4)
    with irsppl.Experiment.create(where, bandit, "irs.index", seed=2) as experiment:
        made = experiment.ask(5)
        experiment.tell(made[0].id, 1)
        by_hand = bandit
        for d in made:
            by_hand = by_hand.pull(d.arm)
        same(experiment.bandit, by_hand.arrive(0, 1))
        assert experiment.explain(experiment.ask().id)["replayed"]


def test_a_budget_is_never_overspent(where):
    belief = irsppl.BetaBernoulli([3.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, costs=[1.5, 2.5], budget=11)
    with irsppl.Experiment.create(where, bandit, "irs.v-zero", floor=0.25) as experiment:
        spent = 0.0
        while experiment.remaining:
            decision = experiment.ask()
            spent += [1.5, 2.5][decision.arm]
            experiment.tell(decision.id, 1)
            assert experiment.status()["budget"] == pytest.approx(11 - spent)
        assert 9.5 < spent <= 11
        with pytest.raises(ValueError, match="left to spend"):
            experiment.ask()


def test_an_unknown_end(where):
    bandit = irsppl.Bandit(
        irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0]), np.array([1, 0.8, 0.5, 0.2])
    )
    with irsppl.Experiment.create(where, bandit, "irs.v-zero") as experiment:
        made = [experiment.ask() for _ in range(2)]
        experiment.tell(made[0].id, 1)
    with irsppl.Experiment.open(where) as again:
        assert again.remaining == 2 and again.bandit.end.table == bandit.end.table
        assert again.explain(made[1].id)["replayed"]


# ------------------------------------------------------------------ several at once


def test_two_objects_and_threads_share_one_experiment(where):
    horizon = 60
    bandit = bernoulli(horizon)
    one = irsppl.Experiment.create(where, bandit, "ts")
    two = irsppl.Experiment.open(where)
    made, refused = [], []

    def work(experiment):
        try:
            while True:
                decision = experiment.ask()
                made.append(decision)
                experiment.tell(decision.id, decision.period % 2)
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work, args=(e,)) for e in (one, two, one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(d.period for d in made) == list(range(horizon))
    assert len(refused) == 4 and all("periods are over" in told for told in refused)
    same(one.bandit, two.bandit)
    same(fold(bandit, one.events()).bandit(), one.bandit)
    one.close(), two.close()


def test_a_request_is_answered_once_however_many_ask_at_once(where):
    one = irsppl.Experiment.create(where, bernoulli(), "ts")
    two = irsppl.Experiment.open(where)
    made, begin = [], threading.Barrier(8)

    def work(experiment, number):
        begin.wait()
        for visit in range(3):
            made.append((visit, experiment.ask(request=f"visit {visit}")))
        made.append((3, tuple(experiment.ask(2, request="visits"))))

    threads = [threading.Thread(target=work, args=((one, two)[i % 2], i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 32 and len(set(made)) == 4  # four answers, eight times each
    assert one.remaining == two.remaining == T - 5
    one.close(), two.close()


def test_several_are_written_together_or_not_at_all(where):
    from irsppl.live.errors import UndoneError

    with irsppl.Experiment.create(where, bernoulli(), seed=3) as experiment:
        first = experiment.ask()
        with experiment.together():
            made = [experiment.ask(), *experiment.ask(2)]
            experiment.tell(first.id, 1)
            with pytest.raises(ValueError, match="unknown"):
                experiment.tell(first.id[:-1] + "9", 1)
            with pytest.raises(ValueError, match="at most"):
                experiment.ask(T)
            experiment.tell(first.id, 0, correct=True)
            experiment.tell(made[0].id, 1)
        assert [d.period for d in made] == [1, 2, 3]
        held, before = experiment.bandit, experiment.events()
        with irsppl.Experiment.open(where) as again:
            same(again.bandit, held)
        # What fails after it has begun takes the others with it.
        plan, experiment._plan = experiment._plan, None
        with pytest.raises(UndoneError), experiment.together():
            experiment.tell(made[1].id, 1)
            with pytest.raises(AttributeError):
                experiment.ask()
        experiment._plan = plan
        with pytest.raises(KeyboardInterrupt), experiment.together():
            experiment.tell(made[1].id, 1)
            raise KeyboardInterrupt
        assert experiment.events() == before
        same(experiment.bandit, held)
        assert experiment.explain(experiment.ask().id)["replayed"]


def test_labels_are_only_text(where):
    labels = ["<script>alert(1)</script>", "'; DROP TABLE irsppl_journal; --"]
    belief = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, 4, labels=labels)
    with irsppl.Experiment.create(where, bandit, "ts") as experiment:
        assert experiment.ask(request="'; DROP TABLE irsppl_journal; --").label in labels
        experiment.retire_arm(labels[1])
    with irsppl.Experiment.open(where) as again:
        assert again.ask().label == labels[0]
        assert json.dumps(again.status())


def test_a_snapshot_and_the_journal_agree(where, monkeypatch):
    from irsppl.live import kept

    monkeypatch.setattr(kept, "_SNAPSHOT_EVENTS", 7)
    with irsppl.Experiment.create(where, bernoulli(), "ts") as experiment:
        experiment._next_snapshot = 7
        for _ in range(9):
            made = experiment.ask(2)
            experiment.tell(made[1].id, 1)
        held = experiment.bandit
        with irsppl.Experiment.open(where) as again:
            assert again._look().seq == 27
            same(again.bandit, held)
            same(again.bandit, fold(again._start, again.events()).bandit())
        told = {d.id: 0 for d in made[:1]}
        experiment.tell(told)
        experiment.tell(made[1].id, 0, correct=True)
        with irsppl.Experiment.open(where) as again:
            same(again.bandit, experiment.bandit)
