"""The sites of a model: what they are, and the models that cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions import biject_to

from irsppl._checks import depends_on_input, is_concrete
from irsppl.models._calls import run
from irsppl.models._distributions import (
    CENSORED,
    ZERO_INFLATED,
    Distribution,
    is_discrete,
    layers,
    plain_constraint,
    unwrap,
)
from irsppl.models._model import SiteInfo, Visit


def read_sites(call: Callable, arm: Any, reward_site: str, name: str) -> dict[str, SiteInfo]:
    """The latents, after checking every site of one run."""
    say = f"arm model {name}: "
    sites: dict[str, SiteInfo] = {}

    # Inside the trace throughout: a support may hold values of other latents.
    def trace(key: Array) -> None:
        visit = run(call, arm, None, key, reward_site, name)
        _check_sites(visit, reward_site, say)
        start = 0
        for site, fn, value in visit.sites:
            sites[site] = _site_info(site, fn, tuple(value.shape), start, say)
            start += sites[site].size

    jax.eval_shape(trace, jax.random.key(0))
    return sites


def _site_info(
    name: str, fn: Distribution, shape: tuple[int, ...], start: int, say: str
) -> SiteInfo:
    discrete, free = is_discrete(fn), ()
    if not discrete:
        try:
            free = tuple(biject_to(fn.support).inverse_shape(shape))
        except NotImplementedError as error:
            raise ValueError(
                say + f"the prior of {name!r} lives on {fn.support}, which has no map to "
                "unconstrained space; reparameterise it"
            ) from error
    return SiteInfo(
        name=name,
        shape=shape,
        unconstrained_shape=free,
        start=start,
        size=0 if discrete else int(np.prod(free, dtype=int)),
        discrete=discrete,
        distribution=type(unwrap(fn)).__name__,
        support=type(plain_constraint(fn.support)).__name__.lstrip("_"),
    )


def _check_sites(visit: Visit, reward_site: str, say: str) -> None:
    names = [m["name"] for m in visit.messages if m["type"] in ("sample", "deterministic")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(say + f"two sites are named {twice[0]!r}; every site needs its own name")
    seen_reward = False
    for msg in visit.messages:
        kind, site = msg["type"], msg.get("name")
        if kind in ("param", "mutable"):
            raise ValueError(
                say + f"site {site!r} is a numpyro.{kind}, a number to be fitted; make it a "
                "constant or give it a prior with numpyro.sample"
            )
        if kind == "control_flow":
            raise ValueError(
                say + "numpyro's scan and cond are not read; use a plate, or jax.lax.scan and "
                "jnp.where for computations without sample sites"
            )
        if kind == "prng_key":
            raise ValueError(
                say + "the model draws random numbers outside numpyro.sample (numpyro.prng_key, or "
                "a plate that subsamples); draw them with numpyro.sample"
            )
        if kind == "deterministic" and site == reward_site:
            raise ValueError(
                say + f"site {site!r} is deterministic given the latents; a reward must be random: "
                f'numpyro.sample("{site}", ..., obs=reward)'
            )
        if kind != "sample":
            continue
        fn = msg["fn"]
        if any(isinstance(layer, dist.Unit) for layer in layers(fn)):
            raise ValueError(
                say + f"site {site!r} is a numpyro.factor: it changes the density but not the "
                "draws, so the prior cannot be sampled; write it as a distribution"
            )
        if site == reward_site:
            seen_reward = True
            _check_reward_site(msg, say)
            continue
        if msg["is_observed"]:
            raise ValueError(
                say + f"site {site!r} is observed besides {reward_site!r}; an arm has one observed "
                "site, the reward: build other data into the priors, and fix a latent with "
                "numpyro.handlers.substitute"
            )
        if seen_reward:
            raise ValueError(
                say + f"site {site!r} is drawn after the reward; draw latents before it, or leave "
                "the site out"
            )
        if msg["value"] is None:
            _check_latent_site(msg, say)
    if visit.reward is None:
        raise ValueError(
            say + f"no sample site named {reward_site!r}; name the observed site so, or give its "
            f"name as reward_site=. Sites found: {', '.join(names) or 'none'}"
        )
    if not visit.sites:
        raise ValueError(
            say + "nothing is unknown: the model has no latent sample site, so there is nothing to "
            "learn; give some parameter a prior with numpyro.sample"
        )


def _check_reward_site(msg: Any, say: str) -> None:
    fn, site = msg["fn"], msg["name"]
    _check_weight(msg, say)
    if fn.shape() != () or msg["kwargs"].get("sample_shape"):
        shape = (*msg["kwargs"].get("sample_shape", ()), *fn.shape())
        raise ValueError(
            say + f"the reward {site!r} has shape {shape}, but a pull gives one number; take it "
            "out of its plate, or index its parameters by the arm"
        )
    kinds = [type(layer) for layer in layers(fn)]
    if dist.Delta in kinds and not isinstance(
        unwrap(fn), (dist.MixtureGeneral, dist.MixtureSameFamily)
    ):
        raise ValueError(
            say + f"the reward {site!r} has no noise (Delta): one pull would tell all; give it a "
            "distribution"
        )
    if any(issubclass(kind, CENSORED) for kind in kinds):
        raise ValueError(
            say + f"the reward {site!r} is a censored distribution, whose draws are not censored; "
            "use the distribution of what is seen"
        )


def _check_weight(msg: Any, say: str) -> None:
    site = msg["name"]
    scale = msg.get("scale")
    if scale is not None and not (is_concrete(scale) and np.all(np.asarray(scale) == 1)):
        raise ValueError(
            say + f"the density of site {site!r} is scaled (handlers.scale, or a plate that "
            "subsamples), so that it is no longer the law the draws come from; remove the scale"
        )
    for layer in layers(msg["fn"]):
        if isinstance(layer, dist.MaskedDistribution):
            mask = layer._mask
            if not (is_concrete(mask) and np.all(np.asarray(mask))):
                raise ValueError(
                    say + f"site {site!r} is masked, so that its density is no longer the law the "
                    "draws come from; remove the mask (beliefs mask unseen rewards themselves)"
                )


def _check_latent_site(msg: Any, say: str) -> None:
    fn, site = msg["fn"], msg["name"]
    _check_weight(msg, say)
    if msg["kwargs"].get("sample_shape"):
        raise ValueError(
            say + f"latent {site!r} is drawn with sample_shape, so that its draws have another "
            f'shape than its density; write `with numpyro.plate("...", n):` around it'
        )
    for layer in layers(fn):
        if isinstance(layer, dist.ImproperUniform):
            raise ValueError(
                say + f"the prior of {site!r} is improper (ImproperUniform): it cannot be drawn "
                "from; give it a proper distribution"
            )
        atom = isinstance(layer, dist.Delta) or (
            isinstance(layer, ZERO_INFLATED) and not is_discrete(layer.base_dist)
        )
        if atom:
            raise ValueError(
                say + f"the prior of {site!r} mixes single values with a density, or is a single "
                f"value ({type(layer).__name__}); write the choice as a Bernoulli latent and "
                "combine with jnp.where, or use numpyro.deterministic"
            )
        if isinstance(layer, CENSORED):
            raise ValueError(say + f"the prior of {site!r} is censored; use an ordinary prior")


def check_same_latents(
    first: dict[str, SiteInfo], other: dict[str, SiteInfo], arm: Any, say: str
) -> None:
    if list(first) != list(other):
        raise ValueError(
            say + "in a joint model every arm must have the same latents, but arm 0 has "
            f"{', '.join(first)} and arm {arm} has {', '.join(other)}; draw all of them for every "
            "arm and choose with jnp.where or by index"
        )
    for site, info in first.items():
        if info != other[site]:
            raise ValueError(
                say + "in a joint model every arm must have the same latents, but "
                f"{site!r} is {info.distribution} of shape {info.shape} for arm 0 and "
                f"{other[site].distribution} of shape {other[site].shape} for arm {arm}"
            )


def check_traced_arm(call: Callable, reward_site: str, name: str) -> None:
    """The function must take an arm it cannot look at, and shared priors must not depend on it."""
    say = f"arm model {name}: "
    names: list[list[str]] = []

    def priors(arm: Array) -> list[list[Any]]:
        visit = run(call, arm, None, jax.random.key(0), reward_site, name)
        names.append([site for site, _, _ in visit.sites])
        return [jax.tree.leaves(fn) for _, fn, _ in visit.sites]

    closed = jax.make_jaxpr(priors)(jnp.asarray(0))
    depends = iter(depends_on_input(closed.jaxpr))
    shapes = jax.eval_shape(priors, jnp.asarray(0))
    for site, leaves in zip(names[0], shapes, strict=True):
        if any([next(depends) for _ in leaves]):
            raise ValueError(
                say + f"the prior of {site!r} depends on the arm, but in a joint model the latents "
                f"are shared: give every arm its own element (`with numpyro.plate('arms', n):`) "
                f"and use {site}[arm], or use from_numpyro with one function per arm"
            )


def check_law(
    call: Callable,
    sites: dict[str, SiteInfo],
    joint: bool,
    reward_site: str,
    values: np.ndarray | None,
    say: str,
) -> None:
    """The reward site must observe the reward it is given, and nothing else may depend on it."""
    name = say.removeprefix("arm model ").removesuffix(": ")
    notes: list[Any] = []

    def observe(reward: Any, key: Array) -> tuple[list[Any], Any]:
        visit = run(call, np.int32(0) if joint else None, reward, key, reward_site, name)
        notes.append(visit)
        leaves = jax.tree.leaves([visit.reward["fn"], [fn for _, fn, _ in visit.sites]])
        seen = visit.reward["value"]
        return leaves, jnp.asarray(0 if seen is None else seen, float)

    whole = values is not None
    probe = jnp.asarray(1 if whole else 1.0)
    closed = jax.make_jaxpr(lambda r: observe(r, jax.random.key(1)))(probe)
    visit = notes[0]
    if not visit.reward["is_observed"]:
        raise ValueError(
            say + f"site {reward_site!r} does not observe the reward it is given; write "
            f'numpyro.sample("{reward_site}", ..., obs=reward)'
        )
    if [site for site, _, _ in visit.sites] != list(sites):
        raise ValueError(
            say + "the latents differ between reward=None and a given reward; draw the same sites "
            "either way"
        )
    others = [
        m["name"]
        for m in visit.messages
        if m["type"] == "sample" and m["is_observed"] and m["name"] != reward_site
    ]
    if others:
        raise ValueError(
            say + f"site {others[0]!r} is observed besides {reward_site!r} when a reward is given; "
            "an arm has one observed site, the reward"
        )
    depends = depends_on_input(closed.jaxpr)
    if any(depends[:-1]):
        raise ValueError(
            say + "the prior or the reward's distribution depends on the observed reward; it may "
            "be used in obs=reward only"
        )
    seen = jax.jit(lambda r: observe(r, jax.random.key(1))[1])
    for trial in (0, 1):
        value = probe * 0 + trial
        if not np.allclose(np.asarray(seen(value)), trial):
            raise ValueError(
                say + f"site {reward_site!r} observes a transformed reward; the observed value "
                "must be the reward itself: transform the distribution instead (LogNormal, "
                "TransformedDistribution)"
            )
    again = jax.make_jaxpr(lambda r: observe(r, jax.random.key(1)))(probe)
    if not _same_program(closed, again):
        raise ValueError(
            say + "two calls of the model gave two different models; it must not draw from "
            "numpy.random or change variables outside itself"
        )


def _same_program(one: Any, other: Any) -> bool:
    if str(one.jaxpr) != str(other.jaxpr) or len(one.consts) != len(other.consts):
        return False
    return all(
        np.array_equal(np.asarray(jax.device_get(a)), np.asarray(jax.device_get(b)))
        for a, b in zip(one.consts, other.consts, strict=True)
        if not jnp.issubdtype(jnp.asarray(a).dtype, jax.dtypes.prng_key)
    )
