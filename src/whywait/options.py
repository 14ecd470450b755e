"""The keywords of scopes, tasks and periodics, as types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from whywait.errors import ConfigError
from whywait.kernel.model import Retry
from whywait.settings import Seconds, Size


class ScopeOptions(TypedDict, total=False):
    """What a scope may set for itself; what is left out is inherited, None means explicitly none."""

    slots: int | None
    max_spawn: int | None
    on_error: str
    queue_limit: int | None
    overflow: str
    when_busy: str
    max_wait: Seconds | None
    retry: int | Retry
    timeout: Seconds | None
    engine: Any
    grace: Seconds


class TaskOptions(TypedDict, total=False):
    """What a task may set for itself."""

    id: str | None
    kwargs: Mapping[str, Any] | None
    after: Iterable[Any]
    after_ended: Iterable[Any]
    priority: int | str
    cpu: int
    ram: Size
    vram: Size
    resources: Mapping[str, Size] | None
    timeout: Seconds | None
    retry: int | Retry
    max_wait: Seconds | None
    engine: Any


class PeriodicOptions(TypedDict, total=False):
    """What the tasks of a periodic may set, beside its own keywords."""

    kwargs: Mapping[str, Any] | None
    cpu: int
    ram: Size
    vram: Size
    resources: Mapping[str, Size] | None
    timeout: Seconds | None
    retry: int | Retry
    max_wait: Seconds | None
    engine: Any


class Call(NamedTuple):
    """One task of a batch for ``submit_many``."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    options: TaskOptions | None = None


def refuse_unknown(what: str, given: Mapping[str, Any], allowed: type) -> None:
    """Raise ConfigError if a keyword is not one of those that are allowed."""
    unknown = given.keys() - allowed.__annotations__.keys()
    if unknown:
        raise ConfigError(f"unknown {what} options {sorted(unknown)}: use {', '.join(allowed.__annotations__)}")
