"""What the finished pieces of a study add up to, read one after the other.

Figures by replication go to a Zarr folder as they are read, and means and errors are kept running:
the memory is that of one piece, however many replications there are.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from irsppl._checks import as_key
from irsppl._running import RunningMean
from irsppl.bounds import Bound, solve_inner, with_tail
from irsppl.outcomes import Outcome
from irsppl.studies.manifest import version
from irsppl.studies.study import Study
from irsppl.studies.work import Arrays, Work

# Replications in a chunk of the Zarr folder: about so many, a megabyte of numbers.
_ZARR_CHUNK = 2**17
# Figures by replication are loaded where they take at most this much memory, else opened lazily.
MOST_IN_MEMORY = 64 * 2**20

Load = Callable[..., Arrays]  # identity of a finished piece -> its arrays
Spans = Callable[[int], list[tuple[int, int]]]  # horizon -> blocks of replications played there


class Gather:
    """The data set of a study from its pieces.

    load: a finished piece; spans: which blocks there are; block: replications in each.
    """

    def __init__(self, study: Study, work: Work, load: Load, spans: Spans, block: int):
        self.study, self.work, self.load, self.spans, self.block = study, work, load, spans, block
        self.horizons = list(work.bandits)
        self.count = spans(study.periods)[-1][1]

    def dataset(
        self, folder: pathlib.Path, no_bound: dict[str, str], one_stream: list[str]
    ) -> xr.Dataset:
        """Everything measured, labelled; also in the Zarr folder.

        one_stream: penalties that are also shown with one random stream for means and rewards.
        """
        data = self._empty(no_bound)
        new = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(new, ignore_errors=True)
        arrays = self._by_replication(data)
        with _zarr_arrays(new, arrays, self._chunk()) as filled:
            self._add_policies(data, filled)
            self._add_bounds(data, filled)
        seconds = [
            float(self.load("time", p, self.study.periods)["seconds"]) for p in self.work.policies
        ]
        data["seconds_per_path"] = ("policy", np.array(seconds), {"units": "s"})
        if self.study.outcome is not None:
            self._add_outcome(data)
        if one_stream:
            self._add_one_stream(data, one_stream)
        # Text of any length: that of a fixed one has no agreed form in Zarr yet.
        texts = {name: data[name].astype(object) for name in ("policy", "penalty", "arm")}
        data.assign_coords(texts).to_zarr(new, mode="a", consolidated=False, zarr_format=3)
        _swap(new, folder)
        return _with_replications(data, folder, arrays)

    def _chunk(self) -> int:
        """Replications in a chunk of the Zarr folder: whole blocks."""
        return min(self.block * max(1, _ZARR_CHUNK // self.block), self.count)

    def _empty(self, no_bound: dict[str, str]) -> xr.Dataset:
        study, work = self.study, self.work
        return xr.Dataset(
            coords={
                "policy": ("policy", np.array(list(work.policies), dtype=str)),
                "penalty": ("penalty", np.array(list(work.penalties), dtype=str)),
                "horizon": self.horizons,
                "arm": list(work.bandits[study.periods].arm_labels),
            },
            attrs={
                "study": study.name,
                "title": study.title,
                "table_horizon": study.periods,
                "replications": self.count,
                "key": work.key,
                "irsppl": version(),
                "no_bound": "\n".join(f"{name}: {why}" for name, why in no_bound.items()),
            },
        )

    def _by_replication(self, data: xr.Dataset) -> dict[str, tuple[tuple[str, ...], Any, str]]:
        """{name: (dimensions, shape, in words)} of the large arrays."""
        found: dict[str, tuple[tuple[str, ...], Any, str]] = {}
        exact = "inner value of each future; not a number where the bound is exact"
        for name, rows, meaning in (
            ("regret", "policy", "value of the best arm throughout, less value"),
            ("value", "policy", "sum of the true means of the pulled arms"),
            ("inner_value", "penalty", exact),
        ):
            shape = (data.sizes[rows], len(self.horizons), self.count)
            found[name] = (rows, "horizon", "replication"), shape, meaning
        return found

    def _blocks(
        self, kind: str, label: str, horizon: int, into: dict[str, Callable[..., None]]
    ) -> Iterator[Arrays]:
        """The pieces of a row, in order; what `into` names is passed on, a Zarr chunk at a time."""
        kept: list[Arrays] = []
        begin = 0
        for start, stop in self.spans(horizon):
            piece = self.load(kind, label, horizon, start, stop)
            yield piece
            kept.append({name: piece[name] for name in into})
            if stop - begin >= self._chunk() or stop == self.spans(horizon)[-1][1]:
                for name, put in into.items():
                    put(begin, np.concatenate([part[name] for part in kept]))
                kept, begin = [], stop

    def _add_policies(self, data: xr.Dataset, filled: dict[str, Any]) -> None:
        rows, names = list(self.work.policies), ("regret", "value")
        cells = {name: np.full((len(rows), len(self.horizons), 2), np.nan) for name in names}
        pulls = np.full((len(rows), len(self.horizons), data.sizes["arm"]), np.nan)
        for i, label in enumerate(rows):
            for j, horizon in enumerate(self.horizons):
                running = {name: RunningMean() for name in names}
                into = {name: _writer(filled[name], i, j) for name in names}
                total = np.zeros(data.sizes["arm"])
                for piece in self._blocks("policy", label, horizon, into):
                    total += piece["pulls"]
                    for name in names:
                        running[name].add(piece[name])
                pulls[i, j] = total / running["value"].count
                for name in names:
                    cells[name][i, j] = running[name].mean_error()
        dims = ("policy", "horizon")
        data["pulls"] = ((*dims, "arm"), pulls, {"long_name": "mean pulls"})
        for name in names:
            data[f"mean_{name}"] = (dims, cells[name][..., 0], {"long_name": f"mean {name}"})
            meaning = {"long_name": "standard error"}
            data[f"mean_{name}_stderr"] = (dims, cells[name][..., 1], meaning)
        played = [self.spans(t)[-1][1] for t in self.horizons]
        data["played"] = ("horizon", played, {"long_name": "replications played"})

    # ---- bounds
    def _add_bounds(self, data: xr.Dataset, filled: dict[str, Any]) -> None:
        rows = list(self.work.penalties)
        cells = np.full((len(rows), len(self.horizons), 4), np.nan)
        for i, name in enumerate(rows):
            for j, horizon in enumerate(self.horizons):
                cells[i, j] = self._estimate(name, horizon, _writer(filled["inner_value"], i, j))
        meanings = {
            "bound": "no policy earns more on average",
            "bound_stderr": "standard error, 0 where exact",
            "regret_bound": "no policy has less regret on average",
            "regret_bound_stderr": "standard error, 0 where exact",
        }
        for k, (name, meaning) in enumerate(meanings.items()):
            data[name] = (("penalty", "horizon"), cells[..., k], {"long_name": meaning})

    def _estimate(self, name: str, horizon: int, put: Callable[..., None]) -> tuple[float, ...]:
        """Bound, its standard error, regret bound, its standard error."""
        exact, benchmark = self.work.exact[name, horizon], self.work.exact["ts", horizon]
        if exact is not None and benchmark is not None:
            return self._told_bound(Bound(name, exact, 0.0, benchmark - exact, 0.0), horizon)
        source = name if exact is None else "ts"
        blocks = self._blocks("bound", source, horizon, {name: put} if exact is None else {})
        known = {} if exact is None else {name: exact}
        found = self.work.sampler(source, horizon).running_estimates(blocks, known)
        return self._told_bound(found[name], horizon)

    def _told_bound(self, bound: Bound, horizon: int) -> tuple[float, ...]:
        bandit = self.work.bandits[horizon]
        if bandit.end.beyond(int(bandit.period)) > 0:
            bound = with_tail(bandit, {bound.penalty: bound}, as_key(self.work.key))[bound.penalty]
        return bound.value, bound.stderr, bound.regret_bound, bound.regret_stderr

    # ---- beside the table
    def _add_outcome(self, data: xr.Dataset) -> None:
        """The inner problems of the future that the study gives by hand."""
        bandit = self.work.bandits[self.study.periods]
        outcome = Outcome(**dict(self.study.outcome or {}))
        solved = [solve_inner(bandit, penalty, outcome) for penalty in self.work.penalties.values()]
        data["outcome_value"] = ("penalty", np.array([np.asarray(s.value).item() for s in solved]))
        pulls = np.array([np.asarray(s.pulls) for s in solved])
        data["outcome_pulls"] = (("penalty", "arm"), pulls)

    def _add_one_stream(self, data: xr.Dataset, penalties: list[str]) -> None:
        """Means and standard errors with one random stream, at the table's horizon."""
        for rows, kind, name in (
            (list(self.work.policies), "one-stream-policy", "regret"),
            (penalties, "one-stream-bound", "regret_bound"),
        ):
            dim = "policy" if name == "regret" else "penalty"
            for suffix in ("", "_stderr"):
                data[f"one_stream_{name}{suffix}"] = (dim, np.full(data.sizes[dim], np.nan))
            for row in rows:
                running = RunningMean()
                for piece in self._blocks(kind, row, self.study.periods, {}):
                    running.add(piece[name])
                for suffix, value in zip(("", "_stderr"), running.mean_error(), strict=True):
                    data[f"one_stream_{name}{suffix}"].loc[{dim: row}] = value


# ------------------------------------------------------------------ the Zarr folder


@contextlib.contextmanager
def _zarr_arrays(folder: pathlib.Path, arrays: dict[str, Any], chunk: int) -> Iterator[Any]:
    """Arrays on disk to write into; what nobody writes is not a number and takes no room."""
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    group = zarr.open_group(folder, mode="w", zarr_format=3)
    yield {
        name: group.create_array(
            name,
            shape=shape,
            chunks=(1, 1, chunk),
            dtype="float64",
            fill_value=np.nan,
            compressors=[ZstdCodec(level=3), Crc32cCodec()],  # damage is noticed when read
            dimension_names=dims,
            attributes={"long_name": meaning},
        )
        for name, (dims, shape, meaning) in arrays.items()
        if 0 not in shape
    }


def _writer(array: Any, i: int, j: int) -> Callable[[int, np.ndarray], None]:
    def put(start: int, values: np.ndarray) -> None:
        array[i, j, start : start + len(values)] = values

    return put


def _swap(new: pathlib.Path, folder: pathlib.Path) -> None:
    """A whole folder takes another's place."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _with_replications(
    data: xr.Dataset, folder: pathlib.Path, arrays: dict[str, Any]
) -> xr.Dataset:
    """The data set with its figures by replication: loaded where small, lazy where not."""
    size = sum(8 * int(np.prod(shape)) for _, shape, _ in arrays.values())
    lazy = open_zarr(folder, lazily=size > MOST_IN_MEMORY)
    for name, (dims, shape, meaning) in arrays.items():
        if name in lazy:
            data[name] = lazy[name].variable
        else:  # nothing to play, or nothing to bound
            data[name] = (dims, np.zeros(shape), {"long_name": meaning})
    return data if size > MOST_IN_MEMORY else data.load()


def open_zarr(folder: pathlib.Path, lazily: bool = True) -> xr.Dataset:
    """With Dask by chunks, so that sums over replications need little memory."""
    chunks: dict[str, int] | None = None
    if lazily and importlib.util.find_spec("dask") is not None:
        chunks = {}
    return xr.open_zarr(folder, chunks=chunks, consolidated=False)


def measured(cell: xr.Dataset, quantity: str) -> tuple[float, float]:
    """Mean and standard error of a quantity at one horizon."""
    from irsppl.plots import has_means

    if quantity == "regret" and has_means(cell):
        return cell["mean_regret"].item(), cell["mean_regret_stderr"].item()
    values = cell[quantity].values
    if values.ndim:
        return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    stderr = cell[f"{quantity}_stderr"].item() if f"{quantity}_stderr" in cell else 0.0
    return values.item(), stderr
