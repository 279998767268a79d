"""An experiment over HTTP: JSON for programs, a page for people.

On a loopback address anybody on the machine may ask and tell. On any other address every request
needs a token: one to ask, tell and look, one to administer.
"""

import base64
import contextlib
import functools
import hmac
import ipaddress
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from irsppl._text import without_nan
from irsppl.live.advice import Advice
from irsppl.live.codec import DamagedError
from irsppl.live.direct import LONGEST_ID, Ask, Desk, Send, Tell, answer, failure, refusal
from irsppl.live.errors import ConflictError, InputError, UnknownError
from irsppl.live.experiment import Experiment
from irsppl.live.report import SHOWN, clock, page

_LARGEST_BODY = 64 * 1024
_log = logging.getLogger("irsppl.serve")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Looks again every few seconds and puts in place what has changed; stands still while nobody looks.
# Parts are replaced from inside, so that focus, scrolling and opened details stay where they are.
_SCRIPT = """
const EVERY = 3000;
function put(fresh) {
  const parts = [...fresh.querySelectorAll("[data-live]")];
  const known = document.querySelectorAll("[data-live]").length;
  if (parts.length !== known || parts.some(part => !document.getElementById(part.id))) {
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
  }
  for (const part of parts) {
    const old = document.getElementById(part.id);
    if (old && old.innerHTML !== part.innerHTML) old.innerHTML = part.innerHTML;
  }
}
function say(text) {
  const link = document.getElementById("link");
  if (link.textContent !== text) link.textContent = text;
}
async function renew() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
      if (!answer.ok) throw new Error(answer.status);
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
      say("This page renews itself every few seconds.");
    } catch (error) {
      say("The server does not answer. What is shown may be out of date.");
    }
  }
  setTimeout(renew, EVERY);
}
setTimeout(renew, EVERY);
"""


class Add(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    arm: str = Field(max_length=200, description="such as beta(1,1)")
    label: str = Field(min_length=1, max_length=200)


@functools.lru_cache(64)
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Limits and tokens, before anything else looks at a request."""

    def __init__(self, app: Any, desk: Desk, token: str | None, admin: str | None, local: bool):
        self.app, self.desk = app, desk
        self.token, self.admin, self.local = token, admin, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = {name.lower(): value for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            return await _refuse(send, *refused)
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > _LARGEST_BODY:
                return await _refuse(send, 413, f"a body may have {_LARGEST_BODY} bytes")
            if not message.get("more_body"):
                break
        if scope["method"] == "POST" and await self.desk.served(scope["path"], body, send):
            return
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> MutableMapping[str, Any]:
            return next(given, None) or await receive()

        await self.app(scope, replay, send)

    def _refused(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:12]) > _LARGEST_BODY:
            return 413, f"a body may have {_LARGEST_BODY} bytes"
        posts = scope["method"] not in ("GET", "HEAD")
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if posts and scope["method"] == "POST" and kind != b"application/json":
            # Also: a page elsewhere cannot make a browser send this without asking us first.
            return 415, "the body must be application/json"
        if self.token is None:
            name = headers.get(b"host", b"").decode("latin-1")
            name = name.rsplit(":", 1)[0].strip("[]") if not name.endswith("]") else name[1:-1]
            if self.local and not is_loopback(name):  # a name that was made to point here
                return 421, "this server answers on the loopback address only"
            return None
        if scope["path"] == "/health":
            return None
        given = headers.get(b"authorization", b"")
        if not posts and given[:6].lower() == b"basic ":  # what a browser sends, for looking only
            given = b"Bearer " + _password(given[6:])
        admin = bool(self.admin) and hmac.compare_digest(given, f"Bearer {self.admin}".encode())
        known = hmac.compare_digest(given, b"Bearer " + self.token.encode())
        if not (known or admin):
            return 401, "a token is needed: Authorization: Bearer TOKEN"
        if scope["path"].startswith("/arms") and posts and not admin:
            return 403, "this needs the token to administer"
        return None


def _password(given: bytes) -> bytes:
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2]
    except ValueError:
        return b""


async def _refuse(send: Send, status: int, problem: str) -> None:
    # A browser then asks for a name, which does not matter, and a password: the token.
    ways = (b'Basic realm="irsppl", charset="UTF-8"', b"Bearer") if status == 401 else ()
    headers = tuple((b"www-authenticate", way) for way in ways)
    await answer(send, status, {"detail": problem}, headers)


class Adviser:
    """Advice for the page: computed beside it, again when play has moved on by a hundredth."""

    def __init__(self, experiment: Experiment):
        self.experiment, self.working = experiment, threading.Lock()
        self.latest: Advice | None = None

    def look(self, status: dict[str, Any]) -> Advice | None:
        old = self.latest
        due = old is None or status["period"] - old.period >= status["horizon"] / 100
        if due and status["remaining"] > 0 and self.working.acquire(blocking=False):
            threading.Thread(target=self._work, daemon=True).start()
        return old

    def _work(self) -> None:
        try:
            self.latest = self.experiment.advise()
        except Exception:
            _log.exception("no advice")
        finally:
            self.working.release()


class Pages:
    """The page as text without its nonce, made anew when something has happened.

    Long journals take a while to read: making pages takes a tenth of the time at most.
    """

    def __init__(self, experiment: Experiment):
        self.experiment, self.adviser = experiment, Adviser(experiment)
        self.made: tuple[int, int] | None = None
        self.text, self.again_at = "", 0.0
        self.working = threading.Lock()

    def look(self, nonce: str) -> str:
        with self.working:
            if time.monotonic() >= self.again_at:
                status = self.experiment.status() | {"where": ""}
                advice = self.adviser.look(status)
                made = (status["events"], id(advice))
                if made != self.made:
                    begin = time.monotonic()
                    log, reasons = self.experiment.log(), self.experiment.reasons(SHOWN)
                    arms = self.experiment.believed()
                    self.text = page(status, log, arms, advice, reasons, _SCRIPT, _NONCE)
                    self.made = made
                    self.again_at = time.monotonic() + min(10 * (time.monotonic() - begin), 60)
            shown = re.sub("<time>.*?</time>", f"<time>{clock()}</time>", self.text, count=1)
            return shown.replace(f'nonce="{_NONCE}"', f'nonce="{nonce}"')


_NONCE = "put-the-nonce-here"


def make_app(
    experiment: Experiment,
    token: str | None = None,
    admin_token: str | None = None,
    local: bool = True,
) -> Any:
    """The ASGI application."""
    from irsppl import __version__

    # The interactive pages of FastAPI load scripts from elsewhere; the description itself is here.
    nothing: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="irsppl experiment", version=__version__, **nothing)
    pages, desk = Pages(experiment), Desk(experiment)

    def refused(request: Request, error: Exception) -> JSONResponse:
        status, content = refusal(error)
        return JSONResponse(content, status)

    for kind in (InputError, UnknownError, ConflictError):
        app.add_exception_handler(kind, refused)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was given: NaN, or half a character, has no way into JSON.
        problems = [{"loc": one["loc"], "msg": one["msg"]} for one in error.errors()]
        return JSONResponse({"detail": json.loads(json.dumps(problems, default=str))}, 422)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> JSONResponse:
        status, content = failure(error)
        return JSONResponse(content, status)

    Id = Annotated[str, Path(max_length=LONGEST_ID)]

    # Here for what is malformed, and for the description: what is well formed the desk has seen to.
    @app.post("/decisions", status_code=201)
    async def ask(body: Ask) -> Any:
        return await desk.ask(body)

    @app.post("/decisions/{id}/reward")
    async def tell(id: Id, body: Tell) -> Any:
        return await desk.tell(id, body)

    @app.get("/decisions/{id}")
    def explain(id: Id) -> Any:
        return without_nan(experiment.explain(id))

    @app.get("/status")
    def status() -> Any:
        shown = experiment.status().items()
        return without_nan({name: value for name, value in shown if name != "where"})

    @app.get("/advice")
    def advice() -> Any:
        return without_nan(experiment.advise().to_dict())

    @app.get("/log.csv")
    def log_csv() -> Any:
        return PlainTextResponse(experiment.log().to_csv(index=False), media_type="text/csv")

    @app.get("/log.parquet")
    def log_parquet() -> Any:
        try:
            data = experiment.log().to_parquet(index=False)
        except ImportError:
            return JSONResponse({"detail": "this server has no Parquet library"}, 501)
        return Response(data, media_type="application/vnd.apache.parquet")

    @app.post("/arms", status_code=201)
    def add(body: Add) -> Any:
        from irsppl.studies import parse_arms

        with administering():
            return {"arm": experiment.add_arm(parse_arms(body.arm), body.label)}

    @app.delete("/arms/{label:path}")  # a label may have a slash
    def retire(label: Annotated[str, Path(max_length=200)]) -> Any:
        with administering():
            experiment.retire_arm(label)
        return {"retired": label}

    @app.get("/health")
    def health() -> Any:
        return {"period": experiment.status()["period"]}

    @app.get("/metrics")
    def metrics() -> Any:
        kind = "text/plain; version=0.0.4"
        return PlainTextResponse(_metrics(experiment.status()), media_type=kind)

    @app.get("/", response_class=HTMLResponse)
    def show() -> Any:
        nonce = secrets.token_urlsafe(16)
        text = pages.look(nonce)
        policy = (
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
            f"script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(text, headers=headers | {"Referrer-Policy": "no-referrer"})

    return Guard(app, desk, token, admin_token, local)


@contextlib.contextmanager
def administering() -> Iterator[None]:
    """Whoever changes the arms is told what does not fit, whichever part of irsppl says it."""
    try:
        yield
    except (ConflictError, UnknownError, DamagedError):
        raise
    except ValueError as error:
        raise InputError(str(error)) from error


def _metrics(status: dict[str, Any]) -> str:
    """Prometheus' text format."""

    def escaped(label: str) -> str:
        return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    lines = []
    for name in ("period", "remaining", "pending", "told", "expired", "reward", "budget"):
        kind = "counter" if name in ("period", "told", "expired") else "gauge"
        if status[name] is not None:
            lines += [f"# TYPE irsppl_{name} {kind}", f"irsppl_{name} {status[name]}"]
    for name in ("pulls", "mean"):
        lines.append(f"# TYPE irsppl_arm_{name} gauge")
        for row in status["arms"]:
            lines.append(f'irsppl_arm_{name}{{arm="{escaped(row["label"])}"}} {row[name]}')
    return "\n".join(lines) + "\n"


def serve(
    experiment: Experiment, host: str, port: int, token: str | None, admin_token: str | None
) -> None:
    """Answer until stopped; requests that have begun are finished."""
    local = is_loopback(host)
    if not local and not (token and admin_token):
        raise ValueError(
            f"host {host} can be reached from outside: set two tokens in the environment, "
            "IRSPPL_TOKEN to ask and tell and IRSPPL_ADMIN_TOKEN to administer"
        )
    for name, value in (("IRSPPL_TOKEN", token), ("IRSPPL_ADMIN_TOKEN", admin_token)):
        if value is not None and len(value) < 16:
            raise ValueError(f"{name} must have 16 characters at least")
    if token is not None and token == admin_token:
        raise ValueError("IRSPPL_TOKEN and IRSPPL_ADMIN_TOKEN must differ")
    app = make_app(experiment, token, admin_token, local)
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
