"""whywait, with priorities, aging, budget, events and why all on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from contestants.base import Body, Contestant, Pool, hold_by_file, on_grid, time_shutdown
from task_bodies import as_coroutine, nothing
from whywait import Authority, Executor, Handle


class Whywait(Contestant):
    """An authority over threads."""

    dags = True
    engine = "thread"

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Open an authority."""
        with Authority(slots=workers, cpu=64, ram="64GB", engine=self.engine) as authority:
            yield Pool(authority.submit, lambda handles: [handle.result() for handle in handles])

    def why(self, future: Handle[Any]) -> None:
        """Ask why a task waits."""
        future.why()

    def dispose(self, tasks: int) -> float:
        """Dispose a scope."""
        with Authority(slots=1, cpu=64, ram="64GB", engine=self.engine) as authority:
            let_go = self.hold(Pool(authority.submit, list))
            scope = authority.scope("bench")
            handles = [scope.submit(nothing) for _ in range(tasks)]
            begin = time.perf_counter()
            scope.dispose()
            elapsed = time.perf_counter() - begin
            assert all(handle.outcome == "aborted" for handle in handles)
            let_go()
        return elapsed

    def stream(self, blocked: int, tasks: int) -> float:
        """Block tasks by a named resource that another one holds."""
        gate = threading.Event()
        with Authority(slots=2, resources={"licence": 1}) as authority:
            authority.submit(gate.wait, resources={"licence": 1})
            waiting = [authority.submit(nothing, resources={"licence": 1}) for _ in range(blocked)]
            begin = time.perf_counter()
            for _ in range(tasks):
                authority.submit(nothing).result()
            elapsed = time.perf_counter() - begin
            assert not any(handle.done() for handle in waiting)
            gate.set()
        return elapsed

    def timers(self, count: int, every_s: float, lasts_s: float) -> list[list[tuple[float, float]]]:
        """Add periodics to a scope."""
        real: list[list[float]] = [[] for _ in range(count)]
        begun = []
        with Authority(slots=4) as authority, authority.scope("timers") as scope:
            first = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, first + number * every_s / count - time.perf_counter()))
                begun.append(time.perf_counter())
                scope.periodic(lambda number=number: real[number].append(time.perf_counter()), every=every_s)
            time.sleep(max(0.0, begun[-1] + lasts_s - time.perf_counter()))
            scope.dispose()
        return [
            [on_grid(start + every_s, every_s, at) for at in stamps] for start, stamps in zip(begun, real, strict=True)
        ]


class WhywaitExecutor(Whywait):
    """The drop-in for ThreadPoolExecutor."""

    dags = False

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Open an executor."""
        with Executor(workers) as executor:
            self.executor = executor
            yield Pool(executor.submit, lambda futures: [future.result() for future in futures])

    def why(self, future: Any) -> None:  # noqa: ANN401 - a future
        """Ask why a task waits."""
        self.executor.why(future)

    def dispose(self, tasks: int) -> float:
        """Shut down."""
        return time_shutdown(Executor(1), tasks)


class WhywaitProcess(Whywait):
    """An authority over worker processes."""

    engine = "process"

    def hold(self, pool: Pool) -> Callable[[], None]:
        """Occupy a worker process."""
        return hold_by_file(pool)


class WhywaitAsyncio(Contestant):
    """An authority over coroutines."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Run coroutines in a scope."""
        body = as_coroutine(fn)

        async def main() -> dict[str, float]:
            async with Authority(slots=workers, cpu=64, ram="64GB") as authority:
                begin = time.perf_counter()
                async with authority.scope("bench") as scope:
                    for _ in range(tasks):
                        scope.submit(body)
                    submitted = time.perf_counter()
                end = time.perf_counter()
            return {"submit": submitted - begin, "collect": end - submitted, "total": end - begin}

        return asyncio.run(main())

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Await coroutines in order."""
        body = as_coroutine(fn)

        async def main() -> list[Any]:
            async with Authority(slots=workers, cpu=64, ram="64GB") as authority:
                handles = [authority.submit(body, arg) for arg in args]
                return [await handle for handle in handles]

        return asyncio.run(main())

    def dispose(self, tasks: int) -> float:
        """Dispose a scope of coroutines."""

        async def main() -> float:
            async with Authority(slots=1, cpu=64, ram="64GB") as authority:
                scope = authority.scope("bench")
                handles = [scope.submit(asyncio.sleep, 3600) for _ in range(tasks)]
                begin = time.perf_counter()
                await scope.dispose_async()
                elapsed = time.perf_counter() - begin
                assert all(handle.outcome == "aborted" for handle in handles)
            return elapsed

        return asyncio.run(main())
