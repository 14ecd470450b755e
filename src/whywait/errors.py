"""Every exception whywait raises, grouped by whose fault it is.

* The caller's: :class:`ConfigError`, :class:`UnknownTask`, :class:`UnknownScope`, :class:`StaleRef`,
  :class:`ScopeExists`, :class:`InvalidTransition`.
* A refused submission: :class:`Rejected` and its kin. Nothing of a refused submission stays behind.
* The task's end, as seen through its handle: :class:`TaskFailed`, :class:`CommandFailed`, :class:`TaskAborted`,
  :class:`TaskTimeout`, :class:`TaskDropped`.
* The body's lack of cooperation: :class:`PauseTimeout`, :class:`DisposeIncomplete`.
* The system's: :class:`AuthorityBroken`, a lack of memory or a signal in the midst of a command.
* The machine's: :class:`MachineError`, what its service or its client has to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class WhywaitError(Exception):
    """Base of every error that whywait raises itself."""


class ConfigError(WhywaitError, ValueError):
    """A setting, file or argument has a value that is not allowed."""


class Rejected(WhywaitError):
    """A submission was refused.

    ``check`` is the step of the submission that refused it, ``cause`` the code of the reason.
    """

    def __init__(self, message: str, *, check: str, cause: str) -> None:
        """Say which ``check`` refused the submission and the ``cause`` code."""
        super().__init__(message)
        self.check = check
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Keep ``check`` and ``cause`` across process boundaries."""
        return _rebuild_rejected, (type(self), str(self), self.check, self.cause)


class QueueFull(Rejected):
    """The queue limit is reached and nothing may be displaced."""


class Infeasible(Rejected):
    """The demand can never be met by the budget."""


class DuplicateTask(Rejected):
    """The task id was already used in this scope."""


class UnknownDependency(Rejected):
    """A dependency does not exist."""


class ScopeClosed(Rejected):
    """The scope's state does not accept submissions."""


class UnknownTask(WhywaitError, LookupError):
    """No task has this id or ref."""


class UnknownScope(WhywaitError, LookupError):
    """No living scope has this key."""


class StaleRef(WhywaitError, LookupError):
    """The ref was valid once: its task has ended or was retried under a new ref."""


class ForeignRef(WhywaitError, LookupError):
    """The ref belongs to another authority."""


class ScopeExists(WhywaitError):
    """A living scope has this key already."""


class InvalidTransition(WhywaitError):
    """The state machine does not allow this step from the present state."""


class TaskFailed(WhywaitError):
    """The task ended with an error that carries no exception of its own."""


class CommandFailed(TaskFailed):
    """A command ended with an exit code other than 0, or by a signal, or could not be started.

    ``returncode`` is its exit code, minus the signal's number, or what a shell would say: 127 for a command that was
    not found, 126 for one that cannot be executed. ``stderr`` is the tail of what it wrote there.
    """

    def __init__(self, message: str, returncode: int, stderr: str = "") -> None:
        """Keep ``returncode`` and the tail of ``stderr``."""
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr
        self.out_of_memory = False  # the system has killed it for lack of memory

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all of it across process boundaries."""
        return type(self), (str(self), self.returncode, self.stderr), {"out_of_memory": self.out_of_memory}


class TaskAborted(WhywaitError):
    """The task was aborted: cancelled, its scope disposed, or a dependency failed."""


class TaskTimeout(WhywaitError, TimeoutError):
    """The task ran longer than its timeout."""


class TaskDropped(WhywaitError):
    """The task was dropped while it was pending."""


class PauseTimeout(WhywaitError, TimeoutError):
    """The body reached no checkpoint in time after a pause was asked for; the task is cancelled."""


class DisposeIncomplete(WhywaitError):
    """Bodies still run after the grace time; the scope stays DISPOSING.

    ``survivors`` names them.
    """

    def __init__(self, message: str, survivors: Sequence[str] = ()) -> None:
        """Keep the ids of the tasks that still run as ``survivors``."""
        super().__init__(message)
        self.survivors = tuple(survivors)


class AuthorityBroken(WhywaitError):
    """A command was broken off in the midst, so the whole authority has failed: none of its tasks goes on (A2)."""


class MachineError(WhywaitError):
    """The service of this computer refused, is not there, or cannot be started."""


def _rebuild_rejected(kind: type[Rejected], message: str, check: str, cause: str) -> Rejected:
    return kind(message, check=check, cause=cause)


_SHOWN: Final = 60  # characters of a value in a message
_MESSAGE: Final = 500  # characters of a message about a file; a part of it may come from the file


def shown(value: object) -> str:
    """Give the value as a message may quote it: JSON's words for constants, and never longer than a line."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:  # turning it into digits may be refused or slow
        return f"an int of {value.bit_length()} bits"
    text = printable((f'"{value}"' if isinstance(value, str) else repr(value))[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def shortened(message: str) -> str:
    """Return a message about a file, cut if it is longer than a person reads."""
    return message if len(message) <= _MESSAGE else f"{message[:_MESSAGE]}…"


def printable(text: str) -> str:
    """Escape what a terminal would not print but obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
