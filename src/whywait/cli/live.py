"""What one sees of a workflow run on a terminal: a view that is drawn in place."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic_ns
from typing import Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whywait.kernel.snapshot import Snapshot, TaskView
from whywait.kernel.state import Outcome, Wait
from whywait.observe.explain import CAUSE_LABELS, amount_in_words, units_in_words
from whywait.support.units import NS_PER_MS, format_ms, printable
from whywait.workflow.one_run import Run

_PER_SECOND: Final = 8
_GENTLE: Final = 20  # a picture of the run is taken at most every so many times what it costs
_OTHER_LINES: Final = 9  # of the view, besides running tasks
_REASONS: Final = 6
_GAUGE: Final = 12
_NAMED: Final = 3
_FAILURES: Final = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.REJECTED)
_STATES: Final = (Wait.BACKOFF, Wait.PAUSED, Wait.HELD_BACK)  # which are said without "waiting for"


class LiveView:
    """Draws the run again and again in place."""

    def __init__(self, run: Run, stream: TextIO) -> None:
        """Follow a run."""
        self._run = run
        self._console = console = Console(highlight=False, file=stream)
        self._note = ""
        self._picture: Snapshot | None = None
        self._next_ns = 0
        self._live = Live(
            console=console,
            get_renderable=self.render,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the view away and leave the terminal as it was."""
        self._live.stop()

    def note(self, text: str) -> None:
        """Show a line about the run itself."""
        self._note = text

    def render(self) -> RenderableType:
        """Return what is to be seen now."""
        now_ns = monotonic_ns()
        picture = self._look(now_ns)
        parts: list[RenderableType] = [self._headline(now_ns), *self._running(picture, now_ns)]
        waiting = self._waiting(picture)
        if waiting:
            parts.append(waiting)
        parts.append(self._gauges(picture))
        if self._note:
            parts.append(Text(self._note, style="bold yellow"))
        return Group(*parts)

    def _look(self, now_ns: int) -> Snapshot:
        if self._picture is None or now_ns >= self._next_ns:
            self._picture = self._run.authority.snapshot()
            self._next_ns = now_ns + _GENTLE * (monotonic_ns() - now_ns)
        return self._picture

    def _headline(self, now_ns: int) -> RenderableType:
        progress = self._run.progress
        total, ended = len(progress.tasks), progress.ended
        failed = sum(task.latest.outcome in _FAILURES for task in progress.tasks.values())
        rest_ns = progress.estimate_ns(now_ns)
        told = f"{ended}/{total}"
        if failed:
            told += f", {failed} failed"
        told += f"  {format_ms((now_ns - self._run.began_ns) / NS_PER_MS)}"
        if rest_ns is not None and ended < total and not self._note:
            told += f", about {format_ms(rest_ns / NS_PER_MS)} left"
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(no_wrap=True, overflow="ellipsis", ratio=1, max_width=30)
        row.add_column(ratio=2)
        row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(
            Text(printable(self._run.workflow.name), style="bold"),
            ProgressBar(total=max(1, total), completed=ended, finished_style="green"),
            Text(told),
        )
        return row

    def _running(self, picture: Snapshot, now_ns: int) -> Iterator[RenderableType]:
        room = max(1, self._console.height - _OTHER_LINES)
        shown = picture.running[:room]
        if not shown:
            return
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column(no_wrap=True, justify="right", width=8)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=5, style="dim")
        for view in shown:
            mark = "‖" if view.state == "PAUSED" else "■" if view.state == "DISPOSING" else "▸"
            units = f" on {units_in_words(view.devices)}" if view.devices else ""
            table.add_row(
                mark,
                Text.assemble(printable(view.label), (printable(units), "dim")),
                format_ms(max(0, now_ns - view.since_ns) / NS_PER_MS),
                Text(" ".join(self._run.outputs.lines(view.id.partition("#")[0], 1))),
            )
        yield table
        if len(picture.running) > room:
            yield Text(f"  and {len(picture.running) - room} more running", style="dim")

    def _waiting(self, picture: Snapshot) -> RenderableType | None:
        groups: dict[str, list[TaskView]] = {}
        for view in picture.pending:
            groups.setdefault(view.waits_for or "", []).append(view)
        if not groups:
            return None
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=4, style="dim")
        for reason, views in sorted(groups.items(), key=lambda item: -len(item[1]))[:_REASONS]:
            first = ", ".join(printable(view.label) for view in views[:_NAMED])
            more = ", …" if len(views) > _NAMED else ""
            label = CAUSE_LABELS.get(reason, reason)
            told = label if reason in _STATES else f"waiting for {label}"
            table.add_row("·", str(len(views)), Text(told), Text(first + more))
        return table

    def _gauges(self, picture: Snapshot) -> RenderableType:
        text = Text(no_wrap=True, overflow="ellipsis")
        for gate in (picture.slots._replace(name="slots"), *picture.budget):
            if gate.limit is None:
                continue
            if text:
                text.append("   ")
            text.append_text(_gauge(gate.name, (gate.limit or 0) - (gate.free or 0), gate.limit or 0))
        for unit in picture.devices:
            text.append("   ")
            text.append_text(_gauge(f"{unit.kind} {unit.name}", unit.used, unit.size or 1))
        return text


def _gauge(name: str, used: int, limit: int) -> Text:
    share = min(1.0, used / limit) if limit else 0.0
    full = round(share * _GAUGE)
    told = f"{amount_in_words(name, used, limit)}/{amount_in_words(name, limit)}"
    style = "red" if used > limit else "yellow" if share >= 1 else "green"
    return Text.assemble(f"{printable(name)} ", ("━" * full, style), ("─" * (_GAUGE - full), "dim"), f" {told}")
