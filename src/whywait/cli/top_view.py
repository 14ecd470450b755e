"""What ``whywait top`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whywait.kernel.ids import label_of
from whywait.kernel.state import Wait
from whywait.observe.explain import CAUSE_LABELS, amount_in_words
from whywait.support.units import NS_PER_MS, format_ms, format_size, printable

if TYPE_CHECKING:
    from whywait.devtools.remote import Remote

SORTS: Final = ("wait", "priority", "name", "reason")
_RESERVED: Final = 9  # lines besides those of tasks
_WHY_LINES: Final = 9
_HOLDERS: Final = 3
_UNITS: Final = 16  # of devices that are shown


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
        self._at = 0  # its place in the order; the next task takes it when this one ends
        self._asking = False
        self._why = ""

    # What happens

    def take(self, info: dict[str, Any], snapshot: dict[str, Any], tasks: list[dict[str, Any]]) -> None:
        """Take a new picture."""
        self.info, self.snapshot, self.tasks = info, snapshot, tasks
        order = self._order()
        if self._chosen in order:
            self._at = order.index(self._chosen)

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
        return [task for task in self.tasks if _is_active(task)]

    def _waiting(self) -> list[dict[str, Any]]:
        waiting = [task for task in self.tasks if not _is_active(task)]
        keys: dict[str, Any] = {
            "wait": lambda task: task["submitted_ns"] or 0,
            "priority": lambda task: (-task["priority"], task["submitted_ns"] or 0),
            "name": row_label,
            "reason": lambda task: (task["waits_for"] or "", task["submitted_ns"] or 0),
        }
        return sorted(waiting, key=keys[self._sort])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw everything to fit the terminal."""
        height = options.max_height if console.is_terminal else 10_000
        gauges = self._gauges()
        room = max(4, height - _RESERVED - len(gauges) - (_WHY_LINES if self._why else 0))
        running, waiting = self._running(), self._waiting()
        half = room // 2
        top = running[: max(half, room - len(waiting))]
        below = _window(waiting, self._chosen, max(1, room - len(top)))
        parts: list[Any] = [self._headline(), *gauges, Text(""), self._table(top, len(running), "running")]
        parts.append(self._table(below, len(waiting), f"waiting, by {self._sort}"))
        if self._why:
            parts += [Text(""), *(Text(printable(line)) for line in self._why.splitlines()[:_WHY_LINES])]
        if self.message:
            parts.append(Text(printable(self.message), style="yellow"))
        if console.is_terminal:
            parts.append(Text("↑↓ choose  w why  s sort  c cancel  p pause  r resume  q quit", style="dim"))
        yield Group(*parts)

    def _headline(self) -> Text:
        counts, slots = self.snapshot["counts"], self.snapshot["slots"]
        line = Text("whywait", style="bold")
        line.append(f" {printable(self.info['name'])}  " if self.info["name"] else "  ", style="default")
        waiting = counts["ready"] + counts["not_ready"]
        running, limit = counts["running"], slots["limit"]
        held = running if limit is None else limit - slots["free"]
        beside = f" and {running - held} beside" if running > held else ""
        of = "" if limit is None else f" of {limit}"
        line.append(f"{held}{of}{beside} running, {waiting} waiting", "default")
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
            name, limit = gate["name"], gate["limit"]
            used = limit - gate["free"]
            text = f"{amount_in_words(name, used, limit)} of {amount_in_words(name, limit)}"
            rows.append(_gauge(name, used, limit, text))
        return rows + [_unit_gauge(unit) for unit in self.snapshot["devices"][:_UNITS]]

    def _table(self, tasks: list[dict[str, Any]], total: int, title: str) -> Table:
        table = Table(box=None, padding=(0, 1), title=f"{title}: {total}", title_justify="left", title_style="bold")
        table.add_column("task", no_wrap=True, ratio=3, max_width=36)
        table.add_column("scope", no_wrap=True, max_width=16)
        table.add_column("prio", justify="right", min_width=4)
        table.add_column("for", justify="right", no_wrap=True, min_width=7)
        table.add_column("waits for" if "waiting" in title else "holds", no_wrap=True, ratio=3)
        now = self.snapshot["now_ns"]
        limits = {gate["name"]: gate["limit"] or 0 for gate in self.snapshot["budget"]}
        for task in tasks:
            since = task["started_ns"] if _is_active(task) else task["submitted_ns"]
            elapsed = "-" if since is None else format_ms(max(0, now - since) / NS_PER_MS)
            last = self._reason(task) if not _is_active(task) else _holding(task, limits)
            style = "reverse" if task["number"] == self._chosen else ""
            names = (Text(printable(row_label(task))), Text(printable(task["scope"])))
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
            holders = [other for other in self._running() if other["slot"] and other["priority"] > task["priority"]]
        else:
            holders = [other for other in self._running() if cause in other["demand"] or cause in other["devices"]]
        return CAUSE_LABELS.get(cause, cause) + _held_by(holders, len(holders))


def _window(tasks: list[dict[str, Any]], chosen: int | None, size: int) -> list[dict[str, Any]]:
    """Return as many tasks as fit, the chosen one among them."""
    at = next((index for index, task in enumerate(tasks) if task["number"] == chosen), 0)
    start = max(0, min(at - size // 2, len(tasks) - size))
    return tasks[start : start + size]


def row_label(task: dict[str, Any]) -> str:
    """Return how a task is shown; a run of an older version tells of no functions."""
    return label_of(task["id"], task["number"], task.get("function"))


def _is_active(task: dict[str, Any]) -> bool:
    return task["state"] in {"RUNNING", "DISPOSING"} or task["paused_from"] == "RUNNING"


def _gauge(name: str, used: int, limit: int, text: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    grid.add_column(width=20)
    grid.add_row(printable(name), ProgressBar(max(limit, 1), used, width=20), Text(printable(text)))
    return grid


def _unit_gauge(unit: dict[str, Any]) -> Table:
    """Show one card, or another device, with the tasks on it."""
    size, used = unit["size"], unit["used"]
    text = f"{format_size(used)} of {format_size(size)}" if size else "taken" if used else "free"
    gone = "" if unit["present"] else "gone, "
    told = f"{gone}{text}{_held_by(unit['holders'], unit['holders_total'])}"
    return _gauge(f"{unit['kind']} {unit['name']}", used, size or 1, told)


def _held_by(holders: list[dict[str, Any]], total: int) -> str:
    """Return the first few holders of something, or nothing if there is none."""
    named = ", ".join(row_label(holder) for holder in holders[:_HOLDERS])
    return f" ← {named}" + (f" +{total - _HOLDERS}" if total > _HOLDERS else "") if named else ""


def _holding(task: dict[str, Any], limits: dict[str, int]) -> str:
    state = {"DISPOSING": "ending ", "PAUSED": "paused "}.get(task["state"], "")
    units = task["devices"]
    held = [
        f"{name} {amount_in_words(name, need, limits.get(name, 0))}"
        for name, need in task["demand"].items()
        if name not in units
    ]
    return state + ", ".join([*held, *(f"{kind} {', '.join(names)}" for kind, names in units.items())])
