"""Advice, logs and off-policy estimates: what is stated holds, at the stated rate."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.optimize import linprog

import irsppl
from irsppl.live import advice, logs, store
from irsppl.live.decide import decide, plan_for
from irsppl.live.journal import Event
from irsppl.live.state import State
from irsppl.penalties import reward_sds
from irsppl.policies import find_policy

T = 20


def bernoulli(horizon=T, **options):
    return irsppl.Bandit(irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5]), horizon, **options)


def play(bandit, policy, means, rng, periods, seed, floor=0.0):
    """Events of a course of play, in memory; each reward is told before the next question."""
    plan = plan_for(find_policy(policy), seed, floor, bandit)
    state, events = State(bandit), []
    for period in range(periods):
        choice = decide(plan, state)
        ask = Event(
            state.seq, "ask", 0.0, period=period, arm=choice.arm, propensity=choice.propensity
        )
        reward = float(rng.random() < means[choice.arm])
        for event in (ask, Event(ask.seq + 1, "tell", 0.0, period=period, reward=reward)):
            state.apply(event)
            events.append(event)
    return state, events


# ------------------------------------------------------------------ the same play as simulate's


def through_experiment(folder, bandit, policy, replications, delay=0):
    """Regret of play through ask and tell, under truths drawn from the prior."""
    rng = np.random.default_rng(5)
    regrets = []
    for number in range(replications):
        means = rng.beta(np.asarray(bandit.belief.alpha), np.asarray(bandit.belief.beta))
        where = folder / f"{number}.db"
        made, value = [], 0.0
        with irsppl.Experiment.create(where, bandit, policy, seed=number) as experiment:
            for period in range(bandit.horizon):
                if period > delay:
                    late = made[period - delay - 1]
                    experiment.tell(late.id, int(rng.random() < means[late.arm]))
                made.append(experiment.ask())
                value += means[made[-1].arm]
        where.unlink()
        regrets.append(bandit.horizon * means.max() - value)
    return np.array(regrets)


@pytest.mark.parametrize("delay, replications", [(0, 100), (4, 40)])
def test_regret_through_an_experiment_is_that_of_simulate(
    tmp_path, monkeypatch, delay, replications
):
    """|z| at most 3.9, false alarms 1e-4 each. Without waiting for the disk: that is not tested."""
    monkeypatch.setattr(store, "_PRAGMAS", ("journal_mode=OFF", "synchronous=OFF"))
    bandit = bernoulli(delay=delay or None)
    regret = through_experiment(tmp_path, bandit, "irs.index", replications, delay)
    data = irsppl.simulate(bandit, "irs.index", num_replications=1000)["regret"].values[0]
    error = math.hypot(*(x.std(ddof=1) / math.sqrt(len(x)) for x in (regret, data)))
    assert abs(regret.mean() - data.mean()) < 3.9 * error


# ------------------------------------------------------------------ advice


def test_the_stated_loss_holds_at_the_stated_rate():
    """300 simulated experiments, stopped in the middle: with a rate of 95 % the count that hold is
    Binomial(300, 0.95); below 271 has probability 1e-4."""
    rng = np.random.default_rng(1)
    bandit, held, certain = bernoulli(), 0, []
    for number in range(300):
        means = rng.beta(np.asarray(bandit.belief.alpha), np.asarray(bandit.belief.beta))
        state, _ = play(bandit, "ts", means, rng, 8, number)
        now = state.bandit()
        stop = advice.stopping(now, jax.random.key(number))
        held += int(now.remaining) * (means.max() - means[stop.arm]) <= stop.loss_95
        if number < 5:  # what the best of all policies earns, computed exactly
            told = advice.advise(now, key=number, num_samples=100)
            assert (told.value, told.loss_95) == (stop.value, stop.loss_95)
            certain.append(irsppl.bound(now, "ideal").value - told.value - told.loss)
    assert held >= 271
    assert max(certain) <= 0


def test_advice_says_what_it_should():
    bandit = bernoulli()
    for arm, reward in ((0, 1), (1, 0), (0, 1), (2, 0)) * 2:
        bandit = bandit.pull(arm, reward)
    told = advice.advise(bandit, num_samples=100)
    assert told.best == "0" and told.remaining == 12
    assert told.value == pytest.approx(12 * 7 / 8, rel=1e-6)
    assert sum(arm.best for arm in told.arms) == pytest.approx(1)
    for arm, (a, b) in zip(told.arms, [(7, 1), (1, 3), (1.5, 4.5)], strict=True):
        low, high = np.quantile(np.random.default_rng(0).beta(a, b, 200_000), [0.025, 0.975])
        assert arm.interval == pytest.approx((low, high), abs=0.03)
    assert 0 <= told.loss < 0.01 and told.loss_95 >= 0
    assert told.loss == max(0.0, told.bound + 2 * told.bound_stderr - told.value)
    assert "0 is the best arm" in told.text and "95 %" in told.text
    assert set(told.to_dict()) >= {"loss", "share", "text", "history", "arms"}


def test_advice_rests_on_samples_enough_for_a_standard_error():
    """Two futures of one Bernoulli pull are alike half of the time."""
    with pytest.raises(ValueError, match="num_samples must be at least 30, got 2"):
        advice.advise(bernoulli(), num_samples=2)


@pytest.mark.filterwarnings("ignore:the mean reward of arm 0 has an infinite variance")
def test_advice_where_a_mean_has_no_variance():
    """Stopping is a policy: no bound lies below what it earns, as a sampled one did here, by two
    standard errors, so that stopping was said to cost 0 at most."""
    belief = irsppl.GammaExponential([1.2, 4.0], [1.0, 1.0])
    told = advice.advise(irsppl.Bandit(belief, 8), num_samples=1000)
    assert told.bound_stderr == 0 and told.loss == pytest.approx(told.bound - told.value)
    assert told.value == pytest.approx(40, rel=1e-5) and told.loss > 0


def test_advice_under_constraints():
    belief = irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5])
    late = irsppl.Bandit(belief, T, delay=4).pull(0).pull(1)
    assert advice.advise(late, num_samples=100).loss > 0
    pending = irsppl.Bandit(belief, T).pull(0).pull(1)
    assert advice.advise(pending, num_samples=100).loss > 0
    unknown = irsppl.Bandit(belief, np.array([1, 0.5, 0.25])).pull(0, 1)
    told = advice.advise(unknown, num_samples=100)
    assert told.value == pytest.approx(1.5 * 4 / 5, rel=1e-6) and told.remaining == 2
    assert told.pulls == 1.5 and "playing it 1.5 times" in told.text
    dear = advice.advise(irsppl.Bandit(belief, costs=[1.2, 1.0, 1.5], budget=12), num_samples=100)
    assert dear.remaining == 12 and "playing it 10 times" in dear.text
    losses = irsppl.NormalNormal([-1.0, -2.0], [1e-3, 1e-3], [1.0, 1.0])
    idle = advice.advise(irsppl.Bandit(losses, costs=[1, 1], budget=9), num_samples=100)
    assert idle.pulls == idle.value == 0 and "keeping the money earns 0;" in idle.text
    sure = advice.advise(irsppl.Bandit(losses, 9), num_samples=100).text
    assert "9 periods that remain earns -9;" in sure and "Little can be gained" in sure
    money = irsppl.Bandit(belief, costs=[1.0, 2.0, 1.5], budget=12)
    told = advice.advise(money, num_samples=100)
    assert told.value == pytest.approx(12 * 0.75, rel=1e-6)
    means = np.random.default_rng(0).normal(size=(20, 3))
    costs = np.asarray(money.purse.costs)
    for row, found in zip(means, advice._best_knowing(money, means), strict=True):
        limits = [int(money.purse.money), int(money.remaining)]
        exact = linprog(-row, A_ub=[costs, np.ones(3)], b_ub=limits)
        assert found == pytest.approx(-exact.fun, abs=1e-6)


def test_rewards_of_a_retired_arm_that_may_yet_come_are_in_the_bound(tmp_path):
    # Arm 0 pays nothing for sure, arms 1 and 2 pay the same theta ~ N(0, 1). Two rewards of arm 1
    # come before the last decision: its value is E max(0, N(0, 2/3)), though arm 1 has retired.
    belief = irsppl.LinearGaussian(
        features=[[1, 0], [0, 1], [0, 1]], mean=[0, 0], cov=[[1e-6, 0], [0, 1]], noise_sd=1.0
    )
    with irsppl.Experiment.create(
        tmp_path / "x.db", irsppl.Bandit(belief, 4), "random", seed=11
    ) as experiment:
        first, *awaited = experiment.ask(3)
        assert (first.arm, *(one.arm for one in awaited)) == (0, 1, 1)
        experiment.tell(first.id, 0.0)
        experiment.retire_arm("1")
        found = experiment.advise(num_samples=1000)
    assert [arm.label for arm in found.arms] == ["0", "2"]
    best = math.sqrt(2 / 3 / (2 * math.pi))
    assert found.bound + 4 * found.bound_stderr > best  # false alarms: 3e-5
    assert found.bound - 4 * found.bound_stderr < 1.2 * best


def test_advice_of_an_experiment_has_a_history(tmp_path):
    with irsppl.Experiment.create(tmp_path / "shop.db", bernoulli()) as experiment:
        first = experiment.advise(100)
        assert first.history == () and first.period == 0
        experiment.advise(100)
        for _ in range(8):
            experiment.tell(experiment.ask().id, 1)
        second = experiment.advise(100)
        assert [row["period"] for row in second.history] == [0]
        assert second.history[0]["loss"] == first.loss > second.loss
        assert "At period 0" in second.text
    with irsppl.Experiment.open(tmp_path / "shop.db") as again:
        assert [row["period"] for row in again.advise(100).history] == [0, 8]


# ------------------------------------------------------------------ logs


def test_the_log(tmp_path):
    bandit = bernoulli(labels=["a", "b", "c"])
    with irsppl.Experiment.create(tmp_path / "shop.db", bandit, "ts", floor=0.1) as experiment:
        made = experiment.ask(5)
        experiment.tell(made[3].id, 1)
        experiment.tell(made[0].id, 1)
        experiment.tell(made[0].id, 0, correct=True)
        table = experiment.log()
        assert list(table.columns) == list(logs.COLUMNS)
        assert table["decision"].tolist() == [d.id for d in made]
        assert table["arm"].tolist() == [d.arm for d in made]
        assert table["propensity"].tolist() == [d.propensity for d in made]
        rewards = table["reward"].tolist()
        assert rewards[0] == 0 and rewards[3] == 1 and np.isnan(rewards[1])
        assert (table["told_at"] >= table["asked_at"]).sum() == 2
        obp = experiment.log("obp")
        assert obp["n_rounds"] == 2 and obp["n_actions"] == 3
        assert obp["reward"].tolist() == [0, 1]
        assert obp["pscore"].tolist() == [made[0].propensity, made[3].propensity]
        with pytest.raises(ValueError, match="format"):
            experiment.log("excel")
        assert set(experiment.evaluate("a")) == {"ips", "snips", "dr"}
        for target, told in (
            ({"a": 0.5}, "add up to 1"),
            ({"x": 1.0}, "unknown arms"),
            ([0.5, 0.5], "add up to 1"),
            ([math.nan, 0.5, 0.5], "add up to 1"),
            ("no such", "unknown policy"),
        ):
            with pytest.raises(ValueError, match=told):
                experiment.evaluate(target)


def test_off_policy_estimates_are_unbiased():
    """300 logs of 60 decisions under a known truth; |z| at most 4.2 for four means (1e-4 in all),
    and 95 % intervals, which in logs this short cover 95 % (measured): below 88 % or above 98 % of
    300 logs has probability 3e-3 then."""
    means = np.array([0.3, 0.5, 0.7])
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3), 60)
    labels, rng = bandit.arm_labels, np.random.default_rng(3)
    gaps = {("fixed", "ips"): [], ("fixed", "dr"): [], ("policy", "ips"): [], ("policy", "dr"): []}
    covered = []
    target = np.array([0.6, 0.2, 0.2])
    for number in range(300):
        _, events = play(bandit, "irs.index", means, rng, 60, number, floor=0.1)
        found = logs.evaluate(events, bandit, labels, target)
        for name in ("ips", "dr"):
            gaps["fixed", name].append(found[name].value - target @ means)
        low, high = found["dr"].interval()
        covered.append(low <= target @ means <= high)
        if number < 40:
            plan, then, truth = plan_for(find_policy("ts"), 9, 0.0, bandit), State(bandit), []
            for event in events:
                if event.kind == "ask":
                    truth.append(decide(plan, then).shares @ means)
                then.apply(event)
            found = logs.evaluate(events, bandit, labels, "ts", seed=9)
            for name in ("ips", "dr"):
                gaps["policy", name].append(found[name].value - np.mean(truth))
    for name, gap in gaps.items():
        z = np.mean(gap) / (np.std(gap, ddof=1) / math.sqrt(len(gap)))
        assert abs(z) < 4.2, (name, z)
    assert 0.88 <= np.mean(covered) <= 0.98


def test_a_few_rewards_that_are_alike_do_not_make_an_estimate_sure():
    """60 logs in which an arm that seldom pays is played seven times. 95 % intervals of ips and
    snips covered in all of 300 other logs, and in 59 % without the belief. Were it 99 %, under
    90 % would have probability 1e-5."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3), 60)
    means, rng, covered = [0.1, 0.5, 0.7], np.random.default_rng(8), []
    for number in range(60):
        _, events = play(bandit, "ts", means, rng, 60, number, floor=0.1)
        found = logs.evaluate(events, bandit, bandit.arm_labels, "0")
        limits = [found[name].interval() for name in ("ips", "snips")]
        covered.append([low <= means[0] <= high for low, high in limits])
    assert np.mean(covered, axis=0).min() >= 0.9


def test_rewards_too_rare_to_be_seen_do_not_make_an_estimate_sure():
    """60 logs of 150 decisions in which an arm that pays in 1 % of cases, as its prior says, is
    played 15 times. Of 300 other logs 20 % of the intervals covered without the belief, and all
    with it: below 90 % has probability 1e-5 were it 99 %."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [99.0] * 3), 150)
    means, rng, covered = [0.01, 0.02, 0.03], np.random.default_rng(2), []
    for number in range(60):
        _, events = play(bandit, "greedy", means, rng, 150, number, floor=0.1)
        found = logs.evaluate(events, bandit, bandit.arm_labels, "0")
        limits = [found[name].interval() for name in ("ips", "snips", "dr")]
        covered.append([low <= means[0] <= high for low, high in limits])
    assert np.mean(covered, axis=0).min() >= 0.9


def wins(reward=None):
    skill = numpyro.sample("skill", dist.Normal(0.0, 1.5))
    numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)


def test_what_is_believed_of_the_next_reward():
    """Its standard deviation by SciPy."""
    numbers = {
        irsppl.BetaBernoulli: ([2.0, 0.5], [3.0, 9.0]),
        irsppl.NormalNormal: ([0.0, 1.0], [0.5, 2.0], [3.0, 0.1]),
        irsppl.GammaPoisson: ([2.0, 0.5], [3.0, 9.0]),
        irsppl.GammaExponential: ([4.0, 3.5], [3.0, 9.0]),
        irsppl.NormalInverseGamma: ([0.0, 1.0], [2.0, 0.5], [3.0, 4.0], [1.0, 2.0]),
    }
    laws = {
        irsppl.BetaBernoulli: lambda a, b: stats.bernoulli(a / (a + b)),
        irsppl.NormalNormal: lambda m, s, noise: stats.norm(m, math.hypot(s, noise)),
        irsppl.GammaPoisson: lambda a, b: stats.nbinom(a, b / (1 + b)),
        irsppl.GammaExponential: lambda a, b: stats.lomax(a, scale=b),
        irsppl.NormalInverseGamma: lambda m, k, a, b: stats.t(
            2 * a, m, math.sqrt(b / a * (1 + 1 / k))
        ),
    }
    for kind, given in numbers.items():
        wanted = [laws[kind](*arm).std() for arm in zip(*given, strict=True)]
        assert reward_sds(kind(*given)) == pytest.approx(wanted, rel=1e-5), kind
    values, alpha = np.array([0.0, 1.0, 5.0]), np.array([[1.0, 2.0, 3.0], [0.5, 0.1, 0.2]])
    share = alpha / alpha.sum(axis=1, keepdims=True)
    wanted = np.sqrt(share @ values**2 - (share @ values) ** 2)
    assert reward_sds(irsppl.DirichletCategorical(alpha, values)) == pytest.approx(wanted, rel=1e-5)
    two = irsppl.LinearGaussian(features=[[1, 0], [1, 2]], mean=[0, 0], cov=np.eye(2), noise_sd=0.5)
    assert reward_sds(two) == pytest.approx(np.sqrt([1.25, 5.25]), rel=1e-6)
    points = irsppl.from_numpyro(wins, num_arms=2)
    assert reward_sds(points) == pytest.approx([0.5, 0.5], rel=1e-5)


class Coin:
    """An agent: what it has been told is all it knows."""

    def pull(self):
        return 0

    def update(self, arm, reward):
        pass


def test_functions_of_any_kind_are_asked_at_each_moment(tmp_path):
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.1, 1.2], [1.0, 1.0, 1.0]), 40)
    rng = np.random.default_rng(0)
    with irsppl.Experiment.create(tmp_path / "a.db", bandit, "ts", seed=1, floor=0.1) as log:
        for _ in range(24):
            decision = log.ask()
            log.tell(decision.id, int(rng.random() < 0.5))

        def best(key, bandit):  # NumPy: JAX cannot trace it
            return int(np.argmax(np.asarray(bandit.belief.predictive_mean())))

        assert log.evaluate(best) == log.evaluate("greedy")
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        tossed = log.evaluate(lambda key, bandit: int(np.random.randint(3)))  # noqa: NPY002
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
        assert tossed == log.evaluate(lambda key, bandit: int(np.random.randint(3)))  # noqa: NPY002
        alike, one = log.evaluate([1 / 3] * 3)["ips"], log.evaluate("0")["ips"]
        assert tossed["ips"].effective > (alike.effective + one.effective) / 2
        for arm, told in (
            (-1, "play may stop only"),
            (7, "arms are 0 to 2"),
            (0.5, "whole number"),
        ):
            for function in (
                lambda key, bandit, arm=arm: arm,
                lambda *_, arm=arm: jnp.asarray(arm),
            ):
                with pytest.raises(ValueError, match=told):
                    log.evaluate(function)
        with pytest.raises(ValueError, match="has not been told of this log"):
            log.evaluate(irsppl.policies.from_agent(Coin()))
        with pytest.raises(ValueError, match="seed must be"):
            log.evaluate("ts", seed=-1)
        with pytest.raises(ValueError, match="level must"):
            one.interval("0.9")


def test_decisions_before_an_arm_came_and_after_it_left_do_not_count(tmp_path):
    """Eight runs; 4 standard errors for each of four means."""
    truth, found = {"a": 0.3, "b": 0.6, "c": 0.9}, []
    for seed in range(8):
        bandit = irsppl.Bandit(irsppl.BetaBernoulli([1, 1], [1, 1]), 300, labels=["a", "b"])
        path = tmp_path / f"{seed}.db"
        experiment = irsppl.Experiment.create(path, bandit, policy="ts", seed=seed, floor=0.2)
        rng = np.random.default_rng(seed)

        def go(count, experiment=experiment, rng=rng):
            with experiment.together():
                for _ in range(count):
                    decision = experiment.ask()
                    experiment.tell(decision.id, int(rng.random() < truth[decision.label]))

        go(60)
        experiment.add_arm(irsppl.BetaBernoulli([1], [1]), label="c")
        go(100)
        late, mixed = experiment.evaluate("c"), experiment.evaluate({"a": 0.5, "c": 0.5})
        experiment.retire_arm("a")
        go(40)
        early = experiment.evaluate("a")
        experiment.close()
        assert (late["ips"].decisions, late["ips"].left_out) == (100, 60)
        assert (early["dr"].decisions, early["dr"].left_out) == (160, 40)
        found.append([late["ips"].value, late["dr"].value, mixed["ips"].value, early["ips"].value])
    errors = np.std(found, axis=0, ddof=1) / math.sqrt(8)
    assert np.all(np.abs(np.mean(found, axis=0) - [0.9, 0.9, 0.6, 0.3]) < 4 * errors)


def test_a_log_that_never_played_an_arm_does_not_say_how_far_off_it_is(tmp_path):
    """The floor gave the arm a chance in each decision, so there is nothing to warn of."""
    belief = irsppl.BetaBernoulli([1.0, 9.0], [9.0, 1.0])
    with irsppl.Experiment.create(tmp_path / "x.db", irsppl.Bandit(belief, T), floor=0.01) as log:
        made = log.ask(4)
        log.tell({decision.id: 1 for decision in made})
        assert {decision.arm for decision in made} == {1}
        for one in log.evaluate("0").values():
            assert one.effective == 0 and math.isnan(one.stderr)
            assert all(map(math.isnan, one.interval()))
        assert not math.isnan(log.evaluate("1")["ips"].stderr)


def test_arms_that_a_log_could_not_have_played_are_told_of():
    """Without a floor ips misses those pulls, and nothing else: 100 logs, |z| at most 4 (6e-5)."""
    means = np.array([0.3, 0.5, 0.7])
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 3, [1.0] * 3), 40)
    labels, rng, gaps = bandit.arm_labels, np.random.default_rng(4), []
    silent = []
    for number in range(100):
        _, events = play(bandit, "ts", means, rng, 40, number)
        made_by = plan_for(find_policy("ts"), number, 0.0, bandit)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = logs.evaluate(events, bandit, labels, labels[0], made_by=made_by)["ips"]
        assert len(told) == (found.unseen > 0)
        silent.append(not told)
        gaps.append(found.value - (1 - found.unseen) * means[0])
    assert np.mean(silent) < 0.5
    assert abs(np.mean(gaps)) < 4 * np.std(gaps, ddof=1) / math.sqrt(len(gaps))


def test_a_floor_reaches_every_arm_that_can_be_paid(tmp_path, recwarn):
    with irsppl.Experiment.create(tmp_path / "a.db", bernoulli(), "greedy", floor=0.1) as one:
        for _ in range(6):
            one.tell(one.ask().id, 1)
        assert one.evaluate("2")["dr"].unseen == 0
    assert not recwarn
    with irsppl.Experiment.create(tmp_path / "b.db", bernoulli(), "greedy") as two:
        played = []
        for reward in (0, 0, 0, 1, 1, 0):
            played.append(two.ask())
            two.tell(played[-1].id, reward)
        with pytest.warns(UserWarning, match="could not have played"):
            found = two.evaluate("1")
    assert found["ips"].unseen == np.mean([decision.label != "1" for decision in played]) > 0
    costly = bernoulli(costs=[2, 2, 5], budget=11)
    with irsppl.Experiment.create(tmp_path / "c.db", costly, "random", floor=0.1) as three:
        short = []
        while three.remaining:
            short.append(int(three.bandit.purse.money) < 5)
            three.tell(three.ask().id, 1)
        with pytest.warns(UserWarning, match="could not have played"):
            assert three.evaluate("2")["ips"].unseen == np.mean(short) > 0


def test_a_corrected_reward_is_believed_from_then_on(tmp_path):
    """By hand: greedy's own log, each of its arms with a propensity of 0.8 or 0.2."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1, 1], [1, 1]), 40)
    rng, rows = np.random.default_rng(0), []
    with irsppl.Experiment.create(tmp_path / "a.db", bandit, "greedy", seed=1, floor=0.2) as one:
        first = one.ask()
        one.tell(first.id, 1)
        one.tell(first.id, 0, correct=True)
        for _ in range(20):
            decision = one.ask()
            one.tell(decision.id, int(rng.random() < 0.5 * (decision.arm == 1)))
        found, log = one.evaluate("greedy"), one.log()
    wins, many = np.ones(2), np.full(2, 2.0)
    for row in log.itertuples():
        mean = wins / many
        weight = (row.arm == np.argmax(mean)) / row.propensity
        assert weight in (0, pytest.approx(1.25))
        rows.append((weight * row.reward, mean.max() + weight * (row.reward - mean[row.arm])))
        wins[row.arm] += row.reward
        many[row.arm] += 1
    ips, robust = np.mean(rows, axis=0)
    assert found["ips"].value == pytest.approx(ips) and found["dr"].value == pytest.approx(robust)
