"""Values as lines of Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from irsppl.engine.transcribe.operations import CODE, Node
from irsppl.engine.transcribe.program import Program


class Text:
    """Lines of code for some nodes, with what they read from elsewhere by name.

    Finite numbers are not part of the text but a list, `constants`: models that differ in numbers
    only share what was compiled.
    """

    def __init__(self, names: dict[Node, str]):
        self.names = dict(names)
        self.constants: list[float] = []

    def value(self, x: Any) -> str:
        if isinstance(x, Node):
            return self.names[x]
        if isinstance(x, float):
            if math.isinf(x) or math.isnan(x):
                return {"inf": "INF", "-inf": "-INF"}.get(str(x), "NAN")
            self.constants.append(x)  # equal ones too: others' may differ
            return f"c{len(self.constants) - 1}"
        return str(x)

    def lines(self, program: Program, wanted: Sequence[Any], level: int) -> list[str]:
        """Assignments for the wanted values and what they need that goes by `level` at most."""
        needed: set[Node] = set()
        left = [x for x in wanted if isinstance(x, Node)]
        while left:
            node = left.pop()
            if node not in needed and node not in self.names:
                needed.add(node)
                left += [x for x in node.args if isinstance(x, Node)]
        out = []
        for node in program.nodes:
            if node in needed and not node.level & ~level:
                code = CODE[node.op].format(*(self.value(x) for x in node.args))
                self.names[node] = f"v{len(self.names)}"
                out.append(f"{self.names[node]} = {code}")
        return out
