"""Bad input: a ValueError that names the argument, before any compilation."""

import numpy as np
import pytest

import irsppl

GOOD = irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0])
NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: irsppl.BetaBernoulli([-1.0, 1.0], [1.0, 1.0]), "alpha must be positive"),
        (lambda: irsppl.BetaBernoulli([1.0, 1.0], [1.0, NAN]), "beta must be positive"),
        (lambda: irsppl.BetaBernoulli([1.0, 1.0], [1.0]), "alpha has 2, beta has 1"),
        (lambda: irsppl.BetaBernoulli(1.0, 1.0), "alpha must be one number per arm"),
        (lambda: irsppl.BetaBernoulli([], []), "alpha must not be empty"),
        (lambda: irsppl.BetaBernoulli(["a"], [1.0]), "alpha must be an array of numbers"),
        (lambda: irsppl.NormalNormal([0.0], [0.0], [1.0]), "sd must be positive"),
        (lambda: irsppl.NormalNormal([NAN], [1.0], [1.0]), "mean must be finite"),
        (lambda: irsppl.NormalNormal([0.0], [1.0], [-2.0]), "noise_sd must be positive"),
        (lambda: irsppl.NormalNormal([0.0, 0.0], [1.0], [1.0, 1.0]), "sd has 1"),
        (lambda: irsppl.GammaPoisson([0.0], [1.0]), "shape must be positive"),
        (lambda: irsppl.GammaExponential([1.0], [1.0]), "shape must be greater than 1"),
        (lambda: irsppl.GammaExponential([2.0], [-1.0]), "rate must be positive"),
        (lambda: irsppl.NormalInverseGamma([0.0], [1.0], [0.4], [1.0]), "greater than 1/2"),
        (lambda: irsppl.DirichletCategorical([[1.0, 2.0]], [0.0]), "one entry per category"),
        (lambda: irsppl.DirichletCategorical([1.0, 2.0], [0.0, 1.0]), "alpha must be a table"),
        (lambda: irsppl.DirichletCategorical([[1.0, 0.0]], [0.0, 1.0]), "alpha must be positive"),
        (lambda: irsppl.DirichletCategorical([[1.0, 1.0]], [1.0, 1.0]), "values must be distinct"),
        (lambda: irsppl.Bandit(GOOD, 0), "horizon must be at least 1, got 0"),
        (lambda: irsppl.Bandit(GOOD, 2.5), "horizon must be a whole number"),
        (lambda: irsppl.Bandit(GOOD, -3), "horizon must be at least 1"),
        (lambda: irsppl.Bandit(GOOD, NAN), "horizon must be a whole number"),
        (lambda: irsppl.Bandit("beta", 5), "belief must be an irsppl belief"),
        (lambda: irsppl.Bandit(GOOD, 5, labels=["a"]), "labels must be 2 different names"),
        (lambda: irsppl.Outcome([0.5], [[1, 0], [0, 1]]), "one row per arm"),
        (lambda: irsppl.Outcome([0.5, NAN], [[1], [0]]), "means must be finite"),
        (lambda: irsppl.Outcome(0.5, [1]), r"means must be \[K\].*shapes \(\) and \(1,\)"),
        (lambda: irsppl.Outcome([[0.5]], [[1]]), r"rewards.*shapes \(1, 1\) and \(1, 1\)"),
        (lambda: irsppl.Outcome([[0.5]], [[[1]]], periods=3), "periods must be .* each future"),
        (lambda: irsppl.Outcome([[0.5]], [[[1]]], delays=[[3]]), "delays must be one whole number"),
        (lambda: irsppl.Index(num_futures=0), "num_futures must be at least 1"),
        (lambda: irsppl.Index(lookahead=1.5), "lookahead must be a whole number"),
    ],
)
def test_bad_construction(make, message):
    with pytest.raises(ValueError, match=message):
        make()


BANDIT = irsppl.Bandit(GOOD, 4)
GAUSSIAN = irsppl.Bandit(irsppl.NormalNormal([0.0, 0.0], [1.0, 1.0], [1.0, 1.0]), 4)
SHORT = irsppl.Outcome([0.5, 0.5], [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: irsppl.choose(BANDIT, "thompson"), "unknown policy 'thompson'; known: .*irs.fh"),
        (lambda: irsppl.choose(BANDIT, 3), "policy must be a name"),
        (lambda: irsppl.bound(BANDIT, "irs.vzero"), "unknown penalty 'irs.vzero'; known: .*v-zero"),
        (lambda: irsppl.choose(BANDIT, "irs.ff"), "unknown policy 'irs.ff'"),
        (lambda: irsppl.bound(BANDIT, []), "at least one penalty"),
        (lambda: irsppl.bound(BANDIT, "ts", key="x"), "key must be an int seed or a JAX key"),
        (lambda: irsppl.bound(BANDIT, "zero", num_samples=1), "num_samples must be at least 2"),
        (lambda: irsppl.solve_inner(BANDIT, "irs.fh", SHORT), "at least 4 rewards per arm"),
        (
            lambda: irsppl.solve_inner(BANDIT, "ts", irsppl.Outcome([0.5], [[1, 1, 1, 1]])),
            "outcome has 1 arms, the bandit 2",
        ),
        (
            lambda: irsppl.solve_inner(
                BANDIT, "irs.fh", irsppl.Outcome([0.5, 0.5], np.full((2, 4), 0.5))
            ),
            "must be 0 or 1",
        ),
        (lambda: irsppl.solve_inner(BANDIT, "ts", [[1]]), "outcome must be an irsppl.Outcome"),
        (
            lambda: irsppl.solve_inner(
                BANDIT, "ts", irsppl.Outcome([[0.5, 0.5]], np.ones((1, 2, 4)))
            ),
            "outcome must be one future",
        ),
        (lambda: irsppl.choose(GAUSSIAN, "opt"), "finitely many values.*irs.index"),
        (lambda: irsppl.bound(GAUSSIAN, "ideal"), "finitely many values.*irs.v-zero"),
        (lambda: irsppl.simulate(GAUSSIAN, ["opt"]), "finitely many values"),
        (lambda: BANDIT.pull(2, 1), "arm must be a whole number from 0 to 1, got 2"),
        (lambda: BANDIT.pull(-1, 1), "arm must be a whole number from 0 to 1"),
        (lambda: BANDIT.pull(0.5, 1), "arm must be a whole number"),
        (lambda: BANDIT.pull(0, 0.5), "reward of a Bernoulli arm must be 0 or 1"),
        (lambda: BANDIT.pull(0, NAN), "must be 0 or 1"),
        (lambda: BANDIT.pull([0, 1], [1, 0]), "one arm"),
        (lambda: GAUSSIAN.pull(0, NAN), "reward must be finite"),
        (lambda: GOOD.update(0, 2), "must be 0 or 1"),
        (lambda: GOOD.update(5, 1), "arm must be a whole number from 0 to 1"),
        (lambda: irsppl.GammaPoisson([1.0], [1.0]).update(0, 1.5), "0, 1, 2"),
        (lambda: irsppl.GammaPoisson([1.0], [1.0]).update(0, -1), "0, 1, 2"),
        (lambda: irsppl.GammaExponential([2.0], [1.0]).update(0, -0.1), "not negative"),
        (
            lambda: irsppl.DirichletCategorical([[1.0, 1.0]], [0.0, 2.0]).update(0, 1.0),
            r"one of values = \[0.0, 2.0\]",
        ),
        (lambda: GOOD.sample_outcome(0, 0), "horizon must be at least 1"),
        (lambda: irsppl.simulate(BANDIT, []), "at least one policy"),
        (lambda: irsppl.simulate(BANDIT, ["ts", "ts"]), "label 'ts' twice"),
        (lambda: irsppl.simulate(BANDIT, ["ts"], num_replications=0), "num_replications"),
        (lambda: irsppl.simulate(BANDIT, ["ts"], means=[0.5]), "means must have 2 entries"),
        (lambda: irsppl.simulate(BANDIT, ["ts"], means=[0.5, 1.5]), r"means .* in \[0, 1\]"),
        (lambda: irsppl.simulate(BANDIT.pull(0), ["ts"]), "pending"),
        (
            lambda: irsppl.simulate(
                irsppl.Bandit(irsppl.DirichletCategorical([[1.0, 1, 1]], [0, 1, 2]), 3),
                ["ts"],
                means=[1.0],
            ),
            "means= cannot be used with DirichletCategorical",
        ),
        (lambda: irsppl.certify(BANDIT, ["ts", "greedy"]), "policy must be one policy"),
        (lambda: irsppl.action_probabilities(BANDIT, "ts", num_samples=0), "num_samples"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_policy_that_returns_nonsense_is_told_so():
    with pytest.raises(ValueError, match="must return one arm"):
        irsppl.choose(BANDIT, lambda key, bandit: 0.5)
    with pytest.raises(ValueError, match=r"'far' returned arm 7, but arms are 0 to 1"):
        irsppl.simulate(BANDIT, {"far": lambda key, bandit: 7}, num_replications=4)


def test_certificate_levels():
    certificate = irsppl.certify(BANDIT, "greedy", "ts", num_replications=50, num_samples=50)
    for level in (0, 1, -0.5, 95):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            certificate.interval(level)
