"""``whywait demo``: a lively run, made up, in the browser."""

from __future__ import annotations

from threading import Event, Timer
from typing import Annotated, Final

import typer

from whywait.cli.browser import NO_BROWSER, open_page
from whywait.cli.shared import print_text
from whywait.devtools import need_packages
from whywait.devtools.beacon import put_out, redirect_to

HELP: Final = """Show the page of a lively run: a pretended render farm that has more work than fits.

\b
  whywait demo                      # opens the page in your browser
  whywait demo --no-browser         # prints its address and opens nothing
  whywait demo --seconds 20         # ends by itself

While it runs, `whywait top` and `whywait why upscale-3` work from another terminal. Ctrl-C ends it and prints where the
waiting went.

Exit code: 0, or 2 if an option is malformed.
"""
ABOUT: Final = """\
A pretended render farm: 4 slots, 8 GB of memory, 6 GB on the graphics card, and more work than fits.
Click a waiting task to see why it waits and for which tasks; pause or cancel one and see what moves up.
"""


def demo(
    *,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
    port: Annotated[int, typer.Option(metavar="N", help="Listen on this port; 0 takes a free one.")] = 0,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", min=0.1, help="End after so many seconds, not by Ctrl-C.")
    ] = None,
) -> None:
    """Show DevTools with a lively run."""
    need_packages()
    from whywait.cli.demo_run import NAME, Farm, make_authority

    stop = Event()
    authority = make_authority()
    door = None
    try:
        tools = authority.devtools(port, name=NAME, file="demo")
        typer.echo(ABOUT + ("Ctrl-C ends it." if seconds is None else f"It ends after {seconds:g} s."))
        if not no_browser:
            door = redirect_to(tools.url)
            if not open_page(door):
                typer.echo(NO_BROWSER)
        if seconds is not None:
            timer = Timer(seconds, stop.set)
            timer.daemon = True
            timer.start()
        Farm(authority).run(stop)
    except KeyboardInterrupt:
        pass
    finally:
        authority.dispose()
        if door is not None:
            put_out(door)
    print_text(f"\n{authority.report()}\n")
