"""How sentences count things and name jobs."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Give a number of things as people say it: ``1 task``, ``1,200 tasks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def called(label: str) -> str:
    """Return how a sentence names a task: a job that has only a number is "job 4", so that it is not read as a unit."""
    return f"job {label}" if label.isdecimal() else label
