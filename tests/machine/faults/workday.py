"""A day of a service in a process whose disk may fail: a client uses every verb, and tells what it is answered.

``python workday.py HOME RAN``: each attempt of a job adds the job's name to the file RAN, outside of the home. A line
begins with ``asks`` before a request, and with what was done, or ``refused``, when the answer is there.
"""

import os
import sys
import threading

from whywait.errors import WhywaitError
from whywait.machine.client import Machine
from whywait.machine.home import Home
from whywait.machine.service import Service
from whywait.machine.socket_server import SocketServer

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Client:
    """Asks for one thing after the other; goes on after a refusal."""

    def __init__(self, home, ran):
        self.machine = Machine(home)
        self.ran = ran

    def ask(self, done, name, path, body=None):
        """Ask for something that is done to a job; return the answer, None if it was refused."""
        tell("asks", done, name)
        try:
            answer = self.machine.ask("POST", path, body or {})
        except WhywaitError as error:
            tell("refused", done, name, error)
            return None
        if answer.get("jobs") != []:  # nothing to retry
            tell(answer.get("done", done), name)
        return answer

    def job(self, name, script="exit 0", **more):
        command = ["sh", "-c", f"echo {name} >> {self.ran}; {script}"]
        return {"id": name, "command": command, "directory": "/", "environment": ENVIRONMENT, **more}

    def add(self, name, script="exit 0", **more):
        return self.ask("accepted", name, "/machine/jobs", self.job(name, script, **more))

    def act(self, done, name):
        verb = {"cancelled": "cancel", "paused": "pause", "resumed": "resume", "forgotten": "forget"}[done]
        self.ask(done, name, f"/machine/jobs/{name}/{verb}")

    def wait(self, name):
        try:
            row = self.machine.ask("GET", f"/machine/jobs/{name}/wait")
        except WhywaitError as error:
            tell("no-end", name, error)
        else:
            tell("ended", name, row["outcome"])

    def spend_day(self):
        self.add("first")
        self.wait("first")
        this_day = f"kill -0 {os.getpid()} 2>/dev/null"
        while not self.add("holds", f"while {this_day}; do sleep 0.02; done", retry=2):
            pass  # it has the one slot, so that what follows waits
        for name in ("stays", "goes", "never"):
            self.add(name)
        self.act("paused", "stays")
        self.act("paused", "goes")
        self.act("resumed", "goes")
        self.act("cancelled", "never")
        batch = [self.job("one"), self.job("two", after=["one"])]
        self.ask("accepted", "flow", "/machine/workflows", {"name": "flow", "slots": 1, "jobs": batch})
        self.act("cancelled", "holds")
        self.wait("goes")
        self.add("fails", "exit 3", retry=1)
        self.wait("fails")
        self.ask("retried", "fails", "/machine/retry")
        self.act("forgotten", "first")


def main(home, ran):
    try:
        service = Service(Home(home), slots=1, cpu=1)
    except WhywaitError as error:
        tell("closed", error)
        return
    client = Client(service.home, ran)

    def work():
        client.spend_day()
        client.machine.ask("POST", "/machine/down", {"now": True})

    worker = threading.Thread(target=work)
    try:
        SocketServer(service, worker.start).run()
    finally:
        service.close()
    worker.join()
    tell("closed")


main(sys.argv[1], sys.argv[2])
