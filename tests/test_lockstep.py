"""Clouds in simulations: play side by side, moves, and plans where rewards are many.

Where nothing has to move, play side by side is the plain loop, arm by arm. Where clouds move, their
means are those of a dense grid. Plans by atoms of the reward have the decisions of the conjugate
family. Statistical tests fix their seeds; fresh ones would raise a false alarm with probability
0.1 percent in all.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import irsppl
from irsppl import engine
from irsppl.beliefs import _batch as batch
from irsppl.beliefs._subclouds import InaccurateBeliefWarning, thin
from irsppl.engine import answers, clouds, renewal
from irsppl.engine.families import curves_of, start_of
from irsppl.engine.families.weights import read_curve
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import streams
from irsppl.policies import find_policy

from .oracles.dense_grid import student_t_log_density

HORIZON, REPLICATIONS, POINTS = 24, 20, 64


def heavy(reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.5))
    numpyro.sample("reward", dist.StudentT(4.0, place, scale), obs=reward)


def faint(reward=None):
    z = numpyro.sample("z", dist.Normal(0.0, 0.2))
    tilt = numpyro.sample("tilt", dist.Normal(0.0, 0.1))
    numpyro.sample("reward", dist.Bernoulli(logits=z + tilt), obs=reward)


def spike(reward=None):
    """No effect, or some."""
    there = numpyro.sample("there", dist.Bernoulli(0.5))
    size = numpyro.sample("size", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(there * size, 0.3), obs=reward)


def leaning(arm, reward=None):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.HalfNormal(1.0))
    numpyro.sample("reward", dist.Bernoulli(logits=z + slope * arm), obs=reward)


def known_noise(reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Normal(place, 2.0), obs=reward)


def sure_noise(reward=None):
    place = numpyro.sample("place", dist.Normal(0.4, 0.5))
    numpyro.sample("reward", dist.Normal(place, 1.0), obs=reward)


@functools.cache
def heavy_bandit():
    belief = irsppl.from_numpyro(heavy, num_arms=2, num_particles=POINTS)
    return irsppl.Bandit(belief, HORIZON).trimmed(HORIZON)


@functools.cache
def heavy_futures():
    drawn = draw_outcomes(heavy_bandit(), jax.random.key(3), 0, REPLICATIONS)
    return np.asarray(drawn.rewards), streams((0, 1), 2, 0, REPLICATIONS)


# ---- nothing moves: the plain loop


LIMITS = {
    "law": dict(horizon=np.array([1.0, 0.8, 0.5, 0.3])),
    "budget and delay": dict(costs=[1, 1], budget=5, delay=[1, 2]),
}


@pytest.mark.parametrize("limits", LIMITS)
def test_play_side_by_side_is_the_plain_loop(limits):
    belief = irsppl.from_numpyro(faint, num_arms=2, num_particles=POINTS)
    bandit = irsppl.Bandit(belief, **LIMITS[limits])
    still = irsppl.Bandit(belief.for_simulation(), **LIMITS[limits])
    futures = draw_outcomes(bandit, jax.random.key(1), 0, REPLICATIONS)
    rewards, delays, periods = (
        None if field is None else np.asarray(field)
        for field in (futures.rewards, futures.delays, futures.periods)
    )
    seeds = streams((0, 1), 2, 0, REPLICATIONS)
    policy = find_policy("irs.fh")
    side_by_side = engine.kernel(policy, bandit).played(rewards, seeds, delays, periods)
    plain = engine.kernel(policy, still).played(rewards, seeds, delays, periods)
    assert plain.ess is None and side_by_side.ess.min() > POINTS / 2
    assert np.array_equal(side_by_side.arms, plain.arms)
    assert len(np.unique(plain.arms)) > 1


# ---- clouds that move


def grid_means(rewards):
    """Posterior mean and standard deviation of the location, by a grid over both latents."""
    place = np.linspace(-4, 4, 201)[:, None]
    log_scale = np.linspace(-3.5, 1.5, 101)[None, :]
    logs = stats.norm.logpdf(place) + stats.norm.logpdf(log_scale, -1.0, 0.5)
    for reward in rewards:
        z = (reward - place) / np.exp(log_scale)
        logs = logs + student_t_log_density(z, 4.0, 0.0, 1.0) - log_scale
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = (weights * place).sum()
    return mean, np.sqrt((weights * (place - mean) ** 2).sum())


def watched(bandit, rewards, seeds):
    """(what was played, the state at its end) of random arms."""
    kept = {}

    class Watched(clouds.CloudPlay):
        def __init__(self, *args):
            super().__init__(*args)
            kept["host"] = self

    before = clouds.CloudPlay
    clouds.CloudPlay = Watched
    try:
        made = engine.kernel(find_policy("random"), bandit).played(rewards, seeds)
    finally:
        clouds.CloudPlay = before
    return made, kept["host"]


@functools.cache
def played():
    return watched(heavy_bandit(), *heavy_futures())


@pytest.mark.parametrize("model, rewards", [(heavy, "many"), (leaning, "few")])
def test_posterior_densities_of_many_clouds_are_plain_sums(model, rewards):
    """Each cloud's own data, as many as it has seen: the prior and one term for each reward."""
    if rewards == "many":
        model = irsppl.from_numpyro(model, num_arms=1, num_particles=16).models[0]
    else:
        model = irsppl.from_numpyro_joint(model, num_arms=2, num_particles=16).model
    rng = np.random.default_rng(2)
    z, seen = rng.normal(size=(3, 4, 2)), np.array([0, 5, 33], np.int32)
    data = rng.normal(size=(3, 64)) if rewards == "many" else rng.integers(0, 2, (3, 64))
    arms = rng.integers(0, model.num_arms, (3, 64)).astype(np.int32)
    found = batch.posteriors(model, *(np.asarray(x, np.float32) for x in (z, data)), arms, seen)

    def plainly(z, reward, arm):
        point = model.constrain(z)
        each = jax.vmap(lambda r, a: model.log_likelihood(point, r, a if model.joint else None))
        return model.log_prior_unconstrained(z), jnp.cumsum(each(reward, arm))

    plain = jax.jit(jax.vmap(jax.vmap(plainly, (0, None, None))))
    prior, sums = plain(*(jnp.asarray(x, jnp.float32) for x in (z, data)), arms)
    for c, n in enumerate(seen):
        exact = prior[c] + (sums[c, :, n - 1] if n else 0)
        np.testing.assert_allclose(found.log_density[c], exact, rtol=1e-4, atol=1e-3)


def test_moved_clouds_have_the_posterior_of_a_dense_grid():
    made, host = played()
    gaps = []
    for s in range(REPLICATIONS):
        for arm in range(2):
            seen = host.stage.seen[s, arm]
            mean, sd = grid_means(host.stage.record[s, arm, :seen])
            ess = 1 / np.sum(host.clouds.weights[s, arm] ** 2) / host.stage.inflation[s, arm]
            gaps.append((host.clouds.means[s, arm] - mean) / (sd / np.sqrt(ess)))
            # A pull of the last period is not looked at.
            assert seen >= np.sum(made.arms[s] == arm) - 1
    # Root mean square of 40 standard normals: below 1.37 but for one case in 10,000. Points that
    # are spread evenly do better than independent ones.
    assert np.sqrt(np.mean(np.square(gaps))) < 0.8
    assert host.number[:REPLICATIONS].min() >= 2, "every replication has moved"
    assert made.ess.min() > POINTS / 4


def test_a_cloud_with_a_far_part_is_left_to_mcmc():
    """Three of 64 points far from the rest: a fitted law gives next to none there, and the new
    points' weights cannot tell. Without them the cloud is renewed."""
    model, params = heavy_bandit().belief.models[0], heavy_bandit().belief.params[0]
    rng = np.random.default_rng(1)
    z = rng.normal([0.0, -1.0], [0.3, 0.2], (2, POINTS, 2)).astype(np.float32)
    z[0, :3, 0] += 8.0
    even, nothing = np.full((2, POINTS), 1 / POINTS), np.zeros((2, 128), np.int32)
    rewards = np.tile(rng.standard_t(4.0, 10) * 0.4, (2, 13))[:, :128].astype(np.float32)
    seen, seeds = np.full(2, 10, np.int32), np.array([1, 2], np.uint64)
    asked = renewal.Asked(z, even, even, rewards, nothing, seen, seeds, np.zeros(2, np.int64))
    params = {name: np.asarray(leaf) for name, leaf in params.items()}
    (own,), _ = answers.answers([model], [(0, 1)], [params], [z], 1, np.float32)
    made, good = renewal.renew(own, asked)
    assert good.tolist() == [False, True]
    assert 1 / np.sum(made.weights[1] ** 2) > 0.5 * POINTS


def test_clouds_with_discrete_latents_move_in_simulations():
    """A spike and a slab against sums: given whether there is an effect, all is Gaussian."""
    belief = irsppl.from_numpyro(spike, num_arms=2, num_particles=POINTS)
    bandit = irsppl.Bandit(belief, HORIZON).trimmed(HORIZON)
    rewards = np.asarray(draw_outcomes(bandit, jax.random.key(3), 0, 8).rewards)
    made, host = watched(bandit, rewards, streams((0, 1), 2, 0, 8))
    gaps = []
    for s, arm in np.ndindex(8, 2):
        n = host.stage.seen[s, arm]
        total = host.stage.record[s, arm, :n].sum() / 0.09
        spread = 1 / (1 + n / 0.09)
        # Evidence for an effect over that against: a Gaussian integral over its size.
        odds = np.sqrt(spread) * np.exp(0.5 * spread * total**2)
        share, centre = odds / (1 + odds), spread * total
        mean = share * centre
        sd = np.sqrt(share * (spread + centre**2) - mean**2)
        ess = 1 / np.sum(host.clouds.weights[s, arm] ** 2) / host.stage.inflation[s, arm]
        gaps.append((host.clouds.means[s, arm] - mean) / (sd / np.sqrt(ess)))
    # Root mean square of 16 standard normals: below 1.6 but for one case in 10,000.
    assert np.sqrt(np.mean(np.square(gaps))) < 1.6
    assert host.number[:8].sum() >= 8, "where nothing has an effect no cloud needs to move"
    assert made.ess.min() > POINTS / 8


def test_no_grouping_changes_what_a_replication_does():
    made, _ = played()
    rewards, seeds = heavy_futures()
    kernel = engine.kernel(find_policy("random"), heavy_bandit())
    parts = [kernel.played(rewards[i : i + 7], seeds[i : i + 7]) for i in range(0, 20, 7)]
    assert np.array_equal(np.concatenate([part.arms for part in parts]), made.arms)
    assert np.array_equal(np.concatenate([part.ess for part in parts]), made.ess)


def test_threads_share_the_groups(monkeypatch):
    rewards, seeds = heavy_futures()
    kernel = engine.kernel(find_policy("random"), heavy_bandit())
    monkeypatch.setattr(clouds, "_TOGETHER", (8,))  # three groups, one of them short
    one, two = (kernel.played(rewards, seeds, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.arms, two.arms) and np.array_equal(one.ess, two.ess)
    assert np.array_equal(one.arms, played()[0].arms)


def test_a_thinned_cloud_is_the_whole_in_small():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(512))[None]
    part, means = (np.arange(512) % 16)[None], rng.normal(size=(1, 512))
    chosen = thin(weights, part, means, 256)[0]
    assert np.array_equal(np.bincount(part[0][chosen]), np.full(16, 16))
    assert np.all(np.diff(means[0][chosen]) >= 0)
    # Parts are made to weigh the same, so each is compared with its own mean.
    gaps = []
    for number in range(16):
        own = part[0] == number
        exact = np.average(means[0][own], weights=weights[0][own])
        spread = np.sqrt(np.average((means[0][own] - exact) ** 2, weights=weights[0][own]))
        gaps.append((means[0][chosen[part[0][chosen] == number]].mean() - exact) / spread)
    assert np.max(np.abs(gaps)) < 0.25  # 16 independent draws would have this as one sd


# ---- plans where rewards are many


def test_atoms_are_an_experiment():
    belief = irsppl.from_numpyro(known_noise, num_arms=1, representation="quadrature")
    own = {name: np.asarray(leaf) for name, leaf in belief.params[0].items()}
    weights = np.exp(np.asarray(belief.log_weights))
    seeds, model = np.array([[0, 5]], np.uint32), belief.models[0]
    mass = np.asarray(batch.laws(model, 256, own, weights, seeds, np.int32(1)), np.float64)[0, 0]
    weights = weights[0]
    assert np.allclose(mass.sum(axis=0), 1, atol=1e-5)
    joint = mass * weights[None, :]
    chance, mu = joint.sum(axis=1), np.asarray(belief.mu[0], np.float64)
    after = joint @ mu / chance
    assert np.isclose(chance @ after, weights @ mu, atol=1e-5)
    # The posterior mean after one reward has variance 1 / (1 + 2^2); 256 draws know it to 9 %.
    assert np.isclose(chance @ after**2, 0.2, rtol=0.36)


@pytest.mark.parametrize("policy", ["ts", "irs.fh", "irs.v-zero", "irs.index"])
def test_plans_by_atoms_decide_like_the_conjugate_family(policy):
    """0.025: 2,000 decisions of each have a standard error of 0.016 in the difference; atoms are
    one sample of 256 rewards, worth 0.01. Four times their root sum of squares is 0.075."""
    prior = irsppl.NormalNormal([0.0, 0.4], [1.0, 0.5], [2.0, 1.0])
    belief = irsppl.from_numpyro([known_noise, sure_noise], representation="quadrature")
    chances = [
        irsppl.action_probabilities(irsppl.Bandit(b, 12), policy, key=4, num_samples=2000)
        for b in (prior, belief)
    ]
    assert abs(chances[0][0] - chances[1][0]) < 0.075
    assert 0.05 < chances[0][0] < 0.95


def test_quadrature_with_many_rewards_plays_like_the_conjugate_family():
    """Greedy play has no randomness: the same rewards lead to the same arms."""
    prior = irsppl.NormalNormal([0.0, 0.4], [1.0, 0.5], [2.0, 1.0])
    belief = irsppl.from_numpyro([known_noise, sure_noise], representation="quadrature")
    bandit = irsppl.Bandit(prior, 12).trimmed(12)
    rewards = np.asarray(draw_outcomes(bandit, jax.random.key(0), 0, REPLICATIONS).rewards)
    seeds = streams((0, 1), 2, 0, REPLICATIONS)
    arms = [
        engine.kernel(find_policy("greedy"), irsppl.Bandit(b, 12)).played(rewards, seeds, **threads)
        for b, threads in ((prior, {}), (belief, {}), (belief, {"threads": 2}))
    ]
    assert np.array_equal(arms[0].arms, arms[1].arms) and len(np.unique(arms[0].arms)) == 2
    assert np.array_equal(arms[1].arms, arms[2].arms)


@njit(cache=True)
def read_all(curve, exact, places, out):
    for i in range(places.size):
        read_curve(curve, exact, places[i], out[i])


def sharp_edge(reward=None):
    place = numpyro.sample("place", dist.Normal(0.0, 1.0))
    numpyro.sample("reward", dist.Laplace(place, 1.0), obs=reward)


def test_curves_are_the_density():
    """Between knots to 4e-6 wherever a point is not e^30 times less likely than the best one,
    in rows of their own exactly; a law that is not smooth has no curves."""
    belief = irsppl.from_numpyro([known_noise, sure_noise], representation="quadrature")
    found = curves_of(belief)
    rewards = np.random.default_rng(0).standard_t(2, (50, 2, 6)) * 3
    rewards[0, :, 0] = 40.0
    places, exact = found.code(rewards)
    assert 0 < np.mean(places < 0) < 0.1
    for arm in range(2):
        own = rewards[:, arm].ravel()
        read = np.empty((own.size, exact.shape[1]), np.float32)
        read_all(found.logs[arm], exact, places[:, arm].ravel(), read)
        logs = found.arms[arm].raw_logs(own)
        best = logs.argmax(axis=1)[:, None]
        gap = read[:, : logs.shape[1]] - logs
        gap -= np.take_along_axis(gap, best, axis=1)
        near = logs > np.take_along_axis(logs, best, axis=1) - 30
        assert np.max(np.abs(gap[near])) < 4e-6
    assert np.allclose(found.mass.sum(axis=1), 1)
    edgy = irsppl.from_numpyro(sharp_edge, num_arms=1, representation="quadrature")
    assert curves_of(edgy) is None and start_of(edgy, frozenset()) is not None


def seldom(reward=None):
    """Most visitors leave nothing, the others some amount."""
    buys = numpyro.sample("buys", dist.Beta(2.0, 5.0))
    numpyro.sample("reward", dist.HurdleLogNormal(1 - buys, 1.0, 0.5), obs=reward)


def test_a_reward_that_comes_again_and_again_has_a_bin_and_rows():
    belief = irsppl.from_numpyro(seldom, num_arms=2)
    found = curves_of(belief)
    buys = np.asarray(found.arms[0].params["buys"], np.float64)
    assert np.allclose(found.mass.sum(axis=1), 1)
    assert np.allclose(found.mass[:, 0], 1 - buys, atol=1e-6)
    places, exact = found.code(np.array([[[0.0, 2.0], [0.0, 2.0]]]))
    assert np.all(places[..., 0] < 0) and np.all(places[..., 1] > 0)
    assert np.allclose(np.exp(exact[0, : buys.size]), (1 - buys) / (1 - buys).max(), atol=1e-6)
    # A future may show the arm that lies behind to be better: plans that learn nothing are greedy.
    bandit = irsppl.Bandit(belief.update(0, 0.0), horizon=40)
    share = irsppl.action_probabilities(bandit, "irs.v-zero", key=0, num_samples=400)
    assert share[0] > 0.3


# ---- what is told


def first_arm(key, bandit):
    return jnp.argmax(bandit.belief.predictive_mean())


def test_simulations_tell_how_good_their_clouds_were():
    with warnings.catch_warnings():
        warnings.simplefilter("error", InaccurateBeliefWarning)
        data = irsppl.simulate(heavy_bandit(), "random", 0, REPLICATIONS, progress=False)
    assert data["effective_sample_size"].dims == ("policy", "replication")
    assert data["effective_sample_size"].min() > POINTS / 4
    bandit = heavy_bandit()
    still = irsppl.Bandit(bandit.belief.for_simulation(), HORIZON)  # by a kernel all the same
    for other, policy in ((bandit, first_arm), (still, "random")):
        with pytest.warns(InaccurateBeliefWarning, match="only reweighted; the least"):
            data = irsppl.simulate(other, policy, 0, REPLICATIONS, progress=False)
        assert data["effective_sample_size"].min() < 4


def test_only_points_that_need_it_are_played_side_by_side():
    nothing = frozenset()
    assert start_of(irsppl.BetaBernoulli([1.0], [1.0]), nothing) is None
    assert start_of(irsppl.from_numpyro(faint, num_arms=1).for_simulation(), nothing) is None
    assert start_of(irsppl.from_numpyro(faint, num_arms=1), nothing).moving
