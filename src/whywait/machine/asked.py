"""What clients may ask the service for: the options of jobs, and the checks of what a request says."""

from __future__ import annotations

import os
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.kernel.limits import Retry
from whywait.options import JOB, table
from whywait.options import RETRY as OF_RETRY

DEMANDS: Final = ("cpu", "ram", "vram", "gpu", "devices", "resources")
OPTIONS: Final = frozenset(table(JOB))
RETRY: Final = frozenset(table(OF_RETRY))


def check_name(what: str, name: Any) -> None:  # noqa: ANN401 - checked here
    """Refuse what cannot be the id of a job or the key of a scope."""
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name or name[0] in "@#":
        raise ConfigError(f"{what} {name!r} is not allowed: use printable text without a slash, not with @ or # first")


def check_command(command: Any) -> None:  # noqa: ANN401 - checked here
    """Refuse what no program can be started with."""
    if not isinstance(command, list) or not command or not all(isinstance(each, str) for each in command):
        raise ConfigError(f"command {command!r} is not allowed: use a list of strings, first the program")


def check_job(command: Any, directory: Any, environment: Any, asked: dict[str, Any]) -> None:  # noqa: ANN401
    """Refuse what no job can be made of."""
    check_command(command)
    if not isinstance(directory, str) or not os.path.isabs(directory):
        raise ConfigError(f"directory {directory!r} is not allowed: use an absolute path")
    if not isinstance(environment, dict) or not all(isinstance(each, str) for each in environment.values()):
        raise ConfigError("the environment is not allowed: use an object of strings")
    if any("\0" in each for each in (*command, directory, *environment, *environment.values())):
        raise ConfigError("a command, its directory and its environment cannot contain a zero byte")
    if unknown := asked.keys() - OPTIONS:
        raise ConfigError(f"a job has no option {', '.join(sorted(unknown))}: use {', '.join(sorted(OPTIONS))}")
    for name in ("after", "after_ended"):
        ids = asked.get(name) or ()
        if not isinstance(ids, (str, list, tuple)) or not all(isinstance(each, str) for each in ids):
            raise ConfigError(f"{name} {ids!r} is not allowed: use the id of a job, or a list of ids")
    retry = asked.get("retry")
    if isinstance(retry, dict):
        if "times" not in retry or retry.keys() - RETRY:
            raise ConfigError(f"retry {retry!r} is not allowed: use times and {', '.join(sorted(RETRY - {'times'}))}")
        Retry(**retry)
    elif retry is not None and (isinstance(retry, bool) or not isinstance(retry, int) or retry < 0):
        raise ConfigError(f"retry {retry!r} is not allowed: use an int of 0 or more")
