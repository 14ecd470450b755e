"""How far one kernel goes: millions of tasks and thousands of slots in virtual time, and how much memory tasks take.

The same kernel as in a real run, fed by a loop that lets bodies end when their time has come; nothing else happens,
so the figures are what deciding alone costs. ``--pending`` tasks wait at any time (a submitter that keeps a backlog).
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from heapq import heappop, heappush

from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits
from whywait.kernel.model import Task
from whywait.kernel.state import Outcome

MS = 1_000_000


def run(tasks: int, slots: int, pending: int, scopes: int) -> tuple[float, float]:
    """Run so many tasks; return tasks per second of real time, and the virtual makespan in hours."""
    kernel = Kernel(Limits(slots=slots))
    groups = [kernel.open_scope(0, f"scope{i}") for i in range(scopes)]
    dice = random.Random(1)
    ends: list[tuple[int, int, Task]] = []
    now = submitted = done = 0
    began = time.perf_counter()

    def submit(count: int) -> int:
        for _ in range(count):
            kernel.submit(now, groups[dice.randrange(scopes)], None, dice.choice((20, 50, 50, 50, 80)))
        return count

    def start(started: list[Task]) -> None:
        for task in started:
            heappush(ends, (now + dice.randrange(100, 60_000) * MS, task.number, task))

    submitted += submit(min(tasks, pending + slots))
    start(kernel.dispatch(now).started)
    while ends:
        now, _, task = heappop(ends)
        kernel.ended(now, task, Outcome.SUCCESS)
        start(kernel.dispatch(now).started)
        done += 1
        if submitted < tasks:
            submitted += submit(1)
    assert done == tasks, (done, tasks)
    return tasks / (time.perf_counter() - began), now / MS / 3_600_000


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--scopes", type=int, default=10)
    options = parser.parse_args()
    rate, hours = run(options.tasks, options.slots, options.pending, options.scopes)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.tasks:>12,} tasks {options.slots:>7,} slots {options.pending:>10,} pending: "
        f"{rate:10,.0f} tasks/s, {memory:8,.0f} MB, {hours:.1f} h of virtual time"
    )


if __name__ == "__main__":
    main()
