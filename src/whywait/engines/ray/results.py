"""How tasks on a cluster end: results that stay there until they are fetched, and errors in our words."""

from __future__ import annotations

import copy
import weakref
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.exceptions import ObjectLostError, ObjectStoreFullError, OutOfDiskError, RayError, RayTaskError
from ray.experimental import get_object_locations

from whywait.engines.base import NEVER_RAN, SUCCEEDED, Ended
from whywait.engines.process.frames import KIND_ERROR
from whywait.engines.process.results import failed, raised, returned
from whywait.engines.ray.switchboard import KIND_SMALL
from whywait.errors import TaskFailed
from whywait.kernel.state import Cause
from whywait.support.elsewhere import Elsewhere
from whywait.support.logger import Log, log
from whywait.support.units import format_size

if TYPE_CHECKING:
    from whywait.engines.ray.child import Status
    from whywait.engines.ray.ray_task import RayTask


_BROUGHT_HOME: Final = 256_000_000  # bytes in all, when a cluster ends that was started for an authority


class InStore(Elsewhere):
    """A result in the object store of the cluster."""

    __slots__ = ("_is_here", "_label", "_lock", "_lost_with", "_value", "ref")

    def __init__(self, label: str, ref: Any) -> None:
        self._label = label
        self._lock = RLock()
        self.ref = ref  # None: the cluster is gone
        self._lost_with = "the cluster"
        self._is_here = False
        self._value: Any = None

    def fetch(self) -> Any:
        """Return the result; it is brought here at the first call. Raise TaskFailed if it is lost."""
        with self._lock:
            if not self._is_here:
                if self.ref is None:
                    raise TaskFailed(f"task {self._label}: its result was lost with {self._lost_with}")
                try:
                    self._value = ray.get(self.ref)
                except RayError as error:
                    raise TaskFailed(f"task {self._label}: its result was lost on the cluster: {error}") from error
                self._is_here = True
            return self._value

    def let_go(self, size: int) -> None:
        """Leave the result where it is: the cluster is about to end, and it is too large to be brought here unasked."""
        with self._lock:
            if not self._is_here:
                self._lost_with = (
                    f"the cluster, which this program had started: only {format_size(_BROUGHT_HOME)} of results are "
                    f"brought here unasked, and with its {format_size(size)} it was beyond that. Call result() before "
                    "the authority ends, or use a cluster that stays"
                )
                self.ref = None
                return
        self.detach()

    def detach(self) -> None:
        """Bring the result here: the cluster is about to end."""
        try:
            self._value = copy.deepcopy(self.fetch())  # what Ray gives may lie in its memory
        except Exception as error:
            log.debug("the result of task %s did not survive the cluster: %r", self._label, error)
        self.ref = None


class Results:
    """Keeps results where they are, and knows those that are still referred to."""

    def __init__(self) -> None:
        self._in_store: weakref.WeakSet[InStore] = weakref.WeakSet()

    def keep(self, task: RayTask, status: Status) -> Ended:
        """Keep what a body has returned, or raise the failure of its task."""
        execution = task.execution
        kind, payload, _ = status
        if kind == KIND_ERROR:
            raise raised(execution, payload)
        if kind == KIND_SMALL:
            execution.value = payload
        elif task.value is None:
            execution.value = returned(execution, payload)
        else:
            execution.value = stored = InStore(execution.label, task.value)
            self._in_store.add(stored)
        return SUCCEEDED

    def bring_home(self, log: Log) -> None:
        """Bring results here that are still referred to, the small ones first, up to a total: the cluster will end."""
        held = [result for result in self._in_store if result.ref is not None]
        sizes = _sizes(held)
        left, lost = _BROUGHT_HOME, []
        for result in sorted(held, key=sizes.__getitem__):
            left -= sizes[result]
            if left >= 0:
                result.detach()
            else:
                result.let_go(sizes[result])
                lost.append(sizes[result])
        if lost:
            log.warning(
                "%d results (%s) end with the cluster: more than %s is not brought here unasked",
                len(lost),
                format_size(sum(lost)),
                format_size(_BROUGHT_HOME),
            )


def _sizes(results: list[InStore]) -> dict[InStore, int]:
    """Return how large results are; one of which the cluster does not know it is taken to be small."""
    try:
        told = get_object_locations([result.ref for result in results])
    except Exception as error:
        log.debug("the sizes of results on the cluster are not known: %r", error)
        told = {}
    return {result: told.get(result.ref, {}).get("object_size") or 0 for result in results}


def full_store(error: BaseException) -> str | None:
    """Return what to say of an error that means that the cluster has no room for objects; None: it means another."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if not isinstance(cause, ObjectStoreFullError | OutOfDiskError):
        return None
    what = "disk, to which its object store spills," if isinstance(cause, OutOfDiskError) else "object store"
    return (
        f"the {what} of the cluster is full: hold fewer large results at once, hand over smaller ones, "
        "or give Ray more (object_store_memory)"
    )


def lost(task: RayTask, error: BaseException) -> Ended:
    """Raise the failure of a task that Ray did not bring to its end; return how one has ended that never ran."""
    execution = task.execution
    with suppress(Exception):
        if task.value is not None:
            ray.get(task.value, timeout=0)  # Ray complains of an error that nothing has looked at
    if execution.aborted:
        return NEVER_RAN
    told = full_store(error)
    if told is not None:
        raise failed(execution, told, error)
    if isinstance(error, ObjectLostError) or (
        isinstance(error, RayTaskError) and isinstance(error.cause, ObjectLostError)
    ):
        raise failed(execution, f"an argument was lost on the cluster: {error}", error, cause=Cause.WORKER_LOST)
    if isinstance(error, RayTaskError):
        cause = error.cause if isinstance(error.cause, BaseException) else error
        raise failed(execution, f"what it was given or returned could not be pickled: {cause!r}", error)
    where = f" ({task.whereabouts})" if task.place else ""
    reason = str(error) or type(error).__name__
    raise failed(execution, f"its worker on the cluster{where} was lost: {reason}", error, cause=Cause.WORKER_LOST)
