"""``whywait check``: everything that is wrong with a workflow file, at once."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from whywait.cli.shared import add_json, add_workflow, print_text
from whywait.errors import ConfigError, printable
from whywait.support.words import counted
from whywait.workflow import WorkflowError, load
from whywait.workflow.plan import levels

_BAD_INPUT: Final = 2

HELP: Final = """Tell everything that is wrong with a workflow file; nothing is run.

  whywait check flow.toml
  flow.toml:7: task.sort.after: "maek" is not a task of this file; did you mean "make"?

Modules of call = "module:function" are looked at, not imported. Editors find the same mistakes while you type, with
the schema that whywait schema prints.

Exit code: 0 nothing is wrong, 2 something is."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_workflow(parser)
    add_json(parser, "the problems")


def run(options: argparse.Namespace) -> int:
    """Tell everything that is wrong with a workflow file."""
    try:
        workflow = load(options.file, options.sets)
    except WorkflowError as error:
        rows = [{"line": line, "place": place, "message": message} for line, place, message in error.problems]
        lines = error.lines()
    except ConfigError as error:
        rows = [{"line": None, "place": "", "message": str(error)}]
        lines = str(error).splitlines()
    else:
        if options.json:
            sys.stdout.write(json.dumps({"ok": True, "tasks": len(workflow.tasks), "problems": []}) + "\n")
            return 0
        found = [(workflow.tasks, "task"), (levels(workflow), "step")]
        found += [(workflow.periodics, "periodic"), (workflow.scopes, "scope")]
        told = ", ".join(counted(len(each), noun) for each, noun in found if each)
        print_text(printable(f"{workflow.source}: all is well: {told}") + "\n")
        return 0
    if options.json:
        sys.stdout.write(json.dumps({"ok": False, "problems": rows}) + "\n")
    else:
        print_text("\n".join(map(printable, lines)) + "\n")
    return _BAD_INPUT
