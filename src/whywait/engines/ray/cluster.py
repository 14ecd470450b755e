"""The connection to a Ray cluster: one for each program, shared by all authorities that use it.

The first authority connects (to the address given, else to ``RAY_ADDRESS``, else to an instance of its own that ends
with the last authority that uses it); a connection that the program has made itself is used and left alone. One
thread follows which nodes there are, another takes what bodies say through the switchboard.

``_shared_lock`` guards which cluster this program has; held while it is joined and left. ``Cluster._lock`` guards which
followers there are, nothing is taken under it; they are looked up, and copied, in one step without it. ``nodes`` and
``has`` are replaced by the thread that follows, ``board`` and its name by the one that takes messages: single values.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from threading import RLock
from typing import Any, Final

from whywait.engines.ray.switchboard import Message, Switchboard
from whywait.errors import ConfigError
from whywait.support.logger import log

try:
    import ray
    from ray._private.state import available_resources_per_node  # an API for developers, and Ray has no other
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    ray = None


LOCAL: Final = "local"  # Ray's own word for an instance of one's own
ANSWER_S: Final = 5.0  # a cluster that is up answers within this
FOLLOW_S: Final = 0.5  # how often to look which nodes there are
_OWN: Final = ("node:", "accelerator_type:")  # resources by which Ray marks nodes
_RENAMED: Final = {"CPU": "cpu", "memory": "ram", "GPU": "gpu"}
_IGNORED: Final = ("object_store_memory",)


def require_ray() -> None:
    """Raise ConfigError, with what to do about it, if Ray is not there."""
    if ray is None:
        raise ConfigError("the ray engine needs Ray: pip install 'whywait[ray]'")


@dataclass(frozen=True)
class Node:
    """A living node of the cluster and what it has, under our names."""

    id: str
    name: str
    resources: dict[str, int]


class Cluster:
    """A connected cluster."""

    def __init__(self, address: str | None, options: dict[str, Any]) -> None:
        self._followers: dict[int, Any] = {}  # the engines of authorities that use it, by the token of their authority
        self._lock = RLock()
        self._is_closed = threading.Event()
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            _connect(address, options)
        self.nodes = _nodes()
        self.has = total(self.nodes)  # all nodes together; 0 of what has gone with its node
        self.board_name = ""
        self.board: Any = None
        self._open_board()
        self._threads = [
            threading.Thread(target=self._follow, name="whywait-ray-nodes", daemon=True),
            threading.Thread(target=self._take, name="whywait-ray-messages", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _open_board(self) -> None:
        name = f"whywait-{uuid.uuid4().hex}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_concurrency": 100_000, "max_restarts": 0, "scheduling_strategy": here}
        self.board = ray.remote(Switchboard).options(name=name, **options).remote()
        self.board_name = name  # last: a worker that gets the name finds the actor

    def add(self, token: int, follower: Any) -> None:
        """Tell a follower what happens from now on."""
        with self._lock:
            self._followers[token] = follower

    def remove(self, token: int) -> bool:
        """Tell a follower nothing more; return whether it was the last."""
        with self._lock:
            self._followers.pop(token, None)
            return not self._followers

    def close(self) -> None:
        """End the connection if it is ours; leave nothing behind on the cluster in any case."""
        self._is_closed.set()
        with suppress(Exception):
            ray.kill(self.board)
        if self.is_ours:
            ray.shutdown()
        for thread in self._threads:
            thread.join(5.0)

    def _follow(self) -> None:
        while not self._is_closed.wait(FOLLOW_S):
            if not ray.is_initialized():  # the program has shut it down: to ask would end the process
                return
            try:
                nodes = _nodes()
            except SystemExit:  # as in _take
                return
            except Exception as error:
                log.debug("the nodes of the Ray cluster cannot be had: %r", error)
                continue
            if nodes != self.nodes:
                self.nodes = nodes
                self.has = {**dict.fromkeys(self.has, 0), **total(nodes)}
                self._each(methodcaller("nodes_changed", nodes))

    def _take(self) -> None:
        while not self._is_closed.is_set():
            try:
                messages: list[Message] = ray.get(self.board.take.remote())
            except SystemExit:  # Ray is shutting down: it raises this in threads that wait for an answer
                return
            except Exception as error:
                if self._is_closed.is_set() or not ray.is_initialized():
                    return
                log.warning("the switchboard of the Ray engine was lost (%r): another one takes its place", error)
                with suppress(RayError):
                    self._open_board()
                self._each(methodcaller("switchboard_lost"))
                continue
            for token, number, count, kind, payload in messages:
                follower = self._followers.get(token)
                if follower is not None:
                    try:
                        follower.take_message(number, count, kind, payload)
                    except Exception:
                        log.exception("a message of task number %d could not be taken in", number)

    def _each(self, tell: Callable[[Any], None]) -> None:
        for follower in list(self._followers.values()):
            try:
                tell(follower)
            except Exception:
                log.exception("the Ray engine could not follow the cluster")


def _connect(address: str | None, options: dict[str, Any]) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address.startswith("ray://"):
        raise ConfigError(
            f"address {address!r}: the ray engine needs a driver on a node of the cluster, not a Ray client: "
            "use 'auto' or 'host:port' there"
        )
    _check_that_it_answers(address)
    ours = {"include_dashboard": False} if address == LOCAL else {}
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, **{**ours, **quiet, **options})
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no connection to the Ray cluster at {address!r}: {error}") from error


def _check_that_it_answers(address: str) -> None:
    """Raise ConfigError if an address names a host and a port where nothing listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"address {address!r}: nothing answers there ({error}): give the address of a Ray cluster that is up, "
            "'auto', or none for an instance of its own"
        ) from error


def _nodes() -> tuple[Node, ...]:
    found = [Node(node["NodeID"], node["NodeName"], _ours(node["Resources"])) for node in ray.nodes() if node["Alive"]]
    return tuple(sorted(found, key=lambda node: node.id))


def _ours(resources: dict[str, float]) -> dict[str, int]:
    """Return what Ray says of resources under our names; whole amounts only."""
    return {
        _RENAMED.get(name, name): int(amount)
        for name, amount in sorted(resources.items())
        if not name.startswith(_OWN) and name not in _IGNORED
    }


def free_on_nodes() -> list[dict[str, int]]:
    """Return what Ray has free on each node, under our names; nothing if it cannot be had."""
    try:
        return [_ours(free) for free in available_resources_per_node().values()]
    except Exception as error:
        log.debug("what the nodes of the Ray cluster have free cannot be had: %r", error)
        return []


def total(nodes: tuple[Node, ...]) -> dict[str, int]:
    """Return what all nodes have together."""
    sums: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.resources.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


_shared: Cluster | None = None
_shared_lock = RLock()


def join(token: int, follower: Any, address: str | None, options: dict[str, Any]) -> Cluster:
    """Return the cluster of this program, connected; the follower hears what happens until it leaves."""
    global _shared  # noqa: PLW0603 - Ray has one connection for each process, too
    require_ray()
    with _shared_lock:
        if _shared is None or not ray.is_initialized():
            _shared = Cluster(address, options)
        elif address is not None and not _is_same(address):
            here = ray.get_runtime_context().gcs_address
            raise ConfigError(
                f"address {address!r}: this program is connected to {here!r}, and Ray allows one at a time"
            )
        _shared.add(token, follower)
        return _shared


def leave(cluster: Cluster, token: int, before_end: Callable[[], object]) -> None:
    """Use a cluster no more; the last one closes it, after ``before_end()`` if everything on it ends with it."""
    global _shared  # noqa: PLW0603 - see join
    with _shared_lock:
        if not cluster.remove(token):
            return
        if cluster.is_ours:
            before_end()
        cluster.close()
        if _shared is cluster:
            _shared = None


def _is_same(address: str) -> bool:
    here: str = ray.get_runtime_context().gcs_address
    return address in ("auto", LOCAL) or address.rsplit("/", 1)[-1] in (here, here.replace("127.0.0.1", "localhost"))
