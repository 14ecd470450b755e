"""``whywait why``, ``cancel``, ``pause``, ``resume``: a served run, asked or told from another terminal."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Final

import typer

from whywait.cli.machine.acting import act_in_words
from whywait.cli.shared import TokenFile, print_text
from whywait.support.units import printable

_TASK: Final = "The task: its id, scope/id, number, or @number."
_URL: Final = "The address of the run, or the file that was started; not needed if only one is served."

WHY_HELP: Final = """Say why a task waits, what it does, or what it has waited for.

It asks the service of this machine (whywait up) first, then runs with --devtools, or of whywait serve or demo.

\b
  whywait run flow.toml --devtools       # in one terminal
  whywait why pack                       # in another
  whywait why render/pack --url http://127.0.0.1:8123

Exit code: 0, or 2 if there is no such task or no such run.
"""


def why(
    task: Annotated[str, typer.Argument(metavar="TASK", help=_TASK)],
    *,
    url: Annotated[str | None, typer.Option("--url", metavar="URL|FILE", help=_URL)] = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `run` looks for it
) -> None:
    """Say why a task waits."""
    from whywait.devtools.remote import Remote

    answer = Remote(url, token_file).task(task)
    if as_json:
        sys.stdout.write(json.dumps({"task": answer["task"], "why": answer["why"], "text": answer["text"]}) + "\n")
    else:
        print_text("\n".join(printable(line) for line in answer["text"].splitlines()) + "\n")


def acting(verb: str) -> Any:  # noqa: ANN401 - a command for typer
    """Return the command that does ``verb`` to a task."""

    def act(
        task: Annotated[str, typer.Argument(metavar="TASK", help=_TASK)],
        *,
        url: Annotated[str | None, typer.Option("--url", metavar="URL|FILE", help=_URL)] = None,
        token_file: TokenFile = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")] = False,
        debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `run` looks for it
    ) -> None:
        from whywait.devtools.remote import Remote

        answer = Remote(url, token_file).act(verb, task)
        if as_json:
            sys.stdout.write(json.dumps(answer) + "\n")
        else:
            print_text(printable(f"{task}: {act_in_words(answer)}") + "\n")

    return act


_ASKED: Final = (
    "It asks the service of this machine (whywait up) first, then runs with --devtools, or of whywait serve or demo."
)


def _help(text: str, example: str) -> str:
    return f"{text}\n\n{_ASKED}\n\n\b\n  {example}\n"


ACT_HELPS: Final = {
    "cancel": (
        _help("End a task: one that waits at once; one that runs is asked to end.", "whywait cancel sweep-07"),
        "End a task.",
    ),
    "pause": (
        _help("Pause a task: a command where it is, a function where it next asks.", "whywait pause train"),
        "Pause a task.",
    ),
    "resume": (_help("Let a paused task go on.", "whywait resume train"), "Let a paused task go on."),
}
