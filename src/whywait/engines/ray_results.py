"""What came of bodies on a cluster: results that stay there until somebody asks, and errors in our words."""

from __future__ import annotations

import copy
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ObjectLostError, RayError, RayTaskError

from whywait.elsewhere import Elsewhere
from whywait.engines.answers import failed, raised
from whywait.engines.base import SUCCEEDED, Ended
from whywait.engines.frames import KIND_ERROR
from whywait.engines.ray_switchboard import KIND_SMALL
from whywait.errors import TaskFailed
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.engines.ray_child import Status
    from whywait.engines.ray_outpost import Outpost
    from whywait.handle import Handle

log = logging.getLogger("whywait")


class InStore(Elsewhere):
    """A result in the object store of the cluster."""

    __slots__ = ("_is_here", "_lock", "_task_id", "_value", "ref")

    def __init__(self, task_id: str, ref: Any) -> None:  # noqa: ANN401 - a reference of Ray
        self._task_id = task_id
        self._lock = threading.Lock()
        self.ref = ref  # None: the cluster is gone
        self._is_here = False
        self._value: Any = None

    def fetch(self) -> Any:  # noqa: ANN401 - any result
        """Return the result; it is brought here at the first call. Raise TaskFailed if it is lost."""
        with self._lock:
            if not self._is_here:
                if self.ref is None:
                    raise TaskFailed(f"task {self._task_id}: its result was lost with the cluster")
                try:
                    self._value = ray.get(self.ref)
                except RayError as error:
                    raise TaskFailed(f"task {self._task_id}: its result was lost on the cluster: {error}") from error
                self._is_here = True
            return self._value

    def detach(self) -> None:
        """Bring the result here: the cluster is about to end."""
        try:
            self._value = copy.deepcopy(self.fetch())  # what Ray gives may lie in its memory
        except Exception as error:  # noqa: BLE001 - whoever asks will be told
            log.debug("the result of task %s did not survive the cluster: %r", self._task_id, error)
        self.ref = None


class Results:
    """Keeps results where they are, and knows those that somebody still holds."""

    def __init__(self) -> None:
        self._in_store: weakref.WeakSet[InStore] = weakref.WeakSet()

    def keep(self, handle: Handle[Any], status: Status, value: Any) -> Ended:  # noqa: ANN401 - a reference, or a value that came along
        """Keep what a body has returned or raised; return how it has ended."""
        kind, payload, *_ = status
        if kind == KIND_ERROR:
            error, cause = raised(handle.id, payload)
            return Outcome.ERROR, cause, handle.failed(error)[2]
        if kind == KIND_SMALL:
            handle._value = payload
        elif isinstance(value, ray.ObjectRef):
            handle._value = stored = InStore(handle.id, value)
            self._in_store.add(stored)
        else:
            handle._value = value
        return SUCCEEDED

    def fetch_all(self) -> None:
        """Bring the results here that somebody still holds: the cluster is about to end."""
        for result in list(self._in_store):
            result.detach()


def lost(outpost: Outpost, error: BaseException) -> Ended:
    """Let a task fail whose worker did not bring it to its end; return how it has ended."""
    handle = outpost.handle
    if isinstance(error, ObjectLostError) or (
        isinstance(error, RayTaskError) and isinstance(error.cause, ObjectLostError)
    ):
        return failed(handle, f"an argument was lost on the cluster: {error}", error, cause=Cause.WORKER_LOST)
    if isinstance(error, RayTaskError):
        cause = error.cause if isinstance(error.cause, BaseException) else error
        return failed(handle, f"what it was given or returned could not be pickled: {cause!r}", error)
    where = f" ({outpost.whereabouts})" if outpost.place else ""
    reason = str(error) or type(error).__name__
    return failed(handle, f"its worker on the cluster{where} was lost: {reason}", error, cause=Cause.WORKER_LOST)
