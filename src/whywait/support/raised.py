"""Looking at what a body has raised: an exception is the user's own object, and may answer any question by raising."""

from __future__ import annotations

from types import TracebackType

from whywait.support.logger import Log

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_get_traceback = BaseException.__dict__["__traceback__"].__get__


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error, whatever its class makes of that attribute."""
    traceback: TracebackType | None = _get_traceback(error)
    return traceback


def cut_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Leave only this part of an error's traceback, whatever its class makes of that attribute."""
    BaseException.with_traceback(error, traceback)


def shown_error(error: BaseException) -> str:
    """Return the repr of an error, or at least its type."""
    try:
        return repr(error)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the type can be told
        return f"<{type(error).__name__} whose repr raised {type(problem).__name__}>"


def with_message(error: BaseException) -> str:
    """Return the type of an error and what it says, if it does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the same
        return shown_error(error)


def loggable(error: BaseException) -> ExcInfo:
    """Return what a logger needs to show an error with its traceback, without asking the error."""
    return type(error), error, traceback_of(error)


def is_one_of(error: BaseException, kinds: tuple[type[BaseException], ...], log: Log) -> bool:
    """Return whether an error is of one of these classes; one that cannot tell is not."""
    try:
        return isinstance(error, kinds)
    except Exception:
        log.exception("whether a %s is one of the errors to retry cannot be told: it is not", type(error).__name__)
        return False
