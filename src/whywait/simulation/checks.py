"""Checks of what a file says about a task: its priority and its id."""

from __future__ import annotations

from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.ids import GENERATED_ID_PREFIX, LONGEST_ID
from whywait.kernel.limits import HIGHEST, LOWEST, Priority
from whywait.support.fields import name, nearest
from whywait.support.units import shown

PRIORITIES: Final = tuple(word.lower() for word in vars(Priority) if word.isupper())


def priority(value: Any) -> int:  # noqa: ANN401  whatever stands in a file
    """Check for a priority: an int from 0 to 100 or a name."""
    try:
        return Priority.parse(value)
    except ValueError:
        expected = f"an int from {LOWEST} to {HIGHEST} or one of {', '.join(PRIORITIES)}"
        raise ConfigError(f"{shown(value)} is not allowed: expected {expected}{nearest(value, PRIORITIES)}") from None


def short_name(value: object) -> str:
    """Check for a name that is not too long for messages and views."""
    checked = name(value)
    if len(checked) > LONGEST_ID:
        raise ConfigError(f"{shown(value)} is not allowed: expected at most {LONGEST_ID:,} characters")
    return checked


def task_id(value: object) -> str:
    """Check for an id that a user may give to a task."""
    checked = short_name(value)
    if checked.startswith(GENERATED_ID_PREFIX):
        raise ConfigError(
            f"{shown(value)} is not allowed: ids that begin with {GENERATED_ID_PREFIX} are given by whywait"
        )
    return checked
