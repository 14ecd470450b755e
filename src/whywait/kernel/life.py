"""The life of a task: every way in which one changes its state, and what follows from that for others.

:class:`Life` holds the kernel's state and the steps that commands are made of. It checks nothing that a command has
to check; the door is :class:`~whywait.kernel.kernel.Kernel`, and nobody outside this package calls Life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from whywait.kernel import graph
from whywait.kernel.admission import NO_DEPENDENCIES, Admission, Dependencies
from whywait.kernel.dispatch import Dispatcher
from whywait.kernel.events import Details, Kind, RawEvent, submitted_details
from whywait.kernel.gates import Gate
from whywait.kernel.model import Budget, Limits, Policy, Scope, Submission, Task, gate_order
from whywait.kernel.periodics import Periodics
from whywait.kernel.starvation import Starvation
from whywait.kernel.state import Cause, Outcome, ScopeState, TaskState, Wait, scope_step, task_step
from whywait.kernel.stats import Stats
from whywait.kernel.timers import Timers

if TYPE_CHECKING:
    from whywait.kernel.lanes import Order

BACKOFF: Final = "backoff"
MAX_WAIT: Final = "max_wait"
PAUSE: Final = "pause"


class Life:
    """The kernel's state and the steps in which tasks live and end."""

    def __init__(
        self,
        limits: Limits,
        budget: Budget,
        order: Order,
        policy: Policy,
        *,
        greedy: bool,
        pause_timeout_ns: int,
        starvation_timeout_ns: int,
        jitter: Callable[[], float],
        emit: Callable[[RawEvent], None] | None,
    ) -> None:
        """Start with nothing but the authority's own scope."""
        self.root = Scope("", None, limits, policy)
        self.scopes: dict[str, Scope] = {"": self.root}
        self.settled: list[Task] = []
        self.requests: list[tuple[str, Task]] = []
        self.suspended = 0  # how many scopes are SUSPENDED
        self.freed: list[Task] = []  # triggers that the overlap gate lets through, to be woken with the others
        self.stats = Stats()
        self.running: dict[int, Task] = {}  # slot holders in start order
        self.pause_timeout_ns = pause_timeout_ns
        self.jitter = jitter
        names = sorted((*budget.hard, *budget.soft), key=gate_order)
        limit_of = {**budget.hard, **budget.soft}
        self.resources = {
            name: Gate("resource", name, limit=limit_of[name], soft=name in budget.soft) for name in names
        }
        self.dispatcher = Dispatcher(self.root.slot_gate, self.resources, order, greedy=greedy)
        self.emit = emit
        self.seq = 0
        self.trigger: int | None = None  # seq of the latest event that may let something start
        self.timers = Timers()  # timeouts, backoffs, ticks, pause timeouts, starvation
        self.expiries = Timers()  # max_wait, looked at between the two halves of dispatch
        self.starvation = Starvation(starvation_timeout_ns, self.timers, self.report_starved)
        self.dispatcher.on_unwatched = self.starvation.lane_entered
        self.admission = Admission(self.scopes, self.resources)
        self.periodics = Periodics(self)
        self.root.state = ScopeState.RUNNING

    # Events

    def event(self, now: int, kind: str, task: Task, cause: int | None, details: Details | None = None) -> int:
        """Emit an event of a task; return its seq."""
        self.seq = seq = self.seq + 1
        if self.emit is not None:
            self.emit((seq, now, kind, task.scope.key, task.number, task.name, cause, details))
        return seq

    def other_event(
        self,
        now: int,
        kind: str,
        scope: Scope,
        name: str | None = None,
        cause: int | None = None,
        details: Details | None = None,
    ) -> int:
        """Emit an event of a scope, of a periodic, or of a submission that got no number."""
        self.seq = seq = self.seq + 1
        if self.emit is not None:
            self.emit((seq, now, kind, scope.key, None, name, cause, details))
        return seq

    def report_starved(self, now: int, task: Task, starved_ns: int) -> None:
        """Count and tell that a task has starved too long."""
        self.stats.starved += 1
        self.event(now, Kind.TASK_STARVED, task, None, (("starved_ns", starved_ns),))

    def tell_lanes(self, now: int) -> None:
        """Tell what lanes wait for that dispatch has found behind another gate than before, or behind none."""
        dispatcher = self.dispatcher
        for lane in dispatcher.changed:
            gate = lane.epoch.gate
            holds_back = dispatcher.held and dispatcher.blocker is lane
            if (gate, holds_back) == lane.told_cause:
                continue
            lane.told_cause = (gate, holds_back)
            details = [*lane.details[1:], ("cause", Wait.SLOT if gate is None else gate.name), ("tasks", len(lane))]
            if gate is not None and gate.scope is not None:
                details.append(("of", gate.scope.key))
            if holds_back:
                details.append(("holds_back", True))
            self.other_event(now, Kind.LANE_WAITS, lane.scope, None, self.trigger, tuple(details))
        dispatcher.changed.clear()

    # In

    def register(self, now: int, request: Submission) -> Task:
        """Give a submission that passed all checks its number and count it."""
        scope, name, priority, demand, _, _, policy, job = request
        self.dispatcher.count = number = self.dispatcher.count + 1
        task = Task(number, name, scope, priority, demand, policy or scope.policy, job, now)
        scope.tasks[number] = task
        if name is not None:
            scope.ids[name] = task
        self.stats.submitted += 1
        if scope.limited:
            self.register_pending(task)
            for each in scope.chain:
                each.spawned += 1
        return task

    def place(self, now: int, task: Task, found: Dependencies) -> None:
        """Make a registered task READY, or QUEUED behind its dependencies."""
        if found is NO_DEPENDENCIES:
            self.make_ready(now, task)
            self.trigger = self.submitted(now, task)
            return
        failed = graph.link(task, found.after, found.after_ended)
        failed_id = (failed.root or failed.id) if failed is not None else found.failed
        if not task.unmet and failed_id is None:
            self.make_ready(now, task)
        self.trigger = seq = self.submitted(now, task)
        if failed_id is not None:
            self.end_pending(now, task, Outcome.ABORTED, Cause.DEPENDENCY, failed_id, seq)
            self.propagate(now, [task], failed_id, seq)

    def submitted(self, now: int, task: Task, cause: int | None = None) -> int:
        """Tell that a task was taken in; return the seq of the event."""
        details = submitted_details(task.state, task.priority, task.demand)
        if task.after:
            details += (("after", graph.numbers(task.after)),)
        if task.after_ended:
            details += (("after_ended", graph.numbers(task.after_ended)),)
        return self.event(now, Kind.TASK_SUBMITTED, task, cause, details)

    def displace(self, now: int, victims: Iterable[Task]) -> None:
        """Drop pending tasks to make room for newcomers."""
        for victim in victims:
            if victim.pending:  # not gone with an earlier one
                self.end_with_dependents(now, victim, Outcome.REJECTED, Cause.DISPLACED)

    # Pending

    def make_ready(self, now: int, task: Task) -> None:
        """Put a pending task into its lane; nothing keeps it QUEUED any more."""
        if task.after is not None:
            task.after = None
        if task.after_ended is not None:
            task.after_ended = None
        if task.held_by is not None:
            task.held_by = None
        dispatcher = self.dispatcher
        dispatcher.count = entry = dispatcher.count + 1
        dispatcher.enter(now, task, dispatcher.lane_of(now, task), entry)
        if task.policy.max_wait_ns is not None:
            self.limit_wait(now, task)
        if task.starved_ns:
            self.starvation.task_returned(now, task)

    def limit_wait(self, now: int, task: Task) -> None:
        """Set the end of the max_wait of a task that becomes READY."""
        max_wait_ns = task.policy.max_wait_ns
        assert max_wait_ns is not None, "the caller has looked"
        task.wait_timer = self.expiries.add(now + max_wait_ns, MAX_WAIT, task)
        task.plain = False

    def wake(self, now: int, tasks: list[Task], cause: int | None) -> None:
        """Turn QUEUED tasks READY that nothing keeps any more, in id order."""
        if len(tasks) > 1:
            tasks.sort(key=graph.BY_ID)
        for task in tasks:
            if task.state == TaskState.QUEUED:  # a paused one follows when it is resumed
                task.add_wait(task.held_by or Wait.DEPENDENCY, now - task.since)
                self.make_ready(now, task)
                self.trigger = self.event(now, Kind.TASK_READY, task, cause)

    def stop_waiting(self, now: int, task: Task) -> None:
        """Take a pending task out of wherever it waits and charge the wait."""
        if task.state == TaskState.READY:
            self.dispatcher.leave(now, task)
            self.cancel_wait_timer(task, self.expiries)
        elif task.state == TaskState.PAUSED:
            task.add_wait(Wait.PAUSED, now - task.since)
            self.cancel_wait_timer(task, self.timers)
        else:
            task.add_wait(task.held_by or Wait.DEPENDENCY, now - task.since)
            self.cancel_wait_timer(task, self.timers)

    def cancel_wait_timer(self, task: Task, timers: Timers) -> None:
        """Call off the max_wait or the backoff of a task."""
        if task.wait_timer is not None:
            timers.cancel(task.wait_timer)
            task.wait_timer = None

    def count_pending(self, task: Task, change: int) -> None:
        """Count a task in, or out, where a queue limit counts."""
        for scope in task.scope.counted:
            scope.pending += change

    # Endings

    def end_pending(
        self, now: int, task: Task, outcome: str, cause: str, root: str | None = None, led_by: int | None = None
    ) -> int:
        """End a pending task at once; return the seq of the event. Its dependents are the caller's business."""
        self.stop_waiting(now, task)
        task.state = TaskState.DISPOSED  # from any pending state, as the table says; the caller has asked for pending
        task.since = now
        self.count_pending(task, -1)
        if task.unmet:
            graph.unlink(task)
        kind = Kind.TASK_DROPPED if outcome == Outcome.REJECTED else Kind.TASK_CANCELLED
        details: Details = (("cause", cause),) if root is None else (("cause", cause), ("root", root))
        if task.waited is not None:
            details = self.with_waits(task, details)
        seq = self.event(now, kind, task, led_by, details)
        task.cause = cause
        if root is not None:
            task.root = root
        self.settled.append(task)
        self.unregister(now, task, outcome)
        return seq

    def with_waits(self, task: Task, details: Details) -> Details:
        """Count the wait of a task that ends without a start; return the details of its end with it."""
        waits = task.waits
        self.stats.ended_pending(waits)
        return (*details, ("waits", waits)) if waits else details

    def end_alone(self, now: int, task: Task, outcome: str, cause: str, details: Details, led_by: int | None) -> None:
        """End a plain READY task that nobody awaits, in short; if it is still in its lane, the caller clears that."""
        lane, scope, name, number = task.lane, task.scope, task.name, task.number
        if lane is not None:
            if now != task.since:
                self.dispatcher.account(now, task, lane)
            task.lane = None
        task.state = TaskState.DISPOSED
        task.since = now
        task.outcome = outcome
        task.cause = cause
        self.settled.append(task)
        del scope.tasks[number]
        if name is not None:
            scope.ids[name] = outcome
        if scope.counted:
            self.count_pending(task, -1)
        self.stats.by_outcome[outcome] += 1
        if task.waited is not None:
            details = self.with_waits(task, details)
        self.seq = seq = self.seq + 1
        if self.emit is not None:
            self.emit((seq, now, Kind.TASK_CANCELLED, scope.key, number, name, led_by, details))

    def end_with_dependents(self, now: int, task: Task, outcome: str, cause: str, led_by: int | None = None) -> None:
        """End a pending task and whoever depends on it."""
        seq = self.end_pending(now, task, outcome, cause, led_by=led_by)
        if task.successors is not None or not task.plain:
            self.propagate(now, [task], task.id, seq)

    def propagate(self, now: int, ended: list[Task], root: str, led_by: int | None) -> None:
        """End all descendants of tasks that will not succeed, then wake whoever awaited the end of any."""
        doomed = [task for task, _ in graph.descendants(ended)]
        for task in ended:
            task.successors = None
        for task in doomed:
            self.end_pending(now, task, Outcome.ABORTED, Cause.DEPENDENCY, root, led_by)
        self.wake_after_end(now, (*ended, *doomed), led_by)

    def wake_after_end(self, now: int, ended: Iterable[Task], led_by: int | None) -> None:
        """Wake whoever awaited the end, whatever the outcome, of tasks that have ended."""
        woken, self.freed = self.freed, []
        for task in ended:
            if task.outcome is not None and task.ended_successors is not None:
                woken.extend(graph.met(task.ended_successors))
                task.ended_successors = None
        self.wake(now, woken, led_by)

    def tell_dependents(self, now: int, task: Task, led_by: int) -> None:
        """Wake those whom a final end lets go on, end those whom it takes down."""
        if task.outcome != Outcome.SUCCESS:
            self.propagate(now, [task], task.id, led_by)
            return
        woken = graph.met(task.successors) + self.freed
        self.freed = []
        task.successors = None
        if task.ended_successors is not None:
            woken += graph.met(task.ended_successors)
            task.ended_successors = None
        self.wake(now, woken, led_by)

    def unregister(self, now: int, task: Task, outcome: str) -> None:
        """Record the outcome and forget the task; its id and outcome stay if the user named it."""
        task.outcome = outcome
        scope = task.scope
        del scope.tasks[task.number]
        if task.name is not None and task.periodic is None:
            scope.ids[task.name] = outcome
        by_outcome = self.stats.by_outcome
        by_outcome[outcome] += 1
        if outcome == Outcome.REJECTED:
            self.stats.count_drop(task.cause or "")
        if task.periodic is not None:
            self.periodics.ended(now, task, task.periodic)

    def ask_abort(self, now: int, task: Task, outcome: str, cause: str, led_by: int | None = None) -> int:
        """Ask the engine to end a slot holder; its outcome is settled from now on. Return the event's seq."""
        task.state = task_step(task.state, "abort", TaskState.DISPOSING, task.id)
        self.forget_run_timers(task)
        self.requests.append(("abort", task))
        seq = self.event(now, Kind.TASK_ABORT_ASKED, task, led_by, (("cause", cause),))
        task.abort = (outcome, cause, seq)
        task.abort_since = now
        return seq

    def abort(self, now: int, task: Task, outcome: str, cause: str, led_by: int | None = None) -> None:
        """Ask for an abort and end whoever awaits this task's success: it will not come."""
        seq = self.ask_abort(now, task, outcome, cause, led_by)
        self.propagate(now, [task], task.id, seq)

    def forget_run_timers(self, task: Task) -> None:
        """Call off the timeout and the pause timeout of a slot holder."""
        if task.run_timer is not None:
            self.timers.cancel(task.run_timer)
            task.run_timer = None
        if task.pause_timer is not None:
            self.timers.cancel(task.pause_timer)
            task.pause_timer = None

    def retry(self, now: int, task: Task, led_by: int) -> Task:
        """Replace a task that failed by a new one at the back of the queue, or QUEUED while it backs off."""
        retry = task.policy.retry
        assert retry is not None, "only a task with retries left is retried"
        scope = task.scope
        self.dispatcher.count += 1
        new = Task(self.dispatcher.count, task.name, scope, task.priority, task.demand, task.policy, task.job, now)
        new.attempt = task.attempt + 1
        if task.periodic is not None:
            self.periodics.retried(task, new, task.periodic)
        graph.hand_over(task, new)
        task.retried_as = new
        task.outcome = Outcome.ERROR
        task.job = None
        del scope.tasks[task.number]
        scope.tasks[new.number] = new
        if task.name is not None and task.periodic is None:
            scope.ids[task.name] = new
        self.register_pending(new)
        self.stats.retried += 1
        delay_ns = retry.delay_ns(task.attempt, self.jitter() if retry.jitter else 0.0) if retry.backoff else 0
        if delay_ns:
            new.held_by = Wait.BACKOFF
            new.unmet = 1
            new.wait_timer = self.timers.add(now + delay_ns, BACKOFF, new)
            new.plain = False
        else:
            self.make_ready(now, new)
        details = (("of", task.number), ("attempt", new.attempt), ("state", new.state))
        self.trigger = self.event(now, Kind.TASK_RETRIED, new, led_by, details)
        return new

    def register_pending(self, task: Task) -> None:
        """Count a newcomer where a queue limit counts, and list it where it may be displaced."""
        for scope in task.scope.counted:
            scope.pending += 1
            stack = scope.by_priority.setdefault(task.priority, [])
            stack.append(task)
            if len(stack) > 2 * scope.pending + 64:
                scope.by_priority[task.priority] = [other for other in stack if other.pending]

    # Scopes

    def activated(self, now: int, scope: Scope) -> None:
        """First activation: ATTACHED to RUNNING, for the scope and its parents."""
        for each in scope.chain:
            if each.state == ScopeState.ATTACHED:
                each.state = scope_step(each.state, "first activation", ScopeState.RUNNING, each.key)
                self.other_event(now, Kind.SCOPE_RUNNING, each, cause=self.trigger)
        scope.activated = all(each.state != ScopeState.INIT for each in scope.chain)

    def finish_disposal(self, now: int, scope: Scope, led_by: int | None) -> None:
        """Complete the disposal of a scope, and then of its parents, once nothing of it is left."""
        while scope.state == ScopeState.DISPOSING and not scope.tasks and not scope.children:
            scope.state = scope_step(scope.state, "all ended", ScopeState.DISPOSED, scope.key)
            self.scopes.pop(scope.key, None)
            scope.ids.clear()
            scope.by_priority.clear()
            self.other_event(now, Kind.SCOPE_DISPOSED, scope, cause=led_by)
            if scope.parent is None:
                return
            scope.parent.children.pop(scope.key, None)
            scope = scope.parent
