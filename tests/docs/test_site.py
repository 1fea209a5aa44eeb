"""The documentation site has every page once, and its links lead to its own pages. `tox -e site` builds it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = ROOT / "conf" / "site"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The program that builds it."""
    spec = importlib.util.spec_from_file_location("build_site", SITE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its pages."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    build.write_pages(folder)
    return folder


def names_in(nav: Any) -> Iterator[str]:
    """The files of a navigation."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from names_in(part)


def test_navigation_has_every_page_once(pages: Path) -> None:
    nav = yaml.safe_load((SITE / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    found = sorted(page.relative_to(pages).as_posix() for page in pages.rglob("*.md"))
    assert sorted(names_in(nav)) == found
    assert len(found) > 40


def test_links_lead_to_files_of_the_site(pages: Path) -> None:
    missing = [
        f"{page.relative_to(pages)}: {target}"
        for page in pages.rglob("*.md")
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert missing == []
    assert "](failover.md)" in (pages / "index.md").read_text(encoding="utf-8")
    assert (pages / "conf" / "model-gateway.service").is_file()


def test_pages_have_no_marks_of_claims(pages: Path) -> None:
    assert [page.name for page in pages.rglob("*.md") if "<!-- claim:" in page.read_text(encoding="utf-8")] == []
