"""Which core runs, compiled or interpreted: settled once, when whywait is first imported.

The core is every ``.py`` of whywait with a ``.pxd`` beside it. Where it was compiled, Python finds the compiled files
first; where it is to be interpreted, a finder of our own leads to the ``.py`` files beside them. It is one or the other
as a whole. ``hatch_build.py`` compiles, and leaves a record of what it made from what.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Final

VARIABLE: Final = "WHYWAIT_CORE"
SUFFIX: Final = EXTENSION_SUFFIXES[0]  # of the modules that are compiled for this Python
PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - `pathlib` takes longer to load than the rest
_REMEDY: Final = "compile it again with: make core (in a checkout), or install whywait again"


class _Sources:
    """Finds the ``.py`` of a module that has a compiled file beside it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG004 - as Python calls it
        """Return where the source of a module of whywait is; None for all others."""
        if name.startswith("whywait.") and path:
            stem = f"{path[0]}/{name.rpartition('.')[2]}"
            if os.path.exists(stem + SUFFIX):  # noqa: PTH110 - the same
                from importlib.util import spec_from_file_location  # noqa: PLC0415 - few programs need it

                return spec_from_file_location(name, f"{stem}.py")
        return None


def _choose() -> str:
    """Return why the core is interpreted; nothing if it is compiled."""
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if wanted not in {"", "compiled", "interpreted"}:
        _refuse(f"{VARIABLE}={wanted!r} is not allowed: use one of compiled, interpreted")
    if wanted == "interpreted":
        return f"{VARIABLE}=interpreted"
    why, is_broken = _look()
    if not why and not _is_main_interpreter():
        return "a subinterpreter cannot load compiled modules"
    if why and wanted:
        _refuse(f"{VARIABLE}=compiled cannot be had, there is only an interpreted core: {why}")
    if is_broken and sys.stderr:
        sys.stderr.write(f"whywait: the core runs interpreted: {why}\n")
    return why


def _look() -> tuple[str, bool]:
    """Return why the compiled core cannot be used, nothing if it can, and whether something is wrong with it."""
    try:
        with open(f"{PACKAGE}/core{SUFFIX}.txt", encoding="utf-8") as record:  # noqa: PTH123 - see above
            told, *modules = record.read().splitlines()
    except (OSError, ValueError):
        return "it was never compiled for this Python; reinstall with a C compiler for twice the speed and more", False
    if not modules:
        return told, False
    for line in modules:
        module, *known = line.split(" ")
        stem = f"{PACKAGE}/{module}"
        try:
            made_ns = os.stat(stem + SUFFIX).st_mtime_ns  # noqa: PTH116 - see above
            for source, content in zip((f"{stem}.py", f"{stem}.pxd"), known, strict=True):
                if os.stat(source).st_mtime_ns > made_ns and _hash(source) != content:  # noqa: PTH116 - see above
                    return f"{source} has changed since it was compiled; {_REMEDY}", True
        except OSError as error:
            return f"{error.filename} is missing; {_REMEDY}", True
    return "", False


def _hash(path: str) -> str:
    """Return what the content of a file is known by."""
    from importlib.util import source_hash  # noqa: PLC0415 - few programs need it

    with open(path, "rb") as file:  # noqa: PTH123 - see above
        return source_hash(file.read()).hex()


def _is_main_interpreter() -> bool:
    """Return whether this is no subinterpreter, which cannot load modules that Cython has compiled."""
    import _thread  # noqa: PLC0415 - only where a core is compiled

    if hasattr(_thread, "_is_main_interpreter"):  # Python 3.13 and newer
        return bool(_thread._is_main_interpreter())  # noqa: SLF001 - there is no public way
    try:
        interpreters = import_module("_xxsubinterpreters")
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


def _refuse(told: str) -> None:
    """Raise the error of a choice that cannot be met."""
    from whywait.errors import ConfigError  # noqa: PLC0415 - takes longer to load than all of this

    raise ConfigError(f"environment variable {told}")


why_interpreted: Final = _choose()  # nothing if the core is compiled
compiled: Final = not why_interpreted
"""Whether the core of whywait is compiled in this process."""

if not compiled:
    sys.meta_path.insert(0, _Sources)
