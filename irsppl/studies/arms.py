"""Arms written as text: `beta(3,1)`, `normal(0,1,noise=1)x10`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from irsppl import beliefs
from irsppl._checks import one_of

# Family: (the names of its parameters in the text, how columns of them make a belief).
FAMILIES: dict[str, tuple[tuple[str, ...], Callable[..., beliefs.Belief]]] = {
    "beta": (("alpha", "beta"), beliefs.BetaBernoulli),
    "normal": (("mean", "sd", "noise"), beliefs.NormalNormal),
    "poisson": (("shape", "rate"), beliefs.GammaPoisson),
    "exponential": (("shape", "rate"), beliefs.GammaExponential),
    "nig": (("mean", "precision", "shape", "rate"), beliefs.NormalInverseGamma),
}

_FORM = re.compile(r"\s*(?P<family>\w+)\s*\((?P<inside>[^()]*)\)\s*(?:[xX*]\s*(?P<times>\d+))?\s*")


def parse_arms(arms: str | Sequence[str]) -> beliefs.Belief:
    """The belief that texts such as `"beta(3,1)"` or `"normal(0,1,noise=1)x10"` describe.

    A text is a family and its parameters, by position or by name; `x10` means ten such arms.
    Families: beta(alpha,beta), normal(mean,sd,noise), poisson(shape,rate), exponential(shape,rate),
    nig(mean,precision,shape,rate). All arms must be of one family.
    """
    family, rows = check_arms(arms)
    return FAMILIES[family][1](*map(list, zip(*rows, strict=True)))


def check_arms(arms: Any) -> tuple[str, list[list[float]]]:
    """The family and each arm's parameters, as written; refused where they cannot be read."""
    if not isinstance(arms, str | Iterable):
        raise ValueError(
            "arms must be texts such as 'beta(3,1)' or 'normal(0,1,noise=1)x10', or a belief, got "
            f"{arms!r}"
        )
    texts = [arms] if isinstance(arms, str) else list(arms)
    if not texts:
        raise ValueError("arms must name at least one arm, such as 'beta(1,1)'")
    families: list[str] = []
    rows: list[list[float]] = []
    for text in texts:
        family, parameters, times = _parse(text)
        families.append(family)
        rows.extend([parameters] * times)
    if len(set(families)) > 1:
        raise ValueError(
            f"arms must all be of one family, got {', '.join(dict.fromkeys(families))}; arms of "
            "different families can be written as NumPyro functions in a model file"
        )
    return families[0], rows


def _parse(text: Any) -> tuple[str, list[float], int]:
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(
            f"arms must look like 'beta(3,1)' or 'normal(0,1,noise=1)x10', got {text!r}"
        )
    family = one_of("family of arms", found["family"].lower(), FAMILIES)
    names = FAMILIES[family][0]
    wanted = f"{family}({','.join(names)})"
    given: dict[str, float] = {}
    inside = found["inside"].strip()
    for position, part in enumerate(inside.split(",") if inside else []):
        name, equals, value = part.rpartition("=")
        name = name.strip()
        if not equals:
            if position >= len(names):
                raise ValueError(f"arms {text!r} has too many parameters: write {wanted}")
            name = names[position]
        if name not in names or name in given:
            problem = "gives twice" if name in given else "does not know"
            raise ValueError(f"arms {text!r} {problem} {name!r}: write {wanted}")
        try:
            given[name] = float(value)
        except ValueError:
            raise ValueError(f"arms {text!r}: {name} must be a number, got {value!r}") from None
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(f"arms {text!r} lacks {', '.join(missing)}: write {wanted}")
    times = 1 if found["times"] is None else int(found["times"])
    if times < 1:
        raise ValueError(f"arms {text!r} must be at least one arm")
    return family, [given[name] for name in names], times
