"""What several verbs share: options, and printing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from whywait.errors import ConfigError
from whywait.support.devices import AUTO
from whywait.support.digits import number_in


def add_workflow(parser: argparse.ArgumentParser) -> None:
    """Add the file of a workflow, and what changes it."""
    parser.add_argument("file", metavar="FILE", help="the workflow: .toml, .yaml or .json; - reads standard input")
    parser.add_argument(
        "--set", dest="sets", metavar="KEY=VALUE", action="append", default=[],
        help="set a variable of [vars], or any field by its path; repeat",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, for programs")


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return what takes the value of an option that is an int within bounds."""

    def parse(text: str) -> int:
        number = number_in(text)
        if number is None or not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not an int from {low} to {high}")
        return number

    return parse


def parse_slots(text: str) -> int | None:
    """Take the value of ``--slots``: a number from 1, or ``none``."""
    if text.lower() == "none":
        return None
    if number := number_in(text):
        return number
    raise ConfigError(f"--slots: {text!r} is neither an int >= 1 nor none")


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
    if is_terminal(out):
        lines = text.splitlines()
        text = "".join(f"\x1b[1m{line}\x1b[0m\n" if line and line[0] not in " ▸" else f"{line}\n" for line in lines)
    out.write(text)


def is_terminal(out: TextIO) -> bool:
    """Return whether a stream is a terminal that can do more than print lines."""
    return out.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


def write_out(path: Path, text: str) -> None:
    """Write what ``--out`` was given for."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror or error}") from error
