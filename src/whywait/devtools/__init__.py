"""DevTools: a run seen from outside, as it happens.

``authority.devtools()`` starts the server; everything else here is its inside:

* ``server.py`` the thread, the socket, the app; ``guard.py`` and ``protocol.py`` what every request must pass;
* ``routes.py`` what there is, as data; ``reads.py`` and ``control.py`` the handlers; ``metrics.py`` the metrics;
* ``feed.py`` the one reader of events; ``table.py`` and ``histograms.py`` what it makes of them;
  ``overview.py`` the bounded picture of now;
* ``page/`` the page: plain ES modules and CSS, served as they are.
"""
