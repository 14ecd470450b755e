"""What happens at submit: the checks of T3 in their order, and the limits S3, S4, D1, D2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .base import has_failed, inside, met
from .endings import Endings
from .records import Policy, Refused, Scope, Task


@dataclass
class Submission:
    """One task of a batch; dependencies are tasks, names in the same scope, or "scope/name"."""

    scope: Scope
    name: str | None = None
    priority: int = 50
    demand: dict[str, int] = field(default_factory=dict)
    after: Sequence[Task | str] = ()
    after_ended: Sequence[Task | str] = ()
    policy: Policy | None = None
    slot: bool = True


class Admission(Endings):
    """T3, S3, S4, D1, D2, D6."""

    def submit(self, now: int, *what: Any, **more: Any) -> Task:
        """One task, as its :class:`Submission` has it; raises Refused."""
        return self.submit_many(now, [Submission(*what, **more)])[0]

    def submit_many(self, now: int, batch: Iterable[Submission], *, kept: bool = False) -> list[Task]:
        """D6: all or nothing; the refused one is named. M13: kept ones are not refused for what they demand."""
        self.advance(now)
        submissions = list(batch)
        try:
            newcomers, victims = self.examine(submissions, kept)
        except Refused as refusal:
            kind = "TASK_DROPPED" if refusal.cause == "queue_full" else "TASK_REJECTED"
            self.emit(kind, refusal.scope, name=refusal.name, cause=refusal.cause)
            raise
        for task in newcomers if kept else ():
            self.let_wait(task)
        self.admit(newcomers, victims)
        return newcomers

    def let_wait(self, task: Task) -> None:
        """M13: what the budget lacks is there with a limit of 0; what cannot fit is never dropped for that."""
        if not self.feasible(task):
            task.policy = replace(task.policy, max_wait_ns=None)
            hard, unknown = task.scope.payer.budget.hard, self.unknown(task)
            hard |= dict.fromkeys(unknown, 0)

    def examine(self, submissions: list[Submission], kept: bool = False) -> tuple[list[Task], list[Task]]:
        """D6: everything is checked before anything is changed, the limits last.

        Returns the newcomers and who makes room for them.
        """
        drafts = [self.draft(submission) for submission in submissions]
        for submission, task in zip(submissions, drafts, strict=True):
            self.check(submission, task, drafts)
            if not kept and not self.feasible(task):
                raise Refused("infeasible", task)
        victims: list[Task] = []
        newcomers: list[Task] = []
        for task in drafts:
            if not is_doomed(task, drafts):  # D2: it counts against no limit
                self.check_limits(task, newcomers, victims, drafts)
                newcomers.append(task)
        return drafts, victims

    def admit(self, newcomers: list[Task], victims: list[Task]) -> None:
        """D2: the victims go, the newcomers enter."""
        for victim in victims:
            if victim.pending:  # an earlier victim may have taken it along
                self.drop(victim, "displaced")
        for task in newcomers:
            self.accept(task, newcomers)

    def draft(self, submission: Submission) -> Task:
        """The task as it would be; it is registered nowhere yet."""
        demand = {resource: amount for resource, amount in submission.demand.items() if amount > 0}
        policy = submission.policy or submission.scope.policy
        return Task(submission.name, submission.scope, submission.priority, demand, [], [], policy, submission.slot)

    def check(self, submission: Submission, task: Task, drafts: list[Task]) -> None:
        """T3: in this order."""
        scopes = task.scope.path()
        barred = any(scope.state in {"INIT", "SUSPENDED"} for scope in scopes)  # O2, O8
        if task.scope.state not in {"ATTACHED", "RUNNING"} or barred:
            raise Refused("scope_state", task)
        earlier = drafts[: drafts.index(task)]
        namesakes = [other for other in earlier if other.scope is task.scope and other.name == task.name]
        if task.name is not None and (namesakes or task.name in task.scope.names):  # T9
            raise Refused("duplicate", task)
        task.after = [self.find(dependency, task, drafts) for dependency in submission.after]  # G1, G5
        task.after_ended = [self.find(dependency, task, drafts) for dependency in submission.after_ended]  # G6

    def check_limits(self, task: Task, newcomers: list[Task], victims: list[Task], drafts: list[Task]) -> None:
        """T3: the limits, from the task's own scope outwards. `newcomers` of the same batch passed already."""
        for scope in task.scope.path():
            self.check_busy(scope, task, newcomers)
        for scope in task.scope.path():
            self.check_spawn(scope, task, newcomers)
        self.check_queue(task, newcomers, victims, drafts)

    def find(self, dependency: Task | str, task: Task, drafts: list[Task]) -> Task:
        """G1: it must exist; in a batch it may stand anywhere (G5)."""
        if isinstance(dependency, Task):
            return dependency
        key, slash, name = dependency.rpartition("/")
        home = next((scope for scope in self.scopes if scope.key == key), None) if slash else task.scope
        for draft in drafts:
            if draft.name == name and draft.scope is home and draft is not task:
                return draft
        if home is not None and name in home.names:
            return home.names[name]
        for other in self.tasks:  # T9: a generated id names a task as long as it lives
            generated = f"@{other.number:010d}" if other.periodic is None else f"{other.periodic.name}#{other.number}"
            if other.scope is home and other.outcome is None and generated == name:
                return other
        raise Refused("unknown_dependency", task)

    def feasible(self, task: Task) -> bool:
        """B1, B3, N2: never above a hard cap, and only what the budget knows."""
        payer = task.scope.payer
        too_much = [name for name, amount in task.demand.items() if amount > payer.budget.hard.get(name, amount)]
        has_units = all(self.could_ever_have(kind, task) for kind in payer.budget.devices)
        return has_units and not too_much and not self.unknown(task)

    def unknown(self, task: Task) -> list[str]:
        """B3, N2: what the budget has no word of; cpu, ram and vram without a limit are unlimited."""
        payer = task.scope.payer
        known = {*payer.budget.hard, *payer.budget.soft, "cpu", "ram", "vram"}
        return [name for name in task.demand if name not in known and not self.is_of_devices(payer, name)]

    def check_busy(self, scope: Scope, task: Task, newcomers: list[Task]) -> None:
        """S3: holders + READY >= slots. Whether that refuses is a setting of the task's own scope.

        S6: who takes no slot is not refused for the lack of one, and counts for no other task.
        """
        if task.slot and task.scope.limits.when_busy == "reject" and scope.limits.slots is not None:
            waiting = [other for other in self.ready + newcomers if other.slot and inside(other, scope)]
            ready = [other for other in waiting if is_or_will_be_ready(other)]
            if len(self.holders(scope)) + len(ready) >= scope.limits.slots:
                raise Refused("busy", task)

    def check_spawn(self, scope: Scope, task: Task, newcomers: list[Task]) -> None:
        """S4: the accepted ones of the scope's life."""
        accepted = scope.accepted + sum(inside(other, scope) for other in newcomers)
        if scope.limits.max_spawn is not None and accepted >= scope.limits.max_spawn:
            raise Refused("spawn_limit", task)

    def check_queue(self, task: Task, newcomers: list[Task], victims: list[Task], drafts: list[Task]) -> None:
        """D1, D2: a full limit refuses the newcomer or, as the newcomer's own scope sets it, finds a victim.

        If several are full, the victim is one that all of them count.
        """
        gone = self.with_descendants(victims)
        pending = [other for other in self.pending(self.root) + newcomers if other not in gone]
        full = [
            scope
            for scope in task.scope.path()
            if scope.limits.queue_limit is not None
            and sum(inside(other, scope) for other in pending) >= scope.limits.queue_limit
        ]
        if not full:
            return
        needed = all_dependencies([draft for draft in drafts if not is_doomed(draft, drafts)])
        candidates = [
            other
            for other in pending
            if all(inside(other, scope) for scope in full)
            and other.priority < task.priority
            and other not in newcomers
            and not any(each in needed for each in self.with_descendants([other]))
        ]
        if task.scope.limits.overflow != "displace" or not candidates:
            raise Refused("queue_full", task)
        victims.append(min(candidates, key=lambda other: (other.priority, -other.number)))

    def with_descendants(self, tasks: list[Task]) -> list[Task]:
        """D2: a victim's descendants go with it."""
        found = list(tasks)
        for task in found:
            found += [
                other
                for other in self.pending(self.root)
                if other not in found and task in [dependency.latest() for dependency in other.after]
            ]
        return found

    def accept(self, task: Task, drafts: list[Task]) -> None:
        """T3: Ref allocated, registered, QUEUED or READY; G1: or ended at once."""
        self.register(task)
        for scope in task.scope.path():
            scope.accepted += not is_doomed(task, drafts)  # D2
        if task.name is not None and task.periodic is None:
            task.scope.names[task.name] = task
        if task.let_through and met(task):
            self.emit("TASK_SUBMITTED", task.scope, task, state="READY", **described(task))
            self.enter(task)
            return
        self.emit("TASK_SUBMITTED", task.scope, task, state="QUEUED", **described(task))
        failed = [dependency.latest() for dependency in task.after if has_failed(dependency)]
        if failed:
            self.finish(
                task, "aborted", "dependency", frozenset().union(*(other.roots | {other.id} for other in failed))
            )
            self.aftermath([task])


def described(task: Task) -> dict[str, object]:
    """V3: what the event tells of a newcomer."""
    awaited = {
        field: unmet
        for field, others in (("after", task.after), ("after_ended", task.after_ended))
        if (unmet := [other.latest() for other in others if other.latest().outcome is None])
    }
    rest = ({"demand": task.demand} if task.demand else {}) | ({} if task.slot else {"slot": False})
    return {"priority": task.priority, **rest, **awaited}


def is_doomed(task: Task, drafts: list[Task]) -> bool:
    """D2, G1: it would end at once, because what it awaits has failed, or will by the same submission."""
    return any(has_failed(other) or (other in drafts and is_doomed(other, drafts)) for other in task.after)


def is_or_will_be_ready(task: Task) -> bool:
    """A newcomer of the same batch counts as READY if nothing will keep it QUEUED."""
    return task.state == "READY" or (task.number == 0 and met(task))


def all_dependencies(newcomers: list[Task]) -> list[Task]:
    """D2: what the newcomers depend on, through any number of steps, as far as it has not ended."""
    found: list[Task] = []
    reached = list(newcomers)
    for step in reached:
        for dependency in step.after + step.after_ended:
            other = dependency.latest()
            if other.outcome is None and other not in found:
                found.append(other)
                reached.append(other)
    return found
