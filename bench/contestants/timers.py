"""APScheduler, for timers."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler
from tzlocal import get_localzone

from contestants.base import Contestant, on_grid


class APScheduler(Contestant):
    """A BackgroundScheduler with interval jobs on its default thread pool."""

    def timers(self, count: int, every_s: float, lasts_s: float) -> list[list[tuple[float, float]]]:
        """Add interval jobs."""
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
        ticks: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        first: list[float] = []
        scheduler = BackgroundScheduler()
        scheduler.start()

        def tick(number: int) -> None:
            ticks[number].append(on_grid(first[number], every_s, time.perf_counter()))

        zone, begin = get_localzone(), time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begin + number * every_s / count - time.perf_counter()))
            now = time.perf_counter()
            first.append(now + every_s)
            start = datetime.now(zone) + timedelta(seconds=every_s)
            scheduler.add_job(tick, "interval", [number], seconds=every_s, start_date=start)
        time.sleep(lasts_s)
        scheduler.shutdown(wait=False)
        return ticks
