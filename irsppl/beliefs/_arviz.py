"""A belief as ArviZ data: draws of what it holds of the arms, and of rewards that it expects."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import side_key
from irsppl.beliefs._base import Belief, single_pulls
from irsppl.beliefs._points import PointBelief


def load_arviz() -> Any:
    """The module. Once a day ArviZ leaves a file behind when it is imported, by a fixed temporary
    name: of two processes that do so at once, one is told that the file is not there."""
    try:
        import arviz
    except FileNotFoundError:  # the other one has written it by now
        import arviz
    return arviz


def belief_to_arviz(belief: Belief, key: Array, num_draws: int) -> Any:
    """Draws of the arms' mean rewards and of one predictive reward, as ArviZ data.

    Beliefs that came from a model keep it, whatever data they have seen: they add draws from the
    prior. All are independent draws, so they form one chain.
    """
    az = load_arviz()
    outcomes = single_pulls(belief, jax.random.split(key, num_draws))
    groups = {
        "posterior": {"mean_reward": np.asarray(outcomes.means)[None]},
        "posterior_predictive": {"reward": np.asarray(outcomes.rewards)[None, :, :, 0]},
    }
    if isinstance(belief, PointBelief):
        keys = jax.random.split(side_key(key, "prior"), num_draws)
        means, rewards = _prior_draws(belief, keys)
        groups["prior"] = {"mean_reward": means[None]}
        groups["prior_predictive"] = {"reward": rewards[None]}
    arms = {"arm": np.arange(belief.num_arms)}
    dims = {"mean_reward": ["arm"], "reward": ["arm"]}
    # By the version: newer ones answer to old names, with a warning or with something else.
    if az.__version__.startswith("0."):
        return az.from_dict(**groups, coords=arms, dims=dims)
    return az.from_dict(groups, coords=arms, dims=dims)  # gives a DataTree


def _prior_draws(belief: PointBelief, keys: Array) -> tuple[np.ndarray, np.ndarray]:
    """Mean rewards and one reward of each arm `[draws, K]` under the prior."""

    def draw(model: Any, key: Array, arm: Array) -> tuple[Array, Array]:
        param_key, reward_key = jax.random.split(key)
        # A joint model has one draw of its latents for all arms: the same key gives it to each.
        own = param_key if model.joint else jax.random.fold_in(param_key, arm)
        params = model.sample_prior(own)
        at = arm if model.joint else None
        reward = model.sample_reward(jax.random.fold_in(reward_key, arm), params, at)
        return model.mean(params, at), reward

    size = (len(keys), belief.num_arms)
    means, rewards = np.empty(size), np.empty(size)
    for model, arms in belief.parts:
        of_arms = jax.vmap(lambda key, arm, m=model: draw(m, key, arm), in_axes=(None, 0))
        every = jax.jit(jax.vmap(of_arms, in_axes=(0, None)))
        means[:, arms], rewards[:, arms] = every(keys, jnp.asarray(arms))
    return means, rewards
