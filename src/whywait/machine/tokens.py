"""The tokens of a command's jobserver, as permissions of the machine: each is a lease of one cpu, without a slot.

They belong to the lease of the command: when that has ended, they have too, however the client ended.
"""

from __future__ import annotations

from contextlib import suppress

from whywait.errors import MachineError
from whywait.machine.client import LeaseRequest
from whywait.machine.jobserver import Jobserver

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from whywait.machine.client import Machine
    from whywait.trees.sources import Sources


class Tokens:
    """Keeps the jobserver of one command supplied."""

    def __init__(self, request: LeaseRequest, style: str, asked: dict[str, Any]) -> None:
        """Make the jobserver of a command that has a lease of as much as it ``asked`` for."""
        self._request = request
        self._asked = {"cpu": 1, "slot": False, "part_of": request.id, "priority": asked.get("priority")}
        self._jobserver = Jobserver(style, asked["cpu"] - 1, max(asked["cpu"], _cpu_of(request.machine)) - 1)
        self._waiting: LeaseRequest | None = None
        self._held: list[LeaseRequest] = []
        self._is_watched = False  # its descriptor is among the sources
        self._sources: Sources

    def add_to(self, environment: MutableMapping[str, str]) -> None:
        """Tell the command of its jobserver."""
        self._jobserver.add_to(environment)

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the command has to inherit."""
        return self._jobserver.inherited

    def begin(self, sources: Sources) -> None:
        """Wait for changes among these sources from now on."""
        self._sources = sources
        self.look()

    def look(self) -> None:
        """Ask for more or give back, as the jobserver needs; wait for tokens that come back while that matters."""
        self._jobserver.look(self)
        if self._jobserver.has_to_look != self._is_watched:
            self._is_watched = self._jobserver.has_to_look
            if self._is_watched:
                self._sources.add(self._jobserver.fileno(), self.look)
            else:
                self._sources.remove(self._jobserver.fileno())

    def wanted(self, *, is_wanted: bool) -> None:
        """Note whether other tasks of the machine wait for cpu."""
        self._jobserver.wanted(is_wanted=is_wanted)
        self.look()

    def close(self) -> None:
        """Remove the jobserver; its permissions go with that of the command."""
        self._jobserver.close()

    # The supply of the jobserver. A service that does not answer is gone: the guard hears of that by itself.

    def ask(self) -> None:
        """Ask the machine for one more cpu."""
        with suppress(MachineError):
            self._waiting = LeaseRequest(self._request.machine, f"{self._request.id}.job", command=False, **self._asked)
            self._sources.add(self._waiting.fileno(), self._hear)
            if self._waiting.has_message:
                self._hear()

    def withdraw(self) -> None:
        """Ask for it no longer."""
        if self._waiting is not None:
            self._sources.remove(self._waiting.fileno())
            self._waiting.close()
            self._waiting = None

    def give_back(self, count: int) -> None:
        """Return so many cpu to the machine."""
        for _ in range(count):
            request = self._held.pop()
            with suppress(MachineError):
                request.ended()
            request.close()

    def _hear(self) -> None:
        """Take what the machine says to the request that waits."""
        request = self._waiting
        assert request is not None, "only a request that waits is heard"
        try:
            messages = [request.receive()]
            while request.has_message:
                messages.append(request.receive())
        except MachineError:
            messages = [{"ended": {}}]
        for message in messages:
            if "granted" in message or "ended" in message:
                self._sources.remove(request.fileno())
                self._waiting = None
                if "granted" in message:
                    self._held.append(request)
                    self._jobserver.granted()
                    self.look()
                return


def _cpu_of(machine: Machine) -> int:
    """Return how much cpu a machine has."""
    budget = machine.ask("GET", "/machine/status?most=1")["budget"]
    found: int = next((each["limit"] for each in budget if each["name"] == "cpu"), 1)
    return found
