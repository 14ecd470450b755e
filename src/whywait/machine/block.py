"""A lease: a block of Python that runs when the machine permits it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from whywait.errors import MachineError, TaskDropped
from whywait.kernel.durations import Seconds, patience_s
from whywait.machine.client import LeaseRequest, Machine, quoted
from whywait.machine.home import LEASE_VARIABLE, Home
from whywait.machine.home import VARIABLE as HOME_VARIABLE
from whywait.support.lazy import asyncio
from whywait.support.lent import environment, lent
from whywait.support.logger import log
from whywait.support.polling import has_input

if TYPE_CHECKING:
    from whywait.runtime.option_types import LeaseOptions


class Lease:
    """A permission of the machine for a block of Python, for ``with`` and ``async with``; made by :func:`lease`."""

    def __init__(
        self, name: str, timeout: float | None, on_wait: Callable[[str], object] | None, asked: LeaseOptions
    ) -> None:
        """Ask for nothing yet: entering the block does."""
        self._name = name
        self._timeout = timeout
        self._on_wait = on_wait
        self._asked = asked
        self._request: LeaseRequest | None = None
        self._reason = ""
        self._before: Token[Mapping[str, str]] | None = None
        self.environment: dict[str, str] = {}
        """What a program that is started inside the block may have in its environment: it finds the lease by it."""
        self.devices: dict[str, Any] = {}

    @property
    def id(self) -> str | None:
        """What the machine calls it, once it was asked for."""
        return None if self._request is None else self._request.id

    @property
    def lost(self) -> bool:
        """Whether the service has ended, and with it the permission."""
        if self._request is None:
            return False
        # While a block runs, only the end of the connection comes, or a wish to end.
        return self._request.has_message or has_input(self._request)

    def why(self) -> str:
        """Return why it waits, what it does, or how its wait divided, from any thread."""
        if self._request is None:
            return f"{self._name} has not been asked for"
        answer = self._request.machine.ask("GET", f"/machine/jobs/{quoted(self._request.id)}")
        text: str = answer["text"]
        return text

    def __enter__(self) -> Self:
        """Wait for the permission; TimeoutError, with the reason, after ``timeout`` seconds."""
        request, deadline = self._ask()
        try:
            while (granted := self._hear(request, deadline)) is None or not request.takes(_token(granted)):
                pass
        except BaseException:
            request.close()
            raise
        return self._entered(granted)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the permission back."""
        self._left()
        self._give_back(0 if kind is None else 1)

    def _give_back(self, exit_code: int) -> None:
        request = self._request
        if request is None:
            return
        try:
            request.ended(exit_code)
        except MachineError as lost:
            log.warning("lease %s: %s; the block has run to its end", self.id, lost)
        finally:
            request.close()

    async def __aenter__(self) -> Self:
        """Wait without blocking the event loop."""
        request, deadline = await asyncio.to_thread(self._ask)
        loop = asyncio.get_running_loop()
        try:
            while True:
                if not request.has_message:
                    await _readable(loop, request, None if deadline is None else deadline - time.monotonic())
                granted = self._hear(request, deadline)
                if granted is not None and await asyncio.to_thread(request.takes, _token(granted)):
                    return self._entered(granted)
        except BaseException:
            request.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the permission back."""
        self._left()
        await asyncio.shield(asyncio.to_thread(self._give_back, 0 if kind is None else 1))

    def _entered(self, granted: dict[str, Any]) -> Self:
        """Let what is asked for inside the block, in this context, be served out of this lease."""
        self.environment, self.devices = granted["environment"], granted["devices"]
        self._before = lent.set({**lent.get(), **self.environment})
        return self

    def _left(self) -> None:
        if self._before is not None:
            lent.reset(self._before)
            self._before = None

    def _ask(self) -> tuple[LeaseRequest, float | None]:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        variables = environment()
        home = variables.get(HOME_VARIABLE) if LEASE_VARIABLE in variables else None  # of the lease around this one
        machine = Machine(Home(home), start=True, say=log.info)
        asked: dict[str, Any] = {**self._asked, "inside": variables.get(LEASE_VARIABLE)}
        self._request = LeaseRequest(machine, self._name, command=False, **asked)
        return self._request, deadline

    def _hear(self, request: LeaseRequest, deadline: float | None) -> dict[str, Any] | None:
        """Hear one message; return what it grants, if it does."""
        try:
            message = request.receive(None if deadline is None else max(0.001, deadline - time.monotonic()))
        except TimeoutError:
            raise TimeoutError(f"lease {request.id} was not granted in {self._timeout} s: {self._reason}") from None
        if "waiting" in message:
            self._reason = message["waiting"]
            (self._on_wait or self._log)(self._reason)
        elif "ended" in message:
            ended = message["ended"]
            by = f" by {ended['by']}" if "by" in ended else ""
            raise TaskDropped(f"lease {request.id} ended as {ended['outcome']} ({ended['cause']}{by}), not granted yet")
        granted: dict[str, Any] | None = message.get("granted")
        return granted

    def _log(self, reason: str) -> None:
        log.info("lease %s waits: %s", self.id, reason)


def lease(
    *,
    name: str | None = None,
    timeout: Seconds | None = None,
    on_wait: Callable[[str], object] | None = None,
    **asked: Unpack[LeaseOptions],
) -> Lease:
    """Return a block, for ``with`` or ``async with``, that runs when the machine permits it.

    It waits up to ``timeout``. ``on_wait`` is called with the reason when it begins to wait and when the reason
    changes; else it is logged. ``name`` is what others are told that wait for it, the program's if left out.
    """
    called = os.path.basename(sys.argv[0]) if sys.argv else ""
    is_file = called and not called.startswith("-")  # of `python -c` and `python -m` it is the option
    return Lease(name or (called if is_file else "python"), patience_s(timeout), on_wait, asked)


def _token(granted: dict[str, Any]) -> str:
    """Return what a permission is known by."""
    token: str = granted["environment"][LEASE_VARIABLE]
    return token


async def _readable(loop: Any, request: LeaseRequest, within_s: float | None) -> None:  # noqa: ANN401 - an event loop
    """Wait until there is something to hear, or until the time is over, which the request tells by itself."""
    ready = asyncio.Event()
    loop.add_reader(request.fileno(), ready.set)
    try:
        await asyncio.wait_for(ready.wait(), within_s)
    except TimeoutError:
        return
    finally:
        loop.remove_reader(request.fileno())
