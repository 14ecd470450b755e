"""``whywait demo``: a lively run, made up, in the browser: a pretended render farm with more work than fits."""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Final

from whywait.cli.browser import NO_BROWSER, open_page
from whywait.cli.shared import print_text
from whywait.devtools import need_packages
from whywait.devtools.beacon import put_out, redirect_to
from whywait.kernel.limits import Retry
from whywait.runtime.authority import Authority
from whywait.runtime.handle import Handle
from whywait.task.context import current

NAME: Final = "render farm"
WAVE_S: Final = 8.0
ENOUGH: Final = 40  # with so many tasks pending the next wave stays away
CLIPS: Final = 6  # in each wave
HELP: Final = """Show the page of a lively run: a pretended render farm that has more work than fits.

  whywait demo                      # opens the page in your browser
  whywait demo --no-browser         # prints its address and opens nothing
  whywait demo --seconds 20         # ends by itself

While it runs, `whywait top` and `whywait why upscale-3` work from another terminal. Ctrl-C ends it and prints where the
waiting went.

Exit code: 0, or 2 if an option is malformed."""
ABOUT: Final = """\
A pretended render farm: 4 slots, 8 GB of memory, 6 GB on the graphics card, and more work than fits.
Click a waiting task to see why it waits and for which tasks; pause or cancel one and see what moves up.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add = parser.add_argument
    add("--no-browser", action="store_true", help="print the address and open nothing")
    add("--port", metavar="N", type=int, default=0, help="listen on this port; 0 takes a free one")
    add("--seconds", metavar="N", type=float, help="end after so many seconds, not by Ctrl-C")


def run(options: argparse.Namespace) -> int:
    """Show DevTools with a lively run."""
    need_packages()
    authority, door = make_authority(), None
    try:
        tools = authority.devtools(options.port, name=NAME, file="demo")
        how = "Ctrl-C ends it." if options.seconds is None else f"It ends after {options.seconds:g} s."
        sys.stdout.write(f"{ABOUT}{how}\n")
        if not options.no_browser:
            door = redirect_to(tools.url)
            if not open_page(door):
                sys.stdout.write(f"{NO_BROWSER}\n")
        sys.stdout.flush()
        Farm(authority).run(options.seconds)
    except KeyboardInterrupt:
        pass
    finally:
        authority.dispose()
        if door is not None:
            put_out(door)
    print_text(f"\n{authority.report()}\n")
    return 0


def make_authority() -> Authority:
    """Return the farm's authority: small enough that all kinds of waiting can be seen."""
    return Authority(slots=4, cpu=4, ram="8GB", vram="6GB", resources={"licence": 1}, starvation_timeout=2.0, grace=5.0)


class Farm:
    """Submits the work of the farm; equal seeds give equal work."""

    def __init__(self, authority: Authority, seed: int = 3) -> None:
        """Open the scopes and add what runs at intervals."""
        self._authority = authority
        self._chance = random.Random(seed)  # noqa: S311 - a show wants a seed, not a cipher
        self._wave = 0
        self._render = authority.scope("render", slots=3)
        self._previews = self._render.scope("previews")
        self._batch = authority.scope("batch")
        self._batch.periodic(work, 0.05, every=0.5, id="sample")
        self._batch.periodic(work, 0.9, every=0.7, id="heartbeat")

    def run(self, seconds: float | None = None) -> None:
        """Submit one wave after the other, as long as the farm keeps up, for so many seconds."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._authority.stats()["queued"] < ENOUGH:
                self.submit_wave()
            time.sleep(min(WAVE_S, left))

    def submit_wave(self) -> None:
        """Submit a bit of everything."""
        wave, batch = self._wave, self._batch
        self._wave += 1
        self._submit_film(wave)
        batch.submit(work, 15, id=f"train-{wave}", vram="4.5GB", ram="3GB")
        for number in range(30 * wave, 30 * wave + 30):
            batch.submit(work, self._chance.uniform(0.2, 0.9), id=f"sweep-{number:02d}", priority="background")
        for number in range(3 * wave, 3 * wave + 3):
            batch.submit(work, 1.5, id=f"licensed-{number}", resources={"licence": 1})
        good = 5 if wave % 2 == 0 else 2  # there are three attempts
        upload = batch.submit(
            upload_at_last, count(1), good, id=f"upload-{wave}", retry=Retry(2, backoff=0.2, on=(OSError,))
        )
        upload.add_done_callback(_look_at)
        for number in range(4 * wave, 4 * wave + 4):
            batch.submit(work, 0.2, id=f"notify-{number}", after=[upload])
        if wave == 0:
            batch.submit(work, 5, id="paused-job").pause()

    def _submit_film(self, wave: int) -> None:
        render, chance = self._render, self._chance
        upscaled = []
        for number in range(CLIPS * wave, CLIPS * wave + CLIPS):
            fetched = render.submit(work, chance.uniform(0.2, 0.8), id=f"fetch-{number}")
            decoded = render.submit(work, chance.uniform(0.3, 1), id=f"decode-{number}", after=[fetched], ram="2GB")
            upscaled.append(
                render.submit(work, 2, id=f"upscale-{number}", after=[decoded], vram="4GB", priority="high")
            )
        packed = render.submit(work, 1, id=f"pack-{wave}", after=upscaled, priority="critical")
        render.submit(work, 0.5, id=f"publish-{wave}", after=[packed])
        for number in range(5 * wave, 5 * wave + 5):
            self._previews.submit(work, 0.7, id=f"thumb-{number}", priority="low")


def work(seconds: float) -> None:
    """Take some time; pause or end when asked to."""
    context = current()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        context.checkpoint()
        time.sleep(0.01)


def upload_at_last(attempts: Iterator[int], good: int) -> None:
    """Take some time and fail, until the attempt with this number."""
    work(0.2)
    if next(attempts) < good:
        raise OSError("the other side does not answer")


def _look_at(handle: Handle[None]) -> None:
    """Look at the error, so that no warning is logged for one that was meant."""
    handle.exception()
