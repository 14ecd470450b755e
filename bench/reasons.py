"""Why a row is lost, in words: by kind of work and figure, or by kind of work. The page adds them where they apply."""

from __future__ import annotations

from typing import Final

_GRAPH: Final = (
    "a task with dependencies is linked both ways and woken, each of its four steps is an event, its wait is accounted "
    "for by cause and its result kept for whoever asks; a graph by hand counts down a number and can neither cancel, "
    "fail over nor explain"
)
REASONS: Final[dict[str, str]] = {
    "patterns": _GRAPH,
    "efficiency": _GRAPH + "; it is the same cost, seen from the side of the bodies",
    "fans": _GRAPH,
    "throughput": (
        "each task passes the kernel (admission, order, gates, events, the account of its wait) before it becomes a "
        "task of the loop or a call of a worker; section 9 tells what each of that costs"
    ),
    "pending: cancel": (
        "a cancel is a command: it takes the task out of its lane, ends its dependents, emits an event and lets "
        "dispatch look; a cancelled future only changes its state and stays in the queue until a worker meets it"
    ),
    "pending: submit": "each submission makes a task, a handle and an event, and looks for a free slot",
    "pending: start": (
        "each start ends a task, charges the next one's wait by cause and emits two events under the lock; taking from "
        "a queue does none of that"
    ),
    "pending: bytes": "a task keeps what is needed to explain it",
    "bodies": (
        "the scheduler's part of each task runs in Python too, and holds one lock; the shorter the body, the more it is"
    ),
    "stream": "the caller sleeps and is woken for every task, which costs a switch of threads each way",
    "latency": (
        "between two tasks the worker reports the first, charges the wait of the second, emits two events and chooses "
        "by order and gates; a plain queue hands over the oldest"
    ),
    "timers": "a tick is a task: it is admitted, queued and dispatched to a worker thread, which is woken for it",
    "dispose": (
        "every task is taken out of its lane, gets an outcome and an event, and its handle is settled; the others mark "
        "a future"
    ),
    "workflows": "what a task costs on its way, as in the patterns; the sleeps are the same for all",
}

TARGETS: Final[dict[str, str]] = {
    "no-op": REASONS["throughput"],
    "rate on DAG": _GRAPH,
    "submit": (
        "at a million about two thirds of the time is the garbage collector, which walks all pending tasks in each "
        "full collection; ThreadPoolExecutor slows down alike"
    ),
    "start": (
        "memory: the ratio is the same with the garbage collector off. A task that was submitted a million tasks ago "
        "has left the caches, and its record and its places in two tables are read from memory again"
    ),
    "montage": REASONS["workflows"],
    "epigenomics": REASONS["workflows"],
}


def reason_of_target(what: str) -> str:
    """Return why a target is missed."""
    return next((why for begin, why in TARGETS.items() if what.startswith(begin)), "no reason found yet")


def reason(work: str, figure: str) -> str:
    """Return why whywait loses a row."""
    return REASONS.get(f"{work}: {figure.partition(',')[0]}") or REASONS.get(work) or "no reason found yet"
