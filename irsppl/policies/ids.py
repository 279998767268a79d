"""IDS: information-directed sampling."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import ClassVar, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, log_ndtr, xlogy
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from irsppl._checks import as_count, one_of
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, BetaBernoulli, NormalNormal, PointBelief
from irsppl.policies._base import Policy

# Edges of the panels of the integral, in standard deviations from each arm's mean.
_EDGES = (-6.0, -3.0, -1.0, 1.0, 3.0, 6.0)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(6)
# Panels on either side of an arm's centre in the logit of its mean.
_SIDE = 5


def _levels(per_unit: int) -> list[float]:
    """Probabilities at which cells end: so many in a standard deviation of a normal law.

    Cells are cut by probability, so that heavy tails and means far from the body do no harm. What
    lies beyond the last is a cell too; cutting further out would cost digits of what it holds.
    """
    body = (k / per_unit for k in range(-3 * per_unit, 3 * per_unit + 1))
    return [NormalDist().cdf(z) for z in (-4.25, -3.5, *body, 3.5, 4.25)]


# Edges of cells are at these quantiles of each arm, where beliefs are points and where not.
POINT_LEVELS: Final = _levels(4)
_LEVELS: Final = _levels(8)
# Arms of no more points than this have all of them as edges.
MOST_POINTS: Final = 40
# In standard deviations from the mean, where the search for quantiles begins.
_SEARCH = np.sinh(np.linspace(-7.5, 7.5, 33))
# Rewards at which the mutual information of a Gaussian arm is evaluated.
_REWARDS, _REWARD_WEIGHTS = np.polynomial.hermite_e.hermegauss(16)

Terms = tuple[Float[Array, " K"], Float[Array, " K"]]


def shared_nodes(arms: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes and weights on [0, 1] for a cell that so many arms have mass in.

    Their CDFs rise through it together; products of up to eight are integrated exactly.
    """
    nodes, weights = np.polynomial.legendre.leggauss(min(max(math.ceil(arms / 2), 1), 4))
    return (1 + nodes) / 2, weights / 2


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
    z, weights = _panels(_logit_edges(alpha, beta))
    z = z[None, :]
    x, y = jax.nn.sigmoid(z), jax.nn.sigmoid(-z)
    # In the logit no density is infinite, and each tail is taken from the end that it is near.
    log_p = -alpha * jax.nn.softplus(-z) - beta * jax.nn.softplus(z) - betaln(alpha, beta)
    p, left, total = jnp.exp(log_p), z <= 0, alpha + beta
    own, other = jnp.where(left, alpha, beta), jnp.where(left, beta, alpha)
    near = jnp.where(left, x, y)
    first = (own + other) * near  # of the series of the tail, where one more term does
    inner = first > 1e-4
    tail = jnp.where(
        inner,
        betainc(own, other, jnp.where(inner, near, 0.5)),
        p / own * (1 + first / (own + 1)),
    )
    cdf = jnp.maximum(jnp.where(left, tail, 1 - tail), jnp.finfo(z.dtype).tiny)
    lower = jnp.clip(alpha / total * (1 - p / cdf / alpha), 0, x)
    prob, cross = _moments(x, weights[None, :] * p, jnp.log(cdf), lower)
    if not mutual:
        return _regret(cross), _spread(prob, cross)
    # A 0/1 reward is determined by its mean: I(A*; Y_a) = sum_b P(A* = b) d(E[mu_a | b], E[mu_a]).
    given = jnp.clip(cross / jnp.where(prob > 0, prob, 1)[:, None], 0, 1)
    mean = jnp.sum(cross, axis=0)[None, :]
    divergence = _bernoulli_divergence(given, jnp.broadcast_to(mean, given.shape))
    return _regret(cross), jnp.sum(prob[:, None] * divergence, axis=0)


def _logit_edges(alpha: Float[Array, "K 1"], beta: Float[Array, "K 1"]) -> Float[Array, " E"]:
    """Edges in the logit: from the scale of each arm's body out to where its tails end.

    Tails fall like exp(alpha z) to the left and exp(-beta z) to the right, so with small parameters
    they are much longer than the body, which is why panels grow by a factor.
    """
    centre = jnp.log((alpha + 1) / (beta + 1))
    scale = jnp.sqrt(1 / (alpha + 1) + 1 / (beta + 1))
    body = jnp.minimum(scale, 1)
    share = jnp.linspace(0, 1, _SIDE, dtype=alpha.dtype)[None, :]
    left, right = (body * ((6 * scale + 16 / side) / body) ** share for side in (alpha, beta))
    return jnp.concatenate([centre - left, centre, centre + right], axis=1).ravel()


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

    The line is cut into cells, of which the first and the last are open. In a cell all arms' CDFs
    and partial means rise evenly from one edge to the next, so the error is of second order in
    the cells' probability, and arms with equal points have equal chances to be best in them.
    """
    mean = belief.predictive_mean()[:, None]
    if isinstance(belief, PointBelief):
        edges, cdf, partial = _point_cells(belief.mu, belief.weights)
    else:
        edges = jnp.sort(_quantiles(belief).ravel())
        cdf = jax.vmap(belief.cdf)(edges).T  # [K, E]
        # E[mu; mu <= x] = m - E[max(mu, x)] + x P(mu <= x)
        partial = mean - jax.vmap(belief.expected_max)(edges).T + edges[None, :] * cdf
    zero = jnp.zeros_like(mean)
    cdf = jnp.concatenate([zero, cdf, zero + 1], axis=1)
    partial = jnp.concatenate([zero, partial, mean], axis=1)
    left, right = jnp.append(-jnp.inf, edges)[None, :], jnp.append(edges, jnp.inf)[None, :]
    tiny = jnp.finfo(mean.dtype).tiny
    mass, step = jnp.maximum(jnp.diff(cdf, axis=1), 0), jnp.diff(partial, axis=1)
    inside = jnp.clip(jnp.where(mass > 0, step / jnp.maximum(mass, tiny), 0), left, right)
    at, weights = (jnp.asarray(each, mean.dtype) for each in shared_nodes(belief.num_arms))
    below = jnp.maximum(cdf[:, None, :-1] + at[None, :, None] * mass[:, None, :], tiny)
    lower = (partial[:, None, :-1] + at[None, :, None] * step[:, None, :]) / below
    lower = jnp.clip(lower, inside[:, :1, None], right[None])
    weighted = weights[None, :, None] * mass[:, None, :]
    inside = jnp.broadcast_to(inside[:, None, :], below.shape)
    flat = (belief.num_arms, -1)
    prob, cross = _moments(
        inside.reshape(flat),
        weighted.reshape(flat),
        jnp.log(below).reshape(flat),
        lower.reshape(flat),
    )
    return _regret(cross), _spread(prob, cross)


def _quantiles(belief: Belief) -> Float[Array, "K C"]:
    """Of each arm at the levels, roughly: by interpolation, and once more between those."""
    mean, sd = belief.predictive_mean()[:, None], belief.mean_sd()[:, None]
    found = mean + sd * jnp.asarray(_SEARCH, mean.dtype)[None, :]
    levels = jnp.asarray(_LEVELS, mean.dtype)
    for _ in range(2):
        cdf = jax.vmap(belief.cdf, in_axes=1, out_axes=1)(found)
        found = jax.vmap(lambda f, x: jnp.interp(levels, f, x))(cdf, found)
    return found


def _point_cells(
    mu: Float[Array, "K N"], weights: Float[Array, "K N"]
) -> tuple[Float[Array, " E"], Float[Array, "K E"], Float[Array, "K E"]]:
    """Edges at points, and CDFs and partial means there."""
    sums, chosen = jnp.cumsum(weights, axis=1), mu
    if mu.shape[1] > MOST_POINTS:
        levels = jnp.asarray(POINT_LEVELS, sums.dtype)
        place = jax.vmap(lambda own: jnp.searchsorted(own, levels * own[-1]))(sums)
        chosen = jnp.concatenate([jnp.take_along_axis(mu, place, axis=1), mu[:, -1:]], axis=1)
    edges = jnp.sort(chosen.ravel())
    upto = jax.vmap(lambda own: jnp.searchsorted(own, edges, side="right"))(mu)

    def read(running: Array) -> Array:
        return jnp.take_along_axis(jnp.pad(running, ((0, 0), (1, 0))), upto, axis=1)

    return edges, read(sums), read(jnp.cumsum(weights * mu, axis=1))


def _weighted_terms(means: Float[Array, "N K"], weights: Float[Array, " N"]) -> Terms:
    """By variance, from joint draws of the means, or weighted points (arms may be correlated)."""
    best = jax.nn.one_hot(jnp.argmax(means, axis=1), means.shape[1], dtype=means.dtype)
    best = best * weights[:, None]
    prob, cross = jnp.sum(best, axis=0), best.T @ means
    return _regret(cross), _spread(prob, cross)
