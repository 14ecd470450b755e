"""What submit, start, cancel, why and the memory of a task cost with more and more tasks pending."""

from __future__ import annotations

import gc
import os
import statistics
import time
from pathlib import Path
from typing import Any

from contestants.base import Contestant


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for one of each, and resident bytes for a pending task; few tasks are measured repeatedly."""
    found = [_measure(contestant, params) for _ in range(params["repeat"])]
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def _measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    tasks = params["tasks"]
    figures: dict[str, float] = {}
    before = last = 0.0
    for done, count in contestant.pending(tasks):
        now = time.perf_counter()
        if done == "ready":
            gc.collect()
            before = _resident()
        else:
            figures[done] = (now - last) / count * 1e6
        if done == "submit" and tasks >= params["memory_from"]:
            figures["bytes"] = (_resident() - before) / tasks
        last = time.perf_counter()
    return figures


def _resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
