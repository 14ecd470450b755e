"""Small, nasty workloads: few ids, colliding instants, ties, tight budgets, ops at awkward moments.

One recipe, :func:`make_workload`, asks a chooser for every decision. :class:`Seeded` answers from a seed, for bulk
runs; :func:`workloads` lets hypothesis answer, so that a failure shrinks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

PRIORITIES = (0, 20, 50, 50, 50, 80, 100, 49, 51)
LANE_KEYS = ("priority", "scope", "cpu", "ram", "vram", "resources", "gpu", "devices", "slot")
IDS = ("a", "b", "c", "d", "e", "f", "g", "h", "B", "a1", "a10", "a2", "é", "_")


class Chooser(Protocol):
    """Whoever makes the decisions."""

    def integer(self, low: int, high: int) -> int: ...

    def choice(self, options: Sequence[T]) -> T: ...

    def chance(self, percent: int) -> bool: ...


class Seeded:
    """Decisions from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent


class Drawn:
    """Decisions by hypothesis; the first option and `False` are the simplest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent


@st.composite
def workloads(draw: st.DrawFn, *, devices: bool = False) -> dict[str, Any]:
    return make_workload(Drawn(draw), devices=devices)


def make_workload(choose: Chooser, *, devices: bool = False) -> dict[str, Any]:
    """A workload of up to a dozen tasks. Each feature is used by some workloads only, so that each can matter."""
    config = make_config(choose)
    if devices:
        add_devices(choose, config)
    timed = choose.chance(40)
    chained = choose.chance(60)
    tasks: list[dict[str, Any]] = []
    at_ms = 0
    for _ in range(choose.integer(1, 14)):
        taken = [task["id"] for task in tasks]
        unused = [name for name in IDS if name not in taken]
        name = choose.choice(IDS if choose.chance(5) else unused)
        at_ms += choose.choice((0, 0, 0, 1, 2, 5))
        task = make_task(choose, config, name, at_ms, timed=timed)
        if tasks and choose.chance(40):  # the same lane again
            task |= {key: value for key, value in choose.choice(tasks).items() if key in LANE_KEYS}
        if chained and tasks:
            add_dependencies(choose, task, [other["id"] for other in tasks])
        tasks.append(task)
    if choose.chance(10):
        tasks.sort(key=lambda task: task["duration_ms"])  # file order is not time order; some dependencies come late
    ops: list[dict[str, Any]] = []
    if choose.chance(60):
        for _ in range(choose.integer(1, 5)):
            ops += make_ops(choose, tasks)
    return {"config": config, "tasks": tasks, "ops": ops}


def make_config(choose: Chooser) -> dict[str, Any]:
    config: dict[str, Any] = {"slots": choose.choice((1, 2, 1, 3, 4, None, 2))}
    config |= make_order(choose)
    config["backfill"] = choose.choice(("greedy", "none"))
    if choose.chance(50):
        config["cpu"] = choose.integer(1, 4)
    if choose.chance(40):
        config["ram"] = choose.choice((4, 3, 6, 0))
    if choose.chance(30):
        config["vram"] = choose.choice((4, 3))
    if choose.chance(20):
        config["resources"] = {"lic": choose.integer(1, 2)}
    if choose.chance(20):
        config["soft"] = {"disk": choose.integer(1, 4)}
    crowded = choose.chance(10)
    config |= make_limits(choose, crowded=crowded)
    config |= make_policy(choose, percent=10)
    if crowded or choose.chance(50):
        config["scopes"] = make_scopes(choose, crowded=crowded)
    return config


def add_devices(choose: Chooser, config: dict[str, Any]) -> None:
    """Cards of a few sizes, or rigs, or both; more slots than without, so that they matter."""
    config.pop("vram", None)
    config["slots"] = choose.choice((None, 4, 2))
    kinds = choose.choice((("gpus",), ("gpus", "rigs"), ("rigs",)))
    if "gpus" in kinds:
        config["gpus"] = [choose.choice((6, 4, 8, 0)) for _ in range(choose.integer(1, 3))]
    if "rigs" in kinds:
        config["devices"] = {"rig": ["b", "a", "c"][: choose.integer(1, 3)]}


def make_order(choose: Chooser) -> dict[str, Any]:
    ties = {"ties": "id"} if choose.chance(20) else {}
    if choose.chance(30):
        return {"order": "strict", **ties}
    return {
        "order": "aging",
        **ties,
        "every_ms": choose.choice((3, 4, 5, 7, 10, 20)),
        "boost": choose.choice((10, 1, 15, 30, 50, 100, 0)),
        "cap": choose.choice((99, 100, None, 60)),
    }


def make_limits(choose: Chooser, *, crowded: bool) -> dict[str, Any]:
    """Crowded: every level has a queue limit, and they are reached together."""
    limits: dict[str, Any] = {}
    if crowded:
        limits = {"queue_limit": choose.integer(2, 4), "overflow": "displace"}
    elif choose.chance(30):
        limits["queue_limit"] = choose.choice((3, 2, 1, 4, 0))
        limits["overflow"] = choose.choice(("displace", "reject"))
    if choose.chance(10):
        limits["when_busy"] = "reject"
    return limits


def make_policy(choose: Chooser, percent: int) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    if choose.chance(percent):
        policy["max_wait_ms"] = choose.choice((5, 0, 1, 10, 12, None))
    if choose.chance(percent):
        policy["timeout_ms"] = choose.choice((5, 1, 3, 10, None))
    if choose.chance(percent):
        policy["retry"] = choose.integer(0, 3)
        if choose.chance(50):
            policy["backoff_ms"] = choose.integer(0, 6)
    return policy


def make_scopes(choose: Chooser, *, crowded: bool) -> dict[str, dict[str, Any]]:
    scopes: dict[str, dict[str, Any]] = {}
    for key in ("p", "q", "r")[: choose.integer(1, 3)]:
        scope: dict[str, Any] = {"slots": choose.choice((1, 2, 3, None))}
        if scopes and choose.chance(60):
            scope["parent"] = choose.choice(tuple(scopes))
        if crowded or choose.chance(30):
            scope |= make_limits(choose, crowded=crowded)
        if choose.chance(10):
            scope["max_spawn"] = choose.integer(0, 4)
        if choose.chance(20):
            scope["on_error"] = "abort"
        scope |= make_policy(choose, percent=6)
        scopes[key] = scope
    return scopes


def make_task(choose: Chooser, config: dict[str, Any], name: str, at_ms: int, *, timed: bool) -> dict[str, Any]:
    task: dict[str, Any] = {
        "id": name,
        "at_ms": at_ms,
        "duration_ms": choose.choice((1, 2, 3, 5, 5, 10, 10, 12)),
    }
    if choose.chance(70):
        task["priority"] = choose.choice(PRIORITIES)
    if "scopes" in config and choose.chance(70):
        task["scope"] = choose.choice((*config["scopes"], "free"))
    add_demand(choose, config, task)
    if choose.chance(10):
        task["slot"] = False
    if choose.chance(15):
        task["outcome"] = "error"
    if timed:
        task |= make_policy(choose, percent=30)
    if choose.chance(15):
        task |= {"retry": choose.integer(1, 3), "fails": choose.integer(0, 3), "backoff_ms": choose.integer(0, 6)}
    return task


def add_demand(choose: Chooser, config: dict[str, Any], task: dict[str, Any]) -> None:
    """Often half or all of a limit, sometimes more than a soft limit, seldom more than a hard cap."""
    for resource in ("cpu", "ram", "vram"):
        if resource in config and choose.chance(60):
            top = config[resource] + (2 if resource != "cpu" or choose.chance(5) else 0)
            task[resource] = choose.integer(1, top)
        elif choose.chance(3):
            task[resource] = 1
    if "gpus" in config and choose.chance(70):
        if choose.chance(60):
            task["vram"] = choose.integer(1, max(1, *config["gpus"]) + choose.chance(5))
        if choose.chance(60):
            task["gpu"] = choose.integer(0, len(config["gpus"]) + choose.chance(5))
    if "devices" in config and choose.chance(50):
        task["devices"] = {"rig": choose.integer(0, len(config["devices"]["rig"]))}
    named = config.get("resources", {}) | config.get("soft", {})
    wanted = {name: choose.integer(0, limit + 1) for name, limit in named.items() if choose.chance(50)}
    if wanted:
        task["resources"] = wanted


def add_dependencies(choose: Chooser, task: dict[str, Any], earlier: Sequence[str]) -> None:
    """Chains, diamonds, and dependencies on what was refused, failed or dropped before, or is its own namesake."""
    if choose.chance(40):
        task["after"] = [choose.choice(earlier) for _ in range(choose.integer(1, 3))]
    if choose.chance(15):
        task["after_ended"] = [choose.choice(earlier) for _ in range(choose.integer(1, 2))]


def make_ops(choose: Chooser, tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One op, or a pause and its resume, often exactly when some task is submitted or would complete."""
    name = choose.choice(tasks)["id"]
    first, second = sorted((awkward_moment(choose, tasks), awkward_moment(choose, tasks)))
    if choose.chance(50):
        return [{"at_ms": first, "do": "pause", "id": name}, {"at_ms": second, "do": "resume", "id": name}]
    return [{"at_ms": first, "do": choose.choice(("cancel", "pause", "resume")), "id": name}]


def awkward_moment(choose: Chooser, tasks: Sequence[dict[str, Any]]) -> int:
    task = choose.choice(tasks)
    return choose.choice((task["at_ms"], task["at_ms"] + task["duration_ms"], choose.integer(0, 25)))
