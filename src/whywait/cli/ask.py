"""``whywait why``, ``cancel``, ``pause``, ``resume``: a job of the service, or a task of a run with DevTools.

Without ``--url`` the service is asked first, if one runs; an id that it does not have is looked for among the runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from whywait.cli.machine.acting import act_in_words
from whywait.errors import WhywaitError, printable
from whywait.machine.client import Machine, NoService, Unknown, quoted

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    import argparse
    from typing import Any, Final

_ASKED: Final = (
    "It asks the service of this machine (whywait up) first, then runs with --devtools, or of whywait serve or demo."
)
HELP: Final = {
    "why": f"""Say why a task waits, what it does, or what it has waited for.

{_ASKED}

  whywait run flow.toml --devtools       # in one terminal
  whywait why pack                       # in another
  whywait why render/pack --url http://127.0.0.1:8123

Exit code: 0, or 2 if there is no such task or no such run.""",
    "cancel": f"""End a task: one that waits at once; one that runs is asked to end.

{_ASKED}

  whywait cancel sweep-07""",
    "pause": f"""Pause a task: a command where it is, a function where it next asks.

{_ASKED}

  whywait pause train""",
    "resume": f"""Let a paused task go on.

{_ASKED}

  whywait resume train""",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verbs."""
    add = parser.add_argument
    add("task", metavar="TASK", help="the task: its id, scope/id, number, or @number")
    add("--url", metavar="URL|FILE", help="the address of the run, or the file that was started; if several are served")
    add("--token-file", metavar="FILE", type=Path, help="read the token here; your own runs on this machine need none")
    add("--json", action="store_true", help="print the answer as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """Ask about a task, or do something to it."""
    if options.url is None and options.token_file is None:
        name, answer = _of_the_machine(options)
    else:
        name, answer = _of_a_run(options)
    if options.json:
        sys.stdout.write(json.dumps(answer) + "\n")
    elif options.verb == "why":
        sys.stdout.write("\n".join(map(printable, answer["text"].splitlines())) + "\n")
    else:
        sys.stdout.write(printable(f"{name}: {act_in_words(answer)}") + "\n")
    return 0


def _of_a_run(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the answer of a served run."""
    from whywait.devtools.remote import Remote

    remote = Remote(options.url, options.token_file)
    if options.verb != "why":
        return options.task, remote.act(options.verb, options.task)
    answer = remote.task(options.task)
    return options.task, {key: answer[key] for key in ("task", "why", "text")}


def _of_the_machine(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the answer of the service; if it has no such id, or none runs, that of a served run."""
    path = f"/machine/jobs/{quoted(options.task)}"
    machine = Machine()
    try:
        answer = (
            machine.ask("GET", path) if options.verb == "why" else machine.ask("POST", f"{path}/{options.verb}", {})
        )
    except NoService as none:
        if _is_any_served():
            return _of_a_run(options)
        raise NoService(
            f"{none}; no served run was found either: start it with --devtools, or give its address"
        ) from None
    except Unknown as unknown:
        if not _is_any_served():
            raise
        try:
            return _of_a_run(options)
        except WhywaitError as error:  # a run that does not answer must not hide that the id is wrong
            raise Unknown(f"{unknown}; nor was it found in a served run: {error}") from None
    return answer["id"], answer


def _is_any_served() -> bool:
    from whywait.devtools.beacon import living

    return bool(living())
