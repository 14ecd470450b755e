"""How much memory there is."""

import os

import pytest

from whywait import Authority, ConfigError
from whywait.support import memory

TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_auto_is_nine_tenths_of_the_memory():
    """U4: of the machine, or of the container if that has less."""
    ram = Authority(ram="auto").settings.budget.soft["ram"]
    assert ram == memory.automatic_ram()
    assert TOTAL // 20 < ram <= TOTAL * 9 // 10


@pytest.mark.parametrize(
    ("cgroup", "file", "text", "found"),
    [
        ("0::/a/b", "a/memory.max", "1000\n", [1000]),
        ("0::/a/b", "a/b/memory.max", "max\n", []),
        ("0::/a/b", "unified/a/b/memory.max", "7\n", [7]),
        ("4:memory:/x", "memory/x/memory.limit_in_bytes", "55", [55]),
        ("4:cpu:/x", "memory/x/memory.limit_in_bytes", "55", []),
    ],
)
def test_limits_of_containers_are_found(tmp_path, cgroup, file, text, found):
    """U4: of both versions of cgroups, of the own group and those around it."""
    proc, mount = tmp_path / "proc", tmp_path / "mount"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup + "\n")
    (mount / file).parent.mkdir(parents=True)
    (mount / file).write_text(text)
    assert memory._limits_of_container(proc, mount) == found
    assert memory._limits_of_container(tmp_path / "nowhere", mount) == []


def test_a_system_that_does_not_tell_is_told(monkeypatch):
    """U4, E1: then a size has to be given."""
    monkeypatch.setattr(memory.os, "sysconf", lambda name: -1)
    with pytest.raises(ConfigError, match='ram: "auto" is not possible'):
        Authority(ram="auto")
