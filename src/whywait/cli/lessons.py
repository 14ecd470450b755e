"""``whywait history``: what finished runs teach, by the names of tasks."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from whywait.cli.shared import add_json, print_text
from whywait.errors import ConfigError
from whywait.machine.home import Home
from whywait.observe.history import History, Lesson
from whywait.support.units import format_ms, format_size, printable

HELP: Final = """List what finished runs teach: how long tasks take, how much memory they use, how they ended.

  whywait run flow.toml --history history.db
  whywait history history.db

Without FILE it is the one that WHYWAIT_HISTORY names, or else the one of the service of this machine. Tasks whose names
differ in a number at the end, or behind a colon, are one line. Durations are the median, memory the highest peak, of
the last ten successes.

Exit code: 0, or 2 if there is no such file."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file of a history")
    add_json(parser, "a list of objects")


def run(options: argparse.Namespace) -> int:
    """List what finished runs teach."""
    path = Path(options.file or os.environ.get("WHYWAIT_HISTORY") or Home().history).expanduser()
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such history; runs write one with --history FILE or WHYWAIT_HISTORY")
    lessons = History(path).lessons() if path.stat().st_size else []  # an empty file stays one
    if options.json:
        sys.stdout.write(json.dumps([lesson._asdict() for lesson in lessons]) + "\n")
    else:
        print_text(_table(lessons))
    return 0


def _table(lessons: list[Lesson]) -> str:
    if not lessons:
        return "nothing has ended yet\n"
    rows = [("task", "runs", "takes", "peak memory", "last", "outcomes"), *map(_row, lessons)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _row(lesson: Lesson) -> tuple[str, ...]:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(lesson.outcomes.items()))
    return (
        printable(lesson.name),
        str(lesson.runs),
        "-" if lesson.median_s is None else format_ms(lesson.median_s * 1000),
        "-" if lesson.peak_ram is None else format_size(lesson.peak_ram),
        f"{format_ms(max(0.0, time.time() - lesson.last_ended) * 1000)} ago",
        outcomes,
    )
