"""The queues that are compared: how each is started, given jobs, and ended. One short class each.

Each runs in a folder of its own, and jobs are shell words. What a tool prints is thrown away.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

LONGEST_S = 120


class Queue(ABC):
    """A tool that is given jobs and runs some of them at once."""

    name: ClassVar[str]
    keeps: ClassVar[str]  # where the queue is kept: disk, memory, nowhere
    can_have_slots: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        """Use a folder of its own."""
        self.folder = folder
        self.env = dict(os.environ)

    @abstractmethod
    def open(self, slots: int) -> None:
        """Start it, with so many jobs at once."""

    @abstractmethod
    def add(self) -> str:
        """Return the shell command that adds the job ``$job``."""

    def add_many(self) -> str | None:
        """Return the shell command that adds the jobs that it reads, one a line, in one go; None if there is none."""
        return None

    @abstractmethod
    def close(self) -> None:
        """End it; nothing waits any more."""

    def run(self, command: str, **more: str) -> None:
        """Run a shell command in the environment of the tool."""
        subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env={**self.env, **more}, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


class TaskSpooler(Queue):
    """task-spooler: a server in memory; each job is a client process that waits for its turn."""

    name, keeps = "task-spooler", "memory"

    def open(self, slots: int) -> None:
        """Start the server by the first command."""
        self.env |= {"TS_SOCKET": str(self.folder / "socket"), "TMPDIR": str(self.folder), "TS_MAXFINISHED": "100000"}
        self.run(f"tsp -S {slots}")

    def add(self) -> str:
        """Add by ``tsp``."""
        return "tsp $job"

    def close(self) -> None:
        """End the server."""
        self.run("tsp -K")


class Nq(Queue):
    """nq: no server; each job is a process that waits for the files of those before it. One at a time."""

    name, keeps, can_have_slots = "nq", "disk", False

    def open(self, slots: int) -> None:
        """Need nothing."""
        assert slots == 1, "it runs one job at a time"
        self.env["NQDIR"] = str(self.folder)

    def add(self) -> str:
        """Add by ``nq``."""
        return "nq -q $job"

    def close(self) -> None:
        """Wait for the last."""
        self.run("nq -w")


class Sem(Queue):
    """GNU parallel as a queue: ``sem`` starts a job when a place is free, and waits for that itself."""

    name, keeps = "GNU parallel: sem", "nowhere"

    def open(self, slots: int) -> None:
        """Need nothing but a name."""
        self.env |= {"PARALLEL_HOME": str(self.folder)}
        self._slots = slots

    def add(self) -> str:
        """Add by ``sem``."""
        return f"sem --id bench -j{self._slots} --will-cite $job"

    def close(self) -> None:
        """Wait for the last."""
        self.run("sem --id bench --wait --will-cite")


class Parallel(Queue):
    """GNU parallel as it is mostly used: a list of jobs on its input, and no queue that could be added to."""

    name, keeps = "GNU parallel", "nowhere"

    def open(self, slots: int) -> None:
        """Need nothing."""
        self.env |= {"PARALLEL_HOME": str(self.folder)}
        self._slots = slots

    def add(self) -> str:
        """Refuse: jobs come as a list."""
        raise NotImplementedError

    def add_many(self) -> str:
        """Read the list."""
        return f"parallel -j{self._slots} --will-cite"

    def close(self) -> None:
        """End with the list."""


class Slurm(Queue):
    """Slurm on one node: its real controller and daemon, with munge."""

    name, keeps = "Slurm", "disk"

    def open(self, slots: int) -> None:
        """Start munged, slurmctld and slurmd with files and ports of their own."""
        self.env |= {"PATH": f"{self.env['PATH']}:/usr/sbin", "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        (self.folder / "munge" / "key").write_bytes(os.urandom(1024))
        (self.folder / "munge" / "key").chmod(0o400)
        (self.folder / "slurm.conf").write_text(_slurm_conf(self.folder, slots), encoding="utf-8")
        munge = self.folder / "munge"
        self.run(
            f"munged --force --socket={munge}/socket --key-file={munge}/key --pid-file={munge}/pid "
            f"--log-file={munge}/log --seed-file={munge}/seed"
        )
        self.run("slurmctld && slurmd")
        self._until("sinfo -h -o %t | grep -q idle")

    def add(self) -> str:
        """Add by ``sbatch``."""
        return 'sbatch -Q -n1 -o /dev/null --wrap "$job"'

    def add_many(self) -> str:
        """Add an array; its jobs take their lines by their numbers."""
        return (
            "cat > jobs; sbatch -Q -n1 -o /dev/null --array=1-$(wc -l < jobs) "
            "--wrap '$(sed -n \"$SLURM_ARRAY_TASK_ID\"p jobs)'"
        )

    def close(self) -> None:
        """End the daemons."""
        for name in ("slurmd.pid", "slurmctld.pid", "munge/pid"):
            pid = int((self.folder / name).read_text())
            os.kill(pid, signal.SIGTERM)
            self._until(f"! kill -0 {pid}")

    def _until(self, condition: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while subprocess.run(["sh", "-c", condition], env=self.env, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, f"{condition} was not met"
            time.sleep(0.05)


class Whywait(Queue):
    """The machine of whywait: each job is on the disk before it is confirmed."""

    name, keeps = "whywait", "disk"

    def open(self, slots: int) -> None:
        """Start the service."""
        self.env["WHYWAIT_HOME"] = str(self.folder / "home")
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
            self.env.pop(name, None)
        self.run(f"whywait up --detach --slots {slots} --cpu 64")

    def add(self) -> str:
        """Add by ``whywait add``."""
        return "whywait add -- $job"

    def add_many(self) -> str:
        """Add by a few lines of Python, which is how a program adds many."""
        return f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('add_many.py')))}"

    def close(self) -> None:
        """End the service."""
        self.run("whywait down --now")


class WhywaitDo(Whywait):
    """The same machine, for commands that keep their terminals: each client waits by itself."""

    name, keeps = "whywait do", "nowhere"

    def add(self) -> str:
        """Leave the client in the background."""
        return "whywait do --quiet -- $job &"

    def add_many(self) -> str | None:  # type: ignore[override]
        """Have no such way."""
        return None


QUEUES: tuple[type[Queue], ...] = (Whywait, WhywaitDo, TaskSpooler, Nq, Sem, Parallel, Slurm)


def _slurm_conf(folder: Path, slots: int) -> str:
    host = os.uname().nodename.partition(".")[0]
    return f"""\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser={_user()}
SlurmdUser={_user()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MaxJobCount=100000
MaxArraySize=100001
MinJobAge=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def _user() -> str:
    import pwd  # noqa: PLC0415 - for Slurm alone

    return pwd.getpwuid(os.getuid()).pw_name


def version_of(queue: type[Queue]) -> str:
    """Return the version of a tool, as its package tells it."""
    packages = {"task-spooler": "task-spooler", "nq": "nq", "Slurm": "slurmctld"}
    package = packages.get(queue.name, "parallel" if "parallel" in queue.name else "")
    if not package or not shutil.which("dpkg-query"):
        return ""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
    )
    return done.stdout.partition("-")[0]
