"""A device under test, simulated: it warms up when it works, cools down when it does not, and can be measured."""

from __future__ import annotations

import math
import statistics
import threading
import time
from pathlib import Path

import whywait

AMBIENT = 22.0


class Device:
    """Keeps what the steps and the samplers share."""

    def __init__(self) -> None:
        """Start cold and disconnected."""
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.connections = 0
        self.temperature = AMBIENT
        self.heating = False
        self.temperatures: list[float] = []
        self.volts: list[float] = []
        self.results: list[str] = []

    def note(self, text: str) -> None:
        """Write a line of the protocol."""
        print(text)
        with self.lock:
            self.results.append(f"{time.monotonic() - self.began:6.2f} s  {text}")


device = Device()


def connect() -> None:
    """Open the connection; the first try fails, as it does in life."""
    device.connections += 1
    if device.connections == 1:
        raise ConnectionError("the device does not answer")
    device.note(f"connected at try {device.connections}")


def self_test(defect: bool) -> None:  # noqa: FBT001  a value of the file
    """Look at the four channels."""
    for channel in range(1, 5):
        whywait.current().checkpoint()
        time.sleep(0.05)
        if defect and channel == 3:  # noqa: PLR2004  the broken one
            device.note(f"channel {channel}: no signal")
            raise RuntimeError(f"channel {channel} gives no signal")
        print(f"channel {channel} is well")
    device.note("self-test passed")


def warm_up(target: float) -> None:
    """Heat until the temperature is reached."""
    device.heating = True
    try:
        while device.temperature < target:
            whywait.current().checkpoint()
            print(f"{device.temperature:.1f} of {target} degrees")
            time.sleep(0.02)
    finally:
        device.heating = False
    device.note(f"warm: {device.temperature:.1f} degrees")


def measure(points: int) -> float:
    """Measure a curve; return its largest deviation."""
    worst = 0.0
    for number in range(points):
        whywait.current().checkpoint()
        wanted = math.sin(number / points * math.pi)
        worst = max(worst, abs(wanted - round(wanted, 2)))
        print(f"point {number + 1} of {points}")
        time.sleep(0.02)
    device.note(f"largest deviation {worst:.4f}")
    return worst


def load_test() -> None:
    """Work hard for a moment."""
    device.heating = True
    try:
        total = sum(math.sqrt(number) for number in range(300_000))
        whywait.current().signal.wait(0.3)
    finally:
        device.heating = False
    device.note(f"load test done, checksum {total:.0f}")


def protocol(path: str) -> None:
    """Write down what was found, whatever became of the steps before."""
    target = Path(path)
    target.parent.mkdir(exist_ok=True)
    lines = [*device.results, f"temperature: {_told(device.temperatures)}", f"supply: {_told(device.volts)}"]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def sample_temperature() -> None:
    """Follow the temperature: a step towards where it is going."""
    with device.lock:
        device.temperature += (
            (90.0 - device.temperature) * 0.06 if device.heating else (AMBIENT - device.temperature) * 0.02
        )
        device.temperatures.append(device.temperature)


def sample_supply() -> None:
    """Follow the supply voltage."""
    with device.lock:
        device.volts.append(12.0 + 0.1 * math.sin(len(device.volts)))


def _told(samples: list[float]) -> str:
    if not samples:
        return "no samples"
    return f"{len(samples)} samples, {min(samples):.1f} to {max(samples):.1f}, mean {statistics.fmean(samples):.1f}"
