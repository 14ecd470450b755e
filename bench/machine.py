"""The facts of the machine and of what is measured."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from contestants import PACKAGES

_BUILD: Final = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
TOP = Path(__file__).resolve().parent.parent


def facts() -> dict[str, Any]:
    """Return what a reader needs to judge the figures."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0] + _BUILD,
        "versions": {name: _version(name) for name in ("whywait", *PACKAGES)},
    }


def version_of_python() -> str:
    """Return the version of this Python in short, with a t if it has no global interpreter lock."""
    return f"{sys.version_info.major}.{sys.version_info.minor}{_BUILD}"


def source_digest() -> str:
    """Return a digest of whywait and of the benchmarks: figures of other code are not mixed with these."""
    digest = hashlib.sha256()
    bench = TOP / "bench"
    files = [*(TOP / "src").rglob("*.py"), *(bench / "works").glob("*.py"), *(bench / "contestants").glob("*.py")]
    for path in sorted([*files, bench / "task_bodies.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
