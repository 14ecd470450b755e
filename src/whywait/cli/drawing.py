"""``whywait graph``: a workflow file as a drawing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from whywait.cli.shared import add_workflow, print_text, write_out
from whywait.workflow import load
from whywait.workflow.drawings import FORMATS
from whywait.workflow.plan import changed

_SUFFIXES: Final = {
    ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".txt": "text",
}  # fmt: skip

HELP: Final = """Draw what comes after what in a workflow file.

A tree of text, a Mermaid chart for a README, a picture through graphviz:
  whywait graph flow.toml
  whywait graph flow.toml --format mermaid
  whywait graph flow.toml --out flow.svg

Exit code: 0, or 2 if the file is malformed or graphviz is needed and not installed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_workflow(parser)
    add = parser.add_argument
    add("--format", "-f", choices=list(FORMATS), help="what to draw; by default what --out ends in, or text")
    add("--out", "-o", metavar="FILE", type=Path, help="write there, not to stdout")
    add("--only", metavar="TASK", action="append", default=[], help="draw these and what they need")


def run(options: argparse.Namespace) -> int:
    """Draw what comes after what in a workflow file."""
    workflow = changed(load(options.file, options.sets), only=options.only)
    out = options.out
    chosen = options.format or (_SUFFIXES.get(out.suffix.lower(), "text") if out is not None else "text")
    text = FORMATS[chosen](workflow)
    if out is not None:
        write_out(out, text)
    elif chosen == "text":
        print_text(text)
    else:
        sys.stdout.write(text)
    return 0
