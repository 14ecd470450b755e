"""``whywait up`` and ``whywait down``: the service itself."""

from __future__ import annotations

import argparse
import os
import sys

from whywait.cli.machine.asking import named, say, time_of
from whywait.errors import ConfigError, MachineError, WhywaitError
from whywait.machine.home import VARIABLE, Home
from whywait.support.core import VARIABLE as CORE_VARIABLE
from whywait.support.digits import number_in

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

UP: Final = """Run the service of this machine: one budget for everything that is given to it.

  whywait up --detach
  whywait up --ram 24GB --slots 8
  whywait up --systemd > ~/.config/systemd/user/whywait.service

It has the cores and the memory of this machine unless it is told otherwise. Its options are kept: the next start
without any, also one by whywait add or do, has the same. It runs until Ctrl-C, or in the background with --detach,
until: whywait down. Everything of it is in one folder, WHYWAIT_HOME or the user's folder for state."""

DOWN: Final = """End the service of this machine. Jobs that wait are kept, and the next service takes them up.

  whywait down
  whywait down --now

It takes nothing more and ends with the last that runs. With --now it ends what runs: such a job counts as failed, or
has its next attempt with the next service."""

UNIT: Final = """\
[Unit]
Description=whywait: one budget for everything that runs on this machine

[Service]
ExecStart={command}
Environment=WHYWAIT_HOME={home}
Restart=on-failure
KillMode=mixed
Delegate=yes

[Install]
WantedBy=default.target
"""


def _number(text: str) -> int:
    number = number_in(text)
    if not number:
        raise ConfigError(f"{text!r} is not allowed: use an int of 1 or more")
    return number


def _count(text: str) -> int:
    number = number_in(text)
    if number is None:
        raise ConfigError(f"{text!r} is not allowed: use an int of 0 or more")
    return number


def _seconds(text: str) -> float:
    from whywait.kernel.durations import NS, parse_duration_ns

    return parse_duration_ns(time_of(text)) / NS


def _size(text: str) -> int:
    from whywait.support.units import parse_written_size

    return parse_written_size(text)


def _ram(text: str) -> int:
    """Return the memory to share: some, and no more than there is."""
    from whywait.support.memory import total_memory
    from whywait.support.units import format_size

    size, has = _size(text), total_memory()
    if not size or (has is not None and size > has):
        there = "" if has is None else f": this computer has {format_size(has)}"
        raise ConfigError(f"{format_size(size)} is not allowed{there}")
    return size


def _order(text: str) -> Any:
    from whywait.kernel.order import Aging, Strict

    return Strict() if text == "off" else Aging(every=_seconds(text), boost=10, cap=99)


def _gpus(text: str) -> dict[str, int]:
    from whywait.support.devices import parse_gpus

    number = number_in(text)
    return parse_gpus([_size(each) for each in text.split(",")] if number is None else number)


def _path(text: str) -> str:
    """Return the path of a file in full, from the folder that it was typed in."""
    return text if text == "none" else os.path.abspath(os.path.expanduser(text))


def _units(pairs: list[tuple[str, int | str]]) -> dict[str, int | list[str]]:
    return {kind: units if isinstance(units, int) else units.split(",") for kind, units in pairs}


_MANY: Final[dict[str, Any]] = {"action": "append"}
_FLAG: Final[dict[str, Any]] = {"action": "store_true"}
# The options that a home keeps for the next start, one on demand included: how each is written, its help, the keyword
# of the service that it stands for, and what makes the value.
KEPT: Final[tuple[tuple[str, dict[str, Any], str, str, Callable[[Any], Any]], ...]] = (
    ("--slots", {"metavar": "N|none"}, "run so many at once; the cores of the machine if left out",
     "slots", lambda text: None if text == "none" else _number(text)),
    ("--cpu", {"metavar": "N"}, "share so many cores; those of the machine if left out", "cpu", _number),
    ("--ram", {"metavar": "SIZE"}, "share so much memory; nine tenths of the machine's if left out", "ram", _ram),
    ("--soft-ram", _FLAG, "let a job that needs more memory than --ram run while nothing else does",
     "hard_ram", lambda is_soft: not is_soft),
    ("--gpus", {"metavar": "N|SIZES|none"},
     "share these GPUs: 2, or 24GB,12GB; those of the machine if left out",
     "gpus", lambda text: {} if text == "none" else _gpus(text)),
    ("--vram", {"metavar": "SIZE"}, "share so much memory of GPUs that are not told apart", "vram", _size),
    ("--device", {"metavar": "KIND=UNITS", **_MANY}, "share devices of another kind: rig=a,b or fpga=2; repeat",
     "devices", lambda texts: _units([named(text) for text in texts])),
    ("--resource", {"metavar": "NAME=AMOUNT", **_MANY}, "share so much of something else; repeat",
     "resources", lambda texts: dict(named(text) for text in texts)),
    ("--aging", {"metavar": "TIME|off"},
     "lift a waiting job by 10 points each time it has waited so long; 10m if left out", "order", _order),
    ("--pause-timeout", {"metavar": "TIME"}, "end what does not stop so soon after a pause; 1.5s if left out",
     "pause_timeout", _seconds),
    ("--history", {"metavar": "FILE|none", "type": _path},
     "learn from runs in this file; history.db of the service if left out",
     "history", lambda path: None if path == "none" else path),
    ("--keep", {"metavar": "N"}, "list so many ended jobs; 10000 if left out", "keep", _count),
    ("--keep-for", {"metavar": "TIME"}, "list ended jobs so long; 30 days if left out", "keep_for_s", _seconds),
)  # fmt: skip


def up_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``up``."""
    add = parser.add_argument
    add("--detach", action="store_true", help="go to the background as soon as it listens")
    add("--systemd", action="store_true", help="print a unit for systemd's user services instead, with these options")
    for option, form, text, _, _ in KEPT:
        add(option, help=text, **form)
    add("--defaults", action="store_true", help="forget the options that were kept, and begin without any")
    add("--new-token", action="store_true", help="let the page ask for another token from now on")
    add("--ready", help=argparse.SUPPRESS)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return those of the options that the home keeps and that were given, with their values."""
    values = {option: getattr(options, option[2:].replace("-", "_")) for option, *_ in KEPT}
    return {option: value for option, value in values.items() if value is not None and value is not False}


def _as_written(given: dict[str, Any]) -> list[str]:
    written = []
    for option, value in given.items():
        several = value if isinstance(value, list) else [value]
        written += [option if each is True else f"{option}={each}" for each in several]
    return written


def _settled(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the options stand for: keywords of the service."""
    cores = os.cpu_count() or 1
    settled: dict[str, Any] = {"slots": cores, "cpu": cores, "ram": "auto"}
    for option, _, _, keyword, make in KEPT:
        if option in given:
            try:
                settled[keyword] = make(given[option])
            except (ConfigError, argparse.ArgumentTypeError) as error:
                raise ConfigError(f"{option}: {error}") from None
    if "gpus" not in settled and "vram" not in settled:
        from whywait.support.gpus import find_gpus

        settled["gpus"] = find_gpus()[0]
    if "vram" in settled or not settled["gpus"]:
        settled.pop("gpus", None)
    return settled


def up(options: argparse.Namespace) -> int:
    """Run the service, or start it."""
    given = _given(options)
    written, settled = _as_written(given), _settled(given)
    if options.defaults and given:
        raise ConfigError(f"--defaults forgets the kept options: leave out {written[0]}, or leave out --defaults")
    home = Home()
    if options.systemd:
        from whywait.machine.kept import in_words

        command = in_words([sys.executable, "-m", "whywait", "up", *written])
        sys.stdout.write(UNIT.format(command=command, home=home.path))
        return 0
    if options.detach:
        from whywait.machine.beginning import start_service

        once = {"--defaults": options.defaults, "--new-token": options.new_token}
        started = start_service(home, [*written, *(option for option, is_given in once.items() if is_given)])
        say(f"the service of this machine runs (process {started.pid}){started.says}; whywait down ends it")
        if started.notice:
            say(started.notice)
        return 0
    return _serve(home, options, written, settled)


def _serve(home: Home, options: argparse.Namespace, written: list[str], settled: dict[str, Any]) -> int:
    try:
        from whywait.machine.socket_server import SocketServer
    except ModuleNotFoundError as error:
        raise MachineError(
            f"the service needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None
    from whywait.machine.beginning import Taken, tell_starter
    from whywait.machine.kept import in_words, keep_options, read_options
    from whywait.machine.service import Service

    for name in [each for each in os.environ if each.startswith("WHYWAIT_") and each not in {VARIABLE, CORE_VARIABLE}]:
        del os.environ[name]  # a service belongs to no terminal, task or job

    def ready() -> None:
        if options.ready is None:
            say(f"the service of this machine runs in {home.path}{says}; Ctrl-C ends it")
        tell_starter(options.ready, pid=os.getpid(), says=says, notice=service.store.notice)
        options.ready = None  # told

    try:
        home.make()
        says = f" with {in_words(written)}, kept for the next start" if written else ""
        if options.defaults:
            says = " without options, those that were kept are forgotten"
        elif not written and (kept := read_options(home)):
            settled = _settled_as_kept(home, kept)
            says = f" with the kept options {in_words(kept)}, which whywait up --defaults forgets"
        service = Service(home, new_token=options.new_token, **settled)
        try:
            if written or options.defaults:
                keep_options(home, written)
            SocketServer(service, ready).run()
        finally:
            service.close()
    except (WhywaitError, OSError) as error:
        tell_starter(options.ready, problem=str(error), taken=isinstance(error, Taken))
        raise
    return 0


def _settled_as_kept(home: Home, kept: list[str]) -> dict[str, Any]:
    """Return what the options stand for that the home keeps."""
    from whywait.cli.verbs import make_parser
    from whywait.machine.kept import broken_options

    try:
        return _settled(_given(make_parser("up").parse_args(kept)))
    except ConfigError as error:
        raise broken_options(home, error) from None


def down_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``down``."""
    parser.add_argument("--now", action="store_true", help="end what runs, instead of waiting for it")


def down(options: argparse.Namespace) -> int:
    """End the service."""
    from whywait.machine.client import Machine

    machine = Machine()
    running = machine.ask("POST", "/machine/down", {"now": options.now})["running"]
    if running and not options.now:
        last = "1 still runs: the service ends with it"
        if running > 1:
            last = f"{running} still run: the service ends with the last of them"
        say(f"{last}; to end it now: whywait down --now")
    machine.home.wait_until_left()
    return 0
