"""Devices as people write them and as child processes are told of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.support.units import parse_size, shown

GPU: Final = "gpu"
AUTO: Final = "auto"
MOST_UNITS: Final = 10_000  # of one kind: more is a slip of the keyboard

_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
_PREFIX: Final = "WHYWAIT_"
# What follows the prefix in variables that whywait reads itself, in a child process too.
_TAKEN: Final = frozenset((
    "AGING_BOOST", "AGING_INTERVAL_MS", "CGROUPS", "COMMAND_OF", "CPU_SLOTS", "HOME", "LEASE", "MAX_WAIT_MS",
    "PAUSE_TIMEOUT_MS", "QUEUE_LIMIT", "RAM_MB_SOFT", "SCHEDULER", "SLOTS", "STARVATION_TIMEOUT_MS", "VRAM_MB_SOFT",
))  # fmt: skip
_GPUS: Final = 'how many (2), the memory of each (["24GB", "12GB"]) or names and memory ({"0": "24GB"})'


def parse_gpus(value: object) -> dict[str, int]:
    """Turn ``2``, ``["24GB", "12GB"]`` or ``{"0": "24GB"}`` into names and memory; 0: its size is not known."""
    if isinstance(value, Mapping):
        return _checked(GPU, {name: _memory(name, size) for name, size in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for size in value:
            if isinstance(size, str) and size.strip().isdecimal():
                raise ConfigError(f'{shown(size)} could be a name or a size: write "24GB", or {{"0": "24GB"}}')
        return _checked(GPU, {str(number): _memory(str(number), size) for number, size in enumerate(value)})
    return _numbered(value, _GPUS)


def parse_devices(value: object) -> dict[str, dict[str, int]]:
    """Turn ``{"rig": ["a", "b"], "fpga": 2}`` into the units of each kind; they have no memory to share."""
    if not isinstance(value, Mapping):
        raise ConfigError(f'{shown(value)} is not allowed: expected kinds and units, such as {{"rig": 2}}')
    return {_kind(kind): _units(kind, units) for kind, units in value.items()}


def environment_of(devices: Iterable[tuple[str, Sequence[str]]]) -> dict[str, str]:
    """Return the variables that tell a child process which units its task has.

    CUDA numbers cards by speed unless told otherwise; the numbers of the driver, which detection gives, go by bus.
    """
    variables: dict[str, str] = {}
    for kind, names in devices:
        if kind == GPU:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(names)
            variables["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        else:
            variables[variable_of(kind)] = ",".join(names)
    return variables


def variable_of(kind: str) -> str:
    """Return the variable that names the units of a kind other than GPUs."""
    return _PREFIX + kind.upper().replace("-", "_")


def _kind(kind: object) -> str:
    if kind == GPU:
        raise ConfigError("gpu has a setting of its own: gpus")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind) or variable_of(kind).removeprefix(_PREFIX) in _TAKEN:
        raise ConfigError(f"{shown(kind)} cannot name a kind: use another word of letters, digits, - and _")
    return kind


def _units(kind: str, value: object) -> dict[str, int]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(f"{kind}: {shown(name)} is not the name of a unit: use a string")
        if len(set(value)) < len(value):
            raise ConfigError(f"{kind}: a name is there twice: {', '.join(value)}")
        return _checked(kind, dict.fromkeys(value, 0))
    try:
        return _numbered(value, 'how many (2) or names (["a", "b"])')
    except ConfigError as error:
        raise ConfigError(f"{kind}: {error}") from None


def _numbered(value: object, expected: str) -> dict[str, int]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_UNITS:
        raise ConfigError(f"{shown(value)} is not allowed: expected {expected}")
    return {str(number): 0 for number in range(value)}


def _memory(name: object, size: Any) -> int:
    if size is None:
        return 0
    try:
        return parse_size(size)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _checked(kind: str, units: dict[str, int]) -> dict[str, int]:
    if len(units) > MOST_UNITS:
        raise ConfigError(f"{len(units)} units of {kind} are not allowed: use at most {MOST_UNITS:,}")
    return units
