"""A job of the machine as Python sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from whywait.kernel.durations import Seconds, patience_s
from whywait.machine.client import Machine, quoted

if TYPE_CHECKING:
    from whywait.runtime.option_types import JobOptions


class Job:
    """A command that was left to the machine; made by :func:`add`."""

    def __init__(self, machine: Machine, id: str, scope: str) -> None:
        """Stand for a job that was accepted."""
        self._machine = machine
        self.id = id
        self.scope = scope

    def status(self) -> dict[str, Any]:
        """Return what is known of it: the fields of ``whywait ls --json``."""
        found: dict[str, Any] = self._machine.ask("GET", self._path())
        return found

    def why(self) -> str:
        """Return why it waits, what it does, or how its wait divided."""
        text: str = self.status()["text"]
        return text

    def wait(self, timeout: Seconds | None = None) -> int:
        """Wait until it has ended; return its exit status, 1 if it never ran. TimeoutError after ``timeout``."""
        with self._machine.open_within(patience_s(timeout), "GET", f"{self._path()}/wait") as answer:
            row = answer.rest()
        code: int | None = row["exit_code"]
        return code if code is not None else int(row["outcome"] != "success")

    def cancel(self) -> None:
        """End it if it waits, ask it to end if it runs; one that has ended stays as it is."""
        self._machine.ask("POST", f"{self._path()}/cancel", {})

    def _path(self) -> str:
        return f"/machine/jobs/{quoted(f'{self.scope}/{self.id}')}"

    def __repr__(self) -> str:
        """Show scope and id."""
        return f"<Job {self.scope}/{self.id}>"


def add(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    **asked: Unpack[JobOptions],
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
