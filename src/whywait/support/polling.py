"""Asking whether there is something to read, whatever number a file descriptor has: ``select()`` knows only 1,024."""

from __future__ import annotations

import selectors

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_Poll = getattr(selectors, "PollSelector", selectors.SelectSelector)  # it needs no file descriptor of its own


def has_input(file: FileDescriptorLike) -> bool:
    """Return whether reading would give something at once: data, or that the other end has hung up."""
    with _Poll() as poll:
        poll.register(file, selectors.EVENT_READ)
        return bool(poll.select(0))
