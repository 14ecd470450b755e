"""Attacks that try to leave a process behind when the program is killed; each is tried with cgroups and without."""

import os
import subprocess
import sys

import pytest

from patience import until
from program import clean_environment

SLEEPS = 20


def killed(argv, sleeps, count, cwd=None):
    """Run a program until so many sleeps are there, kill it, and wait until none is left."""
    program = subprocess.Popen(
        [sys.executable, *argv], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        until(lambda: len(sleeps.alive()) >= count, lambda: f"{count} sleeps, not {len(sleeps.alive())}")
    finally:
        program.kill()
        program.wait()
    until(lambda: not sleeps.alive(), lambda: f"the end of {len(sleeps.alive())} sleeps")


def environment():
    """Return an environment in which the way of holding trees is the only setting."""
    kept = {name: value for name, value in os.environ.items() if name == "WHYWAIT_CGROUPS"}
    return {**clean_environment(), **kept}


@pytest.mark.usefixtures("way")
def test_a_run_inside_a_run(tmp_path, sleeps):
    """O5: the outer run is killed: the inner run ends, and the twenty commands that it runs."""
    inner = ["slots = 20", *(f"[task.s{number}]\nrun = 'sleep {sleeps.name()}'" for number in range(SLEEPS))]
    (tmp_path / "inner.toml").write_text("\n".join(inner))
    (tmp_path / "outer.toml").write_text(f"[task.inner]\nrun = '{sys.executable} -m whywait run inner.toml'")
    killed(["-m", "whywait", "run", "outer.toml"], sleeps, SLEEPS, cwd=tmp_path)


@pytest.mark.usefixtures("way")
def test_a_command_that_leaves_everything(tmp_path, sleeps):
    """O5: a session, an environment and a parent of its own do not save a process."""
    flee = f'setsid env -i setsid sh -c "sleep {sleeps.name()} & sleep {sleeps.name()} & exit" & sleep {sleeps.name()}'
    (tmp_path / "flee.toml").write_text(f"[task.flee]\nrun = '''{flee}'''")
    killed(["-m", "whywait", "run", "flee.toml"], sleeps, 3, cwd=tmp_path)


TASKS = """if True:
    import subprocess, sys, time
    from whywait import Authority, current
    def start(seconds):
        subprocess.Popen(["sleep", seconds], start_new_session=True, env={"PATH": "/bin:/usr/bin"})
    def start_and_stay(seconds):
        start(seconds)
        time.sleep(1000)
    def hire(seconds):
        current().spawn(start_and_stay, seconds, process=True).result()
    names = sys.argv[1:]
    with Authority(slots=4) as authority:
        authority.submit(start, names[0], engine="process").result()
        authority.submit(start_and_stay, names[1], engine="process")
        authority.submit(hire, names[2])
        authority.submit(hire, names[3], engine="process").result()
"""


@pytest.mark.usefixtures("way")
def test_what_process_tasks_and_workers_start(sleeps):
    """O5: also what an earlier task of a process has left, and what workers of tasks have started."""
    killed(["-c", TASKS, *(sleeps.name() for _ in range(4))], sleeps, 4)


@pytest.mark.usefixtures("way")
def test_what_a_process_task_left_ends_with_its_process(sleeps):
    """O5: a program that ends leaves nothing either."""
    program = TASKS.replace("authority.submit(start_and_stay", "0 and authority.submit(start_and_stay")
    program = program.replace("authority.submit(hire", "0 and authority.submit(hire").replace(").result()\n", ")\n")
    subprocess.run([sys.executable, "-c", program, *(sleeps.name() for _ in range(4))], check=True, env=environment())
    until(lambda: not sleeps.alive(), lambda: f"the end of {len(sleeps.alive())} sleeps")
