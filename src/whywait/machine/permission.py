"""A granted lease as the guard of a command sees it."""

from __future__ import annotations

import os
from contextlib import suppress

from whywait.errors import MachineError
from whywait.machine.client import Gone

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from whywait.machine.client import LeaseRequest


class Permission:
    """A granted lease as the guard of the command sees it."""

    def __init__(self, request: LeaseRequest) -> None:
        """Stand for a lease."""
        self._request = request

    def takes(self, lease: str) -> bool:
        """Take the permission, known by the value of its variable; return whether the service has not withdrawn it."""
        try:
            return self._request.takes(lease)
        except MachineError:  # the service is gone, which the request tells
            return False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._request.fileno()

    @property
    def has_orders(self) -> bool:
        """Whether orders are there that the descriptor does not show any more."""
        return self._request.has_message

    def orders(self) -> list[dict[str, str]]:
        """Return what the service wishes of the command, with the cause of an end; raise EOFError if it is gone."""
        orders: list[dict[str, str]] = []
        try:
            while True:
                message = self._request.receive()
                if "wish" in message:
                    orders.append(message)
                if not self._request.has_message:
                    return orders
        except Gone:
            raise EOFError from None

    def parked(self) -> None:
        """Tell that the command has stopped, as the service wished."""
        with suppress(MachineError):  # the service is gone, or the wish is no longer there
            self._request.parked()

    def stopped(self, *, is_stopped: bool) -> None:
        """Tell that the terminal has stopped the command, or lets it go on."""
        with suppress(MachineError):
            self._request.stopped(is_stopped=is_stopped)

    def ended(self, status: int, peak: int, cpu_s: float, *, out_of_memory: bool) -> None:
        """Give the permission back; tell what one process of the command had of memory at most, and the CPU time."""
        with suppress(MachineError):  # the service is gone, or has taken it back
            self._request.ended(os.waitstatus_to_exitcode(status), peak, cpu_s, out_of_memory=out_of_memory)
