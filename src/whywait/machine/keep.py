"""How long ended jobs stay listed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from whywait.machine.jobs import Jobs

MOST: Final = 10_000
DAYS: Final = 30
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Keep:
    """Ended jobs are kept up to so many, and so long."""

    most: int = MOST
    age_s: float = DAYS * _DAY_S

    def is_due(self, jobs: Jobs, applied_at: float) -> bool:
        """Return whether there may be enough to forget: a tenth more than are kept, or a day has passed."""
        return len(jobs.by_number) > self.most * 1.1 + 1 or time.time() > applied_at + _DAY_S

    def apply(self, jobs: Jobs) -> None:
        """Forget ended jobs that are too many or too old."""
        ended = [job for job in jobs.all() if job.state == "ended"]
        ended.sort(key=lambda job: job.ended or 0.0)
        oldest = time.time() - self.age_s
        surplus = max(0, len(ended) - self.most)
        old = [job for index, job in enumerate(ended) if index < surplus or (job.ended or 0.0) < oldest]
        if old:
            jobs.forget(old)
