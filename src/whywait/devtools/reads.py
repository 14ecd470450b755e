"""The read API: handlers that look and change nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from time import monotonic_ns
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from whywait.devtools.answers import Json, Problem, check_value, read_name, read_query
from whywait.devtools.api import ROUTES, Param
from whywait.devtools.encoding import encode_in_steps, frame, slices
from whywait.devtools.feed import Feed
from whywait.devtools.metrics import families_of, json_metrics, prefers_json, prometheus_metrics
from whywait.devtools.saved import AnyRun
from whywait.devtools.table import picture, row_of
from whywait.errors import WhywaitError
from whywait.kernel import reasons
from whywait.kernel.events import Event
from whywait.kernel.kernel import Kernel
from whywait.kernel.model import Ref, Task
from whywait.kernel.state import TaskState, Wait
from whywait.kernel.waiting import starved_ns
from whywait.observe.explain import Why, in_words
from whywait.observe.fold import Attempt
from whywait.support.units import NS_PER_S, shown
from whywait.task.surroundings import stream_counts

MAX_VIEWERS: Final = 100
NEIGHBOURS: Final = 100
OVERVIEW_S: Final = 0.5
SNAPSHOT_NS: Final = 900_000_000  # between two in a stream: a little less than the second after which it is woken
KEEP_ALIVE_NS: Final = 15 * NS_PER_S  # between two signs of life in a stream that has nothing to tell
OVERVIEW_SHARE: Final = 0.01  # of the time
Causes = dict[tuple[int, str, tuple[tuple[str, int], ...], bool], str]
SPECS: Final = {route.name: route for route in ROUTES}


class Reads:
    """Answers questions about one run."""

    def __init__(self, run: AnyRun, feed: Feed) -> None:
        """Answer from the feed, and from the authority where only it knows."""
        self._run = run
        self._feed = feed
        self._pictures: dict[str, tuple[int, Any]] = {}  # until when each is good enough
        self.lanes, self.scopes, self.budget, self.periodics = (
            partial(self._part, list(SPECS[name].answer)) for name in ("lanes", "scopes", "budget", "periodics")
        )

    # Small ones

    async def healthz(self, _: Request) -> Response:
        """Say that the server answers."""
        return Json({"status": "ok"})

    async def info(self, _: Request) -> Response:
        """Return what this server shows."""
        feed, run = self._feed, self._run
        feed.catch_up()
        return Json(
            {
                "run": run.run_id,
                "version": run.version,
                "mode": "live" if run.authority is not None else "saved",
                "control": run.control,
                "finished": feed.finished,
                "name": run.name,
                "now_ns": monotonic_ns(),
                "wall_ms": time.time() * 1000,
                "seq": feed.seq,
                "settings": run.settings(),
            }
        )

    async def metrics(self, request: Request) -> Response:
        """Return the metrics as JSON or text, whichever Accept prefers."""
        self._feed.catch_up()
        accept = request.headers.get("accept", "")
        stats, picture = self._run.moment()
        if prefers_json(accept):
            return Json(json_metrics(stats, picture))
        families = families_of(stats, picture, self._feed.histograms, self._feed.skipped)
        body, kind = prometheus_metrics(accept, families)
        return Response(body, media_type=kind)

    # Pictures of now

    async def snapshot(self, _: Request) -> Response:
        """Return what runs and what waits."""
        return Response(self._cached("snapshot", self._snapshot), media_type="application/json")

    async def report(self, _: Request) -> Response:
        """Return where the waiting went."""
        return Json(self._cached("report", self._run.report))

    async def _part(self, fields: list[str], _: Request) -> Response:
        picture = self._overview()
        return Json({name: picture[name] for name in fields})

    def _snapshot(self) -> bytes:
        return encode_in_steps(self._overview()).encode()

    def _snapshot_frame(self) -> bytes:
        snapshot: bytes = self._cached("snapshot", self._snapshot)
        return b"event: snapshot\ndata: " + snapshot + b"\n\n"

    def _overview(self) -> dict[str, Any]:
        picture: dict[str, Any] = self._cached("overview", self._run.overview)
        return picture

    def _cached(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever is made
        """Return a picture that is at most half a second old, older if making one takes long."""
        began = monotonic_ns()
        good_until, picture = self._pictures.get(name, (0, None))
        if began < good_until:
            return picture
        picture = make()
        cost_ns = monotonic_ns() - began
        self._pictures[name] = (began + max(int(OVERVIEW_S * 1e9), int(cost_ns / OVERVIEW_SHARE)), picture)
        return picture

    # Tasks

    async def tasks(self, request: Request) -> Response:
        """Return a page of the tasks that pass the filters."""
        query = read_query(request, SPECS["tasks"].params)
        feed = self._feed
        feed.catch_up()
        found = [row for some in slices(list(feed.table.attempts.values())) for row in some if _passes(row, query)]
        limit = query["limit"] or 100
        after = query["after"]
        page = [row for row in found if after is None or row.number > after][: limit + 1]
        following = page[limit - 1].number if len(page) > limit else None
        causes = self._lane_causes()
        rows = self._as_they_stand(page[:limit], causes)
        return Json({"tasks": rows, "total": len(found), "seq": feed.seq, "next": following})

    async def task(self, request: Request) -> Response:
        """Return one task with its why and its events."""
        feed = self._feed
        row = self.find(read_name(request, "ref"))
        why = self._why(row)
        awaits = [feed.table.latest(number) for number in (*row.after, *row.after_ended)]
        attempts = feed.table.attempts_of(row)
        awaited_by = feed.table.awaited_by(attempts)
        return Json(
            {
                "task": self._as_they_stand([row], self._lane_causes())[0],
                "why": why.to_dict(),
                "text": str(why),
                "story": [Event.of(event).to_dict() for event in feed.of_tasks(attempts)],
                "streams": self._streams(row),
                "attempts": [_with_cause(each, {}) for each in attempts],
                "awaits": [_with_cause(other, {}) for other in awaits if other is not None][:NEIGHBOURS],
                "awaited_by": [_with_cause(other, {}) for other in awaited_by[:NEIGHBOURS]],
                "awaited_by_total": len(awaited_by),
            }
        )

    def _as_they_stand(self, rows: list[Attempt], causes: Causes) -> list[dict[str, Any]]:
        """Return rows with what the tasks wait for now, and for how long READY ones have been starved up to now."""
        told = [_with_cause(row, causes) for row in rows]
        core = self._run.core
        ready = [row for row in told if row["state"] == TaskState.READY]
        if core is not None and ready:
            with core.lock:
                _tell_starved(core.kernel, monotonic_ns(), ready)
        return told

    def _lane_causes(self) -> Causes:
        """Return what the tasks of each lane wait for."""
        lanes = self._overview()["lanes"]
        return {
            (lane["priority"], lane["scope"], tuple(lane["demand"].items()), lane["slot"]): lane["waits_for"]
            for lane in lanes
        }

    def find(self, ref: str) -> Attempt:
        """Return the row that a reference means; raise a Problem if there is none or more than one."""
        self._feed.catch_up()
        found = self._feed.table.find(ref) or self._newcomers(ref)
        if not found:
            raise Problem(404, f"no task has the id or number {shown(ref)}, or it ended too long ago")
        if len(found) > 1:
            names = ", ".join(f"{row.scope}/{row.id} or @{row.number}" for row in found[:5])
            raise Problem(409, f"task id {shown(ref)} is ambiguous: use one of {names}")
        return found[0]

    def _newcomers(self, ref: str) -> list[Attempt]:
        """Return the task of an id that has come while the feed rests, if there is one."""
        core = self._run.core
        if core is None or core.last_seq == self._feed.seq:
            return []
        with core.lock, suppress(WhywaitError):
            task = core.kernel.find(ref)
            if isinstance(task, Task):
                return [picture(task, self._feed.seq)]
        return []

    def _streams(self, row: Attempt) -> dict[str, int]:
        """Return how many chunks the streams of a living task have had."""
        core = self._run.core
        if core is None or not row.alive:
            return {}
        try:
            return stream_counts(core.find(Ref(row.number, row.scope, core.token)))
        except WhywaitError:  # it has ended this very moment
            return {}

    def _why(self, row: Attempt) -> Why:
        authority, core = self._run.authority, self._run.core
        if authority is not None and core is not None and row.alive:
            try:
                return authority.why(Ref(row.number, row.scope, core.token))
            except WhywaitError:  # it has ended this very moment
                self._feed.catch_up()
        attempts = self._feed.table.attempts_of(row)
        return why_of(attempts[: attempts.index(row) + 1])

    # Events

    async def events(self, request: Request) -> Response:
        """Return events as JSON, or as a stream to a client that accepts one."""
        query = read_query(request, SPECS["events"].params)
        feed = self._feed
        feed.catch_up()
        if "text/event-stream" in request.headers.get("accept", ""):
            return self._stream(request, query)
        since = query["since"] or 0
        events = feed.since(since, query["limit"] or 500)
        return Json(
            {
                "events": [Event.of(event).to_dict() for event in events],
                "seq": feed.seq,
                "next": events[-1][0] if events else max(since, feed.seq),
                "skipped": max(0, feed.first - 1 - since),
            }
        )

    def _stream(self, request: Request, query: dict[str, Any]) -> Response:
        since = query["since"] or 0
        last = request.headers.get("last-event-id")
        if last is not None:
            since = check_value(_LAST_ID, last)
        ends_ns = monotonic_ns() + query["seconds"] * NS_PER_S if query["seconds"] else None
        if request.method == "HEAD":  # which has no body to wait for
            return Response(media_type="text/event-stream")
        return _Stream(self._feed, self._pieces(since, ends_ns, snapshots=query["snapshots"] == "yes"))

    async def _pieces(self, seq: int, ends_ns: int | None, *, snapshots: bool) -> AsyncIterator[bytes]:
        feed = self._feed
        pause_ns = SNAPSHOT_NS if snapshots else KEEP_ALIVE_NS
        due_ns = 0 if snapshots else monotonic_ns() + pause_ns
        yield b"retry: 1000\n\n"
        while True:
            piece = feed.piece_after(seq)
            if piece is not None:
                seq = piece.seq
                yield piece.data
                await asyncio.sleep(0)  # sending does not wait as long as there is room: others have their turn
            elif monotonic_ns() >= due_ns:
                due_ns = monotonic_ns() + pause_ns
                yield self._cached("snapshot frame", self._snapshot_frame) if snapshots else b": still here\n\n"
            elif feed.finished:
                yield frame(None, {"seq": seq}, "finished")
                return
            elif ends_ns is not None and monotonic_ns() >= ends_ns:
                yield frame(None, {"seq": seq}, "again")
                return
            else:
                await feed.news()


class _Stream(StreamingResponse):
    """The stream of one viewer, counted from before its first byte until after its last."""

    def __init__(self, feed: Feed, pieces: AsyncIterator[bytes]) -> None:
        super().__init__(pieces, media_type="text/event-stream")
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces, or a refusal if there are too many viewers: nothing comes between counting and adding."""
        if self._feed.viewers >= MAX_VIEWERS:
            refusal = Json({"error": f"{MAX_VIEWERS} viewers are connected already: close one"}, 503)
            await refusal(scope, receive, send)
            return
        self._feed.viewers += 1
        self._feed.wake()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.viewers -= 1


_TOLD: Final = (
    "id", "function", "scope", "number", "state", "priority", "demand", "devices", "slot", "paused_from", "outcome",
    "cause", "root", "attempt",
)  # fmt: skip


def why_of(attempts: list[Attempt]) -> Why:
    """Return how the wait of a task divided, over all its attempts, that only its events still tell of."""
    row, waits = attempts[-1], Counter[str]()
    for attempt in attempts:
        waits.update(attempt.waits)
    known: dict[str, Any] = {name: getattr(row, name) for name in _TOLD}
    return in_words(
        reasons.Why(
            **known,
            now_ns=row.ended_ns or row.started_ns or row.submitted_ns,
            waited_ns=waits.total(),
            breakdown=dict(waits),
            starved_ns=sum(attempt.starved_ns for attempt in attempts),
            primary=row.held_by,
        )
    )


def _tell_starved(kernel: Kernel, now: int, rows: list[dict[str, Any]]) -> None:
    """Put into the rows of READY tasks for how long they have been starved; under the lock."""
    for row in rows:
        scope = kernel.scopes.get(row["scope"])
        task = scope.tasks.get(row["number"]) if scope is not None else None
        if task is not None:  # else it has ended this very moment
            row["starved_ns"] = starved_ns(kernel, now, task)


def _with_cause(row: Attempt, causes: Causes) -> dict[str, Any]:
    """Return a row with what the task waits for now."""
    waits_for = row.held_by
    if row.state == TaskState.READY:
        waits_for = causes.get((row.priority, row.scope, row.demand, row.slot), Wait.SLOT)
    return row_of(row, waits_for)


def _passes(row: Attempt, query: dict[str, Any]) -> bool:
    state, text = query["state"], query["q"]
    return (
        (state is None or row.state == state or state in _groups(row))
        and (query["outcome"] is None or row.outcome == query["outcome"])
        and (query["scope"] is None or row.scope == query["scope"])
        and (query["priority"] is None or row.priority == query["priority"])
        and (not text or text.casefold() in f"{row.scope}/{row.label}".casefold())
    )


def _groups(row: Attempt) -> tuple[str, ...]:
    if not row.alive:
        return ("ended",)
    return ("living",) if row.active else ("living", "waiting")


_LAST_ID: Final = Param("Last-Event-ID", {"type": "integer", "minimum": 0}, "")
