"""A workflow run as plain lines: one for each thing that happens, where the output is no terminal."""

from __future__ import annotations

from contextlib import suppress
from threading import RLock
from time import monotonic_ns
from typing import Final, TextIO

from whywait.kernel.state import Outcome
from whywait.observe.explain import units_in_words
from whywait.support.units import NS_PER_MS, format_ms, printable
from whywait.workflow.one_run import Run
from whywait.workflow.task_progress import TaskProgress

_ENDINGS: Final[dict[str, str]] = {
    Outcome.SUCCESS: "done",
    Outcome.ERROR: "failed",
    Outcome.TIMEOUT: "timeout",
    Outcome.ABORTED: "aborted",
    Outcome.REJECTED: "dropped",
}


class LogLines:
    """Writes one plain line for each thing that happens."""

    def __init__(self, run: Run, stream: TextIO) -> None:
        """Follow a run."""
        self._run = run
        self._stream = stream
        self._lock = RLock()
        run.progress.listen(self._tell)

    def note(self, text: str) -> None:
        """Write a line about the run itself."""
        self._write(monotonic_ns(), "", text)

    def _tell(self, word: str, task: TaskProgress) -> None:
        ident, last = printable(task.spec.id), task.latest
        if word == "start":
            attempt = f" (attempt {task.attempts})" if task.attempts > 1 else ""
            units = f" on {printable(units_in_words(last.devices))}" if last.devices else ""
            self._write(last.started_ns or 0, "start", ident + attempt + units)
        elif word == "retry":
            self._write(last.submitted_ns, "retry", ident)
        else:
            ran = "" if last.ran_ns is None else f" in {format_ms(last.ran_ns / NS_PER_MS)}"
            cause = "" if last.cause is None else f" ({last.cause}{f' of {last.root}' if last.root else ''})"
            ending = _ENDINGS.get(last.outcome or "", last.outcome or "")
            self._write(last.ended_ns or self._run.began_ns, ending, f"{ident}{ran}{cause}")

    def _write(self, at_ns: int, word: str, text: str) -> None:
        at = format_ms(max(0, at_ns - self._run.began_ns) / NS_PER_MS)
        with self._lock, suppress(OSError, ValueError):  # the reader may have gone (`| head`): the run goes on
            self._stream.write(f"{at:>9}  {word:<8} {text}\n")
            self._stream.flush()
