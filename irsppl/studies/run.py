"""Running a study in small pieces that survive an interruption."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import xarray as xr

from irsppl._checks import MOST_FUTURES, as_count, check_run
from irsppl._cluster import check_client, on_cluster
from irsppl._progress import Progress
from irsppl.bounds import CONTROLS
from irsppl.studies.gather import Gather, open_zarr
from irsppl.studies.manifest import check_manifest, fingerprints
from irsppl.studies.one_stream import check_one_stream
from irsppl.studies.store import Store, alone, check_writable
from irsppl.studies.study import Study
from irsppl.studies.work import Arrays, Identity, Work

# Replications in one piece: seconds of work, so that an interruption loses little. Runs of more
# than a thousand such pieces have longer ones.
_BLOCK, _MOST_BLOCKS = 1000, 1000


@dataclasses.dataclass(frozen=True)
class StudyResult:
    """data: everything measured; folder: where the files are; computed, reused: pieces of work."""

    study: Study
    data: xr.Dataset
    folder: pathlib.Path
    computed: int
    reused: int


def run_study(
    study: Any,
    replications: int | None = None,
    out: str | pathlib.Path = "results",
    key: int = 0,
    *,
    compare: bool = False,
    shared_stream: bool = False,
    block: int | None = None,
    progress: bool | None = None,
    workers: int | None = None,
    client: Any = None,
) -> StudyResult:
    """Run a study (or go on with one) and write its table, figure and data to `out/<name>/`.

    study: a `Study`, a name from `irsppl studies`, or the path of a Python file that defines
    `study = Study(...)`. Every finished piece of work is on disk at once: run again after an
    interruption, with more replications, with more policies or horizons, and only what is missing
    is computed. Replication s depends on (key, s) only, so the data do not tell whether there was
    an interruption. compare: also set the paper's figures beside ours. shared_stream: also show
    what a shared random stream for means and rewards would have given (a mistake, demonstrated: see
    `irsppl.studies.one_stream`). block: replications in one piece (default: as in the folder, or
    1000, more where there would be more than a thousand pieces). client: a `distributed.Client`:
    the pieces are made on a Dask cluster and written here as they come; the data are the same.
    """
    from irsppl.studies import report
    from irsppl.studies.named import find_study

    study = find_study(study)
    wanted = study.replications if replications is None else replications
    replications = as_count("replications", wanted, minimum=2, maximum=MOST_FUTURES)
    key = as_count("key", key, minimum=0, maximum=2**63 - 1)  # files keep it in 64 bits
    block = None if block is None else as_count("block", block, minimum=2)
    check_run(progress, workers)
    check_client(client)
    if compare and study.paper is None:
        raise ValueError(f"study {study.name!r} has no printed figures to compare with")
    if shared_stream:
        check_one_stream(study.bandit())
    no_bound = _check_parts(study)
    folder = pathlib.Path(out) / study.name
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "manifest.json")
    for name, reason in no_bound.items():
        warnings.warn(f"{name} is left out of the bounds: {reason}", stacklevel=2)
    with alone(folder):
        if block is None:
            block = _block_of(folder / "manifest.json", replications)
        check_manifest(folder / "manifest.json", study, key, block)
        runner = _Runner(study, key, Store(folder / "chunks"), progress, workers, client, no_bound)
        runner.run(replications, block, shared_stream)
        gather = Gather(study, runner.work, runner.load, runner.spans, block)
        one_stream = runner.one_stream() if shared_stream else []
        try:
            data = gather.dataset(folder / "data.zarr", no_bound, one_stream)
            report.write(study, data, folder, compare)
        except OSError as error:
            raise OSError(
                f"the table, figure and data could not be written to {folder} ({error}). Nothing "
                f"is lost: every piece of the work is in {folder / 'chunks'}; run it again to "
                "write them"
            ) from error
    return StudyResult(study, data, folder, runner.computed, runner.reused)


def open_study(folder: str | pathlib.Path) -> xr.Dataset:
    """The data of a finished study, from its folder, read when needed.

    With Dask installed (`pip install 'irsppl[dask]'`) by chunks, so that
    `data["regret"].mean("replication")` takes little memory however many replications there are.
    """
    path = pathlib.Path(folder) / "data.zarr"
    if not path.is_dir():
        raise ValueError(f"folder must be that of a finished study; there is no {path}")
    return open_zarr(path)


def _block_of(manifest: pathlib.Path, replications: int) -> int:
    """As in the folder, if there is one already; else seconds of work, and not too many pieces."""
    try:
        return as_count("block", json.loads(manifest.read_text())["block"], minimum=2)
    except (OSError, ValueError, KeyError, TypeError):  # none, or damaged: told where it is read
        block = _BLOCK
        while replications > block * _MOST_BLOCKS:
            block *= 10
        return block


def _check_parts(study: Study) -> dict[str, str]:
    """Refuse what cannot be played, before any work; {penalty that gives no bound here: why}."""
    no_bound: dict[str, str] = {}
    for horizon in study.all_horizons():
        bandit = study.bandit(horizon)
        for policy in study.named_policies().values():
            policy.verify(bandit)
        for name, penalty in study.named_penalties().items():
            penalty.verify(bandit)
            try:
                penalty.verify(bandit, as_bound=True)
            except ValueError as reason:
                no_bound[name] = str(reason)
    return no_bound


# ------------------------------------------------------------------ the work


class _Runner:
    """The pieces of a study: which there are, which are missing, where they are made."""

    def __init__(
        self,
        study: Study,
        key: int,
        store: Store,
        progress: bool | None,
        workers: int | None,
        client: Any = None,
        no_bound: Collection[str] = (),
    ):
        self.study, self.store, self.progress = study, store, progress
        self.workers, self.client = workers, client
        self.horizons = study.all_horizons()
        named = study.named_penalties()
        penalties = {name: p for name, p in named.items() if name not in no_bound}
        # Without the record of pulls if possible, so that simulations and bounds share programs.
        bandits = {t: study.bandit(t).without_record() for t in self.horizons}
        self.work = Work(key, bandits, study.named_policies(), penalties)
        self.prints = fingerprints(study, key)
        self.all_spans: list[tuple[int, int]] = []
        self.computed = self.reused = 0

    # ---- which
    def run(self, replications: int, block: int, shared_stream: bool) -> None:
        # The benchmark and the controls are needed exactly even where nobody asked for them.
        names = dict.fromkeys([*self.work.penalties, "ts", *CONTROLS])
        exact: list[Identity] = [("exact", name, t) for t in self.horizons for name in names]
        self._finish(exact, "exact bounds")
        for _, name, horizon in exact:
            value = float(self.load("exact", name, horizon)["value"])
            self.work.exact[name, horizon] = None if np.isnan(value) else value
        starts = range(0, replications, block)
        self.all_spans = [(s, min(s + block, replications)) for s in starts]
        self.work.first = self.all_spans[0][1]
        table, policies = self.study.periods, self.work.policies
        plan: list[Identity] = [("time", label, table) for label in policies]
        # Block by block through everything: each round then takes as long as the one before, which
        # makes the time left honest, and an interrupted run has some of everything.
        for span in self.all_spans:
            for t in (t for t in self.horizons if span[0] < self._most(t)):
                plan += [("policy", label, t, *span) for label in policies]
                plan += [("bound", name, t, *span) for name in self._sampled(t)]
            if shared_stream:
                plan += [("one-stream-policy", label, table, *span) for label in policies]
                plan += [("one-stream-bound", name, table, *span) for name in self.one_stream()]
        self._finish(plan, self.study.name)

    def _most(self, horizon: int) -> int:
        """Replications that are played at a horizon at most, but for the end of a block."""
        most = self.study.figure_replications
        every = self.all_spans[-1][1]
        return every if most is None or horizon == self.study.periods else most

    def spans(self, horizon: int) -> list[tuple[int, int]]:
        """The blocks of replications played at a horizon: whole ones, so that all share them."""
        return [span for span in self.all_spans if span[0] < self._most(horizon)]

    def _sampled(self, horizon: int) -> list[str]:
        """Penalties without an exact bound; the benchmark among them where it has none."""
        names = dict.fromkeys([*self.work.penalties, "ts"])
        return [name for name in names if self.work.exact[name, horizon] is None]

    def one_stream(self) -> list[str]:
        """Penalties whose inner value depends on the future, so that one stream can show in it."""
        return [name for name, penalty in self.work.penalties.items() if penalty.reads_rewards]

    # ---- made where
    def _finish(self, plan: list[Identity], title: str) -> None:
        """Compute and save what is not on disk yet."""
        missing = [i for i in plan if self.store.load(self._on_disk(i)) is None]
        self.reused += len(plan) - len(missing)
        total, left = sum(map(_weight, plan)), sum(map(_weight, missing))
        with Progress(total, title, "pull", self.progress, initial=total - left) as bar:
            for identity, arrays in self._made(missing, bar):
                self.store.save(self._on_disk(identity), arrays)
                self.computed += 1
                bar.update(_weight(identity))

    def _made(self, missing: list[Identity], bar: Progress) -> Iterator[tuple[Identity, Arrays]]:
        if self.client is None:
            for identity in missing:
                bar.doing(_in_words(identity))
                yield identity, self.work(identity, self.workers)
            return
        self.work.settle(missing)
        for identity, arrays in on_cluster(self.client, self.work, missing, _key):
            bar.doing(_in_words(identity))
            yield identity, arrays

    def load(self, *identity: Any) -> Arrays:
        """A finished piece."""
        arrays = self.store.load(self._on_disk(identity))
        if arrays is None:
            raise OSError(
                f"{self.store.path(self._on_disk(identity))} was finished and is now missing or "
                "damaged; run it again to compute that piece"
            )
        return arrays

    def _on_disk(self, identity: Identity) -> Identity:
        """A piece's identity for the store: with all that its numbers depend on."""
        kind, label = identity[:2]
        rows = "policies" if kind.endswith(("policy", "time")) else "penalties"
        return (*identity, self.prints[rows][label])


def _in_words(identity: Identity) -> str:
    return f"{identity[1]}, horizon {identity[2]}"


def _key(identity: Identity) -> str:
    return "-".join(map(str, identity))


def _weight(identity: Identity) -> int:
    """A guess of the work in a piece, for the progress bar: periods played."""
    _, _, horizon, *span = identity
    return horizon * (span[1] - span[0] if span else _BLOCK)
