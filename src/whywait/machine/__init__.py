"""The machine: one authority for all programs and terminals of a computer, run as a service.

* ``home.py`` where its files are; ``client.py`` the way to it, for every ``whywait add`` and ``do``: little of the
  standard library; ``beginning.py`` how a service is started on demand;
* ``from_python.py`` a permission for a block of Python, and a job, as Python sees them;
* ``terminal.py`` what ``whywait do`` does, ``foreground.py`` and ``do_guard.py`` its command in a terminal;
* ``service.py`` the service: an authority, its jobs (``jobs.py``, ``rows.py``) and its leases (``leases.py``), each of
  them under a permission (``permissions.py``); ``store.py`` what survives it; ``handlers.py`` and ``socket_server.py``
  the routes.
"""

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any

    from whywait.machine.from_python import Job, Lease, add, lease

__all__ = ["Job", "Lease", "add", "lease"]


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'whywait.machine' has no attribute {name!r}")
    from whywait.machine import from_python

    value = globals()[name] = getattr(from_python, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
