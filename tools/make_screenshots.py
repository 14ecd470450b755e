"""Write the pictures of the DevTools page in ``docs/``: a lively run, looked at in Chromium.

Needs the ``dev`` extra and a browser (``tools/install_browser.sh``).
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import whywait
from whywait import Authority, Retry

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
FLAGS: Final = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars"
WIDE: Final = (1180, 760)
NARROW: Final = (400, 760)


def work(seconds: float) -> None:
    """Take some time, and heed whoever wants to pause or end it."""
    context = whywait.current()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        context.checkpoint()
        time.sleep(0.01)


def fail(seconds: float) -> None:
    """Take some time and fail."""
    work(seconds)
    raise OSError


def fill(authority: Authority) -> None:
    """Submit a bit of everything."""
    chance = random.Random(3)  # noqa: S311 - a picture wants a seed, not a cipher
    render, batch = authority.scope("render", slots=3), authority.scope("batch")
    previews = render.scope("previews")
    batch.periodic(work, 0.05, every=0.5, id="sample")
    batch.periodic(work, 0.9, every=0.7, id="heartbeat")
    fetch = [render.submit(work, chance.uniform(0.2, 0.8), id=f"fetch-{i}") for i in range(6)]
    decode = [
        render.submit(work, chance.uniform(0.3, 1), id=f"decode-{i}", after=[fetch[i]], ram="2GB") for i in range(6)
    ]
    upscale = [
        render.submit(work, 2, id=f"upscale-{i}", after=[decode[i]], vram="4GB", priority="high") for i in range(6)
    ]
    pack = render.submit(work, 1, id="pack", after=upscale, priority="critical")
    render.submit(work, 0.5, id="publish", after=[pack])
    for i in range(5):
        previews.submit(work, 0.7, id=f"thumb-{i}", priority="low")
    batch.submit(work, 60, id="train", vram="4.5GB", ram="3GB")
    for i in range(30):
        batch.submit(work, chance.uniform(0.2, 0.9), id=f"sweep-{i:02d}", priority="background")
    for i in range(3):
        batch.submit(work, 1.5, id=f"licensed-{i}", resources={"licence": 1})
    upload = batch.submit(fail, 0.2, id="upload", retry=Retry(2, backoff=0.2, on=(OSError,)))
    upload.add_done_callback(lambda handle: handle.exception())
    for i in range(4):
        batch.submit(work, 0.2, id=f"notify-{i}", after=[upload])
    batch.submit(work, 5, id="paused-job").pause()


def look(url: str) -> None:
    """Take the pictures."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS.split(), f"--user-data-dir={tempfile.mkdtemp()}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        _size(browser, WIDE)
        browser.get(url)
        _picture(browser, "lanes", "document.querySelector('.pill[data-task]').click()")
        for view in ("timeline", "graph", "budget"):
            _picture(browser, view, f"document.querySelector('#tabs [data-view={view}]').click()")
        _size(browser, NARROW)
        narrow = "document.querySelector('[data-close]')?.click(); document.querySelector('[data-do=theme]').click();"
        _picture(browser, "narrow-dark", f"{narrow} document.querySelector('#tabs [data-view=lanes]').click()")
    finally:
        browser.quit()


def _size(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def _picture(browser: webdriver.Chrome, name: str, script: str) -> None:
    time.sleep(1.2)
    browser.execute_script(script)
    time.sleep(1.2)
    path = DOCS / f"devtools-{name}.png"
    browser.save_screenshot(str(path))
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def main() -> None:
    """Run something worth seeing and take its pictures."""
    authority = Authority(
        slots=4, cpu=4, ram="8GB", vram="6GB", resources={"licence": 1}, starvation_timeout=2.0, grace=0.5
    )
    tools = authority.devtools(name="render-farm", announce=False)
    fill(authority)
    time.sleep(4)
    look(tools.url)
    authority.dispose()


if __name__ == "__main__":
    main()
