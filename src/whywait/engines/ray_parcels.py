"""Tasks as they travel to a cluster, and the remote function that takes them there."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any, Final

import ray

from whywait.elsewhere import fetched
from whywait.engines.pickling import Functions
from whywait.engines.ray_child import Head, Parcel, carry_out, is_small, make_head
from whywait.engines.ray_limits import in_rays_words
from whywait.engines.ray_outpost import Shipment
from whywait.engines.ray_results import InStore
from whywait.engines.worker_process import label_of
from whywait.handle import Handle

if TYPE_CHECKING:
    from whywait.kernel.model import Demand

FEW: Final = 20  # plain arguments that travel in the parcel
_KEPT_AT_MOST: Final = 1000


class Parcels:
    """Packs tasks and sends them."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._functions = Functions()
        self._paths: tuple[list[str], bytes] = ([], b"")
        self._carry_out = ray.remote(carry_out)
        self._remote: dict[tuple[int, Demand], Any] = {}  # the remote function by number of tasks and demand

    def pack(self, handle: Handle[Any], board: str) -> tuple[Parcel, list[Any]]:
        """Return a task as it travels, and the arguments that Ray had better carry."""
        number, fn = self._functions.pack(handle._fn)
        kwargs = handle._kwargs or {}
        args = [_argument(value) for value in (*handle._args, *kwargs.values())]
        is_plain = all(map(is_small, args)) and len(args) <= FEW
        given = tuple(args) if is_plain else len(args)
        parcel = (board, self._token, handle._task.number, label_of(handle), number, fn, given, tuple(kwargs))
        return parcel, [] if is_plain else args

    def send(self, shipment: Shipment, parcels: list[Parcel], beside: list[Any], has: dict[str, int]) -> None:
        """Send tasks as one task of Ray, to a cluster that ``has`` so much of all it knows.

        Raise if Ray cannot pickle the arguments ``beside`` the parcels.
        """
        head = make_head(self._module_paths(), parcels)
        remote = self._remote_for(shipment.outposts[0].handle._task.demand, len(parcels), has)
        *shipment.values, shipment.status = remote.remote(Head(head) if beside else head, *beside)

    def nodes_changed(self) -> None:
        """Put demands into Ray's words anew: other nodes may know other resources."""
        self._remote.clear()

    def _remote_for(self, demand: Demand, count: int, has: dict[str, int]) -> Any:  # noqa: ANN401 - a remote function
        found = self._remote.get((count, demand))
        if found is None:
            wanted = in_rays_words(dict(demand), has)
            found = self._carry_out.options(num_returns=count + 1, max_retries=0, **wanted)
            if len(self._remote) < _KEPT_AT_MOST:
                self._remote[count, demand] = found
        return found

    def _module_paths(self) -> bytes:
        paths, data = self._paths
        if paths != sys.path:
            paths = sys.path[:]
            data = pickle.dumps([path for path in paths if isinstance(path, str)])
            self._paths = (paths, data)
        return data


def _argument(value: Any) -> Any:  # noqa: ANN401 - any argument
    """Return an argument as Ray takes it: a result on the cluster stays there."""
    if isinstance(value, Handle):
        value = value._value
    if isinstance(value, InStore) and value.ref is not None:
        return value.ref
    return fetched(value)
