"""From a document to a workflow: every table checked, matrices expanded, all problems told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path as FilePath
from pathlib import PurePath
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.devices import Devices
from whywait.kernel.limits import make_demand
from whywait.kernel.state import RESERVED_NAMES
from whywait.support.devices import GPU
from whywait.support.fields import nearest, unknown_name
from whywait.support.learned import Learned
from whywait.support.lines import Path
from whywait.support.nesting import NestingError, parents_first
from whywait.support.units import shown
from whywait.workflow import format as tables
from whywait.workflow.callables import find_problem
from whywait.workflow.cycles import find_cycles
from whywait.workflow.documents import Document, read_document
from whywait.workflow.expand import MOST, as_word, combinations, override, parse_override, substitute, text_in
from whywait.workflow.format import Fields
from whywait.workflow.model import Body, PeriodicSpec, ScopeSpec, TaskSpec, WorkflowSpec
from whywait.workflow.problems import Problems
from whywait.workflow.shell_text import fill_in

Checked = dict[str, Any]

_POLICY: Final = {"timeout": "timeout_ns", "retry": "retry", "max_wait": "max_wait_ns"}
_SCOPE_LIMITS: Final = ("slots", "max_spawn", "queue_limit", "overflow", "when_busy", "when_blocked")
_COMMAND: Final = "command"
_RAW: Final = "raw"
_TAKEN: Final = "default"  # by every authority, for tasks that name no scope
_MANY: Final = 2_000  # names
_WELL_KNOWN: Final = ("cpu", "ram", "vram")
_CYCLE: Final = 12  # tasks of a cycle that are named
_MOST_DEPENDENCIES: Final = 1_000_000
_MOST_TEXT: Final = 100_000_000  # characters in all tasks together, after {name} was replaced


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
        self._top: Checked = {}
        self._variables: Mapping[str, Any] = {}
        self._tasks: dict[str, TaskSpec] = {}
        self._periodics: dict[str, PeriodicSpec] = {}
        self._scopes: dict[str, ScopeSpec] = {}
        self._by_name: dict[str, list[str]] = {}  # name of a table -> ids of its tasks
        self._paths: dict[str, Path] = {}  # id -> where it stands
        self._functions: dict[str, str | None] = {}  # call -> what is wrong with it
        self._text = 0  # characters that replacing {name} has made

    def read(self) -> WorkflowSpec:
        self._top = self._fields(tables.TOP, self._document.data, ())
        self._variables = self._top.get("vars") or {}
        budget = self._fields(tables.BUDGET, self._top.get("budget", {}), ("budget",))
        self._check_budget(budget)
        scheduler = self._fields(tables.SCHEDULER, self._top.get("scheduler", {}), ("scheduler",))
        self._read_scopes(self._top.get("scope") or {})
        defaults = self._read_defaults(self._top.get("defaults") or {})
        self._read_tasks(self._top.get("task") or {}, defaults)
        self._read_periodics(self._top.get("periodic") or {}, defaults)
        if not self._top.get("task") and "task" not in self._document.data:
            self._problems.add((), "no tasks: expected at least one table [task.NAME]")
        elif not self._tasks and not self._problems.noted:
            self._problems.add(("task",), "no tasks: expected at least one table [task.NAME]")
        self._chain(self._top.get("sequence") or ())
        self._resolve()
        self._check_demands(budget)
        cycles = find_cycles({task.id: task.needs for task in self._tasks.values()})
        for cycle in cycles:
            left_out = len(cycle) - _CYCLE
            told = " -> ".join(cycle if left_out <= 1 else [*cycle[: _CYCLE - 2], f"({left_out} more)", *cycle[-2:]])
            self._problems.add((*self._paths[cycle[0]], "after"), f"the tasks wait for each other in a cycle: {told}")
        self._problems.raise_if_any()
        name = self._top.get("name") or _stem(self._document)
        if name in self._scopes:
            self._problems.add(("scope", name), "the name is taken by the workflow itself: call the scope otherwise")
            self._problems.raise_if_any()
        return WorkflowSpec(
            name=name,
            source=self._document.source,
            folder=self._document.folder,
            tasks=tuple(_in_order(self._tasks)),
            periodics=tuple(self._periodics.values()),
            scopes=tuple(self._scopes.values()),
            on_error=self._top.get("on_error", "continue"),
            has_slots="slots" in self._top,
            slots=self._top.get("slots"),
            budget=budget,
            scheduler=scheduler,
            history=self._history(),
        )

    def _fields(self, table: Fields, data: object, path: Path, origins: Mapping[str, Path] | None = None) -> Checked:
        """Check an object against its table; what is wrong is noted and left out."""
        if not isinstance(data, dict):
            some = ", ".join(list(table)[:3])
            self._problems.add(path, f"{shown(data)} is not a table with keys such as {some}")
            return {}
        checked: Checked = {}
        for key, value in data.items():
            entry = table.get(key)
            where = (*(origins or {}).get(key, path), key)
            if entry is None:
                self._problems.add(where, f"unknown key{_hint(key, value, table, path)}")
                continue
            before = self._problems.noted
            result = self._problems.check(where, entry.check, value)
            if self._problems.noted == before:
                checked[key] = result
        return checked

    def _read_scopes(self, scopes: dict[str, Any]) -> None:
        read: dict[str, Checked] = {}
        for key, data in scopes.items():
            self._problems.check(("scope", key), tables.task_name, key)
            if key == _TAKEN:
                self._problems.add(("scope", key), "the name is taken by the scope of tasks without one: use another")
            read[key] = self._fields(tables.SCOPE, data, ("scope", key))
        parents: dict[str, str | None] = {}
        for key, fields in read.items():
            parent = parents[key] = fields.get("parent")
            if parent is not None and parent not in read:
                parents[key] = None
                self._problems.add(("scope", key, "parent"), unknown_name(parent, "a scope of this file", read))
        order = list(parents)
        try:
            order = parents_first(parents)
        except NestingError as error:
            self._problems.add(("scope", error.key, "parent"), str(error))
        self._scopes = {key: _make_scope(key, read[key]) for key in order}

    def _read_defaults(self, defaults: dict[str, Any]) -> dict[str, Any]:
        """Check what can be checked without the values of a task; return what is known."""
        plain = {key: value for key, value in defaults.items() if key not in tables.DEFAULTS or "{" not in str(value)}
        self._fields(tables.DEFAULTS, plain, ("defaults",))
        return {key: value for key, value in defaults.items() if key in tables.DEFAULTS}

    def _read_tasks(self, tasks: dict[str, Any], defaults: dict[str, Any]) -> None:
        if len(tasks) > MOST:
            self._problems.add(("task",), f"there are {len(tasks):,} tasks: expected at most {MOST:,}")
            self._problems.raise_if_any()
        for name, data in tasks.items():
            path: Path = ("task", name)
            self._problems.check(path, tables.task_name, name)
            self._by_name[name] = []
            if not isinstance(data, dict):
                self._problems.add(path, f"{shown(data)} is not a table with keys such as run, call, after")
                continue
            own = {key: value for key, value in data.items() if key != "foreach"}
            for label, values in self._combinations(data, path):
                ident = name if label is None else f"{name}:{label}"
                fields = self._one(tables.TASK, own, defaults, values, path)
                body = self._body(fields, path)
                self._tasks[ident] = TaskSpec(
                    id=ident,
                    name=name,
                    body=body,
                    after=fields.get("after", ()),
                    after_ended=fields.get("after_ended", ()),
                    priority=fields.get("priority", 50),
                    **self._asked(fields, path),
                    scope=self._scope(fields, path),
                    policy={_POLICY[key]: fields[key] for key in _POLICY if key in fields},
                    slot=fields.get("slot", True),
                    duration_ms=fields.get("duration"),
                )
                self._by_name[name].append(ident)
                self._paths[ident] = path
            if len(self._tasks) > MOST:
                self._problems.add(path, f"the file stands for more than {MOST:,} tasks: expected at most so many")
                self._problems.raise_if_any()

    def _combinations(self, data: dict[str, Any], path: Path) -> Iterable[tuple[str | None, dict[str, Any]]]:
        if "foreach" not in data:
            return [(None, {})]
        where = (*path, "foreach")
        before = self._problems.noted
        foreach = self._problems.check(where, self._substituted_foreach, data["foreach"])
        if self._problems.noted > before:
            return []
        return self._problems.check(where, lambda value: list(combinations(value)), foreach) or []

    def _substituted_foreach(self, raw: object) -> Any:  # noqa: ANN401  what the check keeps
        return tables.TASK["foreach"].check(substitute(raw, self._variables))

    def _one(
        self, table: Fields, data: dict[str, Any], defaults: dict[str, Any], values: dict[str, Any], path: Path
    ) -> Checked:
        """Check one task of a matrix, with the defaults below it; what is wrong is noted and left out."""
        merged = {key: value for key, value in defaults.items() if key in table}
        origins: dict[str, Path] = {key: ("defaults",) for key in merged if key not in data}
        merged |= data
        if isinstance(defaults.get("env"), dict) and isinstance(data.get("env"), dict):
            merged["env"] = {**defaults["env"], **data["env"]}
        if "call" in data and "engine" in origins and merged["engine"] == _COMMAND:
            del merged["engine"]
        if "run" in data and "engine" in origins:
            del merged["engine"]
        names = {**self._variables, **values}
        if names:
            is_raw = merged.get("shell") == _RAW
            for key, value in list(merged.items()):
                before = self._problems.noted
                where = (*origins.get(key, path), key)
                fill = fill_in if key == "run" and isinstance(value, str) and not is_raw else substitute
                result = self._problems.check(where, partial(fill, names=names), value)
                if self._problems.noted > before:
                    del merged[key]
                    continue
                merged[key] = result
                if result is not value:
                    self._text += text_in(result)
                    if self._text > _MOST_TEXT:
                        message = f"with {{name}} replaced, the file stands for more than {_MOST_TEXT:,} characters"
                        self._problems.add(where, f"{message}: expected shorter values, or fewer tasks")
                        self._problems.raise_if_any()
        return self._fields(table, merged, path, origins)

    def _body(self, fields: Checked, path: Path) -> Body:
        run, call = fields.get("run"), fields.get("call")
        given = sum(self._says(path, key) for key in ("run", "call"))
        if given != 1:
            told = "both run and call" if given else "neither run nor call"
            self._problems.add(path, f'has {told}: expected run = "COMMAND" or call = "module:function"')
        engine = fields.get("engine")
        if run is not None:
            if engine not in (None, _COMMAND):
                self._problems.add((*path, "engine"), f"{shown(engine)} cannot run a command: leave it out")
            if "kwargs" in fields:
                self._problems.add((*path, "kwargs"), "a command takes no keyword arguments: use args")
            wrong = [each for each in fields.get("args", ()) if not isinstance(each, tables.Plain)]
            if wrong:
                self._problems.add((*path, "args"), f"{shown(wrong[0])} is not allowed: expected strings or numbers")
        elif call is not None:
            self._check_call(fields, engine, path)
            self._check_function(call, path)
        args = tuple(fields.get("args", ()))
        return Body(
            run=run,
            call=call,
            args=tuple(as_word(each) for each in args) if run is not None else args,
            kwargs=fields.get("kwargs", {}),
            env=fields.get("env", {}),
            cwd=fields.get("cwd"),
            engine=engine,
        )

    def _check_call(self, fields: Checked, engine: str | None, path: Path) -> None:
        """Note what a function cannot have."""
        if engine == _COMMAND:
            self._problems.add((*path, "engine"), '"command" cannot call a function: use thread or process')
        if self._says(path, "shell"):
            self._problems.add((*path, "shell"), "a function has no shell: leave it out")
        for key, what in (("env", "an environment"), ("cwd", "a folder")):
            if key in fields and engine not in tables.AWAY and self._says(path, key):
                message = f'a function that shares the process cannot have {what} of its own: use engine = "process"'
                self._problems.add((*path, key), message)

    def _says(self, path: Path, key: str) -> bool:
        """Return whether a table itself has a key, rather than the defaults."""
        table = self._document.data[str(path[0])][path[1]]
        return key in table

    def _check_function(self, call: Any, path: Path) -> None:  # noqa: ANN401  a checked name
        if call not in self._functions:
            self._functions[call] = find_problem(call, self._document.folder)
        wrong = self._functions[call]
        if wrong is not None:
            self._problems.add((*path, "call"), wrong)

    def _scope(self, fields: Checked, path: Path) -> str | None:
        scope: str | None = fields.get("scope")
        if scope is not None and scope not in self._scopes:
            message = unknown_name(scope, "a scope of this file", self._scopes)
            self._problems.add((*path, "scope"), f"{message}{'' if self._scopes else f': expected [scope.{scope}]'}")
        return scope

    def _read_periodics(self, periodics: dict[str, Any], defaults: dict[str, Any]) -> None:
        for name, data in periodics.items():
            path: Path = ("periodic", name)
            self._problems.check(path, tables.task_name, name)
            if not isinstance(data, dict):
                self._problems.add(path, f"{shown(data)} is not a table with keys such as run, call, every")
                continue
            if name in self._by_name:
                self._problems.add(path, f"{shown(name)} is the name of a task too: expected another name")
            fields = self._one(tables.PERIODIC, data, defaults, {}, path)
            body = self._body(fields, path)
            if "every" not in data:
                self._problems.add(path, '"every" is missing: expected for example every = "500ms"')
            elif "every" in fields:
                own = (
                    "overlap", "max_parallel", "jitter", "enabled", "immediately", "disable_after", "priority", "slot",
                )  # fmt: skip
                self._periodics[name] = PeriodicSpec(
                    id=name,
                    body=body,
                    every_ns=fields["every"],
                    **self._asked(fields, path),
                    scope=self._scope(fields, path),
                    timeout_ns=fields.get("timeout"),
                    duration_ms=fields.get("duration"),
                    **{key: fields[key] for key in own if key in fields},
                )
                self._paths[name] = path

    def _chain(self, sequence: Iterable[str]) -> None:
        """Let each task of the sequence follow the one before."""
        field = "after_ended" if self._top.get("failure_policy") == "continue_on_fail" else "after"
        if "failure_policy" in self._top and "sequence" not in self._top:
            self._problems.add(("failure_policy",), "stands without a sequence: it says how a sequence goes on")
        previous: str | None = None
        for index, name in enumerate(sequence):
            if name not in self._by_name and name not in self._tasks:
                message = unknown_name(name, "a task of this file", [*self._by_name, *self._tasks])
                self._problems.add(("sequence", index), message)
                continue
            if previous is not None:
                for ident in self._by_name.get(name, [name]):
                    task = self._tasks[ident]
                    chained = {"after": task.after, "after_ended": task.after_ended}
                    chained[field] = (*chained[field], previous)
                    self._tasks[ident] = replace(task, after=chained["after"], after_ended=chained["after_ended"])
            previous = name

    def _resolve(self) -> None:
        """Turn the names of dependencies into ids; the name of a matrix stands for all its tasks."""
        count = 0
        for ident, task in list(self._tasks.items()):
            found: dict[str, tuple[str, ...]] = {}
            for field in ("after", "after_ended"):
                ids: dict[str, None] = {}
                for reference in getattr(task, field):
                    if reference in self._by_name:
                        ids.update(dict.fromkeys(self._by_name[reference]))
                    elif reference in self._tasks:
                        ids[reference] = None
                    else:
                        self._unknown(reference, (*self._paths[ident], field))
                found[field] = tuple(ids)
                count += len(ids)
                if count > _MOST_DEPENDENCIES:
                    instead = "let one task come between, after all of the first and before all of the second"
                    message = f"the file stands for more than {_MOST_DEPENDENCIES:,} dependencies: {instead}"
                    self._problems.add((*self._paths[ident], field), message)
                    self._problems.raise_if_any()
            if found["after"] != task.after or found["after_ended"] != task.after_ended:
                self._tasks[ident] = replace(task, after=found["after"], after_ended=found["after_ended"])

    def _unknown(self, reference: str, where: Path) -> None:
        if reference in self._periodics:
            self._problems.add(where, f"{shown(reference)} is a periodic and never ends by itself: expected a task")
        else:
            known = [*self._by_name, *self._tasks]
            if len(known) > _MANY and self._problems.noted:  # to compare with them all takes a moment: once is enough
                known = []
            self._problems.add(where, unknown_name(reference, "a task of this file", known))

    def _check_budget(self, budget: Checked) -> None:
        hard, soft = budget.get("resources") or {}, budget.get("soft") or {}
        for name in (*hard, *soft):
            table = "resources" if name in hard else "soft"
            if name in RESERVED_NAMES:
                self._problems.add(("budget", table, name), "the name is taken by a wait cause: expected another")
            if name in hard and name in soft:
                self._problems.add(("budget", "soft", name), "is both hard and soft: expected one of them")
            if name in (budget.get("devices") or {}) or (name == GPU and budget.get("gpus") is not None):
                self._problems.add(("budget", table, name), "is a device too: expected one of them")
        for kind in budget.get("devices") or {}:
            if kind in RESERVED_NAMES or kind in _WELL_KNOWN:
                self._problems.add(("budget", "devices", kind), "the name is taken: expected another")
        if budget.get("gpus") is not None and budget.get("vram") is not None:
            self._problems.add(("budget", "vram"), "is the memory of the gpus: expected it there")

    def _check_demands(self, budget: Checked) -> None:
        """Refuse what could never start, before anything has."""
        named = {**(budget.get("resources") or {}), **(budget.get("soft") or {})}
        kinds = {kind: Devices(kind, dict.fromkeys(units, 0)) for kind, units in (budget.get("devices") or {}).items()}
        if isinstance(budget.get("gpus"), dict):
            kinds[GPU] = Devices(GPU, budget["gpus"])
        known = {*_WELL_KNOWN, *named, *kinds, *([GPU] if budget.get("gpus") is not None else [])}
        hard = {"cpu": budget.get("cpu"), **(budget.get("resources") or {})}
        specs: list[TaskSpec | PeriodicSpec] = [*self._tasks.values(), *self._periodics.values()]
        for spec in specs:
            path = self._paths[spec.id]
            for name, amount in spec.demand:
                if name not in known:
                    self._problems.add(*self._unknown_demand(path, name, named, kinds))
                limit = hard.get(name)
                if limit is not None and amount > limit:
                    where = (*path, name) if name == "cpu" else (*path, "resources", name)
                    self._problems.add(where, f"needs {amount} and the budget has {limit}: it could never start")
            for devices in kinds.values():
                lack = devices.lack(spec.demand)
                if lack is not None:
                    self._problems.add(path, f"needs {lack}: it could never start")

    def _unknown_demand(
        self, path: Path, name: str, named: Mapping[str, int], kinds: Mapping[str, Devices]
    ) -> tuple[Path, str]:
        """Return where a task demands something that the budget has not, and what is wrong with that."""
        if name == GPU and self._says(path, GPU):
            return (*path, GPU), 'the budget has no graphics cards: expected gpus = "auto", or which there are'
        if self._says(path, "devices"):
            return (*path, "devices", name), unknown_name(name, "a device of [budget]", kinds)
        return (*path, "resources", name), unknown_name(name, "a resource of [budget]", named)

    def _asked(self, fields: Checked, path: Path) -> dict[str, Any]:
        """Return what a task asks for: amounts, and whether the history gives another."""
        wanted = {key: fields[key] for key in tables.DEMAND if key in fields}
        learned = wanted.pop("ram") if isinstance(wanted.get("ram"), Learned) else None
        demand = self._problems.check(path, lambda given: make_demand(**given), wanted) or ()
        return {"demand": demand, "learned": learned}

    def _history(self) -> str | None:
        """Return the file of the history in full; a relative one is beside the workflow file."""
        given = self._top.get("history")
        return None if given is None else str(self._document.folder / FilePath(given).expanduser())


def _make_scope(key: str, fields: Checked) -> ScopeSpec:
    return ScopeSpec(
        key=key,
        parent=fields.get("parent"),
        on_error=fields.get("on_error", "continue"),
        limits={name: fields[name] for name in _SCOPE_LIMITS if name in fields},
        policy={_POLICY[name]: fields[name] for name in _POLICY if name in fields},
        grace_ns=fields.get("grace"),
    )


def _hint(key: str, value: object, table: Fields, path: Path) -> str:
    if path == ("budget",) and isinstance(value, int) and not nearest(key, table):
        return f"; a resource of your own goes into resources = {{ {key} = {value} }}"
    return nearest(key, table) or f"; known are {', '.join(each for each in table if each != '$schema')}"


def _in_order(tasks: dict[str, TaskSpec]) -> Iterable[TaskSpec]:
    """Yield tasks in file order, but none before what it needs."""
    rank = {ident: number for number, ident in enumerate(tasks)}
    left = {ident: len(task.needs) for ident, task in tasks.items()}
    followers: dict[str, list[str]] = {}
    for ident, task in tasks.items():
        for needed in task.needs:
            followers.setdefault(needed, []).append(ident)
    ready = [(rank[ident], ident) for ident, count in left.items() if not count]
    heapify(ready)
    while ready:
        _, ident = heappop(ready)
        yield tasks[ident]
        for follower in followers.get(ident, ()):
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, (rank[follower], follower))


def _stem(document: Document) -> str:
    stem = PurePath(document.source).stem
    try:
        return tables.task_name(stem)
    except ConfigError:
        return "workflow"
