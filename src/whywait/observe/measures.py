"""The arithmetic that every summary of a run shares: sums by cause, use of a limit, quantiles, starvation.

The run report takes its numbers from the kernel's accounts, a simulation from its tally, a saved run from the fold of
its events; what they make of these numbers is the same and stands here. Times come in as ns and go out as ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from whywait.kernel.devices import Devices, Unit
from whywait.kernel.starvation import Signals
from whywait.kernel.state import Wait
from whywait.support.units import in_ms

# Waiting that comes before READY: no slot, budget or priority has a part in it.
BEFORE_READY: Final = frozenset({Wait.DEPENDENCY, Wait.BACKOFF, Wait.OVERLAP, Wait.PAUSED})
_QUANTILES: Final = (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))


def waited_for_ms(waits: Mapping[str, int]) -> dict[str, float]:
    """Return the waiting by cause, without the causes for which nothing waited."""
    return {cause: in_ms(ns) for cause, ns in waits.items() if ns}


def use_of_limit(used_ns: float, span_ns: float, peak: int, limit: int | None) -> dict[str, Any]:
    """Return how much of a limit was in use: ``used_ns`` is amount times time within ``span_ns``."""
    mean = used_ns / span_ns if span_ns else 0.0
    share = round(mean / limit, 6) if limit else None
    return {"mean": round(mean, 6), "peak": peak, "limit": limit, "share": share}


def unit_name(devices: Devices, unit: Unit) -> str:
    """Return what a unit is called among the limits of a run: "gpu 0"."""
    return f"{devices.name} {unit.name}"


def quantiles(ordered_ns: list[int]) -> dict[str, float]:
    """Return exact quantiles of sorted times: the smallest value that at least so many percent do not exceed."""
    count = len(ordered_ns)
    row: dict[str, float] = {"tasks": count}
    for name, percent in _QUANTILES:
        row[name] = in_ms(ordered_ns[max(0, -(-count * percent // 100) - 1)]) if count else 0
    return row


def starvation(
    signals: Signals,
    tasks: int,
    past_timeout: int,
    timeout_ns: int,
    worst: Iterable[tuple[int, int, str, int, int]],
) -> dict[str, Any]:
    """Return how many tasks starved and how long, and the ``worst``: ns, tie-break, id, attempt and priority of each.

    The worst are of those that have left READY at least once.
    """
    rows = [
        {"id": ident, "attempt": attempt, "priority": priority, "ms": in_ms(ns)}
        for ns, _, ident, attempt, priority in sorted(worst, reverse=True)
    ]
    return {
        "now": signals.now,
        "longest_ms": in_ms(signals.longest_ns),
        "total_ms": in_ms(signals.total_ns),
        "tasks": tasks,
        "timeout_ms": in_ms(timeout_ns),
        "past_timeout": past_timeout,
        "worst": rows,
    }
