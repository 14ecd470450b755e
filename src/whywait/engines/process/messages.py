"""What a running body in another process and this program tell each other: messages come up, lines go down."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, Full
from typing import Any, Final, Protocol

from whywait.engines.process.frames import KIND_ASK, KIND_EMIT, KIND_NOTE, KIND_PARKED, PARK, unpack_named
from whywait.engines.process.pickling import dumps
from whywait.errors import TaskAborted, WhywaitError
from whywait.task.context import TaskContext
from whywait.task.streams import Pickled
from whywait.task.surroundings import RunningTask

Wish = tuple[int, bool, str]  # the number of the pause (0: none), whether the task counts as parked, why to end (or "")
NOTHING: Final[Wish] = (0, False, "")


def wish_of(task: RunningTask) -> Wish:
    """Return what is wished of a task now."""
    signal = task.signal
    return NOTHING if signal is None else (signal.pause, signal.parked, signal.reason or "")


def wish_line(number: int, wish: Wish) -> str:
    """Return the line that brings a wish about the task of a number to its process, for :class:`ChildServices`."""
    pause, parked, reason = wish
    return f"wish {number} {pause} {parked:d} {reason}"


class Outside(Protocol):
    """Where (a part of) a task runs, as far as messages are concerned."""

    outlets: dict[str, Any]
    number: int  # of the task that it runs now; what is said later has to name the task that asked

    def say(self, line: str) -> None:
        """Tell it something about a task."""

    def answer(self, number: int, question: int, data: bytes) -> None:
        """Send the answer to a question of a task."""


def take_message(task: RunningTask, outside: Outside, kind: int, payload: bytes | bytearray) -> None:
    """Act on a message from where (a part of) a task runs."""
    core = task.core
    if kind == KIND_PARKED:
        signal = task.signal
        if signal is not None and signal.pause == PARK.unpack(payload)[0]:
            core.parked(task)
    elif kind == KIND_EMIT:
        name, data = unpack_named(payload)
        core.stream_of(task, name).put_promised(outside, Pickled(data))
    elif kind == KIND_ASK:
        name, data = unpack_named(payload)
        want, room = int.from_bytes(data, "little"), f"room {outside.number} {name.encode().hex()}"
        stream = core.open_stream(task, name, want)
        outside.outlets[name] = stream
        stream.ask_room(outside, want, lambda count: outside.say(f"{room} {count}"))
    elif kind == KIND_NOTE:
        event, details = pickle.loads(payload)
        core.note(task, event, details)
    else:
        question, asked = pickle.loads(payload)
        name = f"whywait-answer-{task.label}-{question}"  # it may have to wait for its answer
        tell = partial(outside.answer, outside.number, question)
        threading.Thread(target=_answer, args=(task, tell, asked), name=name, daemon=True).start()


def forget_streams(outside: Outside) -> None:
    """Take back the room in streams that it was promised."""
    for stream in outside.outlets.values():
        stream.forget_producer(outside)
    outside.outlets.clear()


def _answer(task: RunningTask, tell: Callable[[bytes], None], asked: tuple[Any, ...]) -> None:
    """Do what is asked of a queue."""
    verb, name, limit, timeout, data = asked
    answer: tuple[bool, Any] | WhywaitError = False, None
    try:
        queue = TaskContext(task).queue(name, limit=limit)
        if verb == "put":
            queue.put(pickle.loads(data), timeout)
            answer = True, None
        elif verb == "get":
            answer = True, queue.get(timeout)
        else:
            answer = True, len(queue)
    except TaskAborted:
        return  # the child knows
    except WhywaitError as error:
        answer = error
    except (Empty, Full):
        pass
    tell(dumps(answer))
