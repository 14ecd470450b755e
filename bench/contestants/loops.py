"""Event loops of others: trio with a capacity limiter, anyio's worker threads with one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import trio

from contestants.base import Body, Contestant
from task_bodies import as_coroutine, stamped


class Trio(Contestant):
    """A trio nursery whose tasks share a capacity limiter."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Start tasks that each take the limiter."""
        body = as_coroutine(fn)

        async def main() -> dict[str, float]:
            limiter = trio.CapacityLimiter(workers)

            async def limited() -> None:
                async with limiter:
                    await body()

            begin = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(limited)
                submitted = time.perf_counter()
            end = time.perf_counter()
            return {"submit": submitted - begin, "collect": end - submitted, "total": end - begin}

        return trio.run(main)

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Collect the results of tasks that each take the limiter."""
        assert fn is stamped, "the only body with a result"

        async def main() -> list[Any]:
            limiter, results = trio.CapacityLimiter(workers), []

            async def limited(seconds: float) -> None:
                async with limiter:
                    begin = time.perf_counter()
                    await trio.sleep(seconds)
                    results.append((begin, time.perf_counter()))

            async with trio.open_nursery() as nursery:
                for arg in args:
                    nursery.start_soon(limited, arg)
            return results

        return trio.run(main)

    def dispose(self, tasks: int) -> float:
        """Cancel the nursery's scope."""

        async def main() -> float:
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(trio.sleep_forever)
                await trio.lowlevel.checkpoint()
                begin = time.perf_counter()
                nursery.cancel_scope.cancel()
            return time.perf_counter() - begin

        return trio.run(main)

    def timers(self, count: int, every_s: float, lasts_s: float) -> list[list[tuple[float, float]]]:
        """Sleep until the next planned time, in one task for each timer."""

        async def main() -> list[list[tuple[float, float]]]:
            ticks: list[list[tuple[float, float]]] = [[] for _ in range(count)]

            async def timer(number: int, begin: float) -> None:
                planned = begin
                while True:
                    planned += every_s
                    await trio.sleep(max(0.0, planned - time.perf_counter()))
                    ticks[number].append((planned, time.perf_counter()))

            first = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    await trio.sleep(max(0.0, first + number * every_s / count - time.perf_counter()))
                    nursery.start_soon(timer, number, time.perf_counter())
                await trio.sleep(lasts_s)
                nursery.cancel_scope.cancel()
            return ticks

        return trio.run(main)


class AnyioThreads(Contestant):
    """anyio.to_thread.run_sync with a capacity limiter."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Start tasks that each run the body in a thread."""

        async def main() -> dict[str, float]:
            limiter = anyio.CapacityLimiter(workers)

            async def limited() -> None:
                await anyio.to_thread.run_sync(fn, limiter=limiter)

            await limited()
            begin = time.perf_counter()
            async with anyio.create_task_group() as group:
                for _ in range(tasks):
                    group.start_soon(limited)
                submitted = time.perf_counter()
            end = time.perf_counter()
            return {"submit": submitted - begin, "collect": end - submitted, "total": end - begin}

        return anyio.run(main)

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Collect the results of bodies that run in threads."""

        async def main() -> list[Any]:
            limiter, results = anyio.CapacityLimiter(workers), []

            async def limited(arg: object) -> None:
                results.append(await anyio.to_thread.run_sync(fn, arg, limiter=limiter))

            async with anyio.create_task_group() as group:
                for arg in args:
                    group.start_soon(limited, arg)
            return results

        return anyio.run(main)
