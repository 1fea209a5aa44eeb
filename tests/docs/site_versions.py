"""The documentation site of two versions in a real browser. `tox -e site` installs its generator and runs this.

The pages of the second version have one more page, so that the selector has one that it cannot stay on.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD, NEW = "0.1.0", "0.2.0"
PAGE = "new" + ".md"  # no file of this repository
ONLY_NEW = "# A new page\n\nOnly 0.2.0 has it. [Prices](prices.md#audio)\n"


def run(root: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Build a version of a checkout into a site."""
    command = [sys.executable, str(root / "conf" / "site" / "build.py"), str(folder), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a version with a page more."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "conf"):
        shutil.copytree(ROOT / name, root / name)
    for path in (*ROOT.glob("*.md"), ROOT / "setup.py"):
        shutil.copy(path, root)
    (root / "docs" / PAGE).write_text(ONLY_NEW, encoding="utf-8")
    nav = root / "conf" / "site" / "mkdocs.yml"
    nav.write_text(nav.read_text(encoding="utf-8") + f"      - {PAGE}\n", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML of both versions; no link of it is broken."""
    folder = tmp_path_factory.mktemp("site")
    for root, version in ((ROOT, OLD), (checkout, NEW)):
        done = run(root, folder, "--version", version)
        assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serves them, below a folder of the server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Nothing."""

    (site.parent / "docs").symlink_to(site)
    handler = functools.partial(Quiet, directory=str(site.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/docs"
        server.shutdown()
        thread.join()


def test_both_versions_are_there_and_latest_is_the_newer_one(site: Path) -> None:
    assert {path.name for path in site.iterdir()} == {OLD, NEW, "latest", "index.html", "versions.json"}
    assert (site / "latest" / "new").is_dir() and (site / NEW / "new").is_dir() and not (site / OLD / "new").exists()


def test_broken_link_of_a_page_is_an_error(checkout: Path, tmp_path: Path) -> None:
    page = checkout / "docs" / PAGE
    try:
        for link in (f"[a](gone-{PAGE})", "[a](prices.md#gone)"):
            page.write_text(f"{ONLY_NEW}\n{link}\n", encoding="utf-8")
            assert run(checkout, tmp_path, "--version", NEW).returncode == 1, link
    finally:
        page.write_text(ONLY_NEW, encoding="utf-8")


async def test_selector_leads_to_the_same_page_of_the_other_version(address: str, tmp_path: Path) -> None:
    from tests.console.browser.chromium import chromium_path, window

    if not chromium_path():
        pytest.skip("there is no Chromium on PATH: apt-get install chromium-headless-shell")
    async with window(tmp_path / "profile") as w:
        await w.page.goto(f"{address}/")
        await w.page.wait_for_url("**/docs/latest/")
        await w.page.goto(f"{address}/{OLD}/operations/tls/")
        selector = w.page.get_by_role("button", name="Select version")
        assert (await selector.inner_text()).split() == [OLD]
        banner = w.page.get_by_text("This is the documentation of another version.")
        await banner.wait_for()
        await selector.focus()
        assert await w.page.locator(".md-version__link").all_inner_texts() == [f"{NEW}latest", OLD]
        await w.page.locator(".md-version__link").first.click()
        await w.page.wait_for_url(f"**/docs/{NEW}/operations/tls/")
        assert (await w.page.get_by_role("button", name="Select version").inner_text()) == f"{NEW}latest"
        assert not await w.page.get_by_text("This is the documentation of another version.").is_visible()
        await w.page.goto(f"{address}/{NEW}/new/")
        await w.page.get_by_role("button", name="Select version").focus()
        await w.page.locator(".md-version__link").last.click()
        await w.page.wait_for_url(f"**/docs/{OLD}/")
        await w.page.goto(f"{address}/{OLD}/prices/")
        await w.page.get_by_text("The newest one").click()
        await w.page.wait_for_url("**/docs/latest/")
        assert w.faults == []
        assert all(one.startswith(address) for one in w.addresses)
