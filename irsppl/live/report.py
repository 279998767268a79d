"""A report of an experiment: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import time
from typing import Any

import numpy as np

# Okabe and Ito's colours, which the colour-blind can tell apart; dashes tell repeats apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("", "6 3", "2 3")
_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 220, 48, 24
_POINTS = 200
_SHOWN = 20

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: currentColor }
.key span { white-space: nowrap; margin-right: 1rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dd { margin: 0 }
"""


def page(
    status: dict[str, Any], log: Any, advice: Any | None, script: str = "", nonce: str = ""
) -> str:
    """The HTML of a report from `status()`, `log()` and `advise()` (None: there is none).

    script: for a page that is served, which renews itself; a report in a file has none.
    """
    labels = [row["label"] for row in status["arms"]]
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    parts = [
        f"<h1>Experiment {_text(status['where'])}</h1>".replace(" </h1>", "</h1>"),
        f"<p>As of <time>{now}</time>. {_text(_sentence(status, advice))}</p>",
        "<h2>Where it is</h2>",
        _facts(status),
        "<h2>What is believed of the arms</h2>",
        _arms(status, advice),
    ]
    if len(log):
        parts += [
            "<h2>Shares of the decisions</h2>",
            _shares(log, labels),
            "<h2>Reward so far</h2>",
            _rewards(log, status),
            "<h2>Last decisions</h2>",
            _decisions(log),
        ]
    body = "\n".join(parts)
    rules = "default-src 'none'; style-src 'unsafe-inline'"
    guard = f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
    tail = f'<script nonce="{nonce}">{script}</script>\n' if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{'' if script else guard}"
        f"<title>Experiment</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        f"</main>\n{tail}</body>\n</html>\n"
    )


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _sentence(status: dict[str, Any], advice: Any | None) -> str:
    if advice is not None:
        return advice.text
    return "" if status["remaining"] > 0 else "Nothing remains to be played."


def _facts(status: dict[str, Any]) -> str:
    rows = [
        ("policy", status["policy"]),
        ("period", f"{status['period']} of {status['horizon']}"),
        ("remaining", status["remaining"]),
        ("pending", status["pending"]),
        ("expired", status["expired"]),
        ("reward so far", f"{status['reward']:.6g}"),
        ("seed, floor", f"{status['seed']}, {status['floor']:g}"),
    ]
    if status["budget"] is not None:
        rows.append(("left to spend", f"{status['budget']:g}"))
    return "<dl>" + "".join(f"<dt>{_text(a)}</dt><dd>{_text(b)}</dd>" for a, b in rows) + "</dl>"


def _table(caption: str, head: list[str], rows: list[list[Any]]) -> str:
    top = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    lines = ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _arms(status: dict[str, Any], advice: Any | None) -> str:
    known = {} if advice is None else {arm.label: arm for arm in advice.arms}
    rows = []
    for row in status["arms"]:
        arm = known.get(row["label"])
        spread = (row["mean"] - 2 * row["sd"], row["mean"] + 2 * row["sd"])
        low, high = spread if arm is None else arm.interval
        name = row["label"] if row["open"] else f"{row['label']} (retired)"
        best = "" if arm is None else f"{arm.best:.1%}"
        between = f"{low:.4g} to {high:.4g}"
        rows.append([name, row["pulls"], row["pending"], f"{row['mean']:.4g}", between, best])
    head = ["arm", "pulls", "pending", "mean", "95 % interval", "best with probability"]
    return _table("Arms", head, rows)


def _decisions(log: Any) -> str:
    rows = [
        [
            row.decision,
            row.label,
            f"{row.propensity:.3g}",
            "awaited" if np.isnan(row.reward) else f"{row.reward:g}",
        ]
        for row in log.tail(_SHOWN).iloc[::-1].itertuples()
    ]
    return _table("Last decisions", ["decision", "arm", "probability", "reward"], rows)


# ---- pictures


def _line(number: int) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return f'stroke="{colour}" stroke-width="2" fill="none" stroke-dasharray="{dash}"'


def _chart(told: str, x: np.ndarray, lines: dict[str, np.ndarray], low: float, high: float) -> str:
    """Lines over the periods `x`, with a key below."""
    wide, tall = _WIDTH - _LEFT - 8, _HEIGHT - _BELOW - 8
    reach = max(float(x[-1] - x[0]), 1.0)
    rise = high - low if high > low else 1.0

    def point(a: float, b: float) -> str:
        return f"{_LEFT + wide * (a - x[0]) / reach:.1f},{8 + tall * (1 - (b - low) / rise):.1f}"

    drawn = [
        f'<polyline points="{" ".join(map(point, x, y))}" {_line(i)}/>'
        for i, y in enumerate(lines.values())
    ]
    ticks = "".join(
        f'<text x="{_LEFT - 6}" y="{12 + tall * (1 - part):.0f}" text-anchor="end">'
        f"{low + part * rise:.3g}</text>"
        for part in (0.0, 0.5, 1.0)
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">period {x[0]:.0f}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 4}" text-anchor="end">{x[-1]:.0f}</text>'
    )
    frame = (
        f'<path d="M{_LEFT},8V{8 + tall}H{_WIDTH - 8}" fill="none" stroke="currentColor" '
        'stroke-opacity=".5"/>'
    )
    key = "".join(
        f'<span><svg style="width:2.2rem;height:.7rem" viewBox="0 0 35 10" aria-hidden="true">'
        f'<path d="M0,5H35" {_line(i)}/></svg> {_text(name)}</span>'
        for i, name in enumerate(lines)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(told)}">'
        f'{frame}{ticks}{ends}{"".join(drawn)}</svg><p class="key">{key}</p>'
    )


def _some(count: int) -> np.ndarray:
    """Periods at which lines are drawn."""
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))


def _shares(log: Any, labels: list[str]) -> str:
    """Each arm's share of the last tenth of the decisions at each moment."""
    arms = log["arm"].to_numpy()
    window = max(10, len(arms) // 10)
    at = _some(len(arms))
    lines = {}
    for arm, label in enumerate(labels):
        counts = np.concatenate([[0], np.cumsum(arms == arm)])
        begin = np.maximum(at + 1 - window, 0)
        lines[label] = (counts[at + 1] - counts[begin]) / (at + 1 - begin)
    told = f"Share of each arm in the last {window} decisions"
    return _chart(told, at, lines, 0.0, 1.0) + f"<p>{_text(told)}.</p>"


def _rewards(log: Any, status: dict[str, Any]) -> str:
    """Rewards in the order of the decisions, beside the arm that is believed best now."""
    known = log[log["reward"].notna()]
    if not len(known):
        return "<p>No reward is known yet.</p>"
    best = max((row for row in status["arms"] if row["open"]), key=lambda row: row["mean"])
    earned = np.cumsum(known["reward"].to_numpy())
    line = best["mean"] * np.arange(1, len(earned) + 1)
    at = _some(len(earned))
    lines = {"earned": earned[at], f"{best['label']} throughout, as believed now": line[at]}
    low = min(0.0, *(float(y.min()) for y in lines.values()))
    high = max(float(y.max()) for y in lines.values())
    told = "Sum of the known rewards"
    return _chart(told, known["period"].to_numpy()[at], lines, low, high)
