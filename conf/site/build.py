"""Builds the documentation site: `python conf/site/build.py FOLDER` writes FOLDER/html, with search.

The pages are docs/, and the Markdown files of the root, of which README.md is the first page. Links between them are
changed, and files of the project that a page names are copied beside it. Zensical builds the site: it is the successor
of Material for MkDocs, by the same people, which ends in May 2027, and reads the same configuration. A link that leads
nowhere is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRONT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")
_LINK = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")
_CLAIM = re.compile(r"[ \t]*<!-- claim: [^>]+-->")


def write_pages(folder: Path) -> None:
    """Write the pages into an empty folder, with the links that they have there."""
    shutil.copytree(ROOT / "docs", folder)
    for name in FRONT:
        shutil.copy(ROOT / name, folder / _place(Path(name)))
    for page in sorted(folder.rglob("*.md")):
        source = ROOT / _source(page.relative_to(folder))
        page.write_text(_page(page.read_text(encoding="utf-8"), source, folder), encoding="utf-8")


def _place(path: Path) -> Path:
    """Where a file of the project is in the site."""
    if path == Path("README.md"):
        return Path("index.md")
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def _source(place: Path) -> Path:
    """The file of the project that is there in the site."""
    if place == Path("index.md"):
        return Path("README.md")
    return place if str(place) in FRONT else Path("docs") / place


def _page(text: str, source: Path, folder: Path) -> str:
    here = _place(source.relative_to(ROOT)).parent

    def changed(link: re.Match[str]) -> str:
        target = (source.parent / link[2]).resolve()
        if "://" in link[2] or not target.is_relative_to(ROOT) or not target.exists():
            return link[0]
        place = _place(target.relative_to(ROOT))
        if target.is_file() and not (folder / place).exists():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, folder / place)
        up = Path(*[".."] * len(here.parts))
        return f"{link[1]}{(up / place).as_posix()}{link[3]}"

    return _CLAIM.sub("", _LINK.sub(changed, text))


def main(folder: Path) -> int:
    """Build; returns the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_pages(folder / "pages")
    shutil.copy(HERE / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - no word of it is from outside


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
