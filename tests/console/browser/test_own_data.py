"""A file that answers a form, in a real browser: the page stays, and the form can be sent again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser.test_looks import sign_in
from tests.console.sights import furnished

pytestmark = pytest.mark.slow


async def test_people_download_their_data_as_often_as_they_like(console: Any, tmp_path: Path) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "profile") as w:
        user = await furnished(c)
        await sign_in(w.page, c.url, user.email)
        await w.page.goto(f"{c.url}/profile")
        button = w.page.get_by_role("button", name="Download my data")
        for _ in range(2):
            async with w.page.expect_download() as download:
                await button.click()
            file = await (await download.value).path()
            assert json.loads(file.read_text())["user"]["email"] == user.email
            assert await button.get_attribute("aria-busy") is None
        assert w.faults == []
