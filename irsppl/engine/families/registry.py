"""Which beliefs have a part of the engine: each file of this folder says it of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Length and number of the futures of an arm that a rule asks for (0: none) -> the part, in the
# belief's state.
Maker = Callable[[int, int], Any]
# (belief, what a rule asks of it) -> its maker, or None where the part does not answer that.
FindMaker = Callable[[Any, frozenset[str]], Maker | None]
MAKERS: dict[type, FindMaker] = {}


def makes(*beliefs: type) -> Callable[[FindMaker], FindMaker]:
    """Decorates what finds the maker of beliefs of these classes; subclasses are not served."""

    def remember(find: FindMaker) -> FindMaker:
        MAKERS.update(dict.fromkeys(beliefs, find))
        return find

    return remember
