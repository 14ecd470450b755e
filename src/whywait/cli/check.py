"""``whywait check``: everything that is wrong with a workflow file, at once."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Final

import typer

from whywait.cli.shared import print_text
from whywait.errors import ConfigError, printable
from whywait.support.words import counted
from whywait.workflow import WorkflowError, load
from whywait.workflow.plan import levels

_BAD_INPUT: Final = 2

HELP: Final = """Tell everything that is wrong with a workflow file; nothing is run.

\b
  whywait check flow.toml
  flow.toml:7: task.sort.after: "maek" is not a task of this file; did you mean "make"?

Modules of call = "module:function" are looked at, not imported. Editors find the same mistakes while you type, with
the schema that whywait schema prints.

Exit code: 0 nothing is wrong, 2 something is.
"""


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The workflow: .toml, .yaml or .json; - reads standard input.")
    ],
    *,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for run: set a variable or a field.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the problems as JSON, for programs.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Tell everything that is wrong with a workflow file."""
    try:
        workflow = load(file, sets or ())
    except WorkflowError as error:
        rows = [{"line": line, "place": place, "message": message} for line, place, message in error.problems]
        _report(rows, "\n".join(error.lines()), as_json=as_json)
    except ConfigError as error:
        _report([{"line": None, "place": "", "message": str(error)}], str(error), as_json=as_json)
    else:
        if as_json:
            sys.stdout.write(json.dumps({"ok": True, "tasks": len(workflow.tasks), "problems": []}) + "\n")
            return
        found = [(workflow.tasks, "task"), (levels(workflow), "step")]
        found += [(workflow.periodics, "periodic"), (workflow.scopes, "scope")]
        told = ", ".join(counted(len(each), noun) for each, noun in found if each)
        print_text(printable(f"{workflow.source}: all is well: {told}") + "\n")


def _report(rows: list[dict[str, str | int | None]], text: str, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"ok": False, "problems": rows}) + "\n")
    else:
        print_text("\n".join(map(printable, text.splitlines())) + "\n")
    raise typer.Exit(_BAD_INPUT)
