"""Settings of an authority: explicit arguments win over the environment, the environment over defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from whywait.engines.base import Engine
from whywait.engines.registry import EngineName
from whywait.errors import ConfigError
from whywait.kernel.durations import LONGEST_S, NS, Seconds, in_seconds, parse_duration_ns
from whywait.kernel.limits import Backfill, Budget, Limits, Overdraft, Overflow, Policy, Retry, WhenBlocked, WhenBusy
from whywait.kernel.order import Aging, Order, Strict
from whywait.support.devices import AUTO, GPU, parse_devices, parse_gpus
from whywait.support.lent import environment as environment_here
from whywait.support.logger import Log, log
from whywait.support.memory import automatic_ram
from whywait.support.units import parse_size, shown

MB: Final = 1_000_000
MOST: Final = 10**12  # of what a variable may say: beyond is a slip of the keyboard, not a wish
SCHEDULERS: Final = ("threadpool", "simple", "unbounded")


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Show as it is written."""
        return "UNSET"


UNSET: Final = Unset.UNSET  # an argument that was left out; None means "explicitly none" in many places
Size = int | str
OrderName = Literal["aging", "strict"]
Gpus = int | str | Sequence[Size] | Mapping[str, Size | None]

T = TypeVar("T")


class AuthorityOptions(TypedDict, total=False):
    """The configuration of an authority as it is written; what is left out comes from the environment or a default."""

    slots: int | Unset | None
    cpu: int | Unset | None
    ram: Size | Unset | None
    hard_ram: bool
    vram: Size | Unset | None
    resources: Mapping[str, Size] | None
    soft: Mapping[str, Size] | None
    gpus: Gpus | None
    devices: Mapping[str, int | Sequence[str]] | None
    order: Order | OrderName | Unset
    backfill: Backfill
    overdraft: Overdraft
    queue_limit: int | Unset | None
    overflow: Overflow
    when_busy: WhenBusy
    when_blocked: WhenBlocked
    max_wait: Seconds | Unset | None
    retry: int | Retry
    timeout: Seconds | None
    pause_timeout: Seconds | Unset
    starvation_timeout: Seconds | Unset
    grace: Seconds
    engine: EngineName | Engine | None
    inject: bool
    thread_cpu: bool
    events: int
    history: str | os.PathLike[str] | Unset | None


_DEFAULTS: Final[AuthorityOptions] = {
    "slots": UNSET,
    "cpu": UNSET,
    "ram": UNSET,
    "hard_ram": False,
    "vram": UNSET,
    "resources": None,
    "soft": None,
    "gpus": None,
    "devices": None,
    "order": UNSET,
    "backfill": "greedy",
    "overdraft": "count",
    "queue_limit": UNSET,
    "overflow": "reject",
    "when_busy": "queue",
    "when_blocked": "hold",
    "max_wait": UNSET,
    "retry": 0,
    "timeout": None,
    "pause_timeout": UNSET,
    "starvation_timeout": UNSET,
    "grace": 2.0,
    "engine": None,
    "inject": False,
    "thread_cpu": False,
    "events": 10_000,
    "history": UNSET,
}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Settings:
    """The configuration of an authority as one object: made of the same keywords, all of them resolved.

    An argument wins over the environment (``WHYWAIT_*``), the environment over the default. Settings can be compared,
    and what they print as can be typed again. Durations are seconds, sizes are bytes.
    """

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
    backfill: Backfill
    overdraft: Overdraft
    queue_limit: int | None
    overflow: Overflow
    when_busy: WhenBusy
    when_blocked: WhenBlocked
    max_wait: float | None
    retry: Retry | None
    timeout: float | None
    pause_timeout: float
    starvation_timeout: float
    grace: float
    engine: EngineName | Engine
    inject: bool
    thread_cpu: bool
    events: int
    history: str | None  # the path of its file
    unset: frozenset[str]  # of slots, cpu and ram those that neither an argument nor a variable has set
    limits: Limits = field(compare=False)  # the same for the kernel, and so on
    budget: Budget = field(compare=False)
    policy: Policy = field(compare=False)

    def __init__(self, **options: Unpack[AuthorityOptions]) -> None:
        """Resolve what was given; a value that is not allowed raises ConfigError."""
        self._settle(options, environment_here(), log)

    @classmethod
    def from_env(
        cls, environment: Mapping[str, str] | None = None, *, log: Log = log, **options: Unpack[AuthorityOptions]
    ) -> Settings:
        """Return what the variables ``WHYWAIT_*`` say, of this process or of another ``environment``; options win."""
        made = cls.__new__(cls)
        made._settle(options, environment_here() if environment is None else environment, log)  # noqa: SLF001 - its own
        return made

    def __repr__(self) -> str:
        """Show what is not the default, as it can be typed again."""
        default = Settings.from_env({})
        told = {name: getattr(self, name) for name in _DEFAULTS if name not in self.unset}
        shown_ = {name: told[name] for name in told if name in _OPEN or told[name] != getattr(default, name)}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown_.items())})"

    def _settle(self, options: AuthorityOptions, environment: Mapping[str, str], log: Log) -> None:
        """Fill what was left out from the environment, then from the defaults."""
        if unknown := options.keys() - _DEFAULTS.keys():
            raise TypeError(f"settings have no {', '.join(sorted(unknown))}: use {', '.join(_DEFAULTS)}")
        env = _Environment(environment)
        given: dict[str, Any] = {**_DEFAULTS, **options}
        scheduler = env.choice("WHYWAIT_SCHEDULER", SCHEDULERS, "threadpool")
        engine = given["engine"] or ("simple" if scheduler == "simple" else "thread")
        env_slots = env.integer("WHYWAIT_SLOTS", 1, os.cpu_count() or 1)
        slots = _or(given["slots"], None if scheduler == "unbounded" else env_slots)
        max_wait_ms = env.integer("WHYWAIT_MAX_WAIT_MS", 0, None)
        max_wait = _or(given["max_wait"], None if max_wait_ms is None else max_wait_ms / 1000)
        pause_s = env.integer("WHYWAIT_PAUSE_TIMEOUT_MS", 0, 1500) / 1000
        starvation_s = env.integer("WHYWAIT_STARVATION_TIMEOUT_MS", 0, 30_000) / 1000
        budget = _budget(given, env, log)
        limits = Limits(
            slots=1 if engine == "simple" else slots,
            queue_limit=_or(given["queue_limit"], env.integer("WHYWAIT_QUEUE_LIMIT", 0, None)),
            overflow=given["overflow"],
            when_busy=given["when_busy"],
            when_blocked="hold" if engine == "simple" else given["when_blocked"],  # its one thread is not free
        )
        policy = Policy(
            timeout_ns=optional_ns("timeout", given["timeout"]),
            retry=as_retry(given["retry"]),
            max_wait_ns=optional_ns("max_wait", max_wait),
        )
        self._set(
            given,
            limits=limits,
            budget=budget,
            policy=policy,
            slots=limits.slots,
            queue_limit=limits.queue_limit,
            when_blocked=limits.when_blocked,
            cpu=budget.hard.get("cpu"),
            ram=budget.hard.get("ram", budget.soft.get("ram")),
            vram=budget.soft.get("vram"),
            resources={name: amount for name, amount in budget.hard.items() if name not in ("cpu", "ram")},
            soft={name: amount for name, amount in budget.soft.items() if name not in ("ram", "vram")},
            gpus=None if given["gpus"] is None else dict(budget.devices[GPU]),
            devices={kind: list(units) for kind, units in budget.devices.items() if kind != GPU},
            order=_order(given["order"], env),
            retry=policy.retry,
            timeout=_in_seconds(policy.timeout_ns),
            max_wait=_in_seconds(policy.max_wait_ns),
            pause_timeout=in_seconds("pause_timeout", _or(given["pause_timeout"], pause_s)),
            starvation_timeout=in_seconds("starvation_timeout", _or(given["starvation_timeout"], starvation_s)),
            grace=in_seconds("grace", given["grace"]),
            engine=engine,
            events=_count("events", given["events"]),
            history=_path("history", _or(given["history"], env.text("WHYWAIT_HISTORY"))),
            unset=_left_out(given, env, scheduler),
        )

    def _set(self, given: Mapping[str, Any], **settled: Any) -> None:  # noqa: ANN401 - a value of any setting
        for each in fields(self):
            object.__setattr__(self, each.name, settled[each.name] if each.name in settled else given[each.name])


_OPEN: Final = ("slots", "cpu", "ram")  # limits that an engine may set if no argument and no variable has


def settled(settings: Settings | None, given: AuthorityOptions, log: Log) -> Settings:
    """Return the settings of an authority: those that it was handed, or what its arguments come to."""
    if settings is None:
        return Settings.from_env(log=log, **given)
    if not isinstance(settings, Settings):
        raise ConfigError(f"settings {settings!r} are not allowed: use Settings(...)")
    beside = [name for name, value in given.items() if value != _DEFAULTS[name]]  # type: ignore[literal-required]
    if beside:
        raise ConfigError(f"{', '.join(beside)} beside settings: put all of it into Settings(...)")
    return settings


def explicit_budget(**options: Unpack[AuthorityOptions]) -> Budget:
    """Return the budget that arguments alone make up."""
    return _budget({**_DEFAULTS, **options}, _Environment({}), log)


def _left_out(given: Mapping[str, Any], env: _Environment, scheduler: str) -> frozenset[str]:
    """Return the limits that an engine may set, since no argument and no variable has."""
    is_set = {
        "slots": scheduler == "unbounded" or env.has("WHYWAIT_SLOTS"),
        "cpu": env.has("WHYWAIT_CPU_SLOTS"),
        "ram": env.has("WHYWAIT_RAM_MB_SOFT"),
    }
    return frozenset(name for name in _OPEN if given[name] is UNSET and not is_set[name])


def _budget(given: Mapping[str, Any], env: _Environment, log: Log) -> Budget:
    megabytes = {name: env.integer(f"WHYWAIT_{name.upper()}_MB_SOFT", 0, None) for name in ("ram", "vram")}
    hard, soft = _named("resources", given["resources"] or {}), _named("soft", given["soft"] or {})
    cpu = _or(given["cpu"], env.integer("WHYWAIT_CPU_SLOTS", 0, None))
    if cpu is not None:
        hard["cpu"] = cpu
    devices = _written("devices", parse_devices, given["devices"] or {})
    if given["gpus"] is not None:
        devices[GPU] = units_of_gpus(given["gpus"], log)
        megabytes["vram"] = None  # the memory is that of the cards
    for name, env_mb in megabytes.items():
        amount = _or(given[name], None if env_mb is None else env_mb * MB)
        if amount is not None:
            limits = hard if name == "ram" and given["hard_ram"] else soft
            limits[name] = automatic_ram() if name == "ram" and amount == AUTO else size(name, amount)
    if GPU in devices and "vram" in soft:
        raise ConfigError(f'vram {given["vram"]!r} is not allowed beside gpus: write it as gpus=["24GB", ...]')
    return Budget(hard, soft, devices)


def _order(given: Order | str | Unset, env: _Environment) -> Order:
    every_ms = env.integer("WHYWAIT_AGING_INTERVAL_MS", 1, 5000)
    boost = env.integer("WHYWAIT_AGING_BOOST", 0, 10)
    if isinstance(given, Unset) or given == "aging":
        return Aging(every=every_ms / 1000, boost=boost)
    if given == "strict":
        return Strict()
    if isinstance(given, Strict | Aging):
        return given
    raise ConfigError(f"order {given!r} is not allowed: use Strict(), Aging(...), 'strict' or 'aging'")


class _Environment:
    """Reads variables; a malformed one is an error that names it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def integer(self, name: str, least: int, default: Any) -> Any:  # noqa: ANN401 - int, or the default's type
        most = LONGEST_S * 1000 if name.endswith("_MS") else MOST
        text = self._variables.get(name, "").strip()
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise ConfigError(f"environment variable {name}={text!r} is not allowed: use an int of {least} or more")
        if value > most:
            raise ConfigError(f"environment variable {name}={shown(value)} is not allowed: use an int up to {most:,}")
        return value

    def text(self, name: str) -> str | None:
        """Return what a variable says; None if it says nothing."""
        return self._variables.get(name, "").strip() or None

    def has(self, name: str) -> bool:
        """Return whether a variable says anything."""
        return self.text(name) is not None

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        text = self._variables.get(name, "").strip().lower()
        if text and text not in allowed:
            raise ConfigError(f"environment variable {name}={text!r} is not allowed: use one of {', '.join(allowed)}")
        return text or default


def _named(argument: str, amounts: Mapping[str, Size]) -> dict[str, int]:
    """Return the limits of named resources; the well-known ones have arguments of their own."""
    if not isinstance(amounts, Mapping):
        raise ConfigError(f"{argument} {amounts!r} is not allowed: use a dict of names and limits")
    for name in ("cpu", "ram", "vram"):
        if name in amounts:
            raise ConfigError(
                f"{argument} has {name!r}, which has an argument of its own: write {name}={amounts[name]!r}"
            )
    return {name: size(name, amount) for name, amount in amounts.items()}


def units_of_gpus(gpus: Gpus, log: Log = log) -> dict[str, int]:
    """Return the names and the memory of GPUs, of those of this machine for ``"auto"``; the log says if it has none."""
    if isinstance(gpus, str):
        if gpus != AUTO:
            raise ConfigError(f"gpus {gpus!r} is not allowed: use 'auto', an int, a list of sizes or a dict")
        from whywait.support.gpus import find_gpus

        units, problem = find_gpus()
        if not units:
            log.warning("gpus='auto' has found no GPU: %s", problem)
        return units
    return _written("gpus", parse_gpus, gpus)


def _path(name: str, value: str | os.PathLike[str] | None) -> str | None:
    """Return a path in full, from the folder that this is asked in; ``~`` is the user's."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not (text := os.fspath(value)) or "\0" in text:
        raise ConfigError(f"{name} {value!r} is not allowed: use the path of a file")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - no symlink is followed, nothing loaded


def as_retry(value: int | Retry | None) -> Retry | None:
    """Return the retry policy that a number or a Retry stands for; None for no retries."""
    if isinstance(value, Retry):
        return value if value.times else None
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return Retry(value) if value else None
    raise ConfigError(f"retry {value!r} is not allowed: use an int of 0 or more, or Retry(...)")


def size(name: str, value: Size) -> int:
    """Return a size in bytes, or an amount of anything else; refuse what is none, naming the setting."""
    return _written(name, parse_size, value)


def duration_ns(name: str, value: Seconds) -> int:
    """Return a duration in nanoseconds; refuse what is none, naming the setting."""
    return _written(name, parse_duration_ns, value)


def _written(name: str, parse: Callable[[Any], T], value: object) -> T:
    """Return what a value stands for; a refusal names the setting."""
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def optional_ns(name: str, value: Seconds | None) -> int | None:
    """Return a duration in nanoseconds; None stays None."""
    return None if value is None else duration_ns(name, value)


def _or(value: Any, default: Any) -> Any:  # noqa: ANN401 - a value of any setting
    """Return the value, or the default if it was left out."""
    return default if value is UNSET else value


def _count(name: str, value: Any) -> int:  # noqa: ANN401 - checked here
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{name} {value!r} is not allowed: use an int of 0 or more, how many to remember")
    return value


def _in_seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS
