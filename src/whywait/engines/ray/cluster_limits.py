"""What a cluster has: limits that follow it, demands in Ray's words, and what Ray has too little of."""

from __future__ import annotations

from typing import Any, Final

from whywait.engines.base import EngineTask, Runtime
from whywait.engines.ray.cluster import Node, free_on_nodes, total
from whywait.kernel.limits import MEMORY, Demand
from whywait.kernel.reasons import Shortage
from whywait.kernel.state import Wait

_SOFT: Final = ("ram",)


class FollowedLimits:
    """The limits of an authority that were not set: they are those of the cluster."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._told: dict[str, int] = {}

    def follow(self, nodes: tuple[Node, ...]) -> None:
        """Let the limits be what the nodes have together; what has gone with its node is 0."""
        settings, sums = self._runtime.settings, total(nodes)
        wanted = {name: sums[name] for name in sums if name not in ("cpu", "ram") or name in settings.unset}
        for name in (*settings.budget.hard, *settings.budget.soft, *settings.budget.devices):
            wanted.pop(name, None)
        if "slots" in settings.unset:
            wanted[Wait.SLOT] = max(1, sums.get("cpu", 0))
        wanted |= dict.fromkeys(self._told.keys() - wanted.keys(), 0)
        changed = {name: amount for name, amount in wanted.items() if self._told.get(name) != amount}
        self._told |= changed
        if changed:
            soft = {name: amount for name, amount in changed.items() if name in _SOFT}
            self._runtime.resize({name: amount for name, amount in changed.items() if name not in _SOFT}, soft)


def of_the_cluster(task: EngineTask) -> Demand:
    """Return what of a task's demand is the cluster's business: all but the devices that the kernel has assigned."""
    if not task.units:
        return task.demand
    ours = [name for kind, _ in task.units for name in (kind, MEMORY.get(kind))]
    return tuple((name, amount) for name, amount in task.demand if name not in ours)


def in_rays_words(demand: dict[str, int], has: dict[str, int]) -> dict[str, Any]:
    """Return a demand as Ray takes it; a task that asks for no CPU is placed like one that asks for one."""
    wanted: dict[str, Any] = {"num_cpus": demand.pop("cpu", 0) or 1}
    ram = demand.pop("ram", 0)
    if ram and ram <= has.get("ram", 0):  # more is permitted to a task that runs alone (B2), and Ray could not place it
        wanted["memory"] = ram
    gpus = demand.pop("gpu", 0)
    if gpus:
        wanted["num_gpus"] = gpus
    named = {name: amount for name, amount in demand.items() if name in has}
    return {**wanted, "resources": named} if named else wanted


def shortages(demand: dict[str, int], nodes: tuple[Node, ...], has: dict[str, int]) -> tuple[Shortage, ...]:
    """Return what Ray has too little of for a demand: what no node has, or what the closest one lacks."""
    need = {name: amount for name, amount in {**demand, "cpu": demand.get("cpu", 0) or 1}.items() if name in has}
    if need.get("ram", 0) > has.get("ram", 0):
        del need["ram"]  # Ray was not asked for it, see in_rays_words
    largest = {name: max((node.resources.get(name, 0) for node in nodes), default=0) for name in need}
    never = [name for name in need if need[name] > largest[name]]
    if never:
        return tuple(Shortage(name, need[name], largest[name], 0) for name in never)
    lacking = [
        [
            Shortage(name, need[name], largest[name], free.get(name, 0))
            for name in need
            if need[name] > free.get(name, 0)
        ]
        for free in free_on_nodes()
    ]
    closest = min(lacking, key=len, default=[])
    return tuple(closest)
