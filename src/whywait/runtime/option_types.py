"""The types of options, for editors and type checkers: written by ``make docs`` from the table in ``options.py``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from whywait.engines.base import Engine
from whywait.engines.registry import EngineName
from whywait.kernel.durations import Seconds
from whywait.kernel.limits import Retry
from whywait.kernel.order import Order
from whywait.options import Gpus, OrderName, Size


class AuthorityOptions(TypedDict, total=False):
    """The configuration of an authority; what is left out comes from the environment or a default."""

    slots: int | None  # how many tasks run at once; default: the processors
    cpu: int | None  # processors
    ram: Size | None  # memory, soft: one task alone may use more; "auto": nine tenths of the machine
    hard_ram: bool  # whether the limit of memory holds for a task alone too
    vram: Size | None  # memory of the graphics card, soft
    resources: Mapping[str, Size] | None  # resources of your own with a hard limit: licences, ports, tokens
    soft: Mapping[str, Size] | None  # resources of your own with a soft limit
    gpus: Gpus | None  # graphics cards: "auto", how many, the memory of each, or names and memory
    devices: Mapping[str, int | Sequence[str]] | None
    order: Order | OrderName  # Strict(...), Aging(...), or the name of one
    backfill: Literal["greedy", "none"]  # none: no task overtakes the first that waits for budget
    overdraft: Literal["count", "warn", "kill"]  # what follows if a measured task uses more ram than it asked for
    queue_limit: int | None  # how many tasks may be pending
    overflow: Literal["reject", "displace"]  # displace: a full queue drops a task of lower priority, not the newcomer
    when_busy: Literal["queue", "reject"]  # reject: refuse a task that cannot start at once for lack of slots
    when_blocked: Literal["hold", "lend"]  # lend: a task gives its slot back while its body waits for other tasks
    timeout: Seconds | None  # how long a task may run
    retry: int | Retry | None
    max_wait: Seconds | None  # how long it may be ready without starting
    starvation_timeout: Seconds  # when starvation is reported
    pause_timeout: Seconds  # how long a running task may take to park
    grace: Seconds  # how long a task that is asked to end may take
    engine: EngineName | Engine | None  # "thread", "simple", "asyncio", "process", "command", "ray", or an Engine
    inject: bool  # raise TaskAborted inside a thread that has ignored its signal for its grace
    thread_cpu: bool  # measure the CPU time of bodies on threads, for handle.usage
    events: int  # how many events are remembered
    history: str | os.PathLike[str] | None  # a file of what finished runs teach, for ram="learned"


class LimitOptions(TypedDict, total=False):
    """The limits that ``resize`` changes."""

    slots: int | None  # how many tasks run at once; default: the processors
    cpu: int | None  # processors
    ram: Size | None  # memory, soft: one task alone may use more; "auto": nine tenths of the machine
    vram: Size | None  # memory of the graphics card, soft
    resources: Mapping[str, Size] | None  # resources of your own with a hard limit: licences, ports, tokens
    soft: Mapping[str, Size] | None  # resources of your own with a soft limit
    gpus: Gpus | None  # graphics cards: "auto", how many, the memory of each, or names and memory
    devices: Mapping[str, int | Sequence[str]] | None


class ScopeOptions(TypedDict, total=False):
    """What a scope may set for itself; None: no engine or grace of its own, else explicitly none."""

    slots: int | None  # how many of its tasks run at once
    on_error: Literal["continue", "abort"]  # abort: the first failure ends the rest
    max_spawn: int | None  # how many tasks it accepts in its life
    mount: bool  # whether it takes tasks before mount() is called
    queue_limit: int | None  # how many tasks may be pending
    overflow: Literal["reject", "displace"]  # displace: a full queue drops a task of lower priority, not the newcomer
    when_busy: Literal["queue", "reject"]  # reject: refuse a task that cannot start at once for lack of slots
    when_blocked: Literal["hold", "lend"]  # lend: a task gives its slot back while its body waits for other tasks
    timeout: Seconds | None  # how long a task may run
    retry: int | Retry | None
    max_wait: Seconds | None  # how long it may be ready without starting
    grace: Seconds | None  # how long a task that is asked to end may take
    engine: EngineName | Engine | None  # "thread", "simple", "asyncio", "process", "command", "ray", or an Engine


class BodyOptions(TypedDict, total=False):
    """What whatever runs may ask for."""

    priority: int | str  # 0 to 100, or critical, high, normal, low, background
    cpu: int  # processors it uses
    ram: Size  # memory it uses: "2GB" or "512MiB"; "learned": what the history says, "learned:2GB": 2GB until it does
    vram: Size  # memory of the graphics card it uses
    resources: Mapping[str, Size] | None  # what it uses of the resources that [budget] names
    gpu: int  # whole graphics cards that no other task is on; with vram: on how many cards it uses so much memory
    devices: Mapping[str, int] | None  # units of other devices that [budget] names
    max_wait: Seconds | None  # how long it may be ready without starting


class TaskOptions(BodyOptions, total=False):
    """What a task may set; the rest is inherited from its scope."""

    id: str | None  # its name; without one it is numbered
    kwargs: Mapping[str, Any] | None  # keyword arguments of the function itself
    after: Iterable[Any]  # tasks that must have succeeded before
    after_ended: Iterable[Any]  # tasks that must have ended before, however they did
    cancel_with_awaiter: bool  # whether cancelling a coroutine that awaits it cancels it too
    slot: bool  # whether it takes a slot while it runs
    timeout: Seconds | None  # how long a task may run
    retry: int | Retry | None
    engine: EngineName | Engine | None  # "thread", "simple", "asyncio", "process", "command", "ray", or an Engine


class PeriodicOptions(BodyOptions, total=False):
    """What a periodic may set; its tasks take no slot, unless ``slot`` is True, and inherit from its scope."""

    kwargs: Mapping[str, Any] | None  # keyword arguments of the function itself
    slot: bool  # whether it takes a slot while it runs
    overlap: Literal["skip", "queue", "parallel"]  # a tick while one runs: skip it, queue one, run in parallel
    max_parallel: int  # how many may run at once
    jitter: float  # each tick varies by this share, the grid never moves
    enabled: bool  # whether it ticks from the start
    immediately: bool  # whether the first tick is at once
    disable_after: int | None  # failures in a row that switch it off
    timeout: Seconds | None  # how long a task may run
    retry: int | Retry | None
    engine: EngineName | Engine | None  # "thread", "simple", "asyncio", "process", "command", "ray", or an Engine


class LeaseOptions(BodyOptions, total=False):
    """What a lease of the machine may ask for."""

    after: Iterable[Any]  # tasks that must have succeeded before
    scope: str  # the scope of the machine that it goes to


class JobOptions(LeaseOptions, total=False):
    """What a job of the machine may ask for."""

    id: str | None  # its name; without one it is numbered
    after_ended: Iterable[Any]  # tasks that must have ended before, however they did
    slot: bool  # whether it takes a slot while it runs
    timeout: Seconds | None  # how long a task may run
    retry: int | Retry | None


class Resolved:
    """The same as ``Settings`` has it."""

    slots: int | None
    cpu: int | None
    ram: int | None
    hard_ram: bool
    vram: int | None
    resources: dict[str, int]
    soft: dict[str, int]
    gpus: dict[str, int] | None
    devices: dict[str, list[str]]
    order: Order
    backfill: Literal["greedy", "none"]
    overdraft: Literal["count", "warn", "kill"]
    queue_limit: int | None
    overflow: Literal["reject", "displace"]
    when_busy: Literal["queue", "reject"]
    when_blocked: Literal["hold", "lend"]
    timeout: float | None
    retry: Retry | None
    max_wait: float | None
    starvation_timeout: float
    pause_timeout: float
    grace: float
    engine: EngineName | Engine
    inject: bool
    thread_cpu: bool
    events: int
    history: str | None
