"""IBIS moves: resample a degenerate cloud and move it with MCMC on the posterior given all data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irsppl.models import ArmModel, Params

# Independent proposals from a Gaussian fitted to the cloud decorrelate fully while they are
# accepted; where they are not, gradients are worth their price.
_INDEPENDENT_STEPS = 5
_POOR_ACCEPTANCE = 0.2
_HAMILTONIAN_STEPS = 2
_LEAPFROGS = 3


def can_move(model: ArmModel) -> bool:
    """MCMC moves need continuous latents only."""
    return model.dim > 0 and not model.has_discrete


def rejuvenate(
    model: ArmModel,
    params: Params,
    log_weights: Float[Array, " N"],
    log_likelihood: Callable[[Params], Array],
    key: Array,
) -> tuple[Params, Float[Array, ""]]:
    """An equally weighted cloud for the posterior, and the share of accepted moves.

    params: leading axis N; log_likelihood: of all data so far at one point.
    """
    import blackjax
    from blackjax.smc.resampling import systematic

    count = log_weights.shape[0]
    resample_key, move_key, hmc_key = jax.random.split(key, 3)
    weights = jnp.exp(log_weights)
    chosen = systematic(resample_key, weights, count)
    old = jax.vmap(model.unconstrain)(jax.tree.map(lambda leaf: leaf[chosen], params))

    def density(z: Array) -> Array:
        value = model.log_prior_unconstrained(z) + log_likelihood(model.constrain(z))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    # Fitted to the weighted cloud before resampling, which has the more distinct points.
    every = jax.vmap(model.unconstrain)(params)
    mean = weights @ every
    spread = every - mean[None, :]
    cov = (weights[:, None] * spread).T @ spread
    scale = jnp.sqrt(jnp.diagonal(cov)) + 1e-12
    correlation = cov / scale[:, None] / scale[None, :] + 1e-4 * jnp.eye(model.dim)
    root = 1.1 * scale[:, None] * jnp.linalg.cholesky(correlation)

    def propose(key: Array) -> Array:
        return mean + root @ jax.random.normal(key, (model.dim,), mean.dtype)

    def log_proposal(_: Any, to: Any) -> Array:
        white = jax.scipy.linalg.solve_triangular(root, to.position - mean, lower=True)
        return -0.5 * white @ white

    independent = blackjax.irmh(density, propose, proposal_logdensity_fn=log_proposal)

    def walk(kernel: Any, z: Array, key: Array, steps: int) -> tuple[Array, Array]:
        def one(z: Array, key: Array) -> tuple[Array, Array]:
            def step(state: Any, key: Array) -> tuple[Any, Array]:
                state, info = kernel.step(key, state)
                return state, info.acceptance_rate

            state, rates = jax.lax.scan(step, kernel.init(z), jax.random.split(key, steps))
            return state.position, jnp.mean(rates)

        moved, rates = jax.vmap(one)(z, jax.random.split(key, z.shape[0]))
        return moved, jnp.mean(rates)

    moved, accepted = walk(independent, old, move_key, _INDEPENDENT_STEPS)
    hamiltonian = blackjax.hmc(
        density,
        step_size=0.9 * model.dim**-0.25,
        inverse_mass_matrix=scale**2,
        num_integration_steps=_LEAPFROGS,
    )
    moved = jax.lax.cond(
        accepted < _POOR_ACCEPTANCE,
        lambda z: walk(hamiltonian, z, hmc_key, _HAMILTONIAN_STEPS)[0],
        lambda z: z,
        moved,
    )
    return jax.vmap(model.constrain)(moved), accepted
