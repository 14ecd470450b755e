"""Workflow: a workflow file from Python. What ``whywait run`` does, without the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from whywait.errors import ConfigError
from whywait.simulation.simulation import Simulation, SimulationResult
from whywait.support.lazy import asyncio
from whywait.support.units import shown
from whywait.support.waiters import refuse_on_loop
from whywait.support.words import counted
from whywait.workflow.documents import read_document
from whywait.workflow.expand import path_of
from whywait.workflow.one_run import Run
from whywait.workflow.outputs import routed
from whywait.workflow.plan import changed, to_workload
from whywait.workflow.read import read_workflow
from whywait.workflow.result import WorkflowResult
from whywait.workflow.specs import WorkflowSpec


class Workflow:
    """A workflow file that was read and checked: :meth:`load` it, :meth:`run` it as often as you like."""

    __slots__ = ("_spec",)

    def __init__(self, spec: WorkflowSpec) -> None:
        """Made by :meth:`load`."""
        self._spec = spec

    @classmethod
    def load(cls, path: str | PathLike[str], *, set: Mapping[str, Any] | None = None) -> Self:
        """Read and check a file (.toml, .yaml or .json); everything that is wrong with it is one WorkflowError.

        ``set`` changes variables of ``[vars]`` by their names, or any field by its path, before the file is checked:
        ``{"width": 240, "task.encode.priority": "high"}``.
        """
        overrides = [(_path_of(key), value) for key, value in (set or {}).items()]
        return cls(read_workflow(read_document(fspath(path)), overrides))

    @property
    def name(self) -> str:
        """What the file calls itself, or the name of the file."""
        return self._spec.name

    @property
    def tasks(self) -> tuple[str, ...]:
        """The ids of all tasks, each after what it needs."""
        return tuple(task.id for task in self._spec.tasks)

    def run(
        self,
        *,
        only: Iterable[str] = (),
        engine: str | None = None,
        keep_going: bool = False,
        logs: str | PathLike[str] | None = None,
        **authority_options: Any,  # noqa: ANN401 - those of Authority
    ) -> WorkflowResult:
        """Run the tasks, wait until they have ended, and return what came of them; a failure does not raise.

        ``only``: these tasks, and what they need. ``engine``: for functions that name none. ``keep_going``: a failure
        ends nothing but what needs the task, whatever ``on_error`` says. ``logs``: a folder for all that tasks write,
        a file each; what functions on threads print goes there too, instead of to the terminal. All other arguments
        are those of ``Authority`` and win over the file: ``slots=2``, ``events_file="run.jsonl"``. Commands run in the
        folder of the file; functions that share the process have its folder. Ctrl-C ends what was started, and raises.
        """
        refuse_on_loop("Workflow.run()", "await workflow.run_async()")
        job = self._job(only=only, engine=engine, keep_going=keep_going, logs=logs, **authority_options)
        _carry_out(job)
        return WorkflowResult(job)

    async def run_async(self, **options: Any) -> WorkflowResult:  # noqa: ANN401 - those of `run`
        """Do the same as :meth:`run`, with the same arguments, without blocking the event loop.

        If the wait is cancelled, what was started is ended first.
        """
        job = self._job(**options)
        carrying_out = asyncio.ensure_future(asyncio.to_thread(_carry_out, job))
        try:
            await asyncio.shield(carrying_out)
        except asyncio.CancelledError:
            job.interrupt()
            await carrying_out
            raise
        return WorkflowResult(job)

    def simulate(self, **options: Any) -> SimulationResult:  # noqa: ANN401 - those of Simulation
        """Run the file in virtual time, if its tasks have durations; the options are those of ``Simulation``."""
        return Simulation(to_workload(self._spec), **options).run()

    def __repr__(self) -> str:
        """Show name, file and how many tasks."""
        return f"<Workflow {self.name} of {self._spec.source}: {counted(len(self._spec.tasks), 'task')}>"

    def _job(
        self,
        *,
        only: Iterable[str] = (),
        engine: str | None = None,
        keep_going: bool = False,
        logs: str | PathLike[str] | None = None,
        **authority_options: Any,  # noqa: ANN401 - as above
    ) -> Run:
        wanted = [only] if isinstance(only, str) else only
        spec = changed(self._spec, only=wanted, engine=engine, keep_going=keep_going)
        if engine is not None:
            authority_options["engine"] = engine
        folder = None if logs is None else Path(logs).resolve()
        return Run(spec, logs=folder, authority_options=authority_options)


def _carry_out(job: Run) -> None:
    """Run a workflow to its end; whatever comes, nothing of it is left."""
    with routed() if job.outputs.are_kept else nullcontext():
        try:
            job.prepare()
            job.start()
            job.wait()
            job.rest()
        finally:
            job.close()


def _path_of(key: str) -> tuple[str, ...]:
    path = path_of(key)
    if not path:
        raise ConfigError(f"set {shown(key)} is not allowed: expected a name or a path such as task.encode.priority")
    return path
