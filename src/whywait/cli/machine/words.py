"""How the verbs of the machine tell times, amounts and tasks."""

from __future__ import annotations

import shlex

from whywait.support.units import format_ms, format_size

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

NOTHING: Final = "nothing"  # was done
_SIZES: Final = ("ram", "vram")
_BYTES: Final = 1_000_000  # an amount from here on is a size
WIDTH: Final = 60  # of a command
# What a job does now, after what a verb has done to it; of one that is paused or has ended the verb says that already.
_NOW: Final = {"DISPOSING": "it is ending", "RUNNING": "it runs", "READY": "it waits", "QUEUED": "it waits"}


def act_in_words(answer: dict[str, Any]) -> str:
    """Return what a verb has done to a job, a lease or a task, and what that does now."""
    done, state = answer["done"], answer["state"]
    if done == NOTHING:
        return f"has ended already ({state}), nothing was changed"
    return f"{done}, {_NOW[state]}" if state in _NOW else done


def since(seconds: float) -> str:
    """Return a duration as people say it."""
    return format_ms(seconds * 1000)


def amount(name: str, value: int) -> str:
    """Return an amount of a resource."""
    return format_size(value) if name in _SIZES or value >= _BYTES else str(value)


def command_line(task: dict[str, Any]) -> str:
    """Return the command of a job in one line that is not too long."""
    if task["command"]:
        text = shlex.join(task["command"])
    else:
        text = f"(one more job of {task['part_of']})" if task["part_of"] else "(a block of Python)"
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def paused(task: dict[str, Any]) -> str:
    """Return the word for a job or lease that is paused, with the reason if nobody has asked for it."""
    return "paused (its terminal stopped it)" if task["stopped"] else "paused"


def line_of(task: dict[str, Any]) -> str:
    """Return one living job or lease in a line: what it is, how long it has run or waited, and why."""
    if task["ran_s"] is not None:
        state = f", {paused(task)}" if task["state"] == "PAUSED" else ""
        return f"{task['id']}: {command_line(task)} ({since(task['ran_s'])}{state})"
    return f"{task['id']}: {command_line(task)} ({since(task['waited_s'])}); {task['why']}"
