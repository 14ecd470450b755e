"""``whywait top``: a served run in a terminal, live."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from whywait.cli.keys import Keys
from whywait.cli.machine.words import act_in_words
from whywait.cli.shared import add_json
from whywait.cli.top_view import SORTS, Screen, row_label
from whywait.devtools.remote import Remote, RemoteError

_EVERY_S: Final = 1.0
_STEP_S: Final = 0.1
_SHOWN: Final = 500

HELP: Final = """Show a run in this terminal, live: what runs, what waits, why, and for which tasks.

It shows a run that was started with --devtools, or by whywait serve or demo.

  whywait top                            # the only run that is served on this machine
  whywait top flow.toml                  # the one of this file
  whywait top http://127.0.0.1:8123      # the one at this address

Keys: up and down (or j and k) choose a task, w or Enter asks why, s sorts by another column, c cancels, p pauses,
r resumes, q leaves. Where the output is no terminal it is printed once.

Exit code: 0, or 2 if there is no such run."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("target", metavar="URL|FILE", nargs="?", help="which run; not needed if only one is served")
    add("--token-file", metavar="FILE", type=Path, help="read the token here; your own runs on this machine need none")
    add("--sort", choices=SORTS, default=SORTS[0], help="sort the waiting tasks by this")
    add("--once", action="store_true", help="print it once and leave")
    add_json(parser, "it once")


def run(options: argparse.Namespace) -> int:
    """Show a served run in this terminal."""
    remote = Remote(options.target, options.token_file)
    screen = Screen(options.sort)
    screen.take(*_look(remote))
    console = Console(highlight=False)
    if options.json:
        sys.stdout.write(json.dumps({"info": screen.info, "snapshot": screen.snapshot, "tasks": screen.tasks}) + "\n")
    elif options.once or not console.is_terminal:
        console.print(screen)
    else:
        _follow(remote, screen, console)
    return 0


def _look(remote: Remote) -> tuple[Any, Any, Any]:
    """Ask for what there is to show."""
    tasks = remote.get("/api/tasks", state="living", limit=_SHOWN)["tasks"]
    return remote.get("/api/info"), remote.get("/api/snapshot"), tasks


def _follow(remote: Remote, screen: Screen, console: Console) -> None:
    with Keys() as keys, Live(screen, console=console, screen=True, auto_refresh=False) as live:
        looked_at = time.monotonic()
        while True:
            key = keys.read(_STEP_S)
            if key == "q":
                return
            if key:
                _act(remote, screen, key)
            elif time.monotonic() - looked_at < _EVERY_S:
                continue
            try:
                screen.take(*_look(remote))
                screen.ask(remote)
            except RemoteError as error:
                screen.lost(str(error))
            looked_at = time.monotonic()
            live.update(screen, refresh=True)


def _act(remote: Remote, screen: Screen, key: str) -> None:
    verb = {"c": "cancel", "p": "pause", "r": "resume"}.get(key)
    chosen = screen.chosen
    if verb is None:
        screen.press(key)
    elif chosen is not None:
        try:
            answer = remote.act(verb, chosen["number"])
            screen.message = f"{row_label(chosen)}: {act_in_words(answer)}"
        except RemoteError as error:
            screen.message = str(error)
