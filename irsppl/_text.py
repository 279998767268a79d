"""Tables for terminals and Markdown pages."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns: words to the left, numbers to the right."""
    numeric = [all(not row[i][:1].isalpha() for row in rows) for i in range(len(headers))]
    widths = [max(3, *(len(row[i]) for row in (headers, *rows))) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "| " + " | ".join(padded) + " |"

    ends = [":" if right else "-" for right in numeric]
    rule = "|" + "|".join("-" * (w + 1) + e for w, e in zip(widths, ends, strict=True)) + "|"
    return "\n".join([line(headers), rule, *map(line, rows)]) + "\n"
