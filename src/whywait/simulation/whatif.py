"""A recorded run as a workload: what if it had had another order, other slots, another budget?

Tasks come when they came and last as long as they lasted; which task waits for which is decided anew. What is not
known is said in the docs: code that submits in answer to a result would have done so at another time, and a task that
never ran lasts as long as the others did on average.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from whywait.kernel.events import RawEvent
from whywait.kernel.limits import Limits, Policy, Retry
from whywait.kernel.model import Scope, Submission, Task
from whywait.kernel.order import Aging
from whywait.kernel.state import Cause, Outcome
from whywait.observe.fold import Attempt, Fold
from whywait.observe.record import Played, Record
from whywait.simulation.virtual import LIMIT_OPS, LIMITS, SCOPE_OPS
from whywait.simulation.workload import ALWAYS, Op, TaskKind, Workload
from whywait.support.devices import GPU

_OPS: Final = ("cancel", "pause", "resume")


class _Run(Fold[Attempt]):
    """Follows a replayed run and keeps all attempts of each task."""

    def __init__(self) -> None:
        super().__init__(Attempt)
        self.tasks: dict[int, list[Attempt]] = {}  # number of the first attempt -> all
        self.first_of: dict[int, int] = {}  # number of any attempt -> that of the first

    def begun(self, attempt: Attempt) -> None:
        first = self.first_of[attempt.number] = self.first_of.get(attempt.of or 0, attempt.number)
        self.tasks.setdefault(first, []).append(attempt)


def workload_of(path: str | Path) -> Workload:
    """Return the workload of a recorded run; its times are in ns from the first submission."""
    record = Record(path)
    run = _Run()
    asked: dict[int, Submission] = {}  # by number, of the tasks that were submitted by a command
    names: dict[tuple[str, str], int] = {}
    awaited: dict[int, tuple[list[int], list[int]]] = {}
    ops: list[tuple[int, str, int]] = []
    other_ops: list[Op] = []
    scopes: dict[str, Scope] = {}
    raw: list[RawEvent] = []
    for played in record.play(raw.append):
        for event in raw:
            run.apply(event)
        raw.clear()
        if isinstance(played.result, Scope):
            scopes[played.result.key] = played.result
        for task, request in _submitted(played):
            asked[task.number] = request
            if task.name is not None:
                names[task.scope.key, task.name] = task.number
        for task, request in _submitted(played):
            after = [_number(each, request.scope.key, names) for each in request.after]
            awaited[task.number] = after, [_number(each, request.scope.key, names) for each in request.after_ended]
        if played.name in _OPS:
            ops.append((played.now, played.name, played.args[0].number))
        elif played.name in SCOPE_OPS:
            other_ops.append(Op(played.now, played.name, played.args[0].key))
        elif played.name in LIMIT_OPS:
            name, value = played.args
            other_ops.append(Op(played.now, played.name, name, value, soft=played.kwargs.get("soft", False)))
    return _Builder(record, run, scopes, asked, awaited, (ops, other_ops)).build()


class _Builder:
    """Puts a workload together."""

    def __init__(
        self,
        record: Record,
        run: _Run,
        scopes: dict[str, Scope],
        asked: dict[int, Submission],
        awaited: dict[int, tuple[list[int], list[int]]],
        ops: tuple[list[tuple[int, str, int]], list[Op]],
    ) -> None:
        self._record = record
        self._run = run
        self._scopes = scopes
        self._asked = asked
        self._awaited = awaited
        self._ops, self._other_ops = ops
        self._firsts = sorted(run.tasks)
        self._ids = self._choose_ids()
        stories = [each for attempts in run.tasks.values() for each in attempts]
        self._zero = min((each.submitted_ns for each in stories), default=0)
        lasted = [each.ran_ns for each in stories if each.ran_ns is not None and each.outcome == Outcome.SUCCESS]
        self._usual_ns = max(1, sum(lasted) // len(lasted)) if lasted else 1

    def build(self) -> Workload:
        workload = Workload({"tasks": []}, str(self._record.path))
        workload.name = self._record.path.stem
        workload.unit_ns = 1
        workload.config = self._config()
        workload.scopes = {key: _scope_fields(scope) for key, scope in self._scopes.items()}
        kinds: dict[TaskKind, int] = {}
        durations, kind_of = [], []
        for index, first in enumerate(self._firsts):
            attempts = self._run.tasks[first]
            each = tuple(map(self._duration_ns, attempts))
            durations.append(each[0])
            if len(each) > 1:
                workload.attempts[index] = each
            kind_of.append(kinds.setdefault(self._kind(first, attempts), len(kinds)))
            after, after_ended = self._awaited.get(first, ([], []))
            if after:
                workload.after[index] = self._names(after)
            if after_ended:
                workload.after_ended[index] = self._names(after_ended)
        workload.ids = tuple(self._ids[first] for first in self._firsts)
        workload.at_ms = tuple(self._run.tasks[first][0].submitted_ns - self._zero for first in self._firsts)
        workload.duration_ms, workload.kind_of = tuple(durations), tuple(kind_of)
        workload.kinds = list(kinds)
        workload.ops = self._make_ops()
        return workload

    def _choose_ids(self) -> dict[int, str]:
        """Return an id for each task that no other has; ids of a workload are global."""
        chosen: dict[int, str] = {}
        taken: set[str] = set()
        for first in self._firsts:
            story = self._run.tasks[first][0]
            named = not story.id.startswith("@")
            options = (story.id, f"{story.scope}/{story.id}", f"{story.id}~{first}") if named else (f"#{first}",)
            chosen[first] = next(option for option in options if option not in taken)
            taken.add(chosen[first])
        return chosen

    def _names(self, numbers: list[int]) -> tuple[str, ...]:
        return tuple(self._ids[self._run.first_of[number]] for number in numbers if number in self._run.first_of)

    def _duration_ns(self, story: Attempt) -> int:
        if story.started_ns is None:
            return self._usual_ns
        end = story.ended_ns if story.ended_ns is not None else self._run.now
        return max(1, (end or 0) - story.started_ns)

    def _kind(self, first: int, attempts: list[Attempt]) -> TaskKind:
        story, last = attempts[0], attempts[-1]
        failed = len(attempts) - 1
        fails = ALWAYS if last.outcome == Outcome.ERROR else failed
        request = self._asked.get(first)
        policy = request.policy if request is not None else None
        fields = {} if policy is None else _policy_fields(policy)
        if last.outcome == Outcome.ERROR:  # for good, maybe because such an error is not retried: so it is here
            retry = fields.get("retry")
            fields["retry"] = replace(retry, times=failed) if isinstance(retry, Retry) else failed
        return TaskKind(story.priority, story.scope or None, story.demand, tuple(fields.items()), fails, story.slot)

    def _make_ops(self) -> list[Op]:
        ops = [(at, do, self._run.first_of[number]) for at, do, number in self._ops if number in self._run.first_of]
        for first, attempts in self._run.tasks.items():
            last = attempts[-1]
            if last.cause == Cause.SCOPE_DISPOSED and last.ended_ns is not None:
                ops.append((last.ended_ns, "cancel", first))
        named = [Op(at, do, self._ids[first]) for at, do, first in ops]
        in_time = sorted((*named, *self._other_ops), key=lambda op: op.at_ms)
        timed = [op._replace(at_ms=op.at_ms - self._zero) for op in in_time]
        return [op if op.do in LIMIT_OPS else op._replace(at_ms=max(0, op.at_ms)) for op in timed]

    def _config(self) -> dict[str, Any]:
        settings = self._record.settings()
        limits, budget, order = settings["limits"], settings["budget"], settings["order"]
        config: dict[str, Any] = {
            **_limits_fields(limits),
            "backfill": settings["backfill"],
            "starvation_timeout_ns": settings["starvation_timeout_ns"],
            "order": "strict",
            "ties": order.ties,
            **_policy_fields(settings["policy"]),
        }
        if isinstance(order, Aging):
            config |= {"order": "aging", "every_ns": order.every_ns, "boost": order.boost, "cap": order.cap}
        hard, soft = dict(budget.hard), dict(budget.soft)
        config |= {"cpu": hard.pop("cpu", None), "vram": soft.pop("vram", None), "hard_ram": "ram" in hard}
        config["ram"] = hard.pop("ram", soft.pop("ram", None))
        kinds = {kind: dict(units) for kind, units in budget.devices.items()}
        return config | {"resources": hard, "soft": soft, "gpus": kinds.pop(GPU, None), "devices": kinds}


def _submitted(played: Played) -> list[tuple[Task, Submission]]:
    if played.name == "submit" and played.result is not None:
        return [(played.result, Submission(*played.args, **played.kwargs))]
    if played.name == "submit_many" and played.result is not None:
        return list(zip(played.result, played.args[0], strict=True))
    return []


def _number(dependency: Task | str, scope: str, names: dict[tuple[str, str], int]) -> int:
    if isinstance(dependency, Task):
        return dependency.number
    key, _, rest = dependency.rpartition("/")
    return names.get((scope, dependency)) or names.get((key, rest), 0)


def _scope_fields(scope: Scope) -> dict[str, Any]:
    parent = scope.parent
    return {
        **_limits_fields(scope.limits),
        "parent": parent.key or None if parent is not None else None,
        **_policy_fields(scope.policy),
    }


def _limits_fields(limits: Limits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in LIMITS}


def _policy_fields(policy: Policy) -> dict[str, Any]:
    return {"timeout_ns": policy.timeout_ns, "max_wait_ns": policy.max_wait_ns, "retry": policy.retry or 0}
