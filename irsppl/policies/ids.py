"""IDS: information-directed sampling."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, log_ndtr, xlog1py, xlogy
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from irsppl._checks import as_count, one_of
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, BetaBernoulli, NormalNormal, PointBelief
from irsppl.policies._base import Policy

# Edges of the panels of the integral, in standard deviations from each arm's mean.
_EDGES = (-6.0, -3.0, -1.0, 1.0, 3.0, 6.0)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(6)
# Edges of cells for beliefs without a density, which may have heavy tails.
CELLS = np.concatenate([[-10, -6, -4.5, -3.5], np.arange(-12, 13) / 4, [3.5, 4.5, 6, 10, 20]])
# Rewards at which the mutual information of a Gaussian arm is evaluated.
_REWARDS, _REWARD_WEIGHTS = np.polynomial.hermite_e.hermegauss(16)

Terms = tuple[Float[Array, " K"], Float[Array, " K"]]


class IDS(Policy):
    """Draw the arm so that squared expected regret per unit of information is least.

    Russo and Van Roy (2018), "Learning to optimize via information-directed sampling". The
    information that an arm's reward gives about which arm is best is measured by

    - "mutual": the mutual information, for Bernoulli and Gaussian arms by quadrature;
    - "variance": the variance, over which arm is best, of the arm's conditional mean, for any
      belief: by quadrature for Bernoulli and Gaussian arms, from `cdf` and `expected_max` for other
      independent arms, from the points or `num_samples` draws of the means for correlated ones. It
      does not see differences in noise.
    - "auto": mutual for Bernoulli arms, variance for all others. For Gaussian arms that is what
      the public implementations do, and it reproduces the published figures.

    The last period is played myopically: information could not pay there.
    """

    name: ClassVar[str] = "ids"
    information: str = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)

    def __init__(self, information: str = "auto", num_samples: int = 1000):
        self.information = one_of("information", information, ("auto", "mutual", "variance"))
        self.num_samples = as_count("num_samples", num_samples, minimum=2)

    def check(self, bandit: Bandit) -> None:
        known = isinstance(bandit.belief, (BetaBernoulli, NormalNormal))
        if self.information == "mutual" and not known:
            raise ValueError(
                "IDS(information='mutual') knows the mutual information of Bernoulli and Gaussian "
                f"rewards only, not of {type(bandit.belief).__name__}: use 'variance'"
            )

    def settled(self, bandit: Bandit) -> bool:
        return int(bandit.remaining) == 1

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        terms_key, coin_key = jax.random.split(key)
        first, second, share = best_mixture(*self.terms(terms_key, bandit))
        drawn = jnp.where(jax.random.uniform(coin_key) < share, first, second)
        myopic = jnp.argmax(bandit.belief.predictive_mean())
        return jnp.where(bandit.remaining == 1, myopic, drawn)

    def terms(self, key: Array, bandit: Bandit) -> Terms:
        """(expected regret, information) of each arm; the key matters where they are sampled."""
        belief = bandit.belief
        if isinstance(belief, BetaBernoulli):
            return _bernoulli_terms(belief, self.mutual(True))
        if isinstance(belief, NormalNormal):
            return _gaussian_terms(belief, self.mutual(False))
        if belief.is_independent:
            return _cell_terms(belief)
        if isinstance(belief, PointBelief):  # means [N, K], weights [N]
            return _weighted_terms(belief.mu, belief.weights)
        means = jax.vmap(belief.sample_means)(jax.random.split(key, self.num_samples))
        return _weighted_terms(means, jnp.full(self.num_samples, 1 / self.num_samples))

    def mutual(self, bernoulli: bool) -> bool:
        """Whether information is measured by mutual information."""
        return bernoulli if self.information == "auto" else self.information == "mutual"


def best_mixture(
    delta: Float[Array, " K"], gain: Float[Array, " K"]
) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """Arms i and j and the probability of i that minimise (regret)^2 / information.

    Two arms suffice. Along their mixtures the ratio is convex, with its stationary point at
    q = Delta_j / (Delta_i - Delta_j) - 2 g_j / (g_i - g_j).
    """
    tiny = jnp.finfo(delta.dtype).tiny

    def ratio(regret: Array, information: Array) -> Array:
        return regret**2 / jnp.maximum(information, tiny)

    alone = ratio(delta, gain)
    arm = jnp.argmin(alone)
    d, g = delta[:, None] - delta[None, :], gain[:, None] - gain[None, :]
    helps = d * g > 0  # otherwise one of the two is better on both counts
    q = delta[None, :] / jnp.where(helps, d, 1) - 2 * gain[None, :] / jnp.where(helps, g, 1)
    inside = helps & (q > 0) & (q < 1)
    mixed = jnp.where(inside, ratio(delta[None, :] + q * d, gain[None, :] + q * g), jnp.inf)
    best = jnp.argmin(mixed)
    first, second = best // len(delta), best % len(delta)
    # A mixture must be clearly better, so that rounding does not break ties.
    better = mixed.ravel()[best] < alone[arm] * (1 - 8 * jnp.finfo(delta.dtype).eps)
    share = jnp.where(better, q.ravel()[best], 1)
    return jnp.where(better, first, arm), jnp.where(better, second, arm), share


# ---- regret and information


def _panels(edges: Float[Array, " E"]) -> tuple[Float[Array, " J"], Float[Array, " J"]]:
    """Nodes and weights of the panels between edges (in any order)."""
    edges = jnp.sort(edges)
    half = jnp.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (1 + jnp.asarray(_PANEL_NODES, edges.dtype)[None, :])
    return x.ravel(), (half * jnp.asarray(_PANEL_WEIGHTS, edges.dtype)[None, :]).ravel()


def _edges(belief: Belief) -> Float[Array, " E"]:
    """Edges that make panels short where any arm's belief has its body."""
    mean, sd = belief.predictive_mean()[:, None], belief.mean_sd()[:, None]
    return (mean + sd * jnp.asarray(_EDGES, mean.dtype)[None, :]).ravel()


def _moments(
    x: Float[Array, "#K J"],
    weighted: Float[Array, "K J"],
    log_cdf: Float[Array, "K J"],
    lower: Float[Array, "K J"],
) -> tuple[Float[Array, " K"], Float[Array, "K K"]]:
    """(P(A* = b), E[mu_a; A* = b] as [b, a]).

    weighted: density of the arms' means times the weights of the nodes; lower: E[mu_a | mu_a <= x].
    """
    best = weighted * jnp.exp(jnp.sum(log_cdf, axis=0)[None, :] - log_cdf)  # b is best, and at x
    best = best / jnp.sum(best)
    prob = jnp.sum(best, axis=1)
    own = jnp.sum(best * x, axis=1)[:, None]
    return prob, jnp.where(jnp.eye(len(prob), dtype=bool), own, best @ lower.T)


def _regret(cross: Array) -> Array:
    # Summed over the cases in which another arm is best, all of them positive.
    return jnp.sum(jnp.diagonal(cross)[:, None] - cross, axis=0)


def _spread(prob: Array, cross: Array) -> Array:
    """Variance over A* of E[mu_a | A*], for each arm a."""
    given = cross / jnp.where(prob > 0, prob, 1)[:, None]
    mean = jnp.sum(cross, axis=0)
    return jnp.sum(prob[:, None] * (given - mean[None, :]) ** 2, axis=0)


def _bernoulli_terms(belief: BetaBernoulli, mutual: bool) -> Terms:
    alpha, beta = belief.alpha[:, None], belief.beta[:, None]
    edges = jnp.concatenate([jnp.clip(_edges(belief), 0, 1), jnp.arange(2, dtype=alpha.dtype)])
    # In the angle whose squared sine is x, densities that are infinite at an end are tame.
    angle, weights = _panels(jnp.arcsin(jnp.sqrt(edges)))
    weights = weights * jnp.sin(2 * angle)
    eps = jnp.finfo(angle.dtype).eps
    x = jnp.clip(jnp.sin(angle) ** 2, eps, 1 - eps)  # panels of no length may sit on the ends
    at = jnp.broadcast_to(x[None, :], (belief.num_arms, x.shape[0]))
    cdf = jnp.maximum(betainc(alpha + 0 * at, beta + 0 * at, at), jnp.finfo(x.dtype).tiny)
    p = jnp.exp(xlogy(alpha, at) + xlog1py(beta, -at) - betaln(alpha, beta))
    lower = alpha / (alpha + beta) * (1 - p / (alpha * cdf))
    weighted = weights[None, :] * p / (at * (1 - at))
    prob, cross = _moments(x[None, :], weighted, jnp.log(cdf), jnp.clip(lower, 0, at))
    if not mutual:
        return _regret(cross), _spread(prob, cross)
    # A 0/1 reward is determined by its mean: I(A*; Y_a) = sum_b P(A* = b) d(E[mu_a | b], E[mu_a]).
    given = jnp.clip(cross / jnp.where(prob > 0, prob, 1)[:, None], 0, 1)
    mean = jnp.sum(cross, axis=0)[None, :]
    divergence = _bernoulli_divergence(given, jnp.broadcast_to(mean, given.shape))
    return _regret(cross), jnp.sum(prob[:, None] * divergence, axis=0)


def _bernoulli_divergence(p: Array, q: Array) -> Array:
    """d(p, q), also where p and q are so close that the logarithms cancel (by its series)."""
    gap = p - q
    steep = gap / (q * (1 - q))
    near = 0.5 * gap * steep * (1 - steep * (1 - 2 * q) / 3)
    far = xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q))
    return jnp.where(jnp.abs(steep) < 1e-2, near, far)


def _gaussian_terms(belief: NormalNormal, mutual: bool) -> Terms:
    x, weights = _panels(_edges(belief))
    mean, sd, noise = belief.mean[:, None], belief.sd[:, None], belief.noise_sd[:, None]
    z = (x[None, :] - mean) / sd
    log_cdf = log_ndtr(z)
    weighted = weights[None, :] * norm.pdf(z) / sd
    lower = mean - sd * jnp.exp(norm.logpdf(z) - log_cdf)
    prob, cross = _moments(x[None, :], weighted, log_cdf, lower)
    if not mutual:
        return _regret(cross), _spread(prob, cross)
    # A reward of arm a moves its mean and narrows its belief. [a, y, j]: at the nodes, after a few
    # rewards y of it.
    rewards = jnp.asarray(_REWARDS, x.dtype)[None, :]
    total = jnp.sqrt(sd**2 + noise**2)
    center, narrow = mean + sd**2 / total * rewards, (sd * noise / total)[:, :, None]
    after = (x[None, None, :] - center[:, :, None]) / narrow
    # [a, b, j]: "b is best, and at x", but for the factor that arm a's new belief contributes.
    others = jnp.sum(log_cdf, axis=0)[None, None, :] - log_cdf[:, None, :]
    rest = weighted[None] * jnp.exp(others - log_cdf[None, :, :])
    alone = weights[None, :] * jnp.exp(others[:, 0, :])
    posterior = jnp.einsum("ayj,abj->ayb", norm.cdf(after), rest)
    itself = jnp.einsum("ayj,aj->ay", norm.pdf(after) / narrow, alone)[:, :, None]
    own = jnp.eye(len(prob), dtype=bool)[:, None, :]
    posterior = jnp.where(own, itself, posterior)
    posterior = posterior / jnp.sum(posterior, axis=2, keepdims=True)
    now = jnp.maximum(prob, jnp.finfo(x.dtype).tiny)[None, None, :]
    divergence = jnp.sum(xlogy(posterior, posterior / now), axis=2)
    share = jnp.asarray(_REWARD_WEIGHTS / np.sum(_REWARD_WEIGHTS), x.dtype)
    return _regret(cross), jnp.maximum(divergence @ share, 0)


def _cell_terms(belief: Belief) -> Terms:
    """By variance, for any independent arms, from what every belief can say of its means.

    The range of the means is cut into cells; in a cell the other arms' CDFs are taken at their
    average, so the error is of second order in the cells' width.
    """
    mean, sd = belief.predictive_mean()[:, None], belief.mean_sd()[:, None]
    edges = jnp.sort((mean + sd * jnp.asarray(CELLS, mean.dtype)[None, :]).ravel())
    cdf = jax.vmap(belief.cdf)(edges).T  # [K, E]
    # E[mu; mu <= x] = m - E[max(mu, x)] + x P(mu <= x)
    partial = mean - jax.vmap(belief.expected_max)(edges).T + edges[None, :] * cdf
    tiny = jnp.finfo(mean.dtype).tiny
    left, right = edges[None, :-1], edges[None, 1:]
    mass = jnp.maximum(jnp.diff(cdf, axis=1), 0)
    below = jnp.maximum((cdf[:, 1:] + cdf[:, :-1]) / 2, tiny)
    lower = jnp.clip((partial[:, 1:] + partial[:, :-1]) / 2 / below, edges[0], right)
    inside = jnp.clip(jnp.diff(partial, axis=1) / jnp.maximum(mass, tiny), left, right)
    prob, cross = _moments(inside, mass, jnp.log(below), lower)
    return _regret(cross), _spread(prob, cross)


def _weighted_terms(means: Float[Array, "N K"], weights: Float[Array, " N"]) -> Terms:
    """By variance, from joint draws of the means, or weighted points (arms may be correlated)."""
    best = jax.nn.one_hot(jnp.argmax(means, axis=1), means.shape[1], dtype=means.dtype)
    best = best * weights[:, None]
    prob, cross = jnp.sum(best, axis=0), best.T @ means
    return _regret(cross), _spread(prob, cross)
