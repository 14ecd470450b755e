"""The process engine: functions in worker processes, which can be killed.

Each worker thread is the proxy of one worker process: it sends a task, waits for the answer, reports it and takes the
next task in one step. Workers are new interpreters (no fork, nothing of ``__main__`` is run again) with the parent's
``sys.path``, working directory and output. Functions, arguments and results travel pickled, see
:mod:`whywait.engines.pickling`. Context variables stay behind. What a body starts in the worker's process group and
leaves running ends with the worker.
"""

from __future__ import annotations

import logging
import pickle
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from whywait.engines.frames import KIND_PARKED, KIND_VALUE, PARK, FrameError
from whywait.engines.pickling import Functions, dumps, require_cloudpickle
from whywait.engines.thread import ThreadEngine
from whywait.errors import ConfigError, TaskFailed
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.engines.worker_process import WorkerProcess
    from whywait.handle import Handle

log = logging.getLogger("whywait")

Ended = tuple[str, str | None, bool]  # outcome, cause, may be retried


class RemoteTraceback(Exception):  # noqa: N818 - it stands where a traceback would
    """The cause of an error from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        """Show the traceback as if it were printed here."""
        return f'\n"""\n{self.args[0]}"""'


class ProcessEngine(ThreadEngine):
    """Runs functions and coroutine functions in worker processes."""

    name: ClassVar[str] = "process"
    can_kill: ClassVar[bool] = True
    runs_coroutines: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start without any process; they come with the tasks."""
        if sys.platform == "win32":
            raise ConfigError("the process engine needs process groups and pipes of POSIX: use engine='thread' here")
        require_cloudpickle()
        super().__init__()
        self._functions = Functions()
        self._processes: dict[object, WorkerProcess] = {}  # by proxy

    def run(self, handle: Handle[Any], worker: object) -> Ended:
        """Have the body run by this proxy's worker process; return outcome, cause and whether it may be retried."""
        try:
            fn, args, kwargs = handle.body()
            function = self._functions.pack(fn)
            arguments = dumps((args, kwargs)) if args or kwargs else b""
        except BaseException as error:  # noqa: BLE001 - pickling runs code of the user
            return _fail(handle, f"it could not be pickled for a worker process: {error!r}", error)
        try:
            return self._run_packed(handle, worker, function, arguments)
        except BaseException as error:  # noqa: BLE001 - the proxy has to go on, whatever it is
            log.exception("the process engine failed with task %s", handle.id)
            self.worker_ends(worker)
            return _fail(handle, f"the process engine failed: {error!r}", error)

    def abort(self, handle: Handle[Any]) -> None:
        """Pass the signal on to the worker process."""
        self._tell(handle)

    def pause(self, handle: Handle[Any]) -> None:
        """Ask the body in the worker process to park."""
        self._tell(handle)

    def resume(self, handle: Handle[Any]) -> None:
        """Let the body in the worker process go on."""
        self._tell(handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Kill the worker process; the proxy replaces it."""
        any(process.kill(handle) for process in list(self._processes.values()))

    def close(self) -> None:
        """Let the worker processes end; kill those that do not."""
        super().close()
        for worker in list(self._processes):
            self._lose(worker)

    def worker_ends(self, worker: object) -> None:
        """End the process of a proxy that ends."""
        process = self._processes.pop(worker, None)
        if process is not None:
            process.retire()

    def _tell(self, handle: Handle[Any]) -> None:
        any(process.tell(handle) for process in list(self._processes.values()))

    def _run_packed(self, handle: Handle[Any], worker: object, function: tuple[int, bytes], arguments: bytes) -> Ended:
        from whywait.engines.worker_process import NeverReceived, WorkerProcess

        task = handle._task  # noqa: SLF001 - the runtime's own
        label = f"{self.authority.token}\0{task.scope.key}\0{task.id}".encode(errors="surrogatepass")
        while True:
            process = self._processes.get(worker)
            if process is None:
                try:
                    process = self._processes[worker] = WorkerProcess()
                except OSError as error:
                    return _fail(handle, f"no worker process could be started: {error}", error, Cause.WORKER_LOST)
            process.begin(handle)
            try:
                if handle.attention and handle.aborted:
                    return Outcome.ERROR, Cause.EXCEPTION, False
                process.send(task.number, label, function, arguments)
                kind, payload = process.receive()
                while kind == KIND_PARKED:
                    if PARK.unpack(payload)[0] == process.turn:
                        self.authority.parked(handle)
                    kind, payload = process.receive()
            except NeverReceived:
                how = self._lose(worker)
                if not process.is_fresh:
                    continue  # it was gone before: nobody's fault, the next one takes the task
            except (EOFError, OSError, FrameError, MemoryError):
                how = self._lose(worker)
            else:
                process.is_fresh = False
                break
            finally:
                process.end()
            return _fail(handle, f"its worker process (pid {process.pid}) was lost: {how}", None, Cause.WORKER_LOST)
        if kind == KIND_VALUE:
            try:
                handle._value = pickle.loads(payload) if payload else None  # noqa: S301, SLF001 - from our own worker
            except BaseException as error:  # noqa: BLE001 - unpickling runs code of the user
                return _fail(handle, f"its result could not be unpickled: {error!r}", error)
            return Outcome.SUCCESS, None, True
        return _raised(handle, payload)

    def _lose(self, worker: object) -> str:
        """Bury the process of a proxy; return how it ended."""
        process = self._processes.pop(worker, None)
        return process.bury() if process is not None else "the engine was closed"


def _fail(handle: Handle[Any], what: str, error: BaseException | None, cause: str = Cause.EXCEPTION) -> Ended:
    """Let a task fail with an error of our own."""
    failure = TaskFailed(f"task {handle.id}: {what}")
    failure.__cause__ = error
    return Outcome.ERROR, cause, handle.failed(failure)[2]


def _raised(handle: Handle[Any], payload: bytes | bytearray) -> Ended:
    """Let a task fail with what its body raised, if that can be had here."""
    stage, name, text, data = pickle.loads(payload)  # noqa: S301 - from our own worker
    if stage:
        return _fail(handle, f"{stage}: {name}", RemoteTraceback(text))
    error = None
    if data:
        try:
            error = pickle.loads(data)  # noqa: S301 - from our own worker
        except BaseException:  # noqa: BLE001 - unpickling runs code of the user
            log.debug("an error of task %s could not be unpickled", handle.id, exc_info=True)
    if not isinstance(error, BaseException):
        return _fail(handle, f"its body raised {name}, which cannot be pickled", RemoteTraceback(text))
    error.__cause__ = RemoteTraceback(text)
    return handle.failed(error)
