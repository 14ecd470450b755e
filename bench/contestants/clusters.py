"""Systems made for clusters, on one machine: dask.distributed, Parsl, Ray."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from contestants.base import Contestant, NotOffered, Pool, hold_by_file
from task_bodies import held_by_file, nothing


class Distributed(Contestant):
    """A LocalCluster of one worker with threads."""

    dags = True

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Start scheduler, worker and client in this process."""
        from distributed import Client, LocalCluster  # noqa: PLC0415 - each peer is imported for itself only

        logging.getLogger("distributed").setLevel(logging.ERROR)
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=workers,
                processes=False,
                dashboard_address=None,
                silence_logs=logging.ERROR,
            ) as cluster,
            Client(cluster) as client,
        ):
            self.client = client
            yield Pool(lambda fn, *args: client.submit(fn, *args, pure=False), client.gather)

    def dispose(self, tasks: int) -> float:
        """Cancel all futures."""
        with self.open(1) as pool:
            let_go = self.hold(pool)
            futures = [pool.submit(nothing) for _ in range(tasks)]
            begin = time.perf_counter()
            self.client.cancel(futures)
            elapsed = time.perf_counter() - begin
            let_go()
        return elapsed

    def stream(self, blocked: int, tasks: int) -> float:
        """Block tasks by a dependency: with ones blocked by a worker's resource, the stream stood still."""
        with self.open(2) as pool:
            gate = Path(tempfile.mkdtemp()) / "gate"
            holder = pool.submit(held_by_file, str(gate))
            waiting = [pool.submit(nothing, holder) for _ in range(blocked)]
            pool.submit(nothing).result()
            begin = time.perf_counter()
            for _ in range(tasks):
                pool.submit(nothing).result()
            elapsed = time.perf_counter() - begin
            gate.touch()
            pool.results(waiting)
        return elapsed


class ParslThreads(Contestant):
    """Parsl with its thread executor."""

    dags = True
    writes_log = True  # as it does unless told otherwise

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Load a configuration."""
        import parsl  # noqa: PLC0415 - each peer is imported for itself only
        from parsl.config import Config  # noqa: PLC0415
        from parsl.executors import ThreadPoolExecutor  # noqa: PLC0415

        config = Config(
            executors=[ThreadPoolExecutor(max_threads=workers)],
            run_dir=tempfile.mkdtemp(),
            initialize_logging=self.writes_log,
        )
        app = cache(parsl.python_app)
        with parsl.load(config):
            yield Pool(lambda fn, *args: app(fn)(*args), lambda futures: [future.result() for future in futures])
        parsl.clear()

    def cancel(self, future: Any) -> None:  # noqa: ANN401, ARG002 - its own kind of future
        """Not offered: AppFuture.cancel raises NotImplementedError."""
        raise NotOffered

    def stream(self, blocked: int, tasks: int) -> float:
        """Block tasks by a dependency: Parsl has no resources."""
        gate = threading.Event()
        with self.open(2) as pool:
            holder = pool.submit(gate.wait)
            waiting = [pool.submit(nothing, holder) for _ in range(blocked)]
            begin = time.perf_counter()
            for _ in range(tasks):
                pool.submit(nothing).result()
            elapsed = time.perf_counter() - begin
            gate.set()
            pool.results(waiting)
        return elapsed


class ParslQuiet(ParslThreads):
    """The same without the log that Parsl writes."""

    writes_log = False


class Ray(Contestant):
    """Ray on this machine alone; its workers are processes."""

    dags = True
    workers = 0  # of the Ray that runs; it ends with this process

    @contextmanager
    def open(self, workers: int) -> Iterator[Pool]:
        """Start a Ray of its own, whatever else runs on this machine, or go on with the one from before."""
        import ray  # noqa: PLC0415 - each peer is imported for itself only

        if workers != self.workers:
            ray.shutdown()
            ray.init(
                address="local",
                num_cpus=workers,
                resources={"licence": 1},
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=200_000_000,
                _temp_dir=tempfile.mkdtemp(),
            )
            self.workers = workers
        remote = cache(ray.remote)
        yield Pool(lambda fn, *args: remote(fn).remote(*args), ray.get)

    def hold(self, pool: Pool) -> Callable[[], None]:
        """Occupy a worker process."""
        return hold_by_file(pool)

    def cancel(self, future: Any) -> None:  # noqa: ANN401 - an object ref
        """Cancel by the ref."""
        import ray  # noqa: PLC0415

        ray.cancel(future)

    def dispose(self, tasks: int) -> float:
        """Cancel every ref, then wait until each says so."""
        import ray  # noqa: PLC0415

        with self.open(1) as pool:
            let_go = self.hold(pool)
            refs = [pool.submit(nothing) for _ in range(tasks)]
            begin = time.perf_counter()
            for ref in refs:
                ray.cancel(ref)
            ray.wait(refs, num_returns=len(refs))
            elapsed = time.perf_counter() - begin
            let_go()
        return elapsed

    def stream(self, blocked: int, tasks: int) -> float:
        """Block tasks by a custom resource that another one holds."""
        import ray  # noqa: PLC0415

        with self.open(2) as pool:
            gate = Path(tempfile.mkdtemp()) / "gate"
            holder = ray.remote(held_by_file).options(resources={"licence": 1}).remote(str(gate))
            licensed = ray.remote(nothing).options(resources={"licence": 1})
            waiting = [licensed.remote() for _ in range(blocked)]
            ray.get(pool.submit(nothing))
            begin = time.perf_counter()
            for _ in range(tasks):
                ray.get(pool.submit(nothing))
            elapsed = time.perf_counter() - begin
            gate.touch()
            ray.get(holder)
            del waiting
        return elapsed
