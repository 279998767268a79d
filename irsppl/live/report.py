"""An experiment as a page: a report in one file that stands alone, or a page that is served."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irsppl._html import document, intervals, lines, live, section, table, text

_POINTS = 200
SHOWN = 10  # last decisions


def page(
    status: dict[str, Any],
    log: Any,
    arms: Sequence[Any],
    advice: Any | None,
    reasons: Mapping[int, str],
    script: str = "",
    nonce: str = "",
) -> str:
    """HTML from `status()`, `log()`, `believed()`, `advise()` (None: there is none) and why.

    script: for a page that is served, which renews itself; a report in a file has none.
    """
    labels = [row["label"] for row in status["arms"]]
    name = f"Experiment {pathlib.PurePath(status['where']).name}".strip()
    head = f"<h1>{text(name)}</h1>" + live("time", f"As of <time>{clock()}</time>.", "p")
    renews = '<p id="link" role="status">This page renews itself every few seconds.</p>'
    lead = live("advice", text(_sentence(status, advice)), "p", 'class="lead"')
    parts = [
        section("Is it worth going on?", lead),
        section("Where it is", live("facts", _facts(status), "dl")),
        section("What is believed of the arms", *_arms(status, arms)),
    ]
    if advice is not None and len(advice.history) > 0:
        parts[0] = parts[0].replace("</section>", _falling(advice) + "</section>")
    if len(log):
        parts += [
            section("Shares of the decisions", _shares(log, labels)),
            section("Reward so far", _rewards(log, status)),
            section("Last decisions, and why", _decisions(log, reasons)),
        ]
    return document(name, head, "\n".join(parts), renews if script else "", script, nonce)


def clock() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


def _sentence(status: dict[str, Any], advice: Any | None) -> str:
    if status["remaining"] <= 0:
        return "Nothing remains to be played."
    return "Advice is being computed." if advice is None else advice.text


def _facts(status: dict[str, Any]) -> str:
    rows = [
        ("period", f"{status['period']} of {status['horizon']}"),
        ("remaining", status["remaining"]),
        ("pending", status["pending"]),
        ("expired", status["expired"]),
        ("reward so far", f"{status['reward']:.6g}"),
        ("policy", status["policy"]),
        ("seed", status["seed"]),
        ("floor", f"{status['floor']:g}"),
    ]
    if status["budget"] is not None:
        rows.insert(3, ("left to spend", f"{status['budget']:g}"))
    return "".join(f"<div><dt>{text(a)}</dt><dd>{text(b)}</dd></div>" for a, b in rows)


def _arms(status: dict[str, Any], arms: Sequence[Any]) -> tuple[str, str]:
    rows, bars = [], []
    for row, arm in zip(status["arms"], arms, strict=True):
        low, high = arm.interval
        name = row["label"] if row["open"] else f"{row['label']} (retired)"
        best = f"{arm.best:.1%}" if row["open"] else ""
        between = f"{low:.4g} to {high:.4g}"
        rows.append([name, best, f"{row['mean']:.4g}", between, row["pulls"], row["pending"]])
        bars.append((name, low, row["mean"], high))
    head = ["arm", "chance to be best", "mean", "95 % interval", "pulls", "pending"]
    caption = "Mean reward of each arm: what is believed, and the 95 % interval"
    return intervals("intervals", caption, bars), table("arms", "Arms", head, rows)


def _decisions(log: Any, reasons: Mapping[int, str]) -> str:
    """A list: sentences do not fit into a table on a phone."""
    items = []
    for row in log.tail(SHOWN).iloc[::-1].itertuples():
        earned = "reward awaited" if np.isnan(row.reward) else f"reward {row.reward:g}"
        items.append(
            f"<li><strong>{text(row.label)}</strong>, {earned}"
            f'<br>{text(reasons.get(row.period, ""))} <span class="soft">Decision '
            f"{text(row.decision)}.</span></li>"
        )
    return live("decisions", "".join(items), "ol", 'class="cards"')


def _falling(advice: Any) -> str:
    """What stopping would have cost at most, as it was stated from time to time."""
    past = [(row["period"], row["loss"]) for row in advice.history]
    past = [pair for pair in past if pair[0] < advice.period] + [(advice.period, advice.loss)]
    if len(past) < 2:
        return ""
    x, y = np.array(past, float).T
    caption = "What stopping would have cost at most, on average"
    return lines("falling", caption, x, {"cost of stopping": y}, 0.0, float(y.max()))


def _some(count: int) -> np.ndarray:
    """Periods at which lines are drawn."""
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))


def _shares(log: Any, labels: list[str]) -> str:
    """Each arm's share of the last tenth of the decisions at each moment."""
    arms = log["arm"].to_numpy()
    window = max(10, len(arms) // 10)
    at = _some(len(arms))
    series = {}
    for arm, label in enumerate(labels):
        counts = np.concatenate([[0], np.cumsum(arms == arm)])
        begin = np.maximum(at + 1 - window, 0)
        series[label] = (counts[at + 1] - counts[begin]) / (at + 1 - begin)
    caption = f"Share of each arm in the last {window} decisions"
    return lines("shares", caption, at, series, 0.0, 1.0)


def _rewards(log: Any, status: dict[str, Any]) -> str:
    """Rewards in the order of the decisions, beside the arm that is believed best now."""
    known = log[log["reward"].notna()]
    if not len(known):
        return live("rewards", "No reward is known yet.", "p")
    best = max((row for row in status["arms"] if row["open"]), key=lambda row: row["mean"])
    earned = np.cumsum(known["reward"].to_numpy())
    line = best["mean"] * np.arange(1, len(earned) + 1)
    at = _some(len(earned))
    series = {"earned": earned[at], f"{best['label']} throughout, as believed now": line[at]}
    low = min(0.0, *(float(y.min()) for y in series.values()))
    high = max(float(y.max()) for y in series.values())
    caption = "Sum of the known rewards, and what the best arm would have given"
    return lines("rewards", caption, known["period"].to_numpy()[at], series, low, high)
