"""What a folder of results holds, and what each piece in it was made of."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from irsppl.penalties import PENALTIES
from irsppl.studies.identity import described, digest
from irsppl.studies.store import write_atomically
from irsppl.studies.study import Study

# 1: pieces named by label, horizon and replications alone; 2: also by all that they depend on;
# 3: futures of natural families are drawn by a kernel. A piece holds replications by number, so
# this changes whenever the same number means another future.
FORMAT = 3


def version() -> str:
    import irsppl  # not above: the package's front door imports from left to right

    return irsppl.__version__


def fingerprints(study: Study, key: int) -> dict[str, dict[str, str]]:
    """{"policies" or "penalties": {label: digest}}; of all penalties, for bounds need others too.

    A piece belongs to a study if the digest in its name agrees: the same arms, constraints, seed,
    precision and version, and the same policy or penalty with the same options. The horizon and the
    replications are in a piece's name as they are.
    """
    definition = study.definition()
    shared = {
        "irsppl": version(),
        "format": FORMAT,
        # Of a larger one bounds once were those of its low 32 bits.
        "key": key if key < 2**32 else str(key),
        "precision": str(study.belief().predictive_mean().dtype),
        "arms": definition["arms"],
        "options": definition["options"],
        "law": None if isinstance(definition["horizon"], int) else definition["horizon"],
    }
    every = {name: described(penalty) for name, penalty in PENALTIES.items()}
    rows = {"policies": definition["policies"], "penalties": every | definition["penalties"]}
    return {
        part: {row: digest([shared, row, of]) for row, of in each.items()}
        for part, each in rows.items()
    }


def check_manifest(path: pathlib.Path, study: Study, key: int, block: int) -> None:
    """Refuse to mix results that do not belong together; write down what these are."""
    now: dict[str, Any] = {
        "irsppl": version(),
        "format": FORMAT,
        "key": key,
        "block": block,
        "precision": str(study.belief().predictive_mean().dtype),
        "study": study.definition(),
    }
    keep = f"Nothing in {path.parent} was changed: give another folder with --out (out=), or move "
    if path.exists():
        try:
            then = json.loads(path.read_text())
            then_study = dict(then["study"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path} is damaged. The results beside it are not: each piece tells by itself "
                "which study and seed it belongs to. To go on with them, move this one file out of "
                "the folder and run the same study with the same seed again"
            ) from None
        made = {"irsppl": then.get("irsppl"), "format": then.get("format", 1)}
        if made != {"irsppl": version(), "format": FORMAT}:
            raise ValueError(
                f"{path.parent} holds results made by another version: irsppl was "
                f"{made['irsppl']!r} and is now {version()!r} (format of the pieces "
                f"{made['format']}, now {FORMAT}), and numbers of two versions are not mixed. "
                f"{keep}that folder away and run again"
            )
        differences = list(_differences(then, now))
        if differences:
            raise ValueError(
                f"{path.parent} holds results of another run: {'; '.join(differences)}. "
                f"{keep}that folder away"
            )
        for part in ("policies", "penalties"):  # what was done before stays on record
            now["study"][part] = then_study[part] | now["study"][part]
    write_atomically(path, (json.dumps(now, indent=1) + "\n").encode())


def _differences(then: Any, now: Any, where: str = "") -> Iterable[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        # A policy or penalty that only one of the two has changes no other.
        free = where in ("study.policies", "study.penalties")
        for name in sorted(then.keys() & now.keys() if free else then.keys() | now.keys()):
            inside = f"{where}.{name}" if where else name
            yield from _differences(then.get(name), now.get(name), inside)
    elif then != now:
        yield f"{where} was {then!r} and is now {now!r}"
