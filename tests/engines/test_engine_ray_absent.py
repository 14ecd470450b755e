"""E1: without Ray the ray engine says what to install, and nothing else needs it."""

import subprocess
import sys

import pytest

from whywait import Authority, ConfigError
from whywait.engines.ray import cluster as ray_cluster


def test_an_absent_ray_is_told_with_what_to_install(monkeypatch):
    """E1: by name, on an authority and on a task."""
    monkeypatch.setattr(ray_cluster, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'whywait\[ray\]'"):
        Authority(engine="ray")
    with Authority() as authority, pytest.raises(ConfigError, match=r"pip install 'whywait\[ray\]'"):
        authority.submit(print, engine="ray")


def test_nothing_imports_ray_unless_it_is_asked_for():
    """E1: the core needs nothing but Python."""
    program = "import sys, whywait; whywait.Authority().dispose(); sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
