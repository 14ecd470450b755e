"""The process engine: functions in child processes, which can be killed.

Each thread of the engine looks after one running task: it sends the task to a process and acts on what the process says
until the answer comes. The processes are new interpreters (no fork, nothing of ``__main__`` runs again) with the
parent's ``sys.path``, working directory and output. Functions, arguments and results travel pickled, see
``pickling.py``; context variables stay behind. What bodies start and leave running, in whatever group or session, ends
with the process that ran them.

The engine has no lock of its own. ``_lent`` and ``_running`` are dicts of which threads use single steps or a copy. A
process gets a task, then what is wished of the task is looked at; a wish is there before the process is looked for.
``_broken`` is set once. ``_functions`` may pickle a function twice, under two numbers.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.base import Ended, EngineTask, Lendable, Runtime
from whywait.engines.process.child_state import Lent
from whywait.engines.process.crew import CannotSetUp, Crew, Upkeep
from whywait.engines.process.frames import KIND_BROKEN, KIND_VALUE
from whywait.engines.process.messages import forget_streams
from whywait.engines.process.pickling import Functions, dumps, require_cloudpickle
from whywait.engines.process.process import ChildProcess, NeverReceived, Parcel, identity_of
from whywait.engines.process.results import Failure, NotPickled, failed, raised, returned
from whywait.engines.shortage import Shortage
from whywait.engines.thread import EngineThread, ThreadEngine
from whywait.errors import ConfigError, TaskAborted, TaskFailed
from whywait.kernel.reasons import Placement
from whywait.kernel.state import Cause
from whywait.support.raised import shown_error
from whywait.task.surroundings import signal_of
from whywait.trees.tree import dismiss_guards

if TYPE_CHECKING:
    from concurrent.futures import BrokenExecutor

BROKEN: Final = "the initializer of its worker processes has failed, and none runs a task any more"


class WorkerLost(TaskFailed, BrokenProcessPool):
    """The worker process of a task has died; other tasks go on in others."""


class InitializerFailed(TaskFailed, BrokenProcessPool):
    """The initializer of worker processes has failed: their engine runs no task any more."""


class ProcessEngine(ThreadEngine):
    """Runs functions and coroutine functions in child processes.

    Each new process first calls ``initializer(*initargs)``; if that raises, all tasks fail that do not run yet or come
    later. After ``max_tasks_per_child`` tasks, or if it holds more memory than ``max_ram_per_child``
    (bytes, or "2GB") after a task, all its descendants included, a process ends and another one takes its place.
    """

    name: ClassVar[str] = "process"
    can_kill: ClassVar[bool] = True
    shares_memory: ClassVar[bool] = False
    runs_coroutines: ClassVar[bool] = True
    makes_lazies: ClassVar[bool] = True

    on_broken: Callable[[BrokenExecutor], None] | None = None  # called when the initializer has failed

    def __init__(
        self,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        max_ram_per_child: int | str | None = None,
    ) -> None:
        """Start without any process; they come with the tasks."""
        if sys.platform == "win32":
            raise ConfigError("the process engine needs the pipes and process groups of POSIX: use another engine")
        require_cloudpickle()
        super().__init__()
        self._broken: BrokenExecutor | None = None  # why no process can be set up
        self._functions = Functions()
        self._crew = Crew(Upkeep.checked(initializer, initargs, max_tasks_per_child, max_ram_per_child))
        self._shortage = Shortage(lambda: self._crew.processes)
        self._running: dict[EngineTask, ChildProcess] = {}
        self._lent: dict[Lendable, Lent] = {}
        self._numbers = itertools.count(1)  # of lazy resources

    def attach(self, runtime: Runtime) -> None:
        """Belong to an authority from now on."""
        super().attach(runtime)
        self._crew.grace_s = runtime.settings.grace

    @property
    def processes(self) -> list[ChildProcess]:
        """The processes that take tasks."""
        return [process for process in list(self._crew.processes) if not process.is_leaving]

    def abort(self, execution: EngineTask) -> None:
        """Pass the signal on to the process."""
        process = self._running.get(execution)
        if process is not None:
            process.tell(execution)

    pause = resume = abort

    def kill(self, execution: EngineTask) -> None:
        """Kill the process; another one takes its place when it is needed."""
        process = self._running.get(execution)
        if process is not None:
            process.kill(execution)

    def placement(self, execution: EngineTask) -> Placement | None:
        """Return that a task waits for a process, if it does."""
        return self._shortage.placement(self.name, execution)

    def lend(self, resource: Lendable) -> Lent:
        """Return what stands for a lazy resource until it reaches a process, which makes it at the first use there."""
        lent = self._lent.get(resource)
        if lent is None:
            new = Lent(next(self._numbers), repr(resource), dumps(resource.lend_to(self)))
            lent = self._lent.setdefault(resource, new)
        return lent

    def take_back(self, resource: Lendable) -> None:
        """End the processes that hold a lazy resource: they close it."""
        lent = self._lent.pop(resource, None)
        if lent is not None:
            self._crew.end_holders(lent.number)

    def close(self) -> None:
        """Let the processes end; kill those that do not."""
        super().close()
        self._crew.lose_all()
        dismiss_guards()

    def failed(self, execution: EngineTask, error: BaseException) -> Ended:
        """Keep what a body has raised in its process, or why it could not run there; return how it has ended."""
        if not isinstance(error, Failure):
            return super().failed(execution, error)
        outcome, cause, is_retryable = error.ended(execution)
        return outcome, cause, is_retryable and not isinstance(error.error, InitializerFailed)

    def work(self, runner: EngineThread) -> None:
        """Look after tasks; there are no more idle processes than threads."""
        if signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL:  # a write to a closed pipe must not end the program
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        super().work(runner)
        self._crew.retire_idle(len(self._threads) - 1)
        if not self._crew.processes:
            dismiss_guards()

    def call(self, execution: EngineTask) -> None:
        """Have a process run the body, and keep its answer."""
        try:
            parcel = self._pack(execution)
        except BaseException as error:
            what = f"it could not be pickled for a worker process: {error!r}"
            raise failed(execution, what, error, kind=NotPickled) from None
        answer = None
        while answer is None:
            answer = self._run(execution, parcel)
        kind, payload = answer
        if kind != KIND_VALUE:
            raise raised(execution, payload)
        execution.value = returned(execution, payload)

    def _pack(self, execution: EngineTask) -> Parcel:
        fn, args, kwargs = execution.body()
        function = self._functions.pack(fn)
        if not args and not kwargs:
            return *identity_of(execution), function, b"", ()
        handed = execution.to_fetch() if self._lent else ()
        lent = [lent.number for resource, lent in list(self._lent.items()) if resource in handed] if handed else []
        return *identity_of(execution), function, dumps((args, kwargs)), lent

    def _run(self, execution: EngineTask, parcel: Parcel) -> tuple[int, bytes | bytearray] | None:
        """Have a process run the body; return its answer, or None if another process has to."""
        process = self._find(execution)
        self._running[execution] = process
        try:
            process.measure(self.teller(execution))
            execution.usage_now = process.used_so_far
            process.begin(execution, execution.number)
            if execution.attention:
                signal_of(execution).raise_if_aborted()
            answer = process.run(parcel)
        except TaskAborted:
            self._release(process)
            raise
        except NeverReceived as error:
            self._crew.lose(process)
            if not process.answers:  # the system gave it no thread
                if not self._crew.processes:
                    raise self._unstarted(execution, error) from None
                self._shortage.wait_for_room(execution, str(error))
            return None
        except Exception as error:
            if not isinstance(error, EOFError | OSError):
                self.runtime.log.warning("a worker process answered nonsense: %r", error)
            raise self._lost(execution, process) from None
        finally:
            execution.usage_now = None
            del self._running[execution]
        self._take_answer(execution, process, *answer)
        return answer

    def _take_answer(self, execution: EngineTask, process: ChildProcess, kind: int, payload: bytes | bytearray) -> None:
        """Take note of what a process has used, and let it go on; raise if its initializer has failed."""
        if kind == KIND_BROKEN:
            self._crew.see_off(process)
            self._break(raised(execution, payload).error)
            raise self._refusal(execution)
        process.answers += 1
        used = process.used()
        if used is not None:
            execution.facts = used.facts()
        if kind != KIND_VALUE:
            process.forget_functions()
        self._release(process)

    def _find(self, execution: EngineTask) -> ChildProcess:
        """Return a process for a task; as long as the system gives none, wait for one that is free."""
        try:
            return self._shortage.start(execution, partial(self._idle_or_new, execution))
        except CannotSetUp as error:
            self._break(error.args[0])
            raise self._refusal(execution) from None
        except (TaskAborted, Failure):
            raise
        except Exception as error:
            raise self._unstarted(execution, error) from None

    def _idle_or_new(self, execution: EngineTask, may_start: bool) -> ChildProcess | None:  # noqa: FBT001 - as Shortage has it
        if self._broken is not None:
            raise self._refusal(execution)
        return self._crew.idle(execution.units) or (self._crew.start(execution.units) if may_start else None)

    def _unstarted(self, execution: EngineTask, error: Exception) -> Failure:
        return failed(execution, f"no worker process could be started: {error}", error, Cause.WORKER_LOST)

    def _release(self, process: ChildProcess) -> None:
        """Keep a process for the next task, or have it end if it has served long enough."""
        process.end()
        if process.outlets:
            forget_streams(process)
        if not self._crew.has_served(process):
            self._crew.let_idle(process)
            self._shortage.make_room()
            return
        process.is_leaving = True
        try:
            threading.Thread(target=self._crew.see_off, args=(process,), name="whywait-process-end").start()
        except RuntimeError:  # the system gives no thread
            self._crew.see_off(process)

    def _lost(self, execution: EngineTask, process: ChildProcess) -> Failure:
        """Bury a process that has died over a task; return the failure of the task."""
        how = self._crew.lose(process)
        self._shortage.make_room()
        execution.facts = process.last_facts()
        cause = Cause.OUT_OF_MEMORY if process.is_out_of_memory else Cause.WORKER_LOST
        return failed(execution, f"its worker process (pid {process.pid}) was lost: {how}", None, cause, WorkerLost)

    def _break(self, error: BaseException) -> None:
        """Let no process run a task any more: the initializer has failed."""
        if self._broken is None:
            self._broken = InitializerFailed(f"{BROKEN}: {shown_error(error)}")
            self._broken.__cause__ = error
            if self.on_broken is not None:
                self.on_broken(self._broken)

    def _refusal(self, execution: EngineTask) -> Failure:
        assert self._broken is not None, "nothing is refused before"
        return failed(execution, str(self._broken), self._broken.__cause__, Cause.WORKER_LOST, InitializerFailed)
