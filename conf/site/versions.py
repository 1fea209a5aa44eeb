"""The folders of the versions of a built site, their aliases, and `versions.json`, in the form that mike writes.

An alias is a copy of its version: its addresses work on every server, and links to it lead to the newest pages.
"""

from __future__ import annotations

import json
import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

VERSION = re.compile(r"\d+(?:\.\d+)*(?:[.+-]?[a-z0-9]+)*")
ALIAS = re.compile(r"[a-z][a-z0-9-]*")
LIST = "versions.json"
FIRST = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Documentation</title>
<meta http-equiv="refresh" content="0; url={target}/"></head>
<body><a href="{target}/">Documentation</a></body></html>
"""


def publish(built: Path, site: Path, version: str, aliases: list[str], *, url: str) -> None:
    """Add a built version to a site, or replace it there; an alias of another version becomes one of this version.

    ValueError for a name that is none.
    """
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version, such as 1.2.0")
    for alias in aliases:
        if not ALIAS.fullmatch(alias):
            raise ValueError(f"{alias!r} is not an alias, such as latest")
    site.mkdir(parents=True, exist_ok=True)
    for name in (version, *aliases):
        shutil.rmtree(site / name, ignore_errors=True)
        shutil.copytree(built, site / name)
        (site / name / "404.html").unlink(missing_ok=True)  # it has the addresses of a site without versions
        _write_sitemap(site / name, f"{url.rstrip('/')}/{name}/")
    versions = [_without(entry, aliases) for entry in read_versions(site) if entry["version"] != version]
    known = next((entry["aliases"] for entry in read_versions(site) if entry["version"] == version), [])
    for name in set(known) - set(aliases):  # of a version that is built again
        shutil.rmtree(site / name)
    versions.append({"version": version, "title": version, "aliases": aliases})
    versions.sort(key=lambda entry: _order(entry["version"]), reverse=True)
    (site / LIST).write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(FIRST.format(target=escape(_first(versions))), encoding="utf-8")


def read_versions(site: Path) -> list[dict[str, Any]]:
    """The entries of `versions.json`, the newest version first; none for a new site."""
    file = site / LIST
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return found


def _without(entry: dict[str, Any], aliases: list[str]) -> dict[str, Any]:
    return {**entry, "aliases": [name for name in entry["aliases"] if name not in aliases]}


def _order(version: str) -> tuple[Any, ...]:
    """Compares versions by their numbers; one with a suffix, such as 1.2.0rc1, is before the one without."""
    numbers, suffix = re.fullmatch(r"([\d.]*\d)(.*)", version).groups()  # type: ignore[union-attr]
    return tuple(map(int, numbers.split("."))), not suffix, suffix


def _first(versions: list[dict[str, Any]]) -> str:
    """Where the site begins: at `latest`, or at the newest version."""
    return "latest" if any("latest" in entry["aliases"] for entry in versions) else str(versions[0]["version"])


def _write_sitemap(folder: Path, url: str) -> None:
    """The pages of a version: the selector stays on a page that the other version has, too."""
    pages = sorted(page.parent.relative_to(folder).as_posix() for page in folder.rglob("index.html"))
    places = (f"<url><loc>{escape(url)}{'' if page == '.' else f'{escape(page)}/'}</loc></url>\n" for page in pages)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    (folder / "sitemap.xml").write_text(f"{head}{''.join(places)}</urlset>\n", encoding="utf-8")
