"""The standard library: its executors, graphlib with an executor for graphs, TaskGroup with a semaphore."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import Any

from contestants.base import Body, Contestant, Graph, Pool, hold_by_file, time_shutdown
from task_bodies import as_coroutine, nothing


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


class TaskGroup(Contestant):
    """asyncio.TaskGroup; coroutines where the body is one, else asyncio.to_thread."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Create tasks that each take the semaphore."""
        body = as_coroutine(fn)

        async def main() -> dict[str, float]:
            semaphore = asyncio.Semaphore(workers)

            async def limited() -> None:
                async with semaphore:
                    await body()

            begin = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(limited())
                submitted = time.perf_counter()
            end = time.perf_counter()
            return {"submit": submitted - begin, "collect": end - submitted, "total": end - begin}

        return asyncio.run(main())

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Gather coroutines that each take the semaphore."""
        body = as_coroutine(fn)

        async def main() -> list[Any]:
            semaphore = asyncio.Semaphore(workers)

            async def limited(arg: object) -> object:
                async with semaphore:
                    return await body(arg)

            return await asyncio.gather(*[limited(arg) for arg in args])

        return asyncio.run(main())

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:
        """Let each task await those it depends on, then run the body in a thread."""

        async def main() -> float:
            semaphore = asyncio.Semaphore(workers)
            tasks: list[asyncio.Task[None]] = []

            async def node(dependencies: Sequence[int], arg: object) -> None:
                for each in dependencies:
                    await tasks[each]
                async with semaphore:
                    await asyncio.to_thread(fn, arg)

            await asyncio.gather(*[asyncio.to_thread(fn, args[-1]) for _ in range(workers * 2)])
            begin = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for dependencies, arg in zip(graph, args, strict=True):
                    tasks.append(group.create_task(node(dependencies, arg)))
            return time.perf_counter() - begin

        return asyncio.run(main())

    def dispose(self, tasks: int) -> float:
        """Cancel all tasks and wait until they have ended."""

        async def main() -> float:
            pending = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(tasks)]
            await asyncio.sleep(0)
            begin = time.perf_counter()
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            return time.perf_counter() - begin

        return asyncio.run(main())

    def stream(self, blocked: int, tasks: int) -> float:
        """Run bodies in threads, beside tasks that are blocked on a second semaphore."""

        async def main() -> float:
            semaphore, licence = asyncio.Semaphore(2), asyncio.Semaphore(0)

            async def limited() -> None:
                async with semaphore:
                    await asyncio.to_thread(nothing)

            async def licensed() -> None:
                async with licence:
                    await asyncio.to_thread(nothing)

            waiting = [asyncio.create_task(licensed()) for _ in range(blocked)]
            await asyncio.sleep(0)
            begin = time.perf_counter()
            for _ in range(tasks):
                await asyncio.create_task(limited())
            elapsed = time.perf_counter() - begin
            for task in waiting:
                task.cancel()
            return elapsed

        return asyncio.run(main())

    def timers(self, count: int, every_s: float, lasts_s: float) -> list[list[tuple[float, float]]]:
        """Sleep until the next planned time, in one task for each timer."""

        async def main() -> list[list[tuple[float, float]]]:
            ticks: list[list[tuple[float, float]]] = [[] for _ in range(count)]

            async def timer(number: int, begin: float) -> None:
                planned = begin
                while True:
                    planned += every_s
                    await asyncio.sleep(planned - time.perf_counter())
                    ticks[number].append((planned, time.perf_counter()))

            first = time.perf_counter()
            tasks = []
            for number in range(count):
                await asyncio.sleep(first + number * every_s / count - time.perf_counter())
                tasks.append(asyncio.create_task(timer(number, time.perf_counter())))
            await asyncio.sleep(lasts_s)
            for task in tasks:
                task.cancel()
            return ticks

        return asyncio.run(main())
