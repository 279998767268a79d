"""Models that are linear and Gaussian beyond doubt.

As with conjugate families: known types, a program that is affine in the latents where it must be
and constant elsewhere, and agreement of the densities in numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from irsppl._checks import host64
from irsppl.models._distributions import unwrap
from irsppl.models._laws import Laws, close, filled, flat_draws, size_of, starts_of, total_size
from irsppl.models._model import ArmModel
from irsppl.models._structure import LinearGaussianForm
from irsppl.models._trial import Trial


def find_linear_gaussian(
    model: ArmModel, every_arm: list[Laws], trial: Trial
) -> LinearGaussianForm | None:
    if model.has_discrete or model.mean_method == "user" or len(every_arm) < model.num_arms:
        return None
    if model.category_values is not None:
        return None
    for law in every_arm[0].priors.values():
        if law.kind not in (dist.Normal, dist.MultivariateNormal):
            return None
        spread = "scale" if law.kind is dist.Normal else "scale_tril"
        loc = law.parameters["loc"]
        if law.parameters[spread].constant is None or not (loc.affine or loc.constant is not None):
            return None
    for law in (laws.reward for laws in every_arm):
        if law.kind is not dist.Normal or not law.parameters["loc"].affine:
            return None
        if law.parameters["scale"].constant is None:
            return None
    form = _form(model, every_arm)
    return form if _form_agrees(model, form, trial) else None


def _form(model: ArmModel, readings: list[Laws]) -> LinearGaussianForm:
    """Coefficients by differentiation at zero: the program is affine all the way."""
    size = total_size(model)
    starts = starts_of(model)
    zero = jnp.zeros((size,))

    def locations(flat: Array, arm: Any) -> tuple[Array, Array]:
        visit = model.visit(filled(model, flat), arm)
        prior = []
        for _, fn, _ in visit.sites:
            loc = jnp.asarray(unwrap(fn).loc)
            prior.append(jnp.broadcast_to(loc, fn.shape()).reshape(-1))
        return jnp.concatenate(prior), jnp.asarray(unwrap(visit.reward["fn"]).loc).reshape(())

    arms = jnp.arange(model.num_arms)

    def measure(arm: Array) -> Any:
        at = arm if model.joint else None
        return locations(zero, at), jax.jacfwd(lambda flat: locations(flat, at))(zero)

    (prior_at_zero, offset), (prior_slope, features) = jax.tree.map(
        host64, jax.jit(jax.vmap(measure))(arms)
    )
    chol = np.zeros((size, size))
    for name, law in readings[0].priors.items():
        here = slice(starts[name], starts[name] + size_of(model.latents[name].shape))
        if law.kind is dist.Normal:
            chol[here, here] = np.diag(law.constant("scale").reshape(-1))  # type: ignore[union-attr]
        else:
            tril = law.constant("scale_tril")
            assert tril is not None
            blocks = tril.reshape(-1, *tril.shape[-2:])
            n = tril.shape[-1]
            for i, block in enumerate(blocks):
                part = slice(here.start + i * n, here.start + (i + 1) * n)
                chol[part, part] = block
    # theta = B theta + b + L eps, each latent depending on earlier ones only.
    solve = np.linalg.inv(np.eye(size) - prior_slope[0])
    root = solve @ chol
    noise = np.array([float(r.reward.constant("scale").reshape(())) for r in readings])  # type: ignore[union-attr]
    return LinearGaussianForm(features, solve @ prior_at_zero[0], root @ root.T, noise, offset)


def _form_agrees(model: ArmModel, form: LinearGaussianForm, trial: Trial) -> bool:
    from scipy import stats

    flat, arms = flat_draws(model, trial), trial.arms
    try:
        prior = stats.multivariate_normal(form.mean, form.cov).logpdf(flat)
    except np.linalg.LinAlgError:
        return False
    centre = np.sum(form.features[arms] * flat, axis=1) + form.offset[arms]
    likelihood = stats.norm(centre, form.noise_sd[arms]).logpdf(trial.rewards)
    return close(trial.log_priors, prior) and close(trial.log_likelihoods, likelihood)
