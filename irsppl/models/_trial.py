"""A model tried on draws from its prior: what only numbers can tell."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._xla_options import quick
from irsppl.models._calls import TRACER_ERRORS
from irsppl.models._distributions import Distribution
from irsppl.models._means import NoMean
from irsppl.models._model import ArmModel, SiteInfo, Visit
from irsppl.models._support import RewardSupport, ends

_TRIALS = 4096
# A numerical mean less accurate than this (relative to the spread of rewards) is refused.
_MEAN_TOLERANCE = 1e-2
# A user's mean is refused where it misses by so many standard errors given something: large, for
# rewards may have long tails and many things are looked at.
_LARGEST_SCORE = 8
_MOST_ELEMENTS = 16  # of a latent


@dataclasses.dataclass(frozen=True)
class Trial:
    """A model tried on draws from its prior, `[S]` each; arms in turn."""

    arms: np.ndarray
    integer: bool
    open_low: bool
    open_high: bool
    program: str  # a hash of what was compiled, with all its numbers
    params: dict[str, np.ndarray]
    means: np.ndarray
    errors: np.ndarray
    rewards: np.ndarray
    log_likelihoods: np.ndarray
    log_priors: np.ndarray
    lows: np.ndarray
    highs: np.ndarray


def try_out(model: ArmModel, say: str) -> Trial:
    kinds: list[tuple[bool, bool, bool]] = []

    def one(source: Array, key: Array, arm: Array) -> dict[str, Any]:
        at = arm if model.joint else None
        drawn = model.prior_from_uniforms(source) if model.has_icdf else None
        params = model.sample_prior(source) if drawn is None else drawn
        mean, error = model.mean_and_error(params, at)
        low, high, *kind = ends(model.reward_law(params, at))
        kinds.append(tuple(kind))  # type: ignore[arg-type]
        reward = model.sample_reward(key, params, at)
        return {
            "params": params,
            "means": mean,
            "errors": error,
            "rewards": reward,
            "log_likelihoods": model.log_likelihood(params, reward, at),
            "log_priors": model.log_prior(params),
            "lows": low,
            "highs": high,
        }

    arms = np.arange(_TRIALS) % model.num_arms
    keys = jax.random.split(jax.random.key(0), _TRIALS)
    # To compile quickly: uniforms spare NumPyro's samplers.
    sources: Any = jax.random.split(jax.random.key(1), _TRIALS)
    if model.has_icdf:
        uniforms = np.random.default_rng(0).random((_TRIALS, model.num_uniforms))
        sources = jnp.asarray(uniforms, jnp.result_type(float))
    try:
        lowered = jax.jit(jax.vmap(one)).lower(sources, keys, arms)
        out = lowered.compile(compiler_options=quick())(sources, keys, arms)
    except NoMean as error:
        raise ValueError(
            say + "the reward's law has no mean that can be computed; give it with mean="
        ) from error
    except TRACER_ERRORS as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            say + "the model treats a random value as a plain Python number; use jnp functions. "
            f"JAX says: {first}"
        ) from error
    except Exception as error:
        raise ValueError(
            say + f"the model raised {type(error).__name__} when mapped over draws: {error}"
        ) from error
    integer, open_low, open_high = kinds[0]
    program = hashlib.sha256(lowered.as_text().encode()).hexdigest()
    host = jax.device_get(out)
    return Trial(arms, integer, open_low, open_high, program, **host)


def check_trial(model: ArmModel, trial: Trial, say: str) -> None:
    def example(bad: np.ndarray) -> str:
        i = int(np.argmax(bad))
        where = ", ".join(f"{k} = {np.array2string(v[i])}" for k, v in trial.params.items())
        return where + (f", arm {trial.arms[i]}" if model.joint else "")

    for site, draws in trial.params.items():
        if not np.all(np.isfinite(draws)):
            raise ValueError(
                say + f"draws of the latent {site!r} from its prior are not finite; check the "
                "prior's parameters"
            )
    bad = ~np.isfinite(trial.log_priors)
    if bad.any():
        raise ValueError(
            say + f"the prior's density is not finite at its own draws ({example(bad)}); check "
            "the priors' parameters"
        )
    bad = ~np.isfinite(trial.means)
    if bad.all():
        raise ValueError(
            say + "the mean reward is infinite or does not exist, so no policy has a value; use a "
            "reward distribution with a finite mean (for a Cauchy, a StudentT with df above 1)"
        )
    if bad.any():
        raise ValueError(
            say + f"the mean reward is infinite or not a number for some latents, such as "
            f"{example(bad)}; restrict the prior to where the mean is finite"
        )
    bad = ~np.isfinite(trial.rewards)
    if bad.any():
        raise ValueError(
            say + f"rewards drawn from the model are not finite at {example(bad)}; check the "
            "parameters of the reward's distribution"
        )
    bad = ~np.isfinite(trial.log_likelihoods)
    if bad.mean() > 1e-3:
        raise ValueError(
            say + "rewards drawn from the model have no finite density under it, such as "
            f"{trial.rewards[int(np.argmax(bad))]:g} at {example(bad)}; check the parameters of "
            "the reward's distribution"
        )
    spread = np.std(trial.rewards) + 1e-30
    if np.max(trial.errors) > _MEAN_TOLERANCE * spread:
        raise ValueError(
            say + f"the reward's law has no closed-form mean, and its numerical mean is only known "
            f"to within {np.max(trial.errors):.2g}; give the mean with mean="
        )
    if model.mean_method == "user":
        _check_user_mean(trial, say)


def _check_user_mean(trial: Trial, say: str) -> None:
    gap = trial.rewards - trial.means
    error = np.std(gap) / np.sqrt(_TRIALS) + 1e-6 * np.max(np.abs(trial.means))
    # Six standard errors: a right mean is refused once in 500 million readings.
    if abs(np.mean(gap)) > 6 * error:
        raise ValueError(
            say + f"mean= does not give the mean reward: over prior draws it averages "
            f"{np.mean(trial.means):.4g}, the rewards drawn average {np.mean(trial.rewards):.4g}"
        )
    # What a right mean leaves has mean zero whatever the latents are, for each arm: along the mean
    # itself, and along each latent. Ranks, because a latent may have any law.
    columns = [("the mean itself", trial.means), *_elements(trial.params)]
    for arm in np.unique(trial.arms):
        here = trial.arms == arm
        for what, column in columns:
            rest, along = gap[here], np.argsort(np.argsort(column[here])) / here.sum() - 0.5
            rest = rest * np.where(np.ptp(column[here]) > 0, along, 0.0)
            error = np.sqrt(np.sum(rest**2)) + 1e-6 * np.sum(np.abs(trial.means[here]))
            if abs(np.sum(rest)) > _LARGEST_SCORE * error:
                raise ValueError(
                    say + f"mean= does not give the mean reward of arm {arm}: what rewards drawn "
                    f"from the model have beyond it goes with {what}"
                )


def _elements(params: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Elements of the latents, `[S]` each."""
    for name, draws in params.items():
        for column in draws.reshape(len(draws), -1).T[:_MOST_ELEMENTS]:
            yield f"the latent {name!r}", column


def _concrete_laws(model: ArmModel, trial: Trial, index: int) -> Visit:
    params = {name: jnp.asarray(draws[index]) for name, draws in trial.params.items()}
    arm = np.int32(trial.arms[index]) if model.joint else None
    return model.visit(lambda name, fn: params[name], arm)


def _listed(fn: Distribution) -> np.ndarray | None:
    """What one element of a discrete law can be, if NumPyro can list it."""
    if not fn.has_enumerate_support or fn.event_shape:
        return None
    try:
        support = fn.enumerate_support(expand=False)
    except (NotImplementedError, ValueError):
        return None
    return np.unique(np.asarray(support))


def _same_lists(lists: list[np.ndarray | None]) -> np.ndarray | None:
    first = lists[0]
    same = all(a is not None and first is not None and np.array_equal(a, first) for a in lists)
    return first if same else None


def with_values(model: ArmModel, trial: Trial) -> dict[str, SiteInfo]:
    """Latents with the finite lists of their values, where the list is always the same."""
    if not model.has_discrete:
        return model.latents
    visits = [_concrete_laws(model, trial, i) for i in range(4)]
    sites = dict(model.latents)
    for i, (name, _, _) in enumerate(visits[0].sites):
        if sites[name].discrete:
            values = _same_lists([_listed(visit.sites[i][1]) for visit in visits])
            sites[name] = dataclasses.replace(sites[name], values=values)
    return sites


def discrete_values(model: ArmModel, trial: Trial) -> dict[str, np.ndarray]:
    """For each discrete latent, values outside of which it practically never falls."""
    found = {}
    for name, site in model.latents.items():
        if site.discrete and site.values is not None:
            found[name] = site.values
        elif site.discrete and np.min(trial.params[name]) >= 0:
            most = int(np.max(trial.params[name]))
            if most <= 2048:
                found[name] = np.arange(2 * most + 32)
    return found


def reward_support(model: ArmModel, trial: Trial, say: str) -> RewardSupport:
    values = None
    if trial.integer:
        count = min(max(model.num_arms, 4), 64)
        lists = [_listed(_concrete_laws(model, trial, i).reward["fn"]) for i in range(count)]
        values = _same_lists(lists)
    table = model.category_values
    if table is not None:
        if values is None or not np.array_equal(values, np.arange(len(table))):
            categories = "an unknown number of" if values is None else str(len(values))
            raise ValueError(
                say + f"values has {len(table)} entries, but the reward has {categories} "
                "categories; give one value per category 0, 1, ..."
            )
        values = np.sort(table)
    # Where the ends move with the latents, nothing is ruled out beforehand.
    low = trial.lows[0] if np.all(trial.lows == trial.lows[0]) else -np.inf
    high = trial.highs[0] if np.all(trial.highs == trial.highs[0]) else np.inf
    return RewardSupport(
        low=float(low),
        high=float(high),
        integer=trial.integer and table is None,
        open_low=trial.open_low,
        open_high=trial.open_high,
        values=None if values is None else np.asarray(values, dtype=np.float64),
        # A reward in the middle of those drawn.
        inside=float(np.sort(trial.rewards)[_TRIALS // 2]),
    )
