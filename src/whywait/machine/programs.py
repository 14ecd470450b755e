"""Whether the program of a job can be started: looked for as the job would look for it, before the job is accepted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from whywait.errors import ConfigError, shown
from whywait.trees.system import program_file

# What only a shell understands: characters in the name of a program, words of their own, and commands that are no file.
_CHARACTERS: Final = frozenset(" \t\n|&;<>()$`*?'\"~=")
_WORDS: Final = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"))
_BUILTINS: Final = frozenset(("cd", "source", "export", "unset", "alias", "ulimit", "umask", "eval", "exec", "set"))


def check_programs(batch: Iterable[Mapping[str, Any]]) -> None:
    """Refuse jobs, as they are asked for, whose programs do not exist; but another job may make what comes after it.

    It reads folders, which may be far away: not for the thread of a server. What is wrong with a request otherwise is
    for ``Jobs`` to say.
    """
    for asked in batch:
        command = asked.get("command")
        if isinstance(command, list) and not asked.get("after") and not asked.get("after_ended"):
            with suppress(KeyError, TypeError, AttributeError, IndexError):
                check_program(command, asked["directory"], asked["environment"])


def check_program(command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
    """Refuse a command whose program is not found by the PATH of its environment, or from its directory."""
    name = command[0]
    try:
        path = program_file(name, environment, directory)
    except FileNotFoundError:
        here = f"; the one in {directory} is ./{name}" if os.path.isfile(os.path.join(directory, name)) else ""
        raise ConfigError(f"the program {shown(name)} was not found in PATH{here}{_hint(command)}") from None
    if not os.path.exists(path):
        raise ConfigError(f"the program {shown(name)} does not exist in {directory}{_hint(command)}")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise ConfigError(
            f"the program {shown(name)} in {directory} cannot be executed: "
            "it must be a file that you may execute (chmod +x); or name its interpreter first"
        )


def _hint(command: Sequence[str]) -> str:
    """Return how to give the command to a shell, if it looks like a line for one."""
    name = command[0]
    if not (_CHARACTERS & set(name) or _WORDS & set(command) or name in _BUILTINS):
        return ""
    return f"; if this is a line for a shell, write: sh -c {shlex.quote(' '.join(command))}"
