"""Many periodic timers: how late their ticks are, and whether they drift from their grid."""

from __future__ import annotations

import statistics
from typing import Any

from contestants.base import Contestant


def measure(contestant: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return quantiles of the lateness in ms, the drift (last tick against first) in ms, and the share of ticks."""
    count, every_s, ticks = params["timers"], params["every_s"], params["ticks"]
    by_timer = contestant.timers(count, every_s, every_s * (ticks + 0.5))
    late = [[(real - planned) * 1e3 for planned, real in one] for one in by_timer]
    flat = sorted(value for one in late for value in one)
    return {
        "p50": flat[round(0.5 * (len(flat) - 1))],
        "p99": flat[round(0.99 * (len(flat) - 1))],
        "drift": statistics.median(one[-1] - one[0] for one in late if one),
        "share": sum(min(len(one), ticks) for one in late) / (count * ticks),
    }
