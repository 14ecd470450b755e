"""Hooks of the documentation site: what stands outside ``docs/`` comes in, and links lead there.

``CONTRIBUTING.md`` and ``CHANGELOG.md`` become pages, the examples become files. In the repository every link is one
between files, so that it works in any viewer; here it is turned into one between pages.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

TOP: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
EXAMPLES: Final = ("examples/*/*.*", "examples/*.py")
OPTIONAL: Final = ("benchmarks.md", "reliability.md")  # written by measurements, which not everybody has run
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#\s:]+)((?:#[^)\s]*)?)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the navigation what has not been written."""
    config.nav = _existing(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what stands outside the folder."""
    for source, page in PAGES.items():
        if page not in files.src_uris:
            files.append(File.generated(config, page, abs_src_path=str(TOP / source)))
    for path in sorted(path for pattern in EXAMPLES for path in TOP.glob(pattern)):
        files.append(File.generated(config, path.relative_to(TOP).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - given
    """Turn links between files of the repository into links between pages."""
    here = PurePosixPath(page.file.src_uri)
    outside = {site: source for source, site in PAGES.items() if site != "index.md"}
    place = PurePosixPath(outside.get(str(here), f"docs/{here}"))

    def turned(match: re.Match[str]) -> str:
        target = normpath(f"{place.parent}/{match[2]}")
        site = PAGES.get(target, target.removeprefix("docs/"))
        if site in OPTIONAL and site not in files.src_uris:
            return match[1]
        return f"[{match[1]}]({relpath(site, here.parent)}{match[3]})"

    return _LINK.sub(turned, markdown)


def _existing(nav: Any, folder: Path) -> Any:  # noqa: ANN401 - lists, dicts and names
    if isinstance(nav, list):
        return [kept for entry in nav if (kept := _existing(entry, folder))]
    if isinstance(nav, dict):
        return {title: kept for title, entry in nav.items() if (kept := _existing(entry, folder))}
    return None if nav in OPTIONAL and not (folder / nav).exists() else nav
