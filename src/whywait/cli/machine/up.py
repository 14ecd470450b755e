"""``whywait up``: the service itself."""

from __future__ import annotations

import argparse
import os
import sys

from whywait.cli.machine.demands import resources_of, say
from whywait.errors import ConfigError, MachineError, WhywaitError
from whywait.machine.home import Home
from whywait.support.digits import number_in

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any

HELP = """Run the service of this machine: one budget for everything that is given to it.

  whywait up --detach
  whywait up --ram 24GB --slots 8
  whywait up --systemd > ~/.config/systemd/user/whywait.service

It has the cores and the memory of this machine unless it is told otherwise. It runs until Ctrl-C, or in the background
with --detach, until: whywait down. Everything of it is in one folder, WHYWAIT_HOME or the user's folder for state."""

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
    add("--history", metavar="FILE|none", help="learn from runs in this file; history.db of the service if left out")
    add("--keep", metavar="N", type=int, help="list so many ended jobs; 10000 if left out")
    add("--keep-for", metavar="TIME", help="list ended jobs so long; 30 days if left out")
    add("--ready-fd", type=int, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the service, or start it."""
    limits, keep = _limits(options), _keep(options)
    home = Home()
    given = [each for each in sys.argv[2:] if each not in ("--detach", "--systemd")]
    if options.systemd:
        import shlex

        command = shlex.join([sys.executable, "-m", "whywait", "up", *given])
        sys.stdout.write(UNIT.format(command=command, home=home.path))
        return 0
    if options.detach:
        from whywait.machine.starting import start_service

        pid = start_service(home, given)
        say(f"the service of this machine runs (process {pid}); whywait down ends it")
        return 0
    return _serve(home, options.ready_fd, keep, limits)


def _serve(home: Home, ready_fd: int | None, keep: dict[str, Any], limits: dict[str, Any]) -> int:
    try:
        from whywait.machine.server import Server
    except ModuleNotFoundError as error:
        raise MachineError(
            f"the service needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None
    from whywait.machine.keep import Keep
    from whywait.machine.service import Service
    from whywait.machine.starting import READY

    def ready() -> None:
        if ready_fd is not None:
            os.write(ready_fd, READY)
            os.close(ready_fd)
        else:
            say(f"the service of this machine runs in {home.path}; Ctrl-C ends it")

    try:
        service = Service(home, Keep(**keep), **limits)
    except WhywaitError as error:
        if ready_fd is not None:
            os.write(ready_fd, str(error).encode())  # on a full disk the log says nothing
        raise
    try:
        Server(service, ready).run()
    finally:
        service.close()
    return 0


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "slots": _number("--slots", options.slots) if options.slots != "none" else None,
        "cpu": _number("--cpu", options.cpu),
        "ram": "auto" if options.ram is None else _size("--ram", options.ram),
    }
    if options.history is not None:
        limits["history"] = None if options.history == "none" else os.path.abspath(os.path.expanduser(options.history))
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

    try:
        number = number_in(text)
        return parse_gpus(text.split(",") if number is None else number)
    except ConfigError as error:
        raise ConfigError(f"--gpus: {error}") from None


def _size(option: str, text: str) -> int:
    from whywait.support.units import parse_size

    try:
        return parse_size(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def _keep(options: argparse.Namespace) -> dict[str, Any]:
    keep: dict[str, Any] = {}
    if options.keep is not None:
        if options.keep < 0:
            raise ConfigError(f"--keep {options.keep} is not allowed: use an int of 0 or more")
        keep["most"] = options.keep
    if options.keep_for is not None:
        from whywait.kernel.durations import NS, parse_duration_ns

        keep["age_s"] = parse_duration_ns(options.keep_for) / NS
    return keep
