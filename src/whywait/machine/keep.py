"""How long ended jobs stay listed."""

from __future__ import annotations

from typing import Final

from whywait.machine import moments
from whywait.machine.jobs import Jobs
from whywait.machine.moments import Moment, clock_step, seconds_between
from whywait.machine.rows import Ended, KeptJob, Running

MOST: Final = 10_000
DAYS: Final = 30
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400


class Keep:
    """Ended jobs are kept up to so many, and so long.

    For an hour after the clock was set by more than a day, the age of jobs of former boots says nothing, and no job is
    forgotten for it.
    """

    def __init__(self, most: int = MOST, age_s: float = DAYS * _DAY_S) -> None:
        """Keep up to ``most`` ended jobs, none longer than ``age_s`` seconds."""
        self._most = most
        self._age_s = age_s
        self._seen: Moment | None = None  # the last look at the clock
        self._stepped: Moment | None = None  # when the clock was last seen to be set
        self._applied: Moment | None = None  # when jobs were last forgotten for their age

    def tidy(self, jobs: Jobs) -> None:
        """Forget ended jobs that are too many, or too old, if it is time to look for them."""
        now = moments.now()
        seen = self._seen or max((_last(job) for job in jobs.all()), default=now)
        if clock_step(seen, now) > _DAY_S:
            self._stepped = now
        self._seen = now
        may_age = self._stepped is None or seconds_between(self._stepped, now) > _HOUR_S
        is_aged = may_age and (self._applied is None or seconds_between(self._applied, now) > _DAY_S)
        if is_aged:
            self._applied = now
        if is_aged or len(jobs.by_number) > self._most * 1.1 + 1:
            self._apply(jobs, now, self._age_s if is_aged else None)

    def _apply(self, jobs: Jobs, now: Moment, age_s: float | None) -> None:
        ended = sorted((job for job in jobs.all() if isinstance(job.state, Ended)), key=_last)
        surplus = len(ended) - self._most
        old = [
            job
            for index, job in enumerate(ended)
            if index < surplus or (age_s is not None and seconds_between(_last(job), now) > age_s)
        ]
        if old:
            jobs.forget(old)


def _last(job: KeptJob) -> Moment:
    """Return the last moment that is known of a job."""
    match job.state:
        case Ended(ended=moment) | Running(started=moment):
            return moment
    return job.added
