"""What a contestant can be asked to do; what it does not offer, it leaves out, and the tables say so.

A contestant gives a few idiomatic lines for each thing it can do; all timing is done here or in ``works``, the same
way for everybody.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from task_bodies import GATE, held, held_by_file, nothing

Graph = Sequence[Sequence[int]]  # for each task the numbers of those it depends on, all smaller than its own
Body = Callable[..., Any]


class NotOffered(Exception):  # noqa: N818 - not an error
    """The contestant has no such feature."""


class Pool(NamedTuple):
    """What a contestant with futures works with."""

    submit: Callable[..., Any]  # submit(fn, *args) -> future; with `dags`, a future among the arguments is a dependency
    results: Callable[[list[Any]], list[Any]]  # waits for all


class Contestant:
    """Offers nothing."""

    dags = False  # submit() takes futures as arguments

    def open(self, workers: int) -> AbstractContextManager[Pool]:  # noqa: ARG002 - not offered
        """Start a pool of so many workers; leaving the block ends it."""
        raise NotOffered

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Run ``fn(arg)`` for each argument and return the results in order."""
        with self.open(workers) as pool:
            return pool.results([pool.submit(fn, arg) for arg in args])

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Return the seconds for so many tasks, start of the pool excluded; submit and collect apart if they are."""
        with self.open(workers) as pool:
            pool.results([pool.submit(fn) for _ in range(workers * 4)])
            begin = time.perf_counter()
            futures = [pool.submit(fn) for _ in range(tasks)]
            submitted = time.perf_counter()
            pool.results(futures)
            end = time.perf_counter()
        return {"submit": submitted - begin, "collect": end - submitted, "total": end - begin}

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:
        """Return the seconds to submit and run a graph, start of the pool excluded."""
        if not self.dags:
            raise NotOffered
        with self.open(workers) as pool:
            submit = pool.submit
            pool.results([submit(fn, args[-1]) for _ in range(workers * 2)])
            begin = time.perf_counter()
            futures: list[Any] = []
            for dependencies, arg in zip(graph, args, strict=True):
                futures.append(submit(fn, arg, *[futures[each] for each in dependencies]))
            pool.results(futures)
            return time.perf_counter() - begin

    def hold(self, pool: Pool) -> Callable[[], None]:
        """Occupy a worker; return what lets it go."""
        GATE.clear()
        pool.submit(held)
        return GATE.set

    def cancel(self, future: Any) -> None:  # noqa: ANN401 - its own kind of future
        """Cancel a pending task."""
        future.cancel()

    def why(self, future: Any) -> None:  # noqa: ANN401, ARG002 - its own kind of future
        """Ask why a task waits."""
        raise NotOffered

    def pending(self, tasks: int) -> Iterator[tuple[str, float]]:
        """Yield (what was done, how often) with so many pending: submit, cancel, why, start; the caller stops the time.

        Whoever measures reads the clock between two steps.
        """
        some = min(100_000, tasks // 4)  # so many that a full garbage collection among them does not decide
        with self.open(1) as pool:
            let_go = self.hold(pool)
            yield "ready", 1
            futures = [pool.submit(_nothing) for _ in range(tasks)]
            yield "submit", tasks
            for number in range(tasks // 2, tasks // 2 + 100):
                try:
                    self.why(futures[number])
                except NotOffered:
                    break
            else:
                yield "why", 100
            middle = futures[tasks // 2 : tasks // 2 + some]
            try:
                for future in middle:
                    self.cancel(future)
            except NotOffered:
                some = 0
            else:
                yield "cancel", some
            del futures[tasks // 2 : tasks // 2 + some], middle
            let_go()
            pool.results(futures)
            yield "start", tasks - some

    def dispose(self, tasks: int) -> float:  # noqa: ARG002 - not offered
        """Return the seconds to end so many pending tasks."""
        raise NotOffered

    def stream(self, blocked: int, tasks: int) -> float:  # noqa: ARG002 - not offered
        """Return the seconds for a stream of tasks, one after the other, beside so many that are blocked."""
        raise NotOffered

    def timers(self, count: int, every_s: float, lasts_s: float) -> list[list[tuple[float, float]]]:  # noqa: ARG002 - not offered
        """Run so many periodic timers, a moment apart; return for each its ticks: (planned, real)."""
        raise NotOffered


def hold_by_file(pool: Pool) -> Callable[[], None]:
    """Occupy a worker process; return what lets it go."""
    gate = Path(tempfile.mkdtemp()) / "gate"
    pool.submit(held_by_file, str(gate))
    return gate.touch


def on_grid(first: float, every_s: float, at: float) -> tuple[float, float]:
    """Return (planned, real) of a tick: the last planned time before it; a tick left out shows as one too few."""
    return first + math.floor((at - first) / every_s + 0.01) * every_s, at


def _nothing() -> None:
    pass


def time_shutdown(executor: Executor, tasks: int) -> float:
    """Return the seconds in which an executor of one busy worker is shut down and cancels so many tasks that wait."""
    gate = threading.Event()
    executor.submit(gate.wait)
    futures = [executor.submit(nothing) for _ in range(tasks)]
    begin = time.perf_counter()
    executor.shutdown(wait=False, cancel_futures=True)
    elapsed = time.perf_counter() - begin
    gate.set()
    assert all(future.cancelled() for future in futures)
    return elapsed
