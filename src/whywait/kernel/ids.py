"""Ids: how long one may be, and those of tasks that were given none."""

from __future__ import annotations

import re
from typing import Final

from whywait.errors import printable

GENERATED_ID_PREFIX: Final = "@"
_NUMBER: Final = re.compile(r"[@#]([0-9]{1,20})\Z")  # of a task without a name, of an iteration
_LONGEST_FUNCTION: Final = 60  # characters of a function's name that are shown
LONGEST_ID: Final = 1_000  # characters, of tasks, scopes and periodics: each is in many events, messages and views


def generated_id(number: int) -> str:
    """Return the id of a task that was given none; it sorts in submission order."""
    return f"{GENERATED_ID_PREFIX}{number:010d}"


def is_generated(ident: str, number: int) -> bool:
    """Return whether this is the id that a task with this number is given, with its zeros or without ("@12")."""
    return ident in (generated_id(number), f"{GENERATED_ID_PREFIX}{number}")


def label_of(ident: str, number: int, function: str | None) -> str:
    """Return how a task is shown: by its id, or "download@12" if it was given none and its function is known.

    What a terminal would not print but obey is escaped, so that a name is text in whatever message it stands.
    """
    return printable(ident if function is None else f"{function}{GENERATED_ID_PREFIX}{number}")


def function_shown(called: object) -> str | None:
    """Return the name of a function as labels have it, "lambda" for one without; None: it is no name."""
    return called.strip("<>")[:_LONGEST_FUNCTION] or None if isinstance(called, str) else None


def number_of(ident: str) -> int | None:
    """Return the number at the end of a generated id, of a task or of an iteration; None: there is none."""
    found = _NUMBER.search(ident)
    return int(found[1]) if found else None


def family_of(ident: str) -> str:
    """Return the name that tasks share which differ in a number at the end, or behind a colon.

    "smooth-12" is of "smooth-*", and "train:large", of a matrix, is of "train:*".
    """
    if ident.startswith(GENERATED_ID_PREFIX):
        return f"{GENERATED_ID_PREFIX}*"
    matrix, colon, _ = ident.partition(":")
    if matrix and colon:
        return f"{matrix}:*"
    start = ident.rstrip("0123456789")
    return ident if start == ident or not start else f"{start}*"
