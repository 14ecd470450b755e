"""What watching costs: the same paced run with no DevTools, with a server nobody watches, and with many viewers.

One process, one authority, many short rounds: each round has all three in turn, in an order that moves on, so that
whatever else the machine does meets all of them, and each is compared with the unwatched part of its own round. The
viewers are in a process of their own and read what a page reads: the whole stream, with a snapshot once a second. They
need a processor too, which has nothing to do with the run: on a machine with two, some of what is measured here is the
viewers themselves.

Told are: how many of the offered tasks were done per second; the latency from the call of ``submit`` to the first line
of the body; and the time that the server's thread was on a processor, which is the one figure without noise.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from whywait import Authority
from whywait.runtime.authority import core_of

VIEWERS: Final = """
import selectors, socket, sys
port, count, last = sys.argv[1:]
token = sys.stdin.readline().strip()
path = f"/api/events?snapshots=yes&since={last}"
lines = f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "Accept: text/event-stream", "", ""
watch = selectors.DefaultSelector()
for _ in range(int(count)):
    viewer = socket.create_connection(("127.0.0.1", int(port)))
    viewer.sendall("\\r\\n".join(lines).encode())
    watch.register(viewer, selectors.EVENT_READ)
watch.register(sys.stdin, selectors.EVENT_READ)
buffer = bytearray(1 << 20)
print("ready", flush=True)
while True:
    for key, _ in watch.select():
        if key.fileobj is sys.stdin:
            sys.exit()
        if not key.fileobj.recv_into(buffer):
            watch.unregister(key.fileobj)
"""


class Sample(NamedTuple):
    """One part of a round."""

    per_s: float
    p50_us: float
    p99_us: float
    flat_per_s: float
    server_ms_per_s: float


def paced(authority: Authority, per_s: int, seconds: float) -> tuple[list[float], float]:
    """Submit so many tasks a second; return their latencies in us, sorted, and how many were done a second."""
    latencies: deque[float] = deque()
    clock = time.perf_counter

    def body(submitted: float) -> None:
        latencies.append((clock() - submitted) * 1e6)

    began = clock()
    for index in range(int(per_s * seconds)):
        ahead = began + index / per_s - clock()
        if ahead > 0:
            time.sleep(ahead)
        authority.submit(body, clock())
    authority.get_scope("default").wait()
    return sorted(latencies), len(latencies) / (clock() - began)


def flat_out(authority: Authority, tasks: int) -> float:
    """Run so many empty tasks as fast as it goes; return how many a second."""
    began = time.perf_counter()
    for _ in range(tasks):
        authority.submit(int)
    authority.get_scope("default").wait()
    return tasks / (time.perf_counter() - began)


def server_cpu_s() -> float:
    """Return how long the server's thread has been on a processor; 0 if there is none."""
    for thread in threading.enumerate():
        if thread.name == "whywait-devtools" and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


@contextmanager
def watched(authority: Authority, viewers: int | None) -> Iterator[None]:
    """Serve the authority, and have it watched; ``viewers`` None: not even a server."""
    if viewers is None:
        yield
        return
    with authority.devtools(announce=False) as tools:
        if not viewers:
            yield
            return
        program = [sys.executable, "-ISc", VIEWERS, str(tools.port), str(viewers), str(core_of(authority).last_seq)]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:  # noqa: S603 - our own
            assert watching.stdin is not None
            assert watching.stdout is not None
            watching.stdin.write(f"{tools.token}\n")
            watching.stdin.flush()
            watching.stdout.readline()
            try:
                yield
            finally:
                watching.stdin.close()


def measure(authority: Authority, viewers: int | None, per_s: int, seconds: float, tasks: int) -> Sample:
    """Measure one part of a round."""
    with watched(authority, viewers):
        paced(authority, per_s, 0.3)
        before, began = server_cpu_s(), time.perf_counter()
        latencies, done_per_s = paced(authority, per_s, seconds)
        server = (server_cpu_s() - before) / (time.perf_counter() - began)
        speed = flat_out(authority, tasks) if tasks else 0.0
    half, most = (latencies[len(latencies) * percent // 100] for percent in (50, 99))
    return Sample(done_per_s, half, most, speed, 1e3 * server)


def show(rows: dict[str, list[Sample]]) -> None:
    """Print the medians, and the median change against the unwatched part of the same round with its quartiles."""
    base = next(iter(rows.values()))
    fields = {"per_s": "tasks/s", "p50_us": "us p50", "p99_us": "us p99", "flat_per_s": "tasks/s flat out"}
    for field, unit in fields.items():
        for kind, samples in rows.items():
            value = statistics.median(getattr(sample, field) for sample in samples)
            if not value:
                continue
            changes = [
                100 * (getattr(mine, field) / getattr(other, field) - 1)
                for mine, other in zip(samples, base, strict=True)
            ]
            low, middle, high = statistics.quantiles(changes, n=4) if len(changes) > 1 else changes * 3
            change = "" if samples is base else f"{middle:+7.1f} %  ({low:+.1f} to {high:+.1f})"
            print(f"{kind:<12}{value:>12,.0f} {unit:<18}{change}")
    for kind, samples in rows.items():
        if samples is not base:
            value = statistics.median(sample.server_ms_per_s for sample in samples)
            print(f"{kind:<12}{value:>12.1f} ms of a processor per second, in the server's thread")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--per-s", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each part of a round")
    parser.add_argument("--tasks", type=int, default=10_000, help="for the part as fast as it goes; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    kinds = {"no server": None, "server": 0, f"{args.viewers} viewers": args.viewers}
    rows: dict[str, list[Sample]] = {kind: [] for kind in kinds}
    with Authority(slots=4) as authority:
        paced(authority, args.per_s, 1.0)
        for index in range(args.rounds):
            order = list(kinds)
            for kind in order[index % 3 :] + order[: index % 3]:
                rows[kind].append(measure(authority, kinds[kind], args.per_s, args.seconds, args.tasks))
    print(f"{args.per_s} tasks/s, medians of {args.rounds} rounds; change: median of rounds (quartiles)")
    show(rows)


if __name__ == "__main__":
    main()
