"""What ``whywait add`` and ``whywait do`` have in common: demands, options, and the command itself."""

from __future__ import annotations

import argparse
import sys

from whywait.errors import ConfigError
from whywait.support.digits import number_or_text

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any


def add_demands(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a command needs, and when it may run."""
    add = parser.add_argument
    add("--cpu", metavar="N", type=int, help="so many cores")
    add("--ram", metavar="SIZE", help="so much memory: 6GB, 512MiB; learned, or learned:2GB: as much as it used before")
    add("--gpu", metavar="N", type=int, help="so many GPUs, whole; with --vram, that share of each of so many")
    add("--vram", metavar="SIZE", help="so much memory of a GPU, which others may share")
    add("--device", metavar="KIND=N", action="append", default=[], help="so many devices of another kind; repeat")
    add(
        "--resource",
        metavar="NAME=AMOUNT",
        action="append",
        default=[],
        help="so much of a resource that up names; repeat",
    )
    add("--priority", metavar="P", help="critical, high, normal, low, background, or 0 to 100")
    add("--max-wait", metavar="TIME", type=time_of, help="give up if it has not started after this long: 30s, 1h")
    add("--no-start", action="store_true", help="refuse if no service runs, instead of starting one")


def add_command(parser: argparse.ArgumentParser) -> None:
    """Add the command at the end."""
    parser.add_argument("command", metavar="-- CMD", nargs=argparse.REMAINDER, help="the program and its arguments")


def command_of(options: argparse.Namespace, verb: str) -> list[str]:
    """Return the command that was given."""
    command: list[str] = options.command
    if command and command[0] == "--":
        command = command[1:]
    elif "--" in command:
        raise ConfigError(
            f"{command[0]!r} stands before -- and is no option: write the whole command behind it, as in: "
            f"whywait {verb} -- make test"
        )
    if not command:
        raise ConfigError(f"there is no command: write it at the end, as in: whywait {verb} -- make test")
    return command


def time_of(text: str) -> float | str:
    """Return a duration as the service takes it: a number of seconds, or text with a unit."""
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def demands_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the demands and options that were given, as the service takes them."""
    asked: dict[str, Any] = {}
    for name in ("cpu", "ram", "vram", "gpu", "priority", "max_wait"):
        value = getattr(options, name)
        if value is not None:
            asked[name] = value
    for name in ("ram", "vram"):
        if name in asked:
            _check_size(f"--{name}", asked[name])
    if "priority" in asked:
        asked["priority"] = number_or_text(asked["priority"])
    if options.resource:
        asked["resources"] = resources_of(options.resource)
    if options.device:
        asked["devices"] = resources_of(options.device, "--device", "KIND=N, as in rig=1")
    return asked


def resources_of(
    texts: list[str], option: str = "--resource", form: str = "NAME=AMOUNT, as in licence=1"
) -> dict[str, int | str]:
    """Return amounts by name, as an option that may be repeated gives them."""
    return dict(_named(text, option, form) for text in texts)


def say(text: str) -> None:
    """Say something beside the output of the program."""
    sys.stderr.write(f"whywait: {text}\n")


def _check_size(option: str, text: str) -> None:
    """Refuse what is no size with its unit, nor one that the history knows."""
    from whywait.support.learned import as_learned
    from whywait.support.units import parse_written_size

    try:
        if as_learned(text) is None:
            parse_written_size(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def _named(text: str, option: str, form: str) -> tuple[str, int | str]:
    name, equals, amount = text.partition("=")
    if not name or not equals or not amount:
        raise ConfigError(f"{option} {text!r} is not allowed: write {form}")
    return name, number_or_text(amount)
