"""DevTools: a run seen from outside, as it happens.

``authority.devtools()`` starts the server; everything else here is its inside:

* ``server.py`` the thread, the socket, the app; ``guard.py`` and ``protocol.py`` what every request must pass;
* ``routes.py`` what there is, as data; ``reads.py`` and ``control.py`` the handlers; ``metrics.py`` the metrics;
  ``answers.py`` and ``encoding.py`` how things are told;
* ``run.py`` what is shown: a living run, or with ``saved.py`` a file; ``feed.py`` the one reader of its events;
  ``table.py`` and ``histograms.py`` what it makes of them; ``overview.py`` the bounded picture of now;
* ``client.py`` the other side, for the command line; ``beacon.py`` how it finds a run without an address;
* ``page/`` the page, plain ES modules and CSS, served as they are: ``main.js`` puts it together, ``api.js`` fills
  ``store.js`` from the server and ``saved.js`` from a file, each ``view-*.js`` and ``panel.js`` show what is in there,
  ``dom.js``, ``format.js`` and ``parts.js`` are what they are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whywait.errors import WhywaitError

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.devtools.server import DevTools


def need_packages() -> None:
    """Raise a clear error if the packages that the server needs are not installed."""
    try:
        import whywait.devtools.server  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise WhywaitError(
            f"DevTools needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None


def open_devtools(authority: Authority, port: int, *, control: bool, name: str, **options: Any) -> DevTools:  # noqa: ANN401 - those of DevTools
    """Start a DevTools server for an authority."""
    need_packages()
    from whywait.devtools.run import LiveRun  # noqa: PLC0415 - an extra
    from whywait.devtools.server import DevTools  # noqa: PLC0415 - an extra

    return DevTools(LiveRun(authority, name, control=control), port=port, **options)
