"""The command engine: programs in process groups of their own.

Each worker thread looks after one running command: it collects what the command writes and waits for its end. The
command gets an abort as SIGTERM, a kill as SIGKILL, a pause as SIGSTOP and a resume as SIGCONT, all sent to its whole
group. Its body has ended when its process has and nobody writes into its output any more; what it left running in its
group without output is killed then. A program that leaves the group (``setsid``) leaves the reach of this engine.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn
from weakref import WeakSet

from whywait.engines.groups import has_living, send_signal
from whywait.engines.thread import ThreadEngine
from whywait.engines.watch import Watch
from whywait.errors import CommandFailed, ConfigError, TaskFailed, WhywaitError
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.handle import Handle

PROBE_S: Final = 0.05  # how often to look whether anybody of a group is left
GONE_S: Final = 1.0  # how long what was killed may take to be gone
TAIL_LENGTH: Final = 2000  # of stderr, in the message of an error
SHORT_LENGTH: Final = 200  # of a command, in a message
NOT_EXECUTABLE: Final = 126  # as a shell says it
NOT_FOUND: Final = 127
Ended = tuple[str, str | None, bool]  # outcome, cause, may be retried


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run as a task: a shell string (``/bin/sh -c``), or a sequence of program and arguments.

    ``env`` is added to the environment. At most ``limit`` bytes of stdout, and as many of stderr, are kept: the last.
    What ``submit`` is given after the command is appended to its arguments (``$1``, ``$2``... of a shell string).
    ``on_output`` is called with all bytes of both as they come, on the thread that looks after the command.
    """

    args: str | Sequence[str]
    _: KW_ONLY
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    limit: int = 1_000_000
    on_output: Callable[[bytes], object] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if not isinstance(self.args, str):
            try:
                object.__setattr__(self, "args", tuple(os.fspath(each) for each in self.args))
            except TypeError:
                raise ConfigError(f"command {self.args!r} is not allowed: use a string or a list of strings") from None
        if not self.args:
            raise ConfigError("a command needs a program: its arguments are empty")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 0:
            raise ConfigError(f"command limit {self.limit!r} is not allowed: use an int of 0 or more bytes")

    def __call__(self, *args: object) -> CommandResult:
        """Say who carries out commands; gives ``submit`` the type of the result."""
        raise WhywaitError(f"{self} is carried out by the command engine: submit it without another engine")

    def __str__(self) -> str:
        """Show it as one would type it."""
        return self.args if isinstance(self.args, str) else shlex.join(self.args)

    def argv(self, more: Sequence[object]) -> list[str]:
        """Return program and arguments, with what was submitted beside them."""
        extra = [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in more]
        if isinstance(self.args, str):
            return ["/bin/sh", "-c", self.args, "sh", *extra]
        return [*self.args, *extra]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command that succeeded left: its output, as far as the limit goes, and how much of it was dropped."""

    returncode: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_dropped: int = 0
    stderr_dropped: int = 0

    @property
    def stdout(self) -> str:
        """The output as text; bytes that are no UTF-8 are shown as escapes."""
        return _text(self.stdout_bytes)

    @property
    def stderr(self) -> str:
        """The error output as text."""
        return _text(self.stderr_bytes)


class _Tail:
    """The last bytes of a stream, and how many came before them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self._limit + 4096:
            self._cut()

    def take(self) -> bytes:
        self._cut()
        return bytes(self._data)

    def _cut(self) -> None:
        surplus = len(self._data) - self._limit
        if surplus > 0:
            del self._data[:surplus]
            self.dropped += surplus


class _Running:
    """One running command and what it was told."""

    def __init__(self, process: subprocess.Popen[bytes], command: Command) -> None:
        assert process.stdout is not None, "both are pipes"
        assert process.stderr is not None, "both are pipes"
        self.process = process
        self.group = process.pid
        self.tails = {pipe.fileno(): _Tail(command.limit) for pipe in (process.stdout, process.stderr)}
        self._on_output = command.on_output
        self._lock = threading.Lock()
        self._is_terminated = False
        self._is_stopped = False
        self._is_over = False  # its group is no more; the number may be another's

    def follow(self, handle: Handle[Any]) -> bool:
        """Send the signals that bring the command to what is wished of it; return whether it has just been stopped."""
        with self._lock:
            wished = handle._signal
            if wished is None:
                return False
            if wished.aborted:
                if not self._is_terminated:
                    self._is_terminated = True
                    self._send(signal.SIGTERM)
                    self._send(signal.SIGCONT)  # one that is stopped would never see it
            elif wished.pause_asked != self._is_stopped:
                self._is_stopped = wished.pause_asked
                self._send(signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
                return self._is_stopped
            return False

    def kill(self) -> None:
        """Kill the whole group."""
        with self._lock:
            self._send(signal.SIGKILL)

    def collect(self) -> None:
        """Take in all output until the command has ended."""
        poll = select.poll()
        open_fds = set(self.tails)
        for fd in open_fds:
            poll.register(fd, select.POLLIN)
        end = _EndOf(self.process, poll)
        try:
            while open_fds or not end.has_come:
                events = poll.poll(None if end.is_watched and not end.has_come else PROBE_S * 1000)
                for fd, _ in events:
                    if fd in open_fds:
                        data = os.read(fd, 65536)
                        if data:
                            self.tails[fd].add(data)
                            if self._on_output is not None:
                                self._on_output(data)
                        else:
                            poll.unregister(fd)
                            open_fds.discard(fd)
                end.look(events)
                if end.has_come and not events and not self._anybody_left():
                    break  # the output is held by somebody who has left the group
        finally:
            end.close()

    def finish(self) -> int:
        """Kill what is left of the group and reap the process; return its exit code."""
        with self._lock:
            self._send(signal.SIGKILL)
            code = self.process.wait()
            self._is_over = True
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        deadline = monotonic() + GONE_S
        while has_living(self.group) and monotonic() < deadline:
            sleep(PROBE_S / 10)
        return code

    def _anybody_left(self) -> bool:
        with self._lock:
            self.process.wait()  # as long as it is not reaped, it counts itself
        return has_living(self.group)

    def _send(self, number: int) -> None:
        if not self._is_over:
            send_signal(self.group, number)


class _EndOf:
    """Notices that a process has ended, without reaping it: its number, and its group's, stay taken."""

    def __init__(self, process: subprocess.Popen[bytes], poll: select.poll) -> None:
        self._process = process
        self._poll = poll
        self.has_come = False
        self._fd = -1
        if hasattr(os, "pidfd_open"):
            try:
                self._fd = os.pidfd_open(process.pid)
            except OSError:
                return
            poll.register(self._fd, select.POLLIN)

    @property
    def is_watched(self) -> bool:
        return self._fd >= 0

    def look(self, events: list[tuple[int, int]]) -> None:
        if self.has_come:
            return
        if self._fd < 0:
            self.has_come = self._process.poll() is not None
        elif any(fd == self._fd for fd, _ in events):
            self.has_come = True
            self._poll.unregister(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class CommandEngine(ThreadEngine):
    """Runs commands, each in a process group of its own."""

    name: ClassVar[str] = "command"
    can_kill: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start without any process."""
        if os.name != "posix":
            raise ConfigError("the command engine needs the process groups and signals of POSIX")
        super().__init__()
        self._running: dict[Handle[Any], _Running] = {}
        self._doomed: WeakSet[Handle[Any]] = WeakSet()  # to be killed as soon as they run
        self._watch = Watch()

    def abort(self, handle: Handle[Any]) -> None:
        """Send SIGTERM."""
        self._follow(handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Send SIGKILL."""
        running = self._running.get(handle)
        if running is not None:
            running.kill()
        else:
            self._doomed.add(handle)

    def pause(self, handle: Handle[Any]) -> None:
        """Send SIGSTOP; the command is parked at once."""
        self._follow(handle)

    def resume(self, handle: Handle[Any]) -> None:
        """Send SIGCONT."""
        self._follow(handle)

    def close(self) -> None:
        """Let threads and the reaper process end."""
        super().close()
        self._watch.close()

    def failed(self, handle: Handle[Any], error: BaseException) -> Ended:
        """Tell a command that failed from one that could not be run."""
        if isinstance(error, CommandFailed):
            return Outcome.ERROR, Cause.EXIT_CODE, handle.failed(error)[2]
        failed = TaskFailed(f"task {handle.id}: its command could not be run: {error}")
        failed.__cause__ = error
        return handle.failed(failed)

    def call(self, handle: Handle[Any]) -> None:
        """Run the command to its end and keep its result."""
        command, more = _command_of(handle)
        self._watch.begin()
        running = _Running(_launch(command, more, self._watch.environment), command)
        try:
            self._running[handle] = running
            self._watch.add(running.group)
            if handle.attention:  # wishes that came before it could be found
                self._follow(handle)
                if handle in self._doomed:
                    running.kill()
            running.collect()
        finally:
            code = running.finish()
            self._running.pop(handle, None)
            self._watch.remove(running.group)
        out, err = running.tails.values()
        result = CommandResult(code, out.take(), err.take(), out.dropped, err.dropped)
        if code:
            _complain(command, result)
        handle._value = result

    def _follow(self, handle: Handle[Any]) -> None:
        running = self._running.get(handle)
        if running is not None and running.follow(handle):
            self.authority.parked(handle)


def _command_of(handle: Handle[Any]) -> tuple[Command, tuple[Any, ...]]:
    fn: Any
    fn, args, kwargs = handle.body()
    if isinstance(fn, str):
        fn = Command(fn)
    if not isinstance(fn, Command):
        raise ConfigError(f"the command engine runs a Command or a shell string, not {fn!r}")
    if kwargs:
        raise ConfigError(f"a command takes no keyword arguments: {', '.join(kwargs)}")
    return fn, args


def _launch(command: Command, more: Sequence[object], mark: Mapping[str, str]) -> subprocess.Popen[bytes]:
    argv = command.argv(more)
    env = {**os.environ, **(command.env or {}), **mark}
    try:
        return subprocess.Popen(  # noqa: S603 - to run it is what the user wants
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=env,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        what = f"cannot run {_short(command)}"
        if command.cwd is not None and not Path(command.cwd).is_dir():
            raise CommandFailed(f"{what}: there is no directory {command.cwd!s}", NOT_FOUND) from error
        if isinstance(error, FileNotFoundError):
            raise CommandFailed(f"{what}: command not found: {argv[0]!r}", NOT_FOUND) from error
        raise CommandFailed(f"{what}: {error}", NOT_EXECUTABLE) from error


def _complain(command: Command, result: CommandResult) -> NoReturn:
    """Raise CommandFailed with how the command ended and the tail of what it said."""
    code = result.returncode
    try:
        how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        how = f"was killed by signal {-code}"
    tail = result.stderr.rstrip()[-TAIL_LENGTH:]
    raise CommandFailed(f"command {_short(command)} {how}{': ' + tail if tail else ''}", code, tail)


def _short(command: Command) -> str:
    text = str(command)
    return repr(text if len(text) <= SHORT_LENGTH else text[: SHORT_LENGTH - 3] + "...")


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
