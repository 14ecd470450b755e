"""How much a workload stands for: a short file can ask for more attempts and ticks than anyone waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.limits import Retry
from whywait.simulation.workload import TaskKind, Workload
from whywait.support.lines import Path
from whywait.support.units import NS_PER_MS

MOST: Final = 2_000_000  # attempts and ticks beside those that the file lists one by one: about a minute


def check_size(workload: Workload, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a simulation would go through more retries or ticks than it may; name the worst."""
    left = MOST
    retries = {number: _retries(kind, workload, config) for number, kind in enumerate(workload.kinds)}
    if any(retries.values()):
        for number, count in Counter(workload.kind_of).items():
            left -= retries[number] * count
            if left < 0:
                index = workload.kind_of.index(number)
                raise _too_much(workload, ("tasks", index, "retry"), "attempts: retry less often, or let fewer fail")
    for index, spec in enumerate(workload.periodics):
        left -= spec.until_ms * NS_PER_MS // spec.every_ns
        if left < 0:
            raise _too_much(workload, ("periodics", index, "until_ms"), "ticks: end sooner, or tick less often")


def _retries(kind: TaskKind, workload: Workload, config: Mapping[str, Any]) -> int:
    """Return how often a task of this kind is tried again."""
    if not kind.fails:
        return 0
    settings: list[Mapping[str, Any]] = [dict(kind.policy)]
    scope = workload.scopes.get(kind.scope or "")
    while scope is not None:
        settings.append(scope)
        scope = workload.scopes.get(scope.get("parent") or "")
    retry = next((each["retry"] for each in (*settings, config) if "retry" in each), 0)
    return min(kind.fails, retry.times if isinstance(retry, Retry) else retry or 0)


def _too_much(workload: Workload, path: Path, what: str) -> ConfigError:
    return workload.problem(path, f"the workload stands for more than {MOST:,} {what}")
