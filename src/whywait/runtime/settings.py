"""Settings of an authority: explicit arguments win over the environment, the environment over defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, Unpack

from whywait.errors import ConfigError
from whywait.kernel.durations import LONGEST_S, NS
from whywait.kernel.limits import Budget, Limits, Policy, Retry
from whywait.kernel.order import Aging, Order, Strict
from whywait.options import AUTHORITY, OPTIONS, RESIZE, SUBMIT, Size, make_budget, make_limits, read_keywords, table
from whywait.runtime.option_types import AuthorityOptions, LimitOptions, Resolved
from whywait.support.devices import AUTO, GPU
from whywait.support.forms import Option
from whywait.support.lent import environment as environment_here
from whywait.support.logger import Log, log
from whywait.support.units import NS_PER_MS, parse_size, shown

MB: Final = 1_000_000
MOST: Final = 10**12  # of what a variable may say: beyond is a slip of the keyboard, not a wish
SCHEDULERS: Final = ("threadpool", "simple", "unbounded")
_OF_POLICY: Final = frozenset(each.name for each in fields(Policy) if each.init)
OF_POLICY: Final = frozenset(name for name, field in table(SUBMIT).items() if field.kept in _OF_POLICY)
_OPEN: Final = ("slots", "cpu", "ram")  # limits that an engine may set if no argument and no variable has


class Settings(Resolved):
    """The configuration of an authority as one object: made of the same keywords, all of them resolved.

    An argument wins over the environment (``WHYWAIT_*``), the environment over the default. Settings can be compared,
    and what they print as can be typed again. Durations are seconds, sizes are bytes.
    """

    unset: frozenset[str]  # of slots, cpu and ram those that neither an argument nor a variable has set
    limits: Limits  # the same for the kernel, and so on
    budget: Budget
    policy: Policy

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
        told = {name: getattr(self, name) for name in table(AUTHORITY) if name not in self.unset}
        shown_ = {name: told[name] for name in told if name in _OPEN or told[name] != getattr(default, name)}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown_.items())})"

    def __eq__(self, other: object) -> bool:
        """Return whether both mean the same."""
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment] # it has dicts

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: what an authority was made with stays."""
        raise AttributeError(f"settings cannot be changed: make others with {name}={value!r}")

    def _settle(self, options: AuthorityOptions, environment: Mapping[str, str], log: Log) -> None:
        """Fill what was left out from the environment, then from the defaults."""
        rows = table(AUTHORITY)
        env = _Environment(environment)
        given = read_keywords(AUTHORITY, options, "settings have")
        found = env.values()
        values: dict[str, Any] = {}
        for kept, parse, option in rows.values():
            values[kept] = None if option.default is None else parse(option.default)
        values |= found | given

        scheduler = env.choice("WHYWAIT_SCHEDULER", SCHEDULERS, "threadpool")
        if scheduler == "unbounded":
            values["slots"] = found["slots"] = given.get("slots")
        unset = frozenset(name for name in _OPEN if name not in given and name not in found)
        if "slots" in unset:
            values["slots"] = os.cpu_count() or 1
        engine = values["engine"] = values["engine"] or ("simple" if scheduler == "simple" else "thread")
        if engine == "simple":
            values |= {"slots": 1, "when_blocked": "hold"}  # its one thread is not free
        values["order"] = _order(values)
        _find_gpus(values, log)
        if values["gpus"] is not None and "vram" not in given:
            values["vram"] = None  # the memory is that of the cards

        limits, policy, budget = make_limits(values), policy_of(Policy(), values), make_budget(values)
        values |= {"retry": policy.retry, "resources": values["resources"] or {}, "soft": values["soft"] or {}}
        values["devices"] = {kind: list(units) for kind, units in (values["devices"] or {}).items()}
        resolved = {name: _told(values[field.kept], field.option) for name, field in rows.items()}
        self.__dict__.update(resolved, unset=unset, limits=limits, budget=budget, policy=policy)


def policy_of(base: Policy, values: Mapping[str, Any]) -> Policy:
    """Return a policy with the kept values that belong to one; the rest comes from ``base``."""
    changes = {name: values[name] for name in values.keys() & _OF_POLICY}
    if "retry" in changes:
        retry = changes["retry"]
        retry = retry if isinstance(retry, Retry) else Retry(retry or 0)
        changes["retry"] = retry if retry.times else None
    return replace(base, **changes) if changes else base


def resized(hard_ram: bool, limits: LimitOptions) -> tuple[int | None, Budget]:
    """Return the number of slots and the budget that ``resize`` is given."""
    values = {**read_keywords(RESIZE, limits, "resize has"), "hard_ram": hard_ram}
    _find_gpus(values, log)
    return Limits(slots=values.get("slots")).slots, make_budget(values)


def size(name: str, value: Size) -> int:
    """Return a size in bytes, or an amount of anything else; refuse what is none, naming the setting."""
    try:
        return parse_size(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _find_gpus(values: dict[str, Any], log: Log) -> None:
    """Put the names and the memory of the GPUs of this machine in the place of "auto"; the log says if it has none."""
    if values.get(f"{GPU}s") == AUTO:
        from whywait.support.gpus import find_gpus

        values["gpus"], problem = find_gpus()
        if not values["gpus"]:
            log.warning("gpus='auto' has found no GPU: %s", problem)


def _order(values: Mapping[str, Any]) -> Order:
    order = values["order"]
    if isinstance(order, Strict | Aging):
        return order
    if order == "strict":
        return Strict()
    every_ns, boost = values.get("every_ns", 5 * NS), values.get("boost", 10)
    return Aging(every=every_ns / NS, boost=boost)


def _told(value: Any, option: Option) -> Any:
    """Return a value as users read it: a duration in seconds."""
    return value if value is None or option.form.least_ms is None else value / NS


class _Environment:
    """Reads variables; a malformed one is an error that names it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def values(self) -> dict[str, Any]:
        """Return what the variables of options say, by the names that the options are kept by."""
        values = {}
        for option in OPTIONS:
            if option.variable and (text := self._variables.get(option.variable, "").strip()):
                kept = option.name if option.form.least_ms is None else f"{option.name}_ns"
                values[kept] = _parsed(option, text)
        return values

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return which word of a few a variable says."""
        text = self._variables.get(name, "").strip().lower()
        if text and text not in allowed:
            raise ConfigError(f"environment variable {name}={text!r} is not allowed: use one of {', '.join(allowed)}")
        return text or default


def _parsed(option: Option, text: str) -> Any:
    """Return what a variable says: a path, a number, or a number of milliseconds or megabytes as its name ends."""
    variable, form = option.variable, option.form
    if form.hint.startswith("str"):
        return form.parse(text)
    schema = form.schema.get("anyOf", [form.schema])[0]
    least = schema.get("minimum", 0) if form.least_ms is None else form.least_ms
    most = LONGEST_S * 1000 if variable.endswith("_MS") else MOST
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"environment variable {variable}={text!r} is not allowed: use an int of {least} or more")
    if value > most:
        raise ConfigError(f"environment variable {variable}={shown(value)} is not allowed: use an int up to {most:,}")
    return value * (NS_PER_MS if variable.endswith("_MS") else MB if "_MB_" in variable else 1)
