"""Models that are a conjugate family beyond doubt.

Three conditions, all of them: the laws are of the known types; the program shows that the
parameter in question is the latent itself and that every other parameter is a constant; and the
densities agree with the family's formulas in numbers. A near miss fails the second condition, a
mistake of ours the third.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from irsppl._checks import host64
from irsppl.models._distributions import unwrap
from irsppl.models._laws import PARAMETERS, Laws, close, flat_draws, starts_of, total_size
from irsppl.models._model import ArmModel
from irsppl.models._structure import Fact
from irsppl.models._trial import Trial


def find_conjugacy(
    model: ArmModel, every_arm: list[Laws], trial: Trial
) -> tuple[str, dict[str, Any]] | None:
    """(family, its parameters): numbers for a per-arm model, arrays `[K]` for a joint one."""
    if model.has_discrete or model.mean_method == "user" or len(every_arm) < model.num_arms:
        return None
    arms = _family(model, every_arm)
    if arms is None or not _agrees(model, arms, trial):
        return None
    family, parameters = arms[0].family, arms[0].parameters
    if model.joint:
        stacked = {key: np.stack([arm.parameters[key] for arm in arms]) for key in parameters}
        parameters = stacked | {k: v for k, v in parameters.items() if k == "values"}  # shared
    return family, parameters


@dataclasses.dataclass(frozen=True)
class _Arm:
    """One arm as a member of a family."""

    family: str
    parameters: dict[str, Any]
    uses: list[int]  # the flat latents it depends on
    # NormalInverseGamma: noise = factor * v ** exponent for the second latent v
    noise: tuple[float, float] = (1.0, 0.5)


def _family(model: ArmModel, readings: list[Laws]) -> list[_Arm] | None:
    """The arms, if all are of one family, independent, and no latent is left over."""
    arms = [_arm_family(model, laws) for laws in readings]
    found = [arm for arm in arms if arm is not None]
    if len(found) < len(arms) or len({arm.family for arm in found}) > 1:
        return None
    used = [index for arm in found for index in arm.uses]
    if sorted(used) != list(range(total_size(model))):
        return None
    return found


def _arm_family(model: ArmModel, laws: Laws) -> _Arm | None:
    reward, kind = laws.reward, laws.reward.kind
    if kind is dist.BernoulliProbs:
        index = _scalar_pick(reward.parameters["probs"])
        beta = _beta(_prior_of(model, laws, index))
        if index is None or beta is None:
            return None
        if model.category_values is not None:
            alpha = np.array([beta[1], beta[0]])
            parameters = {"alpha": alpha, "values": model.category_values}
            return _Arm("DirichletCategorical", parameters, [index])
        return _Arm("BetaBernoulli", {"alpha": beta[0], "beta": beta[1]}, [index])
    if kind is dist.CategoricalProbs and model.category_values is not None:
        return _dirichlet(model, laws)
    if model.category_values is not None:
        return None
    if kind in (dist.Poisson, dist.Exponential):
        index = _scalar_pick(reward.parameters["rate"])
        gamma = _gamma(_prior_of(model, laws, index))
        if index is None or gamma is None:
            return None
        family = "GammaPoisson" if kind is dist.Poisson else "GammaExponential"
        return _Arm(family, {"shape": gamma[0], "rate": gamma[1]}, [index])
    if kind is dist.Normal:
        return _normal(model, laws)
    return None


def _scalar_pick(fact: Fact) -> int | None:
    picked = fact.picked
    return int(picked.reshape(())) if picked is not None and picked.size == 1 else None


def _owner(model: ArmModel, index: int) -> tuple[str, int]:
    """The site of a flat latent, and which element of it."""
    for name, start in reversed(starts_of(model).items()):
        if index >= start:
            return name, index - start
    raise AssertionError


_Prior = tuple[type, dict[str, float]]


def _prior_of(model: ArmModel, laws: Laws, index: int | None) -> _Prior | None:
    """Type and constant parameters of the prior of one scalar element, or None."""
    if index is None:
        return None
    name, element = _owner(model, index)
    law = laws.priors[name]
    if law.kind not in PARAMETERS or law.constants() is None:
        return None
    if any(dims for dims in PARAMETERS[law.kind].values()):
        return None  # its elements are not independent
    return law.kind, {
        key: float(law.constant(key).reshape(-1)[element])  # type: ignore[union-attr]
        for key in law.parameters
    }


def _beta(prior: _Prior | None) -> tuple[float, float] | None:
    kind, parameters = prior or (None, {})
    if kind is dist.Beta:
        return parameters["concentration1"], parameters["concentration0"]
    if kind is dist.Uniform and parameters == {"low": 0.0, "high": 1.0}:
        return 1.0, 1.0
    return None


def _gamma(prior: _Prior | None) -> tuple[float, float] | None:
    kind, parameters = prior or (None, {})
    if kind is dist.Gamma:
        return parameters["concentration"], parameters["rate"]
    if kind is dist.Exponential:
        return 1.0, parameters["rate"]
    return None


def _dirichlet(model: ArmModel, laws: Laws) -> _Arm | None:
    picked = laws.reward.parameters["probs"].picked
    if picked is None:
        return None
    indices = picked.reshape(-1).tolist()
    name, element = _owner(model, indices[0])
    law, categories = laws.priors[name], len(indices)
    # The whole simplex of one Dirichlet, in order.
    if (
        law.kind is not dist.Dirichlet
        or law.constants() is None
        or indices != list(range(indices[0], indices[0] + categories))
        or model.latents[name].shape[-1] != categories
        or element % categories
    ):
        return None
    alpha = law.constant("concentration")
    assert alpha is not None and model.category_values is not None
    parameters = {
        "alpha": alpha.reshape(-1, categories)[element // categories],
        "values": model.category_values,
    }
    return _Arm("DirichletCategorical", parameters, indices)


def _normal(model: ArmModel, laws: Laws) -> _Arm | None:
    loc, scale = laws.reward.parameters["loc"], laws.reward.parameters["scale"]
    index = _scalar_pick(loc)
    if index is None:
        return None
    if scale.constant is not None:
        prior = _prior_of(model, laws, index)
        if prior is None or prior[0] is not dist.Normal:
            return None
        noise = float(laws.reward.constant("scale").reshape(()))  # type: ignore[union-attr]
        parameters = {"mean": prior[1]["loc"], "sd": prior[1]["scale"], "noise_sd": noise}
        return _Arm("NormalNormal", parameters, [index])
    return _normal_inverse_gamma(model, laws, index, scale)


def _normal_inverse_gamma(model: ArmModel, laws: Laws, index: int, scale: Fact) -> _Arm | None:
    """Noise and prior sd of the mean both proportional to the same sqrt(v), v inverse gamma."""
    name, _ = _owner(model, index)
    mean_law = laws.priors[name]
    if mean_law.kind is not dist.Normal or model.latents[name].shape != () or model.joint:
        return None
    prior_scale, centre = mean_law.parameters["scale"], mean_law.constant("loc")
    if scale.power is None or prior_scale.power != scale.power or centre is None:
        return None
    which, exponent = scale.power
    prior = _prior_of(model, laws, which)
    if prior is None:
        return None
    if prior[0] is dist.InverseGamma and exponent == 0.5:
        shape, rate = prior[1]["concentration"], prior[1]["rate"]
    elif exponent == -0.5 and (gamma := _gamma(prior)) is not None:
        shape, rate = gamma
    else:
        return None
    # The constants in front, at v = 1.
    ones = {site: jnp.ones(info.shape) for site, info in model.latents.items()}
    visit = model.visit(lambda site, fn: ones[site], None)
    priors = {site: fn for site, fn, _ in visit.sites}
    noise = float(unwrap(visit.reward["fn"]).scale)
    spread = float(unwrap(priors[name]).scale)
    if not (noise > 0 and spread > 0):
        return None
    single = jnp.result_type(float) == jnp.float32
    precision, variance = (
        # Square roots in single precision have cost the last digit of what the user typed.
        float(host64(np.float32(value))) if single else value
        for value in ((noise / spread) ** 2, noise**2)
    )
    parameters = {
        "mean": float(centre.reshape(())),
        "precision": precision,
        "shape": shape,
        "rate": rate * variance,
    }
    return _Arm("NormalInverseGamma", parameters, [index, which], (noise, exponent))


def _agrees(model: ArmModel, members: list[_Arm], trial: Trial) -> bool:
    """Whether prior and likelihood are the family's, in numbers, by SciPy's formulas."""
    flat, rewards = flat_draws(model, trial), trial.rewards.astype(np.float64)
    log_prior, log_likelihood = np.zeros(len(flat)), np.zeros(len(flat))
    for number, arm in enumerate(members):
        prior, likelihood = _formulas(arm, flat[:, arm.uses], rewards)
        log_prior += prior
        log_likelihood = np.where(trial.arms == number, likelihood, log_likelihood)
    return close(trial.log_priors, log_prior) and close(trial.log_likelihoods, log_likelihood)


def _formulas(arm: _Arm, theta: np.ndarray, rewards: np.ndarray) -> tuple[Any, Any]:
    """(log prior, log-likelihood) of an arm's own latents theta `[S, n]`."""
    from scipy import stats

    p = arm.parameters
    x = theta[:, 0]
    if arm.family == "BetaBernoulli":
        return stats.beta(p["alpha"], p["beta"]).logpdf(x), stats.bernoulli(x).logpmf(rewards)
    if arm.family == "NormalNormal":
        prior = stats.norm(p["mean"], p["sd"]).logpdf(x)
        return prior, stats.norm(x, p["noise_sd"]).logpdf(rewards)
    if arm.family == "DirichletCategorical":
        probs = np.stack([1 - x, x], axis=1) if theta.shape[1] == 1 else theta
        category = np.argmin(np.abs(p["values"] - rewards[:, None]), axis=1)
        likelihood = np.log(probs[np.arange(len(x)), category])
        probs = np.clip(probs, 1e-30, None)
        normed = probs / probs.sum(axis=1, keepdims=True)
        return stats.dirichlet(p["alpha"]).logpdf(normed.T), likelihood
    if arm.family == "NormalInverseGamma":
        factor, exponent = arm.noise
        sd = factor * theta[:, 1] ** exponent
        prior = stats.norm(p["mean"], sd / np.sqrt(p["precision"])).logpdf(x)
        rate = p["rate"] / factor**2
        law = stats.invgamma(p["shape"], scale=rate)
        if exponent < 0:
            law = stats.gamma(p["shape"], scale=1 / rate)
        return prior + law.logpdf(theta[:, 1]), stats.norm(x, sd).logpdf(rewards)
    prior = stats.gamma(p["shape"], scale=1 / p["rate"]).logpdf(x)
    if arm.family == "GammaPoisson":
        return prior, stats.poisson(x).logpmf(rewards)
    return prior, stats.expon(scale=1 / x).logpdf(rewards)
