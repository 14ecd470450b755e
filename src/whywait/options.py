"""The table of options: each row has a name, the form of its value, its help, the places where it stands, its default.

One row makes an option known to the tables of workflow files (with the schema and the page of keys), to workloads and
to ``Simulation``. What only one kind of file has (``run``, ``at_ms``) stands with the reader of that file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from whywait.errors import ConfigError
from whywait.kernel.durations import NS, parse_duration_ns
from whywait.kernel.limits import (
    HIGHEST,
    LOWEST,
    WELL_KNOWN,
    OnError,
    Overflow,
    Priority,
    Retry,
    WhenBlocked,
    WhenBusy,
    check_units,
)
from whywait.kernel.order import Ties
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
from whywait.support.lines import Path
from whywait.support.memory import automatic_ram
from whywait.support.problems import nearest, show_path
from whywait.support.units import NS_PER_MS, parse_size, parse_written_size

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
# Keywords of Simulation.
SIMULATION: Final = "simulation"

_IN_MS: Final = (CONFIG, LOAD_TASK, LOAD_PERIODIC, LOAD_SCOPE)
_BODIES: Final = (TASK, PERIODIC, DEFAULTS)
_LOADS: Final = (LOAD_TASK, LOAD_PERIODIC)
_OF_ALL: Final = (SCHEDULER, CONFIG, SIMULATION)  # what holds for a whole run
_SCOPES: Final = (SCOPE, LOAD_SCOPE)
_LIMITED: Final = (BUDGET, CONFIG, SIMULATION)

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
    return Form(parse, {"anyOf": [{"type": "number", "minimum": 0}, written]}, None, least_ms)


def _priority(value: Any) -> int:  # noqa: ANN401 - whatever stands in a file
    try:
        return Priority.parse(value)
    except ValueError:
        expected = f"an int from {LOWEST} to {HIGHEST} or one of {', '.join(PRIORITIES)}"
        raise ConfigError(f"{refused(value, expected)}{nearest(value, PRIORITIES)}") from None


def _ram_asked(value: object) -> int | Learned:
    learned = as_learned(value)
    return parse_written_size(value) if learned is None else learned


def _ram_limit(value: object) -> int:
    return automatic_ram() if value == AUTO else parse_written_size(value)


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
)
_EXIT_CODE: Final = whole(1, 255)
_AMOUNTS: Final = table_of(
    Form(parse_size, {"anyOf": [whole(0).schema, {"type": "string", "pattern": r"^\s*\d|\{"}]}),
    'amounts by name, such as {"licence": 2}',
    WELL_KNOWN,
)
_UNITS: Final = table_of(whole(0, MOST_UNITS), 'numbers by kind, such as {"rig": 1}', (*WELL_KNOWN, GPU))
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
_RETRY: Final = Form(_retry, {"anyOf": [whole(0, _MOST).schema, {"$ref": "#/$defs/retry"}]}, _retry_of_program)


def _or_placeholder(form: Form) -> Form:
    return form._replace(schema={"anyOf": [form.schema, PLACEHOLDER]})


def _words(name: str, words: Any, places: tuple[str, ...], about: str = "") -> Option:  # noqa: ANN401 - a Literal
    """Return the row of an option that is one of a closed set of words; the first is the default."""
    chosen = get_args(words) or words
    return Option(name, one_of(*chosen), about or f"one of {', '.join(chosen)}", places, chosen[0])


OPTIONS: Final = (
    Option(
        "priority",
        Form(
            _priority,
            {"anyOf": [
                whole(LOWEST, HIGHEST).schema,
                {"enum": [form for word in sorted(PRIORITIES) for form in (word, word.upper())]},
                PLACEHOLDER,
            ]},
        ),
        "0 to 100, or critical, high, normal, low, background", (*_BODIES, *_LOADS), Priority.NORMAL,
    ),
    Option("cpu", _or_placeholder(whole(0, _MOST)), "processors it uses", (*_BODIES, *_LOADS)),
    Option(
        "ram", Form(_ram_asked, {"anyOf": [_SIZE.schema, {"type": "string", "pattern": "^learned"}]}, parse_size),
        'memory it uses: "2GB" or "512MiB"; "learned": what the history says, "learned:2GB": 2GB until it does',
        (*_BODIES, *_LOADS),
    ),
    Option("vram", _SIZE, "memory of the graphics card it uses", (*_BODIES, *_LOADS)),
    Option("resources", _AMOUNTS, "what it uses of the resources that [budget] names", (*_BODIES, *_LOADS)),
    Option(
        "gpu", _or_placeholder(whole(0, MOST_UNITS)),
        "whole graphics cards that no other task is on; with vram: on how many cards it uses so much memory",
        (*_BODIES, *_LOADS),
    ),
    Option("devices", _UNITS, "units of other devices that [budget] names", (*_BODIES, *_LOADS)),
    Option("slot", FLAG, "whether it takes a slot while it runs", (TASK, LOAD_TASK), default=True),
    Option("slot", FLAG, "whether it takes a slot while it runs", (PERIODIC, LOAD_PERIODIC), default=False),
    Option("every", _duration(1, NS // 1000, "1 ms or more"), "the time from tick to tick", (PERIODIC, LOAD_PERIODIC)),
    _words("overlap", Overlap, (PERIODIC, LOAD_PERIODIC)),
    Option("max_parallel", whole(1, _MOST), "how many may run at once", (PERIODIC, LOAD_PERIODIC), 1),
    Option("jitter", number(0, 0.3), "each tick varies by this share", (PERIODIC, LOAD_PERIODIC), 0.0),
    Option("enabled", FLAG, "whether it ticks from the start", (PERIODIC, LOAD_PERIODIC), default=True),
    Option("immediately", FLAG, "whether the first tick is at once", (PERIODIC,), default=False),
    Option(
        "disable_after", optional(whole(1)), "failures in a row that switch it off", (PERIODIC, LOAD_PERIODIC)
    ),
    Option("slots", _SLOTS, "how many tasks run at once; default: the processors", (TOP, CONFIG, SIMULATION)),
    Option("slots", _SLOTS, "how many of its tasks run at once", _SCOPES),
    _words("on_error", OnError, (TOP, *_SCOPES), "abort: the first failure ends the rest"),
    Option("max_spawn", _COUNT, "how many tasks it accepts in its life", _SCOPES),
    _words("order", ("aging", "strict"), (SCHEDULER, CONFIG)),
    Option("every", POSITIVE, "aging: one step for each such wait", (SCHEDULER, CONFIG)),
    Option("boost", whole(0, 1000), "aging: how much a step lifts the priority", (SCHEDULER, CONFIG), 10),
    Option("cap", _COUNT, "aging: no lift above this", (SCHEDULER, CONFIG), 99),
    _words("ties", Ties, (CONFIG,)),
    _words("backfill", ("greedy", "none"), _OF_ALL),
    _words("overdraft", ("count", "warn", "kill"), (SCHEDULER,)),
    Option("queue_limit", _COUNT, "how many tasks may be pending", (*_SCOPES, *_OF_ALL)),
    _words("overflow", Overflow, (*_SCOPES, *_OF_ALL)),
    _words("when_busy", WhenBusy, (*_SCOPES, *_OF_ALL)),
    _words("when_blocked", WhenBlocked, (SCOPE, SCHEDULER)),
    Option(
        "timeout", optional(POSITIVE), "how long a task may run", (*_BODIES, LOAD_TASK, *_SCOPES, *_OF_ALL)
    ),
    Option(
        "retry", _RETRY, "how often a failed task is tried again: a number, or a table with times and more",
        (TASK, DEFAULTS, LOAD_TASK, *_SCOPES, *_OF_ALL),
    ),
    Option("backoff", DURATION, "the wait before the first retry", (RETRY, LOAD_TASK, LOAD_SCOPE, CONFIG)),
    Option(
        "max_wait", optional(DURATION), "how long it may be ready without starting",
        (TASK, DEFAULTS, LOAD_TASK, *_SCOPES, *_OF_ALL),
    ),
    Option("starvation_timeout", POSITIVE, "when starvation is reported", _OF_ALL),
    Option("pause_timeout", DURATION, "how long a running task may take to park", (SCHEDULER,)),
    Option("grace", DURATION, "how long a task that is asked to end may take", (SCOPE, SCHEDULER)),
    Option("cpu", optional(whole(0, _MOST)), "processors", _LIMITED),
    Option(
        "ram", optional(Form(_ram_limit, {"anyOf": [_SIZE.schema, {"const": AUTO}]}, parse_size)),
        'memory, soft: one task alone may use more; "auto": nine tenths of the machine', _LIMITED,
    ),
    Option("hard_ram", FLAG, "whether the limit of memory holds for a task alone too", (CONFIG, SIMULATION)),
    Option("vram", optional(_SIZE), "memory of the graphics card, soft", _LIMITED),
    Option("resources", _AMOUNTS, "resources of your own with a hard limit: licences, ports, tokens", _LIMITED),
    Option("soft", _AMOUNTS, "resources of your own with a soft limit", _LIMITED),
    Option(
        "gpus", optional(Form(_gpus, _CARDS, parse_gpus)),
        'graphics cards: "auto", how many, the memory of each, or names and memory; tasks are told which they get',
        _LIMITED,
    ),
    Option(
        "devices", Form(_devices, _KINDS, parse_devices),
        "other devices of which tasks are told the unit: how many of a kind, or names", _LIMITED,
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


def table(place: str, more: tuple[Option, ...] = ()) -> Table:
    """Return the table of a place; ``more`` are the rows that only one kind of file has."""
    dialect = Dialect.MILLISECONDS if place in _IN_MS else Dialect.PROGRAM if place == SIMULATION else Dialect.PEOPLE
    return make_table((*more, *OPTIONS), place, dialect)


_RETRY_TABLE: Final = table(RETRY)


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
