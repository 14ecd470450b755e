"""A3: the core is compiled as a whole where whywait is installed with a C compiler, and runs interpreted elsewhere."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

from program import clean_environment

TOP = Path(__file__).resolve().parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
RECORD = f"core{SUFFIX}.txt"
CORE = sorted(
    path.relative_to(TOP / "src").with_suffix("").as_posix()
    for path in (TOP / "src").rglob("*.pxd")
    if path.with_suffix(".py").exists()
)
# A unit of two modules in the place of the core: the build does not depend on how much there is to compile.
SMALL = ("whywait/kernel/first", "whywait/kernel/second")
SOURCE = "class Number:\n    def __init__(self, value):\n        self.value = value\n"
TYPES = "cdef class Number:\n    cdef public object value\n"
TELL = "import whywait, whywait.kernel.second as it; print(whywait.compiled, it.__file__.endswith('.so'))"
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


def environment(**more):
    without = {"WHYWAIT_CORE", "PYTHONPATH", "CC", "CFLAGS"}
    return {key: value for key, value in clean_environment().items() if key not in without} | more


def run(*args, code=0, **more):
    """Run a program; return what it prints, stderr included."""
    told = subprocess.run(
        [str(arg) for arg in args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment(**more),
        cwd="/",
    )
    assert told.returncode == code, told.stdout
    return told.stdout


def build(checkout, **more):
    """Compile beside the sources, as an editable install and ``make core`` do."""
    return run(sys.executable, checkout / "hatch_build.py", **more)


def tell(checkout, program=TELL, **more):
    return run(sys.executable, "-c", program, PYTHONPATH=str(checkout / "src"), **more)


def make_wheel(source, place, *options, **more):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-v", "wheel", "--no-deps", "--no-index"]
    told = run(*pip, "--no-build-isolation", "--wheel-dir", place, source, *options, **more)
    (wheel,) = place.glob("*.whl")
    return wheel, told


def compiled_in(folder):
    return sorted(path.name for path in Path(folder).rglob("*.so"))


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """An environment in which no C compiler is found."""
    return {"PATH": str(tmp_path_factory.mktemp("no-programs")), "CC": "/nonexistent/cc"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A copy of what is in the repository, with a small core, never compiled."""
    place = tmp_path_factory.mktemp("plain") / "whywait"
    generated = shutil.ignore_patterns("*.pxd", "*.so", "__pycache__", "core.*.txt")
    shutil.copytree(TOP / "src", place / "src", ignore=generated)
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy2(TOP / name, place)
    for module in SMALL:
        (place / "src" / f"{module}.py").write_text(SOURCE)
        (place / "src" / f"{module}.pxd").write_text(TYPES)
    return place


@pytest.fixture(scope="module")
def built(plain, tmp_path_factory):
    """The same, compiled in place."""
    place = tmp_path_factory.mktemp("built") / "whywait"
    shutil.copytree(plain, place)
    assert "2 of its 2 modules" in build(place)
    return place


@pytest.fixture
def checkout(built, tmp_path):
    """A copy of the compiled one to change."""
    return Path(shutil.copytree(built, tmp_path / "whywait"))


def test_a_wheel_has_the_compiled_core_beside_its_sources(plain, tmp_path):
    """A3: the wheel is for this Python and machine, and nothing generated stays behind."""
    wheel, told = make_wheel(plain, tmp_path)
    assert "the core is compiled" in told
    assert "none-any" not in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{module}{ending}" for module in SMALL for ending in (".py", ".pxd", SUFFIX)} <= names
    assert f"whywait/{RECORD}" in names
    assert [name for name in names if name.endswith((".c", ".o"))] == []
    assert compiled_in(plain) == []
    zipfile.ZipFile(wheel).extractall(tmp_path / "src")
    assert tell(tmp_path) == "True True\n"


def test_without_a_compiler_the_wheel_is_plain_python(plain, hidden, tmp_path):
    """A3: one sentence says why, in the log and by --version."""
    wheel, told = make_wheel(plain, tmp_path, **hidden)
    assert told.count("the core is not compiled and runs interpreted: no C compiler") == 1
    assert wheel.name.endswith("-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "src")
    assert tell(tmp_path) == "False False\n"
    said = run(sys.executable, "-m", "whywait", "--version", PYTHONPATH=str(tmp_path / "src"))
    assert (
        "the core is interpreted: no C compiler with Python's header files was found when it was installed; reinst"
        in said
    )
    said = tell(tmp_path, WHYWAIT_CORE="compiled", code=1)
    assert "WHYWAIT_CORE=compiled cannot be had, there is only an interpreted core: no C compiler" in said


def test_a_source_distribution_has_no_c_and_makes_a_wheel(built, tmp_path):
    """A3: from a checkout with compiled files in it."""
    program = "import sys, hatchling.build as build; build.build_sdist(sys.argv[1])"
    run("/bin/sh", "-c", 'cd "$0" && exec "$@"', built, sys.executable, "-c", program, tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = files.getnames()
    assert [name for name in names if name.endswith((".so", ".c", RECORD))] == []
    assert [name for name in names if name.endswith("/hatch_build.py")]
    wheel, told = make_wheel(archive, tmp_path)
    assert "2 of its 2 modules" in told
    assert f"{SMALL[0]}{SUFFIX}" in zipfile.ZipFile(wheel).namelist()


def test_an_editable_install_compiles_once(plain, hidden, tmp_path):
    """A3: beside the sources; again only what has changed, and every module if types have."""
    checkout = shutil.copytree(plain, tmp_path / "whywait")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "--disable-pip-version-check",
        "-v",
        "install",
        "--no-index",
    ]
    install = [*pip, "--no-deps", "--no-build-isolation", "--editable", checkout]
    paths = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))  # of the tools that build
    assert "2 of its 2 modules" in run(*install, PYTHONPATH=paths)
    assert run(python, "-c", TELL) == "True True\n"
    assert "0 of its 2 modules" in build(checkout)
    with (checkout / "src" / f"{SMALL[1]}.py").open("a") as source:
        source.write("CHANGED = True\n")
    assert "1 of its 2 modules" in build(checkout)
    assert run(python, "-c", TELL) == "True True\n"
    with (checkout / "src" / f"{SMALL[1]}.pxd").open("a") as types:
        types.write("# changed\n")
    assert "not compiled" in build(checkout, **hidden)
    assert compiled_in(checkout) == []
    assert run(python, "-c", TELL) == "False False\n"


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".pxd", "cdef class Number\n"),
        (".py", "import\n"),
        (".pxd", 'cdef extern from "no_such_header.h":\n    int nothing\n' + TYPES),
    ],
    ids=["types", "source", "C"],
)
def test_one_module_that_does_not_compile_leaves_nothing_compiled(checkout, ending, text):
    """A3: all or nothing."""
    (checkout / "src" / f"{SMALL[0]}{ending}").write_text(text)
    told = build(checkout)
    assert told.count("the core is not compiled and runs interpreted: a module of it did not compile") == 1
    assert compiled_in(checkout) == []


def test_a_module_that_left_the_core_is_no_longer_compiled(checkout):
    """A3: a ``.py`` without a ``.pxd`` is plain Python."""
    (checkout / "src" / f"{SMALL[1]}.pxd").unlink()
    assert "second.pxd is missing" in tell(checkout)
    build(checkout)
    assert compiled_in(checkout) == [f"first{SUFFIX}"]
    assert tell(checkout) == "True False\n"


def test_compiling_can_be_switched_off(plain, checkout, tmp_path):
    """A3: WHYWAIT_COMPILE=0 compiles nothing and leaves what is there."""
    wheel, _ = make_wheel(plain, tmp_path, WHYWAIT_COMPILE="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    build(checkout, WHYWAIT_COMPILE="0")
    assert tell(checkout) == "True True\n"
    said = run(sys.executable, checkout / "hatch_build.py", WHYWAIT_COMPILE="maybe", code=1)
    assert "environment variable WHYWAIT_COMPILE='maybe' is not allowed: use 0 or 1" in said


def test_the_variable_chooses_the_core(built, plain):
    """A3, E1: an impossible or unknown choice is an error with the variable, the value and what is allowed."""
    for wanted, told in (("", "True True\n"), (" Compiled ", "True True\n"), ("interpreted", "False False\n")):
        assert tell(built, WHYWAIT_CORE=wanted) == told
    said = tell(built, WHYWAIT_CORE="fast", code=1)
    assert "ConfigError: environment variable WHYWAIT_CORE='fast' is not allowed: use one of compiled, interp" in said
    assert tell(plain) == "False False\n"
    said = tell(plain, WHYWAIT_CORE="compiled", code=1)
    assert "ConfigError: environment variable WHYWAIT_CORE=compiled cannot be had" in said
    assert "it was never compiled for this Python" in said


@pytest.mark.parametrize("ending", [".py", ".pxd", SUFFIX])
def test_a_core_of_which_a_file_is_missing_or_has_changed_since_is_interpreted(checkout, ending):
    """A3: as a whole, and says so in one line: code of an earlier state is never run in silence."""
    file = checkout / "src" / f"{SMALL[0]}{ending}"
    data = file.read_bytes()
    if ending == SUFFIX:
        file.unlink()
    else:
        file.write_bytes(data + b"# changed\n")
    says = f"first{ending} is missing" if ending == SUFFIX else f"first{ending} has changed since it was compiled"
    warning, answer = tell(checkout).splitlines()
    assert answer == "False False"
    assert warning.startswith("whywait: the core runs interpreted: ")
    assert f"{says}; compile it again with: make core" in warning
    assert says in tell(checkout, WHYWAIT_CORE="compiled", code=1)
    assert tell(checkout, WHYWAIT_CORE="interpreted") == "False False\n"
    file.write_bytes(data)  # one that was only touched is the same
    assert tell(checkout) == "True True\n"


@pytest.mark.parametrize("core", ["compiled", "interpreted"])
def test_a_child_process_has_the_same_core(built, core, tmp_path):
    """A3: workers of the process engine, and children that multiprocessing spawns."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import multiprocessing
        import whywait

        def look():
            import whywait, whywait.kernel.second as it
            return whywait.compiled, it.__file__.endswith(".so")

        if __name__ == "__main__":
            with whywait.Authority(engine="process") as authority:
                print(*authority.submit(look).result())
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(*pool.apply(look))
        """)
    )
    told = run(sys.executable, program, PYTHONPATH=str(built / "src"), WHYWAIT_CORE=core)
    assert told == f"{core == 'compiled'} {core == 'compiled'}\n" * 2


def test_a_subinterpreter_has_the_interpreted_core(built):
    """A3: it cannot load compiled modules, and needs no variable to do without."""
    program = f"""if True:
        try:
            import _interpreters as interpreters
        except ImportError:  # before Python 3.13
            import _xxsubinterpreters as interpreters
        exec({TELL!r})
        it = interpreters.create()
        failed = interpreters.run_string(it, {TELL!r})
        assert not failed, failed
        interpreters.destroy(it)
    """
    for wanted in ("", "compiled"):
        assert sorted(tell(built, program, WHYWAIT_CORE=wanted).splitlines()) == ["False False", "True True"]


def test_nothing_generated_is_in_the_repository():
    """A3: the repository has the sources alone."""
    names = subprocess.check_output(["git", "ls-files", "src"], cwd=TOP, text=True).splitlines()
    assert [name for name in names if name.endswith((".so", ".c", ".txt"))] == []


def test_the_tests_run_with_the_core_that_was_asked_for():
    """A3: every module of it is compiled, or none is."""
    program = f"""if True:
        import importlib, whywait
        loaded = [importlib.import_module(name.replace("/", ".")) for name in {CORE}]
        print(whywait.compiled, {{module.__file__.endswith(".so") for module in loaded}})
    """
    env = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(TOP / "src"), *sys.path])}
    told = subprocess.check_output([sys.executable, "-c", program], env=env, text=True)
    assert told in {"True {True}\n", "False {False}\n"}
