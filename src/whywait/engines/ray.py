"""The Ray engine: functions on a cluster. The kernel permits, Ray places and carries out.

Every permitted task becomes a task of Ray with the same demand; Ray's own retries are off. A pump sends what was
posted and takes in what has ended. Results stay in Ray's object store: the next task on the cluster gets a reference,
this process gets the result when somebody asks. What bodies say and are told while they run goes through the
switchboard, see :mod:`whywait.engines.ray_switchboard`.
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.answers import failed
from whywait.engines.base import NEVER_RAN, Ended, Engine
from whywait.engines.frames import KIND_ERROR
from whywait.engines.messages import forget_streams, take_message
from whywait.engines.pickling import require_cloudpickle
from whywait.engines.pump import Pump
from whywait.engines.ray_batches import PATIENCE_S, Batches
from whywait.engines.ray_cluster import Cluster, Node, join, leave, require_ray, total
from whywait.engines.ray_limits import FollowedLimits, shortages
from whywait.engines.ray_outpost import Outpost, Shipment
from whywait.engines.ray_switchboard import GONE_BACK, KIND_HANDED_BACK, KIND_PLACED
from whywait.kernel.events import Kind
from whywait.kernel.reasons import Placement
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.engines.ray_collector import Collector, Report
    from whywait.engines.ray_parcels import Parcels
    from whywait.engines.ray_results import Results
    from whywait.handle import Handle

IN_FLIGHT: Final = 2000  # tasks of Ray at a time, or PER_CPU if that is more; others wait here, where they cost nothing
PER_CPU: Final = 2
KEPT_AHEAD: Final = 10_000  # before those are looked for whose task is gone
KILL_AGAIN_S: Final = 2.0
SPARED_S: Final = 1.0  # how long whoever is with a task that is to be killed has to get out
STEP_S: Final = 0.01
SILENCE_S: Final = 0.2  # a body that runs is heard of within this
OVERDUE_S: Final = 5.0  # what a body has said comes no more if nothing has come for so long after its end


class RayEngine(Engine):
    """Runs functions and coroutine functions on a Ray cluster.

    ``address`` is that of a cluster (``"auto"``, ``"host:port"``); left out it is ``RAY_ADDRESS``, or an instance of
    Ray that starts and ends with the authority. ``batch``: whether tasks of one function may go to a worker
    together; left out, those do whose function is over in no time. Other options go to ``ray.init``.
    """

    name: ClassVar[str] = "ray"
    can_kill: ClassVar[bool] = True
    runs_coroutines: ClassVar[bool] = True

    def __init__(self, address: str | None = None, *, batch: bool | None = None, **options: Any) -> None:  # noqa: ANN401 - those of Ray
        """Connect when an authority first needs it."""
        require_ray()
        require_cloudpickle()
        self._address = address
        self._options = options
        self._batches = Batches(batch)
        self._pump = Pump("whywait-ray", _do, _do, self._tell, _rest)
        self._inbox: deque[Handle[Any]] = deque()  # permitted, not with Ray yet
        self._outposts: dict[int, Outpost] = {}  # by task number: with Ray
        self._ahead: dict[int, Outpost] = {}  # by task number: over before its turn
        self._lock = threading.RLock()  # who is where: the pump may be two threads for a while
        self._in_flight = 0  # tasks of Ray
        self._most_in_flight = IN_FLIGHT
        self._collector: Collector | None = None
        self._will_send = False  # the pump has been told to
        self._will_look = False  # whether somebody waits for company in vain
        self._cluster: Cluster | None = None
        self._parcels: Parcels
        self._results: Results
        self._limits: FollowedLimits | None = None

    def attach(self, authority: Authority) -> None:
        """Connect to the cluster; what the authority was given no limit for follows it if all tasks run there."""
        super().attach(authority)
        from whywait.engines.ray_parcels import Parcels
        from whywait.engines.ray_results import Results

        self._results = Results()
        self._parcels = Parcels(authority.token)
        self._cluster = join(authority.token, self, self._address, self._options)
        if authority.settings.engine in (self, self.name):
            self._limits = FollowedLimits(authority)
        self.nodes_changed(self._cluster.nodes)

    # The contract

    def start(self, handle: Handle[Any]) -> None:
        """Have the pump send the task."""
        self._inbox.append(handle)
        if not self._will_send:
            self._will_send = True
            self._pump.post(self._send)

    def start_all(self, handles: list[Handle[Any]]) -> None:
        """Have the pump send the tasks; they are taken over in one step that no interrupt divides."""
        handles[:] = filter(self._inbox.append, handles)  # `append` returns None: nothing is left
        self._pump.post(self._send)

    def look_again(self, count: int) -> None:  # noqa: ARG002 - it looks for all
        """Have the pump look for tasks."""
        self._pump.look_again()
        self._pump.post(self._send)

    def abort(self, handle: Handle[Any]) -> None:
        """Pass the signal on; what Ray has not placed yet is withdrawn."""
        outpost = self._outposts.get(handle._task.number)
        if outpost is not None:
            outpost.tell()
            if outpost.place is None:
                self._pump.post(partial(self._withdraw, outpost.shipment))

    def pause(self, handle: Handle[Any]) -> None:
        """Ask the body to park."""
        outpost = self._outposts.get(handle._task.number)
        if outpost is not None:
            outpost.tell()

    def resume(self, handle: Handle[Any]) -> None:
        """Let the body go on."""
        self.pause(handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Kill the worker; Ray starts another one when it needs it."""
        outpost = self._outposts.get(handle._task.number)
        if outpost is not None:
            self._pump.post(partial(self._kill, outpost.shipment))
            self.authority.call_later(KILL_AGAIN_S, partial(self.kill, handle))

    def close(self) -> None:
        """Leave the cluster; one that was started for this ends, and results that somebody holds come here."""
        self._pump.close()
        if self._collector is not None:
            self._collector.close()
        if self._cluster is not None:
            leave(self._cluster, self.authority.token, self._results.fetch_all)
            self._cluster = None

    def placement(self, handle: Handle[Any]) -> Placement | None:
        """Return where a permitted task runs, or that it waits for Ray to place it and what Ray has too little of."""
        outpost = self._outposts.get(handle._task.number)
        if outpost is not None and outpost.place is not None:
            _, node, machine, pid = outpost.place
            return Placement(self.name, node=f"{machine} ({node[:8]})", pid=pid)
        if outpost is not None and monotonic() - outpost.sent_s < SILENCE_S:
            return None  # it may run already: it will soon say so
        cluster = self._cluster
        if cluster is None:
            return Placement(self.name)
        return Placement(self.name, missing=shortages(dict(handle._task.demand), cluster.nodes, cluster.has))

    # Out

    def _send(self) -> None:
        """Send what may be sent."""
        self._will_send = False
        inbox, batches = self._inbox, self._batches
        until_s = monotonic() + STEP_S
        while inbox and self._in_flight < self._most_in_flight:
            if monotonic() > until_s:  # others want a step, too
                self._pump.post(self._send)
                return
            try:
                if self._waits_for_company(inbox[0]):
                    return
                handles = batches.take(inbox)
            except IndexError:  # another thread was at it too
                return
            handles = [handle for handle in handles if not self._is_over(handle)]
            try:
                if handles:
                    self._ship(handles, self._find_ahead(handles[-1], len(handles)))
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                for handle in handles:
                    if handle._task.number not in self._outposts and handle._task.holds_slot:
                        self._report(handle, failed(handle, f"it could not be sent to the cluster: {error!r}", error))

    def _waits_for_company(self, handle: Handle[Any]) -> bool:
        """Return whether a task had better wait until a batch comes back; somebody looks again if none does."""
        if self._is_known(handle) or not self._batches.waits(handle):
            return False
        if not self._will_look:
            self._will_look = True
            self.authority.call_later(PATIENCE_S, self._look)
        return True

    def _look(self) -> None:
        self._will_look = False
        self._pump.post(self._send)

    def _is_known(self, handle: Handle[Any]) -> bool:
        """Return whether a task has gone ahead."""
        number = handle._task.number
        return number in self._outposts or number in self._ahead

    def _is_over(self, handle: Handle[Any]) -> bool:
        """Return whether a task that may start need not be sent: it has gone ahead, or shall not run."""
        if self._take_turn(handle):
            if handle.attention:
                self.abort(handle)
            return True
        if handle.attention and handle.aborted:
            self._report(handle, NEVER_RAN)
            return True
        return False

    def _take_turn(self, handle: Handle[Any]) -> bool:
        """Let a task that has gone ahead be one that has started; what it has said is heard now. False: it has not."""
        number = handle._task.number
        with self._lock:
            ended = self._ahead.pop(number, None)
            if ended is not None:
                self._outposts[number] = ended
            outpost = self._outposts.get(number)
            if outpost is None:
                return False
            kept = outpost.take_turn()
        self._take_in(outpost, kept)
        if ended is not None and ended.ended is not None:
            self._settle(ended, *ended.ended)
        return True

    def _find_ahead(self, handle: Handle[Any], count: int) -> list[Handle[Any]]:
        """Return who may go along with a task because it is next in line for its slot."""
        batches = self._batches
        most = batches.size_of(handle._fn) - count if batches.may_share(handle) else 0
        if most <= 0:
            return []
        following = self.authority.following(handle, batches.look_ahead(most))
        return batches.take_ahead(handle, most, [each for each in following if not self._is_known(each)])

    def _ship(self, handles: list[Handle[Any]], ahead: Iterable[Handle[Any]] = ()) -> None:
        """Send tasks to Ray as one, with those behind that go ahead; what cannot be pickled fails alone."""
        packed = [each for each in map(self._packed, handles) if each is not None]
        if not packed:
            return
        permitted = len(packed)
        along = [each for each in map(partial(self._packed, is_ahead=True), ahead) if each is not None]
        with self._lock:  # whose turn has come since is in other hands, and must not be sent twice
            packed += [each for each in along if not each[0]._task.holds_slot and not self._is_known(each[0])]
            shipment = self._load([handle for handle, _, _ in packed], permitted)
        self._count(shipment, 1)
        try:
            parcels = [parcel for _, parcel, _ in packed]
            self._parcels.send(shipment, parcels, [each for *_, args in packed for each in args], self._has)
        except BaseException as error:  # noqa: BLE001 - Ray pickles the arguments
            self._count(shipment, -1)
            if len(packed) == 1:
                why = f"it could not be pickled for the cluster: {error!r}"
                self._end(shipment.outposts[0], failed(handles[0], why, error))
            else:  # one of them: each by itself
                for outpost in shipment.outposts:
                    self._send_again(outpost)
            return
        self._watcher().watch(shipment, self._in_flight)
        for outpost in shipment.outposts[:permitted]:
            if outpost.handle.attention and outpost.handle.aborted:  # it came meanwhile
                self.abort(outpost.handle)

    def _packed(self, handle: Handle[Any], *, is_ahead: bool = False) -> tuple[Handle[Any], Any, list[Any]] | None:
        """Return a task as it travels; None if it cannot, which one that is ahead is told when its turn comes."""
        try:
            return (handle, *self._parcels.pack(handle, self._board_name))
        except BaseException as error:  # noqa: BLE001 - pickling runs code of the user
            if not is_ahead:
                self._report(handle, failed(handle, f"it could not be pickled for the cluster: {error!r}", error))
            return None

    def _load(self, handles: list[Handle[Any]], permitted: int) -> Shipment:
        assert self._cluster is not None, "it is connected while tasks are sent"
        outposts = [Outpost(handle, self._cluster, self.authority.token) for handle in handles]
        shipment = Shipment(outposts, is_batch=self._batches.may_share(handles[0]))
        for index, outpost in enumerate(shipment.outposts):
            outpost.is_ahead = index >= permitted
            self._outposts[outpost.number] = outpost
        return shipment

    def _count(self, shipment: Shipment, change: int) -> None:
        with self._lock:
            self._in_flight += change
            if shipment.is_batch:
                self._batches.under_way += change

    # In

    def _watcher(self) -> Collector:
        if self._collector is None:
            from whywait.engines.ray_collector import Collector

            self._collector = Collector(lambda reports: self._pump.post(partial(self._take_all, reports)))
        return self._collector

    def _take_all(self, reports: list[Report]) -> None:
        """Take in that Ray has done with shipments."""
        self._batches.came_back()
        for report in reports:
            self._take(*report)
        self._send()
        if not self._inbox:
            self._pump.is_urgent = True  # somebody may wait for one of these

    def _take(self, shipment: Shipment, statuses: list[Any] | None, error: BaseException | None) -> None:
        self._count(shipment, -1)
        if error is not None or statuses is None:
            assert error is not None, "there is a reason if there is no status"
            self._lost(shipment, error)
        else:
            found = zip(shipment.outposts, statuses, shipment.values, strict=True)
            self._advance(shipment, {outpost.number: (status, ref) for outpost, status, ref in found})
        shipment.values = []

    def _advance(self, shipment: Shipment, found: dict[int, tuple[Any, Any]]) -> None:
        """Take in what came of bodies, in their order; each passes its slot on to the one that followed it."""
        outposts = self._living(shipment)
        for index, outpost in enumerate(outposts):
            if outpost.number not in found or not self._is_here(outpost):
                continue
            status, value = found[outpost.number]
            if status[0] == GONE_BACK:
                self._send_again(outpost)
            elif not self._keep_ahead(outpost, status, value):
                following = outposts[index + 1] if index + 1 < len(outposts) else None
                heir = following if following is not None and following.is_ahead else None
                if heir is not None and heir.number in found and found[heir.number][0][0] == GONE_BACK:
                    heir = None
                self._settle(outpost, status, value, heir, heir_runs=heir is not None and heir.number not in found)

    def _keep_ahead(self, outpost: Outpost, status: Any, value: Any) -> bool:  # noqa: ANN401 - see _settle
        """Keep what came of a body until the turn of its task comes; return whether it has yet to come."""
        with self._lock:
            if not self._drop_ahead(outpost):
                return False
            if len(self._ahead) > KEPT_AHEAD:
                self._ahead = {number: kept for number, kept in self._ahead.items() if not kept.handle.done()}
            if not outpost.handle.done():
                outpost.ended = (status, value)
                self._ahead[outpost.number] = outpost
            return True

    def _drop_ahead(self, outpost: Outpost) -> bool:
        """Let a task be as if it had not gone ahead; return whether its turn has yet to come."""
        with self._lock:
            return outpost.is_ahead and self._claim(outpost)

    def _claim(self, outpost: Outpost) -> bool:
        """Take a task off the list of those with Ray; return whether it was there: somebody else may be first."""
        with self._lock:
            is_here = self._is_here(outpost)
            if is_here:
                del self._outposts[outpost.number]
            return is_here

    def _is_here(self, outpost: Outpost) -> bool:
        return self._outposts.get(outpost.number) is outpost

    def _living(self, shipment: Shipment) -> list[Outpost]:
        """Return who of a shipment has not ended and was not sent elsewhere."""
        return [outpost for outpost in shipment.outposts if self._is_here(outpost)]

    def _settle(
        self,
        outpost: Outpost,
        status: Any,  # noqa: ANN401 - a Status, which is a type of Ray's side
        value: Any,  # noqa: ANN401 - a reference, or a value that came along
        heir: Outpost | None = None,
        *,
        heir_runs: bool = False,
    ) -> None:
        """Let a task end as its worker says, when everything that it has sent is here; once, whoever comes first."""
        if not self._is_here(outpost):
            return
        with outpost.lock:
            if status[2] > outpost.received:
                outpost.ended = (status, value)
                self.authority.call_later(OVERDUE_S, partial(self._look_after, outpost, outpost.received))
                return
        self._end(outpost, self._outcome(outpost.handle, status, value), heir, heir_runs=heir_runs)

    def _outcome(self, handle: Handle[Any], status: Any, value: Any) -> Ended:  # noqa: ANN401 - see _settle
        """Keep what a body has returned or raised; return how it has ended."""
        kind, _, sent, took_us = status
        if kind == KIND_ERROR:
            self._batches.failed(handle._fn)
        else:
            self._batches.took(handle._fn, None if sent else took_us)
        return self._results.keep(handle, status, value)

    def _look_after(self, outpost: Outpost, received: int) -> None:
        """Wait no more for what a body has said if nothing comes: it was lost, with its node or the switchboard."""
        if outpost.received > received:
            self.authority.call_later(OVERDUE_S, partial(self._look_after, outpost, outpost.received))
        else:
            self._pump.post(partial(self._give_up, outpost))

    def _give_up(self, outpost: Outpost) -> None:
        if self._is_here(outpost):
            what = f"what it said ({outpost.whereabouts}) was lost on the way"
            self._end(outpost, failed(outpost.handle, what, cause=Cause.WORKER_LOST))

    def _lost(self, shipment: Shipment, error: BaseException) -> None:
        """Let the tasks of a shipment that Ray could not bring to its end fail, or try those again that never began."""
        import ray
        from ray.exceptions import ObjectLostError, RayTaskError, TaskCancelledError

        from whywait.engines.ray_results import lost

        for ref in shipment.values:
            with suppress(Exception):
                ray.get(ref, timeout=0)  # Ray complains of an error that nobody has looked at
        never_began = isinstance(error, TaskCancelledError) and not shipment.is_killed
        if len(shipment.outposts) > 1 and isinstance(error, RayTaskError | ObjectLostError):
            never_began = True  # an argument of one of them was lost or could not be unpickled: each by itself
            self._batches.failed(shipment.outposts[0].handle._fn)
        outposts = self._living(shipment)
        for outpost, following in zip(outposts, [*outposts[1:], None], strict=True):
            if self._drop_ahead(outpost):
                continue  # nobody has permitted it
            if outpost.handle.aborted:
                self._end(outpost, NEVER_RAN)
            elif never_began:
                self._send_again(outpost)
            else:
                self._batches.failed(outpost.handle._fn)
                # Who went along may have run: it is lost, too, rather than run twice.
                heir = following if following is not None and following.is_ahead else None
                self._end(outpost, lost(outpost, error), heir, heir_runs=True)

    def _send_again(self, outpost: Outpost) -> None:
        """Send a task that has not begun once more, never together with others; if its turn has come."""
        if not self._drop_ahead(outpost) and self._claim(outpost) and not self._is_over(outpost.handle):
            self._ship([outpost.handle])

    def _end(self, outpost: Outpost, outcome: Ended, heir: Outpost | None = None, *, heir_runs: bool = False) -> None:
        """Report the end of a task; the slot goes to the heir, whose body has followed in it.

        An heir that still runs gets it whoever has come since; one that is over only if nobody else is next.
        """
        if not self._claim(outpost):
            return
        if outpost.outlets:
            forget_streams(outpost)
        if heir is None or (outcome[0] == Outcome.ERROR and not heir_runs):  # an error may end the whole scope
            self._report(outpost.handle, outcome)
        elif self.authority.hand_on(outpost.handle, outcome, heir.handle, heir_runs=heir_runs):
            if not self._take_turn(heir.handle):
                self.start(heir.handle)  # meanwhile another thread found that it had better not gone ahead
        elif heir_runs and heir.handle.done():  # it was cancelled before its turn: nothing of it may go on
            self._end_worker(heir.shipment)

    def _report(self, handle: Handle[Any], outcome: Ended) -> None:
        self.authority.ended(handle, outcome, None, self._pump.later)

    def _tell(self, handle: Handle[Any]) -> None:
        self.authority._finished(handle)

    # What bodies say

    def take_message(self, number: int, count: int, kind: int, payload: Any) -> None:  # noqa: ANN401 - as the kind has it
        """Take in what a body says, in the order in which it said it, and not before the turn of its task."""
        outpost = self._outposts.get(number) or self._ahead.get(number)
        if outpost is None:
            return
        if kind == KIND_HANDED_BACK:
            self._pump.post(partial(self._take_back, outpost.shipment, payload))
        elif not outpost.keeps((count, kind, payload)):
            self._take_in(outpost, [(count, kind, payload)])

    def _take_in(self, outpost: Outpost, messages: list[tuple[int, int, Any]]) -> None:
        for message in messages:
            for each in outpost.in_order(*message):
                self._hear(outpost, *each)

    def _hear(self, outpost: Outpost, kind: int, payload: Any) -> None:  # noqa: ANN401 - as the kind has it
        if kind == KIND_PLACED:
            outpost.place = payload
            outpost.tell()
            details = (("engine", self.name), ("node", payload[1][:8]), ("machine", payload[2]), ("pid", payload[3]))
            self.authority.note(outpost.handle, Kind.TASK_PLACED, details)
        else:
            take_message(outpost.handle, outpost, kind, payload)
        with outpost.lock:
            outpost.received += 1
            ended = outpost.ended
            if ended is None or ended[0][2] > outpost.received:
                return
        self._pump.post(partial(self._settle, outpost, *ended))

    def _take_back(self, shipment: Shipment, payload: tuple[bytes, list[int]]) -> None:
        """Take what has ended of a shipment, and send those elsewhere that wait behind a body that takes its time."""
        by_number = {outpost.number: outpost for outpost in self._living(shipment)}
        for number in payload[1]:
            if number in by_number:
                self._send_again(by_number[number])
        found = pickle.loads(payload[0])  # noqa: S301 - from our own worker
        self._advance(shipment, {number: (status, value) for number, status, value in found})

    # The cluster

    @property
    def _has(self) -> dict[str, int]:
        return self._cluster.has if self._cluster is not None else {}

    @property
    def _board_name(self) -> str:
        return self._cluster.board_name if self._cluster is not None else ""

    def nodes_changed(self, nodes: tuple[Node, ...]) -> None:
        """Take in which nodes there are now; limits that nobody has set follow them."""
        self._parcels.nodes_changed()
        cpus = total(nodes).get("cpu", 0)
        self._most_in_flight = max(IN_FLIGHT, PER_CPU * cpus)
        self._batches.spread_over(cpus)
        if self._limits is not None:
            self._limits.follow(nodes)

    def switchboard_lost(self) -> None:
        """End what may have had something to say; what is sent from now on uses another one."""
        for outpost in list(self._outposts.values()):
            self._pump.post(partial(self._end_worker, outpost.shipment))

    def _withdraw(self, shipment: Shipment) -> None:
        """Cancel what Ray has not placed; a body that has begun meanwhile does not notice.

        Not at once: Ray ends this whole process if a cancellation meets a task that is on its way to a worker or back
        (ray-project/ray#54846). Who is silent for a while is neither.
        """
        if any(outpost.place is not None for outpost in shipment.outposts):
            return
        too_early_s = shipment.outposts[0].sent_s + SILENCE_S - monotonic()
        if too_early_s > 0:
            self.authority.call_later(too_early_s, lambda: self._pump.post(partial(self._withdraw, shipment)))
        elif self._living(shipment):
            shipment.cancel()

    def _kill(self, shipment: Shipment) -> None:
        """End the worker of a shipment; if others would go down with it, try for a while to withdraw it."""
        if any(not each.is_ahead and not each.handle.aborted for each in self._living(shipment)):
            now_s = monotonic()
            if shipment.kill_asked_s is None:
                shipment.kill_asked_s = now_s
            if now_s - shipment.kill_asked_s < SPARED_S:
                self._withdraw(shipment)
                return  # `kill` comes again
        self._end_worker(shipment)

    def _end_worker(self, shipment: Shipment) -> None:
        if self._living(shipment):
            shipment.cancel(force=True)


def _do(act: Callable[[], None]) -> None:
    act()


def _rest() -> None:
    """Do nothing when there is nothing to do."""
