"""A web service of somebody else's, with an authority and DevTools mounted."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

from patience import PATIENCE_S, until
from program import clean_environment

APP = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from whywait import Authority

@asynccontextmanager
async def lifespan(app):
    async with Authority(slots=1) as authority:
        authority.submit(int, id="first")
        app.mount("/whywait", authority.devtools(port=None).app)
        yield

app = FastAPI(lifespan=lifespan)
"""


class Service:
    """A program of somebody else's."""

    def __init__(self, folder):
        (folder / "service.py").write_text(APP)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "log"
        program = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(self.port)]
        with self.log.open("w") as log:
            env = {**clean_environment(), "XDG_RUNTIME_DIR": str(folder)}
            self._program = subprocess.Popen(program, cwd=folder, stdout=log, stderr=log, env=env)
        until(lambda: "Application startup complete" in self.log.read_text(), self.log.read_text)
        until(self._listens)
        self.token = re.search(
            r"DevTools: where it is mounted in process \d+, with #token=(\S+)", self.log.read_text()
        )[1]

    def _listens(self):
        with socket.socket() as raw:
            return raw.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self._program.send_signal(signal.SIGINT)
        self._program.wait(PATIENCE_S)


@contextmanager
def service(folder):
    running = Service(folder)
    try:
        yield running
    finally:
        running.close()
