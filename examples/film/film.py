"""The tasks of film.toml: pixels, filters and files with nothing but the standard library."""

from __future__ import annotations

import math
import struct
import wave
import zlib
from pathlib import Path

import whywait

ESCAPED = 2  # from here on the formula only grows
DEPTH = 40  # iterations of the formula behind each pixel
RATE = 11_025  # samples a second
DELAY_MS = 80  # from frame to frame


def prepare(out: str) -> None:
    """Make an empty folder for the results."""
    folder = Path(out)
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    print("results go to", folder.resolve().name)


def draw(out: str, number: int, frames: int, width: int) -> int:
    """Draw one frame: a Julia set whose parameter goes round with the frames."""
    height = width * 2 // 3
    angle = 2 * math.pi * number / frames
    c = complex(0.7885 * math.cos(angle), 0.7885 * math.sin(angle))
    pixels = bytearray()
    for y in range(height):
        whywait.current().checkpoint()
        if y % 16 == 0:
            print(f"frame {number}: line {y} of {height}")
        for x in range(width):
            z = complex(3 * x / width - 1.5, 2 * y / height - 1)
            steps = 0
            while abs(z) < ESCAPED and steps < DEPTH:
                z = z * z + c
                steps += 1
            shade = 255 * steps // DEPTH
            pixels += bytes((shade, shade * shade // 255, 255 - shade))
    _save(out, f"{number:03}.raw", width, height, pixels)
    return len(pixels)


def blur(out: str, number: int) -> None:
    """Soften one frame: each pixel becomes the mean of itself and its neighbours."""
    width, height, pixels = _load(out, f"{number:03}.raw")
    row = 3 * width
    soft = bytearray(pixels)
    for y in range(1, height - 1):
        for x in range(3, row - 3):
            at = y * row + x
            soft[at] = (4 * pixels[at] + pixels[at - 3] + pixels[at + 3] + pixels[at - row] + pixels[at + row]) // 8
    _save(out, f"{number:03}.soft", width, height, soft)
    print(f"frame {number} softened")


def sound(out: str, seconds: int) -> None:
    """Make a chord that fades away."""
    with wave.open(str(Path(out) / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        total = RATE * seconds
        for at in range(total):
            tones = sum(math.sin(2 * math.pi * tone * at / RATE) for tone in (220, 277.2, 329.6))
            file.writeframesraw(struct.pack("<h", int(9000 * tones * (1 - at / total))))
    print(f"{seconds} s of sound")


def poster(out: str, frames: int) -> None:
    """Put four frames side by side into one picture."""
    chosen = [_load(out, f"{number * frames // 4:03}.soft") for number in range(4)]
    width, height, _ = chosen[0]
    rows = [b"".join(pixels[3 * width * y : 3 * width * (y + 1)] for _, _, pixels in chosen) for y in range(height)]
    (Path(out) / "poster.png").write_bytes(_png(4 * width, height, [b"".join(rows)]))
    print(f"poster of {4 * width} x {height}")


def pack(out: str, frames: int) -> int:
    """Pack all frames into one animated PNG, which any browser shows."""
    loaded = [_load(out, f"{number:03}.soft") for number in range(frames)]
    width, height, _ = loaded[0]
    data = _png(width, height, [pixels for _, _, pixels in loaded])
    (Path(out) / "film.png").write_bytes(data)
    print(f"{frames} frames, {len(data)} bytes")
    return len(data)


def _save(out: str, name: str, width: int, height: int, pixels: bytes | bytearray) -> None:
    (Path(out) / name).write_bytes(struct.pack(">II", width, height) + pixels)


def _load(out: str, name: str) -> tuple[int, int, bytes]:
    data = (Path(out) / name).read_bytes()
    width, height = struct.unpack(">II", data[:8])
    return width, height, data[8:]


def _png(width: int, height: int, frames: list[bytes]) -> bytes:
    """Return a PNG of one frame, or an animated one of several."""
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    if len(frames) > 1:
        data += _chunk(b"acTL", struct.pack(">II", len(frames), 0))
    sequence = 0
    for number, pixels in enumerate(frames):
        if len(frames) > 1:
            data += _chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, width, height, 0, 0, DELAY_MS, 1000, 0, 0))
            sequence += 1
        lines = b"".join(b"\0" + pixels[3 * width * y : 3 * width * (y + 1)] for y in range(height))
        packed = zlib.compress(lines, 9)
        if number == 0:
            data += _chunk(b"IDAT", packed)
        else:
            data += _chunk(b"fdAT", struct.pack(">I", sequence) + packed)
            sequence += 1
    return data + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
