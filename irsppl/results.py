"""Labelled results: xarray data sets, ArviZ data, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irsppl.bandit import Bandit
from irsppl.penalties.replay import steadied

if TYPE_CHECKING:
    import xarray as xr  # with pandas it takes most of a second, which bounds need not wait for


def finite_result(bandit: Bandit, what: str, **numbers: Any) -> None:
    """The gate that every result passes: a NaN or an infinity raises, with its likely cause."""
    for name, value in numbers.items():
        host = np.asarray(value, np.float64)
        wrong = ~np.isfinite(host)
        if not np.any(wrong):
            continue
        share = f" in {wrong.sum()} of {host.size} cases" if host.size > 1 else ""
        raise ValueError(
            f"bandit: the {name} of {what} came to {host[wrong][0]:g}{share}. {_cause(bandit)}"
        )


def _cause(bandit: Bandit) -> str:
    belief = bandit.belief
    means = np.asarray(belief.predictive_mean(), np.float64)
    spread = np.asarray(belief.stated_sd(), np.float64)
    state = f"Its {type(belief).__name__} belief has means {means} and standard deviations {spread}"
    if not np.all(np.isfinite(spread)):
        return f"{state}: where these are infinite, give a prior with lighter tails"
    advice = "scale rewards to the order of 1, or use 64 bits (jax_enable_x64)"
    return f"{state}, in {means.dtype}: {advice}"


def simulation_dataset(
    bandit: Bandit, labels: list[str], parts: list[dict[str, np.ndarray]], means: Any
) -> xr.Dataset:
    """The chunks of a simulation, joined along `replication`."""
    import xarray as xr

    def join(name: str) -> np.ndarray:
        return np.concatenate([part[name] for part in parts], axis=1)

    data = xr.Dataset(
        coords={"policy": labels, "arm": list(bandit.arm_labels)},
        attrs={"horizon": int(bandit.remaining), "belief": type(bandit.belief).__name__},
    )
    meanings = {
        "value": "sum of the true means of the pulled arms",
        "reward": "sum of the realised rewards",
        "regret": "value of the best arm throughout, less value",
    }
    for name, words in meanings.items():
        rows = join(name)
        for label, row in zip(labels, rows, strict=True):
            finite_result(bandit, f"policy {label}", **{name: row})
        data[name] = (("policy", "replication"), rows, {"long_name": words})
    data["pulls"] = (("policy", "replication", "arm"), join("pulls").astype(np.int32))
    if "news" in parts[0]:
        luck = join("news")
        for name in ("value", "regret"):
            steady = [steadied(r, c) for r, c in zip(data[name].values, luck, strict=True)]
            meaning = {"long_name": f"{name} less the luck that the path's rewards explain"}
            data[f"steadied_{name}"] = (("policy", "replication"), np.stack(steady), meaning)
    if "ess" in parts[0]:
        meaning = {"long_name": "least effective sample size that a decision was made with"}
        data["effective_sample_size"] = (("policy", "replication"), join("ess"), meaning)
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
    """A table of a simulation: mean and standard error of value and regret, per policy.

    Of the steadied figures where there are any: their means are the same, their errors smaller. A
    standard error takes two replications: of a single one it is NaN.
    """
    import pandas as pd
    import xarray as xr

    names = {"value", "regret"}
    if not (isinstance(data, xr.Dataset) and names <= set(data) and "replication" in data.dims):
        raise ValueError(
            "data must be what simulate(...) returned, a data set with value and regret by policy "
            f"and replication, got {type(data).__name__}"
        )
    root = np.sqrt(data.sizes["replication"])
    columns = {}
    for name in ("value", "regret"):
        figures = data.get(f"steadied_{name}", data[name])
        columns[name] = figures.mean("replication").values
        columns[f"{name} s.e."] = figures.std("replication", ddof=1).values / root
    return pd.DataFrame(columns, index=pd.Index(data["policy"].values, name="policy"))
