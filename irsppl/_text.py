"""Tables for terminals and Markdown pages, and numbers for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


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


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {str(name): without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
