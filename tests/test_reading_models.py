"""Reading models: tails of the mean reward, laws that underflow, threads, pickling."""

import copy
import math
import pickle
import re
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.primitives import _PYRO_STACK
from scipy import stats

import irsppl
from irsppl.beliefs._arviz import load_arviz
from irsppl.models import read_arm
from irsppl.models._model import Visit
from irsppl.models._tails import generalised_pareto_k, pareto_k
from irsppl.models._truncated import stable

from . import reading_arms

sample = numpyro.sample


def arm_of(law):
    def arm(reward=None):
        sample("reward", law(), obs=reward)

    return arm


# ---- does the mean reward have a mean?


def log_normal(spread, sigma):
    return arm_of(
        lambda: dist.LogNormal(
            sample("mu", dist.Normal(0.0, spread)), sigma() if callable(sigma) else sigma
        )
    )


def half_normal(scale):
    return lambda: sample("sigma", dist.HalfNormal(scale))


def location(prior):
    return arm_of(lambda: dist.Normal(sample("mu", prior), 1.0))


INFINITE = {
    "sigma half normal(1)": log_normal(1.0, half_normal(1.0)),
    "cauchy location": location(dist.Cauchy(0.0, 1.0)),
    "half-cauchy scale": arm_of(lambda: dist.HalfNormal(sample("s", dist.HalfCauchy(1.0)))),
    "inverse gamma(0.9)": location(dist.InverseGamma(0.9, 1.0)),
}
HEAVY = {  # and the index of their tails
    "sigma half normal(0.8)": (log_normal(1.0, half_normal(0.8)), 0.64),
    "student t(1.5)": (location(dist.StudentT(1.5, 0.0, 1.0)), 1 / 1.5),
}
FINE = {
    "sigma half normal(0.5)": log_normal(1.0, half_normal(0.5)),
    "log-normal": log_normal(1.0, 0.5),
    "wide log-normal": log_normal(3.0, 0.5),
    "student t(3)": location(dist.StudentT(3.0, 0.0, 1.0)),
}


@pytest.mark.parametrize("name", INFINITE)
def test_an_infinite_prior_mean_is_refused(name):
    with pytest.raises(ValueError, match=r"Pareto index k = .*expectation is infinite"):
        read_arm(INFINITE[name])


@pytest.mark.parametrize("name", HEAVY)
def test_an_infinite_variance_is_warned_of(name):
    arm, index = HEAVY[name]
    with pytest.warns(UserWarning, match="Pareto index k = .*variance is infinite") as caught:
        read_arm(arm)
    told = next(str(w.message) for w in caught if "Pareto" in str(w.message))
    assert float(told.split("k = ")[1].split()[0]) == pytest.approx(index, abs=0.03)


@pytest.mark.parametrize("name", FINE)
def test_finite_moments_are_neither_refused_nor_warned_of(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        read_arm(FINE[name])


def test_pareto_k_is_that_of_arviz():
    """The fit, number by number, against ArviZ's own."""
    load_arviz()
    fit = pytest.importorskip("arviz.stats.stats")._gpdfit
    rng = np.random.default_rng(1)
    for draws in (rng.pareto(1.0, 300), rng.exponential(size=400), rng.random(500)):
        x = np.sort(draws)
        assert generalised_pareto_k(x) == pytest.approx(fit(x)[0], abs=1e-9)
    # Standard error (1 + k) / sqrt(424) = 0.1 at k = 1, and a pull of 10 / 434 towards 1/2.
    assert abs(pareto_k(rng.pareto(1.0, 20_000)) - 1.0) < 0.4


# ---- laws that underflow


def truncated(reward=None):
    mu = sample("mu", dist.Normal(2.0, 2.0))
    sd = sample("sd", dist.HalfNormal(2.0))
    sample("reward", dist.TruncatedNormal(mu, sd, low=0.0, high=10.0), obs=reward)


@pytest.mark.parametrize(
    ("mu", "sd", "low", "high"),
    [
        (2.0, 1.0, 0.0, 10.0),
        (-3.0, 0.1, 0.0, 10.0),
        (-5.0, 0.001, 0.0, 10.0),
        (30.0, 1.0, 0.0, 10.0),
        (5.0, 1e4, 0.0, 10.0),
        (20.0, 2.0, None, 0.5),
        (-9.0, 0.5, 0.0, None),
    ],
)
def test_truncated_normals_far_out(mu, sd, low, high):
    """Mean and density against a trapezoid sum over 200,000 points in float64; draws by a
    Kolmogorov-Smirnov test (a false alarm in 10,000)."""
    law = stable(dist.TruncatedNormal(mu, sd, low=low, high=high))
    first, last = (-np.inf if low is None else low), (np.inf if high is None else high)
    peak = min(max(mu, first), last)
    reach = 40 * sd / max(1.0, abs(peak - mu) / sd)
    x = np.linspace(max(first, peak - reach), min(last, peak + reach), 200_001)
    logs = -((x - mu) ** 2) / 2 / sd**2
    weights = np.exp(logs - logs.max())
    weights[[0, -1]] /= 2
    total = weights.sum() * (x[1] - x[0])
    mean = weights @ x / weights.sum()
    assert float(law.mean) == pytest.approx(mean, rel=3e-6)
    draws = np.asarray(law.sample(jax.random.key(0), (4000,)))
    at = float(np.median(draws))
    known = -((at - mu) ** 2) / 2 / sd**2 - logs.max() - np.log(total)
    assert float(law.log_prob(at)) == pytest.approx(known, abs=1e-5)
    cdf = np.cumsum(weights) / weights.sum()
    assert stats.kstest(draws, lambda y: np.interp(y, x, cdf)).pvalue > 1e-4


def test_a_truncated_reward_is_read_and_learnt_from():
    """The posterior mean after five rewards by a sum over 360,000 latents (four times as
    many change it by 4e-12), and the gradient that clouds are moved by, in closed form."""
    rewards = np.array([0.5, 1.5, 3.0, 0.2, 2.0])
    belief = irsppl.from_numpyro(truncated, 1, num_particles=2048)
    after = belief.for_simulation().update(np.zeros(5, int), rewards)
    mu, sd = np.meshgrid(np.linspace(-10, 14, 601), np.linspace(1e-2, 12, 600), indexing="ij")
    a, b = (0 - mu) / sd, (10 - mu) / sd
    logs = stats.norm.logpdf(mu, 2, 2) - sd**2 / 8
    norm = np.where(
        a > 0,
        stats.norm.logsf(a) + np.log1p(-np.exp(stats.norm.logsf(b) - stats.norm.logsf(a))),
        stats.norm.logcdf(b) + np.log1p(-np.exp(stats.norm.logcdf(a) - stats.norm.logcdf(b))),
    )
    for reward in rewards:
        logs = logs + stats.norm.logpdf(reward, mu, sd) - norm
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    ratio = np.exp(stats.norm.logpdf(a) - norm) - np.exp(stats.norm.logpdf(b) - norm)
    exact = np.sum(weights * (mu + sd * ratio))
    spread = float(after.mean_sd()[0])
    # Five standard errors of a cloud of 2,048 independent points (a false alarm in two million).
    assert abs(float(after.predictive_mean()[0]) - exact) < 5 * spread / np.sqrt(1000)
    # d log f / d mu = (r - mu - sd ratio) / sd^2, and likewise by sd, where a Gaussian is not flat.
    some = (slice(50, None, 50), slice(50, None, 100))
    mu, sd, a, b, norm, ratio = (x[some].ravel() for x in (mu, sd, a, b, norm, ratio))
    slope = jax.grad(lambda p: belief.models[0].log_likelihood(p, 1.5))
    found = jax.jit(jax.vmap(slope))({"mu": jnp.asarray(mu, float), "sd": jnp.asarray(sd, float)})
    ends = a * np.exp(stats.norm.logpdf(a) - norm) - b * np.exp(stats.norm.logpdf(b) - norm)
    z = (1.5 - mu) / sd
    np.testing.assert_allclose(found["mu"], (z - ratio) / sd, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["sd"], (z**2 - 1 - ends) / sd, rtol=1e-3, atol=1e-3)


def test_zero_inflated_amounts():
    """NumPyro's zero inflation is for counts: it is said, with what to write; that works, and the
    prior mean is E[1 - gate] E[2 / rate]."""

    def inflated(reward=None):
        gate, rate = sample("gate", dist.Beta(2.0, 2.0)), sample("rate", dist.Gamma(4.0, 2.0))
        law = dist.ZeroInflatedDistribution(dist.Gamma(2.0, rate), gate=gate)
        sample("reward", law, obs=reward)

    with pytest.raises(ValueError, match=r"counts only.*HurdleDistribution.dist.Gamma"):
        irsppl.from_numpyro(inflated, 2)

    def hurdle(reward=None):
        gate, rate = sample("gate", dist.Beta(2.0, 2.0)), sample("rate", dist.Gamma(4.0, 2.0))
        sample("reward", dist.HurdleDistribution(dist.Gamma(2.0, rate), gate=gate), obs=reward)

    belief = irsppl.from_numpyro(hurdle, 2)
    exact = 0.5 * 2 * 2.0 / 3
    assert float(belief.predictive_mean()[0]) == pytest.approx(exact, abs=0.03)
    after = belief.update([0, 0], [0.0, 0.0])  # gate ~ Beta(4, 2)
    assert float(after.predictive_mean()[0]) == pytest.approx(exact * 2 / 3, abs=0.03)


# ---- threads


def test_eight_threads_trace_models_at_once():
    """Every thread reads and traces models of its own shapes, many rounds; NumPyro's list of
    handlers is empty afterwards, also after errors."""
    failures, start = [], threading.Barrier(8)

    def broken(reward=None):
        sample("x", dist.Normal(0.0, 1.0))
        raise RuntimeError("no")

    def work(number):
        start.wait()
        try:
            for turn in range(20):
                shape = 1 + number + 8 * turn
                visit = Visit(lambda name, fn: jnp.zeros(fn.shape()), "reward")

                def model(shape=shape):
                    with numpyro.plate("n", shape):
                        x = sample("x", dist.Normal(0.0, 1.0))
                    sample("reward", dist.Normal(x.sum(), 1.0))

                def traced(z, visit=visit, model=model):
                    with visit:
                        model()
                    return z + visit.reward["fn"].loc

                jax.make_jaxpr(traced)(1.0)
                assert visit.sites[0][2].shape == (shape,)
                with pytest.raises(RuntimeError, match="no"), Visit(lambda *_: 0.0, "reward"):
                    broken()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not _PYRO_STACK


def test_eight_threads_choose_for_the_first_time():
    belief = irsppl.from_numpyro(reading_arms.two, 2, representation="particles", num_particles=16)
    failures, start = [], threading.Barrier(8)

    def work(number):
        start.wait()
        try:
            irsppl.choose(irsppl.Bandit(belief, 3 + number), "ts", key=number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not _PYRO_STACK


# ---- pickle and copy


MADE = {
    "quadrature": lambda: irsppl.from_numpyro([reading_arms.logit, reading_arms.wide]),
    "particles": lambda: irsppl.from_numpyro(
        reading_arms.two, 2, representation="particles", num_particles=64
    ),
    "joint": lambda: irsppl.from_numpyro_joint(reading_arms.shared, 2, num_particles=64),
    "conjugate": lambda: irsppl.BetaBernoulli([1.0, 2.0], [1.0, 1.0]),
}


@pytest.mark.parametrize("name", MADE)
def test_bandits_and_beliefs_are_pickled_and_copied(name):
    bandit = irsppl.Bandit(MADE[name](), 20).pull(0, 1.0)
    for twin in (pickle.loads(pickle.dumps(bandit)), copy.deepcopy(bandit), copy.copy(bandit)):
        np.testing.assert_array_equal(
            twin.belief.predictive_mean(), bandit.belief.predictive_mean()
        )
        if name == "quadrature":  # of clouds a new model would compile for half a minute
            one, other = twin.pull(1, 1.0).belief, bandit.pull(1, 1.0).belief
            np.testing.assert_array_equal(one.predictive_mean(), other.predictive_mean())
        assert irsppl.choose(twin, "ts", key=3) == irsppl.choose(bandit, "ts", key=3)
        belief = pickle.loads(pickle.dumps(twin.belief))
        np.testing.assert_array_equal(belief.predictive_mean(), bandit.belief.predictive_mean())


def test_functions_without_a_name_cannot_be_pickled_and_say_so():
    def inside(reward=None):
        p = sample("p", dist.Normal(0.0, 1.0))
        sample("reward", dist.Bernoulli(logits=p), obs=reward)

    belief = irsppl.from_numpyro(inside, 2)
    with pytest.raises(pickle.PicklingError, match="at the top level of a module"):
        pickle.dumps(irsppl.Bandit(belief, 5))
    assert copy.deepcopy(belief).models == belief.models


def logistic(reward=None):
    skill = numpyro.sample("skill", dist.Normal(0.0, 1.5))
    numpyro.sample("reward", dist.Bernoulli(logits=skill), obs=reward)


def test_nodes_too_coarse_for_a_horizon_are_told_of_before_whole_futures_are_played():
    """Posterior sd 2 / sqrt(T) in log-odds at the centre; nodes 18 / 31 apart with 32 of them."""
    coarse = irsppl.from_numpyro(
        logistic, num_arms=2, representation="quadrature", num_particles=32
    )
    with pytest.warns(UserWarning, match=r"32 .*too coarse for 200 .*factor of 4\.\d.*=1[34]\d"):
        irsppl.bound(irsppl.Bandit(coarse, 200), "ts")
    with pytest.warns(UserWarning, match="too coarse for 200"):
        irsppl.simulate(irsppl.Bandit(coarse, 200), "greedy", num_replications=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coarse.check_resolution(40)
        irsppl.from_numpyro(logistic, num_arms=2).check_resolution(3000)


def spread(reward=None):
    place = numpyro.sample("place", dist.StudentT(4.0, 0.0, 1.0))
    numpyro.sample("reward", dist.Normal(place, 0.5), obs=reward)


def test_nodes_too_coarse_for_rewards_of_many_values_are_told_of():
    """Nodes are 12 / 255 normal scores apart: 0.0535 where a quarter of the prior lies below. After
    n rewards the posterior has a standard deviation of 0.5 / sqrt(n). Sampled: the mean square of
    1,024 differences has a standard error of 4.4 %, its root 2.2 %; met within four of them (false
    alarm 6e-5)."""
    belief = irsppl.from_numpyro(spread, num_arms=2)
    assert belief.kind == "quadrature"
    score = 12 / 255
    at = np.linspace(-6, 6, 256)
    nodes = stats.t(4).ppf(stats.norm.cdf(at))
    middle = np.abs(at[:-1] + score / 2) < 0.66
    exact = np.diff(nodes)[middle].max() / 0.5 * math.sqrt(1500)
    with pytest.warns(UserWarning, match="too coarse for 1500") as caught:
        belief.check_resolution(1500)
    (ratio,) = re.findall(r"factor of (\d+\.\d+)", str(caught[0].message))
    assert float(ratio) == pytest.approx(exact, rel=0.088)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        belief.check_resolution(200)


def test_what_is_read_again_shares_programs_unless_it_means_something_else(compilations):
    """Programs know a model by its identity. Whatever a function refers to may change."""
    width = np.ones(1)

    def arm(reward=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, width[0]))
        numpyro.sample("reward", dist.Normal(mean, 1.0), obs=reward)

    def updated():
        belief = irsppl.from_numpyro(arm, 2, representation="quadrature")
        before = len(compilations)
        return float(belief.update(0, 3.0).predictive_mean()[0]), len(compilations) - before

    first = read_arm(arm)
    assert read_arm(arm) is first and read_arm(arm, mean="mean") is not first
    mean, programs = updated()
    assert abs(mean - 1.5) < 1e-4 and programs > 0 and updated() == (mean, 0)
    width[0] = 2.0
    assert read_arm(arm).conjugate[1]["sd"] == 2.0
    mean, programs = updated()
    assert abs(mean - 2.4) < 1e-4 and programs > 0
