"""What an experiment takes from outside: texts and numbers that every database can hold."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from irsppl.live.errors import InputError


def check_text(name: str, value: Any) -> None:
    """What every database can hold as text, and a person can read."""
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise InputError(
            f"{name} must be a text of 1 to 200 characters, none of them unprintable, got {value!r}"
        )


def as_number(name: str, value: Any) -> float:
    good = isinstance(value, numbers.Real | np.generic) or (
        hasattr(value, "ndim") and np.ndim(value) == 0
    )
    try:
        number = float(value) if good else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be one finite number, got {value!r}")
    return number
