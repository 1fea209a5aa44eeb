"""Builds the documentation site of this version: `python conf/site/build.py FOLDER` adds it to FOLDER/html.

FOLDER/html has a folder for each version, one for each alias such as `latest`, `versions.json` for the selector of the
pages, and a first page that leads to the newest version. Run it in the checkouts of several versions with one FOLDER.

The pages are docs/, and the Markdown files of the root, of which README.md is the first page. Links between them are
changed, and files of the project that a page names are copied beside it. Zensical builds the site: it is the successor
of Material for MkDocs, by the same people, which ends in May 2027, and reads the same configuration. A link that leads
nowhere is an error, in the pages and in what was built.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from links import broken_links
from versions import publish

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


def own_version() -> str:
    """The version of the package."""
    [version] = re.findall(r'^    version="(.*)",$', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    return str(version)


def build(folder: Path) -> Path | None:
    """Build the pages; returns the folder of the HTML, or None if Zensical found a fault, which it has printed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_pages(folder / "pages")
    shutil.copy(HERE / "mkdocs.yml", folder)
    shutil.copytree(HERE / "theme", folder / "theme")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, check=False)  # noqa: S603 - no word of it is from outside
    return None if done.returncode else folder / "html"


def main(arguments: list[str]) -> int:
    """Build a version and add it to the site; returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds the documentation site of this version.")
    parser.add_argument("folder", type=Path, help="where the site is, in its folder html")
    parser.add_argument("--version", default=own_version(), help="the version; by default that of the package")
    parser.add_argument("--alias", action="append", help="another name of it; by default latest")
    parser.add_argument("--no-alias", action="store_true", help="no other name, for a version that is not the newest")
    parser.add_argument("--url", default="http://localhost/", help="the address of the site, for its lists of pages")
    options = parser.parse_args(arguments)
    aliases = [] if options.no_alias else options.alias or ["latest"]
    built = build(options.folder / "build")
    if built is None:
        return 1
    html = options.folder / "html"
    try:
        publish(built, html, options.version, aliases, url=options.url)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    broken = broken_links(html)
    for line in broken:
        print(line, file=sys.stderr)  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
