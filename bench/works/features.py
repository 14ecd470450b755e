"""What the features of whywait cost: the same no-ops with one of them on and off."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from contestants.base import Contestant
from task_bodies import nothing
from whywait import Aging, Authority, Strict
from whywait.kernel import starting
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits
from whywait.runtime.authority import core_of

Seconds = Callable[[int], float]


def measure(_: Contestant, params: dict[str, Any]) -> dict[str, float]:
    """Return microseconds for a task, by feature, on and off in turn."""
    tasks = params["tasks"]
    figures: dict[str, float] = {}
    for feature, (on, off) in FEATURES.items():
        for state, act in (("on", on), ("off", off)):
            figures[f"{feature}/{state}"] = act(tasks) / tasks * 1e6
    return figures


def _run(authority: Authority, tasks: int, **options: Any) -> float:  # noqa: ANN401 - those of submit
    with authority:
        for handle in [authority.submit(nothing, **options) for _ in range(8)]:
            handle.result()
        begin = time.perf_counter()
        for handle in [authority.submit(nothing, **options) for _ in range(tasks)]:
            handle.result()
        return time.perf_counter() - begin


def _without_events(tasks: int) -> float:
    authority = Authority(slots=2)
    core_of(authority).kernel.emit_to(None)  # no setting: events=0 only forgets them
    return _run(authority, tasks)


def _subscribed(tasks: int) -> float:
    authority = Authority(slots=2)
    authority.subscribe(nothing)
    return _run(authority, tasks)


def _kernel_turns(tasks: int) -> float:
    """Submit to a kernel and run everything."""
    kernel = Kernel(Limits(slots=2))
    for now in range(tasks):
        kernel.submit(now, kernel.root)
    running = kernel.dispatch(tasks).started
    now = tasks
    begin = time.perf_counter()
    while running:
        now += 1000
        kernel.ended(now, running.pop(), "success")
        running.extend(kernel.dispatch(now).started)
    return time.perf_counter() - begin


def _kernel_without_account(tasks: int) -> float:
    """Do the same with the account of waits taken out: there is no setting for it."""
    charge = starting.charge
    starting.charge = lambda *_: None
    try:
        return _kernel_turns(tasks)
    finally:
        starting.charge = charge


FEATURES: Final[dict[str, tuple[Seconds, Seconds]]] = {
    "events remembered": (lambda tasks: _run(Authority(slots=2), tasks), _without_events),
    "a subscriber to all events": (_subscribed, lambda tasks: _run(Authority(slots=2), tasks)),
    "account of waits (kernel alone)": (_kernel_turns, _kernel_without_account),
    "a demand on the budget": (
        lambda tasks: _run(Authority(slots=2, cpu=2, ram="8GB"), tasks, cpu=1, ram="1GB"),
        lambda tasks: _run(Authority(slots=2, cpu=None, ram=None), tasks),
    ),
    "aging": (
        lambda tasks: _run(Authority(slots=2, order=Aging(every=0.001, boost=1)), tasks),
        lambda tasks: _run(Authority(slots=2, order=Strict()), tasks),
    ),
}
