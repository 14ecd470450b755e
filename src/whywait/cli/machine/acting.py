"""The verbs that wait for jobs or act on them: ``wait``, ``retry`` and ``forget``, which are for jobs alone, and
``why``, ``cancel``, ``pause`` and ``resume``, which are for what runs under ``whywait do`` and for served runs too.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial

from whywait.cli.machine.asking import say
from whywait.errors import ConfigError
from whywait.machine.client import Machine, quoted
from whywait.support.words import called

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any, Final

WAIT: Final = """Wait until jobs have ended; leave with the status of the job, of several with the first that is not 0.
If something else than its command ended a job, that is said; without a status, because it never ran, it counts as 1.

  whywait wait 14 && echo done"""

RETRY: Final = """\
Run jobs again that have ended, with the same command, directory, environment and demands; print the new ids.

  whywait retry 14
  whywait retry --failed"""

FORGET: Final = """List ended jobs no longer, and delete their logs.

  whywait forget 14
  whywait forget --ended"""

NOTHING: Final = "nothing"  # was done
# What a job does now, after what a verb has done to it; of one that is paused or has ended the verb says that already.
_NOW: Final = {"DISPOSING": "it is ending", "RUNNING": "it runs", "READY": "it waits", "QUEUED": "it waits"}


def wait_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wait``."""
    parser.add_argument("ids", metavar="ID", nargs="+", help="the jobs")


def wait(options: argparse.Namespace) -> int:
    """Wait for jobs."""
    machine = Machine()
    statuses = []
    for each in options.ids:
        job = machine.ask("GET", f"/machine/jobs/{quoted(each)}/wait")
        has_failed = job["outcome"] != "success"
        if has_failed and job["cause"] != "exit_code":
            say(f"{called(job['id'])} {job['why']}")
        statuses.append(int(has_failed) if job["exit_code"] is None else job["exit_code"])
    return next((status for status in statuses if status), 0)


def _choice(option: str, text: str, parser: argparse.ArgumentParser) -> None:
    """Add ids of jobs, and an option that means all of a kind."""
    parser.add_argument("ids", metavar="ID", nargs="*", help="the jobs")
    parser.add_argument(option, action="store_true", dest="all", help=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


retry_options = partial(_choice, "--failed", "all that have failed and were not retried yet")
forget_options = partial(_choice, "--ended", "all that have ended")


def _chosen(verb: str, options: argparse.Namespace) -> list[Any]:
    """Do a verb to the jobs that were chosen; return the jobs that the answers name."""
    if options.all == bool(options.ids):
        raise ConfigError(
            f"whywait {verb} needs ids of jobs, or an option for all of a kind: see whywait {verb} --help"
        )
    machine = Machine()
    paths = [f"/machine/{verb}"] if options.all else [f"/machine/jobs/{quoted(each)}/{verb}" for each in options.ids]
    jobs = [job for path in paths for job in machine.ask("POST", path, {})["jobs"]]
    if options.json:
        sys.stdout.write(json.dumps(jobs) + "\n")
    return jobs


def retry(options: argparse.Namespace) -> int:
    """Retry jobs."""
    jobs = _chosen("retry", options)
    if not options.json:
        sys.stdout.write("".join(f"{job['id']}\n" for job in jobs))
    return 0


def forget(options: argparse.Namespace) -> int:
    """Forget jobs."""
    _chosen("forget", options)
    return 0


def act_in_words(answer: dict[str, Any]) -> str:
    """Return what a verb has done to a task, and what that does now."""
    done, state = answer["done"], answer["state"]
    if done == NOTHING:
        return f"has ended already ({state}), nothing was changed"
    return f"{done}, {_NOW[state]}" if state in _NOW else done
