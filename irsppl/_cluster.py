"""Work on a Dask cluster: pieces go out, results come back as they are ready.

What all pieces share is sent to every worker once. A worker that is lost costs the piece it was
at: that goes out again. Workers compute with the client's precision and random bits, and refuse if
their libraries differ from the client's, for then the numbers could too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import sys
import threading
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from irsppl._progress import Progress
from irsppl._settings import settings, under

Item = TypeVar("Item", bound=Hashable)

# Libraries that numbers depend on to the last bit.
_LIBRARIES = ("irsppl", "jax", "jaxlib", "numba", "numpy", "numpyro", "scipy")
# XLA programs with loops can wait for each other for ever within one process: see `_workers.py`.
_one_at_a_time = threading.Lock()
# The last parcel that this process opened: what is compiled for one piece serves the next.
_opened: dict[str, Callable[[Any, int], Any]] = {}
# For the environment of workers: XLA takes from here how many threads it may start.
ONE_XLA_THREAD = {"NPROC": "1"}
# A parcel that no worker has any more goes out again so often without a result in between.
_MOST_LOSSES = 10


def check_client(client: Any) -> None:
    """Refuse what is no client of a Dask cluster, before any work."""
    if client is None:
        return
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "client needs Dask, which is not installed: pip install 'irsppl[dask]'"
        ) from None
    if not isinstance(client, Client):
        raise ValueError(
            f"client must be a distributed.Client (or None: this process), got {client!r}"
        )
    if client.asynchronous:
        raise ValueError("client must be a blocking one, but this one has asynchronous=True")
    if client.status != "running":
        raise ValueError(f"client must be connected to a cluster, but it is {client.status}")


@contextlib.contextmanager
def connected(where: str) -> Iterator[Any]:
    """A client of the cluster at an address, or with "local" of all cores here, in processes."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError(
            "--dask needs Dask, which is not installed: pip install 'irsppl[dask]'"
        ) from None
    if where != "local":
        try:
            client = Client(where, timeout="20s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--dask must be local or the address of a Dask scheduler, such as "
                f"tcp://10.0.0.5:8786; got {where!r}: {error}"
            ) from None
        with client:
            yield client
        return
    # One thread each, for XLA too, which else starts as many as there are cores in every worker and
    # takes a fifth more processor time. No limit on memory, at which workers would be ended. And
    # patience: on a busy machine the successor of a lost worker starts later than Dask waits for.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}),
        LocalCluster(
            threads_per_worker=1, memory_limit=0, dashboard_address=":0", env=ONE_XLA_THREAD
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def on_cluster(
    client: Any,
    work: Callable[[Item, int], Any],
    items: Iterable[Item],
    names: Callable[[Item], str],
) -> Iterator[tuple[Item, Any]]:
    """(item, work(item, threads)) of every item, in the order in which they are ready.

    work: sent to every worker once, and what it keeps in itself serves the next item there;
    threads: how many it may use. names: an item in words, for errors and for Dask's dashboard.
    """
    from distributed import KilledWorker, as_completed

    waiting = deque(items)
    if not waiting:
        return
    client.wait_for_workers(1, timeout=120)
    several = sum(threads > 1 for threads in client.nthreads().values())
    if several:
        warnings.warn(
            f"{several} Dask workers have more than one thread: irsppl runs one piece at a time in "
            "each process. Start workers with one thread each (dask worker --nthreads 1)",
            stacklevel=4,
        )
    label, content = _pack(work)
    run, losses = uuid.uuid4().hex[:8], 0
    parcel = client.scatter(content, broadcast=True, hash=False)
    running: dict[Any, Item] = {}
    done = as_completed(loop=client.loop, raise_errors=False)

    def send() -> None:
        # Two for every thread: one to do, one to follow. More would pile up results nobody reads.
        most = 2 * sum(client.nthreads().values()) + 2
        while waiting and len(running) < most:
            item = waiting.popleft()
            name = f"irsppl-{names(item)}-{run}-{uuid.uuid4().hex[:8]}"
            future = client.submit(_do, label, parcel, item, key=name, pure=False)
            running[future] = item
            done.add(future)

    try:
        send()
        for future in done:
            item = running.pop(future)
            if future.status == "finished":
                result, losses = future.result(), 0
                future.release()
                yield item, result
            elif future.status == "error":
                error = future.exception()
                if isinstance(error, KilledWorker):
                    raise OSError(
                        f"every Dask worker that took {names(item)} ended: is there memory for it "
                        f"on a worker? ({error})"
                    ) from None
                raise error
            else:  # nobody has the parcel any more, or the scheduler forgot the piece
                losses += 1
                if client.status != "running" or losses > _MOST_LOSSES:
                    raise OSError(
                        f"the Dask cluster is gone: the connection is {client.status}"
                    ) from None
                waiting.appendleft(item)
                if parcel.status != "finished":
                    client.wait_for_workers(1, timeout=120)
                    parcel = client.scatter(content, broadcast=True, hash=False)
            send()
    finally:
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.cancel([*running, parcel], force=True)


def spread(
    client: Any,
    work: Callable[[Any, int], list[Any]],
    plan: list[tuple[int, int, int]],
    progress: bool | None,
    title: str,
) -> list[Any]:
    """What `work` makes of every chunk of a plan, in order: runs of chunks go to the cluster.

    The chunks are those of one process, and so are the shapes of compiled programs and the numbers.
    """
    size = max(1, len(plan) // (8 * max(1, sum(client.nthreads().values()))))
    runs = [tuple(plan[i : i + size]) for i in range(0, len(plan), size)]
    done: dict[Any, list[Any]] = {}
    with Progress(plan[-1][1], title, "rep", progress) as bar:
        for run, parts in on_cluster(client, work, runs, lambda run: f"{title}-{run[0][0]}"):
            done[run] = parts
            bar.update(run[-1][1] - run[0][0])
    return [part for run in runs for part in done[run]]


# ------------------------------------------------------------------ what is sent


@dataclasses.dataclass(frozen=True)
class _Label:
    """What is outside on a parcel: its name, and how the client computes."""

    name: str
    versions: dict[str, str]
    settings: dict[str, Any]


def _versions() -> dict[str, str]:
    import irsppl

    found = {name: importlib.metadata.version(name) for name in _LIBRARIES if name != "irsppl"}
    return {"irsppl": irsppl.__version__, **found}


def _pack(work: Callable[[Any, int], Any]) -> tuple[_Label, bytes]:
    """What all pieces share, closed, and its label."""
    import cloudpickle

    # What a user's model file defines is in no module that a worker could import.
    own = [module for name, module in sys.modules.items() if name.startswith("_irsppl_model_")]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        content = cloudpickle.dumps(work)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return _Label(hashlib.sha256(content).hexdigest(), _versions(), settings()), content


def _do(label: _Label, content: bytes, item: Any) -> Any:
    """One piece, on a worker."""
    import cloudpickle
    from distributed import get_worker

    worker, here = get_worker(), _versions()
    if here != label.versions:
        other = ", ".join(
            f"{name} {here[name]} (the client has {version})"
            for name, version in label.versions.items()
            if here[name] != version
        )
        raise ValueError(
            f"the Dask worker at {worker.address} has other versions, which could give other "
            f"numbers: {other}. Install the client's versions there"
        )
    with _one_at_a_time, under(label.settings):
        if label.name not in _opened:  # under the settings: they say how wide its numbers are
            _opened.clear()
            _opened[label.name] = cloudpickle.loads(content)
        return _opened[label.name](item, worker.state.nthreads)
