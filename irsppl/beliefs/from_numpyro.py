"""From a user's NumPyro functions to a belief: which representation, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

import irsppl.beliefs as beliefs
from irsppl._checks import as_count, as_key, one_of
from irsppl.beliefs._base import Belief
from irsppl.beliefs._joint import joint_enumeration
from irsppl.beliefs.enumeration import enumeration
from irsppl.beliefs.particles import DEFAULT_PARTICLES, JointParticles, Particles
from irsppl.beliefs.quadrature import DEFAULT_NODES, LEAST_NODES, Quadrature, can_serve
from irsppl.models import ArmModel, read_arm

# A cloud of fewer points is no picture of a prior.
LEAST_PARTICLES = 8
REPRESENTATIONS = ("auto", "conjugate", "enumeration", "quadrature", "particles")


def from_numpyro(
    arm: Callable[..., Any] | Sequence[Callable[..., Any]],
    num_arms: int | None = None,
    *,
    representation: str = "auto",
    num_particles: int | None = None,
    reward_site: str = "reward",
    mean: Any = None,
    values: Any = None,
    key: Any = 0,
) -> Belief:
    """A belief over independent arms, each an ordinary NumPyro model of its reward.

    arm: `def arm(reward=None): ...; numpyro.sample("reward", ..., obs=reward)`, used for all
    `num_arms` arms, or a list with one function per arm. representation: "auto" takes a conjugate
    family where the model is one beyond doubt, enumeration for few discrete latents, quadrature for
    one continuous latent, particles otherwise; the belief's `repr` says which and why.
    num_particles: points per arm, for quadrature too. values: what categorical rewards are worth.
    mean: the mean reward given the latents, where NumPyro does not know it.
    """
    _check_arguments(representation, num_particles, reward_site, key)
    if callable(arm):
        count = as_count("num_arms", 1 if num_arms is None else num_arms)
        functions: list[Any] = [arm] * count
    else:
        functions = list(arm) if isinstance(arm, Sequence) else []
        if not functions or not all(callable(f) for f in functions):
            raise ValueError(f"arm must be a NumPyro function, or several, got {arm!r}")
        if num_arms is not None and as_count("num_arms", num_arms) != len(functions):
            raise ValueError(f"num_arms is {num_arms}, but {len(functions)} functions were given")
    distinct = list(dict.fromkeys(functions))
    groups = [[i for i, f in enumerate(functions) if f is one] for one in distinct]
    models = [read_arm(f, reward_site=reward_site, mean=mean, values=values) for f in distinct]
    return _represent(models, groups, representation, num_particles, key)


def from_numpyro_joint(
    model: Callable[..., Any],
    num_arms: int,
    *,
    representation: str = "auto",
    num_particles: int | None = None,
    reward_site: str = "reward",
    mean: Any = None,
    values: Any = None,
    key: Any = 0,
) -> Belief:
    """A belief over correlated arms: `def model(arm, reward=None)`, latents shared by the arms."""
    _check_arguments(representation, num_particles, reward_site, key)
    if not callable(model):
        raise ValueError(f"model must be a NumPyro function model(arm, reward), got {model!r}")
    count = as_count("num_arms", num_arms)
    read = read_arm(
        model, num_arms=count, joint=True, reward_site=reward_site, mean=mean, values=values
    )
    if representation == "quadrature":
        raise ValueError(
            "quadrature serves independent arms with one latent each; for a joint model use "
            "representation='particles'"
        )
    if representation in ("auto", "conjugate") and read.conjugate is not None:
        # Every arm has latents of its own after all: independent arms of one family.
        family, parameters = read.conjugate
        return getattr(beliefs, family)(**parameters)
    if representation in ("auto", "conjugate") and read.linear_gaussian is not None:
        why = f"{read.name} is linear in Gaussian latents, with Gaussian noise"
        return beliefs.LinearGaussian(**vars(read.linear_gaussian), reason=why)
    if representation == "conjugate":
        raise ValueError(
            f"{read.name} is not read as a conjugate joint model; use representation='particles'"
        )
    if representation == "enumeration" or (
        representation == "auto" and read.enumerate_latents() is not None
    ):
        return joint_enumeration(read, "all latents are discrete and few")
    size = _how_many(num_particles, DEFAULT_PARTICLES, LEAST_PARTICLES, "particles")
    return JointParticles(read, size, as_key(key), _why_particles([read], representation))


def _represent(
    models: list[ArmModel],
    groups: list[list[int]],
    representation: str,
    num_particles: int | None,
    key: Any,
) -> Belief:
    forced = representation != "auto"
    conjugate = _conjugate(models, groups)
    if representation == "conjugate":
        if conjugate is None:
            names = ", ".join(f"{m.name}: {m.conjugate and m.conjugate[0]}" for m in models)
            raise ValueError(
                "representation='conjugate' needs all arms in one conjugate family beyond doubt; "
                f"read {names}. Use representation='auto'"
            )
        return conjugate
    if not forced and conjugate is not None:
        return conjugate
    discrete = all(model.enumerate_latents() is not None for model in models)
    if representation == "enumeration" or (not forced and discrete):
        return enumeration(models, groups, _told(forced, "all latents are discrete and few"))
    if representation == "quadrature":
        for model in models:
            if not can_serve(model):
                raise ValueError(
                    f"quadrature needs one continuous latent whose prior has an inverse CDF; "
                    f"{model.name} has {model.dim} continuous"
                    f"{' and discrete' * model.has_discrete} latents: use "
                    "representation='particles'"
                )
    if representation == "quadrature" or (not forced and all(map(can_serve, models))):
        nodes = _how_many(num_particles, DEFAULT_NODES, LEAST_NODES, "quadrature")
        return Quadrature(models, groups, nodes, _told(forced, "one continuous latent per arm"))
    size = _how_many(num_particles, DEFAULT_PARTICLES, LEAST_PARTICLES, "particles")
    return Particles(models, groups, size, as_key(key), _why_particles(models, representation))


def _conjugate(models: list[ArmModel], groups: list[list[int]]) -> Belief | None:
    """All arms in one conjugate family, or None."""
    found = [model.conjugate for model in models]
    if any(one is None for one in found) or len({one[0] for one in found if one}) != 1:
        return None
    family = getattr(beliefs, found[0][0])  # type: ignore[index]
    rows: dict[int, dict[str, Any]] = {}
    for one, group in zip(found, groups, strict=True):
        assert one is not None
        for arm in group:
            rows[arm] = one[1]
    order = sorted(rows)
    shared = ("values",)  # of a Dirichlet family: one list for all arms
    fields = {}
    for name in rows[order[0]]:
        column = [jnp.asarray(rows[arm][name], float) for arm in order]
        if name in shared:
            if any(c.shape != column[0].shape or bool(jnp.any(c != column[0])) for c in column):
                return None
            fields[name] = column[0]
        else:
            if len({c.shape for c in column}) != 1:
                return None
            fields[name] = jnp.stack(column)
    return family(**fields)


def _how_many(given: int | None, default: int, least: int, what: str) -> int:
    if given is None:
        return default
    count = as_count("num_particles", given)
    if count < least:
        raise ValueError(
            f"num_particles must be at least {least} for {what}: fewer points say nothing of the "
            f"prior, got {given} (the default is {default})"
        )
    return count


def _told(forced: bool, reason: str) -> str:
    return "asked for" if forced else reason


def _why_particles(models: list[ArmModel], representation: str) -> str:
    if representation == "particles":
        return "asked for"
    kinds = {f"{m.dim} continuous{' and discrete' * m.has_discrete} latents" for m in models}
    return " / ".join(sorted(kinds))


def _check_arguments(representation: Any, num_particles: Any, reward_site: Any, key: Any) -> None:
    """Before the model is read, and whether or not the representation needs them."""
    one_of("representation", representation, REPRESENTATIONS)
    if num_particles is not None:
        as_count("num_particles", num_particles)
    if not isinstance(reward_site, str):
        raise ValueError(f"reward_site must be the name of a sample site, got {reward_site!r}")
    as_key(key)
