"""Libraries that take a whole batch: joblib and dask's threaded scheduler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import dask
import joblib

from contestants.base import Body, Contestant, Graph


class Joblib(Contestant):
    """joblib.Parallel with threads."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Run a batch; its threads start before the clock."""
        with joblib.Parallel(n_jobs=workers, backend="threading", batch_size=1) as parallel:
            parallel(joblib.delayed(fn)() for _ in range(workers * 4))
            begin = time.perf_counter()
            parallel(joblib.delayed(fn)() for _ in range(tasks))
            return {"total": time.perf_counter() - begin}

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Run a batch."""
        with joblib.Parallel(n_jobs=workers, backend="threading", batch_size=1) as parallel:
            results: list[Any] = parallel(joblib.delayed(fn)(arg) for arg in args)
            return results


class DaskThreads(Contestant):
    """dask.delayed on the threaded scheduler."""

    def no_ops(self, workers: int, tasks: int, fn: Body) -> dict[str, float]:
        """Build and compute delayed calls."""
        return {"total": self.graph(workers, [()] * tasks, fn, [0] * tasks)}

    def run_all(self, workers: int, fn: Body, args: Sequence[Any]) -> list[Any]:
        """Compute delayed calls."""
        call = dask.delayed(fn, pure=False)
        return list(dask.compute(*[call(arg) for arg in args], scheduler="threads", num_workers=workers))

    def graph(self, workers: int, graph: Graph, fn: Body, args: Sequence[Any]) -> float:
        """Build a graph of delayed calls and compute it."""
        call = dask.delayed(fn, pure=False)
        dask.compute(call(args[-1]), call(args[-1]), scheduler="threads", num_workers=workers)
        begin = time.perf_counter()
        nodes: list[Any] = []
        for dependencies, arg in zip(graph, args, strict=True):
            nodes.append(call(arg, *[nodes[each] for each in dependencies]))
        dask.compute(*nodes, scheduler="threads", num_workers=workers)
        return time.perf_counter() - begin
