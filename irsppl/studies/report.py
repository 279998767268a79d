"""What a study shows: its table, the comparison with print, its figure, its files."""

from __future__ import annotations

import filecmp
import importlib.resources
import io
import json
import math
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from irsppl._text import text_table
from irsppl.studies.gather import MOST_IN_MEMORY, measured
from irsppl.studies.page import page
from irsppl.studies.store import write_atomically
from irsppl.studies.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The bound of `ideal` is the value of `opt`, and so on: one row for both.
_SAME_ROW = {"ideal": ("opt",), "lagrangian": ("lagr-rt", "lagr-ot")}


# ------------------------------------------------------------------ the table


def study_table(data: xr.Dataset) -> pd.DataFrame:
    """The paper's columns, at the table's horizon; one row per policy or bound.

    role: "policy", "bound", or "policy, bound" where one name is both; regret and its standard
    error, improvement over Thompson sampling (a share of its regret);
    regret bound and its standard error, whether that is exact, not sampled, and as a share of the
    least regret measured; seconds per path.
    """
    at = data.sel(horizon=data.attrs["table_horizon"])
    columns: dict[str, dict[str, Any]] = {}

    def put(row: str, **cells: Any) -> None:
        columns.setdefault(row, {}).update(cells)

    roles: dict[str, list[str]] = {}
    regrets: dict[str, float] = {}
    for policy in at["policy"].values.tolist():
        cell = at.sel(policy=policy)
        regrets[policy], error = measured(cell, "regret")
        roles[policy] = ["policy"]
        seconds = float(at["seconds_per_path"].sel(policy=policy))
        put(policy, regret=regrets[policy], regret_stderr=error, seconds_per_path=seconds)
    for policy, regret in regrets.items():
        if regrets.get("ts", 0.0) > 0:
            put(policy, improvement=1 - regret / regrets["ts"])
    least = min(regrets.values(), default=math.nan)
    for penalty in at["penalty"].values.tolist():
        cell = at.sel(penalty=penalty)
        rows = [row for row in _SAME_ROW.get(penalty, ()) if row in regrets] or [penalty]
        for row in rows:
            roles.setdefault(row, []).append("bound")
            put(
                row,
                regret_bound=float(cell["regret_bound"]),
                regret_bound_stderr=float(cell["regret_bound_stderr"]),
                bound_exact=_is_exact(cell),
            )
            if least > 0:
                put(row, bound_improvement=float(cell["regret_bound"]) / least)
            if "outcome_value" in cell:
                put(row, bound=float(cell["bound"]), outcome_value=float(cell["outcome_value"]))
    for row, role in roles.items():
        put(row, role=", ".join(role))
    wanted = [
        *("role", "regret", "regret_stderr", "improvement"),
        *("regret_bound", "regret_bound_stderr", "bound_exact", "bound_improvement"),
        *("bound", "outcome_value", "seconds_per_path"),
    ]
    used = [name for name in wanted if any(name in row for row in columns.values())]
    frame = pd.DataFrame.from_dict(columns, orient="index").reindex(columns=used)
    return frame.rename_axis("name")


def _is_exact(cell: xr.Dataset) -> bool:
    """Of a bound: samples that happen to be alike have a standard error of 0 too."""
    inner = cell.get("inner_value")
    known = inner is None or bool(np.isnan(inner.isel(replication=0)))
    return known and float(cell["regret_bound_stderr"]) == 0


def table_text(table: pd.DataFrame, title: str = "") -> str:
    """A table of `study_table` as Markdown that also reads well on a terminal."""
    return (f"{title}\n\n" if title else "") + text_table(*table_cells(table))


def table_cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of `study_table` as text."""
    headers = [
        "",
        "role",
        "regret (s.e.)",
        "improvement",
        "regret bound (s.e.)",
        "bound / least regret",
    ]
    inner = "outcome_value" in table
    headers += ["bound", "inner value"] if inner else []
    headers += ["time per path"]
    # The best in bold, as printed tables have it; a bound above is better, a regret below.
    best = table["regret"].idxmin() if "regret" in table else None
    tight = table["regret_bound"].idxmax() if "regret_bound" in table else None
    rows = []
    for name, row in table.iterrows():
        regret = estimate_text(row.get("regret"), row.get("regret_stderr"), False)
        bound = row.get("regret_bound"), row.get("regret_bound_stderr")
        tightest = estimate_text(*bound, row.get("bound_exact") is True)
        cells = [
            str(name),
            str(row["role"]),
            f"**{regret}**" if name == best else regret,
            _percent(row.get("improvement")),
            f"**{tightest}**" if name == tight else tightest,
            # A bound below zero bounds nothing: no share to speak of.
            _percent(share if (share := row.get("bound_improvement", -1)) >= 0 else None),
        ]
        if inner:
            cells += [_number(row.get("bound")), _number(row.get("outcome_value"))]
        rows.append([*cells, _seconds(row.get("seconds_per_path"))])
    return headers, rows


def table_notes(table: pd.DataFrame, data: xr.Dataset) -> str:
    """What a reader of the table must know beside it."""
    notes = []
    if "bound_improvement" in table and table["bound_improvement"].max() > 0:
        best = table["regret"].idxmin()
        notes.append(
            f"bound / least regret: how much of the least regret here ({best}) no policy can avoid"
        )
        if table["bound_improvement"].max() > 1:
            notes[-1] += (
                "; above 100 % because that regret, and the bound where it is not exact, are "
                "estimates, off by chance (see their s.e.): the policy is as good as optimal"
            )
    notes += [f"no bound here: {line}" for line in data.attrs.get("no_bound", "").splitlines()]
    return "".join(f"\n{note}.\n" for note in notes)


def _missing(value: Any) -> bool:
    return value is None or math.isnan(value)


def estimate_text(value: Any, stderr: Any, exact: bool | None = None) -> str:
    """exact: whether it was computed, not sampled; if not said, where the error is 0."""
    if _missing(value):
        return "-"
    if _missing(stderr):
        return f"{value:.3f}"
    exact = stderr == 0 if exact is None else exact
    return f"{value:.3f} ({'exact' if exact else f'{stderr:.3f}'})"


def _number(value: Any) -> str:
    return "-" if _missing(value) else f"{value:.4f}"


def _percent(value: Any) -> str:
    return "-" if _missing(value) else f"{value:.1%}"


def _seconds(value: Any) -> str:
    if _missing(value):
        return "-"
    scale, unit = next(
        (s, u) for s, u in ((1, "s"), (1e-3, "ms"), (1e-6, "us")) if value >= s or s < 1e-5
    )
    return f"{value / scale:.3g} {unit}"


# ------------------------------------------------------------------ beside the printed figures


def paper_figures(name: str) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """{quantity: {policy or penalty: {"paper": [value, s.e.], "independent": [value, s.e.]}}}.

    "paper" as printed (s.e. 0: not simulated; none: not stated); "independent" computed apart from
    both the paper and this package.
    """
    text = importlib.resources.files("irsppl.studies").joinpath("paper_tables.json").read_text()
    return json.loads(text)[name]


def comparison(study: Study, data: xr.Dataset) -> pd.DataFrame:
    """Measured and known figures side by side, with z-scores in combined standard errors.

    A printed figure adds the rounding of its last digit to the error. z is missing where the print
    does not say how uncertain it is. one_stream: what the mistake shown by
    `irsppl.studies.one_stream` gives; its z is that of the printed figure.
    """
    if study.paper is None:
        raise ValueError(f"study {study.name!r} has no printed figures to compare with")
    at = data.sel(horizon=data.attrs["table_horizon"])
    rows = []
    for quantity, figures in paper_figures(study.paper).items():
        if quantity == "seconds_per_path" or quantity not in at:
            continue
        dim = "policy" if quantity == "regret" else "penalty"
        for name, known in figures.items():
            if name not in at[dim].values:
                continue
            cell = at.sel({dim: name})
            figure = measured(cell, quantity)
            row: dict[str, Any] = {"quantity": quantity, "name": name}
            row |= dict(zip(("measured", "measured_stderr"), figure, strict=True))
            for source in ("paper", "independent"):
                value, stderr = known.get(source, (None, None))
                row |= {source: value, f"{source}_stderr": stderr}
                row[f"{source}_z"] = _z(figure, value, stderr)
            if f"one_stream_{quantity}" in cell:
                mistaken = measured(cell, f"one_stream_{quantity}")
                row |= dict(zip(("one_stream", "one_stream_stderr"), mistaken, strict=True))
                row["one_stream_z"] = _z(mistaken, *known.get("paper", (None, None)))
            rows.append(row)
    return pd.DataFrame(rows)


def _z(measured: tuple[float, float], value: float | None, stderr: float | None) -> float:
    """How many combined standard errors the measured figure lies above the known one."""
    if value is None or stderr is None or math.isnan(measured[0]):
        return math.nan
    digits = max(2, len(repr(float(value)).partition(".")[2]))  # tables are printed with two
    rounding = 10.0**-digits / math.sqrt(12)
    error = math.hypot(measured[1], stderr, rounding)
    difference = measured[0] - value
    # Two exact figures agree or they do not; float32 inner values are good to about 1e-6.
    if error < 1e-6 * max(1.0, abs(value)):
        return 0.0 if abs(difference) < 1e-5 * max(1.0, abs(value)) else math.inf
    return difference / error


def comparison_text(table: pd.DataFrame, title: str = "") -> str:
    headers = ["", "measured", "paper", "z", "independent", "z"]
    mistaken = "one_stream" in table
    headers += ["one stream (mistaken)", "z to paper"] if mistaken else []
    rows = []
    for _, row in table.iterrows():
        cells = [f"{row['quantity'].replace('_', ' ')}, {row['name']}"]
        sources = ["measured", "paper", "independent", *(["one_stream"] if mistaken else [])]
        for source in sources:
            cells.append(estimate_text(row[source], row[f"{source}_stderr"]))
            if source != "measured":
                z = row[f"{source}_z"]
                cells.append("-" if _missing(z) else f"{z:+.1f}")
        rows.append(cells)
    return (f"{title}\n\n" if title else "") + text_table(headers, rows)


def path_times(study: Study, data: xr.Dataset) -> pd.DataFrame:
    """Seconds that the decisions along one path take, ours beside the printed ones."""
    if study.paper is None:
        raise ValueError(f"study {study.name!r} has no printed figures to compare with")
    printed = paper_figures(study.paper).get("seconds_per_path", {})
    rows = []
    for name, known in printed.items():
        if name not in data["policy"].values:
            continue
        measured, paper = data["seconds_per_path"].sel(policy=name).item(), known["paper"][0]
        if paper is not None:
            rows.append({"policy": name, "measured": measured, "paper": paper})
    table = pd.DataFrame(rows, columns=["policy", "measured", "paper"])
    table["ratio"] = table["paper"] / table["measured"]
    return table


def path_times_text(table: pd.DataFrame) -> str:
    rows = [
        [r["policy"], _seconds(r["measured"]), _seconds(r["paper"]), f"{r['ratio']:,.0f}x"]
        for _, r in table.iterrows()
    ]
    return text_table(["time per path", "measured", "paper", "paper / measured"], rows)


# ------------------------------------------------------------------ files


def write(study: Study, data: xr.Dataset, folder: pathlib.Path, compare: bool) -> None:
    """report.html, table.md, table.csv, figure.png, figure.svg, data.nc, and compare.*.

    Pictures take the most time: those that are newer than the data they show stay as they are.
    """
    caption = f"{study.title}, {study.horizon_text()}, {data.attrs['replications']} replications"
    table = study_table(data)
    if len(table):
        _write_text(folder / "table.md", table_text(table, caption) + table_notes(table, data))
        _write_text(folder / "table.csv", table.to_csv())
    # Of an earlier run too, for it would stand beside data that it does not belong to.
    if compare or (study.paper is not None and (folder / "compare.md").exists()):
        beside = comparison(study, data)
        text = comparison_text(beside, caption)
        times = path_times(study, data)
        if len(times):
            text += "\n" + path_times_text(times)
        _write_text(folder / "compare.md", text)
        _write_text(folder / "compare.csv", beside.to_csv(index=False))
    large = [name for name in data.data_vars if "replication" in data[name].dims]
    if sum(data[name].nbytes for name in large) > MOST_IN_MEMORY:
        write_netcdf(data.drop_vars(large), folder / "data.nc")  # those are in data.zarr alone
    else:
        write_netcdf(data, folder / "data.nc")
    wanted = ["figure.png", "figure.svg", *(["report.html"] if len(table) else [])]
    if _newer([folder / name for name in wanted], folder / "data.nc"):
        return
    figures = figure_files(data)
    for kind, content in figures.items():
        write_atomically(folder / f"figure.{kind}", content)
    if len(table):
        cells, notes = table_cells(table), table_notes(table, data)
        drawn = figures["png"], narrow_figure(data)
        _write_text(folder / "report.html", page(study, data, caption, *cells, notes, *drawn))


def _newer(files: list[pathlib.Path], than: pathlib.Path) -> bool:
    made = than.stat().st_mtime_ns
    return all(file.is_file() and file.stat().st_mtime_ns > made for file in files)


def write_netcdf(data: xr.Dataset, path: pathlib.Path) -> None:
    """Compressed, so that single replications need not be left out. The same data leave a file as
    it is, and as old."""
    numeric = [
        n for n in data.data_vars if np.issubdtype(data[n].dtype, np.number) and data[n].ndim
    ]
    encoding = {name: {"zlib": True, "complevel": 4} for name in numeric}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        data.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        if not (path.is_file() and filecmp.cmp(temporary, path, shallow=False)):
            temporary.replace(path)
    finally:  # half a file on a full disk would be in the way of what comes next
        temporary.unlink(missing_ok=True)


def figure_files(data: xr.Dataset) -> dict[str, bytes]:
    """The figure of a study, by file type."""
    import matplotlib
    from matplotlib.figure import Figure

    from irsppl.plots import legend_height, plot_horizons

    height = legend_height(data.sizes["policy"] + data.sizes["penalty"])
    figure = Figure(figsize=(8, height), layout="constrained")
    plot_horizons(data, ax=figure.subplots())
    # The same picture gives the same file: no date, no random identifiers.
    with matplotlib.rc_context({"svg.hashsalt": "irsppl"}):
        return {
            "png": _drawn(figure, "png", dpi=150),
            "svg": _drawn(figure, "svg", metadata={"Date": None}),
        }


def narrow_figure(data: xr.Dataset) -> bytes:
    """The same for the width of a phone, as PNG: letters as large as text, names below."""
    from matplotlib.figure import Figure

    from irsppl.plots import plot_horizons

    entries = data.sizes["policy"] + data.sizes["penalty"]
    figure = Figure(figsize=(3.7, 3.6 + 0.2 * entries), layout="constrained")
    ax = plot_horizons(data, ax=figure.subplots())
    ax.set_title("")  # the page says it
    lines, names = ax.get_legend_handles_labels()
    if names and (beside := ax.get_legend()):
        beside.remove()
        figure.legend(lines, names, loc="outside lower left", frameon=False, fontsize=9)
    return _drawn(figure, "png", dpi=200)


def _drawn(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, bbox_inches="tight", **options)
    return buffer.getvalue()


def _write_text(path: pathlib.Path, text: str) -> None:
    write_atomically(path, text.encode())
