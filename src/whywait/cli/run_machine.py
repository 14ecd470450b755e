"""``whywait run --machine``: the tasks of a workflow file as jobs of this machine's service, in one scope."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.limits import Retry
from whywait.machine.client import Machine, quoted
from whywait.observe.explain import listed
from whywait.options import RETRY, in_seconds, table
from whywait.support.units import format_ms, printable
from whywait.workflow.callables import command_of
from whywait.workflow.specs import Body, ScopeSpec, TaskSpec, WorkflowSpec

INTERRUPTED: Final = 130
# The options of `whywait run` that mean nothing with --machine, and what to do instead.
INSTEAD: Final = {
    "gpus": "the machine has its own GPUs: start it with whywait up --gpus",
    "engine": "each task is a process of its own there: leave one of the two out",
    "logs": "the service keeps the output of each job: whywait log SCOPE/TASK",
    "trace": "the service tells its events on its page: whywait status --open; or leave out --machine",
    "events": "the service tells its events on its page: whywait status --open; or leave out --machine",
    "record": "only a run of its own is recorded: leave out --machine",
    "devtools": "the service has a page for all its jobs: whywait status --open",
    "port": "the service has a page for all its jobs: whywait status --open",
    "history": "the service has its own history: start it with whywait up --history FILE",
    "suggest": "the service tells what each job used: peak_ram in whywait ls --json; or leave out --machine",
}


def refuse_options(options: Namespace) -> None:
    """Refuse an option that has no effect with ``--machine``."""
    for name, instead in INSTEAD.items():
        if getattr(options, name):
            raise ConfigError(f"--{name} cannot be used with --machine: {instead}")


def run_on_machine(workflow: WorkflowSpec, *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Submit a workflow, follow it unless it is to be left alone; return the exit code."""
    _refuse_what_stays_here(workflow)
    left_aside = [name for name in ("budget", "scheduler", "history") if getattr(workflow, name)]
    if left_aside and not quiet:
        sys.stderr.write(
            f"whywait: the {listed(left_aside)} of the file {'is' if len(left_aside) == 1 else 'are'} left aside: "
            "the machine has its own, for all its jobs\n"
        )
    service = Machine(start=True)
    answer = service.ask(
        "POST",
        "/machine/workflows",
        {
            "name": workflow.name.replace("/", "_"),
            "slots": workflow.slots if workflow.has_slots else None,
            "on_error": workflow.on_error,
            "jobs": [_job(workflow, task) for task in workflow.tasks],
        },
    )
    scope = answer["scope"]
    if detach:
        sys.stdout.write(json.dumps(answer) + "\n" if as_json else f"{scope}\n")
        return 0
    rows = []
    try:
        for job in answer["jobs"]:
            row = service.ask("GET", f"/machine/jobs/{quoted(scope)}%2F{quoted(job['id'])}/wait")
            rows.append(row)
            if not quiet and not as_json:
                sys.stdout.write(_line(row))
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write(f"whywait: {scope} goes on in the service: see whywait ls\n")
        return INTERRUPTED
    if as_json:
        sys.stdout.write(json.dumps({"scope": scope, "jobs": rows}) + "\n")
    return 0 if all(row["outcome"] == "success" for row in rows) else 1


def _refuse_what_stays_here(workflow: WorkflowSpec) -> None:
    """Refuse a file with something that only a run of its own can do."""
    if workflow.periodics:
        raise ConfigError(
            f"{workflow.source}: periodic {workflow.periodics[0].id!r} needs a run of its own: leave out --machine"
        )
    for scope in workflow.scopes:
        if scope != ScopeSpec(scope.key):
            raise ConfigError(
                f"{workflow.source}: scope {scope.key!r} has settings, and needs a run of its own: leave out --machine"
            )


def _job(workflow: WorkflowSpec, task: TaskSpec) -> dict[str, Any]:
    """Return what the service takes for a task."""
    body, folder = task.body, workflow.folder.resolve()
    job: dict[str, Any] = {
        "id": task.id,
        "command": _command(body, workflow),
        "directory": str(folder if body.cwd is None else folder / body.cwd),
        "environment": {**os.environ, **body.env},
        "after": list(task.after),
        "after_ended": list(task.after_ended),
        **{name: value for name, value in in_seconds(task.options).items() if value is not None},
    }
    if task.learned is not None:
        job["ram"] = str(task.learned)
    if isinstance(job.get("retry"), Retry):
        job["retry"] = {name: getattr(job["retry"], name) for name in table(RETRY)}
    devices = job.pop("devices", None)
    if devices:
        job["resources"] = {**job.get("resources", {}), **devices}
    return job


def _command(body: Body, workflow: WorkflowSpec) -> list[str]:
    if body.call is not None:
        return command_of(body.call, workflow.folder.resolve(), body.args, dict(body.kwargs))
    more = [str(each) for each in body.args]
    assert body.run is not None, "a body is a command or a function"
    return ["/bin/sh", "-c", body.run, "sh", *more] if isinstance(body.run, str) else [*body.run, *more]


def _line(row: dict[str, Any]) -> str:
    """Return how a job ended."""
    ran = f" after {format_ms(row['ran_s'] * 1000)}" if row["ran_s"] is not None else ""
    return f"{printable(row['id'])}: {printable(row['why'] or 'succeeded')}{ran}\n"
