"""A run in numbers, as its kernel has accounted for it: the part that the report of a run and a simulation share.

Times come in as ns and go out as ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whywait.support.units import in_ms

if TYPE_CHECKING:
    from whywait.kernel.gates import Gate
    from whywait.kernel.kernel import Kernel


def summary_of(
    kernel: Kernel, now: int, began_ns: int, starved_until_ns: int, peaks: Mapping[Gate, int]
) -> dict[str, Any]:
    """Return totals of the run from ``began_ns`` to ``now``; ``peaks``: of gates that were fuller before."""
    stats, starved = kernel.stats, kernel.starvation
    signals = starved.signals(starved_until_ns, kernel.lanes_in_use())
    span_ns = now - began_ns
    use = {}
    for gate in (kernel.slots, *kernel.resources.values()):
        peak = max(gate.in_use, peaks.get(gate, 0))
        name = "slots" if gate is kernel.slots else gate.name
        use[name] = _use(kernel.used_ns(now, gate), span_ns, gate.in_use, peak, gate.limit)
    for kind, devices in kernel.devices.items():
        for unit in devices.units:
            use[f"{kind} {unit.name}"] = _use(unit.used_ns(now), span_ns, unit.in_use, unit.peak, unit.capacity)
    return {
        "makespan_ms": in_ms(span_ns),
        "tasks": stats.submitted - stats.iterations,
        "iterations": stats.iterations,
        "attempts": stats.submitted + stats.retried,
        "outcomes": {**stats.by_outcome, "pending": sum(len(scope.tasks) for scope in kernel.scopes.values())},
        "running": len(kernel.running),
        "utilisation": use,
        "waited_for_ms": waited_for_ms(stats.waited_for_ns()),
        "starved": {
            "now": signals.now,
            "longest_ms": in_ms(signals.longest_ns),
            "total_ms": in_ms(signals.total_ns),
            "tasks": starved.tasks,
            "timeout_ms": in_ms(kernel.starvation_timeout_ns),
            "past_timeout": stats.starved,
            "worst": [
                {"id": row.id, "attempt": row.attempt, "priority": row.priority, "ms": in_ms(row.starved_ns)}
                for row in sorted(starved.worst, reverse=True)
            ],
        },
        "promotions": stats.promotions,
        "drops": dict(stats.dropped),
        "rejects": dict(stats.rejected),
    }


def waited_for_ms(waits: Mapping[str, int]) -> dict[str, float]:
    """Return the waiting by cause, without the causes for which nothing waited."""
    return {cause: in_ms(ns) for cause, ns in waits.items() if ns}


def _use(used_ns: float, span_ns: int, now: int, peak: int, limit: int | None) -> dict[str, Any]:
    """Return how much of a limit was in use: ``used_ns`` is amount times time within ``span_ns``."""
    mean = used_ns / span_ns if span_ns else 0.0
    share = round(mean / limit, 6) if limit else None
    return {"mean": round(mean, 6), "peak": peak, "limit": limit, "share": share, "now": now}
