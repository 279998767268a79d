"""The recipes of CONTRIBUTING work as they are written."""

import importlib
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irsppl
from irsppl.engine import dispatch, kernel, makers, verbs
from irsppl.engine.families.registry import MAKERS
from irsppl.engine.verbs import implements
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu import compiling
from irsppl.inner.cpu.rng import streams
from irsppl.inner.cpu.special import beta_cdf
from irsppl.penalties import find_evaluator, find_penalty
from irsppl.policies import find_policy

from .conftest import within
from .oracles import enumerate as en

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
# Blocks that others of the page import from where they belong.
PLACES = {"Add a conjugate family": "irsppl.beliefs.beta_geometric"}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """The blocks of the page as modules, by the heading that they stand under."""
    folder = tmp_path_factory.mktemp("recipes")
    sys.path.insert(0, str(folder))
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
            name = "recipe_" + re.sub(r"\W+", "_", section.splitlines()[0]).lower()
            (folder / f"{name}.py").write_text(code)
            importlib.invalidate_caches()
            made = found[section.splitlines()[0]] = importlib.import_module(name)
            sys.modules[PLACES.get(section.splitlines()[0], name)] = made
    yield found
    sys.path.remove(str(folder))
    for place in PLACES.values():
        del sys.modules[place]


def test_a_penalty_is_one_file(recipes):
    """Convexity: the best of mixed payments is at most the mixture of the bests, future by future;
    and it is a bound, so not below what the optimal policy earns."""
    halfway = recipes["Add a penalty"].Halfway()
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0], [1.0, 2.0]), 6)
    found = irsppl.bound(bandit, [halfway, "irs.v-zero", "irs.fh"], num_samples=400)
    outcomes = draw_outcomes(bandit, jax.random.key(0), 0, 400)
    fh = irsppl.penalties.find_penalty("irs.fh").values(bandit, outcomes)
    both = (found["irs.v-zero"].samples + fh) / 2
    assert np.all(found["halfway"].samples <= both + 1e-5)
    optimum = irsppl.bound(bandit, "ideal").value
    assert found["halfway"].value + 4 * found["halfway"].stderr >= optimum
    assert irsppl.choose(bandit, halfway, key=0) in (0, 1)


def test_a_penalty_has_a_batch_without_xla_and_a_kernel(recipes, monkeypatch):
    """Inner values are those of JAX; a decision has the same law and paths earn the same, traced
    and compiled (4 s.e., 4 paired s.e.: a false alarm in 4,000)."""
    halfway = recipes["Add a penalty"].Halfway()
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0, 1.5], [1.0, 2.5, 1.0]), 7)
    outcomes = draw_outcomes(bandit, jax.random.key(0), 0, 300)
    assert find_evaluator(halfway, bandit) and not find_evaluator(halfway, bandit.pull(0))
    solved = jax.jit(jax.vmap(lambda outcome: halfway.inner(bandit, outcome).value))(outcomes)
    np.testing.assert_allclose(halfway.values(bandit, outcomes), solved, rtol=1e-5)

    policy = find_policy(halfway)
    assert kernel(policy, bandit) is None
    keys = jax.random.split(jax.random.key(1), 20_000)
    arms = np.asarray(jax.jit(jax.vmap(lambda key: policy(key, bandit)))(keys))
    traced = irsppl.simulate(bandit, halfway, num_replications=2000)
    monkeypatch.setitem(
        makers.SAMPLED, type(halfway), recipes["Compile the policy of a penalty"].halfway
    )
    made = kernel(policy, bandit).decisions(streams((0, 1), 7, 0, 20_000))
    for arm in range(3):
        shares = [(each == arm).mean() for each in (arms, made)]
        within(shares[0], np.sqrt(0.5 / 20_000), shares[1])
    compiled = irsppl.simulate(bandit, halfway, num_replications=2000)
    difference = (compiled["value"] - traced["value"]).values[0]
    within(difference.mean(), difference.std() / np.sqrt(2000), 0.0)
    assert kernel(policy, bandit.pull(0)) is None  # a pull is pending


def test_a_policy_is_one_file_and_its_rule_another(recipes, monkeypatch):
    """Traced and compiled, it pulls the same arms."""
    policy = recipes["Add a policy"].InTurnThenBest()
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 2.0, 1.0], [1.0, 2.0, 2.0]), 12)
    assert kernel(policy, bandit) is None
    traced = irsppl.simulate(bandit, policy, num_replications=50)
    maker = recipes["Compile a rule, a family or a limit"].in_turn
    monkeypatch.setitem(makers.RULES, type(policy), maker)
    assert kernel(policy, bandit) is not None
    compiled = irsppl.simulate(bandit, policy, num_replications=50)
    np.testing.assert_array_equal(traced["pulls"], compiled["pulls"])
    # A process that has not this module reads the same folder of kernels.
    kept = [path.read_bytes() for path in pathlib.Path(compiling.folder()).iterdir()]
    assert kept
    assert not any(maker.__module__.encode() in data for data in kept)


def test_a_family_with_kernels_touches_three_files(recipes, tmp_path):
    """Two new ones and `irsppl/__init__.py`, in a copy of the package: `ts` is then compiled."""
    shutil.copytree(ROOT / "irsppl", tmp_path / "irsppl", ignore=shutil.ignore_patterns("*.pyc"))
    for heading, place in (
        ("Add a conjugate family", "beliefs/beta_geometric.py"),
        ("Compile a family", "engine/families/geometric.py"),
    ):
        shutil.copy(recipes[heading].__file__, tmp_path / "irsppl" / place)
    names = tmp_path / "irsppl" / "__init__.py"
    line = re.search(r'`("beliefs.beta_geometric": .*?)`', PAGE.read_text())[1]
    names.write_text(names.read_text().replace("_NAMES = {", f"_NAMES = {{\n    {line},"))
    code = """
import irsppl
from irsppl import engine
from irsppl.policies import find_policy

bandit = irsppl.Bandit(irsppl.BetaGeometric([5.0, 6.0], [4.0, 6.0]), 8)
assert engine.kernel(find_policy("ts"), bandit) and "BetaGeometric" in irsppl.__all__
print(irsppl.__file__)
"""
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert out.stdout.strip() == str(names), out.stderr


def test_a_family_is_one_file_and_its_kernels_another(recipes, monkeypatch):
    """The posterior mean is a martingale (4 s.e.), bounds are in their order, V-Zero is above what
    a policy earns (4 s.e.); traced and compiled, TS earns the same (4 paired s.e.)."""
    belief = recipes["Add a conjugate family"].BetaGeometric([5.0, 6.0], [4.0, 6.0])
    bandit = irsppl.Bandit(belief, 8)
    outcomes = draw_outcomes(bandit, jax.random.key(0), 0, 4000)
    means = jax.jit(jax.vmap(lambda r: belief.along(r).own_means()))
    after = np.asarray(means(outcomes.rewards))[:, :, 8]
    for arm in range(2):
        within(after[:, arm].mean(), after[:, arm].std() / np.sqrt(4000), [1.0, 1.2][arm])
    at = np.float32([0.9, 1.4])
    larger = np.maximum(np.asarray(outcomes.means), at).mean(axis=0)
    np.testing.assert_allclose(belief.expected_max(at), larger, rtol=0.05)  # over 4 s.e.
    found = irsppl.bound(bandit, ["ts", "irs.fh", "irs.v-zero"], num_samples=2000)
    values = [found[name].value for name in ("ts", "irs.fh", "irs.v-zero")]
    assert values == sorted(values, reverse=True)
    with monkeypatch.context() as before:
        before.delitem(MAKERS, type(belief))
        assert kernel(find_policy("ts"), bandit) is None
        traced = irsppl.simulate(bandit, "ts", num_replications=2000)
    assert kernel(find_policy("ts"), bandit) is not None
    assert kernel(find_policy("irs.index"), bandit) is None
    compiled = irsppl.simulate(bandit, "ts", num_replications=2000)
    difference = (compiled["value"] - traced["value"]).values[0]
    within(difference.mean(), difference.std() / np.sqrt(2000), 0.0)
    earned = compiled["value"].values[0]
    assert earned.mean() - 4 * earned.std() / np.sqrt(2000) < values[-1]


def test_a_family_with_gain_and_highest_is_served_by_ogi(recipes, monkeypatch):
    """Which knows no family but the Gaussian ones. Traced and compiled, it pulls the same arms."""
    family = recipes["Compile a family"]

    @implements(verbs.highest, family.Geometric)
    def _(family, arm):
        return np.inf

    @implements(verbs.gain, family.Geometric)
    def _(family, arm, lam):
        a, b, cut = family.now[0, arm], family.now[1, arm], 1.0 / (1.0 + lam)
        above = beta_cdf(a, b, cut)
        return b / (a - 1.0) * beta_cdf(a - 1.0, b + 1.0, cut) - lam * above, above

    belief = recipes["Add a conjugate family"].BetaGeometric([5.0, 6.0], [4.0, 6.0])
    bandit = irsppl.Bandit(belief, 8)
    assert kernel(find_policy("ogi"), bandit) is None
    traced = irsppl.simulate(bandit, "ogi", num_replications=50)
    monkeypatch.setitem(
        MAKERS,
        type(belief),
        lambda belief, needs: family.geometric(belief, needs - {"gain"}),
    )
    assert kernel(find_policy("ogi"), bandit) is not None
    compiled = irsppl.simulate(bandit, "ogi", num_replications=50)
    np.testing.assert_array_equal(traced["pulls"], compiled["pulls"])


def release_case(recipes):
    """Ours and the oracle's: arm 2 comes in period 2, arm 0 in period 1."""
    parameters, available = ([1.0, 2.0, 2.0], [1.0, 2.5, 1.0]), (1, 0, 2)
    limit = recipes["Add a constraint"].Release(available)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(*parameters), 4, constraints=[limit])
    return bandit, en.Problem(en.BetaBernoulli(*parameters), 4, available=available)


def test_a_constraint_is_one_file(recipes):
    """Inner values are those of going through every sequence, for every reward; the bounds are then
    not below V*, which Bellman's recursion knows; nobody plays an arm before it is there."""
    bandit, problem = release_case(recipes)
    assert bandit.constraints == {"release"}
    futures = list(en.outcomes(problem))
    futures = [futures[i] for i in np.random.default_rng(0).permutation(len(futures))[:128]]
    means = np.random.default_rng(1).random((128, 3))
    rewards = np.array([o.rewards for o in futures], float)
    batch = jax.vmap(irsppl.Outcome)(jnp.asarray(means), jnp.asarray(rewards))
    alpha, beta = (np.asarray(x) for x in (bandit.belief.alpha, bandit.belief.beta))
    known = np.array([2, 3, 1])  # rewards of each arm that the last decision can know
    wins = np.array([[o.rewards[a][: known[a]] for a in range(3)] for o in futures], object)
    paid = (alpha + np.vectorize(sum)(wins)) / (alpha + beta + known)
    for name, each in (("ts", means), ("irs.fh", paid)):
        want = [max(sum(row[a] for a in s) for s in problem.sequences()) for row in each]
        found = find_penalty(name).values(bandit, batch)
        np.testing.assert_allclose(found, want, rtol=1e-5)
    want = [en.inner_value(problem, "irs.v-zero", o) for o in futures]
    np.testing.assert_allclose(find_penalty("irs.v-zero").values(bandit, batch), want, rtol=1e-5)
    first = irsppl.solve_inner(bandit, "irs.v-zero", jax.tree.map(lambda leaf: leaf[0], batch))
    assert int(first.action) == 1 and int(np.sum(first.pulls)) == 4

    optimum = en.optimal_value(problem)
    bounds = irsppl.bound(bandit, ["ts", "irs.fh", "irs.v-zero"], num_samples=256)
    for bound in bounds.values():  # 4 s.e.: a false alarm in 30,000
        assert bound.value + 4 * bound.stderr >= optimum
    # An arm that is not there yet would be an error (see the next test).
    names = ["ts", "irs.fh", "irs.v-zero", "irs.index", "greedy"]
    played = irsppl.simulate(bandit, names, num_replications=256)
    assert np.all(played["pulls"].sum("arm") == 4) and np.all(played["regret"] > -1e-5)
    assert np.all(played["pulls"].values <= np.array([3, 4, 2]))
    assert np.all(played["pulls"].sel(arm="2").sum("replication") > 0)


def test_a_constraint_is_never_ignored(recipes):
    bandit, _ = release_case(recipes)
    release = bandit.access
    for name in ("irs.ff", "irs.v-solo", "ideal"):
        with pytest.raises(ValueError, match=f"{name} does not plan for a release.*use 'greedy'"):
            irsppl.bound(bandit, name)
    for name in ("bayes-ucb", "opt", "irs.mix"):
        with pytest.raises(ValueError, match="does not plan for a release"):
            irsppl.choose(bandit, name)
    with pytest.raises(ValueError, match="arm 2 may not be pulled in period 0: release"):
        bandit.pull(2, 1.0)
    with pytest.raises(ValueError, match="'<lambda>' returned arm 2 when it may not be pulled"):
        irsppl.simulate(bandit, lambda key, bandit: 2, num_replications=2)
    for options, told in (
        (dict(costs=1, budget=4), "budget and a release answer the same question"),
        (dict(delay=1), "release and a delay together are not planned for"),
        (dict(constraints=["release"]), "constraints must be a list of objects of subclasses"),
        (dict(constraints=release), "constraints must be a list"),
        (dict(constraints=[bandit.end]), "with names of their own"),
        (dict(constraints=[type(release)([0, 1])]), "one period for each of 3 arms"),
    ):
        with pytest.raises(ValueError, match=told):
            irsppl.Bandit(bandit.belief, 4, **{"constraints": [release]} | options)
    with pytest.raises(ValueError, match="of irsppl only"):
        irsppl.Experiment.create("never-made.db", bandit, "ts")


def test_a_constraint_compiles_in_another_file(recipes, monkeypatch):
    """Compiled and traced, greedy pulls the same arms; TS and FH earn the same (4 paired s.e.)."""
    bandit, _ = release_case(recipes)
    names = ["greedy", "ts", "irs.fh"]
    assert kernel(find_policy("greedy"), bandit) is None
    traced = irsppl.simulate(bandit, names, num_replications=2000)
    maker = recipes["Compile a constraint"].released
    monkeypatch.setitem(dispatch.PARTS, type(bandit.access), maker)
    assert all(kernel(find_policy(name), bandit) is not None for name in names)
    assert kernel(find_policy("irs.v-zero"), bandit) is None
    compiled = irsppl.simulate(bandit, names, num_replications=2000)
    pulls = [data["pulls"].sel(policy="greedy") for data in (traced, compiled)]
    np.testing.assert_array_equal(*pulls)
    assert np.all(compiled["pulls"].values <= np.array([3, 4, 2]))
    for name in ("ts", "irs.fh"):
        difference = (compiled["value"] - traced["value"]).sel(policy=name).values
        within(difference.mean(), difference.std() / np.sqrt(2000), 0.0)
