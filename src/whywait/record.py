"""Recording a run and running it again: every command that reaches the kernel, with its time, one line each.

The kernel is deterministic, so the commands of a run fed to a fresh kernel give the same events again, to the byte.
Recording is a kernel of another class (:class:`RecordingKernel`): an authority that does not record pays nothing. No
function, argument or result is recorded, only what scheduling needs to know.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import IO, Any, Final

from whywait.errors import ConfigError, WhywaitError
from whywait.kernel.events import Event, Kind, RawEvent
from whywait.kernel.kernel import Kernel
from whywait.kernel.lanes import Aging, Order, Strict
from whywait.kernel.model import Budget, Limits, Policy, Retry, Scope, Submission, Task
from whywait.kernel.periodic import Periodic
from whywait.units import shown

log = logging.getLogger("whywait.record")

MAGIC: Final = "whywait record"
VERSION: Final = 1
_NOT_RECORDED: Final = (
    "why",
    "following",
    "snapshot",
    "repair",
)  # what takes the time and changes nothing, and what cannot be replayed
_SHORTCUTS: Final = ("enter", "queue", "pass_on")  # which answer None where the long way has to be taken
_JITTER: Final = "jitter"
_RETRY_FIELDS: Final = ("times", "backoff", "factor", "max_backoff", "jitter")  # which errors: `ended` is told


class RecordingKernel(Kernel):
    """A kernel that writes down what it is told before it does as usual."""

    def __init__(self, path: str | Path, *, jitter: Callable[[], float] = float, **settings: Any) -> None:  # noqa: ANN401 - those of Kernel
        """Open ``path`` anew; one that cannot be opened raises OSError at once."""
        self.path = Path(path)
        self.error: OSError | None = None
        self._file: IO[str] = self.path.open("w", encoding="utf-8", newline="\n")
        self._numbers: dict[Scope | Periodic, int] = {}
        self._inside = False

        def recorded_jitter() -> float:
            value = jitter()
            self._write([_JITTER, value])
            return value

        super().__init__(jitter=recorded_jitter, **settings)
        self._numbers[self.root] = 0
        self._write({MAGIC: VERSION, **_header(settings)})
        for name in commands_of(self):
            setattr(self, name, self._recorded(name, getattr(self, name)))

    def close(self) -> None:
        """Write no more."""
        try:
            self._file.close()
        except OSError as error:
            self._give_up(error)

    def repair(self, now: int, started: list[Task]) -> None:
        """Do as usual; what follows a command that was broken off half-way cannot be replayed, so the record ends."""
        self._give_up(OSError("a command was broken off by an interrupt"))
        super().repair(now, started)

    def _recorded(self, name: str, command: Callable[..., Any]) -> Callable[..., Any]:
        def record_and_do(now: int, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any command
            if self._inside:  # a command that is made of others
                return command(now, *args, **kwargs)
            self._inside = True
            line = [name, now, [self._encode(value) for value in args] if name != "dispatch" else []]
            if kwargs:
                line.append({key: self._encode(value) for key, value in kwargs.items()})
            try:
                result = command(now, *args, **kwargs)
            except WhywaitError:
                self._write(line)
                raise
            finally:
                self._inside = False
            if name not in _SHORTCUTS or result is not None:  # else nothing was done
                self._write(line)
            if isinstance(result, Scope | Periodic):
                self._numbers[result] = len(self._numbers)
            return result

        return record_and_do

    def _encode(self, value: Any) -> Any:  # noqa: ANN401, PLR0911 - any argument of a command, one kind after the other
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, Task):
            return {"task": value.number}
        if isinstance(value, Scope | Periodic):
            return {type(value).__name__.lower(): self._numbers[value]}
        if isinstance(value, Submission):
            return {"submission": [self._encode(field) for field in value]}
        if isinstance(value, tuple | list):
            return [self._encode(item) for item in value]
        if isinstance(value, Policy):
            return {"policy": _policy(value)}
        if isinstance(value, Limits):
            return {"limits": asdict(value)}
        return None  # a task's body: none of the kernel's business

    def _write(self, line: Any) -> None:  # noqa: ANN401 - JSON
        if self.error is None and not self._file.closed:  # what comes after the end changes nothing
            try:
                self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self.error is None:
            self.error = error
            log.error("the run is no longer recorded in %s: %s; it goes on", self.path, error)


class Record:
    """A recorded run: what the authority was, and every command in order."""

    def __init__(self, path: str | Path) -> None:
        """Read a file that an authority with ``record=path`` wrote; anything else raises ConfigError."""
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: is not a record of whywait") from None
        lines = text.splitlines(keepends=True)
        self.complete = not lines or lines[-1].endswith("\n")  # else the writer was stopped in the midst of a line
        if not self.complete:
            del lines[-1]
        parsed = [_parse(line, number, path) for number, line in enumerate(lines, 1)]
        if not parsed or not isinstance(parsed[0], dict) or parsed[0].get(MAGIC) != VERSION:
            raise ConfigError(f"{path}: is not a record of whywait (version {VERSION})")
        self.header: dict[str, Any] = parsed[0]
        self.commands: list[list[Any]] = [line for line in parsed[1:] if line[0] != _JITTER]
        self._jitter = [line[1] for line in parsed[1:] if line[0] == _JITTER]

    def settings(self) -> dict[str, Any]:
        """Return what a kernel of the recorded run is made with."""
        header = self.header
        return {
            "limits": Limits(**header["limits"]),
            "budget": Budget(**header["budget"]),
            "order": _decode_order(header["order"]),
            "policy": _decode_policy(header["policy"]),
            **{key: header[key] for key in ("backfill", "pause_timeout_ns", "starvation_timeout_ns")},
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


class Played:
    """One command that was carried out once more."""

    __slots__ = ("args", "kernel", "kwargs", "name", "now", "result")

    def __init__(self, name: str, now: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], kernel: Kernel) -> None:
        """Keep what was called, and on which kernel."""
        self.name = name
        self.now = now
        self.args = args
        self.kwargs = kwargs
        self.kernel = kernel
        self.result: Any = None  # None too if it was refused


class _Player:
    def __init__(self, record: Record, jitter: Iterator[float], emit: Callable[[RawEvent], object] | None) -> None:
        self._record = record
        self._emit = emit
        self.kernel = Kernel(**record.settings(), jitter=lambda: next(jitter), emit=self._note)
        self._tasks: dict[int, Task] = {}  # all there ever were: a later one may name any
        self._things: list[Scope | Periodic] = [self.kernel.root]

    def play(self) -> Iterator[Played]:
        kernel = self.kernel
        known = commands_of(kernel)
        for line in self._record.commands:
            name, now, args, *rest = line
            if name not in known:
                raise ConfigError(f"{self._record.path}: {shown(name)} is not a command: is it of a later version?")
            kwargs = {key: self._decode(value) for key, value in (rest[0] if rest else {}).items()}
            played = Played(name, now, tuple(self._decode(value) for value in args), kwargs, kernel)
            try:
                played.result = getattr(kernel, name)(now, *played.args, **kwargs)
            except WhywaitError:  # as it was then
                played.result = None
            if isinstance(played.result, Scope | Periodic):
                self._things.append(played.result)
            yield played
            kernel.requests.clear()
            kernel.settled.clear()

    def _note(self, raw: RawEvent) -> None:
        if raw[2] in (Kind.TASK_SUBMITTED, Kind.TASK_RETRIED):
            number = raw[4]
            assert number is not None, "these events are about a task"
            self._tasks[number] = self.kernel.scopes[raw[3]].tasks[number]
        if self._emit is not None:
            self._emit(raw)

    def _decode(self, value: Any) -> Any:  # noqa: ANN401, PLR0911 - the same, back
        if isinstance(value, list):
            return tuple(self._decode(item) for item in value)
        if isinstance(value, dict):
            ((kind, inner),) = value.items()
            if kind == "task":
                return self._tasks[inner]
            if kind in ("scope", "periodic"):
                return self._things[inner]
            if kind == "policy":
                return _decode_policy(inner)
            if kind == "limits":
                return Limits(**inner)
            return Submission(*(self._decode(field) for field in inner))
        return value


def commands_of(kernel: Kernel) -> list[str]:
    """Return the names of all commands: whatever takes the time first, but for questions."""
    public = [name for name in dir(kernel) if not name.startswith("_") and callable(getattr(kernel, name))]
    timed = [name for name in public if next(iter(signature(getattr(kernel, name)).parameters), "") == "now"]
    return [name for name in timed if name not in _NOT_RECORDED]


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
        "budget": {"hard": dict(budget.hard), "soft": dict(budget.soft)},
        "order": _order(settings["order"]),
        "policy": _policy(settings["policy"]),
        **{key: settings[key] for key in ("backfill", "pause_timeout_ns", "starvation_timeout_ns")},
    }


def _order(order: Order) -> dict[str, Any] | None:
    return None if isinstance(order, Strict) else {"every": order.every, "boost": order.boost, "cap": order.cap}


def _decode_order(data: dict[str, Any] | None) -> Order:
    return Strict() if data is None else Aging(**data)


def _policy(policy: Policy) -> list[Any]:
    retry = None if policy.retry is None else {field: getattr(policy.retry, field) for field in _RETRY_FIELDS}
    return [policy.timeout_ns, retry, policy.max_wait_ns]


def _decode_policy(data: list[Any]) -> Policy:
    timeout_ns, retry, max_wait_ns = data
    return Policy(timeout_ns, None if retry is None else Retry(**retry), max_wait_ns)


def _parse(line: str, number: int, path: str | Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(line)
    except ValueError:
        raise ConfigError(f"{path}, line {number}: {shown(line.strip())} is not a line of a record") from None
