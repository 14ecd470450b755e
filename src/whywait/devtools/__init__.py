"""DevTools: a run seen from outside, as it happens.

``authority.devtools()`` starts the server; everything else here is its inside:

* ``server.py`` the thread, the socket, the app; ``guard.py`` and ``protocol.py`` what every request must pass;
* ``routes.py`` what there is, as data; ``reads.py`` and ``control.py`` the handlers; ``metrics.py`` the metrics;
* ``feed.py`` the one reader of events; ``table.py`` and ``histograms.py`` what it makes of them;
  ``overview.py`` the bounded picture of now;
* ``page/`` the page: plain ES modules and CSS, served as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whywait.errors import WhywaitError

if TYPE_CHECKING:
    from whywait.authority import Authority
    from whywait.devtools.server import DevTools


def open_devtools(authority: Authority, port: int, *, control: bool, name: str, **options: Any) -> DevTools:  # noqa: ANN401 - those of DevTools
    """Start a DevTools server for an authority; a clear error if the packages for it are not installed."""
    try:
        from whywait.devtools.run import LiveRun  # noqa: PLC0415 - an extra
        from whywait.devtools.server import DevTools  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise WhywaitError(
            f"DevTools needs the package {error.name!r}; install it with: pip install 'whywait[devtools]'"
        ) from None
    return DevTools(LiveRun(authority, name, control=control), port=port, **options)
