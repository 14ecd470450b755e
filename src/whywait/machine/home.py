"""The home of the machine's service: one folder that only its user can enter, with everything of the service in it.

Loaded by every ``whywait add``: it needs little of the standard library.
"""

from __future__ import annotations

import os
import stat

from whywait.errors import MachineError

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final

VARIABLE: Final = "WHYWAIT_HOME"
LEASE_VARIABLE: Final = "WHYWAIT_LEASE"  # what runs under a lease finds the lease by it
_OTHERS: Final = 0o077
_LONGEST_SOCKET_PATH: Final = 100  # Linux takes 107 bytes, others fewer


class Home:
    """Where the files of one service are."""

    def __init__(self, path: str | None = None) -> None:
        """Take the folder that is given, else ``WHYWAIT_HOME``, else the user's folder for state."""
        given = path or os.environ.get(VARIABLE)
        if not given:
            state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
            given = os.path.join(state, "whywait")
        self.path = os.path.abspath(given)
        self.socket = os.path.join(self.path, "machine.sock")
        self.store = os.path.join(self.path, "jobs.db")
        self.history = os.path.join(self.path, "history.db")
        self.lock = os.path.join(self.path, "lock")
        self.alive = os.path.join(self.path, "alive")
        self.start_lock = os.path.join(self.path, "start-lock")
        self.options = os.path.join(self.path, "options.json")
        self.token = os.path.join(self.path, "token")
        self.logs = os.path.join(self.path, "logs")
        self.door = os.path.join(self.path, "page.html")
        self.service_log = os.path.join(self.path, "service.log")

    def exists(self) -> bool:
        """Return whether the folder is there; raise if it is not the user's alone."""
        foreign = f"{self.path} is another user's: {{}}; choose a folder of your own by {VARIABLE}"
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise self._no_folder() from None
        except PermissionError:
            raise MachineError(foreign.format("it cannot be entered")) from None
        if not stat.S_ISDIR(found.st_mode):
            raise self._no_folder()
        if found.st_uid != os.getuid():
            whose = f"it belongs to user {found.st_uid}, and you are user {os.getuid()}"
            raise MachineError(foreign.format(whose))
        if found.st_mode & _OTHERS:
            raise MachineError(f"{self.path} can be entered by other users; close it with: chmod 700 {self.path}")
        return True

    def make(self) -> None:
        """Make the folder if it is missing."""
        if not self.exists():
            parent = os.path.dirname(self.path)
            os.makedirs(parent, exist_ok=True)
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            self.exists()
        os.makedirs(self.logs, mode=0o700, exist_ok=True)

    @property
    def family(self) -> int:
        """The family of the marks of all that a service of this home starts."""
        import hashlib

        from whywait.trees.system import FAMILIES

        return int.from_bytes(hashlib.sha256(os.fsencode(os.path.realpath(self.path))).digest()[:8], "big") % FAMILIES

    def take(self) -> int | None:
        """Take the home for a service; return the descriptor that keeps it, or None if another service has it."""
        return _lock(self.lock, os.O_CREAT)

    def is_ours(self, taken: int) -> bool:
        """Return whether the folder, which may have been removed, still has the file that ``take`` has locked."""
        try:
            return os.path.samestat(os.stat(self.lock), os.fstat(taken))
        except OSError:
            return False

    def take_remains(self) -> int | None:
        """Return a descriptor for jobs to hold as long as anything of them lives; None if former jobs hold theirs."""
        return _lock(self.alive, os.O_CREAT)

    def is_taken(self) -> bool:
        """Return whether a service has the home, one that begins or ends included."""
        try:
            fd = _lock(self.lock)
        except FileNotFoundError:  # none ever had
            return False
        if fd is not None:
            os.close(fd)
        return fd is None

    def wait_until_left(self) -> None:
        """Block until no service has the home."""
        import fcntl

        try:
            fd = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)

    def log_of(self, number: int) -> str:
        """Return the path of the log of a job."""
        return f"{self.logs}/{number}.log"

    def socket_address(self) -> tuple[str, int]:
        """Return the address of the socket and a descriptor to close after its use, or -1.

        A path that is too long for a socket is reached through a descriptor of its folder.
        """
        if len(os.fsencode(self.socket)) <= _LONGEST_SOCKET_PATH:
            return self.socket, -1
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{folder}/{os.path.basename(self.socket)}", folder

    def _no_folder(self) -> MachineError:
        return MachineError(f"{self.path} is no folder; choose another one by {VARIABLE}")


def private(path: str, flags: int) -> int:
    """Open a file that only its user can read."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: str) -> None:
    """Have the system keep which files there are in a folder, so that none comes back after a loss of power."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: str, flags: int = 0) -> int | None:
    """Return a descriptor of a file that is locked by it, and by its copies; None if another one has the lock."""
    import fcntl

    fd = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
