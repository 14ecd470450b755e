"""What users set: priorities, retries, policies, limits, budgets, demands; each refuses values that make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from whywait.errors import ConfigError, shown
from whywait.kernel.durations import Seconds, in_seconds
from whywait.kernel.state import RESERVED_NAMES

Demand = tuple[tuple[str, int], ...]
Backfill = Literal["greedy", "none"]
Overdraft = Literal["count", "warn", "kill"]
Overflow = Literal["reject", "displace"]
WhenBusy = Literal["queue", "reject"]
WhenBlocked = Literal["hold", "lend"]
OnError = Literal["continue", "abort"]

LOWEST: Final = 0
HIGHEST: Final = 100
MEMORY: Final = {"gpu": "vram"}  # by what name a task asks for the memory of a kind of device
_MOST_GROWTH: Final = 1000
MOST: Final = 10**18  # of slots, or of a resource: what is in use at once fits a machine's integer
MOST_NS: Final = 1 << 61  # the last moment that a command may have, and the longest time: 73 years
_DIGITS: Final = 100  # of a number in the name of a unit
WELL_KNOWN: Final = ("cpu", "ram", "vram")
MEASURED: Final = "ram"  # the resource of which engines tell what is really used


class Priority:
    """The five named priorities; any int from 0 to 100 is a priority too."""

    CRITICAL: Final = 100
    HIGH: Final = 80
    NORMAL: Final = 50
    LOW: Final = 20
    BACKGROUND: Final = 0

    @staticmethod
    def parse(value: int | str) -> int:
        """Return the priority that an int from 0 to 100 or a name in any case stands for."""
        if isinstance(value, str):
            number = _PRIORITY_NAMES.get(value.lower())
            if number is None:
                names = ", ".join(_PRIORITY_NAMES)
                raise ConfigError(f"priority {value!r} is unknown: use an int from 0 to 100 or one of {names}")
            return number
        if isinstance(value, bool) or not isinstance(value, int) or not LOWEST <= value <= HIGHEST:
            raise ConfigError(f"priority {value!r} is not allowed: use an int from 0 to 100 or a name")
        return value


_PRIORITY_NAMES: Final = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "low": Priority.LOW,
    "background": Priority.BACKGROUND,
}


@dataclass(frozen=True, slots=True, repr=False)
class Retry:
    """How often, and after which delay, a task that ended in an error is tried again."""

    times: int
    backoff: Seconds = 0.0  # kept as seconds, however it was written
    factor: float = 2.0
    max_backoff: Seconds = 60.0
    jitter: float = 0.0
    on: tuple[type[BaseException], ...] = (Exception,)
    on_exit: tuple[int, ...] = ()  # if any: only commands that ended with one of these exit codes
    grow: tuple[tuple[str, float], ...] = ()  # given as a dict: how many times more each new attempt asks for

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 0:
            raise ConfigError(f"retry times {self.times!r} is not allowed: use an int of 0 or more")
        object.__setattr__(self, "backoff", in_seconds("retry backoff", self.backoff))
        object.__setattr__(self, "max_backoff", in_seconds("retry max_backoff", self.max_backoff))
        if not (isinstance(self.factor, int | float) and 0 <= self.factor < float("inf")):
            raise ConfigError(f"retry factor {self.factor!r} is not allowed: use a finite number of 0 or more")
        if not (isinstance(self.jitter, int | float) and 0 <= self.jitter <= 1):
            raise ConfigError(f"retry jitter {self.jitter!r} is not allowed: use a number from 0 to 1")
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise ConfigError(f"retry on {self.on!r} is not allowed: use an exception class or a tuple of such")
        object.__setattr__(self, "on", kinds)
        codes = (self.on_exit,) if isinstance(self.on_exit, int) else tuple(self.on_exit)
        if not all(isinstance(code, int) and not isinstance(code, bool) and 0 < code <= 255 for code in codes):  # noqa: PLR2004
            raise ConfigError(f"retry on_exit {self.on_exit!r} is not allowed: use exit codes from 1 to 255")
        object.__setattr__(self, "on_exit", codes)
        object.__setattr__(self, "grow", _growth(self.grow))

    def __repr__(self) -> str:
        """Show what is not the default, as it can be typed again."""
        told = [repr(self.times)]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if value != each.default:
                classes = f"({''.join(f'{kind.__qualname__}, ' for kind in self.on).strip()})"
                told.append(f"{each.name}={classes if each.name == 'on' else repr(value)}")
        return f"Retry({', '.join(told)})"

    def delay_ns(self, retry_number: int, jitter: float) -> int:
        """Return the wait before the given retry (1 is the first), with ``jitter`` from -1 to 1 applied."""
        backoff, most = float(self.backoff), float(self.max_backoff)
        try:
            seconds = min(backoff * self.factor ** (retry_number - 1), most)
        except OverflowError:
            seconds = most
        return round(seconds * (1 + self.jitter * jitter) * 1_000_000_000)


def _growth(grow: Mapping[str, float] | tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """Return the factors of a retry by name, checked."""
    try:
        factors = dict(grow)
    except (TypeError, ValueError):
        raise ConfigError(f"retry grow {grow!r} is not allowed: use factors by name, such as {{'ram': 2.0}}") from None
    for name, factor in factors.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"retry grow names {name!r}: use the name of a demand, such as 'ram'")
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _MOST_GROWTH:
            raise ConfigError(f"retry grow {name} {factor!r} is not allowed: use a number from 1 to {_MOST_GROWTH}")
    return tuple(sorted(factors.items()))


@dataclass(frozen=True, slots=True)
class Policy:
    """What one task runs under: its timeout, its retries, how long it may wait."""

    timeout_ns: int | None = None
    retry: Retry | None = None
    max_wait_ns: int | None = None
    untimed: bool = field(init=False, repr=False, compare=False)  # neither a start nor a wait sets a timer

    def __post_init__(self) -> None:
        """Refuse times beyond all measure; note what the hot path asks."""
        for name in ("timeout_ns", "max_wait_ns"):
            value = getattr(self, name)
            if value is not None:
                check_ns(name, value)
        object.__setattr__(self, "untimed", self.timeout_ns is None and self.max_wait_ns is None)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scope, or the whole authority, allows at once."""

    slots: int | None = None
    queue_limit: int | None = None
    overflow: Overflow = "reject"
    when_busy: WhenBusy = "queue"
    when_blocked: WhenBlocked = "hold"
    max_spawn: int | None = None
    on_error: OnError = "continue"

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name, least in (("slots", 1), ("queue_limit", 0), ("max_spawn", 0)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} {value!r} is not allowed: use an int of {least} or more, or None")
            if value is not None:
                check_amount(name, value)
        one_of("overflow", self.overflow, Overflow)
        one_of("when_busy", self.when_busy, WhenBusy)
        one_of("when_blocked", self.when_blocked, WhenBlocked)
        one_of("on_error", self.on_error, OnError)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of each resource may be in use at once: ``hard`` always, ``soft`` unless nothing else runs.

    ``devices`` are the units of each kind by name, with the memory of each; 0: none that can be shared.
    """

    hard: Mapping[str, int] = field(default_factory=dict)
    soft: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse names and amounts that make no sense."""
        for name in (*self.hard, *self.soft):
            if not isinstance(name, str) or not name:
                raise ConfigError(f"a resource cannot be named {name!r}: use a string that is not empty")
            if name in RESERVED_NAMES:
                raise ConfigError(f"a resource cannot be named {name!r}: the name is taken by a wait cause")
            if name in self.hard and name in self.soft:
                raise ConfigError(f"resource {name!r} is both hard and soft: choose one")
        for name, amount in (*self.hard.items(), *self.soft.items()):
            if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
                raise ConfigError(f"budget {name} {amount!r} is not allowed: use an int of 0 or more")
            check_amount(f"budget {name}", amount)
        for kind, units in self.devices.items():
            self._check_kind(kind)
            check_units(kind, units)

    def _check_kind(self, kind: str) -> None:
        """Refuse a kind of device whose name, or whose memory's, means something else already."""
        if not isinstance(kind, str) or not kind:
            raise ConfigError(f"a kind of device cannot be named {kind!r}: use a string that is not empty")
        if kind in RESERVED_NAMES or kind in WELL_KNOWN:
            raise ConfigError(f"a kind of device cannot be named {kind!r}: the name is taken")
        for name in (kind, MEMORY.get(kind)):
            if name in self.hard or name in self.soft:
                raise ConfigError(f"{name!r} is a resource and belongs to the devices {kind!r} too: leave one out")


def check_units(kind: str, units: Mapping[str, int]) -> None:
    """Refuse units of a kind whose names or memory make no sense."""
    for name, memory in units.items():
        if not isinstance(name, str) or not name or not name.isprintable() or "," in name:
            raise ConfigError(f"a unit of {kind} cannot be named {name!r}: use a string without commas")
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 0:
            raise ConfigError(f"memory {memory!r} of {kind} {name} is not allowed: use an int of 0 or more")
        check_amount(f"memory of {kind} {name}", memory)


def make_demand(
    cpu: int = 0,
    ram: int = 0,
    vram: int = 0,
    resources: Mapping[str, int] | None = None,
    gpu: int = 0,
    devices: Mapping[str, int] | None = None,
) -> Demand:
    """Return the canonical demand: amounts above 0 only; cpu, ram, vram, then others, devices among them, by name."""
    amounts = {"cpu": cpu, "ram": ram, "vram": vram}
    named: dict[str, int] = {"gpu": gpu} if gpu else {}
    for argument, given in (("resources", resources), ("devices", devices)):
        for name, amount in (given or {}).items():
            if name in amounts:
                raise ConfigError(f"demand {name!r} has an argument of its own: do not put it into {argument}")
            if name in named:
                raise ConfigError(f"demand {name!r} is given twice: leave it out of {argument}")
            named[name] = amount
    amounts.update((name, named[name]) for name in sorted(named))
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            told = shown(amount) if isinstance(amount, int) and not isinstance(amount, bool) else repr(amount)
            raise ConfigError(f"demand {name} {told} is not allowed: use an int of 0 or more")
        check_amount(f"demand {name}", amount)
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def check_amount(what: str, amount: int) -> None:
    """Refuse more of something than can be counted."""
    if amount > MOST:
        raise ConfigError(f"{what} {shown(amount)} is not allowed: use at most 10^18")


def check_ns(what: str, ns: int) -> None:
    """Refuse a time that is longer than can be counted."""
    if ns > MOST_NS:
        raise ConfigError(f"{what} {shown(ns)} is not allowed: use at most {MOST_NS} (73 years)")


def gate_order(name: str) -> tuple[int, str]:
    """Return the sort key of a budget gate: cpu, ram, vram, then by name."""
    return (WELL_KNOWN.index(name), "") if name in WELL_KNOWN else (len(WELL_KNOWN), name)


def unit_order(name: str) -> tuple[bool, int, str]:
    """Return the sort key of a unit of a device: numbers by value, then other names."""
    is_number = name.isascii() and name.isdecimal() and len(name) <= _DIGITS
    return (not is_number, int(name) if is_number else 0, name)


def one_of(name: str, value: str, words: Any) -> None:
    """Refuse a value that is none of a closed set of words."""
    if value not in get_args(words):
        raise ConfigError(f"{name} {value!r} is not allowed: use one of {', '.join(get_args(words))}")
