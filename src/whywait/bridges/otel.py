"""Tasks as OpenTelemetry spans: one for each attempt, from its submission to its end.

Needs the extra ``otel``. The parent of a span is whatever span was current where the task was submitted. How the wait
divided is in the attributes: ``whywait.waited_ms`` and ``whywait.wait.<cause>_ms``; the start is an event of the span.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Any

try:
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Status, StatusCode, Tracer
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"spans need the package {missing.name!r}; install it with: pip install 'whywait[otel]'", name=missing.name
    ) from None

from whywait.bridges.base import Bridge, EventSource
from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.state import Outcome
from whywait.observe.event_words import event_in_words
from whywait.observe.fold import Attempt, Fold
from whywait.support.units import NS_PER_MS


class SpanBridge(Bridge):
    """Makes a span of every task of an authority until it is closed; ``tracer`` defaults to the global provider's."""

    def __init__(self, authority: EventSource, tracer: Tracer | None = None) -> None:
        """Follow the tasks that are submitted from now on."""
        self._tracer = tracer or trace.get_tracer("whywait")
        self._fold: Fold[Attempt] = Fold(Attempt)
        self._spans: dict[int, Span] = {}  # of living tasks
        self._contexts: dict[int, Context] = {}  # of the submitters of living tasks
        self._ended: tuple[int, Context] | None = None  # the latest that ended: a retry follows at once
        self._to_epoch_ns = time_ns() - monotonic_ns()
        self._untap = authority._core.tap(self._note_context)  # noqa: SLF001 - no way of the users leads there
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
        attempt = self._fold.feed(event)
        if attempt is None:
            return
        if event.kind in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
            self._begin(attempt)
            return
        span = self._spans.get(attempt.number)
        if span is None:
            return
        if event.kind == Kind.TASK_STARTED:
            _note_wait(span, attempt.waits)
            for kind, names in attempt.devices:
                span.set_attribute(f"whywait.devices.{kind}", list(names))
            span.add_event("started", timestamp=event.time_ns + self._to_epoch_ns)
        elif attempt.outcome is not None:
            _note_wait(span, attempt.waits)
            self._end(event, attempt, attempt.outcome, span)

    def _begin(self, attempt: Attempt) -> None:
        number = attempt.number
        if self._ended is not None and self._ended[0] == attempt.of:
            self._contexts[number] = self._ended[1]
        attributes: dict[str, Any] = {
            "whywait.scope": attempt.scope,
            "whywait.number": number,
            "whywait.attempt": attempt.attempt,
            "whywait.waited_ms": 0.0,
            "whywait.priority": attempt.priority,
            **{f"whywait.demand.{name}": amount for name, amount in attempt.demand},
        }
        self._spans[number] = self._tracer.start_span(
            attempt.label,
            context=self._contexts.get(number),
            attributes=attributes,
            start_time=attempt.submitted_ns + self._to_epoch_ns,
        )

    def _end(self, event: Event, attempt: Attempt, outcome: str, span: Span) -> None:
        span.set_attribute("whywait.outcome", outcome)
        if outcome == Outcome.SUCCESS:
            span.set_status(Status(StatusCode.OK))
        else:
            span.set_attribute("whywait.cause", attempt.cause or "")
            span.set_status(Status(StatusCode.ERROR, event_in_words(event, attempt.label)))
        span.end(end_time=event.time_ns + self._to_epoch_ns)
        del self._spans[attempt.number]
        submitter = self._contexts.pop(attempt.number, None)
        self._ended = None if submitter is None else (attempt.number, submitter)


def _note_wait(span: Span, waits: dict[str, int]) -> None:
    span.set_attribute("whywait.waited_ms", sum(waits.values()) / NS_PER_MS)
    for cause, ns in waits.items():
        span.set_attribute(f"whywait.wait.{cause}_ms", ns / NS_PER_MS)
