"""The store: what has to survive the service, in SQLite; written by one thread at a time, read when the service starts.

How a change gets to the disk, and what each step closes:

1. A new job is on the disk before the kernel knows of it: what was refused can never run. The kernel takes it in as
   part of the commit (``then``), in the order of the store. Everything else that changes a row has been decided by the
   kernel, and is put into ``_queue`` under the authority's lock, in the order of the decisions: no later change is on
   the disk without an earlier one.
2. The thread in its turn takes all that is queued, writes it in one transaction, and the commit synchronises it (WAL,
   FULL): many clients at once share one wait for the disk. The seal is written next (``seal.py``), and synchronised
   if a client is answered, so that a start notices if anything of this is missing. A thread that waits for its ticket
   writes by itself when it is its turn: that saves two changes of threads for each start of a command.
3. Only then the job in memory gets its new state and the ticket of the change is released. An answer, the start of a
   command, the news of an end wait for their ticket: what was told is kept.
4. A commit that the disk does not take changes nothing. New jobs of that transaction are refused. Everything else has
   happened already: the reserve is given up for it, except for starts, and if that does not do it stays first in the
   queue and is tried again; meanwhile nothing is told and, since a start waits for its ticket, nothing starts.
5. A change that fails for another reason is tried alone. If it is new, it is refused. If it has happened, the store is
   broken: every ticket fails, and the service ends, so that the next one goes on with what is on the disk.

Which lock guards what:

================  ===================================================================================================
``Store._turn``   the connection, and which thread writes; ``_lock`` and ``Core.lock`` may be taken under it, it is
                  never taken under them
``Store._lock``   the queue and whether it takes more; may be taken under ``Core.lock``
================  ===================================================================================================

What is read without: whether anything is queued, only to write sooner; the state of a job, one value that the thread
in its turn sets.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, Final

from whywait.errors import MachineError
from whywait.machine import database, salvage
from whywait.machine.database import Transaction
from whywait.machine.home import sync_folder
from whywait.machine.rows import KeptJob, State, as_text
from whywait.machine.seal import Reserve, Seal, Sealed
from whywait.support.logger import log
from whywait.support.words import counted

AGAIN_AFTER_S: Final = 0.5
IDLE_S: Final = 1.0  # after so long without a change, what is in SQLite's log goes into its file
_ENDING: Final = "the service is ending"


class Ticket(Future[None]):
    """A change of the store: done when it is on the disk; a MachineError says that it never will be."""

    def __init__(
        self,
        store: Store,
        change: Callable[[Transaction], object],
        then: Callable[[], object],
        job: KeptJob | None = None,
        *,
        is_new: bool = False,
        is_start: bool = False,
        is_routine: bool = False,
    ) -> None:
        """Wait for the writer; ``then`` is called first when the change, of one ``job`` or several, is on the disk."""
        super().__init__()
        self.set_running_or_notify_cancel()  # it cannot be cancelled
        self._store = store
        self.change = change
        self.then = then
        self.job = job
        self.is_new = is_new  # it can be refused; everything else has happened already
        self.is_start = is_start  # the job starts when this is on the disk, and not before
        self.is_routine = is_routine  # it answers no client

    def wait(self) -> None:
        """Block until the change is on the disk, which this thread may write itself; raise if it never will be."""
        if not self.done():
            self._store.write_queued()
        self.result()

    def write_now(self) -> None:
        """Have the change on the disk; raise if the disk does not take it at once: a service that begins hangs else."""
        if not self._store.write_queued() and (trouble := self._store.trouble) is not None:
            raise MachineError(trouble)
        self.wait()

    def release(self, failure: str | None = None) -> None:
        """Let those that wait go on."""
        if failure is None:
            self.set_result(None)
        else:
            self.set_exception(MachineError(failure))


class Store:
    """The jobs of one home, on the disk."""

    def __init__(self, path: str) -> None:
        """Open the store, make it or bring it up to date; go on with what is whole in a damaged one.

        Raise if the file is none of ours, cannot be read at all, or is newer than this program.
        """
        self._path = path
        self._queue: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._turn = threading.Lock()  # of the thread that writes
        self._closing = False
        self.broken_by: str | None = None  # what ended it: from then on every ticket fails
        self.last = Ticket(self, lambda _: None, lambda: None)  # of what has happened, the change that was put last
        self.last.release()  # nothing yet
        self.sealed = Sealed()  # how far the store has come
        self.content = salvage.Content()  # what was read when the store was opened
        self._is_folded = True  # nothing is in SQLite's log
        self.trouble: str | None = None  # why the disk does not take what has happened, at the moment
        self.notice: str | None = None  # what was damaged or missing when the store was opened
        self.damaged: str | None = None  # the folder with a copy of the files as they were then
        self.on_broken: Callable[[str], object] = log.critical
        self.on_trouble: Callable[[], object] = lambda: None  # called while the disk does not take what has happened
        self._open()
        self._reserve = Reserve(os.path.join(os.path.dirname(path), "reserve"))
        self._thread = threading.Thread(target=self._write, name="whywait-store", daemon=True)
        self._thread.start()

    def environment(self, key: str) -> dict[str, str]:
        """Return one environment; at any time."""
        with closing(database.connect(self._path, read_only=True)) as reader:
            (text,) = reader.execute("SELECT variables FROM environments WHERE id = ?", (key,)).fetchone()
        found: dict[str, str] = json.loads(text)
        return found

    def broken(self, what: object) -> MachineError:
        """Return the error of a store that holds what no service has written."""
        return database.broken(self._path, what)

    # Changes

    def accept(
        self,
        jobs: Sequence[KeptJob],
        then: Callable[[], object],
        *,
        scope: tuple[str, Mapping[str, Any]] | None = None,
        noted: Sequence[tuple[KeptJob, State]] = (),
    ) -> Ticket:
        """Keep new jobs, each with its environment, all or none; refused if the disk does not take them.

        ``scope`` is one that is opened with options for them, ``noted`` are states of other jobs that change with them.
        """

        def change(write: Transaction) -> None:
            if scope is not None:
                write.keep_scope(*scope)
            for job in jobs:
                write.accept(job, as_text(job.variables))
            for job, state in noted:
                write.update(job.number, state)

        def kept() -> None:
            for job, state in noted:
                job.state = job.decided = state
            then()

        return self._put(Ticket(self, change, kept, is_new=True))

    def update(self, job: KeptJob, state: State, *, is_start: bool = False, is_routine: bool = False) -> Ticket:
        """Keep that a job has come to a state that was decided, on the disk and then in memory.

        ``is_start``: the job starts when this is on the disk, and the thread that starts it waits for that.
        ``is_routine``: no client asked for it.
        """
        job.decided = state

        def kept() -> None:
            job.state = state

        is_routine = is_routine or is_start
        write = partial(Transaction.update, number=job.number, state=state)
        return self._put(Ticket(self, write, kept, job, is_start=is_start, is_routine=is_routine))

    def forget(self, numbers: Sequence[int], then: Callable[[], object]) -> Ticket:
        """Keep some jobs no longer, nor environments that no other job has; call ``then`` when that is on the disk."""
        return self._put(Ticket(self, lambda write: write.forget(numbers), then))

    def fold(self) -> None:
        """Have nothing left in SQLite's log, nor of what was forgotten, as far as the disk lets it."""
        with self._turn:
            self._is_folded = True  # another try follows the next change
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Write what is queued, unless the disk does not take it, and close the file."""
        with self._lock:
            self._closing = True
            self._news.notify_all()
        self._thread.join()
        with self._turn:  # a thread that waits for its change may be writing
            self._connection.close()
            self._seal.close()
        self._fail((), _ENDING)

    # The writer

    def _put(self, ticket: Ticket) -> Ticket:
        """Have a change written after all that were put before; return its ticket."""
        with self._lock:
            refusal = self.broken_by or (_ENDING if self._closing else None)
            if refusal is None:
                self._queue.append(ticket)
                if not ticket.is_new:
                    self.last = ticket
                if not ticket.is_start:  # else the thread that waits for it writes
                    self._news.notify_all()
                return ticket
        ticket.release(refusal)
        return ticket

    def _write(self) -> None:
        while True:
            with self._lock:
                self._news.wait_for(lambda: self._queue or self._closing or not self._is_folded)
                self._news.wait_for(lambda: self._queue or self._closing, IDLE_S)
                is_idle, is_over = not self._queue, self._closing or self.broken_by is not None
            if is_idle and is_over:
                return
            if is_idle:
                self.fold()
                self._reserve.make()
            elif not self.write_queued() and self._gives_up():
                return

    def write_queued(self) -> bool:
        """Write what is queued, when no other thread writes; return whether nothing has to be tried again."""
        with self._turn:
            with self._lock:
                batch = list(self._queue)
                self._queue.clear()
            left = self._try(batch) if batch else batch
            if left:
                for ticket in left:
                    if ticket.is_new:
                        ticket.release(self.trouble)
                left = self._try_urgent([ticket for ticket in left if not ticket.is_new])
            if self.broken_by is not None:
                self._fail(left, self.broken_by)
                return True
            if left:
                with self._lock:
                    self._queue.extendleft(reversed(left))
                    self._news.notify_all()  # for the thread of the store, which tries again
                self.on_trouble()
            return not left

    def _fail(self, left: Iterable[Ticket], failure: str) -> None:
        """Release what is left, and what is queued, with a failure."""
        with self._lock:
            lost = [*left, *self._queue]
            self._queue.clear()
        for ticket in lost:
            ticket.release(failure)

    def _try(self, batch: list[Ticket]) -> list[Ticket]:
        """Write changes in one transaction and release their tickets; return those that the disk did not take."""
        if self.broken_by is not None:
            return batch
        try:
            self._commit(batch)
        except (sqlite3.OperationalError, OSError) as error:
            self._roll_back()
            self._note_trouble(f"{self._path} cannot be written: {error}")
            return batch
        except Exception as error:  # noqa: BLE001 - whatever it is, each ticket has to hear of it
            self._roll_back()
            if len(batch) > 1:
                return next((batch[at:] for at in range(len(batch)) if self._try(batch[at : at + 1])), [])
            failure = f"{self._path}: {type(error).__name__}: {error}"
            if not batch[0].is_new:
                self._break(failure)
            batch[0].release(failure)
            return []
        self.trouble = None
        for ticket in batch:
            wrong: str | None = None
            try:
                ticket.then()
            except Exception as error:
                log.exception("what is on the disk cannot be carried out")
                self._break(wrong := f"{self._path}: {type(error).__name__}: {error}")
            ticket.release(wrong)
        return []

    def _commit(self, batch: Iterable[Ticket]) -> None:
        """Write changes in one transaction, and seal it."""
        transaction = Transaction(self._connection, self.sealed)
        for ticket in batch:
            ticket.change(transaction)
        self.sealed = transaction.commit()
        if self._is_folded:
            with self._lock:
                self._is_folded = False
                self._news.notify_all()
        while True:  # it is on the disk: neither is it refused, nor is it told before it is sealed
            try:
                self._seal.write(self.sealed, sync=any(not ticket.is_routine for ticket in batch))
            except OSError as error:
                self._note_trouble(f"the seal of {self._path} cannot be written: {error}")
                self.on_trouble()
                with self._lock:
                    if self._news.wait_for(lambda: self._closing, AGAIN_AFTER_S):
                        return
            else:
                return

    def _note_trouble(self, trouble: str) -> None:
        """Note why the disk does not take changes; the log has it once."""
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("%s", trouble)

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _try_urgent(self, batch: list[Ticket]) -> list[Ticket]:
        """Give up the reserve for all but starts, unless a job has gone on from its start; return what is left.

        A start that waits goes behind the others: it has not happened yet.
        """
        latest = {ticket.job: ticket for ticket in batch}
        starts = [ticket for ticket in batch if ticket.is_start and latest[ticket.job] is ticket]
        urgent = [ticket for ticket in batch if ticket not in starts]
        trouble = self.trouble
        if urgent:
            urgent = self._try(urgent)
        if urgent and self._reserve.give_up():
            urgent = self._try(urgent)
        if starts:
            self.trouble = trouble
        return urgent + starts

    def _gives_up(self) -> bool:
        """Wait before another try; return whether there is none because the service ends."""
        with self._lock:
            if self._queue:
                self._news.wait_for(lambda: self._closing, AGAIN_AFTER_S)
            if not self._closing:
                return False
        self._fail((), self.trouble or _ENDING)
        return True

    def _break(self, failure: str) -> None:
        """Take no further change: what has happened cannot be kept, so the service cannot go on."""
        with self._lock:
            self.broken_by = failure
        self.on_broken(failure)

    # Opening

    def _open(self) -> None:
        """Open the store and read it; make a new one of what is whole if anything is wrong."""
        seal_path = f"{self._path.removesuffix('.db')}.seal"
        if salvage.is_only_log(self._path):
            self.damaged = salvage.copy_files(self._path, seal_path)
        with ExitStack() as on_error:
            self._connection = on_error.enter_context(closing(database.open_file(self._path)))
            try:
                self._seal = Seal(seal_path)
                self.content = salvage.read(self._connection, self._seal)
                if self.damaged is not None:
                    self.content.wrong.insert(0, "of it only SQLite's log was there")
                if self.content.wrong:
                    self.damaged = self.damaged or salvage.copy_files(self._path, seal_path)
                    self._connection.close()
                    salvage.rebuild(self._path, self.content, self._seal)
                    self._connection = database.open_file(self._path)
                    self.notice = (
                        f"the store {self._path} was damaged: {'; '.join(self.content.wrong)}; the service goes on "
                        f"with {counted(len(self.content.jobs), 'job')}, and a copy of the files is in {self.damaged}"
                    )
                    log.error("%s", self.notice)
                elif self.content.sealed.commits == 0:
                    self._seal.write(self.content.sealed)
                    sync_folder(os.path.dirname(self._path))
            except (OSError, sqlite3.Error) as error:
                raise database.not_opened(self._path, error) from None
            on_error.pop_all()
        self.sealed = self.content.sealed
