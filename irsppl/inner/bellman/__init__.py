"""Bayes-optimal values and policies by backward recursion over pull counts (OPT).

Every solver here works on bandits whose rewards take finitely many values, so that what has been
seen is summarised by a count vector ``x [K, C]``: how often arm ``a`` has shown category ``c``.
The Bellman equation (paper, section "Bayesian Optimal Policy"), with survivor weights,

    V_t(x) = max_a  w_t * mean_a(x) + sum_c p_{a,c}(x) V_{t+1}(x + e_{a,c}),     V_T = 0,

is solved layer by layer, ``t`` being the total count.  ``w_t = P(T >= t)`` handles an unknown
horizon; it is one throughout when the horizon is known.

Four solvers share one result type:

- :func:`solve_two_bernoulli` for two Beta-Bernoulli arms, whose policy is a table of thresholds
  (0.2 s and 1.35 MB at T = 200);
- :func:`solve_independent` for independent Dirichlet-categorical arms, any K and C;
- :func:`solve_points` for independent arms whose parameters take finitely many values each;
- :func:`solve_joint` for correlated arms whose parameter takes finitely many values.

:func:`solve` picks the faster of the first two.  The second and third share one recursion: all it
asks of an arm is a predictive table, the chances of its next reward by its own counts.

**Categories of a Bernoulli arm.**  Category 0 is failure and category 1 success, so a reward is its
own category, and the Dirichlet parameters of Beta(alpha, beta) are ``[beta, alpha]``.

**Ties** go to the arm with the lowest index.  Two actions count as tied when their values differ by
less than ``1e-12 * max|reward| * (sum of the weights still to come)``: rounding leaves differences
of about 1e-14 on that scale between actions that are equal by symmetry, and a decision taken inside
the band costs no more than the band.  Values are not affected, they use the plain maximum.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from irsppl.inner.bellman.independent import solve_independent as solve_independent
from irsppl.inner.bellman.independent import solve_points as solve_points
from irsppl.inner.bellman.joint import solve_joint as solve_joint
from irsppl.inner.bellman.solution import BellmanSolution as BellmanSolution
from irsppl.inner.bellman.solution import check_weights
from irsppl.inner.bellman.solution import lookup as lookup
from irsppl.inner.bellman.solution import num_states as num_states
from irsppl.inner.bellman.two_armed import solve_two_bernoulli as solve_two_bernoulli


def solve(
    alpha: ArrayLike, values: ArrayLike, horizon: int, weights: ArrayLike | None = None
) -> BellmanSolution:
    """Independent arms, by the faster solver that applies; arguments of :func:`solve_independent`.

    Two arms with the same two rewards ``values[0] < values[1]`` are an affine image of two
    Bernoulli arms and take :func:`solve_two_bernoulli`.
    """
    prior = np.asarray(alpha, dtype=np.float64)
    payoff = np.asarray(values, dtype=np.float64)
    two = prior.shape == (2, 2) and (prior > 0.0).all() and payoff.shape in ((2,), (2, 2))
    if not two or not np.all(payoff == payoff[..., :2].reshape(-1, 2)[0]):
        return solve_independent(prior, payoff, horizon, weights)
    low, high = payoff.reshape(-1, 2)[0]
    if not low < high:
        return solve_independent(prior, payoff, horizon, weights)
    unit = solve_two_bernoulli(prior[:, 1], prior[:, 0], horizon, weights)
    if (low, high) == (0.0, 1.0):
        return unit
    shift = low * check_weights(weights, unit.horizon).sum()
    scale = high - low
    return replace(unit, value=float(shift + scale * unit.value), q=shift + scale * unit.q)
