"""Running a study in small pieces that survive an interruption."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from irsppl._checks import as_count
from irsppl._progress import Progress
from irsppl.bounds import (
    CONTROLS,
    Bound,
    Sampler,
    _with_tail,
    fit_penalty,
    solve_inner,
    steadied_mean,
)
from irsppl.outcomes import Outcome
from irsppl.penalties import Penalty, find_penalty
from irsppl.simulation import chunks, draw_outcomes, simulate
from irsppl.studies.manifest import check_manifest, fingerprints, version
from irsppl.studies.slip import check_slip, one_stream_outcomes
from irsppl.studies.store import Store, check_writable
from irsppl.studies.study import Study

# Replications in one piece: seconds of work, so that an interruption loses little.
_BLOCK = 1000
# Paths played to learn how long one takes.
_TIMED_PATHS = 128

Identity = tuple[Any, ...]  # (kind, label, horizon[, start, stop]): names a piece of work
Arrays = dict[str, np.ndarray]


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
    block: int = _BLOCK,
    progress: bool | None = None,
    workers: int | None = None,
) -> StudyResult:
    """Run a study (or go on with one) and write its table, figure and data to `out/<name>/`.

    study: a `Study`, a name from `irsppl studies`, or the path of a Python file that defines
    `study = Study(...)`. Every finished piece of work is on disk at once: run again after an
    interruption, with more replications, with more policies or horizons, and only what is missing
    is computed. Replication s depends on (key, s) only, so the data do not tell whether there was
    an interruption. compare: also set the paper's figures beside ours. shared_stream: also show
    what a shared random stream for means and rewards would have given (a demonstration of a slip:
    see `irsppl.studies.slip`). block: replications in one piece.
    """
    from irsppl.studies import report
    from irsppl.studies.named import find_study

    study = find_study(study)
    replications = as_count(
        "replications", study.replications if replications is None else replications, minimum=2
    )
    key = as_count("key", key, minimum=0)
    block = as_count("block", block, minimum=2)
    if compare and study.paper is None:
        raise ValueError(f"study {study.name!r} has no printed figures to compare with")
    if shared_stream:
        check_slip(study.bandit())
    no_bound = _check_parts(study)
    folder = pathlib.Path(out) / study.name
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "manifest.json")
    check_manifest(folder / "manifest.json", study, key, block)
    for name, reason in no_bound.items():
        warnings.warn(f"{name} is left out of the bounds: {reason}", stacklevel=2)
    runner = _Runner(study, key, Store(folder / "chunks"), progress, workers)
    runner.run(replications, block, shared_stream)
    data = runner.dataset()
    try:
        report.write(study, data, folder, compare)
    except OSError as error:
        raise OSError(
            f"the table, figure and data could not be written to {folder} ({error}). Nothing is "
            f"lost: every piece of the work is in {folder / 'chunks'}; run it again to write them"
        ) from error
    return StudyResult(study, data, folder, runner.computed, runner.reused)


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
    """The pieces of a study: which there are, how each is made, what they add up to."""

    def __init__(
        self, study: Study, key: int, store: Store, progress: bool | None, workers: int | None
    ):
        self.study, self.key, self.store = study, key, store
        self.progress, self.workers = progress, workers
        self.horizons = study.all_horizons()
        self.policies = study.named_policies()
        self.no_bound = _check_parts(study)
        named = study.named_penalties()
        self.penalties = {name: p for name, p in named.items() if name not in self.no_bound}
        # Without the record of pulls if possible, so that simulations and bounds share programs.
        self.bandits = {t: study.bandit(t)._without_record() for t in self.horizons}
        self.prints = fingerprints(study, key)
        self.pieces: dict[Identity, Arrays] = {}
        self.all_spans: list[tuple[int, int]] = []
        self.slipped: tuple[Any, Outcome] | None = None
        self.computed = self.reused = 0
        self.makers: dict[str, Callable[..., Arrays]] = {
            "exact": self._make_exact,
            "time": self._make_time,
            "policy": self._make_policy,
            "bound": self._make_bound,
            "one-stream-policy": self._make_one_stream_policy,
            "one-stream-bound": self._make_one_stream_bound,
        }

    # ---- which
    def run(self, replications: int, block: int, shared_stream: bool) -> None:
        # The benchmark and the controls are needed exactly even where nobody asked for them.
        names = dict.fromkeys([*self.penalties, "ts", *CONTROLS])
        self._finish([("exact", name, t) for t in self.horizons for name in names], "exact bounds")
        starts = range(0, replications, block)
        self.all_spans = [(s, min(s + block, replications)) for s in starts]
        table = self.study.periods
        plan: list[Identity] = [("time", label, table) for label in self.policies]
        # Block by block through everything: each round then takes as long as the one before, which
        # makes the time left honest, and an interrupted run has some of everything.
        for span in self.all_spans:
            for t in (t for t in self.horizons if span in self._spans(t)):
                plan += [("policy", label, t, *span) for label in self.policies]
                plan += [("bound", name, t, *span) for name in self._sampled(t)]
            if shared_stream:
                plan += [("one-stream-policy", label, table, *span) for label in self.policies]
                plan += [("one-stream-bound", name, table, *span) for name in self._one_stream()]
        self._finish(plan, self.study.name)

    def _spans(self, horizon: int) -> list[tuple[int, int]]:
        """The blocks of replications played at a horizon: whole ones, so that all share them."""
        most = self.study.figure_replications
        if most is None or horizon == self.study.periods:
            return self.all_spans
        return [span for span in self.all_spans if span[0] < most]

    def _sampled(self, horizon: int) -> list[str]:
        """Penalties without an exact bound; the benchmark among them where it has none."""
        names = dict.fromkeys([*self.penalties, "ts"])
        return [name for name in names if self._exact(name, horizon) is None]

    def _exact(self, name: str, horizon: int) -> float | None:
        value = float(self.pieces["exact", name, horizon]["value"])
        return None if np.isnan(value) else value

    def _one_stream(self) -> list[str]:
        """Penalties whose inner value depends on the future, so that a slip can show in it."""
        return [name for name in self.penalties if name not in ("ts", "ideal", "lagrangian")]

    def _finish(self, plan: list[Identity], title: str) -> None:
        """Compute and save what is not on disk yet."""
        missing = []
        for identity in plan:
            arrays = self.store.load(self._on_disk(identity))
            if arrays is None:
                missing.append(identity)
            else:
                self.pieces[identity] = arrays
                self.reused += 1
        total, left = sum(map(_weight, plan)), sum(map(_weight, missing))
        with Progress(total, title, "pull", self.progress, initial=total - left) as told:
            for identity in missing:
                kind, label, horizon = identity[:3]
                told.doing(f"{label}, horizon {horizon}")
                self.pieces[identity] = self.makers[kind](*identity[1:])
                self.store.save(self._on_disk(identity), self.pieces[identity])
                self.computed += 1
                told.update(_weight(identity))

    def _on_disk(self, identity: Identity) -> Identity:
        """A piece's identity for the store: with all that its numbers depend on."""
        kind, label = identity[:2]
        rows = "policies" if kind.endswith(("policy", "time")) else "penalties"
        return (*identity, self.prints[rows][label])

    # ---- how
    def _make_exact(self, name: str, horizon: int) -> Arrays:
        value = self._penalty(name).exact(self.bandits[horizon])
        return {"value": np.asarray(np.nan if value is None else value, np.float64)}

    def _make_policy(
        self, label: str, horizon: int, start: int, stop: int, outcomes: Outcome | None = None
    ) -> Arrays:
        data = self._simulate(label, horizon, stop - start, start=start, outcomes=outcomes)
        pulls = data["pulls"].values.sum(axis=1)[0]
        return {
            "value": data["value"].values[0],
            "regret": data["regret"].values[0],
            "pulls": pulls,
        }

    def _make_time(self, label: str, horizon: int) -> Arrays:
        """Seconds that the decisions along one path take, on one thread."""
        start, stop = self.all_spans[0]
        # As many futures as a block draws at once: that program is compiled anyway.
        size = chunks(self.bandits[horizon], stop - start)[0][2]
        drawn = draw_outcomes(self.bandits[horizon], jax.random.key(self.key), 0, size)
        for paths in (_TIMED_PATHS, size):
            outcomes = jax.tree.map(lambda field, paths=paths: field[:paths], drawn)
            for _ in range(2):  # the first time compiles, and plans ahead
                begin = time.perf_counter()
                self._simulate(label, horizon, paths, outcomes=outcomes, workers=1)
                seconds = time.perf_counter() - begin
            if seconds > 0.2:  # long enough not to measure what a call costs in itself
                break
        return {"seconds": np.asarray(seconds / len(outcomes.means))}

    def _simulate(self, label: str, horizon: int, count: int, **options: Any) -> xr.Dataset:
        options = {"workers": self.workers, "progress": False, "steadied": False} | options
        policy = {label: self.policies[label]}
        return simulate(self.bandits[horizon], policy, self.key, count, **options)

    def _make_bound(self, name: str, horizon: int, start: int, stop: int) -> Arrays:
        key = jax.random.key(self.key)
        return self._sampler(name, horizon).values(key, stop - start, start)

    def _penalty(self, name: str) -> Penalty:
        return self.penalties.get(name) or find_penalty(name)

    def _sampler(self, name: str, horizon: int) -> Sampler:
        """What samples and estimates a bound that is not known exactly."""
        penalty = self._penalty(name)
        exact = {c: self._exact(c, horizon) for c in CONTROLS if not penalty.plain}
        controls = {c: value for c, value in exact.items() if value is not None}
        benchmark = self._exact("ts", horizon)
        bandit = self.bandits[horizon]
        penalty = fit_penalty(bandit, penalty, jax.random.key(self.key), controls)
        return Sampler(bandit, [penalty], controls, benchmark, False, self.workers)

    def _make_one_stream_policy(self, label: str, horizon: int, start: int, stop: int) -> Arrays:
        return self._make_policy(label, horizon, start, stop, self._slip(horizon, start, stop))

    def _make_one_stream_bound(self, name: str, horizon: int, start: int, stop: int) -> Arrays:
        outcomes = self._slip(horizon, start, stop)
        best, value = (
            self._penalty(n).values(self.bandits[horizon], outcomes) for n in ("ts", name)
        )
        return {"regret_bound": best - value}

    def _slip(self, horizon: int, start: int, stop: int) -> Outcome:
        wanted = (horizon, start, stop)
        if self.slipped is None or self.slipped[0] != wanted:  # all policies of a block share them
            belief = self.bandits[horizon].belief
            drawn = one_stream_outcomes(belief, horizon, self.key, start, stop - start)
            self.slipped = wanted, drawn
        return self.slipped[1]

    # ---- what they add up to
    def _joined(self, kind: str, label: str, horizon: int, name: str) -> np.ndarray:
        return np.concatenate(
            [self.pieces[kind, label, horizon, *span][name] for span in self._spans(horizon)]
        )

    def _estimate(self, name: str, horizon: int) -> tuple[float, float, float, float]:
        """Bound, its standard error, regret bound, its standard error."""
        exact, benchmark = self._exact(name, horizon), self._exact("ts", horizon)
        if exact is not None and benchmark is not None:
            return self._told_bound(Bound(name, exact, 0.0, benchmark - exact, 0.0), horizon)
        source = name if exact is None else "ts"
        parts = [self.pieces["bound", source, horizon, *span] for span in self._spans(horizon)]
        values = {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}
        known = {} if exact is None else {name: exact}
        return self._told_bound(
            self._sampler(source, horizon).estimates(values, known)[name], horizon
        )

    def _told_bound(self, bound: Bound, horizon: int) -> tuple[float, float, float, float]:
        bandit = self.bandits[horizon]
        if bandit.tail > 0:
            key = jax.random.key(self.key)
            bound = _with_tail(bandit, {bound.penalty: bound}, key)[bound.penalty]
        return bound.value, bound.stderr, bound.regret_bound, bound.regret_stderr

    def dataset(self) -> xr.Dataset:
        """Everything measured, labelled."""
        policies, penalties, horizons = list(self.policies), list(self.penalties), self.horizons
        count = self.all_spans[-1][1]
        data = xr.Dataset(
            coords={
                "policy": ("policy", np.array(policies, dtype=str)),
                "penalty": ("penalty", np.array(penalties, dtype=str)),
                "horizon": horizons,
                "arm": list(self.bandits[self.study.periods].arm_labels),
            },
            attrs={
                "study": self.study.name,
                "title": self.study.title,
                "table_horizon": self.study.periods,
                "replications": count,
                "key": self.key,
                "irsppl": version(),
                "no_bound": "\n".join(f"{name}: {why}" for name, why in self.no_bound.items()),
            },
        )

        def table(rows: list[str], shape: tuple[int, ...], cell: Callable[..., Any]) -> np.ndarray:
            filled = np.full((len(rows), len(horizons), *shape), np.nan)
            for i, row in enumerate(rows):
                for j, horizon in enumerate(horizons):
                    filled[i, j] = cell(row, horizon)
            return filled

        def padded(kind: str, row: str, horizon: int, name: str) -> np.ndarray:
            joined = self._joined(kind, row, horizon, name)
            return np.pad(joined, (0, count - len(joined)), constant_values=np.nan)

        for name, told in (
            ("regret", "value of the best arm throughout, less value"),
            ("value", "sum of the true means of the pulled arms"),
        ):
            cells = table(policies, (count,), lambda p, t, n=name: padded("policy", p, t, n))
            data[name] = (("policy", "horizon", "replication"), cells, {"long_name": told})

        def mean_pulls(policy: str, horizon: int) -> np.ndarray:
            spans = self._spans(horizon)
            parts = [self.pieces["policy", policy, horizon, *span]["pulls"] for span in spans]
            return np.sum(parts, axis=0) / spans[-1][1]

        cells = table(policies, (data.sizes["arm"],), mean_pulls)
        data["pulls"] = (("policy", "horizon", "arm"), cells, {"long_name": "mean pulls"})
        cells = table(penalties, (4,), self._estimate)
        for k, (name, told) in enumerate(
            (
                ("bound", "no policy earns more on average"),
                ("bound_stderr", "standard error, 0 where exact"),
                ("regret_bound", "no policy has less regret on average"),
                ("regret_bound_stderr", "standard error, 0 where exact"),
            )
        ):
            data[name] = (("penalty", "horizon"), cells[..., k], {"long_name": told})
        cells = table(
            penalties,
            (count,),
            lambda p, t: np.nan if self._exact(p, t) is not None else padded("bound", p, t, p),
        )
        told = "inner value of each future; not a number where the bound is exact"
        data["inner_value"] = (("penalty", "horizon", "replication"), cells, {"long_name": told})
        seconds = [float(self.pieces["time", p, self.study.periods]["seconds"]) for p in policies]
        data["seconds_per_path"] = ("policy", np.array(seconds), {"units": "s"})
        if self.study.outcome is not None:
            self._add_outcome(data)
        if any(identity[0].startswith("one-stream") for identity in self.pieces):
            self._add_one_stream(data)
        return data

    def _add_outcome(self, data: xr.Dataset) -> None:
        """The inner problems of the future that the study gives by hand."""
        bandit = self.bandits[self.study.periods]
        outcome = Outcome(**dict(self.study.outcome or {}))
        solved = [solve_inner(bandit, penalty, outcome) for penalty in self.penalties.values()]
        data["outcome_value"] = ("penalty", np.array([np.asarray(s.value).item() for s in solved]))
        data["outcome_pulls"] = (
            ("penalty", "arm"),
            np.array([np.asarray(s.pulls) for s in solved]),
        )

    def _add_one_stream(self, data: xr.Dataset) -> None:
        """Means and standard errors under the slip, at the table's horizon."""
        for rows, kind, name in (
            (list(self.policies), "one-stream-policy", "regret"),
            (self._one_stream(), "one-stream-bound", "regret_bound"),
        ):
            dim = "policy" if name == "regret" else "penalty"
            for row in rows:
                samples = self._joined(kind, row, self.study.periods, name)
                for suffix, value in zip(("", "_stderr"), steadied_mean(samples, []), strict=True):
                    full = f"one_stream_{name}{suffix}"
                    if full not in data:
                        data[full] = (dim, np.full(data.sizes[dim], np.nan))
                    data[full].loc[{dim: row}] = value


def _weight(identity: Identity) -> int:
    """A guess of the work in a piece, for the progress bar: periods played."""
    _, _, horizon, *span = identity
    return horizon * (span[1] - span[0] if span else 1)
