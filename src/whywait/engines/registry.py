"""The engines of one authority: made when first needed, found by name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from whywait.engines.base import Engine
from whywait.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from whywait.authority import Authority


def _thread() -> Engine:
    from whywait.engines.thread import ThreadEngine

    return ThreadEngine()


def _simple() -> Engine:
    from whywait.engines.simple import SimpleEngine

    return SimpleEngine()


def _asyncio() -> Engine:
    from whywait.engines.aio import AsyncioEngine

    return AsyncioEngine()


def _process() -> Engine:
    from whywait.engines.process import ProcessEngine

    return ProcessEngine()


def _command() -> Engine:
    from whywait.engines.command import CommandEngine

    return CommandEngine()


def _ray() -> Engine:
    from whywait.engines.ray import RayEngine

    return RayEngine()


MAKERS: Final[dict[str, Callable[[], Engine]]] = {
    "thread": _thread,
    "simple": _simple,
    "asyncio": _asyncio,
    "process": _process,
    "command": _command,
    "ray": _ray,
}


class Engines:
    """All engines of one authority."""

    def __init__(self, authority: Authority, default: str | Engine) -> None:
        """Make the default engine; others follow when asked for."""
        self._authority = authority
        self._made: dict[str, Engine] = {}
        self._lock = threading.RLock()  # a finaliser may ask for an engine while one is made
        self._loop: asyncio.AbstractEventLoop | None = None
        self.default = self.get(default)

    def get(self, engine: str | Engine) -> Engine:
        """Return an engine by its name, or the given one, attached to this authority."""
        if isinstance(engine, Engine):
            if self._made.setdefault(f"{engine.name}@{id(engine)}", engine) is engine:
                engine.attach(self._authority)
            return engine
        return self._made.get(engine) or self._make(engine)

    def _make(self, name: str) -> Engine:
        if name not in MAKERS:
            raise ConfigError(f"engine {name!r} is unknown: use one of {', '.join(MAKERS)}, or an Engine")
        with self._lock:  # two of a kind would both have tasks, and one of them nobody who closes it
            made = self._made.get(name)
            if made is None:
                made = MAKERS[name]()
                made.attach(self._authority)
                if self._loop is not None:
                    made.use_loop(self._loop)
                made = self._made.setdefault(name, made)
        return made

    def choose(self, default: Engine, fn: Callable[..., Any], *, named: bool = False) -> Engine:
        """Return who carries a function out: that of commands or coroutines, else the default.

        ``named``: the task names an engine, which comes instead and may run other things than functions.
        """
        if not callable(fn) and default.name != "command" and not named:
            raise ConfigError(f"a task needs a function to call, not {fn!r}; a command is Command(...)")
        commands = sys.modules.get("whywait.engines.command")  # who has a Command has loaded it
        if commands is not None and isinstance(fn, commands.Command):
            return default if default.name == "command" else self.get("command")
        if not default.runs_coroutines and _gives_coroutines(fn):
            return self.get("asyncio")
        return default

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop."""
        with self._lock:
            self._loop = loop
            for engine in list(self._made.values()):
                engine.use_loop(loop)

    def close(self) -> None:
        """Release all engines."""
        for engine in self._made.values():
            engine.close()


def _gives_coroutines(fn: Callable[..., Any]) -> bool:
    """Return whether to call a function, or an object, is to get a coroutine."""
    from inspect import iscoroutinefunction

    return iscoroutinefunction(fn) or iscoroutinefunction(type(fn).__call__)
