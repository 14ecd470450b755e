"""What users hand over may answer any question by raising: errors, results, callbacks, subscribers, finalisers."""

import gc
import logging
import threading

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Retry, WhywaitError
from whywait.kernel import invariants

IN_THIS_PROCESS = ("thread", "simple", "asyncio")


class NoTracebackError(Exception):
    """Raises when its traceback is read or written."""

    @property
    def __traceback__(self):
        raise RuntimeError("nobody looks at my traceback")

    @__traceback__.setter
    def __traceback__(self, value):
        raise RuntimeError("nobody touches my traceback")


class NoTextError(Exception):
    """Has neither a text nor a repr."""

    def __repr__(self):
        raise RuntimeError("I have nothing to say")

    __str__ = __repr__


class NoEqualsError(Exception):
    """Cannot be compared and has no hash."""

    def __eq__(self, other):
        raise RuntimeError("there is none like me")

    __hash__ = None


class AnswersForItself(type):
    """A class that fails to say who is one of it."""

    def __instancecheck__(cls, other):
        raise RuntimeError("I do not say")


class UnclearError(Exception, metaclass=AnswersForItself):
    pass


class Prickly:
    """A result, or an argument, that raises at every touch."""

    def _refuse(self, *_):
        raise RuntimeError("do not touch")

    __bool__ = __eq__ = __len__ = __repr__ = __str__ = __iter__ = __del__ = _refuse
    __hash__ = None

    def __getattr__(self, name):
        raise RuntimeError(f"do not ask for {name}")


def throw(kind):
    raise kind


def echo(value):
    return value


@pytest.fixture(params=IN_THIS_PROCESS)
def authority(request):
    with Authority(slots=1, engine=request.param, grace=PATIENCE_S) as authority:
        yield authority
        check_goes_on(authority)


def check_goes_on(authority):
    """Nothing holds a slot, the kernel is in order, and the next task runs."""
    assert authority.submit(int).result(PATIENCE_S) == 0
    until(lambda: authority.stats()["active"] == 0)
    with authority._core.lock:
        invariants.check(authority._core.kernel, 1 << 62, rested=False)


@pytest.mark.parametrize(
    "kind",
    [
        NoTracebackError,
        NoTextError,
        NoEqualsError,
        UnclearError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        StopIteration,
    ],
)
def test_an_error_that_answers_nothing_is_an_error_like_another(authority, kind):
    """T2, T4: whatever is raised, the task ends as ERROR with that very object and gives its slot back."""
    handle = authority.submit(throw, kind)
    error = handle.exception(PATIENCE_S)
    assert type(error) is kind
    assert (handle.outcome, handle.cause) == ("error", "exception")


def test_an_error_in_a_worker_process_that_answers_nothing():
    """T2: nor does it harm the worker."""
    with Authority(slots=1, engine="process") as authority:
        for kind in (NoTracebackError, NoTextError, NoEqualsError):
            assert authority.submit(throw, kind).exception(PATIENCE_S) is not None
        assert authority.submit(echo, 5).result(PATIENCE_S) == 5


def test_a_class_that_cannot_tell_its_errors_retries_none(authority, caplog):
    """T7: `on` with a class that raises when it is asked: no retry, said in the log, and the slot comes back."""
    handle = authority.submit(throw, ValueError, retry=Retry(3, on=(UnclearError,)))
    assert isinstance(handle.exception(PATIENCE_S), ValueError)
    assert len(handle.attempts) == 1
    assert "cannot be told" in caplog.text


def test_a_periodic_with_errors_that_answer_nothing(authority, caplog):
    """R6: failures are counted and told, and the text of an error is never made while the scheduler is locked."""
    held = []

    class CuriousError(Exception):
        def __str__(self):
            held.append(authority._core.lock._is_owned())
            raise RuntimeError("no")

    errors = iter([NoTextError, NoTracebackError, CuriousError])
    periodic = authority.get_scope("default").periodic(lambda: throw(next(errors)), every=0.001, disable_after=3)
    until(lambda: not periodic.status().enabled)
    assert periodic.status().consecutive_failures == 3
    assert "CuriousError" in periodic.status().last_error
    assert held
    assert not any(held)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the finaliser
def test_results_and_arguments_that_raise_at_every_touch(authority):
    """T5, G4: they pass through and are let go."""
    handle = authority.submit(echo, Prickly())
    assert type(handle.result(PATIENCE_S)) is Prickly
    assert type(authority.submit(echo, handle).result(PATIENCE_S)) is Prickly


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt, NoTextError, NoTracebackError])
def test_callbacks_and_subscribers_that_raise(authority, kind, caplog):
    """T5, V3: logged; the others are called, and scheduling goes on."""
    called = []
    end = authority.subscribe(lambda _: throw(kind) if issubclass(kind, Exception) else None)
    with_gate = authority.submit(echo, 1)
    for fn in (lambda _: throw(kind), called.append):
        with_gate.add_done_callback(fn)
    until(lambda: called)
    end()
    assert "callback" in caplog.text or "subscriber" in caplog.text


def test_callbacks_that_act_on_everything(authority):
    """T5, X4: a callback may submit, cancel, look, wait for what is done, and dispose of another scope."""
    scope = authority.scope("other")
    ended = threading.Event()
    problems = []

    def act(handle):
        try:
            handle.cancel()
            handle.why()
            authority.snapshot()
            assert handle.result(0) == 1
            handle.add_done_callback(lambda _: authority.submit(echo, 2).add_done_callback(lambda _: ended.set()))
            scope.submit(echo, 3).cancel()
            if authority.settings.engine != "asyncio":  # there, dispose() on the loop is refused if anything runs
                scope.dispose()
        except BaseException as error:
            problems.append(error)
            raise

    authority.submit(echo, 1).add_done_callback(act)
    assert ended.wait(PATIENCE_S)
    assert problems == []


def test_a_callback_that_disposes_of_the_authority():
    """O4: from inside one of its own threads; it ends, and so do the threads."""
    for engine in IN_THIS_PROCESS:
        authority = Authority(slots=2, engine=engine)
        disposed = threading.Event()

        def dispose(_, authority=authority, disposed=disposed):
            authority.dispose()
            disposed.set()

        authority.submit(echo, 1).add_done_callback(dispose)
        assert disposed.wait(PATIENCE_S), engine
        authority.dispose()


def test_submitting_in_the_midst_of_a_collection(authority):
    """D6: the collector's callbacks submit, at any moment; refused or done, never half, and nothing deadlocks."""
    accepted, refused = [], []
    busy = threading.local()

    def submit(phase, info):
        if getattr(busy, "now", False):
            return
        busy.now = True
        try:
            accepted.append(authority.submit(echo, phase))
        except WhywaitError:
            refused.append(phase)
        finally:
            busy.now = False

    threshold = gc.get_threshold()
    gc.callbacks.append(submit)
    try:
        gc.set_threshold(3, 0)  # the second number: also where a free-threaded interpreter would wait for more
        own = [authority.submit(echo, [number]) for number in range(300)]
        results = [handle.result(PATIENCE_S) for handle in own]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(submit)
    assert results == [[number] for number in range(300)]
    assert accepted
    assert {handle.result(PATIENCE_S) for handle in accepted} <= {"start", "stop"}


def test_a_logger_that_raises(authority):
    """O6, D5: what is wrong with the log is no task's business."""

    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("the log is full")

    log = logging.getLogger("whywait")
    broken = Broken()
    log.addHandler(broken)
    try:
        handle = authority.submit(throw, ValueError)
        handle.add_done_callback(lambda _: throw(RuntimeError))
        assert isinstance(handle.exception(PATIENCE_S), ValueError)
        assert authority.submit(echo, 1).result(PATIENCE_S) == 1
    finally:
        log.removeHandler(broken)


def test_a_loop_for_coroutines_that_gets_no_thread_costs_its_task_only(monkeypatch):
    """T2: the system gives no thread; the next task gets another loop."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "whywait-loop":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def body():
        return 1

    with Authority(slots=1) as authority:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                authority.submit(body).result(PATIENCE_S)
        assert authority.submit(body).result(PATIENCE_S) == 1


@pytest.mark.parametrize("name", ["whywait-clock", "whywait-process", "whywait-thread", "whywait-loop"])
def test_a_finaliser_in_the_first_steps_of_a_thread_may_submit(name, monkeypatch):
    """T3: who starts a thread waits for its first steps, and holds no lock that a finaliser there may want."""
    bootstrap, found = threading.Thread._bootstrap_inner, []

    def submit_first(thread):
        if thread.name.startswith(name) and not found:
            found.append(authority.submit(int, priority=1, timeout=PATIENCE_S))
        bootstrap(thread)

    async def coroutine():
        return 1

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", submit_first)
    body, engine = (coroutine, "asyncio") if name == "whywait-loop" else (int, name.removeprefix("whywait-"))
    with Authority(slots=2) as authority:
        authority.submit(body, engine="thread" if name == "whywait-clock" else engine, timeout=PATIENCE_S)
        until(lambda: found)
        assert found[0].result(PATIENCE_S) == 0
