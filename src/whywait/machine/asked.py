"""What clients may ask the service for, and the checks of what a request says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final

from whywait.errors import ConfigError, shown
from whywait.kernel.limits import Retry
from whywait.machine.from_python import JobDemands, LeaseDemands
from whywait.trees.system import program_file

OF_LEASES: Final = LeaseDemands.__annotations__.keys() - {"scope"} | {"timeout", "slot"}
OF_JOBS: Final = JobDemands.__annotations__.keys() - {"id", "scope"} | {"after_ended", "slot"}
# What only a shell understands: characters in the name of a program, words of their own, and commands that are no file.
_CHARACTERS: Final = frozenset(" \t\n|&;<>()$`*?'\"~=")
_WORDS: Final = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"))
_BUILTINS: Final = frozenset(("cd", "source", "export", "unset", "alias", "ulimit", "umask", "eval", "exec", "set"))


def check_options(what: str, asked: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse options that there are not."""
    if unknown := asked.keys() - allowed:
        raise ConfigError(f"{what} has no option {', '.join(sorted(unknown))}: use {', '.join(sorted(allowed))}")


def check_name(what: str, name: Any) -> None:
    """Refuse what cannot be the id of a job or the key of a scope."""
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name or name[0] in "@#":
        raise ConfigError(f"{what} {name!r} is not allowed: use printable text without a slash, not with @ or # first")


def check_command(command: Any) -> None:
    """Refuse what no program can be started with."""
    if not isinstance(command, list) or not command or not all(isinstance(each, str) for each in command):
        raise ConfigError(f"command {command!r} is not allowed: use a list of strings, first the program")


def check_job(command: Any, directory: Any, environment: Any, asked: dict[str, Any]) -> None:
    """Refuse what no job can be made of."""
    check_command(command)
    if not isinstance(directory, str) or not os.path.isabs(directory):
        raise ConfigError(f"directory {directory!r} is not allowed: use an absolute path")
    if not isinstance(environment, dict) or not all(isinstance(each, str) for each in environment.values()):
        raise ConfigError("the environment is not allowed: use an object of strings")
    if any("\0" in each for each in (*command, directory, *environment, *environment.values())):
        raise ConfigError("a command, its directory and its environment cannot contain a zero byte")
    check_options("a job", asked, OF_JOBS)
    for name in ("after", "after_ended"):
        ids = asked.get(name) or ()
        if not isinstance(ids, (str, list, tuple)) or not all(isinstance(each, str) for each in ids):
            raise ConfigError(f"{name} {ids!r} is not allowed: use the id of a job, or a list of ids")
    retry = asked.get("retry")
    try:
        Retry(**retry) if isinstance(retry, dict) else Retry(retry or 0)
    except TypeError:
        names = ", ".join(each.name for each in fields(Retry) if each.name != "on")
        raise ConfigError(f"retry {retry!r} is not allowed: use a number, or an object of {names}") from None


def check_programs(batch: Iterable[Mapping[str, Any]]) -> None:
    """Refuse jobs, as they are asked for, whose programs do not exist; but another job may make what comes after it.

    It reads folders, which may be far away: not for the thread of a server. What is wrong with a request otherwise is
    for ``Jobs`` to say.
    """
    for asked in batch:
        command = asked.get("command")
        if isinstance(command, list) and not asked.get("after") and not asked.get("after_ended"):
            with suppress(KeyError, TypeError, AttributeError, IndexError):
                _check_program(command, asked["directory"], asked["environment"])


def _check_program(command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
    """Refuse a command whose program is not found by the PATH of its environment, or from its directory."""
    name = command[0]
    hint = ""
    if _CHARACTERS & set(name) or _WORDS & set(command) or name in _BUILTINS:
        hint = f"; if this is a line for a shell, write: sh -c {shlex.quote(' '.join(command))}"
    try:
        path = program_file(name, environment, directory)
    except FileNotFoundError:
        here = f"; the one in {directory} is ./{name}" if os.path.isfile(os.path.join(directory, name)) else ""
        raise ConfigError(f"the program {shown(name)} was not found in PATH{here}{hint}") from None
    if not os.path.exists(path):
        raise ConfigError(f"the program {shown(name)} does not exist in {directory}{hint}")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise ConfigError(
            f"the program {shown(name)} in {directory} cannot be executed: "
            "it must be a file that you may execute (chmod +x); or name its interpreter first"
        )
