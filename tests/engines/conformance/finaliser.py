"""A program that submits tasks from finalisers that the garbage collector runs at any moment; run by test_many.py."""

import faulthandler
import gc
import sys
import threading

import bodies
import documented  # noqa: F401 - its engine can be named then

from patience import FREE_THREADED
from whywait import Retry
from whywait.errors import WhywaitError
from whywait.runtime.authority import Authority

ROUNDS = 300 if FREE_THREADED else 150  # a thread tells the collector of every 512th object only, where it is free


class Knot:
    """Garbage that only the collector finds; its finaliser submits and looks around."""

    def __init__(self, authority, fn, handles):
        self.me = self
        self.authority, self.fn, self.handles = authority, fn, handles

    def __del__(self):
        if threading.current_thread().name.startswith("ending"):
            return
        try:
            self.handles.append(self.authority.submit(self.fn, 1, timeout=60, retry=Retry(1, backoff=0.01)))
            self.authority.stats()
        except WhywaitError as error:
            self.handles.append(error)


def main(engine, form):
    """Print how many submissions from finalisers worked and how many were refused."""
    faulthandler.dump_traceback_later(40, exit=True)
    body = bodies.in_form(form)
    authority = Authority(engine=engine, slots=2, events=100)
    from_finalisers, own = [], []
    gc.set_threshold(5, 0)  # the second number: also where a free-threaded interpreter would wait for more
    for i in range(ROUNDS):
        Knot(authority, body.value, from_finalisers)
        own.append(authority.submit(body.value, i, timeout=60))
        if i % 10 == 0:
            own[-1].add_done_callback(lambda _: Knot(authority, body.value, from_finalisers))
    for i, handle in enumerate(own):
        assert handle.result(30) == i
    gc.set_threshold(700, 10)
    threading.current_thread().name = "ending"
    gc.collect()
    refused = [each for each in from_finalisers if isinstance(each, WhywaitError)]
    worked = [each for each in from_finalisers if not isinstance(each, WhywaitError)]
    for handle in worked:
        assert handle.result(30) == 1
    authority.dispose()
    print(len(worked), len(refused))


if __name__ == "__main__":
    main(*sys.argv[1:])
