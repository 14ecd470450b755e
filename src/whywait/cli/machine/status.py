"""``whywait status``: what the service has and does."""

from __future__ import annotations

import argparse
import json
import sys

from whywait.machine.client import Machine

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

HELP = """Show what the machine has, what runs, what waits and why.

  whywait status
  whywait status --open        # the page, in the browser"""

SHOWN: Final = 20  # of what runs and of what waits
NAMED: Final = 3  # holders of a resource


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("--open", action="store_true", help="serve the page on a port of this machine, and open it")
    parser.add_argument("--json", action="store_true", help="print it as JSON, for programs")


def run(options: argparse.Namespace) -> int:
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


def _text(status: dict[str, Any]) -> str:
    from whywait.cli.machine.words import line_of, since

    ends = ", ending with what runs" if status["draining"] else ""
    lines = [f"whywait {status['version']}, process {status['pid']}, up {since(status['up_s'])}{ends}"]
    lines += status["notices"]
    lines += [f"home {status['home']}", _gate(status["slots"])]
    lines += [_gate(gate) for gate in status["budget"] if gate["limit"] is not None]
    lines += [_unit(unit) for unit in status["devices"][:SHOWN]]
    for name in ("running", "waiting"):
        total = status[f"{name}_total"]
        lines.append(f"{name}: {total or 'nothing'}")
        lines += [f"  {line_of(task)}" for task in status[name][:SHOWN]]
        if total > SHOWN:
            lines.append(f"  and {total - SHOWN} more: whywait ls")
    failed = f", {status['failed_total']} failed" if status["failed_total"] else ""
    lines.append(f"ended: {status['ended_total'] or 'nothing'}{failed}")
    return "\n".join(lines) + "\n"


def _gate(gate: dict[str, Any]) -> str:
    from whywait.cli.machine.words import amount

    name, limit = gate["name"], gate["limit"]
    if limit is None:
        return f"{name}: no limit"
    taken = limit - gate["free"]
    if not limit:
        return f"{name}: {amount(name, taken)} taken{_by(gate, name)}, and no more are given"
    return f"{name}: {amount(name, taken)} of {amount(name, limit)} taken{_by(gate, name)}"


def _unit(unit: dict[str, Any]) -> str:
    """Return one device in a line: how much of its memory is taken, or whether it is."""
    from whywait.cli.machine.words import amount

    size, used = unit["size"], unit["used"]
    taken = f"{amount('vram', used)} of {amount('vram', size)} taken" if size else "taken" if used else "free"
    gone = "" if unit["present"] else "gone, "
    return f"{unit['kind']} {unit['name']}: {gone}{taken}{_by(unit, 'vram' if size else None)}"


def _by(found: dict[str, Any], name: str | None) -> str:
    """Return what holds a resource or a device, with the amounts if it has a name for them."""
    from whywait.cli.machine.words import amount
    from whywait.support.words import called

    holders = found.get("holders", ())
    told = [
        f"{called(each['id'])} ({amount(name, each['amount'])})" if name else called(each["id"])
        for each in holders[:NAMED]
    ]
    if len(holders) > NAMED:
        told.append("others")
    return f" by {', '.join(told)}" if told else ""
