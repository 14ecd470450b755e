"""``whywait up``: the service itself."""

from __future__ import annotations

import argparse
import os
import sys

from whywait.cli.machine.demands import resources_of, say
from whywait.errors import ConfigError, MachineError, WhywaitError
from whywait.machine.home import VARIABLE, Home
from whywait.support.core import VARIABLE as CORE_VARIABLE
from whywait.support.digits import number_in

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

    Settled = tuple[dict[str, Any], dict[str, Any]]  # limits of the authority, and what is kept of ended jobs

HELP = """Run the service of this machine: one budget for everything that is given to it.

  whywait up --detach
  whywait up --ram 24GB --slots 8
  whywait up --systemd > ~/.config/systemd/user/whywait.service

It has the cores and the memory of this machine unless it is told otherwise. Its options are kept: the next start
without any, also one by whywait add or do, has the same. It runs until Ctrl-C, or in the background with --detach,
until: whywait down. Everything of it is in one folder, WHYWAIT_HOME or the user's folder for state."""

# The options that a home keeps for the next start, one on demand included.
KEPT: Final = (
    "--slots", "--cpu", "--ram", "--soft-ram", "--gpus", "--vram", "--device", "--resource",
    "--aging", "--pause-timeout", "--history", "--keep", "--keep-for",
)  # fmt: skip

UNIT = """\
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("--detach", action="store_true", help="go to the background as soon as it listens")
    add("--systemd", action="store_true", help="print a unit for systemd's user services instead, with these options")
    add("--slots", metavar="N|none", help="run so many at once; the cores of the machine if left out")
    add("--cpu", metavar="N", help="share so many cores; those of the machine if left out")
    add("--ram", metavar="SIZE", help="share so much memory; nine tenths of the machine's if left out")
    add("--gpus", metavar="N|SIZES|none", help="share these GPUs: 2, or 24GB,12GB; those of the machine if left out")
    add("--vram", metavar="SIZE", help="share so much memory of GPUs that are not told apart")
    add(
        "--device",
        metavar="KIND=UNITS",
        action="append",
        default=[],
        help="share devices of another kind: rig=a,b or fpga=2; repeat",
    )
    add(
        "--resource", metavar="NAME=AMOUNT", action="append", default=[], help="share so much of something else; repeat"
    )
    add(
        "--soft-ram",
        action="store_true",
        help="let a job that needs more memory than --ram run while nothing else does",
    )
    add(
        "--aging",
        metavar="TIME|off",
        help="lift a waiting job by 10 points each time it has waited so long; 10m if left out",
    )
    add("--pause-timeout", metavar="TIME", help="end what does not stop so soon after a pause; 1.5s if left out")
    add(
        "--history",
        metavar="FILE|none",
        type=_path,
        help="learn from runs in this file; history.db of the service if left out",
    )
    add("--keep", metavar="N", type=int, help="list so many ended jobs; 10000 if left out")
    add("--keep-for", metavar="TIME", help="list ended jobs so long; 30 days if left out")
    add("--defaults", action="store_true", help="forget the options that were kept, and begin without any")
    add("--new-token", action="store_true", help="let the page ask for another token from now on")
    add("--ready", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the service, or start it."""
    given = _kept_of(options)
    if options.defaults and given:
        raise ConfigError(f"--defaults forgets the kept options: leave out {given[0]}, or leave out --defaults")
    settled = (_limits(options), _keep(options))
    home = Home()
    if options.systemd:
        from whywait.machine.kept import in_words

        command = in_words([sys.executable, "-m", "whywait", "up", *given])
        sys.stdout.write(UNIT.format(command=command, home=home.path))
        return 0
    if options.detach:
        from whywait.machine.starting import start_service

        once = [each for each in ("--defaults", "--new-token") if getattr(options, _name(each))]
        started = start_service(home, [*given, *once])
        say(f"the service of this machine runs (process {started.pid}){started.says}; whywait down ends it")
        if started.notice:
            say(started.notice)
        return 0
    return _serve(home, options, given, settled)


def _serve(home: Home, options: argparse.Namespace, given: list[str], settled: Settled) -> int:
    try:
        from whywait.machine.server import Server
    except ModuleNotFoundError as error:
        raise MachineError(
            f"the service needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None
    from whywait.machine.keep import Keep
    from whywait.machine.kept import in_words, keep_options, read_options
    from whywait.machine.service import Service
    from whywait.machine.starting import Taken, tell_starter

    for name in [each for each in os.environ if each.startswith("WHYWAIT_") and each not in {VARIABLE, CORE_VARIABLE}]:
        del os.environ[name]  # a service belongs to no terminal, task or job

    def ready() -> None:
        if options.ready is None:
            say(f"the service of this machine runs in {home.path}{says}; Ctrl-C ends it")
        tell_starter(options.ready, pid=os.getpid(), says=says, notice=service.store.notice)
        options.ready = None  # told

    try:
        home.make()
        says = f" with {in_words(given)}, kept for the next start" if given else ""
        if options.defaults:
            says = " without options, those that were kept are forgotten"
        elif not given and (kept := read_options(home)):
            settled = _settle_kept(home, kept)
            says = f" with the kept options {in_words(kept)}, which whywait up --defaults forgets"
        limits, keep = settled
        service = Service(home, Keep(**keep), new_token=options.new_token, **limits)
        try:
            if given or options.defaults:
                keep_options(home, given)
            Server(service, ready).run()
        finally:
            service.close()
    except (WhywaitError, OSError) as error:
        tell_starter(options.ready, problem=str(error), taken=isinstance(error, Taken))
        raise
    return 0


def _settle_kept(home: Home, kept: list[str]) -> Settled:
    """Return what the options stand for that the home keeps."""
    from whywait.cli.verbs import make_parser
    from whywait.machine.kept import broken_options

    try:
        options = make_parser("up").parse_args(kept)
        return _limits(options), _keep(options)
    except ConfigError as error:
        raise broken_options(home, error) from None


def _kept_of(options: argparse.Namespace) -> list[str]:
    """Return those of the given options that the home keeps, as they are written."""
    written = []
    for option in KEPT:
        value = getattr(options, _name(option))
        if value is True:
            written.append(option)
        elif value is not None and value is not False:  # 0 is given
            written += [f"{option}={each}" for each in (value if isinstance(value, list) else [value])]
    return written


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "slots": _number("--slots", options.slots) if options.slots != "none" else None,
        "cpu": _number("--cpu", options.cpu),
        "ram": "auto" if options.ram is None else _ram(options.ram),
        "hard_ram": not options.soft_ram,
    }
    if options.aging is not None:
        limits["order"] = _order(options.aging)
    if options.pause_timeout is not None:
        limits["pause_timeout"] = _seconds("--pause-timeout", options.pause_timeout)
    if options.history is not None:
        limits["history"] = None if options.history == "none" else options.history
    gpus = _gpus(options.gpus)
    if gpus and options.vram is None:
        limits["gpus"] = gpus
    if options.device:
        units = resources_of(options.device, "--device", "KIND=UNITS, as in rig=a,b or fpga=2")
        limits["devices"] = {kind: each if isinstance(each, int) else each.split(",") for kind, each in units.items()}
    if options.vram is not None:
        limits["vram"] = _size("--vram", options.vram)
    if options.resource:
        limits["resources"] = resources_of(options.resource)
    return limits


def _order(text: str) -> Any:  # noqa: ANN401 - an Order
    """Return the order that ``--aging`` stands for."""
    from whywait.kernel.order import Aging, Strict

    return Strict() if text == "off" else Aging(every=_seconds("--aging", text), boost=10, cap=99)


def _ram(text: str) -> int:
    """Return the memory to share: some, and no more than there is."""
    from whywait.support.memory import total_memory
    from whywait.support.units import format_size

    size, has = _size("--ram", text), total_memory()
    if not size or (has is not None and size > has):
        there = "" if has is None else f": this computer has {format_size(has)}"
        raise ConfigError(f"--ram {format_size(size)} is not allowed{there}")
    return size


def _seconds(option: str, text: str) -> float:
    """Return a time in seconds."""
    from whywait.cli.machine.demands import time_of
    from whywait.kernel.durations import in_seconds

    return in_seconds(option, time_of(text))


def _path(text: str) -> str:
    """Return the path of a file in full, from the folder that it was typed in."""
    return text if text == "none" else os.path.abspath(os.path.expanduser(text))


def _number(option: str, text: str | None) -> int:
    if text is None:
        return os.cpu_count() or 1
    number = number_in(text)
    if not number:
        raise ConfigError(f"{option} {text!r} is not allowed: use an int of 1 or more")
    return number


def _gpus(text: str | None) -> dict[str, int]:
    """Return the GPUs to share, with the memory of each."""
    if text is None:
        from whywait.support.gpus import find_gpus

        return find_gpus()[0]
    if text == "none":
        return {}
    from whywait.support.devices import parse_gpus
    from whywait.support.units import parse_written_size

    try:
        number = number_in(text)
        return parse_gpus([parse_written_size(each) for each in text.split(",")] if number is None else number)
    except ConfigError as error:
        raise ConfigError(f"--gpus: {error}") from None


def _size(option: str, text: str) -> int:
    from whywait.support.units import parse_written_size

    try:
        return parse_written_size(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def _keep(options: argparse.Namespace) -> dict[str, Any]:
    keep: dict[str, Any] = {}
    if options.keep is not None:
        if options.keep < 0:
            raise ConfigError(f"--keep {options.keep} is not allowed: use an int of 0 or more")
        keep["most"] = options.keep
    if options.keep_for is not None:
        keep["age_s"] = _seconds("--keep-for", options.keep_for)
    return keep
