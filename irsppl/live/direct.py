"""Asking and telling over HTTP without a framework round them, which would cost more than they do.

What is well formed is done here; everything else goes on to the application, which finds the words
for what is wrong with it.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from irsppl.live.errors import ConflictError, InputError, UndoneError, UnknownError
from irsppl.live.experiment import Experiment

LARGEST_BATCH = 10_000
LONGEST_ID = 40
LARGEST_LOT = 64
Act = Callable[[], dict[str, Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_log = logging.getLogger("irsppl.serve")


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    count: int | None = Field(None, ge=1, le=LARGEST_BATCH)
    request: str | None = Field(None, min_length=1, max_length=200)


class Tell(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    reward: float = Field(strict=True)
    correct: bool = Field(False, strict=True)


class Desk:
    """Asks and tells of all requests, by one thread: they would wait for each other anyway. Those
    that wait are written together, and answered when they are on the disk."""

    def __init__(self, experiment: Experiment):
        self.experiment, self.thread = experiment, ThreadPoolExecutor(1, "irsppl-desk")
        self.waiting: list[tuple[Act, asyncio.Future[Any]]] = []
        self.busy = False

    async def ask(self, body: Ask) -> dict[str, Any]:
        return await self._done(lambda: self._ask(body))

    async def tell(self, id: str, body: Tell) -> dict[str, Any]:
        return await self._done(lambda: self._tell(id, body))

    async def _done(self, act: Act) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Any] = loop.create_future()
        self.waiting.append((act, made))
        if len(self.waiting) == 1:
            loop.call_soon(self._begin, loop)
        return await made

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that wait now, on the way; those who come meanwhile are the next lot."""
        if self.busy or not self.waiting:
            return
        lot, self.waiting, self.busy = self.waiting[:LARGEST_LOT], self.waiting[LARGEST_LOT:], True

        def work() -> None:
            found = self._written([act for act, _ in lot])
            loop.call_soon_threadsafe(self._answered, loop, lot, found)

        self.thread.submit(work)

    def _answered(self, loop: Any, lot: list[Any], found: list[Any]) -> None:
        self.busy = False
        for (_, made), result in zip(lot, found, strict=True):
            if made.cancelled():
                continue
            if isinstance(result, BaseException):
                made.set_exception(result)
            else:
                made.set_result(result)
        self._begin(loop)

    def _written(self, acts: list[Act]) -> list[Any]:
        """What each came to: an answer, or an error."""
        if len(acts) > 1:
            try:
                with self.experiment.together():
                    return [_tried(act) for act in acts]
            except UndoneError:  # each for itself, so that one fails alone
                pass
            except Exception as error:  # perhaps written, perhaps not: who asked must ask again
                return [error] * len(acts)
        return [_tried(act) for act in acts]

    def _ask(self, body: Ask) -> dict[str, Any]:
        made: Any = self.experiment.ask(body.count, request=body.request)
        return made.to_dict() if body.count is None else {"decisions": [d.to_dict() for d in made]}

    def _tell(self, id: str, body: Tell) -> dict[str, Any]:
        self.experiment.tell(id, body.reward, correct=body.correct)
        return {"id": id, "reward": body.reward}

    async def served(self, path: str, body: bytes, send: Send) -> bool:
        """Answer a POST to this path, if it is a well-formed question or reward."""
        try:
            if path == "/decisions":
                status, made = 201, self.ask(Ask.model_validate_json(body))
            else:
                first, id, last = path[1:].split("/")
                if (first, last) != ("decisions", "reward") or not 0 < len(id) <= LONGEST_ID:
                    return False
                status, made = 200, self.tell(id, Tell.model_validate_json(body))
        except ValueError:  # other parts of a path, or a ValidationError
            return False
        try:
            content = await made
        except (InputError, UnknownError, ConflictError) as error:
            status, content = refusal(error)
        except Exception as error:
            status, content = failure(error)
        await answer(send, status, content)
        return True


def _tried(act: Act) -> Any:
    try:
        return act()
    except Exception as error:
        return error


def refusal(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and words for what an experiment refuses."""
    codes: dict[type, int] = {InputError: 422, UnknownError: 404, ConflictError: 409}
    return codes[type(error)], {"detail": str(error)}


def failure(error: Exception) -> tuple[int, dict[str, Any]]:
    """The same for what went wrong inside, which stays there."""
    _log.error("failed", exc_info=error)
    return 500, {"detail": "internal error"}


async def answer(
    send: Send, status: int, content: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    kind = (b"content-type", b"application/json")
    head = [kind, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
