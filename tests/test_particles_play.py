"""Particle beliefs in play against NUTS and closed forms; error estimates, speed, pictures."""

import functools
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import irsppl
from irsppl.beliefs._arviz import load_arviz
from irsppl.beliefs._evolution import evolution
from irsppl.beliefs._rejuvenation import data_log_likelihood, record
from irsppl.beliefs.particles import Particles
from irsppl.beliefs.quadrature import Quadrature
from irsppl.plots import plot_belief

from .conftest import optimised, within
from .oracles import nuts

matplotlib.use("Agg")


def gamma_noise(reward=None):
    log_mean = numpyro.sample("log_mean", dist.Normal(0.0, 0.7))
    numpyro.sample("reward", dist.Gamma(2.0, 2.0 * jnp.exp(-log_mean)), obs=reward)


def sharp(reward=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(mean, 0.01), obs=reward)


def sharp_joint(arm, reward=None):
    """Arm 0 shows the first latent, arm 1 the sum of both."""
    effect = numpyro.sample("effect", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    numpyro.sample("reward", dist.Normal(effect[0] + arm * effect[1], 0.01), obs=reward)


# ---- the same posterior as NUTS's


@functools.cache
def read(name):
    return nuts.case_of(name).belief()


@pytest.mark.parametrize("name", nuts.CASES)
def test_the_same_posterior_as_nuts(name):
    """Arm means within 4 combined standard errors (NUTS's Monte Carlo error, the cloud's own
    estimate): a false alarm in 16,000 for each of the 25 arms, in 1,000 at worst (t with 15 degrees
    of freedom). Spreads agree too: 20 % covers 4 standard errors of a standard deviation from 1,000
    draws even if only 200 are independent. The stated errors are small beside the spreads."""
    arms, rewards, posterior = nuts.stored(name)
    prior = read(name).sized(len(rewards))
    with optimised(len(rewards) > 500):
        belief = prior.update(arms, rewards)
    assert np.all(np.asarray(belief.rejuvenations) > 0)
    stated = np.asarray(belief.mean_error())
    for arm, mean in enumerate(np.asarray(belief.predictive_mean(), float)):
        within(mean, stated[arm], posterior.mean[arm], posterior.error[arm])
    np.testing.assert_allclose(belief.mean_sd(), posterior.sd, rtol=0.2)
    assert np.all(stated < 0.15 * posterior.sd)


def test_what_is_kept_is_what_nuts_says():
    """One case sampled anew, another number of draws: 4 combined errors (one in 16,000)."""
    arms, rewards, kept = nuts.stored("trading_returns")
    case = nuts.case_of("trading_returns")
    belief = read("trading_returns")
    np.testing.assert_array_equal(nuts.data("trading_returns", case, belief)[1], rewards)
    again = nuts.sample(case, belief, arms, rewards, 300, 500)
    within(again.mean[0], again.error[0], kept.mean[0], kept.error[0])


# ---- rewards that collapse the weights


def test_a_sharp_reward_is_brought_in_by_steps(compilations):
    """Noise 0.01 after a N(0, 1) prior, in float64: plain reweighting leaves fewer than 3 of 1,024
    points; by steps the posterior agrees with the closed form, mean and spread within 4 standard
    errors (a false alarm in 16,000 each), and nothing compiles twice."""
    with jax.enable_x64(True):
        belief = irsppl.from_numpyro(sharp, 2, representation="particles", num_particles=1024)
        plain = belief.for_simulation().update(0, 2.3)
        assert float(plain.effective_sample_size()[0]) < 3
        precision, total = 1.0, 0.0
        for n, reward in enumerate([2.3, 2.31, 2.28]):
            belief = belief.update(0, reward)
            if n == 0:
                # Brought in by several moves; the other arm's cloud is untouched.
                assert belief.rejuvenations.tolist()[0] > 2 and belief.tempered.tolist() == [1, 0]
            assert float(belief.effective_sample_size()[0]) > 512
            precision, total = precision + 1e4, total + 1e4 * reward
            within(
                float(belief.predictive_mean()[0]), float(belief.mean_error()[0]), total / precision
            )
            spread = float(belief.mean_sd()[0]) * math.sqrt(precision)
            within(spread, 1 / math.sqrt(2 * 1024), 1.0)
            if n == 0:
                warm = len(compilations)
        assert len(compilations) == warm
        assert belief.mu.dtype == jnp.float64


@pytest.fixture(scope="module")
def shared():
    return irsppl.from_numpyro_joint(sharp_joint, 2, representation="particles", num_particles=1024)


def test_sharp_rewards_of_correlated_arms_in_one_batch(shared):
    """Two rewards in one call, each of which collapses the weights; closed form as above."""
    belief = shared
    arms, rewards = np.array([0, 1]), np.array([-1.9, 0.4])
    belief = belief.update(arms, rewards)
    design = np.array([[1.0, 0.0], [1.0, 1.0]])
    cov = np.linalg.inv(np.eye(2) + 1e4 * design.T @ design)
    exact = design @ cov @ design.T @ (1e4 * rewards)
    sd = np.sqrt(np.einsum("ai,ij,aj->a", design, cov, design))
    assert int(belief.tempered) == 2 and float(belief.effective_sample_size()) > 512
    for arm in (0, 1):
        within(
            float(belief.predictive_mean()[arm]), float(belief.mean_error()[arm]), exact[arm], 1e-6
        )
        within(float(belief.mean_sd()[arm]) / sd[arm], 1 / math.sqrt(2 * 1024), 1.0)


@pytest.mark.parametrize("name", ["regional_stores", "trading_returns"])
def test_the_likelihood_of_a_record_and_its_gradient(name):
    """Blocks and counts of equal rewards against one sum over the rewards, written out."""
    belief = read(name)
    joint = not belief.is_independent
    model = belief.model if joint else belief.models[0]
    rng = np.random.default_rng(4)
    rewards = jnp.asarray(rng.integers(0, 2, 150) if joint else rng.normal(0.0, 2.0, 150))
    arms = jnp.asarray(rng.integers(0, model.num_arms, 150), jnp.int32)
    params = model.sample_prior(jax.random.key(1))

    def plainly(params, power):
        each = jax.vmap(lambda r, a: model.log_likelihood(params, r, a if joint else None))
        terms = each(rewards[:101], arms[:101])
        return jnp.sum(terms[:100]) + power * terms[100]

    def by_blocks(params, power):
        data = record(model, rewards.astype(float), arms, jnp.asarray(101), power)
        return data_log_likelihood(model, params, data)

    power = jnp.asarray(0.3)
    ours, theirs = (jax.jit(jax.value_and_grad(f))(params, power) for f in (by_blocks, plainly))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4), ours, theirs)


# ---- how good, how fast


def play(belief, rewards):
    """Seconds for these updates, one call each, arms in turn."""
    start = time.perf_counter()
    for n, reward in enumerate(rewards):
        belief = belief.update(n % 2, reward)
    jax.block_until_ready(jax.tree.leaves(belief))
    return time.perf_counter() - start, belief


@pytest.fixture(scope="module")
def model():
    first = irsppl.from_numpyro(gamma_noise, 2, representation="particles", num_particles=1024)
    return first.models[0]


@pytest.fixture(scope="module")
def clouds(model):
    """Clouds of one model with different keys: nothing compiles after the first."""

    def cloud(key):
        return Particles([model], [[0, 1]], 1024, jax.random.key(key), "")

    cloud(0).update(0, 1.0)
    return cloud


def test_an_update_costs_less_than_fifty_conjugate_ones(clouds):
    """1,024 points, moves included: the median of three ratios, each of 100 updates in one run."""
    rewards = np.random.default_rng(2).gamma(2.0, 0.5, 100)
    conjugate = irsppl.NormalNormal([0.0, 0.0], [1.0, 1.0], [1.0, 1.0])
    conjugate.update(0, 1.0)
    ratios = []
    for key in range(3):
        slow, belief = play(clouds(key), rewards)
        assert np.all(np.asarray(belief.rejuvenations) > 0)
        ratios.append(slow / play(conjugate, rewards)[0])
    assert np.median(ratios) < 50


def test_the_error_estimate_of_a_cloud_is_honest(model, clouds):
    """12 clouds after 40 rewards against quadrature: squared errors over their estimates average
    to at most 1 + 4 sqrt(2 / 24), 4 standard errors of the mean of 24 chi-squares."""
    rewards = np.random.default_rng(5).gamma(2.0, 0.5, 40)
    exact = Quadrature([model], [[0, 1]], 512, "").update(np.arange(40) % 2, rewards)
    assert np.all(np.asarray(exact.mean_error()) < 1e-5)
    squares = []
    for key in range(12):
        _, belief = play(clouds(100 + key), rewards)
        gap = np.asarray(belief.predictive_mean()) - np.asarray(exact.predictive_mean())
        squares.append((gap / np.asarray(belief.mean_error())) ** 2)
    assert 0.1 < np.mean(squares) < 1 + 4 * math.sqrt(2 / 24)


def by_grid(count, total):
    """Of `gamma_noise`, by sums over 200,001 points: mean and sd of exp(latent), sd of latent."""
    grid = np.linspace(-6, 6, 200_001)
    log_post = -0.5 * (grid / 0.7) ** 2 - 2 * count * grid - 2 * np.exp(-grid) * total
    weights = np.exp(log_post - log_post.max())
    weights /= weights.sum()
    mean, centre = weights @ np.exp(grid), weights @ grid
    return (
        mean,
        math.sqrt(weights @ (np.exp(grid) - mean) ** 2),
        math.sqrt(weights @ (grid - centre) ** 2),
    )


def after(belief, count, total):
    """All rewards at once: the likelihood of `gamma_noise` depends on number and total only."""
    nodes = belief.params[0]["log_mean"]
    logs = belief.log_weights - 2 * count * nodes - 2 * jnp.exp(-nodes) * total
    return eqx.tree_at(lambda b: b.log_weights, belief, jax.nn.log_softmax(logs))


def test_quadrature_knows_its_error(model):
    """32 nodes, 0 to 5,000 rewards: never further from a much finer grid than it says. What it says
    is of use: below a tenth of the posterior's spread exactly while nodes are closer than that."""
    rewards = np.random.default_rng(6).gamma(2.0, 0.6, 5000)
    spacing = 0.7 * 12 / 31
    with jax.enable_x64(True):
        prior = Quadrature([model], [[0]], 32, "")
        for count in (0, 1, 3, 10, 50, 250, 1000, 5000):
            total = rewards[:count].sum()
            belief = after(prior, count, total)
            told = float(belief.mean_error()[0])
            mean, spread, latent_spread = by_grid(count, total)
            assert abs(float(belief.predictive_mean()[0]) - mean) <= told + 1e-12
            assert (told < 0.1 * spread) == (spacing < latent_spread), count
        beyond = after(prior, 100, 100 * math.exp(0.7 * 6.5))
        assert math.isinf(float(beyond.mean_error()[0]))


# ---- ArviZ and pictures


def test_arviz_data_have_prior_and_posterior(clouds, monkeypatch):
    """Draws of both match the belief and the prior (4 standard errors, a false alarm in 16,000
    each); ArviZ's own tables and plots take them. A conjugate belief has forgotten its prior."""
    _, belief = play(clouds(0), np.random.default_rng(5).gamma(2.0, 0.5, 40))
    data = belief.to_arviz(key=1, num_draws=1000)
    for group, expected in (
        ("prior", np.full(2, math.exp(0.7**2 / 2))),
        ("posterior", np.asarray(belief.predictive_mean())),
    ):
        for name, kind in (("mean_reward", group), ("reward", f"{group}_predictive")):
            draws = np.asarray(data[kind][name])
            assert draws.shape == (1, 1000, 2)
            for arm in (0, 1):
                column = draws[0, :, arm].astype(float)
                within(column.mean(), column.std() / math.sqrt(1000), expected[arm])
    assert not np.array_equal(*np.asarray(data["prior"]["mean_reward"])[0].T)
    az = load_arviz()
    monkeypatch.setattr(az.Numba, "numba_flag", False)  # ArviZ's own code, but not compiled
    table = az.summary(data, kind="stats", round_to="none")
    np.testing.assert_allclose(
        table["mean"], np.asarray(data["posterior"]["mean_reward"])[0].mean(axis=0), rtol=1e-6
    )
    assert len(np.ravel(az.plot_posterior(data))) == 2
    assert az.plot_forest(data) is not None
    conjugate = irsppl.NormalNormal([0.0], [1.0], [1.0]).to_arviz(num_draws=10)
    assert "posterior" in conjugate and "prior" not in conjugate


def test_joint_prior_draws_share_their_latents(shared):
    """Arm 1 is arm 0 plus an effect as wide: correlation 1 / sqrt(2) under the prior (4 standard
    errors of Fisher's z)."""
    means = np.asarray(shared.to_arviz(num_draws=2000)["prior"]["mean_reward"])[0]
    found = np.corrcoef(means.T)[0, 1]
    within(math.atanh(found), 1 / math.sqrt(1997), math.atanh(math.sqrt(0.5)))


def test_quantiles_and_trajectories_of_a_belief():
    """Normal arms have both in closed form; 4 standard errors of 2,000 paths."""
    belief = irsppl.NormalNormal([0.0, 1.0], [1.0, 2.0], [1.0, 1.0])
    levels = np.array([0.05, 0.5, 0.95])
    told = evolution(
        belief, np.array([0, 0, 1]), np.array([2.0, 1.0, 0.0]), levels, 9, 2000, jax.random.key(0)
    )
    assert told.counts.tolist() == [[0, 0], [1, 0], [2, 0], [2, 1]]
    np.testing.assert_allclose(told.means[:, 0], [0, 1, 1, 1], atol=1e-6)
    for step, sd in enumerate([1, math.sqrt(1 / 2), math.sqrt(1 / 3), math.sqrt(1 / 3)]):
        expected = stats.norm(told.means[step, 0], sd).ppf(levels)
        np.testing.assert_allclose(told.quantiles[step, :, 0], expected, atol=0.025 * sd)
    assert told.futures.shape == (2000, 2, 10)
    np.testing.assert_allclose(told.futures[:, :, 0], told.means[[-1] * 2000], rtol=1e-5)
    ends = told.futures[:, 0, -1].astype(float)
    sd = math.sqrt(1 / 3 - 1 / 12)  # prior less posterior variance
    within(ends.mean(), sd / math.sqrt(2000), told.means[-1, 0])
    within(ends.std(), sd / math.sqrt(4000), sd)


def test_the_picture_of_a_belief(clouds):
    from matplotlib.figure import Figure

    arms, rewards = [0, 0, 1, 0], [1.0, 0.4, 2.0, 0.7]
    panels = plot_belief(clouds(0), arms, rewards, horizon=6, num_paths=5, labels=["a", "b"])
    assert [panel.get_title() for panel in panels] == ["a", "b"]
    for panel, count in zip(panels, (3, 1), strict=True):
        line, *paths, point = panel.lines[:7]
        assert panel.get_xlabel() and len(paths) == 5
        assert line.get_xdata().tolist() == list(range(count + 1))
        assert all(path.get_xdata().tolist() == list(range(count, count + 7)) for path in paths)
        assert all(path.get_ydata()[0] == pytest.approx(line.get_ydata()[-1]) for path in paths)
        assert point.get_xdata()[0] == count
    assert len({panel.lines[0].get_color() for panel in panels}) == 2
    words = [text.get_text() for text in panels[0].figure.legends[0].get_texts()]
    assert "predictive mean" in words and panels[0].get_ylabel()
    own = Figure().subplots(1, 2)
    assert list(plot_belief(clouds(0), ax=own, horizon=6, num_paths=5)) == list(own)
    for options, message in (
        ({"arms": [0], "rewards": []}, "one length"),
        ({"arms": [2], "rewards": [1.0]}, "arm must be"),
        ({"arms": [0], "rewards": [-1.0]}, "reward must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"labels": ["a"]}, "labels must be 2 names"),
        ({"ax": own[:1]}, "ax must be 2 Axes"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_belief(clouds(0), **options)


@pytest.fixture(autouse=True)
def _close():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
