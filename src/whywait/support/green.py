"""Green threads: gevent and eventlet replace threads, queues and waiting by their own, on which whywait cannot run.

With them a body would not run beside others but in turns with all else on one thread, and some of what engines wait for
would never come. So an authority says at once that it cannot work there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

from whywait.errors import ConfigError

# Each library: the module that knows what was replaced, the function to ask, and what an authority relies on.
_LIBRARIES: Final = (
    ("gevent", "gevent.monkey", "is_module_patched", ("_thread", "threading", "queue", "select", "time", "subprocess")),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", ("thread", "select", "time", "subprocess")),
)


def refuse_green_threads() -> None:
    """Raise ConfigError if a library has replaced what engines are made of; cheap where none is loaded."""
    for library, module, asks, names in _LIBRARIES:
        found = sys.modules.get(module)
        if found is None:
            continue
        replaced = list(_replaced(getattr(found, asks), names))
        if replaced:
            raise ConfigError(
                f"{library} has replaced {', '.join(replaced)} of this program by its own (monkey-patching): whywait "
                f"needs the real ones. Run it in a program, or a child process, that is not patched"
            )


def _replaced(is_replaced: Callable[[str], bool], names: tuple[str, ...]) -> Iterator[str]:
    return (name.lstrip("_") for name in names if is_replaced(name))
