"""The machine: one authority for all programs and terminals of a computer, run as a service.

* ``home.py`` where its files are; ``client.py`` the way to it, for every ``whywait add`` and ``do``: little of the
  standard library; ``starting.py`` how a service is started on demand;
* ``block.py`` a permission for a block of Python; ``job.py`` a job as Python sees it;
* ``terminal.py`` what ``whywait do`` does, ``foreground.py`` and ``do_guard.py`` its command in a terminal;
* ``service.py`` the service: an authority, its jobs (``jobs.py``, ``rows.py``) and its leases (``leases.py``), each of
  them under a permission (``permissions.py``); ``store.py`` what survives it; ``job_log.py`` the output of jobs;
  ``handlers.py`` and ``server.py`` the routes.
"""

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Any

    from whywait.machine.block import Lease, lease
    from whywait.machine.job import Job, add

_PLACES = {
    "Job": "whywait.machine.job",
    "Lease": "whywait.machine.block",
    "add": "whywait.machine.job",
    "lease": "whywait.machine.block",
}


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - what the module has under the name
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'whywait.machine' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


__all__ = ["Job", "Lease", "add", "lease"]
