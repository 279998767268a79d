"""Chunks of work, in threads where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from irsppl._progress import Progress
from irsppl._settings import settings, under
from irsppl.bandit import Bandit
from irsppl.beliefs import InKernels


def threads_for(bandit: Bandit, compiled: bool, workers: int) -> int:
    """How many of the threads may work: all only where CPU kernels do it, not XLA."""
    return workers if compiled and isinstance(bandit.belief, InKernels) else 1


def run_chunks(
    draw: Callable[[int, int, int], Any],
    work: Callable[[Any, int, int], Any],
    plan: list[tuple[int, int, int]],
    progress: bool | None,
    title: str,
    workers: int = 1,
) -> list[Any]:
    """`work(draw(start, stop, size), start, stop)` of every chunk, in order of chunks.

    With one worker the calling thread does all of it. Several are for compiled kernels alone, which
    release the GIL, and whose futures are drawn by kernels too: XLA programs with loops share one
    pool of threads on a CPU, so that two of them at once can wait for each other for ever. An
    interruption waits for nobody: what other threads still do is dropped.
    """
    done: list[Any] = [None] * len(plan)
    with Progress(plan[-1][1], title, "rep", progress) as bar:
        if workers == 1 or len(plan) == 1:
            for i, (start, stop, size) in enumerate(plan):
                done[i] = work(draw(start, stop, size), start, stop)
                bar.update(stop - start)
            return done
        given = settings()

        def in_thread(start: int, stop: int, size: int) -> Any:
            with under(given):
                return work(draw(start, stop, size), start, stop)

        pool = ThreadPoolExecutor(min(workers, len(plan)), "irsppl")
        running: dict[Future[Any], int] = {}

        def collect(at_most: int) -> None:
            while len(running) > at_most:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    i = running.pop(future)
                    done[i] = future.result()
                    bar.update(plan[i][1] - plan[i][0])

        try:
            for i, chunk in enumerate(plan):
                running[pool.submit(in_thread, *chunk)] = i
                collect(workers)
            collect(0)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return done
