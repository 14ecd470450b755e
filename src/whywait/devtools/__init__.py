"""DevTools: a run seen from outside, as it happens.

``authority.devtools()`` starts the server; everything else here is its inside:

* ``server.py`` the thread and the ways in: ``connections.py`` a port or a Unix socket, ``mount.py`` the app of a host;
  ``access.py`` what every request must pass;
* ``asgi.py`` the ASGI app, and how to make one with further routes; ``api.py`` the routes as data, ``schemas.py`` the
  forms of their answers; ``reads.py`` and ``control.py`` the handlers; ``metrics.py`` the metrics; ``answers.py`` and
  ``encoding.py`` how answers are written;
* ``runs.py`` what is shown: a living run, or with ``saved.py`` a file; ``feed.py`` the one reader of its events;
  ``table.py`` the rows that it makes of them;
* ``remote.py`` the other side, for the command line; ``beacon.py`` how it finds a run without an address;
* ``page/`` the page, plain ES modules and CSS, served as they are: ``main.js`` puts it together, ``api.js`` fills
  ``store.js`` from the server and ``saved.js`` from a file, each ``view-*.js`` and ``panel.js`` show what is in there,
  ``dom.js``, ``format.js`` and ``parts.js`` are what they are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whywait.errors import WhywaitError

if TYPE_CHECKING:
    from whywait.devtools.server import DevTools
    from whywait.runtime.authority import Authority


def need_packages() -> None:
    """Raise a clear error if the packages that the server needs are not installed."""
    try:
        import whywait.devtools.server  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise WhywaitError(
            f"DevTools needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None


def open_devtools(
    authority: Authority,
    *,
    port: int | None,
    control: bool,
    name: str,
    announce: bool,
    file: str | None,
    **options: Any,  # noqa: ANN401 - those of DevTools
) -> DevTools:
    """Start a server for an authority; without a port it has a Unix socket, by which it can be announced."""
    need_packages()
    from whywait.devtools.beacon import new_socket  # noqa: PLC0415 - an extra
    from whywait.devtools.runs import LiveRun  # noqa: PLC0415
    from whywait.devtools.server import DevTools  # noqa: PLC0415

    run = LiveRun(authority, name, control=control)
    unix = new_socket() if announce and port is None else None
    tools = DevTools(run, port=port, unix=unix, log=run.core.log, **options)
    if announce:
        tools.announce(file)
    return tools
