"""Measure the kernel and the simulator: every figure is a ratio within this run, so a noisy machine does not matter.

Run it with ``make bench``, or ``python bench/kernel.py --quick``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from whywait import Simulation
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, make_demand
from whywait.kernel.model import Scope

RING = 10_000


def make_kernel(slots: int | None = 2, budget: Budget | None = None) -> tuple[Kernel, Scope]:
    """Return a kernel with a bounded event ring and one scope."""
    kernel = Kernel(Limits(slots=slots), budget or Budget(), emit=deque(maxlen=RING).append)
    return kernel, kernel.open_scope(0, "work")


def drain(kernel: Kernel, now: int) -> int:
    """Run everything to its end, each task one nanosecond; return the time."""
    running = deque(kernel.dispatch(now).started)
    while running:
        now += 1
        kernel.ended(now, running.popleft(), "success")
        running.extend(kernel.dispatch(now).started)
    return now


def cost_at(pending: int) -> float:
    """Return the microseconds for submit, start and finish of one task with so many pending."""
    repeat = max(1, 20_000 // pending)
    elapsed = 0.0
    for _ in range(repeat):
        kernel, scope = make_kernel()
        begin = time.perf_counter()
        for now in range(pending):
            kernel.submit(now, scope)
        drain(kernel, pending)
        elapsed += time.perf_counter() - begin
    return elapsed / repeat / pending * 1e6


def stream_cost(parked: int, tasks: int) -> float:
    """Return the microseconds for one task of a stream while so many lanes wait behind a closed gate."""
    kernel, scope = make_kernel(slots=3, budget=Budget({"cpu": 1}, {"ram": parked + 2}))
    kernel.submit(0, scope, demand=make_demand(cpu=1, ram=parked + 1))
    for number in range(parked):
        kernel.submit(0, scope, demand=make_demand(ram=2 + number))
    kernel.dispatch(0)
    begin = time.perf_counter()
    for now in range(1, tasks + 1):
        kernel.submit(now, scope)
        for task in kernel.dispatch(now).started:
            kernel.ended(now, task, "success")
            kernel.dispatch(now)
    return (time.perf_counter() - begin) / tasks * 1e6


def demand_cost(pending: int, *, distinct: bool) -> float:
    """Return the microseconds for one task when RAM is tight and demands are all equal, or all different."""
    kernel, scope = make_kernel(slots=None, budget=Budget({}, {"ram": pending * 4}))
    amounts = [pending + (number * 7919) % pending if distinct else pending * 3 // 2 for number in range(pending)]
    begin = time.perf_counter()
    for amount in amounts:
        kernel.submit(0, scope, demand=(("ram", amount),))
    drain(kernel, 0)
    return (time.perf_counter() - begin) / pending * 1e6


def why_cost(pending: int) -> float:
    """Return the milliseconds of one ``why`` in the middle of so many pending tasks."""
    kernel, scope = make_kernel()
    tasks = [kernel.submit(now, scope, priority=(20, 50, 80)[now % 3]) for now in range(pending)]
    kernel.dispatch(pending)
    asked = tasks[pending // 2 : pending // 2 + 20]
    begin = time.perf_counter()
    for task in asked:
        kernel.why(pending, task)
    return (time.perf_counter() - begin) / len(asked) * 1e3


def bytes_per_task(pending: int) -> float:
    """Return the memory of one pending task, events in a bounded ring included."""
    kernel, scope = make_kernel()
    tracemalloc.start()
    for now in range(pending):
        kernel.submit(now, scope)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / pending


def simulate(tasks: int) -> float:
    """Return the seconds to simulate so many independent tasks."""
    rows = [{"id": f"t{number}", "at_ms": 0, "duration_ms": 1} for number in range(tasks)]
    begin = time.perf_counter()
    Simulation({"config": {"slots": 2}, "tasks": rows}).run()
    return time.perf_counter() - begin


def run_pool(tasks: int) -> float:
    """Return the seconds that ThreadPoolExecutor(2) needs for so many no-ops."""
    with ThreadPoolExecutor(2) as pool:
        begin = time.perf_counter()
        for future in [pool.submit(int) for _ in range(tasks)]:
            future.result()
        return time.perf_counter() - begin


def compare(title: str, goal: str, rounds: int, first: Callable[[], float], second: Callable[[], float]) -> None:
    """Measure two things in turn and print the median ratio with its spread."""
    pairs = [(first(), second()) for _ in range(rounds)]
    ratios = sorted(a / b for a, b in pairs)
    left, right = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = f"{ratios[0]:.2f}..{ratios[-1]:.2f}"
    print(f"{title:<58} {left:>9.3f} {right:>9.3f} {statistics.median(ratios):>7.2f}  {spread:<12} {goal}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, three rounds")
    quick = parser.parse_args().quick
    many, rounds = (100_000, 3) if quick else (1_000_000, 3)
    tenth = many // 10
    print(f"{'':<58} {'first':>9} {'second':>9} {'ratio':>7}  {'spread':<12} goal")
    compare(f"µs a task, {many} pending / 1000", "<= 1.3", rounds, lambda: cost_at(many), lambda: cost_at(1000))
    title = "µs a task of a stream, 10,000 lanes parked / none"
    compare(title, "<= 1.1", rounds, lambda: stream_cost(10_000, tenth), lambda: stream_cost(1, tenth))
    title = f"µs a task, {tenth} different RAM demands / equal ones"
    compare(
        title, "<= 3", rounds, lambda: demand_cost(tenth, distinct=True), lambda: demand_cost(tenth, distinct=False)
    )
    title = f"s, {tenth} tasks simulated / in ThreadPoolExecutor(2)"
    compare(title, "<= 0.5", rounds, lambda: simulate(tenth), lambda: run_pool(tenth))
    title = f"ms for one why, {many} pending / 1000"
    compare(title, "first - second <= 1", rounds, lambda: why_cost(many), lambda: why_cost(1000))
    print(f"{'bytes a pending task':<58} {bytes_per_task(tenth):>9.0f} {'':>9} {'':>7}  {'':<12} <= 700")


if __name__ == "__main__":
    main()
