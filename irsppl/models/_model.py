"""A model as read: everything a belief asks of an arm.

The user's function is called with its latents filled in, and the law of its reward is taken from
the call; densities, means and draws are those of that law. The function runs only while JAX
traces, never in the compiled programs.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import primitives
from numpyro.distributions import biject_to

from irsppl.models import _quantiles as quantiles
from irsppl.models._distributions import Distribution, in_support, is_discrete
from irsppl.models._means import closed_mean, numerical_mean
from irsppl.models._structure import LinearGaussianForm
from irsppl.models._support import RewardSupport
from irsppl.models._truncated import stable

P = ParamSpec("P")
R = TypeVar("R")
Params = dict[str, Array]

# Discrete latents are enumerated up to this many combinations.
MAX_COMBINATIONS = 4096
# The arm for which a joint model's prior is taken: it is the same for all.
_FIRST = np.int32(0)


@dataclasses.dataclass(frozen=True)
class SiteInfo:
    """One latent site."""

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]  # () for discrete sites, which have no part in z
    start: int  # its place in the unconstrained vector z: z[start : start + size]
    size: int  # 0 for discrete sites
    discrete: bool
    distribution: str  # name of the prior's family
    support: str
    values: np.ndarray | None = None  # what one element of a discrete site can be, if finite


def broadcasting(method: Callable[P, R]) -> Callable[P, R]:
    """NumPyro, and users' models, broadcast between ranks; a strict session must let them."""

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.numpy_rank_promotion("allow"):
            return method(*args, **kwargs)

    return run


class Given(NamedTuple):
    """Arguments of `read_arm`."""

    function: Callable[..., Any]
    reward_site: str
    values: np.ndarray | None  # of the categories
    mean: Any  # a function, a site's name, or None


@dataclasses.dataclass(frozen=True, eq=False)
class ArmModel:
    """A user's model, read. Hashed by identity: a static argument, not a pytree.

    `Params` is a dict from latent site to value, in the constrained space of the sample sites. The
    methods work on one parameter point and one reward, are traceable, and are meant to be vmapped.
    `arm` is needed by joint models only, and may be traced.
    """

    name: str
    num_arms: int  # of a joint model; 1 for a per-arm model
    joint: bool
    latents: dict[str, SiteInfo]
    dim: int  # of the unconstrained continuous latents, z
    mean_method: str  # "closed form", "values", "user" or "quadrature"
    num_uniforms: int = 0  # that `prior_from_uniforms` takes (dim, and one per discrete element)
    has_icdf: bool = False
    support: RewardSupport = dataclasses.field(default_factory=RewardSupport)
    mean_error: float = 0.0  # largest estimated error of the mean over prior draws, 0.0 if exact
    conjugate: tuple[str, dict[str, Any]] | None = None
    linear_gaussian: LinearGaussianForm | None = None
    _call: Callable[[Any, Any], Any] = dataclasses.field(repr=False, default=lambda arm, r: None)
    _reward_site: str = dataclasses.field(repr=False, default="reward")
    category_values: np.ndarray | None = dataclasses.field(repr=False, default=None)
    _user_mean: Any = dataclasses.field(repr=False, default=None)
    _tables: dict[str, Any] = dataclasses.field(repr=False, default_factory=dict)
    _counts: dict[str, np.ndarray] = dataclasses.field(repr=False, default_factory=dict)

    def __copy__(self) -> Self:
        return self  # immutable, and compiled programs know it by identity

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def given(self) -> Given:
        """What the user gave, to read the model again from."""
        function = getattr(self._call, "function", self._call)
        return Given(function, self._reward_site, self.category_values, self._user_mean)

    def __getstate__(self) -> dict[str, Any]:
        given = self.given()
        for what, one in (("the model", given.function), ("mean=", given.mean)):
            _check_pickles(one, what)
        return dict(self.__dict__)

    # ---- what kinds of latents there are
    @property
    def has_discrete(self) -> bool:
        return any(site.discrete for site in self.latents.values())

    @property
    def discrete(self) -> bool:
        """Whether every latent is discrete."""
        return self.dim == 0

    @property
    def reward_values(self) -> np.ndarray | None:
        """The finitely many rewards there are, rising, or None."""
        return self.support.values

    # ---- the prior
    @broadcasting
    def sample_prior(self, key: Array) -> Params:
        """One draw of all latents."""
        keys = jax.random.split(key, max(len(self.latents), 1))
        order = {name: i for i, name in enumerate(self.latents)}
        visit = self.visit(lambda name, fn: fn.sample(keys[order[name]]), _FIRST)
        return visit.latents()

    def prior_from_uniforms(self, u: Float[Array, " num_uniforms"]) -> Params | None:
        """A draw of all latents from uniforms, or None where some prior has no such map.

        Uniform u give the prior exactly, also when priors depend on other latents: each site's
        inverse CDF is taken given the sites before it. A set that fills the unit cube evenly gives
        one that fills the prior evenly.
        """
        if not self.has_icdf:
            return None
        return self.from_uniforms(quantiles.Uniforms(u))

    @broadcasting
    def from_uniforms(self, uniforms: quantiles.Uniforms) -> Params:
        def choose(name: str, fn: Distribution) -> Array:
            return quantiles.draw(fn, uniforms.take, self._tables.get(name), self._counts.get(name))

        return self.visit(choose, _FIRST).latents()

    @broadcasting
    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Log density (mass, for discrete sites) of all latents in their own space."""
        visit = self.visit(lambda name, fn: params[name], _FIRST)
        return sum((jnp.sum(fn.log_prob(value)) for _, fn, value in visit.sites), jnp.zeros(()))

    @broadcasting
    def log_prior_unconstrained(
        self, z: Float[Array, " dim"], discrete: Params | None = None
    ) -> Float[Array, ""]:
        """Log density of the unconstrained vector z, Jacobian included.

        discrete: values of the discrete sites, if there are any; their log mass is included.
        """
        return sum(self.log_prior_parts(z, discrete), jnp.zeros(()))

    @broadcasting
    def log_prior_parts(
        self, z: Float[Array, " dim"], discrete: Params | None = None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(Log density of z with the discrete sites held, their log mass with z held).

        Each is the product of the sites' own laws given those before them: the first is the density
        of what `sample_beside` draws, in any order of sites.
        """
        terms: list[Array] = []
        masses: list[Array] = []
        self.visit(self._place(z, discrete, terms, masses), _FIRST)
        return sum(terms, jnp.zeros(())), sum(masses, jnp.zeros(()))

    @broadcasting
    def sample_beside(self, discrete: Params, key: Array) -> Float[Array, " dim"]:
        """A draw of z from the prior, the discrete sites held at these values."""
        keys = jax.random.split(key, max(len(self.latents), 1))
        order = {name: i for i, name in enumerate(self.latents)}

        def choose(name: str, fn: Distribution) -> Array:
            return discrete[name] if name in discrete else fn.sample(keys[order[name]])

        return self.unconstrain(self.visit(choose, _FIRST).latents())

    @broadcasting
    def constrain(self, z: Float[Array, " dim"], discrete: Params | None = None) -> Params:
        """The latents at an unconstrained point."""
        return self.visit(self._place(z, discrete, [], []), _FIRST).latents()

    def _place(
        self, z: Array, discrete: Params | None, terms: list[Array], masses: list[Array]
    ) -> Callable:
        def choose(name: str, fn: Distribution) -> Array:
            site = self.latents[name]
            if site.discrete:
                if discrete is None:
                    raise ValueError(f"discrete= must give a value for the latent {name!r}")
                masses.append(jnp.sum(fn.log_prob(discrete[name])))
                return discrete[name]
            part = z[site.start : site.start + site.size].reshape(site.unconstrained_shape)
            transform = biject_to(fn.support)
            value = transform(part)
            terms.append(jnp.sum(fn.log_prob(value)))
            terms.append(jnp.sum(transform.log_abs_det_jacobian(part, value)))
            return value

        return choose

    @broadcasting
    def unconstrain(self, params: Params) -> Float[Array, " dim"]:
        """The unconstrained vector of the continuous latents."""
        visit = self.visit(lambda name, fn: params[name], _FIRST)
        parts = [
            biject_to(fn.support).inv(value).reshape(-1)
            for name, fn, value in visit.sites
            if not self.latents[name].discrete
        ]
        return jnp.concatenate(parts) if parts else jnp.zeros((0,))

    def enumerate_latents(self) -> tuple[Params, np.ndarray] | None:
        """(every combination of the latents [J, ...], log prior [J]), impossible ones left out.

        None unless all latents are discrete with finitely many, not too many, values.
        """
        params = self.combinations(MAX_COMBINATIONS) if self.discrete else None
        if params is None:
            return None
        log_prior = np.asarray(jax.jit(jax.vmap(self.checked_log_prior))(params))
        keep = log_prior > -np.inf
        return {name: value[keep] for name, value in params.items()}, log_prior[keep]

    def combinations(self, most: int) -> Params | None:
        """Every combination of the discrete latents [J, ...], if there are at most so many."""
        sites = [site for site in self.latents.values() if site.discrete]
        values = [site.values for site in sites if site.values is not None]
        if len(values) < len(sites):
            return None
        sizes = [int(np.prod(site.shape, dtype=int)) for site in sites]
        axes = [one for one, n in zip(values, sizes, strict=True) for _ in range(n)]
        if np.prod([float(len(axis)) for axis in axes]) > most:
            return None
        flat = np.stack([part.reshape(-1) for part in np.meshgrid(*axes, indexing="ij")], axis=1)
        parts = np.split(flat, np.cumsum(sizes)[:-1], axis=1)
        return {
            site.name: jnp.asarray(part.reshape((-1, *site.shape)))
            for site, part in zip(sites, parts, strict=True)
        }

    @broadcasting
    def checked_log_prior(self, params: Params) -> Array:
        """Log prior, minus infinity where a discrete value is outside the support of its site."""
        visit = self.visit(lambda name, fn: params[name], _FIRST)
        terms = (
            jnp.sum(jnp.where(in_support(fn, value), fn.log_prob(value), -jnp.inf))
            for _, fn, value in visit.sites
        )
        return sum(terms, jnp.zeros(()))

    # ---- the reward, given the latents
    @broadcasting
    def log_likelihood(self, params: Params, reward: Any, arm: Any = None) -> Float[Array, ""]:
        """Log density (mass) of one reward; minus infinity where the reward is impossible."""
        fn = self.reward_law(params, arm)
        reward = jnp.asarray(reward)
        if self.category_values is not None:
            # Without a type JAX goes on with the one in which it met this array first.
            gaps = jnp.abs(jnp.asarray(self.category_values, float) - reward)
            value = jnp.argmin(gaps)
            ok = jnp.min(gaps) <= 1e-4 * (1 + jnp.abs(reward))
        else:
            value, ok = reward, in_support(fn, reward)
        if is_discrete(fn):
            value = jnp.where(ok, value, 0).astype(jnp.result_type(int))
        # An impossible reward is swapped for a possible one, so that no NaN reaches a gradient.
        value = jnp.where(ok, value, _feasible(fn, value, self.support.inside))
        log_prob = jnp.asarray(fn.log_prob(value)).reshape(())
        return jnp.where(ok & ~jnp.isnan(log_prob), log_prob, -jnp.inf)

    def mean(self, params: Params, arm: Any = None) -> Float[Array, ""]:
        """mu(theta): the mean reward given the latents."""
        return self.mean_and_error(params, arm)[0]

    @broadcasting
    def mean_and_error(self, params: Params, arm: Any) -> tuple[Array, Array]:
        zero = jnp.zeros(())
        if callable(self._user_mean):
            value = self._user_mean(params, arm) if self.joint else self._user_mean(params)
            return jnp.asarray(value, float).reshape(()), zero
        visit = self.visit(lambda name, fn: params[name], arm)
        if self._user_mean is not None:
            return jnp.asarray(visit.values[self._user_mean], float).reshape(()), zero
        fn = visit.reward["fn"]
        if self.category_values is not None:
            log_probs = fn.log_prob(jnp.arange(len(self.category_values)))
            values = jnp.asarray(self.category_values, log_probs.dtype)
            return jnp.sum(jnp.exp(log_probs) * values), zero
        if self.mean_method == "closed form":
            return jnp.asarray(closed_mean(fn), float), zero
        return numerical_mean(fn)

    @broadcasting
    def sample_reward(self, key: Array, params: Params, arm: Any = None) -> Float[Array, ""]:
        """One reward."""
        draw = self.reward_law(params, arm).sample(key)
        if self.category_values is not None:
            return jnp.asarray(self.category_values, float)[draw]
        return jnp.asarray(draw, float).reshape(())

    @broadcasting
    def reward_cdf(self, params: Params, reward: Array, num_draws: int = 8) -> Float[Array, ""]:
        """P(a reward is at most this one): for laws without a formula, the share of fixed draws."""
        try:
            return jnp.asarray(self.reward_law(params, None).cdf(reward), float).reshape(())
        except NotImplementedError:
            keys = jax.random.split(jax.random.key(0), num_draws)
            draws = jax.vmap(lambda key: self.sample_reward(key, params))(keys)
            return jnp.mean(draws <= reward, dtype=float)

    # ---- running the user's function
    def reward_law(self, params: Params, arm: Any) -> Distribution:
        return self.visit(lambda name, fn: params[name], arm).reward["fn"]

    def visit(self, choose: Callable[[str, Distribution], Any], arm: Any) -> Visit:
        if self.joint and arm is None:
            raise ValueError(f"arm= is needed: {self.name} is a joint model")
        visit = Visit(choose, self._reward_site)
        with visit:
            self._call(arm, None)
        return visit


# NumPyro keeps its handlers in one list for the whole process.
_HANDLERS = threading.RLock()


class Visit(primitives.Messenger):
    """One run of the function: chooses the latents as they come, and notes every site.

    One thread at a time runs a function, and whatever happens in it, the list of handlers is
    afterwards what it was before.
    """

    def __init__(self, choose: Callable[[str, Distribution], Any], reward_site: str):
        super().__init__()
        self.choose = choose
        self.reward_site = reward_site
        self.reward: Any = None  # the message of the reward site
        self.sites: list[tuple[str, Distribution, Array]] = []  # latents in order
        self.messages: list[Any] = []
        self.values: dict[str, Any] = {}

    def __enter__(self) -> None:
        _HANDLERS.acquire()
        self.others = list(primitives._PYRO_STACK)
        primitives._PYRO_STACK.append(self)

    def __exit__(self, *error: Any) -> None:
        primitives._PYRO_STACK[:] = self.others
        _HANDLERS.release()

    def latents(self) -> Params:
        return {name: value for name, _, value in self.sites}

    def process_message(self, msg: Any) -> None:
        # The outermost handler: plates, reparameterisations and the like have had their say, and
        # a value given by handlers.substitute is a constant.
        if msg["type"] == "sample":
            msg["fn"] = stable(msg["fn"])
        self.messages.append(dict(msg))
        if msg["type"] != "sample":
            return
        name, fn = msg["name"], msg["fn"]
        if name == self.reward_site:
            self.reward = dict(msg)
            if msg["value"] is None:
                msg["value"] = jnp.zeros(fn.shape())  # nothing reads it; drawing would be waste
        elif not msg["is_observed"] and msg["value"] is None:
            value = jnp.asarray(self.choose(name, fn))
            msg["value"] = value
            self.sites.append((name, fn, value))

    def postprocess_message(self, msg: Any) -> None:
        if "name" in msg and msg["type"] in ("sample", "deterministic"):
            self.values[msg["name"]] = msg["value"]


def _check_pickles(function: Any, what: str) -> None:
    """A function is pickled as its name in its module: it must have one there."""
    try:
        pickle.dumps(function)
    except Exception as error:
        raise pickle.PicklingError(
            f"NumPyro arms are pickled by the names of their functions, and {what} {function!r} "
            "cannot be found by one: define it with `def` at the top level of a module, not inside "
            "another function and not as a lambda; bind arguments with functools.partial"
        ) from error


def _feasible(fn: Distribution, value: Array, fallback: float) -> Array:
    try:
        return jnp.asarray(fn.support.feasible_like(value)).astype(value.dtype).reshape(())
    except (NotImplementedError, AttributeError):
        return jnp.asarray(fallback).astype(value.dtype)
