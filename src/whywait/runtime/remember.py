"""What an authority tells its history: how each attempt came to its end, under the name of its task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from whywait.errors import ConfigError
from whywait.kernel.events import Kind, RawEvent, details_of
from whywait.kernel.kernel import Kernel
from whywait.kernel.state import Outcome
from whywait.support.known import Known, function_name
from whywait.support.learned import Learned

if TYPE_CHECKING:
    from whywait.observe.history import History

_LONGEST: Final = 300  # characters of a name
_ENDS: Final[dict[str, str]] = {Kind.TASK_FINISHED: Outcome.SUCCESS, Kind.TASK_CANCELLED: Outcome.ABORTED}


def teller(kernel: Kernel, history: History) -> Callable[[RawEvent], None]:
    """Return what tells a history of each attempt that ends; it takes all events of the kernel, under its lock."""
    from whywait.observe.history import Finished

    began: dict[int, tuple[int, str]] = {}  # attempts that run, by number: since when, and what they are called

    def take(raw: RawEvent) -> None:
        _, time_ns, kind, scope, number, _, _, _ = raw
        if number is None:
            return
        if kind == Kind.TASK_STARTED:
            execution: Any = kernel.scopes[scope].tasks[number]
            began[number] = time_ns, history_name(execution.given_name, execution.fn)
        elif kind in _ENDS and number in began:
            since_ns, name = began.pop(number)
            told = dict(details_of(raw) or ())
            history.add(
                Finished(
                    name,
                    time.time(),
                    time_ns - since_ns,
                    told.get("outcome", _ENDS[kind]),
                    told.get("cause"),
                    told.get("exit_code"),
                    told.get("peak_ram"),
                    told.get("cpu_ms"),
                )
            )

    return take


def learned_ram(history: History | None, learned: Learned, name: str) -> int:
    """Return the memory that a task asks for by what its history says; ConfigError if that says nothing."""
    return learned_rams(history, {name: learned})[name]


def learned_rams(history: History | None, learned: Mapping[str, Learned]) -> dict[str, int]:
    """Do the same for many tasks by their names."""
    known = {} if history is None or not learned else history.learned_rams(learned)
    return {name: _settled(history, name, known.get(name), each.first) for name, each in learned.items()}


def _settled(history: History | None, name: str, known: int | None, first: int | None) -> int:
    if history is None:
        raise ConfigError(
            f"ram='learned' of task {name!r} needs a history: give the authority one by history=FILE, "
            "a workflow by history = FILE or --history FILE, a program by WHYWAIT_HISTORY"
        )
    found = known if known is not None else first
    if found is None:
        raise ConfigError(
            f"ram='learned' of task {name!r}: {history.path} has no success of that name whose memory was measured "
            "(commands and process tasks are); write ram='learned:2GB' to ask for 2GB until there is one"
        )
    return found


def history_name(name: str | None, body: Any) -> str:
    """Return what the history calls a task: its id, else its command, or its function by module and name.

    It is asked under the authority's lock, so nothing of the user's is run to find it.
    """
    if issubclass(type(body), Known):
        known: str = body.known_as(name)
    else:
        known = name if name is not None else function_name(body)
    return known[:_LONGEST]
