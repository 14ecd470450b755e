"""By hand: a pool around a priority queue, which is the least one would write; and threads without any scheduler."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import PriorityQueue
from typing import Any

from contestants.base import Body, Contestant, Graph, Pool
from task_bodies import nothing

Item = tuple[int, int, Any, Any, Any]


class PriorityPool:
    """Threads that take from a priority queue; a future for each call, no cancellation of what runs, no account."""

    def __init__(self, workers: int) -> None:
        """Start the threads."""
        self.queue: PriorityQueue[Item] = PriorityQueue()
        self.count = itertools.count()
        self.threads = [threading.Thread(target=self.work) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def submit(self, fn: Body, *args: Any, priority: int = 50) -> Future[Any]:  # noqa: ANN401 - any call
        """Put a call into the queue."""
        future: Future[Any] = Future()
        self.queue.put((-priority, next(self.count), future, fn, args))
        return future

    def work(self) -> None:
        """Take the best call and run it, until told to stop."""
        while True:
            _, _, future, fn, args = self.queue.get()
            if fn is None:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(fn(*args))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
                future.set_exception(error)

    def close(self) -> None:
        """End the threads when the queue is empty."""
        for _ in self.threads:
            self.queue.put((1000, next(self.count), None, None, ()))
        for thread in self.threads:
            thread.join()


class HandWritten(Contestant):
    """The hand-written pool."""

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Start a pool."""
        pool = PriorityPool(workers)
        yield Pool(pool.submit, lambda futures: [future.result() for future in futures])
        pool.close()

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:  # noqa: C901 - in one piece
        """Count what each task still waits for, and submit it when that is nothing."""
        successors: list[list[int]] = [[] for _ in graph]
        pool = PriorityPool(workers)
        for future in [pool.submit(fn, args[-1]) for _ in range(workers * 2)]:
            future.result()
        lock, done = threading.Lock(), threading.Semaphore(0)
        begin = time.perf_counter()
        unmet = [len(dependencies) for dependencies in graph]
        for node, dependencies in enumerate(graph):
            for each in dependencies:
                successors[each].append(node)

        def run(node: int) -> None:
            fn(args[node])
            ready = []
            with lock:
                for each in successors[node]:
                    unmet[each] -= 1
                    if not unmet[each]:
                        ready.append(each)
            for each in ready:
                pool.submit(run, each)
            done.release()

        for node, dependencies in enumerate(graph):
            if not dependencies:
                pool.submit(run, node)
        for _ in graph:
            done.acquire()
        elapsed = time.perf_counter() - begin
        pool.close()
        return elapsed

    def dispose(self, tasks: int) -> float:
        """Cancel every future."""
        pool = PriorityPool(1)
        let_go = self.hold(Pool(pool.submit, list))
        futures = [pool.submit(nothing) for _ in range(tasks)]
        begin = time.perf_counter()
        for future in futures:
            future.cancel()
        elapsed = time.perf_counter() - begin
        let_go()
        pool.close()
        return elapsed


class Bare(Contestant):
    """The 100 % of the efficiencies: as many threads as workers, each with its share, no scheduler at all."""

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:
        """Ignore the dependencies."""
        assert len(graph) == len(args)

        def work(share: Sequence[Any]) -> None:
            for arg in share:
                fn(arg)

        fn(args[0])
        threads = [threading.Thread(target=work, args=(args[number::workers],)) for number in range(workers)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin
