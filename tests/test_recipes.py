"""The recipes of CONTRIBUTING work as they are written."""

import importlib
import pathlib
import re
import sys

import jax
import numpy as np
import pytest

import irsppl
from irsppl.engine import families, kernel, makers
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu import compiling
from irsppl.policies import find_policy

from .conftest import within

PAGE = pathlib.Path(__file__).parent.parent / "CONTRIBUTING.md"


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
            found[section.splitlines()[0]] = importlib.import_module(name)
    yield found
    sys.path.remove(str(folder))


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


def test_a_family_is_one_file_and_its_kernels_another(recipes, monkeypatch):
    """The posterior mean is a martingale (4 s.e.), bounds are in their order, V-Zero is above what
    a policy earns (4 s.e.); traced and compiled, TS earns the same (4 paired s.e.)."""
    belief = recipes["Add a conjugate family"].BetaGeometric([5.0, 6.0], [4.0, 6.0])
    bandit = irsppl.Bandit(belief, 8)
    outcomes = draw_outcomes(bandit, jax.random.key(0), 0, 4000)
    after = np.asarray(jax.vmap(lambda r: belief.along(r).own_means())(outcomes.rewards))[:, :, 8]
    for arm in range(2):
        within(after[:, arm].mean(), after[:, arm].std() / np.sqrt(4000), [1.0, 1.2][arm])
    at = np.float32([0.9, 1.4])
    larger = np.maximum(np.asarray(outcomes.means), at).mean(axis=0)
    np.testing.assert_allclose(belief.expected_max(at), larger, rtol=0.05)  # over 4 s.e.
    found = irsppl.bound(bandit, ["ts", "irs.fh", "irs.v-zero"], num_samples=2000)
    values = [found[name].value for name in ("ts", "irs.fh", "irs.v-zero")]
    assert values == sorted(values, reverse=True)
    assert kernel(find_policy("ts"), bandit) is None
    traced = irsppl.simulate(bandit, "ts", num_replications=2000)
    maker = recipes["Compile a family"].geometric
    monkeypatch.setitem(families._MAKERS, type(belief), maker)
    assert kernel(find_policy("ts"), bandit) is not None
    assert kernel(find_policy("irs.index"), bandit) is None
    compiled = irsppl.simulate(bandit, "ts", num_replications=2000)
    difference = (compiled["value"] - traced["value"]).values[0]
    within(difference.mean(), difference.std() / np.sqrt(2000), 0.0)
    earned = compiled["value"].values[0]
    assert earned.mean() - 4 * earned.std() / np.sqrt(2000) < values[-1]
