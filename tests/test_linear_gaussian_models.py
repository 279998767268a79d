"""LinearGaussian from a NumPyro model; what it refuses; arms that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import irsppl

from .oracles import linear_gaussian as oracle
from .test_linear_gaussian import STEERED, answers, close, random_arms


def revenue(arm, reward=None):
    price = jnp.array([2.0, 3.0, 4.0, 5.0])[arm]
    base = numpyro.sample("base", dist.Normal(10.0, 2.0))
    slope = numpyro.sample("slope", dist.Normal(1.2, 0.4))
    numpyro.sample("reward", dist.Normal(price * (base - slope * price) - 5, price), obs=reward)


def test_a_linear_gaussian_model_is_exact():
    belief = irsppl.from_numpyro_joint(revenue, num_arms=4)
    assert isinstance(belief, irsppl.LinearGaussian)
    assert "revenue is linear in Gaussian latents" in repr(belief)
    price = np.array([2.0, 3.0, 4.0, 5.0])
    features = np.stack([price, -(price**2)], axis=1)
    slow = oracle.Regression(features, [10, 1.2], np.diag([4.0, 0.16]), price, np.full(4, -5.0))
    mean, cov = slow.posterior([3, 0, 3], [12.0, 9.0, 17.0])
    updated = belief.update([3, 0, 3], [12.0, 9.0, 17.0])
    close(updated.predictive_mean(), mean, 1e-5)
    close(updated.mean_sd(), np.sqrt(np.diag(cov)), 1e-5)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"features": [1.0, 2.0]}, r"features must be \[K, d\].*got shape \(2,\)"),
        ({"features": [[1.0, np.nan], [1.0, 0.0], [0.0, 1.0]]}, "features must be finite"),
        ({"mean": [0.0]}, r"mean must be \[2\].*got shape \(1,\)"),
        ({"mean": [0.0, np.inf]}, "mean must be finite"),
        ({"cov": [1.0, 1.0]}, r"cov must be \[2, 2\].*got shape \(2,\)"),
        ({"cov": [[1.0, 0.5], [0.2, 1.0]]}, "cov must be symmetric.*0.3"),
        ({"cov": [[1.0, 2.0], [2.0, 1.0]]}, "cov must be positive definite.*eigenvalue -1"),
        ({"cov": [[1.0, 1.0], [1.0, 1.0]]}, "cov must be positive definite"),
        ({"cov": [[1.0, 0.0], [0.0, 0.0]]}, "cov must be positive definite"),
        ({"cov": [[1.0, 0.0], [0.0, -2.0]]}, "cov must be positive definite"),
        ({"cov": [[1.0, 0.0], [0.0, np.nan]]}, "cov must be finite"),
        ({"noise_sd": 0.0}, "noise_sd must be positive and finite, got 0.0"),
        ({"noise_sd": [1.0, -1.0, 1.0]}, "noise_sd must be positive"),
        ({"noise_sd": [1.0, 1.0]}, r"noise_sd must be a number or \[3\]"),
        ({"offset": [0.0]}, r"offset must be \[3\]"),
        ({"features": "abc"}, "features must be an array of numbers"),
    ],
)
def test_bad_input_is_refused(change, words, compilations):
    before = len(compilations)
    with pytest.raises(ValueError, match=words):
        irsppl.LinearGaussian(**(STEERED | change))
    assert len(compilations) - before <= 1  # converting the arrays at most


def test_other_refusals():
    belief = irsppl.LinearGaussian(**random_arms(4, 2))
    assert belief.exact_expected_best(None) is None
    with pytest.raises(ValueError, match=r"closed form for two and three arms only.*'irs\.ff'"):
        irsppl.bound(irsppl.Bandit(belief, 3), "irs.v-emax", num_samples=10)
    with pytest.raises(ValueError, match="reward must be finite"):
        belief.update(0, np.nan)
    with pytest.raises(ValueError, match="arm must be a whole number from 0 to 3"):
        belief.update(4, 1.0)


def test_an_arm_that_is_known():
    """A row of zero features: its mean is the offset, whatever is seen, and nothing is NaN."""
    belief = irsppl.LinearGaussian([[0.0], [1.0]], [0.5], [[1.0]], 1.0, offset=[0.7, 0.0])
    updated = belief.update([0, 1], [9.0, 2.0])
    close(updated.predictive_mean(), [0.7, 0.5 + 1.5 / 2], 1e-6)
    rewards = belief.sample_outcome(0, 5).rewards
    got = answers(belief, rewards, 0.2, jax.random.key(4))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(got))
    close(got["path"][0], np.full(6, 0.7), 1e-6)
    close(got["expected max"][0], 0.7, 1e-6)
