"""Measure periodic tasks against APScheduler, an idle authority, and how soon a pause or an abort arrives.

Run it with ``make periodic``, or ``python bench/periodic.py --quick``. APScheduler is in the extra ``bench``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from whywait import Authority, Command, Scope, current

COUNT = 1000
SLOTS = 4
INTERVAL_NS = 1_000_000_000
MS = 1_000_000
PACE_S = 0.0002  # between two periodics that are added
AT_MOST_MS = 50.0  # how long a pause or an abort may take


def quantile(values: list[float], share: float) -> float:
    """Return the value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def paced() -> Iterator[int]:
    """Yield numbers at a fixed rate, so that the ticks of both fall equally dense."""
    begin = time.perf_counter()
    for number in range(COUNT):
        while time.perf_counter() < begin + number * PACE_S:
            pass
        yield number


def ours(seconds: float) -> tuple[list[float], int, float]:
    """Return how late iterations started (ms), the sum of all drifts of the grid (ns), and the CPU time used (s)."""
    late: list[float] = []
    with Authority(slots=SLOTS, engine="thread") as authority:
        scope = authority.scope("bench")
        begun = []

        def body(number: int) -> None:
            late.append((time.monotonic_ns() - begun[number]) % INTERVAL_NS / MS)

        for number in paced():
            scope.periodic(body, number, every=1)
            begun.append((authority.snapshot().periodics[-1].next_run_at or 0) - INTERVAL_NS)
        cpu = time.process_time()
        time.sleep(seconds)
        cpu = time.process_time() - cpu
        planned = [view.next_run_at or 0 for view in authority.snapshot().periodics]
        scope.dispose()
    drift = sum((at - begin) % INTERVAL_NS for at, begin in zip(planned, begun, strict=True))
    return late, drift, cpu


def theirs(seconds: float) -> tuple[list[float], float]:
    """Return how late the jobs of APScheduler started (ms), and the CPU time used (s)."""
    from apscheduler.executors.pool import ThreadPoolExecutor  # noqa: PLC0415 - an extra, may be missing
    from apscheduler.schedulers.background import BackgroundScheduler  # noqa: PLC0415 - the same

    late: list[float] = []
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(SLOTS)}, timezone=UTC)
    begun = []

    def body(number: int) -> None:
        late.append((time.time() - begun[number]) * 1e9 % INTERVAL_NS / MS)

    scheduler.start(paused=True)
    for number in paced():
        begin = time.time()
        begun.append(begin)
        at = datetime.fromtimestamp(begin, UTC)
        scheduler.add_job(body, "interval", seconds=1, args=[number], start_date=at)
    scheduler.resume()
    cpu = time.process_time()
    time.sleep(seconds)
    cpu = time.process_time() - cpu
    scheduler.shutdown(wait=True)
    return late, cpu


def compare(rounds: int, seconds: float) -> None:
    """Print how late both are, in turn: what else the machine does hits now one and now the other."""
    late: dict[str, list[list[float]]] = {"whywait": [], "APScheduler": []}
    used = dict.fromkeys(late, 0.0)
    drift = 0
    for _ in range(rounds):
        values, more, cpu = ours(seconds)
        late["whywait"].append(values)
        used["whywait"] += cpu
        drift += more
        try:
            values, cpu = theirs(seconds)
        except ImportError:
            continue
        late["APScheduler"].append(values)
        used["APScheduler"] += cpu
    print(f"{COUNT} periodics at 1 s on {SLOTS} slots, {rounds} rounds of {seconds:g} s in turn; medians of the rounds")
    print(f"  {'':<12} {'runs':>7} {'late, median':>13} {'99 %':>9} {'worst':>9} {'CPU':>6}")
    tails = {}
    for name, runs in late.items():
        if not runs:
            print("  APScheduler is not installed: pip install '.[bench]'")
            return
        middle, tail, worst = (statistics.median(quantile(run, share) for run in runs) for share in (0.5, 0.99, 1.0))
        tails[name] = tail
        cpu = used[name] / rounds / seconds
        count = sum(map(len, runs))
        print(f"  {name:<12} {count:>7} {middle:>10.2f} ms {tail:>6.2f} ms {worst:>6.2f} ms {cpu:>5.1%}")
    print(f"  accumulated drift of the plan: {drift} ns (goal: 0)")
    print(f"  99 % lateness: {tails['whywait'] / tails['APScheduler']:.2f} of APScheduler's (goal: 1 or less)")


def idle(seconds: float) -> None:
    """Print what an authority with many periodics that are off costs."""
    before = time.process_time()
    time.sleep(seconds)
    bare = time.process_time() - before
    with Authority(slots=SLOTS) as authority:
        scope = authority.scope("bench")
        for _ in range(COUNT):
            scope.periodic(int, every=1, enabled=False)
        scope.submit(int).result()
        before = time.process_time()
        time.sleep(seconds)
        used = time.process_time() - before
    told = f"{used * 1000:.2f} ms of CPU with {COUNT} periodics off, {bare * 1000:.2f} ms without"
    print(f"idle for {seconds:g} s: {told}")


def steps() -> None:
    """Go on until asked to end, with a checkpoint each millisecond."""
    context = current()
    context.emit("begun")
    while True:
        context.checkpoint()
        context.signal.wait(0.001)


async def steps_async() -> None:
    """Do the same in a coroutine."""
    context = current()
    context.emit("begun")
    while True:
        await context.checkpoint_async()
        await asyncio.sleep(0.001)


BODIES: dict[str, Callable[..., Any]] = {
    "thread": steps,
    "simple": steps,
    "asyncio": steps_async,
    "process": steps,
    "command": Command(["sleep", "60"]),
}


def one_latency(scope: Scope, engine: str) -> tuple[float, float]:
    """Return how long a pause, and then an abort, took to have its effect (ms)."""
    handle = scope.submit(BODIES[engine], engine=engine)
    if engine == "command":
        time.sleep(0.1)  # let it begin: what is measured is the request, not the start
    else:
        next(handle.stream())
    begin = time.perf_counter()
    handle.pause()
    paused = time.perf_counter() - begin
    handle.resume()
    time.sleep(0.01)
    begin = time.perf_counter()
    handle.cancel()
    handle.exception()
    return paused * 1000, (time.perf_counter() - begin) * 1000


def latencies(times: int) -> None:
    """Print how soon pause and abort arrive on each engine."""
    print(f"pause until parked, abort until ended: median and worst of {times} (goal: {AT_MOST_MS:g} ms)")
    for engine in BODIES:
        with Authority(slots=1, engine="simple" if engine == "simple" else None) as authority:
            scope = authority.scope("bench")
            measured = [one_latency(scope, engine) for _ in range(times)]
        told = [f"{statistics.median(each):6.2f} ms {max(each):6.2f} ms" for each in zip(*measured, strict=True)]
        verdict = "" if max(map(max, measured)) <= AT_MOST_MS else "  above the goal"
        print(f"  {engine:<8} pause {told[0]}   abort {told[1]}{verdict}")


def checkpoints(times: int) -> None:
    """Print what a checkpoint costs when nothing is asked for."""

    def body() -> float:
        context = current()
        begin = time.perf_counter()
        for _ in range(times):
            context.checkpoint()
        return (time.perf_counter() - begin) / times

    with Authority(slots=1) as authority:
        cost_s = authority.submit(body).result()
    print(f"a checkpoint costs {cost_s * 1e9:.0f} ns (goal: well under 1000)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="12 s instead of 60 s, fewer repetitions")
    quick = parser.parse_args().quick
    checkpoints(200_000)
    latencies(5 if quick else 20)
    idle(3 if quick else 10)
    compare(3 if quick else 6, 4 if quick else 10)


if __name__ == "__main__":
    main()
