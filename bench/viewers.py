"""What watching costs: the same paced run with no DevTools, with a server nobody watches, and with many viewers.

Each round runs the three in turn, so that whatever else the machine does meets all of them. The viewers are in a
process of their own and read everything. Latency is from the call of ``submit`` to the first line of the body; a second
run as fast as it goes gives the throughput.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from whywait import Authority

VIEWERS: Final = """
import selectors, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
watch = selectors.DefaultSelector()
for _ in range(count):
    viewer = socket.create_connection(("127.0.0.1", port))
    lines = "GET /api/events HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/event-stream", "", ""
    viewer.sendall("\\r\\n".join(lines).encode())
    watch.register(viewer, selectors.EVENT_READ)
print("ready", flush=True)
read = 0
while watch.get_map():
    for key, _ in watch.select():
        data = key.fileobj.recv(1 << 16)
        read += len(data)
        if not data:
            watch.unregister(key.fileobj)
print(read, flush=True)
"""


def paced(authority: Authority, per_s: int, seconds: float) -> list[float]:
    """Submit so many tasks a second; return their latencies in microseconds."""
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
    return sorted(latencies)


def flat_out(authority: Authority, tasks: int) -> float:
    """Run so many empty tasks; return how many a second."""
    began = time.perf_counter()
    for _ in range(tasks):
        authority.submit(int)
    authority.get_scope("default").wait()
    return tasks / (time.perf_counter() - began)


def server_cpu_s() -> float:
    """Return how long the server's thread has been on a processor; 0 where that cannot be told."""
    for thread in threading.enumerate():
        if thread.name == "whywait-devtools":
            path = Path(f"/proc/self/task/{thread.native_id}/schedstat")
            return int(path.read_text(encoding="ascii").split()[0]) / 1e9 if path.exists() else 0.0
    return 0.0


def measure(viewers: int | None, per_s: int, seconds: float, tasks: int) -> tuple[float, ...]:
    """Return median and 90th percentile of the latency, throughput, and the server's share of a processor, in percent.

    ``viewers`` None: no server at all.
    """
    with Authority(slots=4) as authority:
        watching = None
        if viewers is not None:
            tools = authority.devtools(announce=False)
            if viewers:
                program = [sys.executable, "-c", VIEWERS, str(tools.port), str(viewers)]
                watching = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
                assert watching.stdout is not None
                watching.stdout.readline()
        paced(authority, per_s, 0.3)
        before = server_cpu_s()
        latencies = paced(authority, per_s, seconds)
        share = 100 * (server_cpu_s() - before) / seconds
        speed = flat_out(authority, tasks)
    if watching is not None:
        watching.wait(20)
    return latencies[len(latencies) // 2], latencies[len(latencies) * 9 // 10], speed, share


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--per-s", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    kinds = {"no server": None, "server": 0, f"{args.viewers} viewers": args.viewers}
    rows: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind, viewers in kinds.items():
            rows[kind].append(measure(viewers, args.per_s, args.seconds, args.tasks))
    print(f"{args.per_s} tasks/s, medians of {args.rounds} rounds")
    print(f"{'':<12}{'latency p50':>20}{'latency p90':>20}{'flat out':>26}{'server thread':>16}")
    base = [statistics.median(row[part] for row in rows["no server"]) for part in range(3)]
    for kind, measured in rows.items():
        cells = []
        for part, unit in enumerate(("us", "us", "tasks/s")):
            value = statistics.median(row[part] for row in measured)
            cells.append(f"{value:,.0f} {unit} {100 * (value / base[part] - 1):+.1f}%")
        share = statistics.median(row[3] for row in measured)
        print(f"{kind:<12}{cells[0]:>20}{cells[1]:>20}{cells[2]:>26}{f'{share:.1f} % of a core':>16}")


if __name__ == "__main__":
    main()
