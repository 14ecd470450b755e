"""Lazy: a resource that a scope owns, made by the first running task that is handed it, closed with the scope.

What makes it and what closes it:

1. A task that is about to run asks for the value, in its slot and its share of the budget. The first one makes it,
   under the lock of the lazy; others that ask meanwhile wait for that lock, so that it is made once.
2. A ``make`` that fails fails the task that asked, and leaves nothing behind: the next task tries again.
3. Once the kernel has the scope as DISPOSED, all bodies have ended and no task can ask any more; only then is it
   closed, outside all locks of the authority, the one that was made last first.
4. Processes share nothing: the process engine lends what makes and what closes it, and each process has a value of its
   own, which is made by the first task there and closed when the process ends, with the scope at the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from threading import RLock
from typing import Any, Generic, TypeVar

from whywait.engines.base import Engine
from whywait.errors import ConfigError, InvalidTransition
from whywait.kernel.model import Scope
from whywait.kernel.state import ScopeState
from whywait.support.logger import Log
from whywait.support.raised import loggable

T = TypeVar("T")


class Lazy(Generic[T]):
    """A resource of a scope; handed to ``submit`` as an argument, the body gets its value."""

    __slots__ = ("_close", "_is_made", "_lent_to", "_lock", "_make", "_scope", "_value", "_when_made")

    def __init__(
        self,
        scope: Scope,
        make: Callable[[], T],
        close: Callable[[T], object] | None,
        when_made: Callable[[Lazy[Any]], None],
    ) -> None:
        """Made by ``Scope.lazy`` only; ``when_made`` is called each time before the value is there."""
        for name, fn in (("make", make), ("close", close)):
            if (fn is not None or name == "make") and (not callable(fn) or iscoroutinefunction(fn)):
                raise ConfigError(f"lazy {name} {fn!r} is not allowed: use a plain function")
        self._scope = scope
        self._make = make
        self._close = close
        self._when_made = when_made
        self._lock = RLock()
        self._lent_to: list[Engine] = []
        self._is_made = False
        self._value: T | None = None

    @property
    def is_made(self) -> bool:
        """Whether the value is there, in this process."""
        return self._is_made

    @property
    def is_over(self) -> bool:
        """Whether no task can ask for the value any more: the scope is DISPOSED."""
        return self._scope.state == ScopeState.DISPOSED

    def __repr__(self) -> str:
        """Show the scope and whether the value is there."""
        name = getattr(self._make, "__qualname__", repr(self._make))
        state = "made" if self._is_made else "lent to worker processes" if self._lent_to else "not made"
        return f"<Lazy {name} of scope {self._scope.key!r}, {state}>"

    def _check_use(self, scope: Scope, engine: Engine) -> None:
        """Refuse a task that may not be handed the value."""
        if self._scope not in scope.chain:
            raise ConfigError(
                f"{self!r} is not for a task of scope {scope.key!r}: hand it to tasks of its own scope or of one inside"
            )
        if not engine.shares_memory and not engine.makes_lazies:
            raise ConfigError(
                f"{self!r} is not for engine {engine.name!r}, whose bodies run elsewhere: "
                'use engine="thread" or "process", or make the resource in the body'
            )

    def fetch(self) -> T:
        """Return the value; make it if it is not there. For a task that runs."""
        if not self._is_made:
            with self._lock:
                if not self._is_made:
                    self._refuse_if_over()
                    self._value = self._make()
                    self._is_made = True
                    self._when_made(self)
        return self._value  # type: ignore[return-value] # it is made

    def lend_to(self, engine: Engine) -> tuple[Callable[[], T], Callable[[T], object] | None]:
        """Return what makes and what closes it, for processes of an engine. For a task that runs."""
        self._refuse_if_over()
        if engine not in self._lent_to:  # without the lock, which is held while it is made here; twice does no harm
            self._lent_to.append(engine)
            self._when_made(self)
        return self._make, self._close

    def _refuse_if_over(self) -> None:
        if self.is_over:
            raise InvalidTransition(f"{self!r}: its scope has ended, and the resource was closed with it")

    def _end(self, log: Log) -> None:
        """Close the value; an error is logged."""
        while self._lent_to:
            self._lent_to.pop().take_back(self)
        with self._lock:
            if not self._is_made:
                return
            value, self._value, self._is_made = self._value, None, False
        if self._close is not None:
            try:
                self._close(value)  # type: ignore[arg-type] # it was made
            except BaseException as error:
                log.exception("closing %r failed", self, exc_info=loggable(error))


check_use = Lazy._check_use  # noqa: SLF001 - for the runtime only
end = Lazy._end  # noqa: SLF001 - for the runtime only
