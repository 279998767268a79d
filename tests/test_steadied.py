"""Simulations less their luck: columns of mean zero under any policy, and what they save."""

import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl.certificates import penalties_for
from irsppl.penalties.replay import News, steadied

from .oracles import enumerate as enumeration
from .registry import SMOOTH, made
from .test_penalties import all_outcomes


def played(rewards, seed):
    """Actions [S, T] of a policy that draws its next arm for each history, once and for all."""
    rng = np.random.default_rng(seed)
    count, num_arms, horizon = rewards.shape
    choices, actions = {}, np.zeros((count, horizon), int)
    for s, row in enumerate(rewards):
        history, counts = (), [0] * num_arms
        for t in range(horizon):
            arm = choices.setdefault(history, int(rng.integers(num_arms)))
            history = (*history, (arm, float(row[arm, counts[arm]])))
            counts[arm] += 1
            actions[s, t] = arm
    return actions


CASES = {
    "bernoulli": (
        irsppl.Bandit(irsppl.BetaBernoulli([3.0, 1.0], [1.0, 2.0]), 5),
        enumeration.Problem(enumeration.BetaBernoulli([3.0, 1.0], [1.0, 2.0]), 5),
    ),
    "categorical": (
        irsppl.Bandit(irsppl.DirichletCategorical([[1.0, 2, 1], [2, 0.5, 1]], [0.0, 0.5, 1.0]), 3),
        enumeration.Problem(
            enumeration.DirichletCategorical([[1.0, 2, 1], [2, 0.5, 1]], [0.0, 0.5, 1.0]), 3
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_news_has_mean_zero_under_any_policy(case, seed):
    """By enumeration of all outcomes, to rounding (the tables' float32 does not matter)."""
    bandit, problem = CASES[case]
    batch, probabilities, _ = all_outcomes(problem)
    columns = News(bandit)(batch, played(np.asarray(batch.rewards), seed))
    # The first and the last column need the true means, which are not enumerated.
    mean = probabilities @ columns[:, 1:-1]
    assert np.abs(columns[:, 1:-1]).max() > 0.05
    np.testing.assert_allclose(mean, 0, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_steadied_figures_of_every_family(name):
    """Paired z-score of raw against steadied: beyond 5 with probability 6e-7, the seed is fixed."""
    bandit = irsppl.Bandit(made(name), 20)
    data = irsppl.simulate(bandit, ["greedy", "ts"], key=1, num_replications=2000)
    for figure in ("value", "regret"):
        raw, steady = data[figure].values, data[f"steadied_{figure}"].values
        apart = raw - steady
        score = apart.mean(axis=1) / apart.std(axis=1) * np.sqrt(apart.shape[1])
        assert np.all(np.abs(score) < 5)
        assert np.all(steady.std(axis=1) <= raw.std(axis=1))
    spread = data["steadied_value"].values.std(axis=1)
    assert np.all(spread < 0.8 * data["value"].values.std(axis=1))


def test_the_optimal_policy_is_found_to_earn_the_optimum():
    """4 standard errors: a false alarm once in 16,000; the error is a third of the plain one."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    data = irsppl.simulate(bandit, "opt", key=5, num_replications=2000)
    raw, steady = data["regret"].values[0], data["steadied_regret"].values[0]
    assert steady.std() < raw.std() / 3
    value = data["steadied_value"].values[0]
    optimum = irsppl.bound(bandit, "ideal").value
    assert abs(value.mean() - optimum) < 4 * value.std() / np.sqrt(len(value))
    table = irsppl.summary(data)
    assert table["regret s.e."].iloc[0] == pytest.approx(steady.std(ddof=1) / np.sqrt(len(steady)))


def test_functions_are_steadied_and_fixed_truths_are_not():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]), 20)

    def in_turn(key, bandit):
        return bandit.period % 3

    data = irsppl.simulate(bandit, in_turn, num_replications=300)
    # The value of always the same counts is explained by the news and the best arm alone.
    assert data["steadied_value"].std() < 0.5 * data["value"].std()
    fixed = irsppl.simulate(bandit, "ts", num_replications=20, means=[0.2, 0.5, 0.6])
    plain = irsppl.simulate(bandit, "ts", num_replications=20, steadied=False)
    assert "steadied_value" not in fixed and "steadied_value" not in plain


def test_certificates_use_the_steadied_value():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]), 20)
    certificate = irsppl.certify(bandit, "greedy", "irs.ff", num_replications=1000)
    data = irsppl.simulate(bandit, "greedy", num_replications=1000)
    plain = float(data["regret"].std()) / np.sqrt(1000)
    assert certificate.lower.stderr < plain / 2


def test_efforts():
    """Each effort names its penalty, and what the next one would cost."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]), 20)
    sizes = {"num_replications": 400, "num_samples": 400}
    told = {e: irsppl.certify(bandit, "greedy", effort=e, **sizes) for e in ("quick", "standard")}
    assert told["quick"].penalty in ("irs.ff", "irs.v-zero") and "irs.v-solo" in told["quick"].more
    assert told["standard"].penalty == "irs.v-solo" and "irs.v-fit" in told["standard"].more
    assert told["standard"].upper < told["quick"].upper
    assert penalties_for(bandit, "best") == ["irs.v-fit"]
    late = irsppl.Bandit(bandit.belief, 20, delay=2)
    assert penalties_for(late, "best") == ["irs.v-fit", *penalties_for(late, "quick")]
    joint = irsppl.Bandit(irsppl.LinearGaussian(np.eye(2), np.zeros(2), np.eye(2), 1.0), 20)
    assert penalties_for(joint, "best") == penalties_for(joint, "standard")
    assert penalties_for(joint, "standard") == ["irs.v-solo", *penalties_for(joint, "quick")]
    with pytest.raises(ValueError, match="unknown effort 'most'; known: best, quick, standard"):
        irsppl.certify(bandit, "greedy", effort="most")


def test_few_paths_are_steadied_without_bias():
    """Where paths that stand out in the columns also stand out in what these leave: 2,000 runs of
    40 paths. A mean beyond four standard errors: once in 16,000; the error off by 6: less."""
    rng = np.random.default_rng(0)
    columns = rng.uniform(-np.sqrt(3), np.sqrt(3), (2000, 40, 2))
    runs = np.stack([steadied((own**2).sum(axis=1), own) for own in columns])
    means, error = runs.mean(axis=1), np.sqrt((runs.var(axis=1, ddof=1) / 40).mean())
    assert abs(means.mean() - 2) < 4 * means.std() / np.sqrt(2000)
    assert means.std() == pytest.approx(error, rel=0.1)


def test_too_few_paths_are_left_as_they_are():
    raw, columns = np.arange(30.0), np.ones((30, 2)) * jnp.arange(30)[:, None]
    np.testing.assert_array_equal(steadied(raw, np.asarray(columns)), raw)


def test_steadied_is_yes_or_no():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 5)
    with pytest.raises(ValueError, match="steadied must be True or False, got 'no'"):
        irsppl.simulate(bandit, "ts", num_replications=10, steadied="no")
