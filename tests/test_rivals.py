"""Rival policies against scipy, their defining equations and slow direct computations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import irsppl
from irsppl import engine
from irsppl.inner import gittins, lagrangian
from irsppl.inner.cpu.rng import streams
from irsppl.penalties import lagrangian as lagrangian_penalty
from irsppl.policies import (
    IDS,
    KLUCB,
    OGI,
    POLICIES,
    UCB1,
    BayesUCB,
    EpsilonGreedy,
    FHGittins,
    LagrangianIndex,
    find_policy,
)
from irsppl.policies.bayes_ucb import quantiles
from irsppl.policies.kl_ucb import upper
from irsppl.policies.ucb1 import observed
from irsppl.simulation import _BATCH, decide_many

from . import kernels
from .conftest import within
from .registry import FAMILIES, NATURAL


def law(family, xi, nu, sd):
    """The law of an arm's mean in scipy, from the kernels' natural state."""
    return [
        lambda: stats.beta(xi, nu - xi),
        lambda: stats.norm(xi / nu, sd / np.sqrt(nu)),
        lambda: stats.gamma(xi, scale=1 / nu),
        lambda: stats.invgamma(nu + 1, scale=xi),
    ][family]()


def states(rng, family, count):
    for _ in range(count):
        xi, extra, sd = np.exp(rng.uniform([-1, -1, -1], [5, 5, 1]))
        yield (xi, xi + extra, sd) if family == 0 else (xi, extra, sd)


def period(bandit, number):
    """The same belief, in period `number` (from 0) of a longer course of play."""
    counts = jnp.full(bandit.num_arms, -(-number // bandit.num_arms), jnp.int32)
    return eqx.tree_at(
        lambda b: (b.period, b.counts), bandit, (jnp.asarray(number, jnp.int32), counts)
    )


# ---- Bayes-UCB


@pytest.mark.parametrize("family", range(4))
def test_compiled_quantiles_agree_with_scipy(family):
    rng = np.random.default_rng(family)
    for xi, nu, sd in states(rng, family, 200):
        level = 1 - 1 / rng.integers(2, 3000)
        expected = law(family, xi, nu, sd).ppf(level)
        assert kernels.quantile(family, xi, nu, sd, level) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", ["beta-bernoulli", "gamma-exponential", "normal-inverse-gamma"])
def test_traced_quantiles_agree_with_scipy(family):
    belief = FAMILIES[family]()
    ask = jax.jit(quantiles)
    for level in (0.5, 0.9, 0.998):
        laws = [getattr(stats, law.name)(*law.args, law.loc, law.scale) for law in belief.law(None)]
        expected = [law.ppf(level) for law in laws]
        np.testing.assert_allclose(ask(belief, level), expected, rtol=2e-4, atol=1e-3)


def test_quantiles_of_a_belief_on_points_are_points():
    """Any belief that offers a CDF at one x will do; here one whose CDF is a step function."""

    class Steps:
        mu = jnp.asarray([[0.1, 0.2, 0.7], [0.3, 0.4, 0.5]])
        weights = jnp.asarray([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])

        def predictive_mean(self):
            return jnp.sum(self.mu * self.weights, axis=1)

        def mean_sd(self):
            return jnp.full(2, 0.2)

        def cdf(self, x):
            return jnp.sum(self.weights * (self.mu <= x), axis=1)

    np.testing.assert_allclose(quantiles(Steps(), 0.7), [0.2, 0.5], atol=1e-6)


# ---- OGI


@pytest.mark.parametrize("family", range(4))
def test_ogi_solves_its_fixed_point_equation(family):
    """lam = (1 - g) m + g E[max(mu, lam)], the expectation by scipy's quadrature."""
    rng = np.random.default_rng(10 + family)
    for xi, nu, sd in states(rng, family, 25):
        t = int(rng.integers(2, 600))
        lam = kernels.ogi(family, xi, nu, sd, t)
        dist, mean, discount = law(family, xi, nu, sd), xi / nu, 1 - 1 / t
        # E[(mu - lam)^+] is the integral of P(mu > x) above lam; x = lam / u ends heavy tails at 0.
        marks = [p for p in (lam / dist.isf(q) for q in (1e-2, 1e-4, 1e-7)) if 0 < p < 1]
        above = lambda u: dist.sf(lam / u) * lam / u**2  # noqa: B023, E731
        gain = integrate.quad(above, 0, 1, points=marks, limit=200)[0]
        assert lam >= mean
        assert (1 - discount) * mean + discount * (lam + gain) == pytest.approx(lam, rel=1e-7)


@pytest.mark.parametrize("family", ["beta-bernoulli", "normal-normal", "gamma-exponential"])
def test_traced_ogi_agrees_with_the_compiled_one(family):
    bandit = irsppl.Bandit(FAMILIES[family](), 300)
    code, xi, nu, sd = bandit.belief.kernel_state()
    indices = jax.jit(OGI().indices)
    for number in (0, 1, 20, 200):
        expected = [kernels.ogi(code, *arm, number + 1) for arm in zip(xi, nu, sd, strict=True)]
        np.testing.assert_allclose(indices(period(bandit, number)), expected, rtol=2e-4)
    np.testing.assert_allclose(indices(bandit), xi / nu, rtol=1e-5)  # t = 1: myopic


# ---- rules that know no prior


DIVERGENCES = {
    0: lambda p, q: p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)),
    1: lambda p, q: (q - p) ** 2 / 2 / 0.7**2,
    2: lambda p, q: q - p + p * np.log(p / q),
    3: lambda p, q: p / q - 1 - np.log(p / q),
}


@pytest.mark.parametrize("family", range(4))
def test_kl_ucb_uses_up_its_budget(family):
    rng = np.random.default_rng(20 + family)
    name = ["bernoulli", "gaussian", "poisson", "exponential"][family]
    means = rng.uniform(0.02, 0.95, 30)
    budgets = np.exp(rng.uniform(-6, 1, 30))
    found = np.array(
        [kernels.kl_ucb(family, p, 0.7, b) for p, b in zip(means, budgets, strict=True)]
    )
    assert np.all(found > means)
    np.testing.assert_allclose(DIVERGENCES[family](means, found), budgets, rtol=1e-6)
    if family != 1:
        traced = jax.jit(lambda p, b: upper(name, p, b))(jnp.asarray(means), jnp.asarray(budgets))
        np.testing.assert_allclose(traced, found, rtol=1e-3)


def test_ucb1_is_the_formula_of_auer_et_al():
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    for arm, reward in ((0, 1), (1, 0), (0, 1)):
        bandit = bandit.pull(arm, reward)
    mean, count, untried = observed(bandit)
    np.testing.assert_allclose(mean, [3 / 4, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(count, [2, 1])
    assert not np.any(untried)
    width = np.sqrt(2 * np.log(3) / np.array([2, 1]))
    np.testing.assert_allclose(UCB1().indices(bandit), np.asarray(mean) + width, rtol=1e-6)
    waiting = bandit.pull(1)  # a reward that is not known yet is not an observation
    np.testing.assert_allclose(observed(waiting)[1], [2, 1])


def test_every_arm_is_tried_once_first():
    belief = irsppl.BetaBernoulli([1.0, 5.0, 2.0], [1.0, 1.0, 1.0])
    for policy in ("ucb1", "kl-ucb"):
        data = irsppl.simulate(irsppl.Bandit(belief, 3), [policy], num_replications=20)
        assert (data["pulls"] == 1).all()
        assert irsppl.choose(irsppl.Bandit(belief, 3), policy) == 1  # the likeliest best first


def test_epsilon_greedy_explores_at_its_rate():
    bandit = period(irsppl.Bandit(irsppl.BetaBernoulli([2.0, 1.0], [1.0, 1.0]), 50), 9)
    rate = 3.0 / 10
    share = irsppl.action_probabilities(bandit, EpsilonGreedy(c=3), num_samples=20_000)
    within(share[1], np.sqrt(rate / 2 / 20_000), rate / 2)
    assert irsppl.action_probabilities(bandit, EpsilonGreedy(c=0), num_samples=50)[0] == 1


# ---- whole paths of the index rules


def index_by_hand(rule, family, xi, nu, sd, pulls, t):
    """Every arm's index from scipy and bisection, one decision at a time."""
    mean = xi / nu
    if rule == "bayes-ucb":
        return np.array([law(family, *arm).ppf(1 - 1 / t) for arm in zip(xi, nu, sd, strict=True)])
    if rule == "ogi":
        return np.array([kernels.ogi(family, *arm, t) for arm in zip(xi, nu, sd, strict=True)])
    if np.any(pulls == 0):
        return np.where(pulls == 0, mean, -np.inf)
    if rule == "ucb1":
        return mean + 2 * sd * np.sqrt(2 * np.log(t - 1) / pulls)
    budget = np.log(t) / pulls
    return np.array(
        [kernels.kl_ucb(family, m, s, b) for m, s, b in zip(mean, sd, budget, strict=True)]
    )


@pytest.mark.parametrize("rule", ["bayes-ucb", "ogi", "ucb1", "kl-ucb"])
@pytest.mark.parametrize("family", NATURAL)
def test_paths_play_the_largest_index(rule, family):
    """Also from the middle of a course of play: three periods and two pulls of arm 0 are over."""
    belief = FAMILIES[family]()
    code, xi0, nu0, sd = belief.kernel_state()
    if code != 1:
        sd = np.full(3, 0.5)
    policy = UCB1(0.5) if rule == "ucb1" and code != 1 else find_policy(rule)
    rewards = np.asarray(
        jax.vmap(lambda key: belief.draw(key, 25).rewards)(jax.random.split(jax.random.key(3), 2))
    )
    for start, pulls0 in ((0, [0, 0, 0]), (3, [2, 1, 0])):
        bandit = irsppl.Bandit(belief, 25 + start)
        state = (jnp.asarray(start), jnp.asarray(25), jnp.asarray(pulls0))
        bandit = eqx.tree_at(lambda b: (b.period, b.remaining, b.counts), bandit, state)
        actions = engine.kernel(policy, bandit).paths(rewards, streams((1, 2), 3, 0, 2))[:, :25]
        for s in range(2):
            xi, nu, pulls = xi0.copy(), nu0.copy(), np.array(pulls0)
            for i, arm in enumerate(actions[s]):
                if rule != "bayes-ucb" or start + i > 0:
                    index = index_by_hand(rule, code, xi, nu, sd, pulls, start + i + 1)
                    assert index[arm] >= index.max() - 1e-9 * (1 + abs(index.max()))
                xi[arm] += rewards[s, arm, pulls[arm] - pulls0[arm]]
                nu[arm] += 1
                pulls[arm] += 1


# ---- compiled against traced


@pytest.mark.parametrize(
    ("family", "policy"),
    [
        ("beta-bernoulli", IDS()),
        ("normal-normal", IDS()),
        ("beta-bernoulli", BayesUCB()),
        ("gamma-poisson", EpsilonGreedy(c=2)),
    ],
    ids=lambda case: getattr(case, "name", case),
)
def test_compiled_and_traced_decisions_have_one_law(family, policy):
    """In the first period; propensities from the CPU kernel and from JAX, 4 standard errors."""
    belief = FAMILIES[family]()
    if policy.name == "ids":  # arms between which IDS draws lots
        belief = {
            "beta-bernoulli": irsppl.BetaBernoulli([12.0, 2.0], [8.0, 2.0]),
            "normal-normal": irsppl.NormalNormal([0.5, 0.2], [0.3, 1.0], [1.0, 1.0]),
        }[family]
    bandit = irsppl.Bandit(belief, 12)
    compiled = irsppl.action_probabilities(bandit, policy, key=1, num_samples=20_000)
    assert compiled.max() < 0.99
    keys = jax.random.split(jax.random.key(2), (3000 // _BATCH, _BATCH))
    arms = np.asarray(decide_many(policy, keys, bandit))
    traced = np.bincount(arms, minlength=bandit.num_arms) / len(arms)
    for a, b in zip(compiled, traced, strict=True):
        p = np.clip((a + b) / 2, 1e-3, 1 - 1e-3)
        within(a, np.sqrt(p * (1 - p) / 20_000), b, np.sqrt(p * (1 - p) / len(arms)))


# ---- Gittins and Lagrangian: wrappers of their solvers


BETA = irsppl.BetaBernoulli([1.0, 2.0, 1.0], [1.0, 3.0, 1.0])


def test_fh_gittins_plays_the_solvers_index():
    bandit = irsppl.Bandit(BETA, 12)
    rng = np.random.default_rng(0)
    outcomes = (rng.random((5, 3, 12)) < 0.5).astype(np.float32)
    paths = engine.kernel(FHGittins(), bandit).paths(outcomes, streams((0, 1), 2, 0, 5))
    table = [gittins.index_table(1.0, 1.0, 12), gittins.index_table(2.0, 3.0, 12)]
    np.testing.assert_array_equal(
        paths, kernels.follow(kernels.gittins(table, [0, 1, 0]), outcomes)
    )
    for s in range(2):
        state, pulls = bandit, np.zeros(3, int)
        for arm in paths[s]:
            index = gittins.gittins_index(
                np.asarray(state.belief.alpha), np.asarray(state.belief.beta), int(state.remaining)
            )
            np.testing.assert_allclose(FHGittins().indices(state), index, rtol=1e-12)
            assert index[arm] >= index.max() - 1e-4  # the table's accuracy
            assert irsppl.choose(state, "fh-gittins") == np.argmax(index)
            state = state.pull(int(arm), outcomes[s, arm, pulls[arm]])
            pulls[arm] += 1


def test_lagrangian_bound_is_the_solvers_and_above_the_optimum():
    bandit = irsppl.Bandit(BETA, 12)
    expected = lagrangian.minimize_lagrangian([1.0, 2.0, 1.0], [1.0, 3.0, 1.0], 12).value
    bound = irsppl.bound(bandit, "lagrangian")
    assert bound.value == pytest.approx(expected, abs=1e-9) and bound.stderr == 0
    assert bound.value > irsppl.bound(bandit, "ideal").value
    assert bound.regret_bound == pytest.approx(irsppl.bound(bandit, "ts").value - bound.value)
    together = irsppl.bound(bandit, ["lagrangian", "irs.ff"])
    assert together.tightest.penalty == "irs.ff"
    played = bandit.pull(0, 1)  # a state in play is a bandit of its own
    fresh = irsppl.Bandit(irsppl.BetaBernoulli([2.0, 2.0, 1.0], [1.0, 3.0, 1.0]), 11)
    later = irsppl.bound(played, "lagrangian").value
    assert later == pytest.approx(irsppl.bound(fresh, "lagrangian").value, abs=1e-4)
    outcome = irsppl.Outcome([0.5] * 3, np.zeros((3, 12)))
    with pytest.raises(ValueError, match="has no inner problem"):
        irsppl.solve_inner(bandit, "lagrangian", outcome)


@pytest.mark.parametrize("tie", ["random", "optimal"])
def test_lagrangian_policies_play_on_from_one_solution(tie, monkeypatch):
    solved = []
    real = lagrangian_penalty.minimize_lagrangian
    monkeypatch.setattr(
        lagrangian_penalty, "minimize_lagrangian", lambda *a: solved.append(a) or real(*a)
    )
    monkeypatch.setattr(lagrangian_penalty, "_solved", [])
    policy = LagrangianIndex(tie)
    bandit = irsppl.Bandit(BETA, 10)
    tables = lagrangian.lagrangian_tables(real(*map(np.asarray, (BETA.alpha, BETA.beta)), 10))
    wins, losses = np.zeros(3, int), np.zeros(3, int)
    rng = np.random.default_rng(1)
    for t in range(10):
        arm = irsppl.choose(bandit, policy, key=t)
        index = tables.index_at(np.arange(3), t, wins, losses)
        assert index[arm] >= index.max() - tables.tie_tolerance
        reward = int(rng.random() < 0.5)
        wins[arm] += reward
        losses[arm] += 1 - reward
        bandit = bandit.pull(arm, reward)
    assert len(solved) == 1
    data = irsppl.simulate(irsppl.Bandit(BETA, 10), {"lagr": policy}, num_replications=500)
    assert float(data["value"].mean()) > 10 * 0.55
    shares = irsppl.action_probabilities(irsppl.Bandit(BETA, 10), policy, num_samples=400)
    within(shares[0], np.sqrt(0.25 / 400), 0.5)  # arms 0 and 2 are the same


def test_lagrangian_policies_plan_from_where_play_begins(monkeypatch, tmp_path):
    """What was solved before in the process changes neither simulations nor experiments."""
    start = irsppl.Bandit(irsppl.BetaBernoulli([1, 1, 1], [1, 1, 1]), 12)
    pulls, made = [], []
    played = start.pull(0, 0).pull(0, 0).pull(0, 0)
    for others in ([], [start]):
        monkeypatch.setattr(lagrangian_penalty, "_solved", [])
        for other in others:
            irsppl.choose(other, "lagr-rt", key=0)
        pulls.append(irsppl.simulate(played, "lagr-rt", num_replications=200)["pulls"].values)
    np.testing.assert_array_equal(*pulls)
    for forgets in (False, True):  # a process that ends and begins between any two decisions
        with irsppl.Experiment.create(tmp_path / f"{forgets}.db", start, "lagr-rt", 2) as ours:
            for t in range(11):
                lagrangian_penalty._solved.clear() if forgets else None
                made.append(ours.ask())
                ours.tell(made[-1].id, int((t * 7 + made[-1].arm * 3 + 2) % 3 == 0))
            assert ours.explain(made[-1].id)["replayed"]
    told = [(one.arm, one.propensity) for one in made]
    assert told[:11] == told[11:]


# ---- properties of all of them


# Rules by others, for all arms that can be pulled at any time.
_OURS = {"ts", "random", "greedy", "opt", "ts-ratio"}
RIVALS = [name for name in POLICIES if not name.startswith("irs.") and name not in _OURS]


@pytest.mark.parametrize("policy", RIVALS)
def test_relabelling_the_arms_relabels_the_decision(policy):
    """From a state without ties; a policy that draws lots is compared by its propensities."""
    pulls = [(0, 1), (1, 0), (2, 1), (2, 0), (1, 1), (0, 1)]
    order = [2, 0, 1]
    alpha, beta = np.array([1.3, 2.0, 1.7]), np.array([1.0, 1.2, 2.9])
    one = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), 20)
    two = irsppl.Bandit(irsppl.BetaBernoulli(alpha[order], beta[order]), 20)
    for arm, reward in pulls:
        one = one.pull(arm, reward)
        two = two.pull(order.index(arm), reward)
    first = irsppl.action_probabilities(one, policy, num_samples=4000)
    second = irsppl.action_probabilities(two, policy, num_samples=4000)
    np.testing.assert_allclose(first[order], second, atol=4 * np.sqrt(0.5 / 4000))


GAMMA = irsppl.Bandit(irsppl.GammaPoisson([1.0, 1.0], [1.0, 1.0]), 4)
UNKNOWN = irsppl.Bandit(irsppl.NormalInverseGamma([0.0], [1.0], [2.0], [1.0]), 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: irsppl.choose(GAMMA, "fh-gittins"),
            "needs BetaBernoulli arms, not GammaPoisson.*",
        ),
        (lambda: irsppl.choose(GAMMA, "lagr-rt"), "lagr-rt is solved .*'irs.index'"),
        (lambda: irsppl.simulate(GAMMA, ["lagr-ot"]), "needs BetaBernoulli arms"),
        (lambda: irsppl.bound(GAMMA, "lagrangian"), "'irs.ff' or 'irs.v-zero' for a bound"),
        (lambda: irsppl.choose(irsppl.Bandit(BETA, 5).pull(0), "lagr-rt"), "pending"),
        (lambda: irsppl.choose(GAMMA, "ucb1"), r"UCB1\(scale=...\), or use 'bayes-ucb'"),
        (lambda: irsppl.choose(UNKNOWN, "kl-ucb"), r"KLUCB\(divergence=...\)"),
        (lambda: irsppl.choose(GAMMA, IDS("mutual")), "use 'variance'"),
        (lambda: irsppl.choose(UNKNOWN, KLUCB("gaussian")), r"KLUCB\(scale=...\)"),
        (lambda: IDS("entropy"), "unknown information 'entropy'; known: auto, mutual, variance"),
        (lambda: UCB1(scale=-1), "scale must be a positive number"),
        (lambda: KLUCB("gauss"), "unknown divergence 'gauss'"),
        (lambda: KLUCB("poisson", scale=1.0), "scale is the noise of Gaussian rewards"),
        (lambda: EpsilonGreedy(c=-1), "c must be a number that is not negative"),
        (lambda: LagrangianIndex("best"), "unknown tie 'best'"),
        (lambda: irsppl.choose(irsppl.Bandit(BETA, 5), IDS(num_samples=1)), "num_samples"),
    ],
)
def test_refusals_say_why_and_what_to_use(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_given_scales_serve_families_without_one():
    assert irsppl.choose(UNKNOWN, UCB1(scale=1.0)) == 0
    assert irsppl.choose(UNKNOWN, KLUCB(scale=1.0)) == 0
    data = irsppl.simulate(GAMMA, {"ucb1": UCB1(scale=1.0)}, num_replications=20)
    assert (data["pulls"].sum("arm") == 4).all()
