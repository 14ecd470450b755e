"""``whywait graph``: a workflow file as a drawing."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from whywait.cli.shared import complete_tasks, print_text
from whywait.errors import ConfigError
from whywait.workflow import load
from whywait.workflow.drawings import FORMATS
from whywait.workflow.plan import changed

_SUFFIXES: Final = {
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
    ".txt": "text",
}

HELP: Final = """Draw what comes after what in a workflow file.

\b
A tree of text, a Mermaid chart for a README, a picture through graphviz:
  whywait graph flow.toml
  whywait graph flow.toml --format mermaid
  whywait graph flow.toml --out flow.svg

Exit code: 0, or 2 if the file is malformed or graphviz is needed and not installed.
"""


class FormatName(StrEnum):
    """The drawings there are."""

    text = "text"
    mermaid = "mermaid"
    dot = "dot"
    svg = "svg"


def graph(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The workflow: .toml, .yaml or .json; - reads standard input.")
    ],
    *,
    form: Annotated[
        FormatName | None, typer.Option("--format", "-f", help="What to draw; by default what --out ends in, or text.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write there, not to stdout.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TASK", help="Draw these and what they need.", autocompletion=complete_tasks),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for run: set a variable or a field.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Draw what comes after what in a workflow file."""
    workflow = changed(load(file, sets or ()), only=only or ())
    chosen = (
        form.value if form is not None else _SUFFIXES.get(out.suffix.lower(), "text") if out is not None else "text"
    )
    text = FORMATS[chosen](workflow)
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written: {error.strerror or error}") from error
    elif chosen == "text":
        print_text(text)
    else:
        sys.stdout.write(text)
