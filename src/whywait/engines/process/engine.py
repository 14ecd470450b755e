"""The process engine: functions in child processes, which can be killed.

One pump (``pump.py``) takes answers, reports them and sends the next tasks in one step. The processes are new
interpreters (no fork, nothing of ``__main__`` runs again) with the parent's ``sys.path``, working directory and
output. Functions, arguments and results travel pickled, see ``pickling.py``; context variables stay behind. What
bodies start and leave running, in whatever group or session, ends with the process that ran them.

The engine has no lock of its own. ``_lent`` and ``_waiting`` are dicts of which threads use single steps or a copy:
only the thread that takes a task out of ``_waiting`` sends it again. ``_broken`` is set once. ``_functions`` may pickle
a function twice, under two numbers. ``_alone_since_s`` is one number, and a moment more or less makes no difference.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended, Engine, EngineTask, Lendable, Runtime
from whywait.engines.process.child_state import Lent
from whywait.engines.process.crew import CannotSetUp, Crew
from whywait.engines.process.frames import KIND_BROKEN, KIND_PARKED, KIND_USE, KIND_VALUE
from whywait.engines.process.messages import forget_streams, take_message
from whywait.engines.process.pickling import Functions, dumps, require_cloudpickle
from whywait.engines.process.process import ChildProcess, NeverReceived, Refused, identity_of
from whywait.engines.process.pump import Pump
from whywait.engines.process.results import NotPickled, failed, raised, returned
from whywait.engines.process.upkeep import make_upkeep
from whywait.errors import ConfigError
from whywait.kernel.reasons import Placement
from whywait.kernel.state import Cause, Outcome
from whywait.support.raised import shown_error
from whywait.trees.tree import AGAIN_S, ALONE_S, SHORTAGES, dismiss_guards

if TYPE_CHECKING:
    from concurrent.futures import BrokenExecutor

BROKEN: Final = "the initializer of its worker processes has failed, and none runs a task any more"
IDLE_S: Final = 30.0  # processes that were not needed for so long end
Parcel = tuple[int, bytes, tuple[int, bytes], bytes, list[int]]  # task number, label, function, arguments, what is lent


class ProcessEngine(Engine):
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
        self._broken: BrokenExecutor | None = None  # why no process can be set up
        self._pump = Pump("whywait-process", self._begin, self._serve, self._tell, self._rest)
        self._functions = Functions()
        self._crew = Crew(make_upkeep(initializer, initargs, max_tasks_per_child, max_ram_per_child), self._when_free)
        self._lent: dict[Lendable, Lent] = {}
        self._numbers = itertools.count(1)  # of lazy resources
        self._waiting: dict[EngineTask, str] = {}  # those for which the system gave no process, and what it said
        self._alone_since_s: float | None = None  # it gives none, and there is none

    def attach(self, runtime: Runtime) -> None:
        """Belong to an authority from now on, and write to its log."""
        super().attach(runtime)
        self._pump.log = runtime.log
        self._crew.grace_s = runtime.settings.grace

    @property
    def processes(self) -> list[ChildProcess]:
        """The processes that take tasks."""
        return [process for process in list(self._crew.processes) if not process.is_leaving]

    def start(self, execution: EngineTask) -> None:
        """Have the pump send the task to a process."""
        self.start_all([execution])

    def start_all(self, executions: list[EngineTask]) -> None:
        """Have the pump send the tasks to processes."""
        try:
            self._pump.post_all(executions)
        except (OSError, RuntimeError) as error:  # the system gives no thread or no pipe
            for execution in self._pump.take_back():
                self.runtime.report(
                    execution, failed(execution, f"no thread could send it to a worker process: {error}", error)
                )

    def abort(self, execution: EngineTask) -> None:
        """Pass the signal on to the process."""
        if not any(process.tell(execution) for process in list(self._crew.processes)):
            self._try_again(execution)

    def pause(self, execution: EngineTask) -> None:
        """Ask the body in the process to park."""
        self.abort(execution)

    def resume(self, execution: EngineTask) -> None:
        """Let the body in the process go on."""
        self.abort(execution)

    def kill(self, execution: EngineTask) -> None:
        """Kill the process; another one takes its place when it is needed."""
        if not any(process.kill(execution) for process in list(self._crew.processes)):
            self._try_again(execution)

    def placement(self, execution: EngineTask) -> Placement | None:
        """Return that a task waits for a process, if it does."""
        said = self._waiting.get(execution)
        return None if said is None else Placement(self.name, lacks=said)

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
        self._pump.close()
        self._crew.lose_all()
        dismiss_guards()

    def _begin(self, execution: EngineTask) -> ChildProcess | None:
        """Send a task to a process; return the process if it has got the task: its answer is to come."""
        return self._sent_or_ended(execution, self._send(execution, None))

    def _sent_or_ended(self, execution: EngineTask, sent: ChildProcess | Ended | None) -> ChildProcess | None:
        if not isinstance(sent, tuple):
            return sent
        self.runtime.report(execution, sent)  # what may start now is posted before the end is told
        return None

    def _serve(self, process: ChildProcess) -> ChildProcess | None:
        """Take what a process sends; return the process from which an answer is to come, if any."""
        if process.is_leaving:
            return self._see_off(process)
        execution = process.execution
        assert execution is not None, "a process that is served runs a task"
        try:
            kind, payload = process.receive()
            while KIND_PARKED <= kind <= KIND_USE:
                take_message(execution, process, kind, payload)
                if not process.has_more():
                    return process
                kind, payload = process.receive()
            outcome = self._take_answer(execution, process, kind, payload)
        except Exception as error:  # noqa: BLE001 - gone, or something else wrote into its pipe: it is of no use
            return self._without_answer(execution, process, error)
        del payload
        kept = None if process.is_leaving or self._has_dismissed(process) else process
        if outcome[0] is not Outcome.SUCCESS:
            process.forget_functions()
            return self._sent_or_ended(execution, self._spare(kept, outcome))
        engine = None if self._waiting else self  # those that wait come before those that start now
        new: EngineTask | None = self.runtime.report(execution, outcome, engine, self._pump.later)
        if new is None:
            self._spare(kept, outcome)
            self._pump.is_urgent = True  # nothing waits for a process: this result may be waited for
            return None
        return self._sent_or_ended(new, self._send(new, kept))

    def _without_answer(self, execution: EngineTask, process: ChildProcess, error: Exception) -> ChildProcess | None:
        """Bury a process that gave no answer; if it has seen nothing of its task, another one gets that."""
        if not isinstance(error, EOFError | OSError):
            self.runtime.log.warning("a worker process answered nonsense: %r", error)
        elif not process.is_fresh and not process.has_taken():
            self._crew.lose(process)
            return self._begin(execution)
        try:
            return self._sent_or_ended(execution, self._lost(execution, process))
        except Refused as refusal:
            return self._sent_or_ended(execution, self._without_process(execution, refusal))

    def _take_answer(
        self, execution: EngineTask, process: ChildProcess, kind: int, payload: bytes | bytearray
    ) -> Ended:
        """Take the answer of a process to its task; return how the task has ended."""
        if kind == KIND_BROKEN:
            process.dismiss()
            process.wait_end(0.0)
            self._crew.lose(process)
            self._break(raised(execution, payload)[0])
            return self._refuse(execution)
        process.answers += 1
        process.end()
        execution.usage_now = None
        used = process.used()
        if used is not None:
            execution.facts = used.facts()
        if process.outlets:
            forget_streams(process)
        return _returned(execution, payload) if kind == KIND_VALUE else _raised(execution, payload)

    def _has_dismissed(self, process: ChildProcess) -> bool:
        """Dismiss a process that has served long enough; return whether it has."""
        if not self._crew.has_served(process):
            return False
        process.dismiss()
        self._pump.watch(process)  # its end is to come
        self.runtime.call_later(self.runtime.settings.grace, process.hurry)
        return True

    def _see_off(self, process: ChildProcess) -> ChildProcess | None:
        """Bury a process that was dismissed, once it has ended."""
        try:
            process.receive()
        except Exception:  # noqa: BLE001 - gone, or of no use
            self._crew.lose(process)
            return None
        return process  # it has something to say yet, to which nothing listens

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            from whywait.engines.process.broken import InitializerFailed

            self._broken = InitializerFailed(f"{BROKEN}: {shown_error(error)}")
            self._broken.__cause__ = error
            if self.on_broken is not None:
                self.on_broken(self._broken)

    def _refuse(self, execution: EngineTask) -> Ended:
        """Let a task fail, for good, because no process can be set up."""
        from whywait.engines.process.broken import InitializerFailed

        assert self._broken is not None, "nothing is refused before"
        failed(execution, str(self._broken), self._broken.__cause__, kind=InitializerFailed)
        return Outcome.ERROR, Cause.WORKER_LOST, False

    def _send(self, execution: EngineTask, process: ChildProcess | None) -> ChildProcess | Ended | None:
        """Send a task to the given process, an idle one or a new one; return which, or how the task has ended.

        None: the system gives no more processes, and the task waits for one that is there.
        A process that is bound to other units than those of the task is not given it.
        """
        if process is not None and process.devices != execution.units:
            self._crew.let_idle(process)
            process = None
        if execution.attention and execution.aborted:
            return self._spare(process, NEVER_RAN)
        try:
            parcel = self._pack(execution)
        except BaseException as error:  # noqa: BLE001 - pickling runs code of the user
            what = f"it could not be pickled for a worker process: {error!r}"
            return self._spare(process, failed(execution, what, error, kind=NotPickled))
        sent = None
        while sent is None:
            if self._broken is not None:
                return self._spare(process, self._refuse(execution))
            try:
                process = process or self._crew.find(execution.units)
            except CannotSetUp as error:
                self._break(error.args[0])
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, the task must not be left without an end
                return self._without_process(execution, error)
            try:
                sent = self._deliver(execution, process, parcel)
            except Refused as refusal:
                return self._without_process(execution, refusal)
            process = None
        return sent

    def _without_process(self, execution: EngineTask, error: Exception) -> Ended | None:
        """Let a task wait for a process that is there, since the system gives no other, or for a while; then it fails.

        It waits before it is looked whether there is one: other threads start processes, or fail to, at the same time.
        """
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            self._waiting[execution] = error.strerror or str(error)
            if self._crew.has_idle(execution.units):  # since it was looked for
                self._try_again(execution)
                return None
            if self._crew.has_any():
                return None
            self._alone_since_s = self._alone_since_s or monotonic()
            if monotonic() < self._alone_since_s + ALONE_S:  # those that have just ended may still be counted
                self.runtime.call_later(AGAIN_S, self._try_next)
                return None
            if self._waiting.pop(execution, None) is None:
                return None
            self._try_next()  # what waited for a process that was being started, and never came
        return failed(execution, f"no worker process could be started: {error}", error, Cause.WORKER_LOST)

    def _pack(self, execution: EngineTask) -> Parcel:
        fn, args, kwargs = execution.body()
        number, label = identity_of(execution)
        function = self._functions.pack(fn)
        if not args and not kwargs:
            return number, label, function, b"", []
        handed = execution.to_fetch() if self._lent else ()
        lent = [lent.number for resource, lent in list(self._lent.items()) if resource in handed] if handed else []
        return number, label, function, dumps((args, kwargs)), lent

    def _deliver(self, execution: EngineTask, process: ChildProcess, parcel: Parcel) -> ChildProcess | Ended | None:
        """Send a task to a process; return it, or how the task has ended, or None if the process was gone before."""
        process.begin(execution, execution.number)
        process.measure(self.teller(execution))
        execution.usage_now = process.used_so_far
        if execution.attention and execution.aborted:  # an abort from now on finds the process by itself
            process.end()
            return self._spare(process, NEVER_RAN)
        try:
            process.send(*parcel)
        except (NeverReceived, OSError) as error:
            process.hear_refusal()
            if process.is_fresh or not isinstance(error, NeverReceived):
                return self._lost(execution, process)
            self._crew.lose(process)  # not the task's fault: another one takes it
            return None
        except Exception as error:  # noqa: BLE001 - a fault of this engine: the task must not be left without an end
            self._crew.lose(process)
            return failed(execution, f"it could not be sent to a worker process: {error!r}", error)
        return process

    def _spare(self, process: ChildProcess | None, outcome: Ended) -> Ended:
        """Keep a process that did not get a task after all."""
        if process is not None:
            self._crew.let_idle(process)
        return outcome

    def _try_again(self, execution: EngineTask) -> None:
        """Have the pump look again for a process for a task, if it waits for one."""
        if self._waiting.pop(execution, None) is not None:
            self._pump.post_all([execution])

    def _try_next(self) -> None:
        """Do so for the task that has waited longest."""
        for execution in list(self._waiting)[:1]:
            self._try_again(execution)

    def _when_free(self) -> None:
        """Do so because a process is idle, or gone so that there may be another."""
        self._alone_since_s = None
        self._try_next()

    def _tell(self, execution: EngineTask) -> None:
        self.runtime.tell(execution)

    def _lost(self, execution: EngineTask, process: ChildProcess) -> Ended:
        """Bury a process that died over a task; raise Refused if it could not even begin."""
        from whywait.engines.process.broken import WorkerLost

        how = self._crew.lose(process)
        if process.refusal is not None:
            raise process.refusal
        execution.facts = process.last_facts()
        cause = Cause.OUT_OF_MEMORY if process.is_out_of_memory else Cause.WORKER_LOST
        return failed(execution, f"its worker process (pid {process.pid}) was lost: {how}", None, cause, WorkerLost)

    def _rest(self) -> bool:
        """End the processes that were not needed for a while; return whether none is left."""
        self._crew.retire_idle(IDLE_S)
        if not self._crew.processes:
            dismiss_guards()
        return not self._crew.processes


def _returned(execution: EngineTask, payload: bytes | bytearray) -> Ended:
    """Take the result of a body."""
    try:
        execution.value = returned(payload)
    except BaseException as error:  # noqa: BLE001 - unpickling runs code of the user
        return failed(execution, f"its result could not be unpickled: {error!r}", error)
    return SUCCEEDED


def _raised(execution: EngineTask, payload: bytes | bytearray) -> Ended:
    """Let a task fail with what its body, or a part of it, raised."""
    error, cause = raised(execution, payload)
    return Outcome.ERROR, cause, execution.failed(error)[2]
