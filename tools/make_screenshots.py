"""Write the pictures of the DevTools page in ``docs/``: a lively run, looked at in Chromium.

Needs the ``dev`` extra and a browser (``tools/install_browser.sh``).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from whywait.cli.demo import NAME, Farm, make_authority

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
FLAGS: Final = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars"
WIDE: Final = (1180, 760)
NARROW: Final = (400, 760)


def open_browser(folder: Path) -> webdriver.Chrome:
    """Start a browser that keeps what it needs in this folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def look(url: str, browser: webdriver.Chrome) -> None:
    """Take the pictures."""
    set_size(browser, WIDE)
    browser.get(url)
    _picture(browser, "lanes", "document.querySelector('.pill[data-task]').click()")
    for view in ("timeline", "graph", "budget"):
        _picture(browser, view, f"document.querySelector('#tabs [data-view={view}]').click()")
    set_size(browser, NARROW)
    narrow = "document.querySelector('[data-close]')?.click(); document.querySelector('[data-do=theme]').click();"
    _picture(browser, "narrow-dark", f"{narrow} document.querySelector('#tabs [data-view=lanes]').click()")


def set_size(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    """Show pages in this width and height."""
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
    authority = make_authority()
    with tempfile.TemporaryDirectory() as folder:
        browser = open_browser(Path(folder))
        try:
            tools = authority.devtools(name=NAME, announce=False)
            Farm(authority).submit_wave()
            time.sleep(4)
            look(tools.url, browser)
        finally:
            browser.quit()
            authority.dispose()


if __name__ == "__main__":
    main()
