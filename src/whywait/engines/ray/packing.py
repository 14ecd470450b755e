"""How a task travels to a cluster: packed as bytes where it is small, and sent as one task of Ray.

A task of Ray gives back two objects: the result, which stays on the cluster until it is fetched, and the status. The
first one costs a tenth of a small task, so a function that has returned nothing but small results gives back the
status alone, with the result in it.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any, Final

import ray

from whywait.engines.process.frames import KIND_ERROR
from whywait.engines.process.pickling import Functions
from whywait.engines.process.process import identity_of
from whywait.engines.ray.child import Head, carry_out, is_small
from whywait.engines.ray.cluster_limits import in_rays_words, of_the_cluster
from whywait.engines.ray.results import InStore
from whywait.engines.ray.switchboard import KIND_SMALL
from whywait.support.elsewhere import fetched

if TYPE_CHECKING:
    from whywait.engines.ray.child import Status
    from whywait.engines.ray.cluster import Cluster
    from whywait.engines.ray.ray_task import RayTask
    from whywait.kernel.limits import Demand

FEW: Final = 20  # small arguments that travel in the head
_KEPT_AT_MOST: Final = 1000


class Packer:
    """Packs tasks of one authority and hands them to Ray."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._functions = Functions()
        self._paths: tuple[list[str], bytes] = ([], b"")
        self._carry_out = ray.remote(carry_out)
        self._remote: dict[tuple[Demand, bool], Any] = {}  # the remote function by demand, and with status alone
        self._is_small: dict[int, bool] = {}  # by number of a function: all its results so far were small

    def send(self, task: RayTask, cluster: Cluster) -> None:
        """Hand a task to Ray, which gives it references of its result and its status.

        Raise what pickling the function or an argument raises.
        """
        execution = task.execution
        number, fn = self._functions.pack(execution.fn)
        task.fn_number, status_alone = number, self._is_small.get(number, False)
        kwargs = execution.kwargs or {}
        args = tuple(map(_argument, execution.kept_arguments()))
        in_head = len(args) <= FEW and all(map(is_small, args))
        head = pickle.dumps(
            (
                self._module_paths(),
                cluster.board_name,
                self._token,
                *identity_of(execution),
                number,
                fn,
                args if in_head else None,
                tuple(kwargs),
                status_alone,
            ),
            pickle.HIGHEST_PROTOCOL,
        )
        remote = self._remote_for(of_the_cluster(execution), cluster, status_alone=status_alone)
        refs = remote.remote(head) if in_head else remote.remote(Head(head), *args)
        task.value, task.status = (None, refs) if status_alone else refs

    def learn(self, task: RayTask, status: Status) -> None:
        """Take note of the kind of result that a function has returned."""
        number, kind = task.fn_number, status[0]
        if number and kind != KIND_ERROR:
            if len(self._is_small) >= _KEPT_AT_MOST:
                self._is_small.clear()
            self._is_small[number] = kind == KIND_SMALL and self._is_small.get(number, True)

    def nodes_changed(self) -> None:
        """Put demands into Ray's words anew: other nodes may know other resources."""
        self._remote = {}

    def _remote_for(self, demand: Demand, cluster: Cluster, *, status_alone: bool) -> Any:
        kept = self._remote  # before it is looked what the cluster has: what is outdated meanwhile is kept nowhere
        found = kept.get((demand, status_alone))
        if found is None:
            wanted = in_rays_words(dict(demand), cluster.has)
            found = self._carry_out.options(num_returns=1 if status_alone else 2, max_retries=0, **wanted)
            if len(kept) < _KEPT_AT_MOST:
                kept[demand, status_alone] = found
        return found

    def _module_paths(self) -> bytes:
        paths, data = self._paths
        if paths != sys.path:
            paths = sys.path[:]
            data = pickle.dumps([path for path in paths if isinstance(path, str)])
            self._paths = (paths, data)
        return data


def _argument(value: Any) -> Any:
    """Return an argument as Ray takes it: a result on the cluster stays there."""
    if isinstance(value, InStore) and value.ref is not None:
        return value.ref
    return fetched(value)
