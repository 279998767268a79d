"""What an experiment stores: every belief, NumPyro arms and their file, and how it is read back."""

import json
import math
import pathlib

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import irsppl
from irsppl.live import codec, kept
from irsppl.live.errors import InputError
from irsppl.live.state import fold
from irsppl.policies import find_policy

from .registry import CLOSED, rewards_of
from .test_experiment import T, bernoulli, same


@pytest.fixture
def where(tmp_path):
    return tmp_path / "shop.db"


@pytest.mark.parametrize("name", CLOSED)
def test_every_belief_survives(name, where):
    """In memory, replayed, from a snapshot, and pulled by hand: one belief."""
    bandit = irsppl.Bandit(CLOSED[name](), T)
    rewards = rewards_of(name)
    with irsppl.Experiment.create(where, bandit, "ts") as experiment:
        for i in range(8):
            decision = experiment.ask()
            experiment.tell(decision.id, rewards[i % 2])
            bandit = bandit.pull(decision.arm, rewards[i % 2])
        held = experiment.bandit
        for a, b in zip(jax.tree.leaves(held), jax.tree.leaves(bandit), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)
        same(fold(experiment._start, experiment.events()).bandit(), held)
        with irsppl.Experiment.open(where) as replayed:
            same(replayed.bandit, held)
        with experiment._writing() as tx:
            experiment._snapshot(tx)
        with irsppl.Experiment.open(where) as from_snapshot:
            same(from_snapshot.bandit, held)
        assert experiment.explain(decision.id)["replayed"]


@pytest.mark.parametrize("name", ["normal-normal", "linear-gaussian"])
def test_a_reward_that_no_belief_can_hold_is_refused(name, where):
    """As `Bandit.pull` does, and with the same words; over HTTP an InputError is told."""
    bandit = irsppl.Bandit(CLOSED[name](), T)
    with irsppl.Experiment.create(where, bandit, "greedy") as experiment:
        made = experiment.ask(2)
        for reward in (1e25, -1e39):
            for told in (lambda r: bandit.pull(0, r), lambda r: experiment.tell(made[0].id, r)):
                with pytest.raises(ValueError, match=r"at most 1\.8e\+19 in size") as refused:
                    told(reward)
            assert isinstance(refused.value, InputError)
        assert experiment.status()["told"] == 0
        experiment.tell(made[0].id, 1.0)
        assert experiment.status()["told"] == 1


MODEL = """
import numpyro
import numpyro.distributions as dist

num_arms = 2
labels = ["red", "blue"]


def banner(reward=None):
    skill = numpyro.sample("skill", dist.Normal(0.0, {scale}))
    numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)
"""


def test_numpyro_arms(tmp_path, where):
    """Particles replay bit by bit; the file is named by the user."""
    from irsppl.models import load_model_file

    path = tmp_path / "arms.py"
    path.write_text(MODEL.format(scale=1.5))
    function = load_model_file(path).functions[0]
    belief = irsppl.from_numpyro(
        function, num_arms=2, representation="particles", num_particles=64, key=3
    )
    bandit = irsppl.Bandit(belief, T, labels=["red", "blue"])
    with irsppl.Experiment.create(where, bandit, "ts", seed=1) as experiment:
        for i in range(8):
            experiment.tell(experiment.ask().id, int(i > 1))
        held = experiment.bandit
        assert int(np.asarray(held.belief.rejuvenations).sum()) > 0  # random moves were made
    with pytest.raises(ValueError, match=r"banner in .*never run"):
        irsppl.Experiment.open(where)
    with pytest.raises(ValueError, match="no such file"):
        irsppl.Experiment.open(where, model=tmp_path / "no.py")

    def leaves(bandit):
        return [leaf for leaf in jax.tree.leaves(bandit)]

    with irsppl.Experiment.open(where, model=path) as replayed:
        same(leaves(replayed.bandit), leaves(held))
        with replayed._writing() as tx:
            replayed._snapshot(tx)
    with irsppl.Experiment.open(where, model=path) as from_snapshot:
        same(leaves(from_snapshot.bandit), leaves(held))


def test_a_changed_model_is_refused_or_agreed_to(tmp_path, where):
    from irsppl.models import load_model_file

    path = tmp_path / "arms.py"
    path.write_text(MODEL.format(scale=1.5))
    belief = irsppl.from_numpyro(load_model_file(path).functions[0], num_arms=2)
    with irsppl.Experiment.create(where, irsppl.Bandit(belief, T), "ts", seed=1) as experiment:
        for i in range(4):
            experiment.tell(experiment.ask().id, int(i > 1))
        held = experiment.bandit
    open_before = irsppl.Experiment.open(where, model=path)
    path.write_text(MODEL.format(scale=2.5))
    with pytest.raises(ValueError, match=r"2\.5") as refused:
        irsppl.Experiment.open(where, model=path)
    assert "accept_changed_model=True" in str(refused.value)
    with irsppl.Experiment.open(where, model=path, accept_changed_model=True) as changed:
        assert changed.status()["told"] == 4
        mean = np.asarray(changed.bandit.belief.predictive_mean())
        assert not np.allclose(mean, np.asarray(held.belief.predictive_mean()), atol=1e-4)
        # As though it had been this model from the first.
        fresh = irsppl.from_numpyro(load_model_file(path).functions[0], num_arms=2).sized(T)
        for row in changed.log().itertuples():
            fresh = fresh.update(row.arm, int(row.reward))
        np.testing.assert_allclose(mean, fresh.predictive_mean(), rtol=1e-5)
        # Who still has the old file open does not go on with it.
        for act in (open_before.ask, lambda: open_before.bandit, open_before.status):
            with pytest.raises(ValueError, match="changed model"):
                act()
        assert changed.remaining == T - 4
    open_before.close()
    irsppl.Experiment.open(where, model=path).close()  # agreed to once, for good


def test_a_model_that_no_file_holds_is_refused(where):
    def arm(reward=None):
        import numpyro

        skill = numpyro.sample("skill", dist.Normal(0.0, 1.5))
        numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)

    bandit = irsppl.Bandit(irsppl.from_numpyro(arm, num_arms=2), 5)
    with pytest.raises(ValueError, match="top level of a file"):
        irsppl.Experiment.create(where, bandit, "ts")
    assert not where.exists()


def test_only_classes_of_irsppl_are_read():
    for name in ("os:system", "irsppl.cli:main", "irsppl.live.codec:DamagedError", "builtins:eval"):
        head = {"class": name, "fields": {}}
        with pytest.raises(ValueError, match="no class of irsppl"):
            codec._Reader(b"", (), "a record").read(head)
    data = bytearray(codec.pack({"x": np.arange(5.0), "y": math.inf}))
    told = codec.unpack(bytes(data))
    assert told["y"] == math.inf and told["x"].tolist() == [0, 1, 2, 3, 4]
    for i in range(0, len(data), 3):
        bad = data.copy()
        bad[i] ^= 16
        with pytest.raises(codec.DamagedError):
            codec.unpack(bytes(bad))


def test_bandits_stored_with_slots_for_constraints_still_open():
    """Records of the version before constraints were objects, as it wrote them."""
    kept = pathlib.Path(__file__).parent / "data" / "bandits.json"
    for name, told in json.loads(kept.read_text()).items():
        belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 3.0])
        now = irsppl.Bandit(belief, **told["made"]).pull(0, 1.0)
        then = codec.unpack(bytes.fromhex(told["record"]))
        assert jax.tree.structure(then) == jax.tree.structure(now), name
        for a, b in zip(jax.tree.leaves(then), jax.tree.leaves(now), strict=True):
            np.testing.assert_array_equal(a, b, name)
        assert irsppl.choose(then, "irs.fh", key=1) == irsppl.choose(now, "irs.fh", key=1)


def test_policies_with_options_are_kept(where):
    policy = irsppl.Index(num_futures=3, lookahead=7)
    with irsppl.Experiment.create(where, bernoulli(), policy, seed=4) as experiment:
        made = [experiment.ask() for _ in range(4)]
    with irsppl.Experiment.open(where) as again:
        assert again._plan.policy == policy
        assert all(again.explain(d.id)["replayed"] for d in made)


def test_lagrangian_policies_stored_without_a_start_still_open():
    """`lagr-ot` as the version before wrote it."""
    record = (
        "69727370706c30319397728cf7126437d86b840d9f350412e32c689c6fb6e135183f7809b1cacdb878010b65"
        "80806aa5e49cc4e262252b05a5cca2e282821cbd82fc9ccce4ccd462bd9cc4f4a2c4bcf4ccc43c2b1f38d333"
        "2f25b542494741292d33352705a4af5aa9243315a43fbfa02433373147a9b616003a391e41"
    )
    assert codec.unpack(bytes.fromhex(record)) == find_policy("lagr-ot")


TWO_ARMS = (
    MODEL.format(scale=1.5)
    + """

def guarded(reward=None):
    skill = numpyro.sample("skill", dist.Normal(-1.0, 1.0))
    numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)
"""
)


@pytest.fixture
def two_functions(tmp_path):
    from irsppl.models import load_model_file

    path = tmp_path / "arms.py"
    path.write_text(TWO_ARMS)
    return path, *load_model_file(path).functions


def test_numpyro_arms_come_and_go(where, two_functions):
    """The added arm's function is in the same file; a second process catches up with it."""
    path, banner, guarded = two_functions
    bandit = irsppl.Bandit(irsppl.from_numpyro(banner, num_arms=2), T)
    with irsppl.Experiment.create(where, bandit, "ts", seed=1, floor=0.2) as one:
        two = irsppl.Experiment.open(where, model=path)
        one.tell(one.ask().id, 1)
        with pytest.raises(ValueError, match="represented as the others"):
            one.add_arm(irsppl.from_numpyro(guarded, num_arms=1, num_particles=100), "x")
        one.add_arm(irsppl.from_numpyro(guarded, num_arms=1), "guarded")
        made = [two.ask() for _ in range(8)]
        assert "guarded" in {d.label for d in made}
        for d in made:
            two.tell(d.id, d.period % 2)
        # The belief is that of three arms which were there from the first.
        arms = irsppl.from_numpyro([banner, banner, guarded])
        for row in one.log().itertuples():
            arms = arms.update(row.arm, int(row.reward))
        mean = one.bandit.belief.predictive_mean()
        np.testing.assert_allclose(mean, arms.predictive_mean(), rtol=1e-5)
        two.retire_arm("0")
        same(jax.tree.leaves(one.bandit), jax.tree.leaves(two.bandit))
        assert one.bandit.num_arms == 2 and all(d.label != "0" for d in one.ask(4))
        with one._writing() as tx:
            one._snapshot(tx)
        two.close()
    with irsppl.Experiment.open(where, model=path) as again:
        same(jax.tree.leaves(again.bandit), jax.tree.leaves(one._look().bandit()))
        assert again.explain(made[3].id)["replayed"]


def test_an_added_arm_of_particles(where, two_functions):
    """It joins, is asked, told, corrected and replayed: bit by bit the belief in memory."""
    path, banner, guarded = two_functions
    options = {"representation": "particles", "num_particles": 64}
    bandit = irsppl.Bandit(irsppl.from_numpyro(banner, num_arms=2, **options), T)
    with irsppl.Experiment.create(where, bandit, "ts", seed=1, floor=0.3) as one:
        one.tell(one.ask().id, 1)
        before = one.bandit.belief
        one.add_arm(irsppl.from_numpyro(guarded, num_arms=1, key=5, **options), "guarded")
        joined = one.bandit.belief
        np.testing.assert_array_equal(joined.predictive_mean()[:2], before.predictive_mean())
        made = [one.ask() for _ in range(9)]
        for i, d in enumerate(made):
            one.tell(d.id, i % 2)
        counts = np.bincount([d.arm for d in made], minlength=3)
        assert counts[2] > 1 and one.bandit.num_arms == 3
        told = np.asarray(one.bandit.belief.seen)
        assert told[2] == counts[2] and told.sum() == 10
        one.tell(made[4].id, 1, correct=True)
        held = jax.tree.leaves(one.bandit)
        with irsppl.Experiment.open(where, model=path) as replayed:
            same(jax.tree.leaves(replayed.bandit), held)
            assert replayed.explain(made[2].id)["replayed"]
            with replayed._writing() as tx:
                replayed._snapshot(tx)
        with irsppl.Experiment.open(where, model=path) as from_snapshot:
            same(jax.tree.leaves(from_snapshot.bandit), held)
    # Rewards corrected are as rewards told so from the first.
    with irsppl.Experiment.open(where, model=path) as again:
        events = again.events()
        final = [e._replace(reward=1.0) if (e.kind, e.period) == ("tell", made[4].period) else e
                 for e in events if e.kind != "correct"]  # fmt: skip
        known = fold(again._start, final, again._library)
        same(jax.tree.leaves(known.bandit()), jax.tree.leaves(again.bandit))


def test_particles_are_joined_and_parted(two_functions):
    """Rows of the clouds, their records and their upkeep, in the order of the arms."""
    from irsppl.live.beliefs import joined, restricted

    _, banner, guarded = two_functions
    options = {"representation": "particles", "num_particles": 64}
    old = irsppl.from_numpyro(banner, num_arms=2, **options).sized(700)
    new = irsppl.from_numpyro(guarded, num_arms=1, **options)
    three = joined(old, new)
    assert three.num_arms == 3 and three.rewards.shape == (3, 700)
    mean = np.concatenate([old.predictive_mean(), new.predictive_mean()])
    np.testing.assert_array_equal(three.predictive_mean(), mean)
    ends = restricted(three, [0, 2])
    assert ends.groups == ((0,), (1,)) and ends.seen.shape == (2,)
    np.testing.assert_array_equal(ends.predictive_mean(), mean[[0, 2]])
    for name in ("mu", "part", "step", "inflation", "poor"):
        np.testing.assert_array_equal(getattr(ends, name)[1], getattr(new, name)[0])
    assert restricted(three, [1, 0]).groups == ((1, 0),)


def test_what_changes_nothing_does_not_meet_the_snapshot_of_another_process(where, monkeypatch):
    """A second process that had not reached the moment of a snapshot, which the first one wrote."""
    monkeypatch.setattr(kept, "_SNAPSHOT_EVENTS", 5)
    with irsppl.Experiment.create(where, bernoulli(), "greedy") as one:
        with irsppl.Experiment.open(where) as two:
            made = one.ask(4)
            one.tell(made[0].id, 1)
            two.tell(made[0].id, 1)
            assert two.expire(after=3600) == [] and two.pending == one.pending
        assert one.status()["events"] == 5


def test_looking_while_several_are_written_together(where):
    with irsppl.Experiment.create(where, bernoulli(), seed=3) as experiment:
        with experiment.together():
            made = experiment.ask(2)
            experiment.tell(made[0].id, 1)
            assert experiment.remaining == T - 2 and experiment.pending == [made[1].id]
            assert experiment.status()["told"] == 1 and int(experiment.bandit.period) == 2
            assert experiment.log()["reward"].tolist()[0] == 1 and len(experiment.events()) == 3
            assert experiment.explain(made[1].id)["replayed"]
            assert experiment.advise(num_samples=100).period == 2
        with pytest.raises(KeyboardInterrupt), experiment.together():
            experiment.ask()
            assert experiment.remaining == T - 3
            raise KeyboardInterrupt
        assert experiment.remaining == T - 2
