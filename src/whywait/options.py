"""The table of options: name, form of the value, help, places where it is allowed, default, environment variable.

One row makes an option known to ``Authority``, ``Settings``, scopes, tasks and periodics, to the environment, to
``Simulation``, to workflow files (with the schema and the page of keys), to workloads, and to the jobs and leases of
the machine. The types that editors and type checkers see are written from it into ``runtime/option_types.py``, and the
first table of ``docs/settings.md``, by ``make docs``. What only one kind of file has (``run``, ``at_ms``) stands with
the reader of that file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from whywait.errors import ConfigError
from whywait.kernel.durations import NS, parse_duration_ns
from whywait.kernel.limits import (
    HIGHEST,
    LOWEST,
    WELL_KNOWN,
    Backfill,
    Budget,
    Limits,
    OnError,
    Overdraft,
    Overflow,
    Priority,
    Retry,
    WhenBlocked,
    WhenBusy,
    check_units,
)
from whywait.kernel.order import Aging, Order, Strict, Ties
from whywait.kernel.periodic import Overlap
from whywait.support.devices import AUTO, GPU, MOST_UNITS, parse_devices, parse_gpus
from whywait.support.forms import (
    FLAG,
    OBJECT,
    Dialect,
    Form,
    Option,
    Schema,
    Table,
    make_table,
    number,
    one_of,
    optional,
    read_table,
    refused,
    table_of,
    whole,
)
from whywait.support.learned import Learned, as_learned
from whywait.support.memory import automatic_ram
from whywait.support.problems import nearest, show_path
from whywait.support.units import NS_PER_MS, parse_size, parse_written_size, shown

if TYPE_CHECKING:
    from whywait.support.lines import Path

Size = int | str
OrderName = Literal["aging", "strict"]
Gpus = int | str | Sequence[Size] | Mapping[str, Size | None]

# Tables of a workflow file.
TOP: Final = "top"
TASK: Final = "task"
PERIODIC: Final = "periodic"
DEFAULTS: Final = "defaults"
SCOPE: Final = "scope"
SCHEDULER: Final = "scheduler"
BUDGET: Final = "budget"
RETRY: Final = "retry"
# Objects of a workload, which a program may have written.
CONFIG: Final = "config"
LOAD_TASK: Final = "task of a workload"
LOAD_PERIODIC: Final = "periodic of a workload"
LOAD_SCOPE: Final = "scope of a workload"
DEMAND: Final = ("cpu", "ram", "vram", "resources", "gpu", "devices")  # what `make_demand` takes
# Keywords of a program.
SIMULATION: Final = "simulation"
AUTHORITY: Final = "authority"
RESIZE: Final = "resize"
NEW_SCOPE: Final = "scope of a program"
SUBMIT: Final = "submit"
REPEAT: Final = "periodic of a program"
# What the service of the machine is asked for.
JOB: Final = "job"
LEASE: Final = "lease"

_IN_MS: Final = (CONFIG, LOAD_TASK, LOAD_PERIODIC, LOAD_SCOPE)
_IN_PROGRAMS: Final = (SIMULATION, AUTHORITY, RESIZE, NEW_SCOPE, SUBMIT, REPEAT)
_LOADS: Final = (LOAD_TASK, LOAD_PERIODIC)
_TASKS: Final = (TASK, DEFAULTS, LOAD_TASK, SUBMIT, REPEAT, JOB)
_DEMANDS: Final = (*_TASKS, PERIODIC, LOAD_PERIODIC, LEASE)
_PERIODICS: Final = (PERIODIC, LOAD_PERIODIC, REPEAT)
_RUNS: Final = (SCHEDULER, SIMULATION, AUTHORITY)  # what holds for a whole run
_OF_ALL: Final = (*_RUNS, CONFIG)
_SCOPES: Final = (SCOPE, LOAD_SCOPE, NEW_SCOPE)
_LIMITED: Final = (BUDGET, CONFIG, SIMULATION)
_GOVERNED: Final = (AUTHORITY, RESIZE)

_MOST: Final = 1_000_000  # slots, processors, retries
PRIORITIES: Final = tuple(word.lower() for word in vars(Priority) if word.isupper())
PLACEHOLDER: Final[Schema] = {"type": "string", "pattern": r"\{"}  # "{item}" may stand for a number too


def _duration(least_ms: int, least_ns: int, expected: str) -> Form:
    def parse(value: object) -> int:
        ns = parse_duration_ns(value)
        if ns < least_ns:
            raise refused(value, expected)
        return ns

    written = {"type": "string", "pattern": r"\d\s*(ns|us|µs|μs|ms|s|m|h|d)|\{"}
    schema: Schema = {"anyOf": [{"type": "number", "minimum": 0}, written]}
    return Form(parse, schema, parse_duration_ns, least_ms, "Seconds", "float")


def _priority(value: Any) -> int:  # noqa: ANN401 - whatever stands in a file
    try:
        return Priority.parse(value)
    except ValueError:
        expected = f"an int from {LOWEST} to {HIGHEST} or one of {', '.join(PRIORITIES)}"
        raise ConfigError(f"{refused(value, expected)}{nearest(value, PRIORITIES)}") from None


def _ram_asked(value: object) -> int | Learned:
    learned = as_learned(value)
    return parse_written_size(value) if learned is None else learned


def _limit_or_auto(parse: Callable[[object], int]) -> Callable[[object], int]:
    return lambda value: automatic_ram() if value == AUTO else parse(value)


def _order(value: object) -> Order | str:
    if isinstance(value, Strict | Aging) or value in get_args(OrderName):
        return value  # type: ignore[return-value] # the name of one
    raise ConfigError(f'{shown(value)} is not an order: expected Strict(...), Aging(...), "strict" or "aging"')


def _path(value: object) -> str:
    """Return a path in full, from the folder that this is asked in; ``~`` is the user's."""
    if not isinstance(value, str | os.PathLike) or not (text := os.fspath(value)) or "\0" in text:
        raise refused(value, "the path of a file")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - no symlink is followed, nothing loaded


def _gpus_or_auto(value: object) -> str | dict[str, int]:
    if isinstance(value, str) and value != AUTO:
        raise refused(value, "'auto', an int, a list of sizes or a dict")
    return AUTO if value == AUTO else parse_gpus(value)


def _gpus(value: object) -> str | dict[str, int]:
    if value == AUTO:
        return AUTO
    units = parse_gpus(value)
    check_units(GPU, units)
    sizes = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for size in sizes:
        if size is not None:
            parse_written_size(size)
    return units


def _devices(value: object) -> dict[str, list[str]]:
    kinds = parse_devices(value)
    for kind, units in kinds.items():
        check_units(kind, units)
    return {kind: list(units) for kind, units in kinds.items()}


def _exit_codes(value: object) -> tuple[int, ...]:
    return tuple(_EXIT_CODE.parse(code) for code in (value if isinstance(value, list) else [value]))


def _refuse_inside(path: Path, message: str) -> None:
    raise ConfigError(f"{show_path(path)}: {message}" if path else message)


def _retry(value: object) -> Retry:
    if not isinstance(value, dict):
        return Retry(whole(0, _MOST).parse(value))
    if "times" not in value:
        raise ConfigError('"times" is missing: expected for example { times = 3, backoff = "1s" }')
    fields = read_table(_RETRY_TABLE, value, (), _refuse_inside)
    return Retry(**in_seconds(fields))


def _retry_of_program(value: object) -> Retry | int | None:
    return value if value is None or isinstance(value, Retry) else whole(0).parse(value)


DURATION: Final = _duration(0, 0, "")
POSITIVE: Final = _duration(1, 1, "a duration above 0")
_COUNT: Final = optional(whole(0))
_SLOTS: Final = optional(whole(1, _MOST))
_SIZE: Final = Form(
    parse_written_size,
    {"anyOf": [{"const": 0}, {"type": "string", "pattern": r"^\s*(0\s*$|\d.*[bB]\s*$)|\{"}]},
    parse_size,
    hint="Size",
    gives="int",
)
_EXIT_CODE: Final = whole(1, 255)
_AMOUNTS: Final = table_of(
    Form(parse_size, {"anyOf": [whole(0).schema, {"type": "string", "pattern": r"^\s*\d|\{"}]}),
    'amounts by name, such as {"licence": 2}',
    WELL_KNOWN,
)._replace(hint="Mapping[str, Size] | None", gives="dict[str, int]")
_UNITS: Final = table_of(whole(0, MOST_UNITS), 'numbers by kind, such as {"rig": 1}', (*WELL_KNOWN, GPU))._replace(
    hint="Mapping[str, int] | None"
)
_KINDS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"not": {"enum": [*WELL_KNOWN, GPU]}, "pattern": "^[A-Za-z][A-Za-z0-9_-]*$"},
    "additionalProperties": {
        "anyOf": [
            whole(0, MOST_UNITS).schema,
            {"type": "array", "items": {"type": "string", "pattern": "^[^,]+$"}},
        ]
    },
}
_CARDS: Final[Schema] = {
    "anyOf": [
        {"const": AUTO},
        whole(0, MOST_UNITS).schema,
        {"type": "array", "items": _SIZE.schema},
        {"type": "object", "additionalProperties": optional(_SIZE).schema},
    ]
}
_FACTORS: Final[Schema] = {"type": "object", "additionalProperties": number(1, 1000).schema}
_RETRY: Final = Form(
    _retry, {"anyOf": [whole(0, _MOST).schema, {"$ref": "#/$defs/retry"}]}, _retry_of_program,
    hint="int | Retry | None", gives="Retry | None",
)  # fmt: skip


def _any(hint: str, gives: str = "") -> Form:
    """Return the form of what only a program gives, and what is looked at where it is used."""
    return Form(lambda value: value, {}, hint=hint, gives=gives)


_GIVEN_IDS: Final = _any("Iterable[Any]")  # handles, refs or ids
_ENGINE: Final = _any("EngineName | Engine | None", "EngineName | Engine")


def _or_placeholder(form: Form) -> Form:
    return form._replace(schema={"anyOf": [form.schema, PLACEHOLDER]})


def _words(name: str, words: Any, places: tuple[str, ...], about: str = "") -> Option:  # noqa: ANN401 - a Literal
    """Return the row of an option that is one of a closed set of words; the first is the default."""
    chosen = get_args(words) or words
    return Option(name, one_of(*chosen), about or f"one of {', '.join(chosen)}", places, chosen[0])


OPTIONS: Final = (
    Option("id", _any("str | None"), "its name; without one it is numbered", (SUBMIT, JOB)),
    Option("kwargs", _any("Mapping[str, Any] | None"), "keyword arguments of the function itself", (SUBMIT, REPEAT)),
    Option("after", _GIVEN_IDS, "tasks that must have succeeded before", (SUBMIT, JOB, LEASE)),
    Option("after_ended", _GIVEN_IDS, "tasks that must have ended before, however they did", (SUBMIT, JOB)),
    Option("cancel_with_awaiter", FLAG, "whether cancelling a coroutine that awaits it cancels it too", (SUBMIT,)),
    Option("scope", _any("str"), "the scope of the machine that it goes to", (JOB, LEASE)),
    Option(
        "priority",
        Form(
            _priority,
            {"anyOf": [
                whole(LOWEST, HIGHEST).schema,
                {"enum": [form for word in sorted(PRIORITIES) for form in (word, word.upper())]},
                PLACEHOLDER,
            ]},
            hint="int | str",
        ),
        "0 to 100, or critical, high, normal, low, background", _DEMANDS, Priority.NORMAL,
    ),
    Option("cpu", _or_placeholder(whole(0, _MOST)), "processors it uses", _DEMANDS),
    Option(
        "ram",
        Form(_ram_asked, {"anyOf": [_SIZE.schema, {"type": "string", "pattern": "^learned"}]}, parse_size, hint="Size"),
        'memory it uses: "2GB" or "512MiB"; "learned": what the history says, "learned:2GB": 2GB until it does',
        _DEMANDS,
    ),
    Option("vram", _SIZE, "memory of the graphics card it uses", _DEMANDS),
    Option("resources", _AMOUNTS, "what it uses of the resources that [budget] names", _DEMANDS),
    Option(
        "gpu", _or_placeholder(whole(0, MOST_UNITS)),
        "whole graphics cards that no other task is on; with vram: on how many cards it uses so much memory",
        _DEMANDS,
    ),
    Option("devices", _UNITS, "units of other devices that [budget] names", _DEMANDS),
    Option("slot", FLAG, "whether it takes a slot while it runs", (TASK, LOAD_TASK, SUBMIT, JOB), default=True),
    Option("slot", FLAG, "whether it takes a slot while it runs", _PERIODICS, default=False),
    Option("every", _duration(1, NS // 1000, "1 ms or more"), "the time from tick to tick", (PERIODIC, LOAD_PERIODIC)),
    _words(
        "overlap", Overlap, _PERIODICS, "a tick while one runs: skip it, queue one, run in parallel"
    ),
    Option("max_parallel", whole(1, _MOST), "how many may run at once", _PERIODICS, 1),
    Option("jitter", number(0, 0.3), "each tick varies by this share, the grid never moves", _PERIODICS, 0.0),
    Option("enabled", FLAG, "whether it ticks from the start", _PERIODICS, default=True),
    Option("immediately", FLAG, "whether the first tick is at once", (PERIODIC, REPEAT), default=False),
    Option("disable_after", optional(whole(1)), "failures in a row that switch it off", _PERIODICS),
    Option(
        "slots", _SLOTS, "how many tasks run at once; default: the processors", (TOP, CONFIG, SIMULATION, *_GOVERNED),
        variable="WHYWAIT_SLOTS",
    ),
    Option("cpu", optional(whole(0, _MOST)), "processors", (*_LIMITED, *_GOVERNED), variable="WHYWAIT_CPU_SLOTS"),
    Option(
        "ram",
        optional(Form(
            _limit_or_auto(parse_written_size), {"anyOf": [_SIZE.schema, {"const": AUTO}]}, parse_size,
            hint="Size", gives="int",
        )),
        'memory, soft: one task alone may use more; "auto": nine tenths of the machine', _LIMITED,
    ),
    Option(
        "ram", optional(Form(_limit_or_auto(parse_size), {}, hint="Size", gives="int")),
        'memory, soft: one task alone may use more; "auto": nine tenths of the machine', _GOVERNED,
        variable="WHYWAIT_RAM_MB_SOFT",
    ),
    Option(
        "hard_ram", FLAG, "whether the limit of memory holds for a task alone too", (CONFIG, SIMULATION, AUTHORITY),
        default=False,
    ),
    Option(
        "vram", optional(_SIZE), "memory of the graphics card, soft", (*_LIMITED, *_GOVERNED),
        variable="WHYWAIT_VRAM_MB_SOFT",
    ),
    Option(
        "resources", _AMOUNTS, "resources of your own with a hard limit: licences, ports, tokens",
        (*_LIMITED, *_GOVERNED),
    ),
    Option("soft", _AMOUNTS, "resources of your own with a soft limit", (*_LIMITED, *_GOVERNED)),
    Option(
        "gpus", optional(Form(_gpus, _CARDS, parse_gpus)),
        'graphics cards: "auto", how many, the memory of each, or names and memory; tasks are told which they get',
        _LIMITED,
    ),
    Option(
        "gpus", Form(_gpus_or_auto, {}, hint="Gpus | None", gives="dict[str, int] | None"),
        'graphics cards: "auto", how many, the memory of each, or names and memory', _GOVERNED,
    ),
    Option(
        "devices",
        Form(
            _devices, _KINDS, parse_devices,
            hint="Mapping[str, int | Sequence[str]] | None", gives="dict[str, list[str]]",
        ),
        "other devices of which tasks are told the unit: how many of a kind, or names", (*_LIMITED, *_GOVERNED),
    ),
    Option("slots", _SLOTS, "how many of its tasks run at once", _SCOPES),
    _words("on_error", OnError, (TOP, *_SCOPES), "abort: the first failure ends the rest"),
    Option("max_spawn", _COUNT, "how many tasks it accepts in its life", _SCOPES),
    Option("mount", FLAG, "whether it takes tasks before mount() is called", (NEW_SCOPE,), default=True),
    _words("order", OrderName, (SCHEDULER, CONFIG)),
    Option(
        "order", Form(_order, {}, hint="Order | OrderName", gives="Order"),
        "Strict(...), Aging(...), or the name of one", (SIMULATION, AUTHORITY), "aging",
    ),
    Option(
        "every", POSITIVE, "aging: one step for each such wait", (SCHEDULER, CONFIG),
        variable="WHYWAIT_AGING_INTERVAL_MS",
    ),
    Option(
        "boost", whole(0, 1000), "aging: how much a step lifts the priority", (SCHEDULER, CONFIG), 10,
        "WHYWAIT_AGING_BOOST",
    ),
    Option("cap", _COUNT, "aging: no lift above this", (SCHEDULER, CONFIG), 99),
    _words("ties", Ties, (CONFIG,)),
    _words("backfill", Backfill, _OF_ALL, "none: no task overtakes the first that waits for budget"),
    _words("overdraft", Overdraft, _RUNS, "what follows if a measured task uses more ram than it asked for"),
    Option(
        "queue_limit", _COUNT, "how many tasks may be pending", (*_SCOPES, *_OF_ALL), variable="WHYWAIT_QUEUE_LIMIT"
    ),
    _words(
        "overflow", Overflow, (*_SCOPES, *_OF_ALL),
        "displace: a full queue drops a task of lower priority, not the newcomer",
    ),
    _words(
        "when_busy", WhenBusy, (*_SCOPES, *_OF_ALL), "reject: refuse a task that cannot start at once for lack of slots"
    ),
    _words(
        "when_blocked", WhenBlocked, (SCOPE, NEW_SCOPE, *_RUNS),
        "lend: a task gives its slot back while its body waits for other tasks",
    ),
    Option(
        "timeout", optional(POSITIVE), "how long a task may run", (*_TASKS, PERIODIC, *_SCOPES, *_OF_ALL)
    ),
    Option(
        "retry", _RETRY, "how often a failed task is tried again: a number, or a table (Retry) with times and more",
        (*_TASKS, *_SCOPES, *_OF_ALL),
    ),
    Option("backoff", DURATION, "the wait before the first retry", (RETRY, LOAD_TASK, LOAD_SCOPE, CONFIG)),
    Option(
        "max_wait", optional(DURATION), "how long it may be ready without starting",
        (*_TASKS, LEASE, *_SCOPES, *_OF_ALL), variable="WHYWAIT_MAX_WAIT_MS",
    ),
    Option(
        "starvation_timeout", DURATION, "when starvation is reported", _OF_ALL, "30s", "WHYWAIT_STARVATION_TIMEOUT_MS"
    ),
    Option(
        "pause_timeout", DURATION, "how long a running task may take to park", _RUNS, "1.5s", "WHYWAIT_PAUSE_TIMEOUT_MS"
    ),
    Option("grace", DURATION, "how long a task that is asked to end may take", _RUNS, "2s"),
    Option("grace", optional(DURATION), "how long a task that is asked to end may take", (SCOPE, NEW_SCOPE)),
    Option(
        "engine", _ENGINE, '"thread", "simple", "asyncio", "process", "command", "ray", or an Engine',
        (SIMULATION, AUTHORITY, NEW_SCOPE, SUBMIT, REPEAT),
    ),
    Option(
        "inject", FLAG, "raise TaskAborted inside a thread that has ignored its signal for its grace", (AUTHORITY,),
        default=False,
    ),
    Option(
        "thread_cpu", FLAG, "measure the CPU time of bodies on threads, for handle.usage", (AUTHORITY,), default=False
    ),
    Option("events", whole(0), "how many events are remembered", (AUTHORITY,), 10_000),
    Option(
        "history", Form(_path, {}, hint="str | os.PathLike[str] | None", gives="str | None"),
        'a file of what finished runs teach, for ram="learned"', (AUTHORITY,), variable="WHYWAIT_HISTORY",
    ),
    Option("times", whole(0, _MOST), "how often a failed task is tried again", (RETRY,)),
    Option("factor", number(0, 1000), "each wait is so many times the last", (RETRY,), 2.0),
    Option("max_backoff", DURATION, "no wait is longer", (RETRY,), "60s"),
    Option("jitter", number(0, 1), "each wait varies by this share", (RETRY,), 0.0),
    Option(
        "on_exit", Form(_exit_codes, {"anyOf": [_EXIT_CODE.schema, {"type": "array", "items": _EXIT_CODE.schema}]}),
        "only commands that ended with one of these exit codes", (RETRY,),
    ),
    Option(
        "grow", OBJECT._replace(schema=_FACTORS),
        "each new attempt asks for so many times more: { ram = 2.0 }", (RETRY,),
    ),
)  # fmt: skip


@cache
def table(place: str) -> Table:
    """Return the table of a place."""
    return table_with((), place)


def table_with(more: Sequence[Option], place: str) -> Table:
    """Return the table of a place, with the rows that only one kind of file has before those of all."""
    dialect = Dialect.MILLISECONDS if place in _IN_MS else Dialect.PROGRAM if place in _IN_PROGRAMS else Dialect.PEOPLE
    return make_table((*more, *OPTIONS), place, dialect)


_RETRY_TABLE: Final = table(RETRY)
INHERITED: Final = tuple(
    row.name for row in OPTIONS if row.default is not None and {AUTHORITY, NEW_SCOPE}.issubset(row.places)
)


def read_keywords(place: str, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the values of a program's keywords by the names they are kept by; ``what`` has them, says a refusal."""
    rows = table(place)
    if unknown := given.keys() - rows.keys():
        raise TypeError(f"{what} no {', '.join(sorted(unknown))}: use {', '.join(rows)}")
    values = {}
    for name, value in given.items():
        field = rows[name]
        try:
            values[field.kept] = None if value is None and field.option.form.is_optional else field.parse(value)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return values


def make_limits(values: Mapping[str, Any], around: Limits | None = None) -> Limits:
    """Return the limits that kept values ask for; a scope has from ``around`` it how it refuses, not how many."""
    given = {each.name: values[each.name] for each in fields(Limits) if each.name in values}
    return Limits(**given) if around is None else Limits(**{name: getattr(around, name) for name in INHERITED} | given)


def make_budget(values: Mapping[str, Any]) -> Budget:
    """Return the budget that kept values ask for."""
    devices = {kind: dict.fromkeys(units, 0) for kind, units in (values.get("devices") or {}).items()}
    if values.get("gpus") is not None:
        devices[GPU] = values["gpus"]
        if values.get("vram") is not None:
            raise ConfigError("vram is the memory of each gpu: say it with gpus")
    hard = {**(values.get("resources") or {}), "cpu": values.get("cpu")}
    soft = {**(values.get("soft") or {})}
    (hard if values.get("hard_ram") else soft)["ram"] = values.get("ram")
    soft["vram"] = values.get("vram")
    return Budget(
        {name: amount for name, amount in hard.items() if amount is not None},
        {name: amount for name, amount in soft.items() if amount is not None},
        devices,
    )


def kept(place: str) -> frozenset[str]:
    """Return the names that the values of the options of a place are kept by."""
    return frozenset(field.kept for field in table(place).values())


def defaults(place: str) -> dict[str, Any]:
    """Return the defaults of the options at a place, by name."""
    return {option.name: option.default for option in OPTIONS if place in option.places and option.default is not None}


def in_seconds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return kept values as keywords of a program: NAME=seconds for NAME_ns."""
    return _converted(values, "", lambda ns: ns / NS)


def in_milliseconds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return kept values as a workload has them: NAME_ms for NAME_ns, of a retry the number and the first wait."""
    told = _converted(values, "_ms", lambda ns: max(1, ns // NS_PER_MS))
    retry = told.get("retry")
    if isinstance(retry, Retry):
        told |= {"retry": retry.times, "backoff_ms": round(float(retry.backoff) * 1000)}
    return told


def _converted(values: Mapping[str, Any], suffix: str, convert: Callable[[int], float]) -> dict[str, Any]:
    told = {}
    for key, value in values.items():
        stem = key.removesuffix("_ns")
        if stem == key:
            told[key] = value
        else:
            told[stem + suffix] = None if value is None else convert(value)
    return told
