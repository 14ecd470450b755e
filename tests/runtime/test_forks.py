"""A program that forks: the copy is told that the authority is not there, and the original does not notice."""

import os
import threading

import pytest

from patience import PATIENCE_S
from whywait import Authority, WhywaitError


@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.filterwarnings(
    "ignore:.*multi-threaded.*:DeprecationWarning"
)  # since 3.12: what is tried here is not advised
def test_an_authority_refuses_to_work_in_a_fork(engine):
    """O1: in the copy every use raises and none hangs, also while the lock is held elsewhere; here all goes on."""
    held, go = threading.Event(), threading.Event()

    def hold(authority):
        with authority._core.lock:
            held.set()
            go.wait(PATIENCE_S)

    with Authority(slots=1, engine=engine) as authority:
        handle = authority.submit(int)
        assert handle.result(PATIENCE_S) == 0
        holder = threading.Thread(target=hold, args=(authority,))
        holder.start()
        held.wait(PATIENCE_S)
        child = os.fork()
        if child == 0:
            uses = (lambda: authority.submit(int), authority.stats, authority.dispose, authority.snapshot)
            refused = 0
            for use in uses:
                try:
                    use()
                except WhywaitError as error:
                    refused += "belongs to the process that made it" in str(error)
            with Authority(slots=1) as another:
                works = another.submit(int).result(PATIENCE_S) == 0
            os._exit(0 if refused == len(uses) and works else 1)
        go.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert authority.submit(abs, -1).result(PATIENCE_S) == 1
        holder.join()
