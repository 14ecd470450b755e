"""N1: finding the GPUs of a machine, against an NVML and a rocm-smi of the test's own."""

import logging
import stat
from types import SimpleNamespace

import pytest

from whywait import Authority, Infeasible
from whywait.support import gpus
from whywait.support.gpus import find_gpus

GB = 10**9


class FakeError(Exception):
    """What NVML raises."""


class FakeNvml:
    """As much of NVML as is used; it must be shut down as often as it is started."""

    NVMLError = FakeError

    def __init__(self, *memory, error=None, broken=None):
        self.memory = memory
        self.error = error
        self.broken = broken
        self.started = 0

    def nvmlInit(self):  # noqa: N802 - its name there
        if self.error:
            raise FakeError(self.error)
        self.started += 1

    def nvmlShutdown(self):  # noqa: N802
        self.started -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.memory)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if self.broken == index:
            raise FakeError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        ident = f"GPU-{handle}{handle}{handle}{handle}-abcd"
        return ident.encode() if handle else ident  # older versions return bytes

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=self.memory[handle], free=0, used=self.memory[handle])


@pytest.fixture
def nvml(monkeypatch):
    """Put an NVML in the place of the real one; no rocm-smi is found."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def use(*memory, **how):
        fake = FakeNvml(*memory, **how)
        monkeypatch.setattr(gpus, "pynvml", fake)
        return fake

    return use


def test_cards_are_named_by_number_and_have_all_their_memory(nvml):
    """N1: `total`, whatever is in use by others now; NVML is left as it was found."""
    fake = nvml(24 * GB, 12 * GB)
    assert find_gpus().units == {"0": 24 * GB, "1": 12 * GB}
    assert fake.started == 0


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        ("1,0", ["1", "0"]),
        (" 2 ", ["2"]),
        ("GPU-1111", ["GPU-1111"]),
        ("GPU-0000-abcd,2", ["GPU-0000-abcd", "2"]),
        ("1,7,0", ["1"]),  # as CUDA does: nothing after what names no card
        ("GPU-", []),  # it could be any
        ("0,0", ["0"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("", []),
    ],
)
def test_cuda_visible_devices_is_respected(nvml, variable, names):
    """N1: cards that this process may not see are not there; the others have names that can be passed on."""
    nvml(24 * GB, 12 * GB, 8 * GB)
    found = find_gpus({"CUDA_VISIBLE_DEVICES": variable})
    assert list(found.units) == names
    assert bool(found.problem) == (not names)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"error": "Driver Not Loaded"}, "NVML: Driver Not Loaded; rocm-smi is not there"),
        ({"broken": 1}, "NVML: GPU is lost; rocm-smi is not there"),
    ],
)
def test_what_keeps_cards_from_being_found_is_said(nvml, how, problem):
    """N1: in NVML's own words; it is shut down all the same."""
    fake = nvml(24 * GB, 12 * GB, **how)
    assert find_gpus() == ({}, problem)
    assert fake.started == 0


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    """N1: nvidia-ml-py is optional."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(gpus, "pynvml", None)
    assert find_gpus() == ({}, "nvidia-ml-py is not installed (pip install 'whywait[gpu]'); rocm-smi is not there")


def test_the_real_library_has_what_is_used():
    """N1: every name that the fake has; where there is no driver, it says so."""
    real = pytest.importorskip("pynvml", reason="needs the extra gpu")
    for name in vars(FakeNvml):
        assert name.startswith("_") or hasattr(real, name), name
    found = find_gpus()
    assert found.units or found.problem


ROCM = """#!/bin/sh
test "$*" = "--showmeminfo vram --json" || exit 2
{}
"""
CARDS = """echo '{"card0": {"VRAM Total Memory (B)": "17163091968", "VRAM Total Used Memory (B)": "1"},
"card1": {"VRAM Total Memory (B)": "8573157376"}, "system": {"Driver version": "6"}}'"""


@pytest.mark.parametrize(
    ("script", "units", "problem"),
    [
        (CARDS, {"0": 17163091968, "1": 8573157376}, ""),
        ("echo '{}'", {}, "NVML: no driver; rocm-smi lists no card"),
        ("echo nonsense", {}, "NVML: no driver; rocm-smi: "),
        ("exit 1", {}, "NVML: no driver; rocm-smi: "),
        ("echo '{\"card0\": {}}'", {}, "NVML: no driver; rocm-smi: KeyError"),
        ("echo '[]'", {}, "NVML: no driver; rocm-smi: "),
    ],
)
def test_cards_of_amd_are_asked_for_by_their_program(nvml, monkeypatch, tmp_path, script, units, problem):
    """N1: if NVML has none."""
    nvml(error="no driver")
    program = tmp_path / "rocm-smi"
    program.write_text(ROCM.format(script), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = find_gpus()
    assert found.units == units
    assert found.problem.startswith(problem)


def test_an_authority_finds_its_gpus(nvml):
    """N1: gpus="auto"."""
    nvml(24 * GB, 12 * GB)
    with Authority(slots=1, gpus="auto") as authority:
        assert authority.submit(int, vram="20GB").result() == 0
        assert [unit.size for unit in authority.snapshot().devices] == [24 * GB, 12 * GB]
        nvml(24 * GB)
        authority.resize(gpus="auto")
        assert [unit.present for unit in authority.snapshot().devices] == [True, False]


def test_an_authority_says_that_there_is_none(nvml, caplog):
    """N1, N2: in the log when it is made, and when a task asks for one."""
    nvml(error="Driver Not Loaded")
    with caplog.at_level(logging.WARNING), Authority(slots=1, gpus="auto") as authority:
        assert "gpus='auto' has found no GPU: NVML: Driver Not Loaded; rocm-smi is not there" in caplog.text
        with pytest.raises(Infeasible, match="demands 1 gpu and there is none"):
            authority.submit(int, gpu=1)
        with pytest.raises(Infeasible, match="demands 5 vram on 1 gpu and there is none"):
            authority.submit(int, vram=5)
        assert authority.submit(int).result() == 0
