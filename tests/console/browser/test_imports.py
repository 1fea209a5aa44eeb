"""An import in a real browser: a file is read into the form, and the new keys are saved as a file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser.test_looks import LOOKS, sign_in
from tests.console.client import PASSWORD

pytestmark = pytest.mark.slow


async def test_keys_are_imported_from_a_file_and_saved_as_one(console: Any, tmp_path: Path) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "profile", **LOOKS["narrow"]) as w:
        await c.user("root@example.com", role="operator", password=PASSWORD, acme="owner")
        page, sound, wrong = w.page, tmp_path / "keys.csv", tmp_path / "latin.csv"
        sound.write_text('account,name\nacme,"café, nightly"\nacme,second\n', encoding="utf-8")
        wrong.write_text("account,name\nacme,café\n", encoding="latin-1")
        await sign_in(page, c.url, "root@example.com")
        await page.goto(f"{c.url}/site/import?kind=keys")
        file = page.get_by_label("From a file")
        await file.set_input_files(wrong)
        assert "not UTF-8" in await file.evaluate("input => (input.validationMessage)")
        long = tmp_path / "long.csv"  # its commas and ends of lines are three and six bytes in a form
        long.write_text("account,name\n" + "acme,k\n" * 20_000, encoding="utf-8")
        await file.set_input_files(long)
        text = page.locator("#content")
        assert "too long for a form" in await text.evaluate("area => (area.validationMessage)")
        await page.get_by_role("button", name="Check, without a change").click()
        assert await text.input_value() != ""  # the page is still there
        await file.set_input_files(sound)
        await page.get_by_role("button", name="Check, without a change").click()
        await page.get_by_text("To create: 2").wait_for()
        await page.get_by_label("Your password, again").fill(PASSWORD)
        await page.get_by_role("button", name="Import", exact=True).click()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save as a file").click()
        saved = tmp_path / "saved.csv"
        await (await download.value).save_as(saved)
        rows = list(csv.DictReader(saved.read_text(encoding="utf-8").splitlines()))
        assert [row["name"] for row in rows] == ["café, nightly", "second"]
        assert await c.services.store.keys.owner_of(rows[0]["key"]) == ("acme", rows[0]["id"])
        await page.reload()  # of the address that stands for the page: the keys are gone
        assert "sk-" not in await page.locator("main").inner_text()
        assert w.faults == []
