"""The GPUs of this machine: those of NVIDIA through NVML, those of AMD through ``rocm-smi``.

``CUDA_VISIBLE_DEVICES`` is respected, and read as CUDA does: numbers or the beginnings of ids, up to the first that
names no card. Cards are named by the driver's numbers, or as the variable names them, so that the same name works in
the variable of a child process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

try:
    import pynvml
except ImportError:
    pynvml = None

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_ROCM: Final = "rocm-smi"
_ROCM_S: Final = 10.0  # how long it may take to answer
_ROCM_MEMORY: Final = "VRAM Total Memory (B)"


class Card(NamedTuple):
    """One GPU."""

    name: str
    id: str  # the driver's, such as GPU-8932f937-...; nothing if there is none
    memory: int  # bytes


class Found(NamedTuple):
    """The GPUs that this process may use, by name with their memory; and why there is none, if so."""

    units: dict[str, int]
    problem: str


def find_gpus(environment: Mapping[str, str] | None = None) -> Found:
    """Look for GPUs; finding none is no error."""
    variables = os.environ if environment is None else environment
    problems = []
    for look in (_nvidia, _amd):
        cards, problem = look()
        if cards:
            visible = _visible(cards, variables.get(_VISIBLE))
            hidden = "" if visible else f"{_VISIBLE}={variables.get(_VISIBLE)!r} hides every card ({len(cards)})"
            return Found({card.name: card.memory for card in visible}, hidden)
        problems.append(problem)
    return Found({}, "; ".join(problems))


def _nvidia() -> tuple[list[Card], str]:
    if pynvml is None:
        return [], "nvidia-ml-py is not installed (pip install 'whywait[gpu]')"
    try:
        pynvml.nvmlInit()
        try:
            cards = [_nvidia_card(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return [], f"NVML: {error}"
    return cards, "" if cards else "NVML: the driver has no card"


def _nvidia_card(nvml: Any, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    ident = nvml.nvmlDeviceGetUUID(handle)
    return Card(
        str(index),
        ident.decode() if isinstance(ident, bytes) else ident,  # of older versions
        int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def _amd() -> tuple[list[Card], str]:
    program = shutil.which(_ROCM)
    if program is None:
        return [], f"{_ROCM} is not there"
    try:
        done = subprocess.run(  # noqa: S603 - a program of the system
            [program, "--showmeminfo", "vram", "--json"], capture_output=True, timeout=_ROCM_S, check=True
        )
        rows: dict[str, dict[str, str]] = json.loads(done.stdout)
        cards = [
            Card(name.removeprefix("card"), "", int(row[_ROCM_MEMORY]))
            for name, row in rows.items()
            if name.startswith("card")
        ]
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError, KeyError) as error:
        return [], f"{_ROCM}: {error!r}"
    return cards, "" if cards else f"{_ROCM} lists no card"


def _visible(cards: list[Card], variable: str | None) -> list[Card]:
    """Return the cards that the variable lets a process see, named as it names them."""
    if variable is None:
        return cards
    seen: list[Card] = []
    for word in (part.strip() for part in variable.split(",")):
        meant = [card for card in cards if word and (card.name == word or card.id.startswith(word))]
        if len(meant) != 1 or any(card.name == word for card in seen):
            break
        seen.append(meant[0]._replace(name=word))
    return seen
