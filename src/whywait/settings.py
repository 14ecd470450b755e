"""Settings of an authority: explicit arguments win over the environment, the environment over defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.lanes import Aging, Order, Strict
from whywait.kernel.model import LONGEST_S, Budget, Limits, Policy, Retry
from whywait.units import parse_duration_ns, parse_size, shown

NS: Final = 1_000_000_000
MB: Final = 1_000_000
MOST: Final = 10**15  # of what a variable may say: beyond is a slip of the keyboard, not a wish
SCHEDULERS: Final = ("threadpool", "simple", "unbounded")


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Show as it is written."""
        return "UNSET"


UNSET: Final = Unset.UNSET  # an argument that was left out; None means "explicitly none" in many places
Seconds = int | float | str  # a number, or "500ms", "5m"
Size = int | str


@dataclass(frozen=True, slots=True)
class Settings:
    """What an authority runs under, all settled."""

    limits: Limits
    budget: Budget
    order: Order
    policy: Policy
    backfill: str = "greedy"
    pause_timeout_s: float = 1.5
    starvation_timeout_s: float = 30.0
    grace_s: float = 2.0
    engine: Any = None
    inject: bool = False
    events: int = 10_000
    unset: frozenset[str] = frozenset()  # limits that neither an argument nor a variable has set


@dataclass(slots=True)
class Given:
    """The arguments as the user gave them."""

    slots: int | Unset | None = UNSET
    cpu: int | Unset | None = UNSET
    ram: Size | Unset | None = UNSET
    vram: Size | Unset | None = UNSET
    resources: Mapping[str, Size] = field(default_factory=dict)
    soft: Mapping[str, Size] = field(default_factory=dict)
    order: Order | str | Unset = UNSET
    backfill: str = "greedy"
    queue_limit: int | Unset | None = UNSET
    overflow: str = "reject"
    when_busy: str = "queue"
    max_wait: Seconds | Unset | None = UNSET
    retry: int | Retry = 0
    timeout: Seconds | None = None
    pause_timeout: Seconds | Unset = UNSET
    starvation_timeout: Seconds | Unset = UNSET
    grace: Seconds = 2.0
    engine: Any = None
    inject: bool = False
    events: int = 10_000

    def settle(self, environment: Mapping[str, str] | None = None) -> Settings:
        """Fill what was left out from the environment, then from the defaults."""
        env = _Environment(os.environ if environment is None else environment)
        scheduler = env.choice("WHYWAIT_SCHEDULER", SCHEDULERS, "threadpool")
        engine = self.engine
        if engine is None:
            engine = "simple" if scheduler == "simple" else "thread"
        env_slots = env.integer("WHYWAIT_SLOTS", 1, os.cpu_count() or 1)
        slots = _or(self.slots, None if scheduler == "unbounded" else env_slots)
        if engine == "simple":
            slots = 1
        limits = Limits(
            slots=slots,
            queue_limit=_or(self.queue_limit, env.integer("WHYWAIT_QUEUE_LIMIT", 0, None)),
            overflow=self.overflow,
            when_busy=self.when_busy,
        )
        if isinstance(self.events, bool) or not isinstance(self.events, int) or self.events < 0:
            raise ConfigError(f"events {self.events!r} is not allowed: use an int of 0 or more, how many to remember")
        max_wait_ms = env.integer("WHYWAIT_MAX_WAIT_MS", 0, None)
        max_wait_s = None if max_wait_ms is None else max_wait_ms / 1000
        pause_s = env.integer("WHYWAIT_PAUSE_TIMEOUT_MS", 0, 1500) / 1000
        starvation_s = env.integer("WHYWAIT_STARVATION_TIMEOUT_MS", 0, 30_000) / 1000
        return Settings(
            limits=limits,
            budget=self._budget(env),
            order=self._order(env),
            policy=Policy(
                timeout_ns=optional_ns("timeout", self.timeout),
                retry=as_retry(self.retry),
                max_wait_ns=optional_ns("max_wait", _or(self.max_wait, max_wait_s)),
            ),
            backfill=self.backfill,
            pause_timeout_s=seconds("pause_timeout", _or(self.pause_timeout, pause_s)),
            starvation_timeout_s=seconds("starvation_timeout", _or(self.starvation_timeout, starvation_s)),
            grace_s=seconds("grace", self.grace),
            engine=engine,
            inject=self.inject,
            events=self.events,
            unset=self._left_out(env, scheduler),
        )

    def _left_out(self, env: _Environment, scheduler: str) -> frozenset[str]:
        """Return the limits that an engine may settle, since nobody else has."""
        given = {
            "slots": self.slots is not UNSET or scheduler == "unbounded" or env.has("WHYWAIT_SLOTS"),
            "cpu": self.cpu is not UNSET or env.has("WHYWAIT_CPU_SLOTS"),
            "ram": self.ram is not UNSET or env.has("WHYWAIT_RAM_MB_SOFT"),
        }
        return frozenset(name for name in given if not given[name])

    def _budget(self, env: _Environment) -> Budget:
        megabytes = {name: env.integer(f"WHYWAIT_{name.upper()}_MB_SOFT", 0, None) for name in ("ram", "vram")}
        hard, soft = _named("resources", self.resources), _named("soft", self.soft)
        cpu = _or(self.cpu, env.integer("WHYWAIT_CPU_SLOTS", 0, None))
        if cpu is not None:
            hard["cpu"] = cpu
        for name, given in (("ram", self.ram), ("vram", self.vram)):
            env_mb = megabytes[name]
            amount = _or(given, None if env_mb is None else env_mb * MB)
            if amount is not None:
                soft[name] = size(name, amount)
        return Budget(hard, soft)

    def _order(self, env: _Environment) -> Order:
        every_ms = env.integer("WHYWAIT_AGING_INTERVAL_MS", 1, 5000)
        boost = env.integer("WHYWAIT_AGING_BOOST", 0, 10)
        if isinstance(self.order, Unset) or self.order == "aging":
            return Aging(every=every_ms / 1000, boost=boost)
        if self.order == "strict":
            return Strict()
        if isinstance(self.order, Strict | Aging):
            return self.order
        raise ConfigError(f"order {self.order!r} is not allowed: use Strict(), Aging(...), 'strict' or 'aging'")


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

    def has(self, name: str) -> bool:
        """Return whether a variable says anything."""
        return bool(self._variables.get(name, "").strip())

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


def as_retry(value: int | Retry | None) -> Retry | None:
    """Return the retry policy that a number or a Retry stands for; None for no retries."""
    if isinstance(value, Retry):
        if value.max_backoff > LONGEST_S:
            raise ConfigError(f"retry max_backoff {value.max_backoff!r} is not allowed: use at most {LONGEST_S:,} s")
        return value if value.times else None
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return Retry(value) if value else None
    raise ConfigError(f"retry {value!r} is not allowed: use an int of 0 or more, or Retry(...)")


def size(name: str, value: Size) -> int:
    """Return a size in bytes, or an amount of anything else; refuse what is none, naming the setting."""
    try:
        return parse_size(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def seconds(name: str, value: Seconds) -> float:
    """Return a duration in seconds; refuse what is none."""
    return duration_ns(name, value) / NS


def duration_ns(name: str, value: Seconds) -> int:
    """Return a duration in nanoseconds; refuse what is none, naming the setting."""
    try:
        return parse_duration_ns(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def optional_ns(name: str, value: Seconds | None) -> int | None:
    """Return a duration in nanoseconds; None stays None."""
    return None if value is None else duration_ns(name, value)


def _or(value: Any, default: Any) -> Any:  # noqa: ANN401 - a value of any setting
    """Return the value, or the default if it was left out."""
    return default if value is UNSET else value
