"""The standard library: its executors, and graphlib with an executor for graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import Any

from contestants.base import Body, Contestant, Graph, Pool, hold_by_file, time_shutdown
from task_bodies import nothing


class ThreadPool(Contestant):
    """ThreadPoolExecutor."""

    executor: type[Executor] = ThreadPoolExecutor

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Open an executor."""
        with self.executor(workers) as executor:  # type: ignore[call-arg] # both take a number
            yield Pool(executor.submit, lambda futures: [future.result() for future in futures])

    def dispose(self, tasks: int) -> float:
        """Shut down and cancel what waits."""
        return time_shutdown(ThreadPoolExecutor(1), tasks)


class ProcessPool(ThreadPool):
    """ProcessPoolExecutor."""

    executor = ProcessPoolExecutor

    def hold(self, pool: Pool) -> Callable[[], None]:
        """Occupy a worker process."""
        return hold_by_file(pool)

    def dispose(self, tasks: int) -> float:
        """Shut down and cancel what waits; it is over when the last future says so."""
        executor = ProcessPoolExecutor(1)
        let_go = hold_by_file(Pool(executor.submit, list))
        futures = [executor.submit(nothing) for _ in range(tasks)]
        begin = time.perf_counter()
        executor.shutdown(wait=False, cancel_futures=True)
        while not futures[-1].done():
            time.sleep(0.0001)
        elapsed = time.perf_counter() - begin
        let_go()
        return elapsed


class Graphlib(Contestant):
    """A graph by hand: graphlib says what is ready, ThreadPoolExecutor runs it."""

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:
        """Run a graph."""
        with ThreadPoolExecutor(workers) as executor:
            list(executor.map(fn, [args[-1]] * workers * 2))
            begin = time.perf_counter()
            sorter = TopologicalSorter(dict(enumerate(graph)))
            sorter.prepare()
            finished: SimpleQueue[int] = SimpleQueue()

            def run(node: int) -> None:
                fn(args[node])
                finished.put(node)

            while sorter.is_active():
                for node in sorter.get_ready():
                    executor.submit(run, node)
                sorter.done(finished.get())
            return time.perf_counter() - begin
