"""The machine as Python sees it: :func:`lease`, a block that runs when the machine permits it, and :func:`add`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from whywait.errors import MachineError, TaskDropped
from whywait.kernel.durations import Seconds, patience_s
from whywait.machine.client import LeaseRequest, Machine, quoted
from whywait.machine.home import LEASE_VARIABLE, Home
from whywait.machine.home import VARIABLE as HOME_VARIABLE
from whywait.support.lazy import asyncio
from whywait.support.lent import environment, lent
from whywait.support.logger import log
from whywait.support.polling import has_input


class LeaseDemands(TypedDict, total=False):
    """What a lease or a job may ask for, spelled as in ``submit``."""

    cpu: int
    ram: int | str
    vram: int | str
    resources: dict[str, int | str]
    gpu: int
    devices: dict[str, int]
    priority: int | str
    scope: str
    after: str | list[str]
    max_wait: float | str


class JobDemands(LeaseDemands, total=False):
    """What a job may ask for beside a lease."""

    id: str
    retry: int
    timeout: float | str


class Lease:
    """A permission of the machine for a block of Python, for ``with`` and ``async with``; made by :func:`lease`."""

    def __init__(
        self, name: str, timeout: float | None, on_wait: Callable[[str], object] | None, asked: LeaseDemands
    ) -> None:
        """Ask for nothing yet: entering the block does."""
        self._name = name
        self._timeout = timeout
        self._on_wait = on_wait or self._log
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
        text: str = self._request.machine.ask("GET", f"/machine/jobs/{quoted(self._request.id)}")["text"]
        return text

    def __enter__(self) -> Self:
        """Wait for the permission; TimeoutError, with the reason, after ``timeout`` seconds."""
        request, deadline = self._ask()
        try:
            while (granted := self._hear(request, deadline)) is None or not request.takes(granted["environment"]):
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

    async def __aenter__(self) -> Self:
        """Wait without blocking the event loop."""
        request, deadline = await asyncio.to_thread(self._ask)
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        try:
            while True:
                if not request.has_message:
                    readable.clear()
                    loop.add_reader(request.fileno(), readable.set)
                    try:
                        await asyncio.wait_for(
                            readable.wait(), None if deadline is None else deadline - time.monotonic()
                        )
                    except TimeoutError:
                        pass  # which the request tells, with the reason
                    finally:
                        loop.remove_reader(request.fileno())
                granted = self._hear(request, deadline)
                if granted is not None and await asyncio.to_thread(request.takes, granted["environment"]):
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
            self._on_wait(self._reason)
        elif "ended" in message:
            ended = message["ended"]
            by = f" by {ended['by']}" if "by" in ended else ""
            raise TaskDropped(f"lease {request.id} ended as {ended['outcome']} ({ended['cause']}{by}), not granted yet")
        granted: dict[str, Any] | None = message.get("granted")
        return granted

    def _log(self, reason: str) -> None:
        log.info("lease %s waits: %s", self.id, reason)

    def _entered(self, granted: dict[str, Any]) -> Self:
        """Let what is asked for inside the block, in this context, be served out of this lease."""
        self.environment, self.devices = granted["environment"], granted["devices"]
        self._before = lent.set({**lent.get(), **self.environment})
        return self

    def _left(self) -> None:
        if self._before is not None:
            lent.reset(self._before)
            self._before = None

    def _give_back(self, exit_code: int) -> None:
        if self._request is None:
            return
        try:
            self._request.ended(exit_code)
        except MachineError as lost:
            log.warning("lease %s: %s; the block has run to its end", self.id, lost)
        finally:
            self._request.close()


def lease(
    *,
    name: str | None = None,
    timeout: Seconds | None = None,
    on_wait: Callable[[str], object] | None = None,
    **asked: Unpack[LeaseDemands],
) -> Lease:
    """Return a block, for ``with`` or ``async with``, that runs when the machine permits it.

    It waits up to ``timeout``. ``on_wait`` is called with the reason when it begins to wait and when the reason
    changes; else it is logged. ``name`` is what others are told that wait for it, the program's if left out.
    """
    called = os.path.basename(sys.argv[0]) if sys.argv else ""
    is_file = called and not called.startswith("-")  # of `python -c` and `python -m` it is the option
    return Lease(name or (called if is_file else "python"), patience_s(timeout), on_wait, asked)


class Job:
    """A command that was left to the machine; made by :func:`add`."""

    def __init__(self, machine: Machine, id: str, scope: str) -> None:
        """Stand for a job that was accepted."""
        self._machine = machine
        self._path = f"/machine/jobs/{quoted(f'{scope}/{id}')}"
        self.id = id
        self.scope = scope

    def status(self) -> dict[str, Any]:
        """Return what is known of it: the fields of ``whywait ls --json``."""
        found: dict[str, Any] = self._machine.ask("GET", self._path)
        return found

    def why(self) -> str:
        """Return why it waits, what it does, or how its wait divided."""
        text: str = self.status()["text"]
        return text

    def wait(self, timeout: Seconds | None = None) -> int:
        """Wait until it has ended; return its exit status, 1 if it never ran. TimeoutError after ``timeout``."""
        with self._machine.open("GET", f"{self._path}/wait", timeout=patience_s(timeout)) as answer:
            row = answer.rest()
        code: int | None = row["exit_code"]
        return code if code is not None else int(row["outcome"] != "success")

    def cancel(self) -> None:
        """End it if it waits, ask it to end if it runs; one that has ended stays as it is."""
        self._machine.ask("POST", f"{self._path}/cancel", {})

    def __repr__(self) -> str:
        """Show scope and id."""
        return f"<Job {self.scope}/{self.id}>"


def add(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    **asked: Unpack[JobDemands],
) -> Job:
    """Leave a command to the machine, to be run when it has what the command needs; return when that is on the disk.

    It runs in this directory with this environment; ``env`` is added to it.
    """
    machine = Machine(start=True)
    body = {
        "command": [os.fspath(each) for each in command] if not isinstance(command, str) else command,
        "directory": os.path.abspath(cwd) if cwd is not None else os.getcwd(),
        "environment": {**os.environ, **(env or {})},
        **asked,
    }
    answer = machine.ask("POST", "/machine/jobs", body)
    return Job(machine, answer["id"], answer["scope"])
