"""How smoothly the DevTools page moves: frames per second in Chromium with ten thousand tasks run and as many waiting.

Measured are the times between two animation frames, for some seconds each: in the lanes view, and in the timeline while
it stands, is panned and is zoomed; and how long drawing one frame of the timeline takes, with all of it in view and
zoomed in. Needs the ``dev`` extra and a browser (``tools/install_browser.sh``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from selenium import webdriver

from whywait import Authority
from whywait.runtime.authority import core_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_screenshots import open_browser, set_size

FRAMES: Final = """
const [act, most, done] = arguments;
const canvas = document.querySelector("canvas");
const gaps = [];
let last = null;
function step(now) {
  if (last !== null) gaps.push(now - last);
  last = now;
  const by = gaps.length % 60 < 30 ? 15 : -15;
  const turn = { pan: { deltaX: by }, zoom: { deltaY: by } }[act];
  if (turn) canvas.dispatchEvent(new WheelEvent("wheel", { ...turn, bubbles: true, cancelable: true }));
  if (gaps.length < most) return requestAnimationFrame(step);
  gaps.sort((a, b) => a - b);
  const at = (share) => gaps[Math.floor(gaps.length * share)];
  done({ fps: (1000 * gaps.length) / gaps.reduce((a, b) => a + b), p50: at(0.5), p95: at(0.95), longest: gaps.at(-1) });
}
requestAnimationFrame(step);
"""
REDRAW: Final = """
const [times, done] = arguments;
let spent = 0;
for (let index = 0; index < times; index += 1) {
  whywait.store.version += 1;
  const began = performance.now();
  whywait.choose(null);
  spent += performance.now() - began;
}
done(spent / times);
"""
DRAW: Final = """
const [times, done] = arguments;
import("/page/view-timeline.js").then(({ draw }) => {
  const began = performance.now();
  for (let index = 0; index < times; index += 1) draw();
  done((performance.now() - began) / times);
});
"""


def fill(authority: Authority, tasks: int, gate: threading.Event) -> None:
    """Run so many tasks, and leave as many waiting."""
    for index in range(tasks):
        authority.submit(int, id=f"task-{index}", priority=index % 5 * 20)
    authority.get_scope("default").wait()
    for index in range(4):
        authority.submit(gate.wait, id=f"holder-{index}")
    for index in range(tasks):
        authority.submit(int, id=f"waits-{index}", priority=index % 5 * 20)


def measure(browser: webdriver.Chrome, frames: int) -> None:
    """Measure and print."""
    for view, acts in (("lanes", ["stand"]), ("timeline", ["stand", "pan", "zoom"])):
        browser.execute_script(f"document.querySelector('#tabs [data-view={view}]').click()")
        time.sleep(1)
        for act in acts:
            got: dict[str, Any] = browser.execute_async_script(FRAMES, act, frames)
            print(
                f"{view:<9}{act:<6}{got['fps']:6.1f} frames/s, half within {got['p50']:.1f} ms, "
                f"95 % within {got['p95']:.1f} ms, longest {got['longest']:.0f} ms"
            )
        browser.execute_script("whywait.store.version += 1")
        print(f"{view}: {browser.execute_async_script(REDRAW, 20):.1f} ms to show it anew after news")
    for text, clicks in (("all in view", ["fit"]), ("zoomed in", ["in"] * 12)):
        for click in clicks:
            browser.execute_script(f"document.querySelector('[data-zoom={click}]').click()")
        print(f"timeline {text}: {browser.execute_async_script(DRAW, 100):.2f} ms to draw a frame")


def main() -> None:
    """Run a lot and look at it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--frames", type=int, default=300)
    args = parser.parse_args()
    gate = threading.Event()
    with tempfile.TemporaryDirectory() as folder, Authority(slots=4, events=200_000) as authority:
        tools = authority.devtools(announce=False)
        fill(authority, args.tasks, gate)
        browser = open_browser(Path(folder))
        try:
            browser.set_script_timeout(120)
            set_size(browser, (1280, 860))
            browser.get(tools.url)
            while browser.execute_script("return window.whywait?.store.seq ?? 0") < core_of(authority).last_seq:
                time.sleep(0.2)
            measure(browser, args.frames)
        finally:
            browser.quit()
            gate.set()


if __name__ == "__main__":
    main()
