"""Runs a workflow: opens its scopes, submits its tasks at one instant, and ends everything it started.

:class:`Run` is what the command line drives: ``prepare``, ``start``, ``wait`` in steps, ``interrupt`` and ``kill`` for
the first and the second Ctrl-C, ``close``. ``hooks`` are called with the authority before anything is submitted:
that is where event writers and DevTools attach themselves; what they return is called when the run is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from pathlib import Path
from threading import RLock
from time import monotonic_ns, sleep
from typing import Any, Final

from whywait.errors import ConfigError, DisposeIncomplete, Rejected
from whywait.kernel.durations import NS
from whywait.kernel.order import Aging, Order, Strict
from whywait.kernel.state import Outcome
from whywait.options import in_seconds
from whywait.runtime.authority import DEFAULT_SCOPE, Authority, core_of
from whywait.runtime.handle import Handle, new_handle
from whywait.runtime.scope import Scope, open_of
from whywait.runtime.submission import Call, request_for
from whywait.workflow.bodies import make_body
from whywait.workflow.format import AWAY
from whywait.workflow.outputs import Outputs, Sink, into
from whywait.workflow.plan import with_learned
from whywait.workflow.specs import PeriodicSpec, TaskSpec, WorkflowSpec
from whywait.workflow.task_progress import Progress

Hook = Callable[[Authority], Callable[[], object] | None]

_LOOK_S: Final = 0.005  # how often to look whether the last iterations are over
_EVENTS: Final = 100_000
_EVENTS_OF_A_TASK: Final = 50
_KILL_S: Final = 2.0  # how long killed bodies may take to be gone


class Run:
    """One run of a workflow."""

    def __init__(
        self,
        workflow: WorkflowSpec,
        *,
        logs: Path | None = None,
        hooks: Iterable[Hook] = (),
        authority_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare the run; nothing starts yet. ``authority_options`` win over the file's."""
        self.workflow = workflow
        self.outputs = Outputs(logs)
        self.progress = Progress(workflow.tasks)
        self.handles: dict[str, Handle[Any]] = {}
        self.refusals: dict[str, Rejected] = {}  # ids of tasks that were not let in
        kept = max(_EVENTS, _EVENTS_OF_A_TASK * len(workflow.tasks))  # the report and the trace need them all
        options = {"events": kept, **authority_settings(self.workflow), **(authority_options or {})}
        self.authority = Authority(**options)
        try:
            self.workflow = with_learned(self.workflow, self.authority.history)
        except ConfigError:
            self.authority.dispose()
            raise
        self.began_ns = self.ended_ns = 0
        self.survivors: tuple[str, ...] = ()
        self._hooks = list(hooks)
        self._unhook: list[Callable[[], object]] = []
        self._calls: list[tuple[TaskSpec, tuple[Call, Sink]]] = []
        self._periodics: list[tuple[PeriodicSpec, Callable[..., Any], Sink]] = []
        self._scopes: dict[str | None, Scope] = {}
        self._left = 0
        self._lock = RLock()
        self._over = threading.Event()
        self._disposing: threading.Thread | None = None

    # The life of a run

    def prepare(self) -> None:
        """Import the functions and open the logs: what can go wrong before anything runs goes wrong here."""
        self._calls = [(spec, self._call(spec)) for spec in self.workflow.tasks]
        self._periodics = [(spec, *self._function(spec)) for spec in self.workflow.periodics]

    def start(self) -> None:
        """Submit everything; tasks that can start do so at once. ``prepare`` comes first."""
        authority = self.authority
        self._open_scopes()
        for hook in self._hooks:
            undo = hook(authority)
            if undo is not None:
                self._unhook.append(undo)
        self._unhook.append(authority.subscribe(self.progress.feed))
        self.began_ns = self.progress.began_ns = monotonic_ns()
        for spec, function, sink in self._periodics:
            self._start_periodic(spec, function, sink)
        self._submit(self._calls)
        self._calls.clear()
        with self._lock:
            self._left += len(self.handles)
        for handle in self.handles.values():
            handle.add_done_callback(self._one_ended)
        if not self.handles:
            self._finish()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all tasks have ended, at most so long if a time is given; return whether they have."""
        return self._over.wait(timeout_s)

    def interrupt(self) -> None:
        """Ask everything to end, without waiting: abort signals now, force after the grace time where possible."""
        if self._disposing is None:
            self._disposing = threading.Thread(target=self._dispose, name="whywait-interrupt", daemon=True)
            self._disposing.start()

    def kill(self) -> None:
        """End by force, at once, whatever can be ended so; a function on a thread cannot."""
        self.interrupt()
        deadline_ns = monotonic_ns() + round(_KILL_S * NS)
        while not self._over.is_set() and monotonic_ns() < deadline_ns:
            for view in self.authority.snapshot().running:
                handle = self.handles.get(view.id)
                if handle is not None:
                    execution = handle
                    execution.engine.kill(execution)
            self._over.wait(0.05)
        self.survivors = tuple(view.id for view in self.authority.snapshot().running)

    def rest(self) -> None:
        """End what still runs beside the tasks or after them, so that nothing is printed any more; idempotent."""
        if not self.ended_ns:
            self.ended_ns = monotonic_ns()
        if self._disposing is None:
            self._stop_periodics()
        elif not self.survivors:
            self._disposing.join()

    def close(self) -> None:
        """End the periodics and everything else; idempotent."""
        self.rest()
        if self._disposing is None:
            self._dispose()
        for undo in reversed(self._unhook):
            undo()
        self._unhook.clear()
        self.outputs.close()

    def errors(self) -> dict[str, BaseException]:
        """Return the error of each task that ended otherwise than in success, by id."""
        found: dict[str, BaseException] = dict(self.refusals)
        for ident, handle in self.handles.items():
            if handle.done() and handle.outcome != Outcome.SUCCESS:
                error = handle.exception(0)
                assert error is not None, "it did not succeed"
                found[ident] = error
        return found

    # Steps

    def _open_scopes(self) -> None:
        name = self.workflow.name
        key = f"{name} (workflow)" if name == DEFAULT_SCOPE else name  # the authority has a scope of that name already
        top = self._scopes[None] = self.authority.scope(key, on_error=self.workflow.on_error)
        for spec in self.workflow.scopes:
            parent = self._scopes[spec.parent] if spec.parent else top
            self._scopes[spec.key] = parent.scope(spec.key, **in_seconds(spec.options))

    def _function(self, spec: TaskSpec | PeriodicSpec) -> tuple[Callable[..., Any], Sink]:
        sink = self.outputs.open(spec.id, external=spec.body.engine in AWAY)
        try:
            return make_body(spec.body, self.workflow.folder, sink), sink
        except ConfigError as error:
            kind = "task" if isinstance(spec, TaskSpec) else "periodic"
            raise ConfigError(f"{self.workflow.source}: {kind}.{spec.id}: {error}") from error

    def _options(self, spec: TaskSpec | PeriodicSpec) -> dict[str, Any]:
        """Return the options of a task or a periodic as the runtime takes them."""
        options = {"id": spec.id, "engine": spec.body.engine, **in_seconds(spec.options)}
        return {**options, "kwargs": spec.body.kwargs} if spec.body.kwargs else options

    def _call(self, spec: TaskSpec) -> tuple[Call, Sink]:
        function, sink = self._function(spec)
        return Call(function, spec.body.args, self._options(spec)), sink  # type: ignore[arg-type]

    def _submit(self, calls: list[tuple[TaskSpec, tuple[Call, Sink]]]) -> None:
        """Submit all tasks at one instant, each after what it needs; one that is refused takes its dependents along."""
        prepared = []
        core = core_of(self.authority)
        for spec, (call, sink) in calls:
            scope = open_of(self._scopes[spec.scope])
            with into(sink):
                engine = scope.engine_for(call.fn, call.options or {})
                execution = new_handle(core, call.fn, call.args, copy_context(), engine)
            request = request_for(core, scope, execution, {**(call.options or {})})
            prepared.append((spec, execution, request))
        ended: dict[str, str] = {}  # tasks that never got in -> the task that was refused first

        def act(now: int) -> None:
            for spec, execution, request in prepared:
                lost = next((each for each in spec.after if each in ended), None)
                if lost is not None:
                    ended[spec.id] = ended[lost]
                    continue
                needed = request._replace(
                    after=tuple(self.handles[each] for each in spec.after),
                    after_ended=tuple(self.handles[each] for each in spec.after_ended if each in self.handles),
                )
                try:
                    core.kernel.submit(now, *needed)
                except Rejected as error:
                    ended[spec.id] = spec.id
                    self.refusals[spec.id] = error
                else:
                    self.handles[spec.id] = execution

        core.command(act)
        for ident, root in ended.items():
            if ident != root:
                self.progress.skip(ident, root)

    def _start_periodic(self, spec: PeriodicSpec, function: Callable[..., Any], sink: Sink) -> None:
        with into(sink):
            self._scopes[spec.scope].periodic(function, *spec.body.args, **self._options(spec))

    def _one_ended(self, handle: Handle[Any]) -> None:
        error = handle.exception(0)  # looked at: the report tells it
        if error is not None:
            self.outputs.note_error(handle.id, error)
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._finish()

    def _finish(self) -> None:
        self.ended_ns = monotonic_ns()
        self._over.set()

    def _stop_periodics(self) -> None:
        """Let no iteration begin any more, and those that have begun end by themselves, within the grace time."""
        periodics = self.authority.snapshot().periodics
        for view in periodics:
            self.authority.set_periodic_enabled(view.id, enabled=False)
        if periodics and self._over.is_set():
            deadline_ns = monotonic_ns() + round(self.authority.settings.grace * NS)
            while self.authority.snapshot().running and monotonic_ns() < deadline_ns:
                sleep(_LOOK_S)

    def _dispose(self) -> None:
        try:
            self.authority.dispose()
        except DisposeIncomplete as error:
            self.survivors = tuple(error.survivors)


def authority_settings(workflow: WorkflowSpec) -> dict[str, Any]:
    """Return the arguments of the Authority that the file asks for; the environment gives the rest."""
    scheduler = dict(workflow.scheduler)
    aging: dict[str, Any] = {
        key: scheduler.pop(key) for key in ("order", "every_ns", "boost", "cap") if key in scheduler
    }
    options = {key: value for key, value in workflow.budget.items() if value is not None}
    options |= in_seconds(scheduler)
    if workflow.has_slots:
        options["slots"] = workflow.slots
    if workflow.history is not None:
        options["history"] = workflow.history
    if aging:
        options["order"] = make_order(aging)
    return options


def make_order(scheduler: Mapping[str, Any]) -> Order:
    """Return the order that ``[scheduler]`` asks for."""
    if scheduler.get("order") == "strict":
        return Strict()
    return Aging(**in_seconds({key: value for key, value in scheduler.items() if key != "order"}))
