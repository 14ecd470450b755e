"""What several commands share: options, completion, printing."""

from __future__ import annotations

import sys
from io import TextIOWrapper

import typer
from rich.console import Console
from rich.text import Text

from whywait.errors import WhywaitError


def parse_slots(text: str) -> int | None:
    """Take the value of ``--slots``: a number from 1, or ``none``."""
    if text.lower() == "none":
        return None
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither an int >= 1 nor none", param_hint="'--slots'")


def print_text(text: str) -> None:
    """Print a report: headings in bold on a terminal, plain elsewhere."""
    if sys.stdout.isatty():
        console = Console(highlight=False, soft_wrap=True)
        for line in text.splitlines():
            console.print(Text(line, style="bold" if line and not line.startswith((" ", "▸")) else ""))
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a stream that knows no bars still gets the figures
    sys.stdout.write(text)


def complete_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tasks of the file on the command line that begin like this, for the shell."""
    from whywait.workflow import load

    file = ctx.params.get("file")
    try:
        tasks = load(file).tasks if file else ()
    except WhywaitError:
        return []
    names = dict.fromkeys(name for task in tasks for name in (task.name, task.id))
    return [name for name in names if name.startswith(incomplete)]
