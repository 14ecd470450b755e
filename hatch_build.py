"""Compiles the core when whywait is built: by Cython, every ``.py`` of the package that has a ``.pxd`` beside it.

All of it or nothing: without a C compiler, or if a module does not compile, whywait is installed as plain Python and
runs the same files. A record in the package tells what was compiled from what, or why nothing was; it is read by
``whywait/support/core.py``. Run as a program, this compiles beside the sources, as an editable install does.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from contextlib import chdir
from importlib import metadata
from importlib.util import source_hash
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # types come from the .pxd alone
    "infer_types": True,
    "binding": True,
    "nonecheck": True,  # None in the place of an object is an error, not a wrong answer
    "freethreading_compatible": True,
}
FLAGS: Final = ["-O1", "-g0"]  # as fast as -O2 -g, in half the time and a sixth of the size
JOBS: Final = 2
SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX")  # of the modules that are compiled for this Python
RECORD: Final = f"core{SUFFIX}.txt"
PROBE: Final = "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"
Sources = dict[str, tuple[str, str]]  # what the .py and the .pxd of each module of the core are known by


class CompiledCore(BuildHookInterface[Any]):
    """Adds the compiled core to a wheel; an editable install has it beside the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the core and tell the wheel of its files."""
        package = Path(self.root, "src", "whywait")
        if version == "editable":
            is_compiled = compile_in_place(package)
        else:
            self.scratch = tempfile.TemporaryDirectory(prefix="whywait-")  # is removed with this object
            folder = Path(self.scratch.name)
            record, files = compile_core(package, folder)
            folder.joinpath(RECORD).write_text(record, encoding="utf-8")
            named = {f"{module}{SUFFIX}": path for module, path in files.items()} | {RECORD: folder / RECORD}
            build_data["force_include"].update({str(path): f"whywait/{name}" for name, path in named.items()})
            is_compiled = bool(files)
        build_data.update(pure_python=not is_compiled, infer_tag=is_compiled)


def compile_in_place(package: Path) -> bool:
    """Compile what has changed, beside the sources; return whether the core is compiled.

    Whenever this is stopped, some file of the record is missing, so that the core runs interpreted as a whole.
    """
    begun_ns = time.time_ns()
    if is_switched_off() and package.joinpath(RECORD).exists():
        return bool(read_record(package)[1])  # all stays as it is
    with tempfile.TemporaryDirectory(prefix="whywait-") as folder:
        record, files = compile_core(package, Path(folder))
        for old in set(package.rglob(f"*{SUFFIX}")).difference(files.values()):
            old.unlink()
        package.joinpath(RECORD).write_text(record, encoding="utf-8")
        for module, path in files.items():
            place = package / f"{module}{SUFFIX}"
            if path != place:
                shutil.copyfile(path, place)
            os.utime(place, ns=(begun_ns, begun_ns))  # a source that was changed since is newer
    return bool(files)


def compile_core(package: Path, folder: Path) -> tuple[str, dict[str, Path]]:
    """Return the record and the compiled file of each module; no file, and why, if the core is not compiled.

    Files beside the sources are taken if they were made from the same, the others are made in the folder.
    """
    why = "WHYWAIT_COMPILE=0 was set when it was installed; reinstall without it for twice the speed and more"
    if not is_switched_off():
        new, (old_how, old) = read_sources(package), read_record(package)
        files = {module: package / f"{module}{SUFFIX}" for module in new}
        why = "Cython or setuptools was missing when it was installed"
        try:
            how = f"Cython {metadata.version('cython')}, Python {platform.python_version()}, {DIRECTIVES}, {FLAGS}"
            is_same = how == old_how and types_of(new) == types_of(old)
            due = [module for module in new if not (is_same and new[module] == old[module] and files[module].exists())]
            if due:
                from setuptools import Extension  # noqa: PLC0415 - not needed where nothing is compiled

                why = "no C compiler with Python's header files was found when it was installed; "
                why += "reinstall with a compiler for twice the speed and more"
                folder.joinpath("probe.c").write_text(PROBE, encoding="utf-8")
                run_compiler([Extension("probe", [str(folder / "probe.c")])], folder)
                why = "a module of it did not compile when it was installed; the log of the installation says why"
                run_cython(package.parent, due, folder)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong there, whywait can be installed
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        else:
            sys.stderr.write(f"whywait: the core is compiled: {len(due)} of its {len(new)} modules now\n")
            lines = (f"{module} {source} {types}" for module, (source, types) in new.items())
            return "\n".join([how, *lines, ""]), files | {key: folder / f"whywait/{key}{SUFFIX}" for key in due}
    sys.stderr.write(f"whywait: the core is not compiled and runs interpreted: {why}\n")
    return f"{why}\n", {}


def is_switched_off() -> bool:
    """Return whether the environment says that nothing is to be compiled."""
    wanted = os.environ.get("WHYWAIT_COMPILE", "1")
    if wanted not in {"0", "1"}:
        raise ValueError(f"environment variable WHYWAIT_COMPILE={wanted!r} is not allowed: use 0 or 1")
    return wanted == "0"


def read_sources(package: Path) -> Sources:
    """Return the modules of the core as they are now."""
    found: Sources = {}
    for types in sorted(package.rglob("*.pxd")):
        source = types.with_suffix(".py")
        if source.exists():
            module = types.relative_to(package).with_suffix("").as_posix()
            found[module] = (source_hash(source.read_bytes()).hex(), source_hash(types.read_bytes()).hex())
    return found


def read_record(package: Path) -> tuple[str, Sources]:
    """Return how the files beside the sources were compiled, and from what."""
    try:
        how, *lines = package.joinpath(RECORD).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return "", {}
    return how, {module: (source, types) for module, source, types in map(str.split, lines)}


def types_of(sources: Sources) -> dict[str, str]:
    """Return what each ``.pxd`` is known by: every module may depend on every one of them."""
    return {module: types for module, (_, types) in sources.items()}


def run_cython(src: Path, modules: list[str], folder: Path) -> None:
    """Compile modules of the package into the folder."""
    from Cython.Build import cythonize  # noqa: PLC0415 - not needed where nothing is compiled
    from setuptools import Extension  # noqa: PLC0415 - the same

    with chdir(src):  # so that tracebacks name a file as "whywait/...", which is found wherever it is installed
        wanted = [Extension(f"whywait/{module}".replace("/", "."), [f"whywait/{module}.py"]) for module in modules]
        made = cythonize(wanted, build_dir=str(folder), force=True, nthreads=JOBS, compiler_directives=DIRECTIVES)
        run_compiler(made, folder)


def run_compiler(extensions: list[Any], folder: Path) -> None:
    """Compile and link C files into the folder."""
    from setuptools import Distribution  # noqa: PLC0415 - the same

    for extension in extensions:
        extension.extra_compile_args = FLAGS
    command: Any = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp, command.parallel = str(folder), str(folder), JOBS
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    compile_in_place(Path(__file__).resolve().parent / "src" / "whywait")
