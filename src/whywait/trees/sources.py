"""What a guard waits for: descriptors, each with what is to be done when there is something to read."""

from __future__ import annotations

from select import POLLIN, poll

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable


class Sources:
    """Descriptors that are waited for together."""

    def __init__(self) -> None:
        """Wait for none yet."""
        self._poll = poll()
        self._readers: dict[int, Callable[[], object]] = {}

    def add(self, fd: int, read: Callable[[], object]) -> None:
        """Call ``read`` whenever there is something to read; when it raises EOFError, never again."""
        self._readers[fd] = read
        self._poll.register(fd, POLLIN)

    def remove(self, fd: int) -> None:
        """Wait for a descriptor no longer."""
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to read, for so long at most, and have it read."""
        for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            read = self._readers.get(fd)
            if read is None:
                continue  # removed by the reader before it
            try:
                read()
            except EOFError:
                self.remove(fd)
