"""Count what one no-op allocates, tracks and stores: the collector and the allocator are most of what a task costs.

Run it with ``make bench-own``, or ``python bench/objects.py``. Figures are for one task, exact and repeatable.
"""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections import Counter
from contextvars import Context
from typing import NamedTuple

from whywait import Authority

TASKS = 2_000


class Cost(NamedTuple):
    """What one task costs while it waits."""

    tracked: dict[str, float]  # objects that the garbage collector walks, by class
    bytes: float

    @property
    def objects(self) -> float:
        """How many objects the collector walks for one task."""
        return sum(self.tracked.values())


def nothing() -> None:
    """Do nothing."""


def pending_cost(tasks: int = TASKS) -> Cost:
    """Return what one pending no-op costs, its handle held, where no context variable is set."""
    return Context().run(_pending_cost, tasks)


def _pending_cost(tasks: int) -> Cost:
    gate = threading.Event()
    with Authority(slots=1, cpu=64, ram="64GB", events=10) as authority:
        authority.submit(gate.wait)
        for _ in range(20):
            authority.submit(nothing)
        gc.collect()
        gc.disable()
        try:
            before = Counter(type(each).__name__ for each in gc.get_objects())
            tracemalloc.start()
            begin = tracemalloc.get_traced_memory()[0]
            handles = [authority.submit(nothing) for _ in range(tasks)]
            used = tracemalloc.get_traced_memory()[0] - begin - sys.getsizeof(handles)
            tracemalloc.stop()
            gc.collect()
            after = Counter(type(each).__name__ for each in gc.get_objects())
        finally:
            gc.enable()
            gate.set()
    grown = {name: (after[name] - before[name]) / tasks for name in after}
    tracked = {name: round(count, 2) for name, count in grown.items() if count > 0.1}  # noqa: PLR2004 - not one a task
    return Cost(tracked, used / tasks)


def main() -> None:
    """Print the figures."""
    cost = pending_cost()
    print(f"a pending no-op: {cost.bytes:.0f} bytes, {cost.objects:g} objects that the collector walks")
    for name, count in sorted(cost.tracked.items()):
        print(f"  {count:g} {name}")


if __name__ == "__main__":
    main()
