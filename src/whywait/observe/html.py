"""Tasks, scopes and runs as notebooks show them."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Final

from whywait.kernel.snapshot import GateView, Most, Snapshot
from whywait.observe.explain import CAUSE_LABELS, Why, amount_in_words
from whywait.support.notebooks import badge, bar, link, table
from whywait.support.units import NS_PER_MS, format_ms, printable

_MOST_RUNNING: Final = 10
IN_SHORT: Final = Most(running=_MOST_RUNNING, pending=0, lanes=1_000, holders=0, asked=0, scopes=0)


def handle_html(ident: str, why: Why) -> str:
    """Return one task in a line: its id, where it stands, and the first reason if it waits."""
    return f"<div><b>{escape(printable(ident))}</b> {badge(why.outcome or why.state)} {escape(why.in_short)}</div>"


def run_html(title: str, snapshot: Snapshot, url: str | None = None) -> str:
    """Return a run, or a scope of one: what runs, what waits and for what, and how full slots and budget are."""
    counts = snapshot.counts
    head = f"<b>{escape(printable(title))}</b>: {counts.running:,} running, {counts.ready + counts.not_ready:,} waiting"
    if url is not None:
        head += f" · {link(url, 'DevTools')}"
    gauges = [_gauge(gate, gate.name) for gate in (snapshot.slots, *snapshot.budget) if gate.limit]
    waits: Counter[str] = Counter()
    for lane in snapshot.lanes:
        waits[CAUSE_LABELS.get(lane.waits_for, lane.waits_for)] += lane.length
    waits["not ready yet"] = counts.not_ready
    waiting = [(escape(cause), f"{count:,}") for cause, count in waits.items() if count]
    running = [
        (escape(printable(task.label)), badge(task.state), format_ms((snapshot.now_ns - task.since_ns) / NS_PER_MS))
        for task in snapshot.running
    ]
    return f"<div>{head}{table(gauges)}{table(running)}{table(waiting)}</div>"


def _gauge(gate: GateView, name: str) -> tuple[str, str, str]:
    limit, free = gate.limit or 0, gate.free or 0
    told = f"{amount_in_words(gate.name, limit - free, limit)} of {amount_in_words(gate.name, limit, limit)}"
    return escape(name), bar((limit - free) / limit, label=told), escape(told)
