"""Labelled results: xarray data sets, ArviZ data, tables."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.beliefs import Belief


def simulation_dataset(
    bandit: Bandit, labels: list[str], parts: list[dict[str, np.ndarray]], means: Any
) -> xr.Dataset:
    """The chunks of a simulation, joined along `replication`."""

    def join(name: str) -> np.ndarray:
        return np.concatenate([part[name] for part in parts], axis=1)

    data = xr.Dataset(
        {
            "value": (("policy", "replication"), join("value")),
            "reward": (("policy", "replication"), join("reward")),
            "regret": (("policy", "replication"), join("regret")),
            "pulls": (("policy", "replication", "arm"), join("pulls").astype(np.int32)),
        },
        coords={"policy": labels, "arm": list(bandit.arm_labels)},
        attrs={"horizon": int(bandit.remaining), "belief": type(bandit.belief).__name__},
    )
    data["value"].attrs["long_name"] = "sum of the true means of the pulled arms"
    data["reward"].attrs["long_name"] = "sum of the realised rewards"
    data["regret"].attrs["long_name"] = "value of the best arm throughout, less value"
    if means is not None:
        data["true_mean"] = ("arm", np.asarray(means, np.float64))
    if "period" in parts[0]:
        count = data.sizes["replication"]
        first, second = np.sum([part["period"] for part in parts], axis=0).transpose(1, 0, 2)
        mean = first / count
        variance = np.maximum(second / count - mean**2, 0) * count / max(count - 1, 1)
        dims = ("policy", "period")
        data["period_regret"] = (dims, mean, {"long_name": "mean regret of each period"})
        data["period_regret_stderr"] = (dims, np.sqrt(variance / count))
        data = data.assign_coords(period=np.arange(mean.shape[1]))
    return data


def summary(data: xr.Dataset) -> Any:
    """A table of a simulation: mean and standard error of value and regret, per policy."""
    import pandas as pd

    root = np.sqrt(data.sizes["replication"])
    columns = {}
    for name in ("value", "regret"):
        columns[name] = data[name].mean("replication").values
        columns[f"{name} s.e."] = data[name].std("replication", ddof=1).values / root
    return pd.DataFrame(columns, index=pd.Index(data["policy"].values, name="policy"))


def belief_to_arviz(belief: Belief, key: Array, num_draws: int) -> Any:
    """Draws of the arms' mean rewards and of one predictive reward, as ArviZ data.

    They are independent draws, so they form one chain.
    """
    import arviz as az

    outcomes = jax.vmap(lambda k: belief._sample(k, 1))(jax.random.split(key, num_draws))
    groups = {
        "posterior": {"mean_reward": np.asarray(outcomes.means)[None]},
        "posterior_predictive": {"reward": np.asarray(outcomes.rewards)[None, :, :, 0]},
    }
    arms = {"arm": np.arange(belief.num_arms)}
    dims = {"mean_reward": ["arm"], "reward": ["arm"]}
    if hasattr(az, "InferenceData"):  # ArviZ 0.x
        return az.from_dict(**groups, coords=arms, dims=dims)
    return az.from_dict(groups, coords=arms, dims=dims)  # ArviZ 1.x gives a DataTree
