"""What a body used, as it is measured, told with its end, and read again from events."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = tuple[tuple[str, Any], ...]  # as they stand among the details of an event


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process of a task used with all its descendants: peak of memory in bytes, and seconds of CPU time.

    ``how`` says what measured the memory: ``cgroup`` (the system counted it), ``sampled`` (it was looked at several
    times a second, so that a short peak of several processes together may be missed). ``thread``: the CPU time of the
    body's thread alone; threads share the memory of their program, so ``peak_ram`` is None.
    """

    cpu_s: float
    peak_ram: int | None
    how: str

    def facts(self) -> Facts:
        """Return it as details of an event."""
        ram = () if self.peak_ram is None else (("peak_ram", self.peak_ram),)
        return (*ram, ("cpu_ms", round(self.cpu_s * 1000)), ("measured", self.how))

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Usage | None:
        """Return what the details of an event tell; None if nothing was measured."""
        how = details.get("measured")
        return None if how is None else cls(details.get("cpu_ms", 0) / 1000, details.get("peak_ram"), how)


def exit_facts(code: int) -> Facts:
    """Return how a process ended as details of an event: its exit code as a shell has it, and the signal if any.

    A signal that ended it is a negative ``code`` here; a shell adds its number to 128.
    """
    if code >= 0:
        return (("exit_code", code),)
    return (("exit_code", 128 - code), ("exit_signal", signal_name(-code)))


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number in words."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
