"""Recording a run and running it again: every command that reaches the kernel, with its time, one line each.

The kernel is deterministic, so the commands of a run fed to a fresh kernel give the same events again, to the byte.
Recording is a kernel of another class (:class:`RecordingKernel`): an authority that does not record pays nothing. No
function, argument or result is recorded, only what scheduling needs to know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from whywait.errors import ConfigError, WhywaitError
from whywait.kernel.base import Base, Decision
from whywait.kernel.events import Event, Kind, RawEvent, read_outcome
from whywait.kernel.ids import function_shown
from whywait.kernel.kernel import COMMANDS, Kernel
from whywait.kernel.limits import Budget, Limits, Policy, Retry
from whywait.kernel.model import Scope, Submission, Task, task_for
from whywait.kernel.order import Aging, Order, Strict
from whywait.kernel.periodic import Periodic
from whywait.observe.event_file import Id, OutcomeWord, PriorityNumber, check_details
from whywait.support.files import JsonLinesReader, is_shallow
from whywait.support.fits import Signature, check_of, is_count
from whywait.support.line_file import LineFile
from whywait.support.logger import Log, log
from whywait.support.units import shown

MAGIC: Final = "whywait record"
VERSION: Final = 2
_JITTER: Final = "jitter"
_PAIR: Final = 2
_AT_ONCE: Final = ("ended", "dispose")  # commands after which the file is written at once
_PLAIN_SETTINGS: Final = ("backfill", "overdraft", "pause_timeout_ns", "starvation_timeout_ns")
_RETRY_FIELDS: Final = ("times", "backoff", "factor", "max_backoff", "jitter", "grow")  # which errors: `ended` is told


class RecordingKernel(Kernel):
    """A kernel that writes down what it is told before it does as usual."""

    def __init__(
        self,
        path: str | Path,
        *,
        log: Log = log,
        jitter: Callable[[], float] = float,
        **settings: Any,  # noqa: ANN401 - those of Kernel
    ) -> None:
        """Open ``path`` anew; one that cannot be opened raises OSError at once."""
        self._file = LineFile(path, "the record is", log)
        self._numbers: dict[Scope | Periodic, int] = {}

        def recorded_jitter() -> float:
            value = jitter()
            self._write([_JITTER, value])
            return value

        super().__init__(jitter=recorded_jitter, **settings)
        self._numbers[self.root] = 0
        self._write({MAGIC: VERSION, **_header(settings)})
        self.is_recorded = True
        for name in COMMANDS:
            setattr(self, name, self._recorded(name, getattr(self, name)))

    @property
    def error(self) -> OSError | None:
        """Why the record was given up."""
        return self._file.error

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def _recorded(self, name: str, command: Callable[..., Any]) -> Callable[..., Any]:
        def record_and_do(now: int, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any command
            encode = self._encode_submission if name == "submit" else self._encode
            line = [name, now, encode(args) if name != "dispatch" else []]
            if kwargs:
                line.append({key: self._encode(value) for key, value in kwargs.items()})
            try:
                result = command(now, *args, **kwargs)
            except WhywaitError:
                self._write(line)
                raise
            self._write(line, at_once=name in _AT_ONCE)
            if isinstance(result, Scope | Periodic):
                self._numbers[result] = len(self._numbers)
            return result

        return record_and_do

    def _encode_submission(self, fields: tuple[Any, ...]) -> list[Any]:
        """Return what a task is submitted with; if it is given no name, the one of its function is with it."""
        told = [self._encode(field) for field in fields]
        job = fields[-1]
        function = function_shown(job.called) if isinstance(job, Task) and fields[1] is None else None
        if function is not None:
            told[-1] = {"calls": function}
        return told

    def _encode(self, value: Any) -> Any:  # noqa: ANN401, PLR0911 - any argument of a command, one kind after the other
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, Task):
            number = getattr(value, "number", 0)  # one that is submitted just now has none, and is named by no one
            return {"task": number} if number else None
        if isinstance(value, Scope | Periodic):
            return {type(value).__name__.lower(): self._numbers[value]}
        if isinstance(value, Submission):
            return {"submission": self._encode_submission(value)}
        if isinstance(value, tuple | list):
            return [self._encode(item) for item in value]
        if isinstance(value, Policy):
            return {"policy": _policy(value)}
        if isinstance(value, Limits):
            return {"limits": asdict(value)}
        if isinstance(value, Budget):
            return {"budget": _encode_budget(value)}
        if isinstance(value, Mapping):
            return {"units": dict(value)}
        return None  # a task's body: none of the kernel's business

    def _write(self, line: Any, *, at_once: bool = False) -> None:  # noqa: ANN401 - JSON
        if not self._file.closed:  # what comes after the end changes nothing
            self._file.add(json.dumps(line, separators=(",", ":")), at_once=at_once)


class Record:
    """A recorded run: what the authority was, and every command in order."""

    def __init__(self, path: str | Path) -> None:
        """Read a file that an authority with ``record=path`` wrote; anything else raises ConfigError."""
        self.path = Path(path)
        self.commands: list[list[Any]] = []
        self._lines = lines = JsonLinesReader(path, "a line of a record")
        self._numbers: list[int] = []  # the line of each command
        self._jitter: list[float] = []
        self.header: dict[str, Any] = {}
        for number, line in lines:
            if not self.header:
                self._begin(line)
            elif _is_jitter(line):
                self._jitter.append(line[1])
            elif _is_command(line):
                self.commands.append(line)
                self._numbers.append(number)
            else:
                raise lines.refusal(
                    number, f'{shown(line)} is not a line of a record: expected ["command", time, [...]]'
                )
        if not self.header:
            raise ConfigError(f"{path}: is empty: expected a record of whywait (version {VERSION})")
        self.complete = lines.complete  # else the writer was stopped in the midst of a line

    def _begin(self, line: Any) -> None:  # noqa: ANN401 - JSON
        if not isinstance(line, dict) or line.get(MAGIC) != VERSION:
            raise ConfigError(f"{self.path}: is not a record of whywait (version {VERSION})")
        self.header = line
        try:
            Kernel(**self.settings())
        except (ConfigError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            told = error if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            raise self._lines.refusal(1, f"the settings of the record are not whole: {told}") from None

    def refusal(self, index: int, message: str) -> ConfigError:
        """Return the error that names the file and the line of a command."""
        return self._lines.refusal(self._numbers[index], message)

    def settings(self) -> dict[str, Any]:
        """Return what a kernel of the recorded run is made with."""
        header = self.header
        return {
            "limits": Limits(**header["limits"]),
            "budget": Budget(**header["budget"]),
            "order": (Aging if "every" in header["order"] else Strict)(**header["order"]),
            "policy": _decode_policy(header["policy"]),
            **{key: header[key] for key in _PLAIN_SETTINGS},
        }

    def play(self, emit: Callable[[RawEvent], object] | None = None) -> Iterator[Played]:
        """Feed the commands to a fresh kernel; yield each after it was carried out."""
        return _Player(self, iter(self._jitter), emit).play()

    def replay(self) -> list[Event]:
        """Return the events of the recorded run, made anew by a fresh kernel."""
        raw: list[RawEvent] = []
        for _ in self.play(raw.append):
            pass
        return [Event.of(event) for event in raw]


@dataclass(slots=True, eq=False)
class Played:
    """One command that was carried out once more, on a kernel."""

    name: str
    now: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    kernel: Kernel
    result: Any = None  # None too if it was refused


class _Player:
    def __init__(self, record: Record, jitter: Iterator[float], emit: Callable[[RawEvent], object] | None) -> None:
        self._record = record
        self._emit = emit
        self.kernel = Kernel(**record.settings(), jitter=lambda: next(jitter), emit=self._note)
        self._now = 0
        self._tasks: dict[int, Task] = {}  # all there ever were: a later one may name any
        self._things: list[Scope | Periodic] = [self.kernel.root]
        self._makers: dict[str, Callable[[Any], Any]] = {
            "task": self._tasks.__getitem__,
            "calls": _task_calling,
            "scope": self._thing,
            "periodic": self._thing,
            "policy": _decode_policy,
            "limits": lambda inner: Limits(**inner),
            "budget": lambda inner: Budget(**inner),
            "units": _decode_units,
            "submission": lambda inner: Submission(*map(self._decode, inner)),
        }

    def play(self) -> Iterator[Played]:
        for index, (name, now, args, *rest) in enumerate(self._record.commands):
            try:
                played = self._carry_out(name, now, args, rest[0] if rest else {})
            except ConfigError as error:
                raise self._record.refusal(index, f"{name}: {error}") from None
            except Exception as error:  # a kernel that does what cannot be says so by any of them
                told = f"{type(error).__name__}: {error}".rstrip(": ")
                raise self._record.refusal(index, f"{shown(name)} cannot be carried out here ({told})") from error
            yield played
            self.kernel.requests.clear()
            self.kernel.settled.clear()

    def _carry_out(self, name: str, now: int, args: list[Any], more: dict[str, Any]) -> Played:
        signature = _signature(name)
        if now < self._now:
            raise ConfigError(f"its time {now} is before {self._now}, that of the command before")
        self._now = now
        kernel, decode = self.kernel, self._decode
        bound = signature.bind(kernel, now, *map(decode, args), **{key: decode(value) for key, value in more.items()})
        if name == "note":
            check_details(bound.arguments["kind"], dict(bound.arguments["details"]))
        elif isinstance(bound.arguments.get("outcome"), str):
            bound.arguments["outcome"] = read_outcome(bound.arguments["outcome"])
        elif name == "add_periodic":
            for key, value in bound.arguments.get("settings", {}).items():
                _of_periodic().check(key, value)
        played = Played(name, now, bound.args[2:], bound.kwargs, kernel)
        try:
            played.result = getattr(kernel, name)(now, *played.args, **played.kwargs)
        except WhywaitError:  # as it was then
            played.result = None
        if isinstance(played.result, Scope | Periodic):
            self._things.append(played.result)
        return played

    def _thing(self, index: int) -> Scope | Periodic:
        if not is_count(index):
            raise ValueError(index)
        return self._things[index]

    def _note(self, raw: RawEvent) -> None:
        if raw[2] in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
            number = raw[4]
            assert number is not None, "these events are about a task"
            self._tasks[number] = self.kernel.scopes[raw[3]].tasks[number]
        if self._emit is not None:
            self._emit(raw)

    def _decode(self, value: Any) -> Any:  # noqa: ANN401 - the same, back
        if isinstance(value, list):
            return tuple(map(self._decode, value))
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((kind, inner),) = value.items()
            make = self._makers.get(kind)
            if make is not None:
                with suppress(LookupError, TypeError, ValueError):
                    return make(inner)
        raise ConfigError(f"{shown(value)} is nothing that was made before, and no setting")


def _task_calling(function: Any) -> Task:  # noqa: ANN401 - checked here
    """Return a task that is to be submitted, of which the name of its function is known."""
    if not isinstance(function, str):
        raise TypeError(function)
    task = task_for(None)
    task.called = function
    return task


def is_record(path: str | Path) -> bool:
    """Return whether a file begins like a record; one that cannot be read does not."""
    beginning = f'{{"{MAGIC}"'.encode()
    try:
        with Path(path).open("rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def _header(settings: Mapping[str, Any]) -> dict[str, Any]:
    budget: Budget = settings["budget"]
    return {
        "limits": asdict(settings["limits"]),
        "budget": _encode_budget(budget),
        "order": _order(settings["order"]),
        "policy": _policy(settings["policy"]),
        **{key: settings[key] for key in _PLAIN_SETTINGS},
    }


def _encode_budget(budget: Budget) -> dict[str, Any]:
    units = {kind: dict(units) for kind, units in budget.devices.items()}
    return {"hard": dict(budget.hard), "soft": dict(budget.soft), "devices": units}


def _order(order: Order) -> dict[str, Any]:
    fields = ("ties",) if isinstance(order, Strict) else ("every", "boost", "cap", "ties")
    return {name: getattr(order, name) for name in fields}


def _policy(policy: Policy) -> list[Any]:
    retry = None if policy.retry is None else {field: getattr(policy.retry, field) for field in _RETRY_FIELDS}
    return [policy.timeout_ns, retry, policy.max_wait_ns]


def _decode_policy(data: list[Any]) -> Policy:
    timeout_ns, retry, max_wait_ns = data
    if not all(each is None or is_count(each) for each in (timeout_ns, max_wait_ns)):
        raise ConfigError(f"{shown(data)} is not a policy: expected times of 0 or more")
    return Policy(timeout_ns, None if retry is None else Retry(**retry), max_wait_ns)


def _decode_units(data: dict[str, Any]) -> dict[str, int]:
    if not all(map(is_count, data.values())):
        raise ConfigError(f"{shown(data)} are no units: expected names with their memory")
    return data


def _is_jitter(line: Any) -> bool:  # noqa: ANN401 - JSON
    if not (isinstance(line, list) and len(line) == _PAIR and line[0] == _JITTER):
        return False
    return isinstance(line[1], int | float) and not isinstance(line[1], bool) and -1 <= line[1] <= 1


def _is_command(line: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a line has the form of a command: its name, its time, its arguments, maybe some by name."""
    if not (isinstance(line, list) and _PAIR < len(line) <= 2 * _PAIR and is_shallow(line)):
        return False
    name, now, args, *rest = line
    return isinstance(name, str) and is_count(now) and isinstance(args, list) and all(isinstance(r, dict) for r in rest)


@cache
def _signature(name: str) -> Signature:
    if name not in COMMANDS:
        raise ConfigError(f"{shown(name)} is not a command: is the record of a later version?")
    return Signature(getattr(Kernel, name), {**_MORE, **_OF_A_NOTE} if name == "note" else _MORE, _TYPES)


@cache
def _of_periodic() -> Signature:
    return Signature(Periodic.__init__, _MORE, _TYPES)


def _is_noted(kind: str) -> bool:
    return kind.startswith(("HANDLER_", "WORKER_", "STREAM_")) or kind == Kind.TASK_PLACED


_TYPES: Final = {each.__name__: each for each in (Base, Decision, Scope, Submission, Task)}
_MORE: Final[dict[str, Any]] = {
    "name": Id | None,
    "key": Id,
    "outcome": OutcomeWord,
    "priority": PriorityNumber,
    "demand": Annotated[Any, lambda demand: all(check_of(Id)(name) and amount > 0 for name, amount in demand)],
}
_OF_A_NOTE: Final = {"kind": Annotated[str, _is_noted, "a kind of event that a running task tells"]}
