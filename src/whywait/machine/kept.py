"""What a home keeps for the next service beside its jobs: the options of ``whywait up``, and the token of the page."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from contextlib import suppress
from typing import Final

from whywait.errors import MachineError
from whywait.machine.home import Home, private, sync_folder

_TOKEN: Final = re.compile(r"[\w-]{20,200}", re.ASCII)


def read_options(home: Home) -> list[str]:
    """Return the options of ``whywait up`` that the home keeps, as they are written on the command line."""
    try:
        with open(home.options, encoding="utf-8") as file:
            options = json.load(file)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise broken_options(home, error) from None
    if not isinstance(options, list) or not all(isinstance(each, str) for each in options):
        raise broken_options(home, "it is no list of options")
    return options


def broken_options(home: Home, why: object) -> MachineError:
    """Return the error of kept options that cannot be used; nothing is started without them, and nothing is lost."""
    return MachineError(
        f"the kept options in {home.options} cannot be used ({why}): give them again, as in whywait up --ram 8GB, or "
        "forget them by whywait up --defaults"
    )


def keep_options(home: Home, options: list[str]) -> None:
    """Keep options for the next service instead of those before; none: forget them."""
    if options:
        _write(home.options, json.dumps(options))
    else:
        with suppress(FileNotFoundError):
            os.unlink(home.options)
            sync_folder(home.path)


def token_of(home: Home, *, new: bool = False) -> str:
    """Return the token of the page, the same for every service of the home until a new one is asked for."""
    if not new:
        with suppress(FileNotFoundError), open(home.token, encoding="utf-8", errors="replace") as file:
            token = file.read().strip()
            if _TOKEN.fullmatch(token):
                return token
            raise MachineError(f"{home.token} holds no token: make another one by whywait up --new-token")
    token = secrets.token_urlsafe(24)
    _write(home.token, token)
    return token


def in_words(options: list[str]) -> str:
    """Return options as they can be typed again."""
    return " ".join(shlex.join(each.split("=", 1) if each.startswith("--") else [each]) for each in options)


def _write(path: str, text: str) -> None:
    """Write a file that only its user can read: all of it is there after a loss of power, or the one before."""
    draft = f"{path}.new"
    try:
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        with suppress(OSError):
            os.unlink(draft)
        raise MachineError(f"{path} cannot be written: {error.strerror or error}") from None
