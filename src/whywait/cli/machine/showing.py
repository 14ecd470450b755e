"""``whywait status``, ``ls`` and ``log``: what the service has and does, its jobs, and the output of a job."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time

from whywait.cli.machine.asking import say
from whywait.errors import MachineError
from whywait.machine.client import NO_JOB, Machine, NoService, quoted
from whywait.support.digits import number_in
from whywait.support.units import format_ms, format_size
from whywait.support.words import called

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

STATUS: Final = """Show what the machine has, what runs, what waits and why.

  whywait status
  whywait status --open        # the page, in the browser"""

LS: Final = """\
List jobs: what has ended and how, what runs, what waits and why. Commands under `whywait do` are listed too.

  whywait ls
  whywait ls --json"""

LOG: Final = """Show the output of a job: a header for each attempt, what the command wrote, how it ended.

  whywait log 14
  whywait log 14 -f

By its number a job's output can be shown without a service, too."""

SHOWN: Final = 20  # of what runs and of what waits, in a status
LISTED: Final = 100  # of each kind, in a list
MOST: Final = 100_000
NAMED: Final = 3  # holders of a resource
LOOK_S: Final = 0.2  # how often to look for more output
WIDTH: Final = 60  # of a command
_BYTES: Final = 1_000_000  # an amount from here on is a size


def status_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``status``."""
    parser.add_argument("--open", action="store_true", help="serve the page on a port of this machine, and open it")
    parser.add_argument("--json", action="store_true", help="print it as JSON, for programs")


def status(options: argparse.Namespace) -> int:
    """Show the status."""
    machine = Machine()
    if options.open:
        return _open(machine)
    answer = machine.ask("GET", "/machine/status")
    sys.stdout.write(json.dumps(answer) + "\n" if options.json else _text(answer))
    return 0


def _open(machine: Machine) -> int:
    from pathlib import Path

    from whywait.cli.browser import NO_BROWSER, open_page

    page = machine.ask("POST", "/machine/page", {})
    sys.stdout.write(f"{page['url']}\n")
    sys.stdout.flush()
    if not open_page(Path(page["door"]) if page["door"] else None):
        sys.stderr.write(f"{NO_BROWSER}\n")
    return 0


def _text(found: dict[str, Any]) -> str:
    ends = ", ending with what runs" if found["draining"] else ""
    lines = [f"whywait {found['version']}, process {found['pid']}, up {_since(found['up_s'])}{ends}", *found["notices"]]
    lines += [f"home {found['home']}", _gate(found["slots"])]
    lines += [_gate(gate) for gate in found["budget"] if gate["limit"] is not None]
    lines += [_unit(unit) for unit in found["devices"][:SHOWN]]
    for name in ("running", "waiting"):
        total = found[f"{name}_total"]
        lines.append(f"{name}: {total or 'nothing'}")
        lines += [f"  {_line_of(row)}" for row in found[name][:SHOWN]]
        if total > SHOWN:
            lines.append(f"  and {total - SHOWN} more: whywait ls")
    failed = f", {found['failed_total']} failed" if found["failed_total"] else ""
    lines.append(f"ended: {found['ended_total'] or 'nothing'}{failed}")
    return "\n".join(lines) + "\n"


def _gate(gate: dict[str, Any]) -> str:
    name, limit = gate["name"], gate["limit"]
    if limit is None:
        return f"{name}: no limit"
    taken, by = _amount(name, limit - gate["free"]), _by(gate, name)
    if not limit:
        return f"{name}: {taken} taken{by}, and no more are given"
    return f"{name}: {taken} of {_amount(name, limit)} taken{by}"


def _unit(unit: dict[str, Any]) -> str:
    """Return one device in a line: how much of its memory is taken, or whether it is."""
    size, used = unit["size"], unit["used"]
    taken = f"{format_size(used)} of {format_size(size)} taken" if size else "taken" if used else "free"
    gone = "" if unit["present"] else "gone, "
    return f"{unit['kind']} {unit['name']}: {gone}{taken}{_by(unit, 'vram' if size else None)}"


def _by(found: dict[str, Any], name: str | None) -> str:
    """Return what holds a resource or a device, with the amounts if it has a name for them."""
    holders = found.get("holders", ())
    told = [called(each["id"]) + (f" ({_amount(name, each['amount'])})" if name else "") for each in holders[:NAMED]]
    if len(holders) > NAMED:
        told.append("others")
    return f" by {', '.join(told)}" if told else ""


def _amount(name: str, value: int) -> str:
    return format_size(value) if name in ("ram", "vram") or value >= _BYTES else str(value)


def _since(seconds: float) -> str:
    return format_ms(seconds * 1000)


def _command(row: dict[str, Any]) -> str:
    """Return the command of a job in one line that is not too long."""
    if row["command"]:
        text = shlex.join(row["command"])
    else:
        text = f"(one more job of {row['part_of']})" if row["part_of"] else "(a block of Python)"
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _paused(row: dict[str, Any]) -> str:
    return "paused (its terminal stopped it)" if row["stopped"] else "paused"


def _line_of(row: dict[str, Any]) -> str:
    """Return what runs or waits in a line: what it is, how long it has run or waited, and why."""
    if row["ran_s"] is not None:
        state = f", {_paused(row)}" if row["state"] == "PAUSED" else ""
        return f"{row['id']}: {_command(row)} ({_since(row['ran_s'])}{state})"
    return f"{row['id']}: {_command(row)} ({_since(row['waited_s'])}); {row['why']}"


def ls_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``ls``."""
    parser.add_argument("--all", "-a", action="store_true", help=f"list all, not only {LISTED} of each kind")
    parser.add_argument("--json", action="store_true", help="print the list as JSON, for programs")


def ls(options: argparse.Namespace) -> int:
    """List the jobs."""
    machine = Machine()
    if options.json:
        with machine.open("GET", "/machine/jobs") as answer:
            sys.stdout.write(answer.text() + "\n")
        return 0
    found = machine.ask("GET", f"/machine/status?most={MOST if options.all else LISTED}")
    kinds = {"ended": "have ended", "running": "run", "waiting": "wait"}
    listed = [row for kind in kinds for row in found[kind]]
    named = zip(_names(listed), listed, strict=True)
    table = [("id", "state", "for", "command", ""), *((name, *_cells(row)) for name, row in named)]
    widths = [max(len(cells[column]) for cells in table) for column in range(4)]
    for *cells, last in table:
        padded = [text.ljust(width) for text, width in zip(cells, widths, strict=True)]
        sys.stdout.write("  ".join([*padded, last]).rstrip() + "\n")
    for kind, text in kinds.items():
        if more := found[f"{kind}_total"] - len(found[kind]):
            sys.stdout.write(f"{more} more {text}: whywait ls --all\n")
    return 0


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Return what each is called by the other verbs: the id, with its scope if another has the same id."""
    of_id: dict[str, set[str]] = {}
    for row in rows:
        of_id.setdefault(row["id"], set()).add(row["scope"])
    return [row["id"] if len(of_id[row["id"]]) == 1 else f"{row['scope']}/{row['id']}" for row in rows]


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return all cells of a row but the name."""
    ran_s, command, why = row["ran_s"], _command(row), row["why"] or ""
    if row["outcome"] is not None:
        return row["outcome"], "" if ran_s is None else _since(ran_s), command, why
    state = _paused(row) if row["state"] == "PAUSED" else ""
    if ran_s is None:
        return state or "waiting", _since(row["waited_s"]), command, why
    state = state or ("ending" if row["state"] == "DISPOSING" else "running")
    return state, _since(ran_s), command, "somebody has to resume it" if state == "paused" else ""


def log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``log``."""
    parser.add_argument("id", metavar="ID", help="the job")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")


def log(options: argparse.Namespace) -> int:
    """Show the output of a job."""
    sys.stdout.flush()
    machine, position, has_said = Machine(), 0, False
    while True:
        row = _look(machine, options.id)
        position = _show(row["log"], position)
        is_over = row["outcome"] is not None
        if row["started"] is None and (is_over or not has_said):
            say(f"{called(row['id'])} has not run{': it' if is_over else ' yet:'} {row['why']}")
            has_said = True
        if not options.follow or is_over:
            return 0
        time.sleep(LOOK_S)


def _look(machine: Machine, ref: str) -> dict[str, Any]:
    """Return what is known of a job; without a service the file of its output alone."""
    try:
        row: dict[str, Any] = machine.ask("GET", f"/machine/jobs/{quoted(ref)}")
    except NoService:
        number = number_in(ref)
        if number is None or not os.path.exists(path := machine.home.log_of(number)):
            raise
        return {"log": path, "started": True, "outcome": "unknown"}
    if row["log"] is None:
        raise MachineError(NO_JOB.format(row["id"]))
    return row


def _show(path: str, position: int) -> int:
    """Print a file from a position on; return how far it goes."""
    try:
        with open(path, "rb") as output:
            output.seek(position)
            shutil.copyfileobj(output, sys.stdout.buffer)
            position = output.tell()
    except FileNotFoundError:
        pass  # the job has not started
    sys.stdout.buffer.flush()
    return position
