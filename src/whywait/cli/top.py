"""``whywait top``: a served run in a terminal, live."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from whywait.cli.machine.acting import act_in_words
from whywait.cli.shared import add_json
from whywait.cli.top_view import SORTS, Screen, row_label
from whywait.devtools.remote import Remote, RemoteError

_EVERY_S: Final = 1.0
_STEP_S: Final = 0.1
_SHOWN: Final = 500
_ARROWS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_KEY: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

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
    with single_keys() as read_key, Live(screen, console=console, screen=True, auto_refresh=False) as live:
        looked_at = time.monotonic()
        while (key := read_key(_STEP_S)) != "q":
            if key:
                _act(remote, screen, key)
            elif time.monotonic() - looked_at < _EVERY_S:
                continue
            try:
                screen.take(*_look(remote))
                screen.ask(remote)
            except RemoteError as error:
                screen.message = str(error)
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


@contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Let single keys through for the time of the block, without Enter; Ctrl-C stays what it is.

    What it gives returns the key that was pressed, or an empty text after so many seconds.
    """
    if not sys.stdin.isatty():  # nothing is ever pressed

        def wait(timeout_s: float) -> str:
            time.sleep(timeout_s)
            return ""

        yield wait
        return
    import termios
    import tty

    pressed: list[bytes] = []

    def read(timeout_s: float) -> str:
        if not pressed and select.select([sys.stdin], [], [], timeout_s)[0]:
            pressed.extend(_KEY.findall(os.read(sys.stdin.fileno(), 1024)) or [b"q"])  # nothing: the terminal is gone
        key = pressed.pop(0) if pressed else b""
        return _ARROWS.get(key, key.decode("latin-1"))

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin.fileno())
    try:
        yield read
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
