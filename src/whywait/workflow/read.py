"""From a document to a workflow: every table checked, matrices expanded, all problems told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from operator import attrgetter
from pathlib import Path as FilePath
from pathlib import PurePath
from typing import Any, Final

from whywait import options
from whywait.errors import ConfigError, Infeasible
from whywait.kernel.entering import check_demand
from whywait.kernel.limits import Budget, Demand
from whywait.kernel.pool import Pool
from whywait.options import BUDGET, DEFAULTS, PERIODIC, SCHEDULER, SCOPE, TASK, TOP, make_budget
from whywait.support.devices import AUTO, GPU
from whywait.support.forms import read_table
from whywait.support.lines import Path
from whywait.support.nesting import NestingError, parents_first, show_circle
from whywait.support.problems import Problems, unknown_name
from whywait.support.units import NS_PER_MS, shown
from whywait.workflow.callables import find_problem
from whywait.workflow.documents import Document, read_document
from whywait.workflow.expand import MOST, as_word, combinations, override, parse_override, substitute, text_in
from whywait.workflow.format import AWAY, TABLES, Plain, task_name
from whywait.workflow.shell_text import fill_in
from whywait.workflow.specs import Body, PeriodicSpec, ScopeSpec, TaskSpec, WorkflowSpec

Checked = dict[str, Any]

_COMMAND: Final = "command"
_RAW: Final = "raw"
_TAKEN: Final = "default"  # by every authority, for tasks that name no scope
_MANY: Final = 2_000  # names
_MOST_DEPENDENCIES: Final = 1_000_000
_MOST_TEXT: Final = 100_000_000  # characters in all tasks together, after {name} was replaced
_NO_TASKS: Final = "no tasks: expected at least one table [task.NAME]"
_NO_CARDS: Final = 'the budget has no graphics cards: expected gpus = "auto", or which there are'
_OF_RUNTIME: Final = {place: options.kept(place) for place in (TASK, PERIODIC, SCOPE)}


def load(file: str, overrides: Iterable[str] = ()) -> WorkflowSpec:
    """Read and check a workflow file; ``overrides`` are ``key=value`` texts that win over the file."""
    return read_workflow(read_document(file), map(parse_override, overrides))


def read_workflow(document: Document, overrides: Iterable[tuple[tuple[str, ...], Any]] = ()) -> WorkflowSpec:
    """Turn a document into a workflow; raise WorkflowError with everything that is wrong.

    ``overrides`` are the path of a field, or the name of a variable, and the value that it has instead.
    """
    for path, value in overrides:
        override(document.data, path, value)
    return _Reader(document).read()


class _Reader:
    """Reads one document; problems are collected on the way."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems = Problems(document.source, document.locate)
        self._add = self._problems.add
        self._attempt = self._problems.attempt
        self._top = self._table(TOP, document.data, ())
        self._variables: Mapping[str, Any] = self._top.get("vars", {})
        self._defaults = self._read_defaults(self._top.get("defaults", {}))
        self._tasks: dict[str, TaskSpec] = {}
        self._periodics: dict[str, PeriodicSpec] = {}
        self._scopes: dict[str, ScopeSpec] = {}
        self._by_name: dict[str, list[str]] = {}  # name of a table -> ids of its tasks
        self._functions: dict[str, str | None] = {}  # call -> what is wrong with it
        self._text = 0  # characters that replacing {name} has made
        self._dependencies = 0

    def read(self) -> WorkflowSpec:
        top = self._top
        budget = read_table(TABLES[BUDGET], top.get("budget", {}), ("budget",), self._add, _meant_as_resource)
        scheduler = self._table(SCHEDULER, top.get("scheduler", {}), ("scheduler",))
        self._read_scopes(top.get("scope", {}))
        for name, data in top.get("task", {}).items():
            self._read_task(name, data, ("task", name))
        for name, data in top.get("periodic", {}).items():
            self._read_periodic(name, data, ("periodic", name))
        if not self._tasks and not self._problems.found:
            self._add(("task",) if "task" in top else (), _NO_TASKS)
        self._chain(top.get("sequence", ()))
        self._resolve()
        self._check_demands(budget)
        try:
            in_order = tuple(_in_order(self._tasks))
        except CycleError as error:
            self._add_cycle(list(reversed(error.args[1]))[:-1])
        name = top.get("name") or _stem(self._document)
        if name in self._scopes:
            self._add(("scope", name), "the name is taken by the workflow itself: call the scope otherwise")
        self._problems.raise_if_any()
        history = top.get("history")
        return WorkflowSpec(
            name=name,
            source=self._document.source,
            folder=self._document.folder,
            tasks=in_order,
            periodics=tuple(self._periodics.values()),
            scopes=tuple(self._scopes.values()),
            on_error=top.get("on_error", "continue"),
            has_slots="slots" in top,
            slots=top.get("slots"),
            budget=budget,
            scheduler=scheduler,
            # a relative one is beside the workflow file
            history=None if history is None else str(self._document.folder / FilePath(history).expanduser()),
        )

    def _table(self, place: str, data: object, path: Path) -> Checked:
        """Read an object by its table; what is wrong is noted and left out."""
        return read_table(TABLES[place], data, path, self._add)

    def _read_defaults(self, defaults: dict[str, Any]) -> dict[str, Any]:
        """Check what can be checked without the values of a task; return what is known."""
        known = TABLES[DEFAULTS]
        plain = {key: value for key, value in defaults.items() if key not in known or "{" not in str(value)}
        self._table(DEFAULTS, plain, ("defaults",))
        return {key: value for key, value in defaults.items() if key in known}

    def _read_scopes(self, scopes: dict[str, Any]) -> None:
        read: dict[str, Checked] = {}
        for key, data in scopes.items():
            self._attempt(("scope", key), task_name, key)
            if key == _TAKEN:
                self._add(("scope", key), "the name is taken by the scope of tasks without one: use another")
            read[key] = self._table(SCOPE, data, ("scope", key))
        parents: dict[str, str | None] = {key: fields.pop("parent", None) for key, fields in read.items()}
        for key, parent in parents.items():
            if parent is not None and parent not in read:
                parents[key] = None
                self._add(("scope", key, "parent"), unknown_name(parent, "a scope of this file", read))
        order = list(parents)
        try:
            order = parents_first(parents)
        except NestingError as error:
            self._add(("scope", error.key, "parent"), str(error))
        self._scopes = {key: ScopeSpec(key, parents[key], read[key]) for key in order}

    def _read_task(self, name: str, data: Any, path: Path) -> None:  # noqa: ANN401 - whatever stands in a file
        self._attempt(path, task_name, name)
        ids = self._by_name[name] = []
        rows: Any = [(None, {})]
        if isinstance(data, dict) and "foreach" in data:
            data = dict(data)
            rows = self._attempt((*path, "foreach"), self._combinations, data.pop("foreach")) or ()
        for label, values in rows:
            ident = name if label is None else f"{name}:{label}"
            fields = self._read_body(TASK, data, values, path)
            after, after_ended = fields.pop("after", ()), fields.pop("after_ended", ())
            self._tasks[ident] = TaskSpec(id=ident, name=name, after=after, after_ended=after_ended, **fields)
            ids.append(ident)
        if len(self._tasks) > MOST:
            self._add(path, f"the file stands for more than {MOST:,} tasks: expected at most so many")
            self._problems.raise_if_any()

    def _combinations(self, foreach: object) -> list[tuple[str, dict[str, Any]]]:
        return list(combinations(TABLES[TASK]["foreach"].parse(substitute(foreach, self._variables))))

    def _read_periodic(self, name: str, data: Any, path: Path) -> None:  # noqa: ANN401 - whatever stands in a file
        self._attempt(path, task_name, name)
        if name in self._by_name:
            self._add(path, f"{shown(name)} is the name of a task too: expected another name")
        fields = self._read_body(PERIODIC, data, {}, path)
        if isinstance(data, dict) and "every" not in data:
            self._add(path, '"every" is missing: expected for example every = "500ms"')
        self._periodics[name] = PeriodicSpec(id=name, **fields)

    def _read_body(self, place: str, data: Any, values: dict[str, Any], path: Path) -> Checked:  # noqa: ANN401 - as above
        """Return what a task or a periodic is made with: what the table says, and below it the defaults."""
        own = data if isinstance(data, dict) else {}
        below = {key: value for key, value in self._defaults.items() if key in TABLES[place]}
        below = {key: value for key, value in below.items() if key not in own or key == "env"}
        if "run" in own or below.get("engine") == _COMMAND:
            below.pop("engine", None)
        names = {**self._variables, **values}
        is_raw = _RAW in (own.get("shell"), below.get("shell"))
        inherited = self._table(place, self._filled(below, names, ("defaults",), is_raw=is_raw), ("defaults",))
        fields = self._table(place, self._filled(data, names, path, is_raw=is_raw), path)
        if "env" in inherited:
            fields["env"] = {**inherited["env"], **fields.get("env", {})}
        fields = {**inherited, **fields}
        if isinstance(data, dict) and ("run" in own) == ("call" in own):
            told = "both run and call" if "run" in own else "neither run nor call"
            self._add(path, f'has {told}: expected run = "COMMAND" or call = "module:function"')
        scope = fields.get("scope")
        if scope is not None and scope not in self._scopes:
            message = unknown_name(scope, "a scope of this file", self._scopes)
            self._add((*path, "scope"), f"{message}{'' if self._scopes else f': expected [scope.{scope}]'}")
        duration_ns = fields.get("duration_ns")
        read: Checked = {
            "body": self._body(own, fields, path),
            "options": {key: value for key, value in fields.items() if key in _OF_RUNTIME[place]},
            "scope": scope,
            "duration_ms": None if duration_ns is None else max(1, round(duration_ns / NS_PER_MS)),
        }
        if place == TASK:
            read |= {key: fields[key] for key in ("after", "after_ended") if key in fields}
        return read

    def _filled(self, data: Any, names: Mapping[str, Any], path: Path, *, is_raw: bool) -> Any:  # noqa: ANN401 - as above
        """Return a table with ``{name}`` replaced; a value in which that cannot be done is noted and left out."""
        if not names or not isinstance(data, dict):
            return data
        filled = {}
        for key, value in data.items():
            fill = fill_in if key == "run" and isinstance(value, str) and not is_raw else substitute
            result = self._attempt((*path, key), fill, value, names)
            if result is None and value is not None:
                continue
            filled[key] = result
            if result is not value:
                self._text += text_in(result)
                if self._text > _MOST_TEXT:
                    message = f"with {{name}} replaced, the file stands for more than {_MOST_TEXT:,} characters"
                    self._add((*path, key), f"{message}: expected shorter values, or fewer tasks")
                    self._problems.raise_if_any()
        return filled

    def _body(self, own: Mapping[str, Any], fields: Checked, path: Path) -> Body:
        """Return the body of a task or a periodic; ``own`` is what its table says, without the defaults."""
        run, call, engine = fields.get("run"), fields.get("call"), fields.get("engine")
        args: tuple[Any, ...] = tuple(fields.get("args", ()))
        if run is not None:
            if engine not in (None, _COMMAND):
                self._add((*path, "engine"), f"{shown(engine)} cannot run a command: leave it out")
            if "kwargs" in fields:
                self._add((*path, "kwargs"), "a command takes no keyword arguments: use args")
            for each in args:
                if not isinstance(each, Plain):
                    self._add((*path, "args"), f"{shown(each)} is not allowed: expected strings or numbers")
            args = tuple(map(as_word, args))
        elif call is not None:
            self._check_call(own, call, engine, path)
        return Body(run, call, args, fields.get("kwargs", {}), fields.get("env", {}), fields.get("cwd"), engine)

    def _check_call(self, own: Mapping[str, Any], call: str, engine: str | None, path: Path) -> None:
        """Note a function that is not there, and what a function cannot have."""
        if engine == _COMMAND:
            self._add((*path, "engine"), '"command" cannot call a function: use thread or process')
        if "shell" in own:
            self._add((*path, "shell"), "a function has no shell: leave it out")
        for key, what in (("env", "an environment"), ("cwd", "a folder")):
            if key in own and engine not in AWAY:
                message = f'a function that shares the process cannot have {what} of its own: use engine = "process"'
                self._add((*path, key), message)
        if call not in self._functions:
            self._functions[call] = find_problem(call, self._document.folder)
        wrong = self._functions[call]
        if wrong is not None:
            self._add((*path, "call"), wrong)

    def _chain(self, sequence: Iterable[str]) -> None:
        """Let each task of the sequence follow the one before."""
        goes_on = self._top.get("failure_policy") == "continue_on_fail"
        if "failure_policy" in self._top and "sequence" not in self._top:
            self._add(("failure_policy",), "stands without a sequence: it says how a sequence goes on")
        previous: tuple[str, ...] = ()
        for index, name in enumerate(sequence):
            if name not in self._by_name and name not in self._tasks:
                message = unknown_name(name, "a task of this file", [*self._by_name, *self._tasks])
                self._add(("sequence", index), message)
                continue
            for ident in self._by_name.get(name, [name]):
                task = self._tasks[ident]
                if goes_on:
                    self._tasks[ident] = replace(task, after_ended=(*task.after_ended, *previous))
                else:
                    self._tasks[ident] = replace(task, after=(*task.after, *previous))
            previous = (name,)

    def _resolve(self) -> None:
        """Turn the names of dependencies into ids."""
        for ident, task in self._tasks.items():
            after, after_ended = self._ids(task, "after"), self._ids(task, "after_ended")
            if (after, after_ended) != (task.after, task.after_ended):
                self._tasks[ident] = replace(task, after=after, after_ended=after_ended)

    def _ids(self, task: TaskSpec, field: str) -> tuple[str, ...]:
        """Return the ids of the tasks that a task names; the name of a matrix stands for all its tasks."""
        where: Path = ("task", task.name, field)
        ids: dict[str, None] = {}
        for reference in getattr(task, field):
            if reference in self._by_name:
                ids.update(dict.fromkeys(self._by_name[reference]))
            elif reference in self._tasks:
                ids[reference] = None
            else:
                self._add(where, self._unknown(reference))
        self._dependencies += len(ids)
        if self._dependencies > _MOST_DEPENDENCIES:
            instead = "let one task come between, after all of the first and before all of the second"
            self._add(where, f"the file stands for more than {_MOST_DEPENDENCIES:,} dependencies: {instead}")
            self._problems.raise_if_any()
        return tuple(ids)

    def _add_cycle(self, around: list[str]) -> None:
        """Note a cycle, from its first task in file order."""
        rank = list(self._tasks).index
        first = around.index(min(around, key=rank))
        cycle = [*around[first:], *around[:first], around[first]]
        path = ("task", self._tasks[cycle[0]].name, "after")
        self._add(path, f"the tasks wait for each other in a cycle: {show_circle(cycle)}")

    def _unknown(self, reference: str) -> str:
        if reference in self._periodics:
            return f"{shown(reference)} is a periodic and never ends by itself: expected a task"
        known = [*self._by_name, *self._tasks]
        if len(known) > _MANY and self._problems.found:  # to compare with them all takes a moment: once is enough
            known = []
        return unknown_name(reference, "a task of this file", known)

    def _check_demands(self, budget: Checked) -> None:
        """Refuse what could never start, before anything has."""
        is_known = budget.get("gpus") != AUTO  # else which cards there are is known when it runs
        limits = self._attempt(("budget",), make_budget, budget if is_known else {**budget, "gpus": None})
        pool = Pool(limits or Budget(), "")
        possible: set[Demand] = set()
        for kind, specs in (("task", self._tasks), ("periodic", self._periodics)):
            for spec in specs.values():
                path = (kind, getattr(spec, "name", spec.id))
                demand = self._attempt(path, attrgetter("demand"), spec) or ()
                if not is_known:
                    demand = tuple(each for each in demand if each[0] not in (GPU, "vram"))
                if limits is None or demand in possible:
                    continue
                try:
                    check_demand(pool, demand, "it")
                    possible.add(demand)
                except Infeasible as error:
                    no_cards = GPU in dict(demand) and budget.get("gpus") is None
                    self._add(path, _NO_CARDS if no_cards else str(error))


def _in_order(tasks: dict[str, TaskSpec]) -> Iterable[TaskSpec]:
    """Yield tasks in file order, but none before what it needs."""
    rank = {ident: number for number, ident in enumerate(tasks)}
    sorter = TopologicalSorter({ident: task.needs for ident, task in tasks.items()})
    sorter.prepare()
    ready: list[tuple[int, str]] = []
    while sorter.is_active():
        for ident in sorter.get_ready():
            heappush(ready, (rank[ident], ident))
        _, first = heappop(ready)
        yield tasks[first]
        sorter.done(first)


def _meant_as_resource(key: str, value: object) -> str:
    return f"; a resource of your own goes into resources = {{ {key} = {value} }}" if isinstance(value, int) else ""


def _stem(document: Document) -> str:
    stem = PurePath(document.source).stem
    try:
        return task_name(stem)
    except ConfigError:
        return "workflow"
