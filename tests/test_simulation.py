"""Simulation: the paper's figures, shared outcomes, separate streams, bounded memory."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import irsppl
from irsppl.futures import chunks, draw_outcomes
from irsppl.policies import POLICIES, Policy, find_policy
from irsppl.policies.paths import play_traced, segments
from irsppl.simulation import _account

from .conftest import within
from .oracles import numpy_paths
from .oracles import paper as paper_rules


def arms(num_arms=2, horizon=200):
    return irsppl.Bandit(irsppl.BetaBernoulli(np.ones(num_arms), np.ones(num_arms)), horizon)


def regret(data, policy):
    sample = data["regret"].sel(policy=policy).values
    return sample.mean(), sample.std(ddof=1) / np.sqrt(len(sample))


def test_two_bernoulli_arms_reproduce_the_independent_figures(paper):
    """TS 3.55 (0.006), Index 2.387 (0.008), OPT 2.23925 at T = 200; 4 combined standard errors."""
    known = paper["independent"]["bernoulli_2"]
    data = irsppl.simulate(arms(), ["ts", "irs.index", "opt"], key=1, num_replications=20_000)
    within(*regret(data, "ts"), *known["TS"])
    within(*regret(data, "irs.index"), *known["IRS.Index"])
    within(*regret(data, "opt"), *known["OPT"])


def test_two_gaussian_arms_reproduce_the_independent_figure(paper):
    """TS 7.72 (0.018)."""
    bandit = irsppl.Bandit(irsppl.NormalNormal([0.0, 0.0], [1.0, 1.0], [1.0, 1.0]), 200)
    data = irsppl.simulate(bandit, ["ts"], key=2, num_replications=20_000)
    within(*regret(data, "ts"), *paper["independent"]["gaussian_2"]["TS"])


@pytest.mark.parametrize(
    ("policy", "rule", "horizon", "paths"),
    [
        ("irs.fh", numpy_paths.simulate_path, 60, 600),
        ("irs.v-zero", numpy_paths.simulate_path, 60, 400),
        ("irs.v-emax", paper_rules.simulate_path, 7, 60),
        ("irs.index", numpy_paths.simulate_path, 10, 200),
    ],
)
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_policies_earn_what_the_plain_numpy_ones_do(policy, rule, horizon, paths, family):
    """Regret of ours and of the paper's pseudo-code on the same outcomes; 4 paired s.e."""
    if family == "bernoulli":
        belief = irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0])
        prior = paper_rules.Bernoulli([1.0, 2.0], [1.0, 1.0])
    else:
        belief = irsppl.NormalNormal([0.0, 0.2], [1.0, 0.5], [1.0, 0.5])
        prior = paper_rules.Gaussian([0.0, 0.2], [1.0, 0.5], [1.0, 0.5])
    bandit = irsppl.Bandit(belief, horizon)
    data = irsppl.simulate(bandit, [policy], key=6, num_replications=paths)
    outcomes = draw_outcomes(bandit, jax.random.key(6), 0, paths)
    means, rewards = np.asarray(outcomes.means, float), np.asarray(outcomes.rewards, float)
    rng = np.random.default_rng(1)
    theirs = [
        paper_rules.regret(rule(policy, prior, means[s], rewards[s], rng), means[s])
        for s in range(paths)
    ]
    difference = data["regret"].values[0] - np.array(theirs)
    within(difference.mean(), difference.std(ddof=1) / np.sqrt(paths), 0.0)


def test_more_futures_help_the_index():
    """Ten arms, T = 300, same outcomes: M = 4 has less regret than M = 1, by over 3 paired s.e."""
    policies = {"one": irsppl.Index(), "four": irsppl.Index(num_futures=4)}
    data = irsppl.simulate(arms(10, 300), policies, key=3, num_replications=1500)
    gain = (data["regret"].sel(policy="one") - data["regret"].sel(policy="four")).values
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_no_policy_beats_the_optimum():
    """Every policy's value stays below V*, and `random` loses to the planning ones; 4 s.e."""
    bandit = arms(2, 30)
    optimum = irsppl.bound(bandit, "ideal").value
    benchmark = irsppl.bound(bandit, "ts").value
    names = sorted(set(POLICIES) - {"ts-ratio"})  # for budgets
    data = irsppl.simulate(bandit, names, key=4, num_replications=2000)
    for name in names:
        mean, error = regret(data, name)
        assert benchmark - mean <= optimum + 4 * error, name
    worst = regret(data, "random")[0]
    assert all(regret(data, n)[0] < worst for n in names if n != "random")


def test_adding_a_policy_changes_no_other():
    bandit = arms(3, 20)
    alone = irsppl.simulate(bandit, ["ts"], num_replications=500)
    among = irsppl.simulate(bandit, ["irs.fh", "ts", "irs.v-zero"], num_replications=500)
    np.testing.assert_array_equal(alone["value"].sel(policy="ts"), among["value"].sel(policy="ts"))
    relabelled = irsppl.simulate(bandit, {"other": "ts"}, num_replications=500)
    assert (relabelled["value"].values != alone["value"].values).any()


def test_replication_s_depends_on_key_and_s_only():
    bandit = arms(3, 20)
    few = irsppl.simulate(bandit, ["ts", "irs.index"], key=7, num_replications=40)
    many = irsppl.simulate(bandit, ["ts", "irs.index"], key=7, num_replications=3000)
    for name in ("value", "reward", "regret"):
        np.testing.assert_array_equal(few[name], many[name][:, :40])
    other = irsppl.simulate(bandit, ["ts"], key=8, num_replications=40)
    assert (other["value"].values != few["value"].values[:1]).any()


def test_accounts_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    means, rewards = rng.random((5, 3)), rng.random((5, 3, 8))
    actions = rng.integers(0, 3, (5, 8))
    row = _account(actions, means, rewards, 8 * means.max(axis=1), per_period=True)
    for s in range(5):
        pulls, value, reward = [0, 0, 0], 0.0, 0.0
        for arm in actions[s]:
            value += means[s, arm]
            reward += rewards[s, arm, pulls[arm]]
            pulls[arm] += 1
        assert row["pulls"][s].tolist() == pulls
        assert row["value"][s] == pytest.approx(value)
        assert row["reward"][s] == pytest.approx(reward)
        assert row["regret"][s] == pytest.approx(8 * means[s].max() - value)
    lost = means.max(axis=1)[:, None] - np.take_along_axis(means, actions, axis=1)
    np.testing.assert_allclose(row["period"], [lost.sum(axis=0), (lost**2).sum(axis=0)])


@pytest.mark.parametrize(
    ("name", "horizon", "paths"),
    [
        ("ts", 12, 1500),
        ("irs.fh", 12, 1500),
        ("irs.v-zero", 16, 1500),  # in segments, each of them compiled
        ("irs.index", 6, 800),
        ("irs.v-emax", 3, 800),
    ],
)
def test_compiled_and_traced_paths_have_one_law(name, horizon, paths):
    """Mean regret of the CPU kernel and of the JAX program on the same outcomes; 4 paired s.e."""
    bandit = arms(2, horizon)
    compiled = irsppl.simulate(bandit, [name], key=5, num_replications=paths)

    class Traced(Policy):
        name = "traced"

        def __call__(self, key, bandit):
            return find_policy(name)(key, bandit)

        @property
        def grows(self):
            return True

    traced = irsppl.simulate(bandit, {"traced": Traced()}, key=5, num_replications=paths)
    difference = (compiled["regret"].values - traced["regret"].values)[0]
    within(difference.mean(), difference.std(ddof=1) / np.sqrt(paths), 0.0)


def test_segments_cover_the_horizon_with_arrays_large_enough():
    for horizon in (1, 5, 16, 17, 200, 501):
        left = horizon
        for size, length in segments(horizon, grows=True):
            assert size >= left
            left -= length
        assert left == 0


def test_traced_paths_see_the_rewards_in_order_of_pulls():
    """Arm 0 pays 1, 2, 3, ... : win-stay sees them in that order, in every segment."""
    bandit = irsppl.Bandit(irsppl.NormalNormal([0.0, 0.0], [1e3, 1e3], [1e-3, 1e-3]), 20)

    def look(key, bandit):
        return jax.numpy.where(bandit.belief.mean[0] >= 0, 0, 1)

    rewards = np.stack([np.arange(20.0), np.zeros(20)])[None]
    rewards[0, 0, 7] = -1e6  # from here on arm 1
    keys = jax.random.split(jax.random.key(0), 1)
    actions = play_traced(find_policy(look), bandit, jax.numpy.asarray(rewards), keys)
    actions = np.asarray(actions)[0]
    assert actions.tolist() == [0] * 8 + [1] * 12


def test_a_fixed_truth_gives_operating_characteristics():
    bandit = arms(2, 60)
    data = irsppl.simulate(bandit, ["ts", "opt"], means=[0.2, 0.7], num_replications=800)
    np.testing.assert_allclose(data["true_mean"], [0.2, 0.7])
    np.testing.assert_allclose((data["value"] + data["regret"]).values, 60 * 0.7, rtol=1e-5)
    share = data["pulls"].sel(arm="1").mean("replication") / 60
    assert (share > 0.75).all()
    difference = (data["reward"] - data["value"]).sel(policy="ts").values
    within(difference.mean(), difference.std() / np.sqrt(800), 0.0)


def test_regret_of_each_period_adds_up():
    data = irsppl.simulate(arms(3, 25), ["ts", "greedy"], num_replications=700, per_period=True)
    np.testing.assert_allclose(
        data["period_regret"].sum("period"), data["regret"].mean("replication"), rtol=1e-5
    )
    assert data["period_regret"].dims == ("policy", "period") and data.sizes["period"] == 25


def test_results_are_labelled():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1, 1], [1, 1]), 5, labels=["old", "new"])
    data = irsppl.simulate(bandit, {"a": "ts", "b": irsppl.Index(2)}, num_replications=11)
    assert data["pulls"].dims == ("policy", "replication", "arm")
    assert data["arm"].values.tolist() == ["old", "new"]
    assert data["policy"].values.tolist() == ["a", "b"]
    assert (data["pulls"].sum("arm") == 5).all()
    table = irsppl.summary(data)
    assert list(table.columns) == ["value", "value s.e.", "regret", "regret s.e."]


def test_simulation_goes_on_from_a_state_in_play():
    bandit = arms(2, 30).pull(0, 1).pull(1, 0)
    data = irsppl.simulate(bandit, ["ts", "irs.v-zero"], num_replications=50)
    assert (data["pulls"].sum("arm") == 28).all() and data.attrs["horizon"] == 28


def test_chunks_bound_the_memory():
    bandit = arms(10, 500)
    plan = chunks(bandit, 20_000)
    assert sum(stop - start for start, stop, _ in plan) == 20_000
    assert max(size for *_, size in plan) * 10 * 500 * 4 <= 64 * 2**20


def test_twenty_thousand_long_paths_stay_below_two_gigabytes():
    """In a fresh process, by the kernel's high-water mark of its own memory.

    Futures take the memory, whatever the policy: two that plan play more than one chunk of them.
    """
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs /proc (elsewhere a child inherits its parent's high-water mark)")
    code = (
        "import irsppl, numpy as np, re\n"
        "b = irsppl.Bandit(irsppl.BetaBernoulli(np.ones(10), np.ones(10)), 500)\n"
        "irsppl.simulate(b, ['greedy'], num_replications=20_000)\n"
        "irsppl.simulate(b, ['ts', 'irs.fh'], num_replications=4_000)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}  # they draw for seconds
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kilobytes = int(out.stdout.split()[-1])
    assert kilobytes < 2 * 2**20, f"{kilobytes / 2**20:.2f} GB"
