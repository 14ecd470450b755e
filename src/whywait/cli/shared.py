"""What several commands share: options, completion, printing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.text import Text

from whywait.errors import WhywaitError
from whywait.support.devices import AUTO
from whywait.support.digits import number_in
from whywait.workflow.documents import FORMATS

TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Read the token here; your own runs on this machine need none."),
]


def parse_slots(text: str) -> int | None:
    """Take the value of ``--slots``: a number from 1, or ``none``."""
    if text.lower() == "none":
        return None
    if number := number_in(text):
        return number
    raise typer.BadParameter(f"{text!r} is neither an int >= 1 nor none", param_hint="'--slots'")


def parse_gpus(text: str) -> str | int | list[str] | None:
    """Return GPUs as they are written on the command line: auto, how many, the memory of each, or none."""
    if text.lower() == "none":
        return None
    if text == AUTO:
        return AUTO
    number = number_in(text)
    return [size.strip() for size in text.split(",")] if number is None else number


def print_text(text: str, out: TextIO | None = None) -> None:
    """Print a report to stdout, or to another stream: headings in bold on a terminal, plain elsewhere."""
    out = out or sys.stdout
    if out.isatty():
        console = Console(highlight=False, soft_wrap=True, file=out)
        for line in text.splitlines():
            console.print(Text(line, style="bold" if line and not line.startswith((" ", "▸")) else ""))
        return
    out.write(text)


def complete_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tasks of the file on the command line that begin like this, for the shell."""
    from whywait.workflow import load

    file = ctx.params.get("file") or _file_being_typed()
    try:
        tasks = load(file).tasks if file else ()
    except WhywaitError:
        return []
    names = dict.fromkeys(name for task in tasks for name in (task.name, task.id))
    return [name for name in names if name.startswith(incomplete)]


def _file_being_typed() -> str | None:
    """Return the file among the words from the shell; the parser misses it while an option lacks its value."""
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    known = tuple(suffix for each in FORMATS for suffix in each.suffixes)
    return next((word for word in words.split() if word.endswith(known)), None)
