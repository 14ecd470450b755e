"""Threads that outlive what started them; and green threads, on which whywait cannot run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final

from whywait.errors import ConfigError

# Between attempts at what must be done, and for which there was no memory: it may come back, at once or in a while.
PAUSES_S: Final = (*(0.0,) * 40, 0.01, 0.1, 1.0)
NO_MEMORY: Final = (MemoryError, SystemError)  # of a call: without memory for its frame Python 3.11 raises the latter

# Each library: the module that knows what was replaced, the function to ask, and what an authority relies on.
_LIBRARIES: Final = (
    ("gevent", "gevent.monkey", "is_module_patched", ("_thread", "threading", "queue", "select", "time", "subprocess")),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", ("thread", "select", "time", "subprocess")),
)


def lasting_thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """Return a daemon thread, to be started, that keeps nothing of its starter alive.

    From Python 3.14 on a thread may inherit the context of its starter, and would hold it for as long as it lives.
    """
    if sys.version_info >= (3, 14):
        return threading.Thread(target=target, name=name, args=args, daemon=True, context=Context())
    return threading.Thread(target=target, name=name, args=args, daemon=True)


def refuse_green_threads() -> None:
    """Raise ConfigError if gevent or eventlet has replaced threads, queues and waiting by its own.

    A body would not run beside others but in turns with all else on one thread, and some of what engines wait for would
    never come.
    """
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
