"""What somebody meets first: the wheel in an empty environment, missing extras, the demo, types as users check them."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from program import clean_environment, whywait
from whywait.engines.registry import MAKERS

TOP = Path(__file__).resolve().parent.parent
EXTRAS = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing())
import whywait
{program}
"""
# What takes long to load and not every program needs is loaded when it is first used.
HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "decimal", "difflib", "fractions", "json", "multiprocessing", "pickle",
    "socket", "ssl", "subprocess", "tempfile", "tomllib", "whywait.engines.command.engine",
    "whywait.engines.process.engine", "whywait.observe.explain",
    "whywait.kernel.reasons", "whywait.kernel.snapshot", "whywait.simulation.simulation",
}  # fmt: skip
SPAWN = "spawn = lambda: whywait.current().spawn(int, process=True)"
TYPED = TOP / "examples" / "typed" / "pipeline.py"


def run(*args, **options):
    done = subprocess.run(
        [str(arg) for arg in args], capture_output=True, text=True, check=False, env=clean_environment(), **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The Python of an empty environment with nothing but the built wheel."""
    folder = tmp_path_factory.mktemp("empty")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", TOP, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, cwd=folder)
    (wheel,) = folder.glob("whywait-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-index", wheel)
    return python


def test_the_wheel_works_without_extras(empty, tmp_path):
    program = """if True:
        import json, sys
        before = set(sys.modules)
        import whywait
        loaded = sorted(set(sys.modules) - before)
        with whywait.Authority(slots=2) as authority:
            total = authority.submit(sum, [1, 2]).result()
        with whywait.Executor(2) as pool:
            total += pool.submit(pow, 2, 3).result()
        print(json.dumps([whywait.__file__, total, loaded]))
    """
    place, total, loaded = json.loads(run(empty, "-c", program, cwd=tmp_path))
    assert "site-packages" in place
    assert (Path(place).parent / "py.typed").exists()
    assert (Path(place).parent / "devtools" / "page" / "index.html").exists()
    assert total == 11
    assert HEAVY.isdisjoint(loaded)


def test_the_program_of_a_bare_wheel_says_what_it_needs(empty, tmp_path):
    for command, code in (("--help", 0), ("top", 2)):
        for program in ([empty, "-m", "whywait"], [empty.parent / "whywait"]):
            done = subprocess.run([*program, command], capture_output=True, text=True, check=False, cwd=tmp_path)
            assert done.returncode == code
            assert code == 0 or done.stderr.endswith("install it with: pip install 'whywait[cli]'\n")


@pytest.mark.parametrize(
    ("package", "extra", "program"),
    [
        ("rich", "cli", "from whywait.cli import execute; execute(['top'])"),
        ("yaml", "cli", "from whywait.workflow import load; load('x.yaml')"),
        ("starlette", "devtools", "whywait.Authority().devtools()"),
        ("uvicorn", "devtools", "from whywait.cli import execute; execute(['demo', '--no-browser'])"),
        ("prometheus_client", "devtools", "from whywait.cli import execute; execute(['serve', 'x.jsonl'])"),
        ("cloudpickle", "process", "whywait.Authority(engine='process')"),
        ("cloudpickle", "process", "whywait.Authority().submit(int, engine='process')"),
        ("cloudpickle", "process", f"{SPAWN}; whywait.Authority().submit(spawn).result()"),
        ("opentelemetry", "otel", "import whywait.bridges.otel"),
        *([("ray", "ray", "whywait.Authority(engine='ray')")] if "ray" in MAKERS else []),
    ],
)  # fmt: skip
def test_a_feature_without_its_package_says_which_extra_it_needs(package, extra, program, tmp_path):
    (tmp_path / "x.yaml").write_text("task: {}\n")
    done = subprocess.run(
        [sys.executable, "-c", MISSING.format(package=package, program=program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert f"pip install 'whywait[{extra}]'" in done.stderr, done.stderr
    assert extra in EXTRAS


def test_every_extra_is_explained():
    text = (TOP / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if f"`{extra}`" not in text] == []


def test_python_m_whywait_is_the_program():
    done = whywait("--version")
    assert done.code == 0
    assert re.fullmatch(
        r"whywait \d+\.\d+\.\d+ \(core: (compiled|interpreted), Python 3\.[^ ]+\)\n(the core is interpreted: .+\n)?",
        done.out,
    )


def test_demo_shows_a_lively_run_and_ends_by_an_interrupt(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-m", "whywait", "demo", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    with demo:
        url, _, token = demo.stderr.readline().strip().removeprefix("DevTools: ").partition("#token=")
        asked = urllib.request.Request(f"{url}api/snapshot", headers={"Authorization": f"Bearer {token}"})
        assert "render farm" in demo.stdout.readline()
        counts = {"running": 0}
        while counts["running"] < 4 or counts["not_ready"] < 5:  # until it has come to life, which takes a moment
            with urllib.request.urlopen(asked) as answer:
                counts = json.load(answer)["counts"]
        demo.send_signal(signal.SIGINT)
        out, error = demo.communicate(timeout=60)
    assert demo.returncode == 0, error
    assert "Where the waiting went" in out
    assert "Traceback" not in error


def test_demo_opens_the_page_where_there_is_a_screen(tmp_path):
    """The browser is led there by a file: its command line can be seen by others, and has no token on it."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened; cat "${{1#file://}}" > {tmp_path}/page\n')
    browser.chmod(0o755)
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "BROWSER": f"{browser} %s"}
    done = whywait("demo", "--seconds", "1", env=env)
    assert done.code == 0, done
    url = done.err.splitlines()[0].removeprefix("DevTools: ")
    opened = (tmp_path / "opened").read_text().strip()
    assert opened.startswith(f"file://{tmp_path}/whywait/")
    assert url.partition("#")[2] not in opened
    assert f"url={url}" in (tmp_path / "page").read_text()
    assert not list(tmp_path.glob("whywait/*")), "it is gone with the run"
    assert "It ends after 1 s." in done.out


def test_demo_without_a_screen_says_so(tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
    done = whywait("demo", "--seconds", "0.5", env=env)
    assert done.code == 0, done
    assert "open the address above" in done.out


def test_the_typed_example_runs():
    assert "{'a': 'success'}" in run(sys.executable, TYPED)


@pytest.fixture
def project(tmp_path):
    """A project of somebody else's, with the example in it."""
    shutil.copy(TYPED, tmp_path)
    return tmp_path


def test_mypy_finds_nothing_wrong_with_a_typed_program(project):
    said = run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", TOP / ".mypy_cache", TYPED.name, cwd=project)
    assert said == "Success: no issues found in 1 source file\n"


def test_pyright_finds_nothing_wrong_with_a_typed_program(project):
    (project / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    said = run(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, cwd=project)
    summary = json.loads(said)["summary"]
    assert (summary["filesAnalyzed"], summary["errorCount"], summary["warningCount"]) == (1, 0, 0)
