"""The documentation site has every page once, and a folder per version. `tox -e site` builds it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = ROOT / "conf" / "site"


@pytest.fixture(scope="module")
def program() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the program that builds it; they import each other by their names."""
    names = [path.stem for path in SITE.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SITE)
        yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def build(program: Callable[[str], ModuleType]) -> ModuleType:
    """The program that builds it."""
    return program("build")


@pytest.fixture
def publish(program: Callable[[str], ModuleType], tmp_path: Path) -> Callable[..., Path]:
    """Adds a version with a text on its pages to a site, and returns the folder of the site."""

    def published(version: str, *aliases: str, text: str = "") -> Path:
        built = tmp_path / "built" / version
        (built / "cli").mkdir(parents=True, exist_ok=True)
        (built / "index.html").write_text(f'<p id="x">{text or version}</p><a href="cli/#y">to</a>', encoding="utf-8")
        (built / "cli" / "index.html").write_text('<p id="y"></p><a href="../">back</a>', encoding="utf-8")
        (built / "404.html").write_text('<a href="/">first</a>', encoding="utf-8")
        program("versions").publish(built, tmp_path / "site", version, list(aliases), url="http://x/d/")
        return tmp_path / "site"

    return published


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


def listed(site: Path) -> dict[str, list[str]]:
    """The versions of a site with their aliases, in order."""
    entries = json.loads((site / "versions.json").read_text(encoding="utf-8"))
    assert all(entry["title"] == entry["version"] for entry in entries)
    return {entry["version"]: entry["aliases"] for entry in entries}


def test_each_version_has_a_folder_and_latest_is_that_of_the_newest(publish: Callable[..., Path]) -> None:
    for version in ("0.9.0", "0.10.0"):
        site = publish(version, "latest")
    assert list(listed(site).items()) == [("0.10.0", ["latest"]), ("0.9.0", [])]
    texts = {name: (site / name / "index.html").read_text(encoding="utf-8") for name in ("0.9.0", "0.10.0", "latest")}
    assert "0.9.0" in texts["0.9.0"] and "0.10.0" in texts["0.10.0"] and texts["latest"] == texts["0.10.0"]
    assert '<a href="latest/">' in (site / "index.html").read_text(encoding="utf-8")
    assert not list(site.rglob("404.html"))


def test_older_version_is_added_below_the_newer_one_and_takes_no_alias(publish: Callable[..., Path]) -> None:
    publish("1.0.0", "latest")
    publish("1.0.0rc1")
    site = publish("0.9.1")
    assert list(listed(site)) == ["1.0.0", "1.0.0rc1", "0.9.1"]
    assert "1.0.0" in (site / "latest" / "index.html").read_text(encoding="utf-8")


def test_version_that_is_built_again_is_replaced_with_its_aliases(publish: Callable[..., Path]) -> None:
    publish("1.0.0", "latest", "stable")
    site = publish("1.0.0", "latest", text="again")
    assert listed(site) == {"1.0.0": ["latest"]}
    assert "again" in (site / "latest" / "index.html").read_text(encoding="utf-8") and not (site / "stable").exists()
    assert '<a href="1.0.0/">' in (publish("1.0.0") / "index.html").read_text(encoding="utf-8")


def test_list_of_pages_has_the_address_of_its_version(publish: Callable[..., Path]) -> None:
    """The selector compares these lists: it stays on a page that the other version has."""
    site = publish("1.0.0", "latest")
    for name in ("1.0.0", "latest"):
        places = re.findall(r"<loc>(.*)</loc>", (site / name / "sitemap.xml").read_text(encoding="utf-8"))
        assert places == [f"http://x/d/{name}/", f"http://x/d/{name}/cli/"]


@pytest.mark.parametrize(
    ("version", "alias"), [("..", "latest"), ("", "latest"), ("1/2", "x"), ("1.0", "../x"), ("1.0", "2.0")]
)
def test_name_that_is_no_version_or_alias_is_refused(publish: Callable[..., Path], version: str, alias: str) -> None:
    with pytest.raises(ValueError, match=r"is not an? "):
        publish(version, alias)


def test_broken_links_of_built_pages_are_found(
    publish: Callable[..., Path], program: Callable[[str], ModuleType]
) -> None:
    site, broken_links = publish("1.0.0", "latest"), program("links").broken_links
    (site.parent / "outside.html").write_text("of another site", encoding="utf-8")
    assert broken_links(site) == []
    targets = ("gone/", "../2.0.0/", "#gone", "../latest/#gone", "/latest/", "../../outside.html", "gone.css", "cli/#x")
    links = "".join(f'<a href="{target}"></a>' for target in targets)
    good = '<a href="../latest/#x"></a><a href="https://example.com/#x"></a><img src="cli/index.html">'
    (site / "1.0.0" / "index.html").write_text(links + good, encoding="utf-8")
    assert broken_links(site) == sorted(f"1.0.0/index.html: {target}" for target in targets)


def test_version_of_the_site_is_that_of_the_package(build: ModuleType) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", build.own_version())
