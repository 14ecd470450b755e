"""From the moment a worker is free to the first line of the next task, idle and beside a thread that computes."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

from contestants.base import Contestant
from task_bodies import stamped

_BODY_S = 0.0002


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return quantiles in microseconds on one worker."""
    figures = {}
    for where in ("idle", "busy"):
        stop = threading.Event()
        if where == "busy":
            threading.Thread(target=_compute, args=(stop,), daemon=True).start()
        try:
            stamps = sorted(contestant.run_all(1, stamped, [_BODY_S] * params["tasks"]))
        finally:
            stop.set()
        gaps = sorted((after[0] - before[1]) * 1e6 for before, after in pairwise(stamps))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"{where}/{name}"] = gaps[round(share * (len(gaps) - 1))]
    return figures


def _compute(stop: threading.Event) -> None:
    """Hold the GIL as much as one thread can."""
    while not stop.is_set():
        sum(range(200))
