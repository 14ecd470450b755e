"""The Ray engine: functions on a cluster. The kernel permits, Ray places and carries out.

Every permitted task becomes one task of Ray with the same demand; Ray's own retries are off. A thread sends tasks and
takes in what has ended, see ``posts.py``. Results stay in Ray's object store: the next task on the cluster gets a
reference, this process gets the result when it is fetched. What bodies say, and what they hear, while they run goes
through the switchboard, see ``switchboard.py``.

That thread may be two for a while, and messages come on another one. A task ends once because only the thread that
takes it out of ``_tasks`` reports its end.

``RayEngine._following`` guards the limits that follow the nodes; ``Core.lock`` is taken under it. ``RayTask.lock``
guards the last wish that was sent to a body, and how many of its messages have come; nothing is taken under it.
``Collector._has_more`` guards what the collector asks for. The rest are deques and dicts used in single steps, and
single values: ``_will_send`` is reset before what waits is taken, and what waits is there before it is looked at;
``place`` and ``value`` of a task are set once; of what the packer has learned a value that is lost costs time only.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.base import NEVER_RAN, Ended, Engine, EngineTask, Runtime
from whywait.engines.process.messages import forget_streams, take_message
from whywait.engines.process.pickling import require_cloudpickle
from whywait.engines.process.results import Failure, failed
from whywait.engines.ray.cluster import Cluster, Node, join, leave, require_ray, total
from whywait.engines.ray.cluster_limits import FollowedLimits, of_the_cluster, shortages
from whywait.engines.ray.posts import Posts
from whywait.engines.ray.ray_task import RayTask
from whywait.engines.ray.switchboard import KIND_PLACED
from whywait.kernel.events import Kind
from whywait.kernel.reasons import Placement
from whywait.kernel.state import Cause

if TYPE_CHECKING:
    from whywait.engines.ray.child import Status
    from whywait.engines.ray.ended import Collector, Report
    from whywait.engines.ray.packing import Packer
    from whywait.engines.ray.results import Results

IN_FLIGHT: Final = 2000  # tasks of Ray at a time, or PER_CPU if that is more; others wait here, where they cost nothing
PER_CPU: Final = 2
KILL_AGAIN_S: Final = 2.0
STEP_S: Final = 0.01
SILENCE_S: Final = 0.2  # a body that runs is heard of within this
OVERDUE_S: Final = 5.0  # messages of a body come no more if none has come for so long after its end


class RayEngine(Engine):
    """Runs functions and coroutine functions on a Ray cluster.

    ``address`` is that of a cluster (``"auto"``, ``"host:port"``); left out it is ``RAY_ADDRESS``, or an instance of
    Ray that starts and ends with the authority. Other options go to ``ray.init``.
    """

    name: ClassVar[str] = "ray"
    can_kill: ClassVar[bool] = True
    shares_memory: ClassVar[bool] = False
    runs_coroutines: ClassVar[bool] = True

    def __init__(self, address: str | None = None, **options: Any) -> None:
        """Connect when an authority first needs it."""
        require_ray()
        require_cloudpickle()
        self._address = address
        self._options = options
        self._posts: Posts
        self._waiting: deque[EngineTask] = deque()  # permitted, not with Ray yet
        self._tasks: dict[int, RayTask] = {}  # with Ray, by task number
        self._most_in_flight = IN_FLIGHT
        self._will_send = False  # it is posted
        self._cluster: Cluster | None = None
        self._collector: Collector
        self._packer: Packer
        self._results: Results
        self._limits: FollowedLimits | None = None
        self._following = RLock()

    def attach(self, runtime: Runtime) -> None:
        """Connect to the cluster; limits that the authority was not given follow it if all tasks run there."""
        super().attach(runtime)
        self._posts = Posts(runtime)
        from whywait.engines.ray.ended import Collector
        from whywait.engines.ray.packing import Packer
        from whywait.engines.ray.results import Results

        self._results = Results()
        self._collector = Collector(self._collected)
        self._packer = Packer(runtime.token)
        self._cluster = join(runtime.token, self, self._address, self._options)
        if runtime.settings.engine in (self, self.name):
            self._limits = FollowedLimits(runtime)
        self.nodes_changed(self._cluster.nodes)

    # The contract

    def start(self, execution: EngineTask) -> None:
        """Have the task sent."""
        self._waiting.append(execution)
        if not self._will_send:
            self._will_send = True
            self._posts.post(self._send)

    def abort(self, execution: EngineTask) -> None:
        """Pass the signal on; a task that Ray has not placed yet is withdrawn."""
        task = self._tasks.get(execution.number)
        if task is not None:
            task.tell()
            if task.place is None:
                self._posts.post(partial(self._withdraw, task))

    def pause(self, execution: EngineTask) -> None:
        """Ask the body to park."""
        task = self._tasks.get(execution.number)
        if task is not None:
            task.tell()

    def resume(self, execution: EngineTask) -> None:
        """Let the body go on."""
        self.pause(execution)

    def kill(self, execution: EngineTask) -> None:
        """End the worker; Ray starts another one when it needs it."""
        task = self._tasks.get(execution.number)
        if task is not None:
            self._posts.post(partial(self._end_worker, task))
            self.runtime.call_later(KILL_AGAIN_S, partial(self.kill, execution))

    def close(self) -> None:
        """Leave the cluster; one that was started for this ends, and results that are not too large come here."""
        if self._cluster is not None:
            self._collector.close()
            leave(self._cluster, self.runtime.token, partial(self._results.bring_home, self.runtime.log))
            self._cluster = None

    def placement(self, execution: EngineTask) -> Placement | None:
        """Return where a permitted task runs, or that it waits for Ray to place it and what Ray has too little of."""
        task = self._tasks.get(execution.number)
        if task is not None and task.place is not None:
            _, node, machine, pid = task.place
            return Placement(self.name, node=f"{machine} ({node[:8]})", pid=pid)
        if task is not None and monotonic() - task.sent_s < SILENCE_S:
            return None  # it may run already: it will soon say so
        cluster = self._cluster
        if cluster is None:
            return Placement(self.name)
        return Placement(self.name, missing=shortages(dict(of_the_cluster(execution)), cluster.nodes, cluster.has))

    # Out

    def _send(self) -> None:
        """Send what may be sent, for a while: ends are taken in between."""
        self._will_send = False
        until_s = monotonic() + STEP_S
        while self._waiting and len(self._tasks) < self._most_in_flight:
            if monotonic() > until_s:
                self._posts.post(self._send)
                return
            try:
                execution = self._waiting.popleft()
            except IndexError:  # the other thread was first
                return
            self._send_one(execution)

    def _send_one(self, execution: EngineTask) -> None:
        if execution.attention and execution.aborted:
            self._report(execution, NEVER_RAN)
            return
        assert self._cluster is not None, "it is connected while tasks are sent"
        task = RayTask(execution, self._cluster, self.runtime.token)
        self._tasks[task.number] = task
        try:
            self._packer.send(task, self._cluster)
        except BaseException as error:
            from whywait.engines.ray.results import full_store

            told = full_store(error) or f"it could not be pickled for the cluster: {error!r}"
            self._end(task, partial(_fail, failed(execution, told, error)))
            return
        self._collector.watch(task.number, task.status, len(self._tasks))
        if execution.attention and execution.aborted:  # it came meanwhile
            self.abort(execution)

    # In

    def _collected(self, reports: list[Report]) -> None:
        self._posts.post(partial(self._take, reports))

    def _take(self, reports: list[Report]) -> None:
        """Take in how tasks of Ray have ended: the status of each, or the error of Ray that it has none."""
        from whywait.engines.ray.results import lost

        for number, answer in reports:
            task = self._tasks.get(number)
            if task is None:
                continue
            if isinstance(answer, Exception):
                self._end(task, partial(lost, task, answer))
            else:
                status: Status = pickle.loads(answer)
                self._packer.learn(task, status)
                self._settle(task, status)
        self._send()

    def _settle(self, task: RayTask, status: Status) -> None:
        """Let a task end as its status says, as soon as all messages that its body has sent are here."""
        with task.lock:
            if status[2] > task.received:
                task.ended = status
                self.runtime.call_later(OVERDUE_S, partial(self._look_after, task, task.received))
                return
        self._end(task, partial(self._results.keep, task, status))

    def _look_after(self, task: RayTask, received: int) -> None:
        """Wait no more for messages if none comes: they were lost, with the node or the switchboard."""
        if task.received > received:
            self.runtime.call_later(OVERDUE_S, partial(self._look_after, task, task.received))
        else:
            self._posts.post(partial(self._give_up, task))

    def _give_up(self, task: RayTask) -> None:
        what = f"what it said ({task.whereabouts}) was lost on the way"
        self._end(task, partial(_fail, failed(task.execution, what, cause=Cause.WORKER_LOST)))

    def _end(self, task: RayTask, settle: Callable[[], Ended]) -> None:
        """Let a task end, once: ``settle`` gives its execution a result and returns how it has ended, or fails."""
        if self._tasks.pop(task.number, None) is not None:
            if task.outlets:
                forget_streams(task)
            try:
                outcome = settle()
            except Failure as failure:
                outcome = failure.ended(task.execution)
            self._report(task.execution, outcome)

    def _report(self, execution: EngineTask, outcome: Ended) -> None:
        """Report an end; callbacks of the task, which may be slow, come later than the reports of others."""
        later: deque[EngineTask] = deque()
        self.runtime.report(execution, outcome, None, later)
        if later:
            self._posts.post(partial(self.runtime.tell, execution))

    # What bodies say

    def take_message(self, number: int, count: int, kind: int, payload: Any) -> None:
        """Take in what a body says, in the order in which it said it."""
        task = self._tasks.get(number)
        if task is not None:
            for message in task.in_order(count, kind, payload):
                self._hear(task, *message)

    def _hear(self, task: RayTask, kind: int, payload: Any) -> None:
        if kind == KIND_PLACED:
            task.place = payload
            task.tell()
            details = (("engine", self.name), ("node", payload[1][:8]), ("machine", payload[2]), ("pid", payload[3]))
            self.runtime.note(task.execution, Kind.TASK_PLACED, details)
        else:
            take_message(task.execution, task, kind, payload)
        with task.lock:
            task.received += 1
            status = task.ended
        if status is not None and status[2] <= task.received:
            self._posts.post(partial(self._settle, task, status))

    # The cluster

    def nodes_changed(self, nodes: tuple[Node, ...]) -> None:
        """Take in which nodes there are now; limits that were not set follow them."""
        self._packer.nodes_changed()
        self._most_in_flight = max(IN_FLIGHT, PER_CPU * total(nodes).get("cpu", 0))
        with self._following:  # those of now: this may come from two threads, and the later news first
            if self._limits is not None:
                self._limits.follow(nodes if self._cluster is None else self._cluster.nodes)

    def switchboard_lost(self) -> None:
        """End bodies that may have had something to say; what is sent from now on uses another switchboard."""
        for task in list(self._tasks.values()):
            self._posts.post(partial(self._end_worker, task))

    def _withdraw(self, task: RayTask) -> None:
        """Cancel a task that Ray has not placed; a body that has begun meanwhile does not notice.

        Not at once: Ray ends this whole process if a cancellation meets a task that is on its way to a worker or back
        (ray-project/ray#54846). A task that has been silent for a while is neither.
        """
        if task.place is not None or task.number not in self._tasks:
            return
        too_early_s = task.sent_s + SILENCE_S - monotonic()
        if too_early_s > 0:
            self.runtime.call_later(too_early_s, lambda: self._posts.post(partial(self._withdraw, task)))
        else:
            task.cancel()

    def _end_worker(self, task: RayTask) -> None:
        if task.number in self._tasks:
            task.cancel(force=True)


def _fail(failure: Failure) -> Ended:
    raise failure
