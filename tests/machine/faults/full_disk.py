"""What a service answers on a disk that is really full: ``python full_disk.py FOLDER RAN``, on a small file system."""

import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from whywait.errors import WhywaitError
from whywait.machine.client import Machine
from whywait.machine.home import Home
from whywait.machine.service import Service
from whywait.machine.socket_server import SocketServer

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def fill(folder):
    """Write until the disk takes no byte more."""
    fd = os.open(folder / "filling", os.O_WRONLY | os.O_CREAT)
    for size in (65536, 512, 1):
        try:
            while os.write(fd, b"x" * size):
                pass
        except OSError:
            continue
    os.close(fd)


def main(folder, ran):
    service = Service(Home(str(folder / "home")), slots=1, cpu=1)
    machine = Machine(service.home)
    told = {"add": [], "flow": []}

    def ask(method, path, body=None):
        try:
            return machine.ask(method, path, body)
        except WhywaitError as error:
            return {"refused": str(error)}

    def job(name, script):
        return {"id": name, "command": ["sh", "-c", script], "directory": "/", "environment": ENVIRONMENT}

    def rows():
        return {each["id"]: (each["state"], each["outcome"]) for each in ask("GET", "/machine/jobs")}

    def work():
        ask("POST", "/machine/jobs", job("over", "echo over"))
        ask("GET", "/machine/jobs/over/wait")
        ask("POST", "/machine/jobs", job("runs", "while sleep 0.02; do :; done"))
        for name in ("waits", "stays", "ends"):
            ask("POST", "/machine/jobs", job(name, f"echo {name} >> {ran}"))
        fill(folder)
        for number in range(20):
            told["add"].append(ask("POST", "/machine/jobs", job(f"new-{number}", f"echo new >> {ran}")))
        flow = [job("one", f"echo flow >> {ran}"), job("two", f"echo flow >> {ran}")]
        told["flow"] = ask("POST", "/machine/workflows", {"name": "flow", "jobs": flow, "slots": 1})
        told["cancel waits"] = ask("POST", "/machine/jobs/waits/cancel")
        told["pause stays"] = ask("POST", "/machine/jobs/stays/pause")
        ask("POST", "/machine/jobs/ends/pause")
        told["cancel runs"] = ask("POST", "/machine/jobs/runs/cancel")
        told["wait runs"] = ask("GET", "/machine/jobs/runs/wait")
        told["rows"] = rows()
        told["forget"] = ask("POST", "/machine/forget")
        told["left"] = sorted(rows())
        (folder / "filling").unlink()
        ask("POST", "/machine/jobs/ends/resume")
        told["end"] = ask("GET", "/machine/jobs/ends/wait")
        told["again"] = ask("POST", "/machine/workflows", {"name": "flow", "jobs": [job("one", "true")], "slots": 1})
        deadline = time.monotonic() + 30
        while not (folder / "home" / "reserve").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        told["reserve"] = (folder / "home" / "reserve").exists()
        ask("POST", "/machine/jobs", job("lost", "while sleep 0.02; do :; done"))
        while rows()["lost"][0] != "RUNNING":
            time.sleep(0.05)
        ask("POST", "/machine/down", {"now": True})

    worker = threading.Thread(target=work)
    with closing(sqlite3.connect(service.home.store)) as reader:  # so that the store is left as by a kill
        reader.execute("SELECT * FROM jobs").fetchall()
        try:
            SocketServer(service, worker.start).run()
        finally:
            service.close()
        worker.join()
        (folder / "home" / "reserve").unlink()
        fill(folder)
        try:
            Service(service.home, slots=1, cpu=1)
        except WhywaitError as error:
            told["begin"] = str(error)
    sys.stdout.write(json.dumps(told))


main(Path(sys.argv[1]), sys.argv[2])
