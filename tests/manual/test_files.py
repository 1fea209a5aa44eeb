"""The documentation of an installation has the pages of the repository, in the order of the documentation site."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import yaml

from gateway.console.static_files import own_files
from gateway.manual.files import LEFT_OUT, ROOT, file_of, groups_of, page_of, pictures, read_groups, read_page

REPOSITORY = Path(__file__).parents[2]
PAGES = [entry.name for group in read_groups() for entry in group.pages]


def test_installed_files_are_those_of_the_repository() -> None:
    """`python -P` of tox runs this with the wheel."""
    assert [page for page in PAGES if (REPOSITORY / file_of(page)).read_text("utf-8") != read_page(page)] == []
    assert sorted(pictures()) == sorted(f"docs/img/{path.name}" for path in (REPOSITORY / "docs" / "img").glob("*.svg"))
    assert (ROOT / "conf/site/mkdocs.yml").read_bytes() == (REPOSITORY / "conf/site/mkdocs.yml").read_bytes()


def test_every_page_of_docs_is_in_the_navigation_once_but_those_about_the_sources() -> None:
    found = {page_of(path.relative_to(REPOSITORY).as_posix()) for path in (REPOSITORY / "docs").rglob("*.md")}
    assert sorted(PAGES) == sorted(found - {""} | {"index", "CHANGELOG", "SECURITY"})
    assert len(PAGES) > 50
    assert not LEFT_OUT & set(PAGES)


def test_navigation_is_read_as_yaml_reads_it() -> None:
    text = (REPOSITORY / "conf" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    expected = []
    for part in yaml.safe_load(text)["nav"]:
        [(title, value)] = part.items()
        files = [value] if isinstance(value, str) else value
        expected += [("" if isinstance(value, str) else title, file) for file in files]
    read = [(group.title, f"{entry.name}.md") for group in read_groups() for entry in group.pages]
    assert read == [one for one in expected if one[1].removesuffix(".md") not in LEFT_OUT]


def test_file_that_is_not_such_a_navigation_is_refused() -> None:
    with pytest.raises(ValueError, match="a folder"):
        groups_of("site_name: x\n\nnav:\n  - Start: index.md\n  - a folder/\n")


def test_each_page_has_a_file_and_is_the_page_of_that_file() -> None:
    assert [page for page in PAGES if page_of(file_of(page)) != page] == []
    assert [page_of(name) for name in ("docs/claims.md", "CONTRIBUTING.md", "conf/gateway.toml")] == ["", "", ""]


def test_pages_are_at_most_one_folder_deep_and_no_page_is_named_as_the_search() -> None:
    """The routes of the console have so many parts."""
    assert max(page.count("/") for page in PAGES) == 1
    assert "search" not in PAGES


def test_drawings_are_files_of_the_console() -> None:
    names = list(chain(pictures()))
    assert names
    assert all(own_files().path(name).endswith(name) for name in names)
