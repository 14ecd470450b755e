"""Tasks as OpenTelemetry spans: one for each attempt, from its submission to its end.

Needs the extra ``otel``. The parent of a span is whatever span was current where the task was submitted. How the wait
divided is in the attributes: ``whywait.waited_ms`` and ``whywait.wait.<cause>_ms``; the start is an event of the span.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Final

try:
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Status, StatusCode, Tracer
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"spans need the package {missing.name!r}; install it with: pip install 'whywait[otel]'", name=missing.name
    ) from None

from whywait.bridges.base import Bridge
from whywait.explain import event_in_words
from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.state import Outcome
from whywait.units import NS_PER_MS

if TYPE_CHECKING:
    from whywait.authority import Authority

_ENDS: Final = frozenset({Kind.TASK_FINISHED, Kind.TASK_CANCELLED, Kind.TASK_DROPPED})


class SpanBridge(Bridge):
    """Makes a span of every task of an authority until it is closed; ``tracer`` defaults to the global provider's."""

    def __init__(self, authority: Authority, tracer: Tracer | None = None) -> None:
        """Follow the tasks that are submitted from now on."""
        self._tracer = tracer or trace.get_tracer("whywait")
        self._spans: dict[int, Span] = {}  # of living tasks
        self._contexts: dict[int, Context] = {}  # of the submitters of living tasks
        self._ended: tuple[int, Context] | None = None  # the latest that ended: a retry follows at once
        self._to_epoch_ns = time_ns() - monotonic_ns()
        self._untap = authority.tap(self._note_context)
        super().__init__(authority)

    def close(self) -> None:
        """Make no more spans; those of tasks that are still alive end here."""
        self._untap()
        super().close()
        for span in self._spans.values():
            span.end()
        self._spans.clear()
        self._contexts.clear()

    def _note_context(self, raw: RawEvent) -> None:
        """Remember the context of the submitter: this runs in its thread."""
        if raw[2] == Kind.TASK_SUBMITTED and raw[4] is not None:
            self._contexts[raw[4]] = context.get_current()

    def take(self, event: Event, skipped: int) -> None:  # noqa: ARG002 - a lost end leaves its span open until close
        """Begin, mark or end a span."""
        number, kind, details = event.number, event.kind, dict(event.details or ())
        if number is None:
            return
        if kind == Kind.TASK_RETRIED and self._ended is not None and self._ended[0] == details["of"]:
            self._contexts[number] = self._ended[1]
        if kind in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
            self._begin(event, number, details)
            return
        span = self._spans.get(number)
        if span is None:
            return
        if "waits" in details:
            _note_wait(span, details["waits"])
        if kind == Kind.TASK_STARTED:
            span.add_event("started", timestamp=event.time_ns + self._to_epoch_ns)
        elif kind in _ENDS:
            self._end(event, number, span, details)

    def _begin(self, event: Event, number: int, details: dict[str, Any]) -> None:
        attributes: dict[str, Any] = {
            "whywait.scope": event.scope,
            "whywait.number": number,
            "whywait.attempt": details.get("attempt", 1),
            "whywait.waited_ms": 0.0,
        }
        if "priority" in details:
            attributes["whywait.priority"] = details["priority"]
        attributes |= {f"whywait.demand.{name}": amount for name, amount in details.get("demand", ())}
        self._spans[number] = self._tracer.start_span(
            event.id or str(number),
            context=self._contexts.get(number),
            attributes=attributes,
            start_time=event.time_ns + self._to_epoch_ns,
        )

    def _end(self, event: Event, number: int, span: Span, details: dict[str, Any]) -> None:
        outcome = details.get("outcome") or (Outcome.REJECTED if event.kind == Kind.TASK_DROPPED else Outcome.ABORTED)
        span.set_attribute("whywait.outcome", outcome)
        if outcome == Outcome.SUCCESS:
            span.set_status(Status(StatusCode.OK))
        else:
            span.set_attribute("whywait.cause", details.get("cause", ""))
            span.set_status(Status(StatusCode.ERROR, event_in_words(event)))
        span.end(end_time=event.time_ns + self._to_epoch_ns)
        del self._spans[number]
        submitter = self._contexts.pop(number, None)
        self._ended = None if submitter is None else (number, submitter)


def _note_wait(span: Span, waits: dict[str, int]) -> None:
    span.set_attribute("whywait.waited_ms", sum(waits.values()) / NS_PER_MS)
    for cause, ns in waits.items():
        span.set_attribute(f"whywait.wait.{cause}_ms", ns / NS_PER_MS)
