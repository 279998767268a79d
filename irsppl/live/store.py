"""The database of an experiment: a journal, snapshots and the facts it started from.

SQLite (a file) or PostgreSQL (a URL). Every change is one short transaction that holds the
journal's only write lock, so whoever writes has seen all events before its own.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from irsppl.live.codec import DamagedError
from irsppl.live.journal import Event
from irsppl.live.wal import lost_commits

FORMAT = 2
# Seconds to wait for other processes before giving up.
_PATIENCE = 120
_SNAPSHOTS_KEPT = 2
# A commit is on the disk before it is acknowledged.
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL")

_meta = sa.MetaData()
_facts = sa.Table(
    "irsppl_experiment",
    _meta,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_journal = sa.Table(
    "irsppl_journal",
    _meta,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("period", sa.Integer),
    sa.Column("arm", sa.Integer),
    sa.Column("reward", sa.Double),
    sa.Column("propensity", sa.Double),
    sa.Column("request", sa.Text),
    sa.Column("body", sa.Text),
    sa.Column("digest", sa.Text, nullable=False),
)
_by_request = sa.Index(
    "irsppl_by_request",
    _journal.c.request,
    unique=True,
    sqlite_where=_journal.c.request.is_not(None),
    postgresql_where=_journal.c.request.is_not(None),
)
_snapshots = sa.Table(
    "irsppl_snapshot",
    _meta,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_advice = sa.Table(
    "irsppl_advice",
    _meta,
    sa.Column("period", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("loss", sa.Double, nullable=False),
    sa.Column("left", sa.Double, nullable=False),
)

_INSERT = sa.insert(_journal)
_SINCE = sa.select(_journal).where(_journal.c.seq >= sa.bindparam("first")).order_by(_journal.c.seq)
_WITH = sa.select(_journal).where(_journal.c.request == sa.bindparam("request"))


def as_url(where: Any) -> tuple[sa.URL, bool]:
    """(database URL, whether it is a SQLite file)."""
    if isinstance(where, os.PathLike):
        where = os.fspath(where)
    if not isinstance(where, str) or not where:
        raise ValueError(f"where must be a file or a database URL, got {where!r}")
    if "://" not in where:
        path = str(pathlib.Path(where).expanduser().resolve())
        return sa.URL.create("sqlite", database=path), True
    try:
        url = sa.make_url(where)
    except sa.exc.ArgumentError as error:
        raise ValueError(f"where must be a file or a database URL: {error}") from None
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg"), False
    if kind == "sqlite" and url.database not in (None, "", ":memory:"):
        return url.set(drivername="sqlite"), True
    raise ValueError(f"where must be a file (SQLite) or a postgresql:// URL, got {kind}")


class Store:
    """One connection, used by one thread at a time."""

    def __init__(self, where: Any, create: bool = False):
        self.url, self.is_file = as_url(where)
        self.name = str(self.url.database) if self.is_file else self.url.render_as_string()
        if self.is_file and not create and not pathlib.Path(self.name).is_file():
            raise ValueError(f"there is no experiment at {self.name}")
        if self.is_file and create and not pathlib.Path(self.name).parent.is_dir():
            raise ValueError(f"where must be in a folder that exists, got {self.name}")
        if self.is_file and not create:
            self._check_log()
        self.lock = threading.RLock()
        self._connect()

    def _connect(self) -> None:
        options: dict[str, Any] = {"poolclass": sa.pool.NullPool}
        if self.is_file:
            options["connect_args"] = {"timeout": _PATIENCE, "check_same_thread": False}
        else:
            options["paramstyle"] = "format"  # in order, as SQLite's
        try:
            self.engine = sa.create_engine(self.url, **options)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"a PostgreSQL experiment needs {error.name}: pip install 'irsppl[postgres]'"
            ) from None
        self._refusal: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        sa.event.listen(self.engine, "connect", _prepare_sqlite if self.is_file else _prepare)
        self.pid = os.getpid()
        self.connection: sa.Connection | None = None

    def close(self) -> None:
        with self.lock:
            if self.connection is not None and self.pid == os.getpid():
                self.connection.close()
                self.engine.dispose()
            self.connection = None

    @contextlib.contextmanager
    def transaction(self, write: bool = True) -> Iterator[sa.Connection]:
        """A transaction; with `write` it alone may add to the journal until it ends."""
        with self.lock:
            if self.pid != os.getpid():  # forked: a connection must not be shared with the parent
                self._connect()
            try:
                if self.connection is None:
                    self.connection = self.engine.connect()
                tx = self.connection
                with tx.begin():
                    if self.is_file:
                        tx.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                    elif write:
                        tx.exec_driver_sql("LOCK TABLE irsppl_journal IN EXCLUSIVE MODE")
                    yield tx
            except (sa.exc.DBAPIError, self._refusal) as error:
                raise self._told(error) from error
            except UnicodeDecodeError as error:  # SQLite's words about a damaged file
                raise self.damaged("it holds text that is none") from error

    def _told(self, error: Exception) -> Exception:
        cause = getattr(error, "orig", error)
        text = str(cause).strip()
        if "no such table" in text or type(cause).__name__ == "UndefinedTable":
            return ValueError(f"there is no experiment at {self.name}")
        if "locked" in text:
            return TimeoutError(f"{self.name} was busy for {_PATIENCE} s: {text}")
        outside = ("readonly", "unable to open", "is full", "I/O error")
        if self.is_file and not any(word in text for word in outside):
            return self.damaged(text)
        return OSError(f"the database at {self.name} refused: {text}")

    def damaged(self, problem: str) -> DamagedError:
        return DamagedError(
            f"{self.name} is damaged ({problem}): restore a backup; nothing was changed in it"
        )

    def check(self) -> None:
        """Look over the structure of a SQLite file: rows that a damaged page hides would not be
        missed otherwise."""
        if not self.is_file:
            return
        with self.transaction(write=False) as tx:
            found = tx.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise self.damaged(" ".join(str(found).split()))

    def _check_log(self) -> None:
        """Before SQLite opens it and drops what it cannot read."""
        lost, acknowledged = lost_commits(self.name)
        if acknowledged:
            raise self.damaged(
                f"its write-ahead log is broken: the last {lost} writes cannot be read, of which "
                f"at least {lost - 1} had been acknowledged"
            )
        if lost:
            warnings.warn(
                f"{self.name}: the end of its write-ahead log cannot be read and is dropped. A "
                "write that was cut short had not been acknowledged, one damaged later had",
                stacklevel=4,
            )

    # ---- the facts
    def create(self, data: bytes) -> None:
        with self.lock:
            try:
                with self.engine.begin() as connection:
                    _meta.create_all(connection)
            except sa.exc.DBAPIError as error:
                raise self._told(error) from error
        with self.transaction() as tx:
            if tx.execute(sa.select(_facts.c.id)).first() is not None:
                raise ValueError(
                    f"{self.name} already holds an experiment: open it, or create another elsewhere"
                )
            row = {"id": 1, "format": FORMAT, "created_at": time.time(), "data": data}
            tx.execute(sa.insert(_facts), row)

    def facts(self) -> tuple[float, bytes]:
        with self.transaction(write=False) as tx:
            row = tx.execute(sa.select(_facts)).first()
        if row is None:
            raise ValueError(f"there is no experiment at {self.name}")
        if not isinstance(row.data, bytes) or not isinstance(row.created_at, float):
            raise self.damaged("its record is no record")
        if row.format != FORMAT:
            raise ValueError(
                f"{self.name} has format {row.format}, this version of irsppl reads {FORMAT}: open "
                "it with the version that wrote it"
            )
        return row.created_at, row.data


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say, not at the first change
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _prepare(connection: Any, record: Any) -> None:
    connection.execute("SET synchronous_commit = on")
    connection.commit()


# ---- inside a transaction


# Statements of every ask and tell as text, by dialect: written once, run by the driver itself.
_texts: dict[tuple[str, sa.Executable], str] = {}


def _run(tx: sa.Connection, statement: Any, *rows: tuple[Any, ...]) -> Any:
    """A cursor. The parameters of each row stand in the statement's own order."""
    place = (tx.dialect.name, statement)
    text = _texts.get(place)
    if text is None:
        text = _texts[place] = str(statement.compile(dialect=tx.dialect))
    cursor = tx.connection.cursor()
    if len(rows) == 1:
        cursor.execute(text, rows[0])
    else:
        cursor.executemany(text, rows)
    return cursor


def append(tx: sa.Connection, events: list[Event]) -> None:
    _run(tx, _INSERT, *events)


def since(tx: sa.Connection, first: int) -> list[Event]:
    return list(map(Event._make, _run(tx, _SINCE, (first,)).fetchall()))


def between(tx: sa.Connection, first: int, last: int) -> list[Event]:
    """Events number first, ..., last."""
    query = _SINCE.where(_journal.c.seq <= last)
    return [Event(*row) for row in tx.execute(query, {"first": first})]


def of_kind(tx: sa.Connection, kind: str) -> list[Event]:
    query = sa.select(_journal).where(_journal.c.kind == kind).order_by(_journal.c.seq)
    return [Event(*row) for row in tx.execute(query)]


def asked_with(tx: sa.Connection, request: str) -> Event | None:
    row = _run(tx, _WITH, (request,)).fetchone()
    return None if row is None else Event(*row)


def save_snapshot(tx: sa.Connection, seq: int, digest: str, data: bytes) -> None:
    tx.execute(sa.insert(_snapshots), {"seq": seq, "digest": digest, "data": data})
    kept = sa.select(_snapshots.c.seq).order_by(_snapshots.c.seq.desc()).limit(_SNAPSHOTS_KEPT)
    known = [row.seq for row in tx.execute(kept)]
    tx.execute(sa.delete(_snapshots).where(_snapshots.c.seq < min(known)))


def snapshots(tx: sa.Connection) -> list[tuple[int, str, bytes]]:
    """(events in it, digest of the last of them, data), newest first."""
    rows = tx.execute(sa.select(_snapshots).order_by(_snapshots.c.seq.desc()))
    return [(row.seq, row.digest, row.data) for row in rows]


def drop_snapshots(tx: sa.Connection) -> None:
    tx.execute(sa.delete(_snapshots))


def save_advice(tx: sa.Connection, period: int, loss: float, left: float) -> None:
    tx.execute(sa.delete(_advice).where(_advice.c.period == period))
    row = {"period": period, "at": time.time(), "loss": loss, "left": left}
    tx.execute(sa.insert(_advice), row)


def advice_history(tx: sa.Connection) -> list[dict[str, float]]:
    rows = tx.execute(sa.select(_advice).order_by(_advice.c.period))
    return [dict(row._mapping) for row in rows]
