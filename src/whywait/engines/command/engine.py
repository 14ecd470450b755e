"""The command engine: programs, each with all its descendants.

Each thread of the engine looks after one running command: it collects what the command writes and waits for its end.
The command gets an abort as SIGTERM, a kill as SIGKILL, a pause as SIGSTOP and a resume as SIGCONT, all sent to
everything of its process tree, whatever group or session that is in. Its body has ended when its process has and no
process of its tree can write into its output any more; what it left running without output is killed then.

``_Running._lock`` guards which signals a command was sent; the lock of its tree is taken under it. ``_running`` and
``_doomed`` are a dict and a set whose single steps are atomic: a wish is noted before the command is looked for, and
the command is made known before wishes are.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass
from threading import RLock
from typing import Any, ClassVar, Final, NoReturn

from whywait.engines.base import Ended, EngineTask
from whywait.engines.shortage import Shortage
from whywait.engines.thread import ThreadEngine
from whywait.errors import CommandFailed, ConfigError, TaskFailed, WhywaitError
from whywait.kernel.reasons import Placement
from whywait.kernel.state import Cause, Outcome
from whywait.support.devices import environment_of
from whywait.support.known import Known
from whywait.support.usage import exit_facts, signal_name
from whywait.trees.tree import ProcessTree, StartFailed, dismiss_guards

TAIL_LENGTH: Final = 2000  # of stderr, in the message of an error
SHORT_LENGTH: Final = 200  # of a command, in a message
NOT_EXECUTABLE: Final = 126  # as a shell says it
NOT_FOUND: Final = 127


@dataclass(frozen=True, slots=True)
class Command(Known):
    """A program to run as a task: a shell string (``/bin/sh -c``), or a sequence of program and arguments.

    ``env`` is added to the environment, or is all of it if ``inherit`` is False. At most ``limit`` bytes of stdout, and
    as many of stderr, are kept: the last.
    What ``submit`` is given after the command is appended to its arguments (``$1``, ``$2``... of a shell string).
    ``on_output`` is called with all bytes of both as they come, on the thread that looks after the command: the end of
    the command, and a pause, are noticed when it has returned.
    With ``output``, a file descriptor, both go there and nothing of them is kept; the body ends when all processes of
    the command have. File descriptors in ``held`` stay open, however this program ends, until all of them have. All of
    them have the ``mark`` (see ``trees/system.py``).
    """

    args: str | Sequence[str]
    _: KW_ONLY
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    inherit: bool = True
    limit: int = 1_000_000
    on_output: Callable[[bytes], object] | None = None
    output: int | None = None
    held: Sequence[int] = ()
    mark: int | None = None

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
        """Refuse: the command engine runs commands. Gives ``submit`` the type of the result."""
        raise WhywaitError(f"{self} is carried out by the command engine: submit it without another engine")

    def __str__(self) -> str:
        """Show it as one would type it."""
        return self.args if isinstance(self.args, str) else shlex.join(self.args)

    def known_as(self, id: str | None) -> str:
        """Return what the history calls it: the id of its task, or else the command."""
        return id or str(self)

    def shown_as(self) -> str:
        """Return what its task is shown as: its program, without path and arguments."""
        words = (word for word in self.args.split() if "=" not in word) if isinstance(self.args, str) else self.args
        program = re.match(r"[\w.+-]+", next(iter(words), "").rpartition("/")[2])
        return program[0] if program else "sh"

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
    """One running command, and which signals it was sent."""

    def __init__(self, tree: ProcessTree, outputs: Sequence[int], command: Command) -> None:
        self.tree = tree
        self.tails = {fd: _Tail(command.limit) for fd in outputs}
        self._on_output = command.on_output
        self._lock = RLock()
        self._is_terminated = False
        self._is_stopped = False

    def follow(self, execution: EngineTask, parked: Callable[[], object]) -> None:
        """Send the signals that bring the command to what is wished of it.

        If it is to stop, the thread that looks after it calls ``parked`` when all its processes have.
        """
        with self._lock:
            wished = execution.signal
            if wished is None:
                return
            if wished.aborted:
                if not self._is_terminated:
                    self._is_terminated = True
                    self.tree.send_signal(signal.SIGTERM)
                    self.tree.go_on()  # what is stopped would never see it
            elif wished.pause_asked != self._is_stopped:
                self._is_stopped = wished.pause_asked
                if self._is_stopped:
                    self.tree.stop(parked)
                else:
                    self.tree.go_on()

    def collect(self) -> None:
        """Take in all output until the command has ended and nothing of its tree can write any more."""
        if not self.tails:
            self.tree.wait_all()
            return
        poll = select.poll()
        open_fds = set(self.tails)
        for fd in (*open_fds, self.tree.fileno()):
            poll.register(fd, select.POLLIN)
        while (open_fds or self.tree.exit_code is None) and not self.tree.is_over:
            for fd, _ in poll.poll():
                if fd not in open_fds:
                    self.tree.look()
                elif not self._take(fd):
                    poll.unregister(fd)
                    open_fds.discard(fd)
        for fd in open_fds:  # what was written in the last moment; a process elsewhere may hold the pipe open
            os.set_blocking(fd, False)
            with suppress(BlockingIOError):
                while self._take(fd):
                    pass

    def finish(self) -> int:
        """Kill what is left of the tree, and wait until it is gone; return the exit code of the command."""
        self.tree.close()
        for fd in self.tails:
            os.close(fd)
        assert self.tree.exit_code is not None, "all of the tree has ended"
        return self.tree.exit_code

    def _take(self, fd: int) -> bool:
        """Take in some output; return whether there may be more."""
        data = os.read(fd, 65536)
        if data:
            self.tails[fd].add(data)
            if self._on_output is not None:
                self._on_output(data)
        return bool(data)


class CommandEngine(ThreadEngine):
    """Runs commands, each with all its descendants."""

    name: ClassVar[str] = "command"
    can_kill: ClassVar[bool] = True
    shares_memory: ClassVar[bool] = False

    def __init__(self) -> None:
        """Start without any process."""
        if os.name != "posix":
            raise ConfigError("the command engine needs the processes and signals of POSIX")
        super().__init__()
        self._running: dict[EngineTask, _Running] = {}
        self._shortage = Shortage(lambda: self._running)
        self._doomed: set[int] = set()  # numbers of the attempts that are to be killed, as soon as they run

    def abort(self, execution: EngineTask) -> None:
        """Send SIGTERM."""
        self._follow(execution)

    def kill(self, execution: EngineTask) -> None:
        """Send SIGKILL; a command that is not there yet gets it when it is.

        This notes it and then looks for the command; `call` makes the command known and then looks for the note.
        """
        self._doomed.add(execution.number)
        running = self._running.get(execution)
        if running is not None:
            running.tree.kill()

    def pause(self, execution: EngineTask) -> None:
        """Send SIGSTOP; the command is parked when all its processes have stopped."""
        self._follow(execution)

    def resume(self, execution: EngineTask) -> None:
        """Send SIGCONT."""
        self._follow(execution)

    def close(self) -> None:
        """Let threads and guard processes end."""
        super().close()
        dismiss_guards()

    def failed(self, execution: EngineTask, error: BaseException) -> Ended:
        """Tell a command that failed from one that could not be run."""
        if isinstance(error, CommandFailed):
            cause = Cause.OUT_OF_MEMORY if error.out_of_memory else Cause.EXIT_CODE
            return Outcome.ERROR, cause, execution.failed(error)[2]
        failed = TaskFailed(f"task {execution.label}: its command could not be run: {error}")
        failed.__cause__ = error
        return execution.failed(failed)

    def call(self, execution: EngineTask) -> None:
        """Run the command to its end and keep its result."""
        command, more = _command_of(execution)
        running = self._start(execution, command, more)
        try:
            self._running[execution] = running
            execution.usage_now = lambda: running.tree.usage
            running.tree.measure(self.teller(execution)).begin()
            if execution.attention:  # wishes that came before it could be found
                self._follow(execution)
                if execution.number in self._doomed:
                    running.tree.kill()
            running.collect()
        finally:
            code = running.finish()
            self._running.pop(execution, None)
            self._shortage.make_room()
            self._doomed.discard(execution.number)
            execution.usage_now = None
            execution.facts = (*exit_facts(code), *running.tree.usage.facts())
        out, err = running.tails.values() or (_Tail(0), _Tail(0))
        result = CommandResult(code, out.take(), err.take(), out.dropped, err.dropped)
        if code:
            _complain(command, result, running.tree)
        execution.value = result

    def placement(self, execution: EngineTask) -> Placement | None:
        """Return why the command is not started yet; None if it is."""
        return self._shortage.placement(self.name, execution)

    def _start(self, execution: EngineTask, command: Command, more: Sequence[object]) -> _Running:
        argv = command.argv(more)
        told = environment_of(execution.units)
        try:
            return self._shortage.start(execution, lambda _: _launch(command, argv, told))
        except OSError as error:
            raise _refused(command, argv, error) from error

    def _follow(self, execution: EngineTask) -> None:
        running = self._running.get(execution)
        if running is not None:
            running.follow(execution, lambda: self.runtime.parked(execution))


def _command_of(execution: EngineTask) -> tuple[Command, tuple[Any, ...]]:
    fn: Any
    fn, args, kwargs = execution.body()
    if isinstance(fn, str):
        fn = Command(fn)
    if not isinstance(fn, Command):
        raise ConfigError(f"the command engine runs a Command or a shell string, not {fn!r}")
    if kwargs:
        raise ConfigError(f"a command takes no keyword arguments: {', '.join(kwargs)}")
    return fn, args


def _launch(command: Command, argv: Sequence[str], told: Mapping[str, str]) -> _Running:
    with ExitStack() as theirs, ExitStack() as on_error:
        nothing = os.open(os.devnull, os.O_RDONLY)
        theirs.callback(os.close, nothing)
        to = command.output
        outputs = [_pipe(theirs, on_error) if to is None else (-1, to) for _ in range(2)]
        tree = ProcessTree(
            argv,
            env={**(os.environ if command.inherit else {}), **(command.env or {}), **told},
            cwd=command.cwd,
            files={0: nothing, 1: outputs[0][1], 2: outputs[1][1]},
            held=command.held,
            mark=command.mark,
        )
        on_error.pop_all()
    return _Running(tree, [ours for ours, _ in outputs] if to is None else (), command)


def _pipe(theirs: ExitStack, on_error: ExitStack) -> tuple[int, int]:
    """Return our end and theirs of a new pipe."""
    ours, other = os.pipe()
    on_error.callback(os.close, ours)
    theirs.callback(os.close, other)
    return ours, other


def _refused(command: Command, argv: list[str], error: OSError) -> CommandFailed:
    """Return the error of a command that could not be started."""
    what = f"cannot run {_short(command)}"
    where = error.where if isinstance(error, StartFailed) else ""
    if where == "cwd" and error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return CommandFailed(f"{what}: there is no directory {command.cwd!s}", NOT_FOUND)
    if where == "exec" and error.errno == errno.ENOENT:
        return CommandFailed(f"{what}: command not found: {argv[0]!r}", NOT_FOUND)
    return CommandFailed(f"{what}: {error}", NOT_EXECUTABLE)


def _complain(command: Command, result: CommandResult, tree: ProcessTree) -> NoReturn:
    """Raise CommandFailed with how the command ended and the tail of what it said."""
    code = result.returncode
    how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal_name(-code)}"
    if tree.is_out_of_memory:
        how += " because the system had no more memory"
    elif tree.is_lost:
        how += " because the process that guarded it was killed"
    tail = result.stderr.rstrip()[-TAIL_LENGTH:]
    error = CommandFailed(f"command {_short(command)} {how}{': ' + tail if tail else ''}", code, tail)
    error.out_of_memory = tree.is_out_of_memory
    raise error


def _short(command: Command) -> str:
    text = str(command)
    return repr(text if len(text) <= SHORT_LENGTH else text[: SHORT_LENGTH - 3] + "...")


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
