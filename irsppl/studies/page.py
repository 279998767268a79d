"""A study's report.html: what was asked, the table, the figure, certificates, how to repeat it."""

from __future__ import annotations

import base64
import dataclasses
import math
import numbers
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpyro.distributions import Distribution

from irsppl._html import document, section, text
from irsppl._html import table as html_table
from irsppl.beliefs import Belief, Conjugate
from irsppl.certificates import FEWEST
from irsppl.studies.gather import measured
from irsppl.studies.named import STUDIES
from irsppl.studies.study import Study

_PACKAGES = ("irsppl", "jax", "numpyro", "numba", "numpy", "xarray")
_MOST_SHOWN = 12


def page(
    study: Study,
    data: xr.Dataset,
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: str,
    figure: bytes,
    narrow: bytes,
) -> str:
    """headers, rows, notes: those of the study's table; figure: a PNG; narrow: one for phones."""
    shown = [[cell.replace("**", "") for cell in row] for row in rows]
    heads = [head or "name" for head in headers]
    parts = [
        section("What was asked", _asked(study, data)),
        section(
            "The table",
            html_table("table", caption, heads, shown),
            "".join(f"<p>{text(line)}</p>" for line in notes.splitlines() if line),
        ),
        section(
            "The figure",
            f'<figure><picture><source media="(max-width: 40rem)" srcset="{_inline(narrow)}">'
            f'<img src="{_inline(figure)}" alt="Regret against the horizon, one line for each '
            'policy and each bound; the numbers are in table.csv and data.nc"></picture></figure>',
            "<p>Lines with markers are policies: lower is better. Dashed lines are bounds: no "
            "policy has less regret on average. Where the two nearly meet, little is left to gain. "
            "Bands are two standard errors.</p>",
        ),
    ]
    certified = certificates(data)
    if len(certified):
        cells = [
            [name, f"{row['share']:.2%}", f"{row['surely']:.2%}"]
            for name, row in certified.iterrows()
        ]
        parts.append(
            section(
                "Certificates",
                html_table(
                    "certificates",
                    f"Share of the optimum, by the bound {certified.attrs['penalty']}",
                    ["policy", "earns at least (estimate)", "with 97.5 % confidence"],
                    cells,
                ),
                "<p>That bound is the least of those above, each with two standard errors more. "
                "Where they are sampled, the least of several estimates is a little too low by "
                "chance; <code>irsppl.certify</code> chooses on other futures than it estimates "
                "with.</p>",
            )
        )
    parts.append(section("How to repeat it", _repeat(study, data)))
    return document(
        study.title,
        f"<h1>{text(study.title)}</h1><p>{text(caption)}</p>",
        "\n".join(parts),
        wide=True,
    )


def _inline(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def certificates(data: xr.Dataset) -> pd.DataFrame:
    """Each policy's share of the tightest bound at the table's horizon, and its lower limit.

    The value of a policy is W^TS - regret, and W^TS = bound + regret bound. Nothing from fewer
    replications than `certify` asks for: the limit rests on their standard errors.
    """
    at = data.sel(horizon=data.attrs["table_horizon"])
    if "bound" not in at or not at.sizes.get("penalty") or not at.sizes.get("policy"):
        return pd.DataFrame()
    if data.attrs["replications"] < FEWEST:
        return pd.DataFrame()
    known = at["bound"].dropna("penalty")
    if not known.size or float(known.min()) <= 0:
        return pd.DataFrame()
    # Not the least estimate whatever its error: that may well lie below what policies earn.
    surely = known + 2 * at["bound_stderr"].sel(penalty=known["penalty"])
    penalty = str(known["penalty"].values[int(np.argmin(surely.values))])
    cell = at.sel(penalty=penalty)
    upper, error = float(cell["bound"]), float(cell["regret_bound_stderr"])
    rows = {}
    for policy in at["policy"].values.tolist():
        regret, stderr = measured(at.sel(policy=policy), "regret")
        gap = regret - float(cell["regret_bound"])
        # What the gap is divided by is uncertain too, and more so than the gap under constraints.
        spread = math.hypot(stderr, error, gap / upper * float(cell["bound_stderr"]))
        share = 1 - gap / upper
        rows[policy] = {"share": share, "surely": min(1.0, share - 1.96 * spread / upper)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.attrs["penalty"] = penalty
    return table


def _asked(study: Study, data: xr.Dataset) -> str:
    constraints = {name: value for name, value in study.options.items() if name != "labels"}
    long = {
        "arms": _arms(study),
        "policies": ", ".join(study.named_policies()),
        "bounds": ", ".join(study.named_penalties()),
    }
    short = {
        "horizon": study.horizon_text().removeprefix("horizon "),
        "constraints": "; ".join(f"{n} {_plain(v)}" for n, v in constraints.items()) or "none",
        "replications": f"{data.attrs['replications']:,}",
    }

    items = [
        f"<div{' class=long' if name in long else ''}><dt>{text(name)}</dt>"
        f"<dd>{text(value or 'none')}</dd></div>"
        for name, value in (long | short).items()
    ]
    return f"<dl>{''.join(items)}</dl>"


def _arms(study: Study) -> str:
    """The arms in words: as their author wrote them, or what a belief says of itself."""
    if isinstance(study.arms, Belief):
        arms = _belief(study.arms)
    else:
        arms = study.arms if isinstance(study.arms, str) else ", ".join(study.arms)
    labels = study.options.get("labels")
    return f"{arms} ({_plain(labels)})" if labels is not None else arms


def _belief(belief: Belief) -> str:
    if not isinstance(belief, Conjugate):
        return repr(belief)
    fields = {field.name: getattr(belief, field.name) for field in dataclasses.fields(belief)}
    given = [f"{name} {_plain(np.asarray(value))}" for name, value in fields.items()]
    return f"{type(belief).__name__} of {belief.num_arms} arms: {' | '.join(given)}"


def _plain(value: Any) -> str:
    """Numbers, lists, arrays and distributions without brackets; of many entries the first few."""
    if isinstance(value, Distribution):
        inside = "; ".join(f"{name} {_plain(given)}" for name, given in value.get_args().items())
        return f"{type(value).__name__}({inside})"
    if np.ndim(value) == 0:
        return f"{float(value):g}" if isinstance(value, numbers.Real) else str(value)
    cells = [_plain(cell) for cell in list(value)[:_MOST_SHOWN]]
    more = ["..."] if len(value) > _MOST_SHOWN else []
    return ("; " if np.ndim(value) > 1 else ", ").join(cells + more)


def _repeat(study: Study, data: xr.Dataset) -> str:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    own = study.name not in STUDIES  # known by its file alone
    seed = f" --seed {data.attrs['key']}" if data.attrs["key"] else ""
    command = f"irsppl study {study.name}{'.py' if own else ''}"
    command += f" --replications {data.attrs['replications']}{seed}"
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    return (
        f"<pre>{text(command)}</pre><p>{'(the file that defines the study) ' if own else ''}"
        "or <code>irsppl.studies.run_study</code> with the same "
        "study. The seed and all that the numbers depend on are in manifest.json beside this "
        "file.</p>"
        f"<p>Made with {text(versions)}.</p>"
    )
