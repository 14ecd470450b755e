"""What a service does in a day, in a process whose disk may fail: told line by line, as clients would hear it.

``python workday.py HOME RAN JOBS``: each job adds its number to the file RAN, outside of the home.
"""

import os
import sys
import threading

from whywait.errors import WhywaitError
from whywait.machine.home import Home
from whywait.machine.service import Service


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(home, ran, jobs):
    try:
        service = Service(Home(home), slots=1, cpu=1)
    except WhywaitError as error:
        tell("closed", error)
        return
    ends = threading.Semaphore(0)
    awaited = 0
    for index in range(jobs):
        script = f"echo {index} >> {ran}; exit {index % 2}"
        environment = {"PATH": os.environ["PATH"], "N": str(index)}
        live = service.jobs.add(["sh", "-c", script], "/", environment, retry=index % 3, id=f"job-{index}")
        try:
            live.accepted.wait()
        except WhywaitError as error:
            service.jobs.withdraw(live)
            tell("refused", index, error)
            continue
        tell("accepted", index)
        awaited += 1

        def ended(job, index=index):
            tell("ended", index, job.outcome)
            ends.release()

        service.jobs.when_ended(live.job, ended)
    for _ in range(awaited):
        ends.acquire()
    service.close()
    tell("closed")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
