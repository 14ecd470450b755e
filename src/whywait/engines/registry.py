"""The engines of one authority: made when first needed, found by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal

from whywait.engines.base import Engine, Runtime
from whywait.errors import ConfigError

if TYPE_CHECKING:
    import asyncio


def _in(module: str, name: str) -> Callable[[], Engine]:
    """Return a function that imports the module of an engine and makes the engine."""

    def make() -> Engine:
        engine: Engine = getattr(import_module(f"whywait.engines.{module}"), name)()
        return engine

    return make


EngineName = Literal["thread", "simple", "asyncio", "process", "ray", "command"]
MAKERS: Final[dict[EngineName, Callable[[], Engine]]] = {
    "thread": _in("thread", "ThreadEngine"),
    "simple": _in("simple", "SimpleEngine"),
    "asyncio": _in("aio", "AsyncioEngine"),
    "process": _in("process.engine", "ProcessEngine"),
    "command": _in("command.engine", "CommandEngine"),
    "ray": _in("ray.engine", "RayEngine"),
}


class Engines:
    """All engines of one authority."""

    def __init__(self, runtime: Runtime, default: str | Engine) -> None:
        """Make the default engine; the others are made at their first use."""
        self._runtime = runtime
        self._made: dict[str, Engine] = {}
        self._lock = RLock()  # a finaliser may ask for an engine while one is made
        self._loop: asyncio.AbstractEventLoop | None = None
        self.default = self.get(default)
        if self.default.name in MAKERS:  # one that was given stands for its name
            self._made.setdefault(self.default.name, self.default)

    def get(self, engine: str | Engine) -> Engine:
        """Return an engine by its name, or the given one, attached to this authority."""
        if isinstance(engine, Engine):
            if self._made.setdefault(f"{engine.name}@{id(engine)}", engine) is engine:
                engine.attach(self._runtime)
            return engine
        return self._made.get(engine) or self._make(engine)

    def _make(self, name: str) -> Engine:
        if name not in MAKERS:
            raise ConfigError(f"engine {name!r} is unknown: use one of {', '.join(MAKERS)}, or an Engine")
        with self._lock:  # of two of a kind, both with tasks, one would never be closed
            made = self._made.get(name)
            if made is None:
                made = MAKERS[name]()
                made.attach(self._runtime)
                if self._loop is not None:
                    made.use_loop(self._loop)
                made = self._made.setdefault(name, made)
        return made

    def choose(self, default: Engine, fn: Callable[..., Any], *, named: bool = False) -> Engine:
        """Return the engine for a function: that of commands or of coroutines, else the default.

        ``named``: the task names an engine, which comes instead and may run other things than functions.
        """
        if not callable(fn) and default.name != "command" and not named:
            raise ConfigError(f"a task needs a function to call, not {fn!r}; a command is Command(...)")
        commands = sys.modules.get("whywait.engines.command.engine")  # a program that has a Command has loaded it
        if commands is not None and isinstance(fn, commands.Command):
            return default if default.name == "command" else self.get("command")
        if not default.runs_coroutines and gives_coroutines(fn):
            return self.get("asyncio").here()
        return default.here()

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on this loop that threads without a loop submit."""
        with self._lock:
            self._loop = loop
            for engine in list(self._made.values()):
                engine.use_loop(loop)

    def close(self) -> None:
        """Release all engines."""
        for engine in dict.fromkeys(self._made.values()):
            engine.close()


def gives_coroutines(fn: Callable[..., Any]) -> bool:
    """Return whether to call a function, or an object, is to get a coroutine."""
    from inspect import iscoroutinefunction

    return iscoroutinefunction(fn) or iscoroutinefunction(type(fn).__call__)
