"""What ``whywait top`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whywait.explain import CAUSE_LABELS
from whywait.kernel.state import Wait
from whywait.units import NS_PER_MS, format_ms, format_size, printable

if TYPE_CHECKING:
    from whywait.devtools.client import Remote

SORTS: Final = ("wait", "priority", "name", "reason")
_SIZES: Final = ("ram", "vram")
_RESERVED: Final = 9  # lines besides those of tasks
_WHY_LINES: Final = 9
_HOLDERS: Final = 3


class Screen:
    """A picture of a run, what is chosen in it, and the answer to the last question."""

    def __init__(self, sort: str) -> None:
        """Start with nothing chosen."""
        self.info: dict[str, Any] = {}
        self.snapshot: dict[str, Any] = {}
        self.tasks: list[dict[str, Any]] = []
        self.message = ""
        self._sort = sort
        self._chosen: int | None = None
        self._at = 0  # its place in the order; whoever comes after one that has ended takes it
        self._asking = False
        self._why = ""

    # What happens

    def take(self, info: dict[str, Any], snapshot: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
        """Take a new picture."""
        self.info, self.snapshot, self.tasks = info, snapshot, tasks
        order = self._order()
        if self._chosen in order:
            self._at = order.index(self._chosen)

    def lost(self, message: str) -> None:
        """Say that the run does not answer; the last picture stays."""
        self.message = message

    def press(self, key: str) -> None:
        """Act on a key that concerns only this screen."""
        if key == "s":
            self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        elif key in {"up", "k", "down", "j"}:
            self._move(-1 if key in {"up", "k"} else 1)
        elif key in {"w", "\n", "\r"}:
            self._asking = not self._asking
            if self._chosen is None:
                self._move(1)

    def ask(self, remote: Remote) -> None:
        """Ask why the chosen task waits, if that is wanted."""
        chosen = self.chosen
        self._why = remote.task(chosen["number"])["text"] if self._asking and chosen is not None else ""

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The task that is chosen, if it still lives."""
        return next((task for task in self.tasks if task["number"] == self._chosen), None)

    def _move(self, by: int) -> None:
        order = self._order()
        if self._chosen in order:
            self._at = order.index(self._chosen) + by
        elif self._chosen is None:
            self._at = 0 if by > 0 else len(order) - 1
        self._at = max(0, min(len(order) - 1, self._at))
        self._chosen = order[self._at] if order else None
        self.message = ""

    def _order(self) -> list[int]:
        return [task["number"] for task in (*self._running(), *self._waiting())]

    # What is shown

    def _running(self) -> list[dict[str, Any]]:
        return [task for task in self.tasks if _holds_slot(task)]

    def _waiting(self) -> list[dict[str, Any]]:
        waiting = [task for task in self.tasks if not _holds_slot(task)]
        keys: dict[str, Any] = {
            "wait": lambda task: task["submitted_ns"] or 0,
            "priority": lambda task: (-task["priority"], task["submitted_ns"] or 0),
            "name": lambda task: task["id"],
            "reason": lambda task: (task["waits_for"] or "", task["submitted_ns"] or 0),
        }
        return sorted(waiting, key=keys[self._sort])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw everything to fit the terminal."""
        height = options.max_height if console.is_terminal else 10_000
        room = max(4, height - _RESERVED - len(self.snapshot["budget"]) - (_WHY_LINES if self._why else 0))
        running, waiting = self._running(), self._waiting()
        half = room // 2
        top = running[: max(half, room - len(waiting))]
        below = _window(waiting, self._chosen, max(1, room - len(top)))
        parts: list[Any] = [self._headline(), *self._gauges(), Text(""), self._table(top, len(running), "running")]
        parts.append(self._table(below, len(waiting), f"waiting, by {self._sort}"))
        if self._why:
            parts += [Text(""), *(Text(printable(line)) for line in self._why.splitlines()[:_WHY_LINES])]
        if self.message:
            parts.append(Text(printable(self.message), style="yellow"))
        if console.is_terminal:
            parts.append(Text("↑↓ choose  w why  s sort  c cancel  p pause  r resume  q quit", style="dim"))
        yield Group(*parts)

    def _headline(self) -> Text:
        counts, slots = self.snapshot["counts"], self.snapshot["slots"]["limit"]
        line = Text("whywait", style="bold")
        line.append(f" {printable(self.info['name'])}  " if self.info["name"] else "  ", style="default")
        waiting = counts["ready"] + counts["not_ready"]
        line.append(
            f"{counts['running']}{'' if slots is None else f' of {slots}'} running, {waiting} waiting", "default"
        )
        if self.info["finished"]:
            line.append(", the run is over", style="cyan")
        if counts["starved"]:
            line.append(f", {counts['starved']} starved", style="yellow")
        return line

    def _gauges(self) -> list[Table]:
        rows = []
        for gate in self.snapshot["budget"]:
            if gate["limit"] is None:
                continue
            used = gate["limit"] - gate["free"]
            grid = Table.grid(padding=(0, 1))
            grid.add_column(width=9)
            grid.add_column(width=20)
            text = f"{_amount(gate['name'], used)} of {_amount(gate['name'], gate['limit'])}"
            grid.add_row(printable(gate["name"]), ProgressBar(max(gate["limit"], 1), used, width=20), text)
            rows.append(grid)
        return rows

    def _table(self, tasks: list[dict[str, Any]], total: int, title: str) -> Table:
        table = Table(box=None, padding=(0, 1), title=f"{title}: {total}", title_justify="left", title_style="bold")
        table.add_column("task", no_wrap=True, ratio=3, max_width=36)
        table.add_column("scope", no_wrap=True, max_width=16)
        table.add_column("prio", justify="right", min_width=4)
        table.add_column("for", justify="right", no_wrap=True, min_width=7)
        table.add_column("waits for" if "waiting" in title else "holds", no_wrap=True, ratio=3)
        now = self.snapshot["now_ns"]
        for task in tasks:
            since = task["started_ns"] if _holds_slot(task) else task["submitted_ns"]
            elapsed = "-" if since is None else format_ms(max(0, now - since) / NS_PER_MS)
            last = self._reason(task) if not _holds_slot(task) else _holding(task)
            style = "reverse" if task["number"] == self._chosen else ""
            names = (Text(printable(task["id"])), Text(printable(task["scope"])))
            table.add_row(*names, str(task["priority"]), elapsed, Text(printable(last)), style=style)
        if len(tasks) < total:
            table.add_row(Text(f"and {total - len(tasks)} more", style="dim"))
        return table

    def _reason(self, task: dict[str, Any]) -> str:
        cause = task["waits_for"] or ""
        by_number = {other["number"]: other for other in self.tasks}
        if cause == Wait.DEPENDENCY:
            holders = [by_number[number] for number in (*task["after"], *task["after_ended"]) if number in by_number]
        elif cause == Wait.SLOT_HIGHER:
            holders = [other for other in self._running() if other["priority"] > task["priority"]]
        else:
            holders = [other for other in self._running() if cause in other["demand"]]
        named = ", ".join(holder["id"] for holder in holders[:_HOLDERS])
        more = f" +{len(holders) - _HOLDERS}" if len(holders) > _HOLDERS else ""
        label = CAUSE_LABELS.get(cause, cause)
        return f"{label} ← {named}{more}" if named else label


def _window(tasks: list[dict[str, Any]], chosen: int | None, size: int) -> list[dict[str, Any]]:
    """Return as many tasks as fit, the chosen one among them."""
    at = next((index for index, task in enumerate(tasks) if task["number"] == chosen), 0)
    start = max(0, min(at - size // 2, len(tasks) - size))
    return tasks[start : start + size]


def _holds_slot(task: dict[str, Any]) -> bool:
    return task["state"] in {"RUNNING", "DISPOSING"} or task["paused_from"] == "RUNNING"


def _holding(task: dict[str, Any]) -> str:
    state = {"DISPOSING": "ending ", "PAUSED": "parked "}.get(task["state"], "")
    return state + ", ".join(f"{name} {_amount(name, amount)}" for name, amount in task["demand"].items())


def _amount(name: str, value: int) -> str:
    return format_size(value) if name in _SIZES else str(value)
