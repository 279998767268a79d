"""Parts of self-contained HTML pages: a document, tables, and lines and intervals as SVG.

Nothing is loaded from elsewhere. Every picture has its numbers beside it in a table, colours can be
told apart by the colour-blind and come with dashes, and all of it works without a mouse.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# After Okabe and Ito, changed to stand out from the ground by 3:1 at least, each in its own way.
LIGHT = ("#2a7fc9", "#d55e00", "#00704f", "#b94f8a", "#4d4000", "#000000")
DARK = ("#79c6f2", "#f08030", "#009e73", "#cc79a7", "#fff27a", "#ffffff")
# As many as do not share a divisor with the colours keep pairs apart longest.
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2 1 2")
# Few units across, so that text is still read where a picture is as wide as a phone.
_WIDTH, _HEIGHT, _LEFT, _BELOW = 440, 220, 44, 36
_TABLE_ROWS = 12
_LABEL = 44


def _palette(colours: Sequence[str]) -> str:
    return "".join(f"--c{i}:{colour};" for i, colour in enumerate(colours))


STYLE = f"""
:root {{ color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #595959;
  --rule: #767676; --card: #f3f5f7; {_palette(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #14171a; --ink: #ececec; --soft: #b4b4b4;
  --rule: #8a8a8a; --card: #1f2428; {_palette(DARK)} }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0; background: var(--paper);
  color: var(--ink) }}
header, main, footer {{ max-width: 46rem; margin: 0 auto; padding: 0 1rem }}
.wide :is(header, main, footer) {{ max-width: 70rem }} .wide :is(p, pre) {{ max-width: 46rem }}
.wide tbody th {{ white-space: nowrap }}
header {{ padding-top: 1rem }} footer {{ padding-bottom: 2rem; color: var(--soft) }}
h1 {{ font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere }}
h2 {{ font-size: 1.2rem; margin: 2.25rem 0 .5rem; line-height: 1.3 }}
p {{ margin: .5rem 0; overflow-wrap: anywhere }} .soft {{ color: var(--soft) }}
.lead {{ font-size: 1.1rem; background: var(--card); border-left: 4px solid var(--c0);
  padding: .75rem 1rem }}
.scroll {{ overflow-x: auto }} table {{ border-collapse: collapse; width: 100% }}
caption {{ text-align: left; color: var(--soft); padding-bottom: .25rem }}
th, td {{ text-align: right; padding: .3rem .5rem; border-bottom: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; vertical-align: top }}
th:first-child {{ text-align: left; overflow-wrap: anywhere }}
tbody th {{ font-weight: 600; min-width: 6rem }} td {{ white-space: nowrap }}
.cards {{ list-style: none; padding: 0 }}
.cards li {{ background: var(--card); padding: .5rem .75rem; margin: .5rem 0;
  overflow-wrap: anywhere }}
figure {{ margin: .5rem 0 }} figure svg.chart {{ width: 100%; max-width: 36rem; height: auto }}
figcaption {{ color: var(--soft) }} svg text {{ font-size: 13px; fill: var(--ink) }}
.key {{ margin: .25rem 0; padding: 0; list-style: none }}
.key li {{ display: inline-block; margin-right: 1rem; overflow-wrap: anywhere }}
.key svg {{ width: 2.2rem; height: .7rem }} summary {{ cursor: pointer; padding: .35rem 0 }}
dl {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .5rem }}
.long {{ grid-column: 1 / -1 }}
dl div {{ background: var(--card); padding: .5rem .75rem }}
dt {{ color: var(--soft); font-size: .9rem }}
dd {{ margin: 0; font-size: 1.15rem; overflow-wrap: anywhere }}
:focus-visible {{ outline: 3px solid var(--c0); outline-offset: 2px }}
pre {{ overflow-x: auto; background: var(--card); padding: .75rem }}
img {{ max-width: 100%; height: auto; background: #fff }}
@media print {{ details > * {{ display: block }} }}
"""


def text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def document(
    title: str,
    head: str,
    body: str,
    foot: str = "",
    script: str = "",
    nonce: str = "",
    wide: bool = False,
) -> str:
    """A whole page. Without a script it forbids itself to load or run anything.

    wide: tables have the whole screen, text keeps a width that can be read.
    """
    rules = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    guard = f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
    tail = f'<script nonce="{nonce}">{script}</script>\n' if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{'' if script else guard}"
        '<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"{'<body class=wide>' if wide else '<body>'}\n"
        f"<header>\n{head}\n</header>\n<main>\n{body}\n</main>\n"
        f"{f'<footer>{foot}</footer>' if foot else ''}\n{tail}</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    name = re.sub(r"\W+", "-", title.lower())
    inner = "\n".join(parts)
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{text(title)}</h2>\n{inner}</section>'
    )


def live(name: str, inner: str, tag: str = "div", more: str = "") -> str:
    """A part that a page which renews itself puts in place by its id."""
    return f'<{tag} id="live-{name}" data-live{" " * bool(more)}{more}>{inner}</{tag}>'


def table(name: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table that scrolls by itself where it is too wide."""
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    lines = []
    for row in rows:
        cells = [f'<th scope="row">{text(row[0])}</th>']
        cells += [f"<td>{text(cell)}</td>" for cell in row[1:]]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    inner = (
        f"<table><caption>{text(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
    more = f'class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"'
    return live(name, inner, more=more)


def _style(number: int) -> str:
    dash = DASHES[number % len(DASHES)]
    return (
        f'style="stroke:var(--c{number % len(LIGHT)})" stroke-width="2.5" fill="none" '
        f'stroke-dasharray="{dash}"'
    )


def figure(name: str, caption: str, picture: str, numbers: str) -> str:
    """A picture with its title, and its numbers for those who cannot see it."""
    return (
        f"<figure>{live(name, picture)}<figcaption>{text(caption)}</figcaption></figure>"
        f"<details><summary>In numbers</summary>{numbers}</details>"
    )


def lines(
    name: str,
    caption: str,
    x: np.ndarray,
    series: Mapping[str, np.ndarray],
    low: float,
    high: float,
) -> str:
    """Lines over periods `x`, with a key and a table."""
    wide, tall = _WIDTH - _LEFT - 10, _HEIGHT - _BELOW - 8
    reach = max(float(x[-1] - x[0]), 1.0)
    rise = high - low if high > low else 1.0

    def point(a: float, b: float) -> str:
        return f"{_LEFT + wide * (a - x[0]) / reach:.1f},{8 + tall * (1 - (b - low) / rise):.1f}"

    drawn = [
        f'<polyline points="{" ".join(map(point, x, y))}" {_style(i)}/>'
        for i, y in enumerate(series.values())
    ]
    ticks = "".join(
        f'<text x="{_LEFT - 6}" y="{12 + tall * (1 - part):.0f}" text-anchor="end">'
        f"{low + part * rise:.3g}</text>"
        for part in (0.0, 0.5, 1.0)
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 14}">{x[0]:.0f}</text>'
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 14}" text-anchor="end">{x[-1]:.0f}</text>'
        f'<text x="{_LEFT + wide / 2}" y="{_HEIGHT - 14}" text-anchor="middle">period</text>'
    )
    frame = (
        f'<path d="M{_LEFT},8V{8 + tall}H{_WIDTH - 10}" fill="none" style="stroke:var(--rule)"/>'
    )
    items = [
        f'<li><svg viewBox="0 0 35 10" aria-hidden="true"><path d="M0,5H35" {_style(i)}/></svg> '
        f"{text(label)}</li>"
        for i, label in enumerate(series)
    ]
    key = f'<ul class="key">{"".join(items)}</ul>' if len(items) > 1 else ""
    picture = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{text(caption)}; the numbers follow in a table">'
        f"{frame}{ticks}{ends}{''.join(drawn)}</svg>{key}"
    )
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _TABLE_ROWS)).astype(int))
    rows = [[f"{x[i]:.0f}", *(f"{y[i]:.4g}" for y in series.values())] for i in some]
    numbers = table(f"{name}-table", caption, ["period", *series], rows)
    return figure(name, caption, picture, numbers)


def intervals(name: str, caption: str, rows: Sequence[tuple[str, float, float, float]]) -> str:
    """(label, low, mean, high) of each row as a bar with a dot; its table is the caller's."""
    low = min(row[1] for row in rows)
    high = max(row[3] for row in rows)
    reach = high - low if high > low else 1.0
    step, wide = 40, _WIDTH - 20

    def at(value: float) -> float:
        return 10 + wide * (value - low) / reach

    drawn = []
    for i, (label, left, mean, right) in enumerate(rows):
        top = i * step
        shown = label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
        drawn.append(
            f'<text x="10" y="{top + 14}">{text(shown)}</text>'
            f'<path d="M{at(left):.1f},{top + 26}H{at(right):.1f}" {_style(i)}/>'
            f'<circle cx="{at(mean):.1f}" cy="{top + 26}" r="5" '
            f'style="fill:var(--c{i % len(LIGHT)})"/>'
        )
    tall = len(rows) * step
    ends = (
        f'<path d="M10,{tall + 2}H{10 + wide}" style="stroke:var(--rule)"/>'
        f'<text x="10" y="{tall + 18}">{low:.3g}</text>'
        f'<text x="{10 + wide}" y="{tall + 18}" text-anchor="end">{high:.3g}</text>'
    )
    picture = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {tall + 26}" role="img" '
        f'aria-label="{text(caption)}; the numbers follow in a table">{"".join(drawn)}{ends}</svg>'
    )
    return f"<figure>{live(name, picture)}<figcaption>{text(caption)}</figcaption></figure>"
