"""Finished pieces of a study on disk: whole or absent, and noticed when damaged."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """After this, or after a crash at any moment within it, `path` is old or new, never half."""
    # One temporary name per file: what a killed run left behind is overwritten by the next.
    temporary = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)  # should somebody have taken it away meanwhile
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    if os.name == "posix":  # the new name itself must survive a power cut
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: pathlib.Path) -> None:
    """Refuse a file that could not be written in the end, before any work is done for it."""
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {folder}")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".irsppl-"):
            pass
        if path.exists():
            with open(path, "r+b"):
                pass
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[None]:
    """Refuse to write beside another run, whose data and pictures would be mixed with these.

    A run that ends in any way gives the folder free. Where files cannot be locked nothing is done.
    """
    with open(folder / ".lock", "w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is writing to {folder}: wait until it ends, or give another folder "
                "with --out (out=)"
            ) from None
        except (ImportError, OSError):
            pass
        yield


class Store:
    """A folder of chunks. A chunk is named arrays; its file starts with a checksum of the rest."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, identity: tuple[Any, ...]) -> pathlib.Path:
        text = "-".join(map(str, identity))
        readable = re.sub(r"[^\w.+-]", "_", text)
        # Labels that differ only in what a file name cannot hold stay apart.
        return self.folder / f"{readable}-{zlib.crc32(text.encode()):08x}.chunk"

    def save(self, identity: tuple[Any, ...], arrays: dict[str, np.ndarray]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, **{"identity": np.array(json.dumps(identity)), **arrays})  # type: ignore
        payload = buffer.getvalue()
        checksum = hashlib.sha256(payload).hexdigest().encode()
        write_atomically(self.path(identity), checksum + b"\n" + payload)

    def load(self, identity: tuple[Any, ...]) -> dict[str, np.ndarray] | None:
        """The arrays, or None where there are none or the file is damaged."""
        try:
            content = self.path(identity).read_bytes()
        except FileNotFoundError:
            return None
        checksum, _, payload = content.partition(b"\n")
        if hashlib.sha256(payload).hexdigest().encode() != checksum:
            return None
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if arrays.pop("identity").item() != json.dumps(identity):  # a file under another's name
            return None
        return arrays
