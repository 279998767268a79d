"""Lagrangian relaxation of a finite-horizon Bernoulli bandit: a bound and two index policies.

After Brown and Smith (2020), "Index policies and performance bounds for dynamic selection
problems".  Exactly one arm is pulled per period.  Pricing that constraint with one multiplier per
period decouples the arms:

    L(lambda) = sum_t lambda_t + sum_a V_a(lambda),

where V_a is the value of arm a alone, which in period t is either pulled, earning
``mean - lambda_t`` and learning, or rested, earning nothing.  Every lambda gives an upper
bound on the optimal value V*; :func:`minimize_lagrangian` looks for the smallest.  L is convex and
piecewise linear.  It is minimised by L-BFGS on a smooth majorant, in which ``max(0, d)`` becomes a
Huber function of width tau, for a decreasing sequence of tau; the bound reported is the exact L at
the best multipliers met, so it is valid whether or not the search has converged.

**States.**  An arm that has been pulled n times with s successes is in state (n, s).  Tables over
(period t, n <= t, s <= n) are flat: entry ``t(t+1)(t+2)/6 + n(n+1)/2 + s``, ``T(T+1)(T+2)/6`` in
all (1.4 million at T = 200, 21 million at T = 500).

**Policies.**  With the multipliers fixed, the priority index of an arm is what a pull now is worth
more than a rest,

    i_t(x) = mean(x) - lambda_t + E[V_{t+1}(x after one pull)] - V_{t+1}(x),

and the policies pull an arm of largest index.  They differ in ties, which are frequent, identical
arms starting from identical states; indices within ``tie_tolerance`` of the largest count as tied,
the multipliers being known to about that accuracy only.

- ``tie="random"`` (Lagr-RT): uniformly among the tied arms.
- ``tie="optimal"`` (Lagr-OT): by the randomised policy that solves the relaxation.  At the optimal
  multipliers the relaxed problem has a mixture of single-arm policies that pulls one arm per period
  *on average*; q_t(x) is the share of an arm's time in (t, x) in which that mixture pulls it.  Here
  every tied arm flips a coin with success probability q_t(x), and the policy picks uniformly among
  the tied arms that succeeded, or among all tied arms if none did: an arm is preferred just as
  often as the relaxation would pull it.  The smoothed problem supplies q directly: the
  derivative of the Huber function is a pull probability, and a vanishing gradient says that these
  probabilities pull one arm per period on average.  (Stated from the idea of the paper, "ties
  follow an optimal mixed policy"; its authors' code is not public, so details may differ.  Two
  identical arms rarely tie in different states, and in equal states both rules are a fair coin.)
"""

from irsppl.inner.lagrangian.minimise import TAUS as TAUS
from irsppl.inner.lagrangian.minimise import LagrangianBound as LagrangianBound
from irsppl.inner.lagrangian.minimise import minimize_lagrangian as minimize_lagrangian
from irsppl.inner.lagrangian.tables import LagrangianTables as LagrangianTables
from irsppl.inner.lagrangian.tables import lagrangian_tables as lagrangian_tables
