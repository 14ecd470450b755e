"""The engine of jobs: a start is on the disk before the command runs, and all that it writes goes into its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from whywait.engines.base import Ended, EngineTask
from whywait.engines.command.engine import Command, CommandEngine
from whywait.errors import CommandFailed, MachineError
from whywait.machine.home import Home
from whywait.machine.job_log import LogFile
from whywait.machine.jobs import Jobs
from whywait.machine.permissions import Permissions
from whywait.machine.rows import KeptJob
from whywait.support.usage import exit_facts

# What a job has in its environment unless its user has set it, to whatever. Python keeps back what it prints to a file
# until it has a few kilobytes, or for ever if it is killed: nothing would be seen in a log while the job runs.
DEFAULTS: Final = {"PYTHONUNBUFFERED": "1"}


class JobEngine(CommandEngine):
    """Runs the commands of jobs; the body of a task is its :class:`KeptJob`."""

    has_quick_callbacks: ClassVar[bool] = True  # they are the service's own

    def __init__(self, jobs: Jobs, permissions: Permissions, home: Home, alive: int) -> None:
        """Carry out jobs; ``alive``: a file descriptor that stays open as long as anything of a job lives."""
        super().__init__()
        self._jobs = jobs
        self._permissions = permissions
        self._home = home
        self._alive = alive

    def failed(self, execution: EngineTask, error: BaseException) -> Ended:
        """Tell how an attempt has failed, and note whether another one may follow: the kernel decides by that."""
        job: KeptJob = execution.fn
        ended = super().failed(execution, error)
        job.is_retryable = ended[2]
        return ended

    def call(self, execution: EngineTask) -> None:
        """Run the command of a job to its end."""
        job: KeptJob = execution.fn
        job.is_retryable = True
        started, job.started = job.started, None
        if started is None:
            raise MachineError("the service is ending: it notes no further start")
        started()
        if execution.aborted:
            return  # the kernel knows why
        try:
            log = LogFile(self._home.log_of(job.number), job.command, job.decided.attempt)
        except OSError as error:
            raise MachineError(f"the log of job {job.id} cannot be written: {error}") from None
        permission = self._permissions.grant(self._jobs.scope(job.scope), job.id, execution)
        try:
            execution.fn = Command(
                job.command,
                cwd=job.directory,
                env={**DEFAULTS, **job.variables, **permission.environment},
                inherit=False,
                output=log.fileno(),
                held=(self._alive,),
                mark=permission.mark,
            )
            super().call(execution)
        except CommandFailed as error:
            if error.__cause__ is not None:  # it could not be started
                execution.facts = exit_facts(error.returncode)
                log.say(str(error))
            raise
        finally:
            execution.fn = job
            facts = dict(execution.facts)
            log.close(_how(facts), facts.get("peak_ram"))
            permission.end()
            self._permissions.remove(permission)


def _how(facts: Mapping[str, Any]) -> str:
    """Return how a command ended, for its log."""
    if "exit_signal" in facts:
        return f"killed by {facts['exit_signal']}"
    return f"exit {facts['exit_code']}" if "exit_code" in facts else "ended"
