"""Measure the runtime against the executors and task groups of the standard library, in turn, within one run.

Run it with ``make bench-own``, or ``python bench/runtime.py --quick``. Every row is a ratio of medians; what is better
is said in the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise

from contestants.base import time_shutdown
from whywait import Authority


def nothing() -> None:
    """Do nothing."""


async def nothing_async() -> None:
    """Do nothing, as a coroutine."""


def make_authority(slots: int, engine: str = "thread") -> Authority:
    """Return an authority with priorities, aging, budget, events and why all on."""
    return Authority(slots=slots, cpu=64, ram="64GB", engine=engine)


def ours(workers: int, tasks: int, engine: str = "thread") -> float:
    """Return the seconds for no-ops through whywait, results collected."""
    with make_authority(workers, engine) as authority:
        for handle in [authority.submit(nothing) for _ in range(workers)]:
            handle.result()
        begin = time.perf_counter()
        for handle in [authority.submit(nothing) for _ in range(tasks)]:
            handle.result()
        return time.perf_counter() - begin


def theirs(make: Callable[[int], StandardExecutor], workers: int, tasks: int) -> float:
    """Return the seconds for no-ops through an executor of the standard library, results collected."""
    with make(workers) as pool:
        for future in [pool.submit(nothing) for _ in range(workers)]:
            future.result()
        begin = time.perf_counter()
        for future in [pool.submit(nothing) for _ in range(tasks)]:
            future.result()
        return time.perf_counter() - begin


async def coroutines_ours(tasks: int) -> float:
    """Return the seconds for coroutines in a scope of 16 slots."""
    async with make_authority(16) as authority:
        begin = time.perf_counter()
        async with authority.scope("bench") as scope:
            for _ in range(tasks):
                scope.submit(nothing_async)
        return time.perf_counter() - begin


async def coroutines_theirs(tasks: int) -> float:
    """Return the seconds for coroutines in a TaskGroup with a semaphore of 16."""
    semaphore = asyncio.Semaphore(16)

    async def limited() -> None:
        async with semaphore:
            await nothing_async()

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(limited())
    return time.perf_counter() - begin


async def awaited_ours(tasks: int) -> float:
    """Return the seconds of CPU time for coroutines that are submitted and awaited one by one."""
    async with make_authority(16) as authority:
        await authority.submit(nothing_async)
        begin = time.process_time()
        for _ in range(tasks):
            await authority.submit(nothing_async)
        return time.process_time() - begin


async def awaited_theirs(tasks: int) -> float:
    """Return the seconds of CPU time for bare tasks that are created and awaited one by one."""
    begin = time.process_time()
    for _ in range(tasks):
        await asyncio.create_task(nothing_async())
    return time.process_time() - begin


def memory_ours(pending: int) -> float:
    """Return the bytes of one pending task."""
    gate = threading.Event()
    with make_authority(1) as authority:
        authority.submit(gate.wait)
        tracemalloc.start()
        handles = [authority.submit(nothing) for _ in range(pending)]
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        gate.set()
        handles[-1].result()
    return used / pending


def memory_theirs(pending: int) -> float:
    """Return the bytes of one pending call of ThreadPoolExecutor."""
    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait)
        tracemalloc.start()
        futures = [pool.submit(nothing) for _ in range(pending)]
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        gate.set()
        futures[-1].result()
    return used / pending


def dispose_ours(pending: int) -> float:
    """Return the seconds to dispose a scope with so many pending tasks."""
    gate = threading.Event()
    with make_authority(1) as authority:
        authority.submit(gate.wait)
        scope = authority.scope("bench")
        handles = [scope.submit(nothing) for _ in range(pending)]
        begin = time.perf_counter()
        scope.dispose()
        elapsed = time.perf_counter() - begin
        gate.set()
        assert handles[-1].outcome == "aborted"
    return elapsed


def dispose_theirs(pending: int) -> float:
    """Return the seconds that ThreadPoolExecutor needs to cancel so many."""
    return time_shutdown(ThreadPoolExecutor(1), pending)


def latencies(submit: Callable[..., object], tasks: int) -> list[float]:
    """Return the times from the end of one task to the first line of the next, on one worker."""
    stamps: list[tuple[float, float]] = []
    done = threading.Event()

    def body(last: bool) -> None:  # noqa: FBT001 - called by position
        begin = time.perf_counter()
        time.sleep(0.0002)
        stamps.append((begin, time.perf_counter()))
        if last:
            done.set()

    for number in range(tasks):
        submit(body, number == tasks - 1)
    done.wait()
    return [after[0] - before[1] for before, after in pairwise(stamps)]


def handover(tasks: int, quantile: float, *, busy: bool) -> tuple[float, float]:
    """Return a quantile of the hand-over latency in microseconds, ours and ThreadPoolExecutor's."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(200))

    if busy:
        threading.Thread(target=spin, daemon=True).start()
    with make_authority(1) as authority:
        mine = latencies(authority.submit, tasks)
    with ThreadPoolExecutor(1) as pool:
        others = latencies(pool.submit, tasks)
    stop.set()
    pick = round(quantile * (tasks - 2))
    return sorted(mine)[pick] * 1e6, sorted(others)[pick] * 1e6


def row(title: str, goal: str, pairs: list[tuple[float, float]]) -> None:
    """Print medians, the median ratio and its spread."""
    ratios = sorted(a / b for a, b in pairs)
    left, right = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = f"{ratios[0]:.2f}..{ratios[-1]:.2f}"
    print(
        f"{title:<52} {left:>11.4g} {right:>11.4g} {statistics.median(ratios):>7.2f}  {spread:<13} {goal}", flush=True
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the size, three rounds")
    quick = parser.parse_args().quick
    tasks, rounds = (20_000, 3) if quick else (100_000, 5)
    print(f"{'':<52} {'whywait':>11} {'peer':>11} {'ratio':>7}  {'spread':<13} goal")
    for workers in (1, 2, 4, 8):
        pairs = [
            (tasks / ours(workers, tasks), tasks / theirs(ThreadPoolExecutor, workers, tasks)) for _ in range(rounds)
        ]
        row(f"no-ops/s, {workers} threads / ThreadPoolExecutor", ">= 3 (floor 1.5)", pairs)
    few = tasks // 20
    pairs = [(few / ours(2, few, "process"), few / theirs(ProcessPoolExecutor, 2, few)) for _ in range(rounds)]
    row("no-ops/s, 2 processes / ProcessPoolExecutor", ">= 2", pairs)
    pairs = [(asyncio.run(coroutines_ours(tasks)), asyncio.run(coroutines_theirs(tasks))) for _ in range(rounds)]
    row("s, coroutines / TaskGroup + Semaphore(16)", "<= 1", pairs)
    pairs = [(asyncio.run(awaited_ours(few)), asyncio.run(awaited_theirs(few))) for _ in range(rounds)]
    row("s of CPU, awaited one by one / bare tasks", "<= 2", pairs)
    row("bytes a pending task / ThreadPoolExecutor", "<= 0.5", [(memory_ours(tasks), memory_theirs(tasks))])
    row(
        "s, dispose / shutdown(cancel_futures)",
        "<= 1",
        [(dispose_ours(tasks), dispose_theirs(tasks)) for _ in range(rounds)],
    )
    for busy in (False, True):
        for quantile in (0.5, 0.99):
            where = "beside a busy thread" if busy else "idle"
            pairs = [handover(tasks // 50, quantile, busy=busy) for _ in range(rounds)]
            row(f"µs from free to start, p{quantile * 100:g}, {where}", "<= 1", pairs)


if __name__ == "__main__":
    main()
