"""Beliefs as parts of the engine. To add one: a file, and a line in `_MAKERS`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from irsppl._checks import host64
from irsppl.beliefs import Belief, InKernels, RewardTables
from irsppl.beliefs._joint import JointPoints
from irsppl.beliefs._points import PointBelief, Points
from irsppl.beliefs.beta_bernoulli import BetaBernoulli
from irsppl.beliefs.dirichlet_categorical import DirichletCategorical
from irsppl.beliefs.gamma_exponential import GammaExponential
from irsppl.beliefs.gamma_poisson import GammaPoisson
from irsppl.beliefs.linear_gaussian import LEAST_SD, LinearGaussian
from irsppl.beliefs.normal_inverse_gamma import NormalInverseGamma
from irsppl.beliefs.normal_normal import NormalNormal
from irsppl.beliefs.particles import JointParticles, Particles
from irsppl.beliefs.quadrature import Quadrature
from irsppl.engine.families.curves import Curves
from irsppl.engine.families.dirichlet import dirichlet_categorical
from irsppl.engine.families.joint import joint_points
from irsppl.engine.families.linear import linear_gaussian
from irsppl.engine.families.natural import natural
from irsppl.engine.families.normal_gamma import normal_inverse_gamma
from irsppl.engine.families.points import points
from irsppl.engine.families.starts import (
    Start,
    cloud_start,
    few_tables,
    has_many,
    planning_tables,
    still_curves,
)
from irsppl.engine.situation import NaturalState

# A maker: length and number of the futures of an arm that a rule asks for (0: none) -> the part, in
# the belief's state.
Maker = Callable[[int, int], Any]


def family_of(belief: Belief, needs: frozenset[str]) -> Maker | None:
    """What makes the belief's part, or None where it has none that answers these questions."""
    found = _MAKERS.get(type(belief))
    if found is None or ("futures" in needs and not isinstance(belief, InKernels)):
        return None
    return found(belief, needs)


def start_of(belief: Belief, needs: frozenset[str]) -> Start | None:
    """How paths begin where only the user's model can say what a reward does to the belief."""
    return cloud_start(belief, needs) if isinstance(belief, PointBelief) else None


def curves_of(belief: Belief) -> Curves | None:
    """How its points take in rewards that are many; None where another part of the engine does."""
    return still_curves(belief) if isinstance(belief, PointBelief) else None


def _natural(belief: Any, needs: frozenset[str]) -> Maker:
    code, xi, nu, sd = belief.kernel_state()
    return lambda horizon, copies: natural(code, xi, nu, sd, horizon, copies)


def _own_points(belief: Any, needs: frozenset[str]) -> Maker:
    mu, tables = host64(belief.mu), functools.cache(lambda: _tables(belief, needs))
    return lambda horizon, _: points(*tables(), mu, horizon)


def _shared_points(belief: Any, needs: frozenset[str]) -> Maker | None:
    if needs & {"path", "prefix"}:
        return None
    mu, tables = host64(belief.mu), functools.cache(lambda: _tables(belief, needs))
    return lambda horizon, _: joint_points(*tables(), mu, horizon, "separable" in needs)


def _normal_gamma(belief: Any, needs: frozenset[str]) -> Maker:
    fields = (belief.mean, belief.precision, belief.shape, belief.rate)
    mean, precision, shape, rate = map(host64, fields)
    return lambda horizon, _: normal_inverse_gamma(mean, precision, shape, rate, horizon)


def _dirichlet(belief: Any, needs: frozenset[str]) -> Maker:
    alpha, values = host64(belief.alpha), host64(belief.values)
    return lambda horizon, _: dirichlet_categorical(alpha, values, horizon)


def _linear(belief: Any, needs: frozenset[str]) -> Maker | None:
    if needs & {"path", "prefix"}:
        return None
    fields = (belief.features, belief.noise_sd, belief.offset, belief.mean, belief.root)
    x, noise, offset, mean, root = map(host64, fields)
    return lambda horizon, _: linear_gaussian(x, noise, offset, mean, root, LEAST_SD, horizon)


def _tables(belief: PointBelief, needs: frozenset[str]) -> RewardTables:
    """`reward_tables`, remembered while the points stay where they are."""
    if has_many(belief):
        return planning_tables(belief, needs)
    weights = np.exp(host64(belief.log_weights))
    return few_tables(belief)._replace(weights=weights / weights.sum(axis=-1, keepdims=True))


_MAKERS: dict[type, Callable[[Any, frozenset[str]], Maker | None]] = {
    BetaBernoulli: _natural,
    NormalNormal: _natural,
    GammaPoisson: _natural,
    GammaExponential: _natural,
    NaturalState: _natural,
    Points: _own_points,
    Quadrature: _own_points,
    Particles: _own_points,
    JointPoints: _shared_points,
    JointParticles: _shared_points,
    NormalInverseGamma: _normal_gamma,
    DirichletCategorical: _dirichlet,
    LinearGaussian: _linear,
}
