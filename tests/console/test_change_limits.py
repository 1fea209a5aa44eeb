"""Members and owners make a limited number of changes in some minutes. What ends something is never refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console import site

KEYS = "/accounts/acme/keys"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of changes that a person makes."""
    monkeypatch.setattr(site, "MOST_CHANGES", 3)
    return 3


@pytest.mark.holds("console.md#security-11", "security.md#shares-2")
async def test_member_makes_a_limited_number_of_keys_and_revokes_any(console: Any, few: int) -> None:
    async with console() as c:
        ann, ben = await c.as_("ann", acme="member"), await c.as_("ben", acme="owner")
        for number in range(few):
            await ann.post(f"{KEYS}/new", 200, page=f"{KEYS}/new", name=f"number {number}")
        refused = await ann.post(f"{KEYS}/new", 429, page=f"{KEYS}/new", name="one more")
        assert "3 changes in a short time; go on in 10 minutes" in refused.text and 'value="one more"' in refused.html
        assert await ann.post(f"{KEYS}/{(await keys(c))[0]}/rotate", 429)
        for key in await keys(c):
            await ann.post(f"{KEYS}/{key}/revoke")
        await ann.post("/profile/sessions/end-others")
        await ann.post("/sign-out")
        await ben.post(f"{KEYS}/new", 200, page=f"{KEYS}/new", name="of another person")
        assert len(await keys(c)) == few + 1


@pytest.mark.holds("console.md#security-11")
async def test_changes_can_go_on_after_some_minutes(console: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("gateway.web.window_counts.monotonic", lambda: now[0])
    async with console() as c:
        ann = await c.as_("ann", acme="owner")
        for _ in range(few):
            await ann.post("/profile/name", name="Ann")
        now[0] += 541
        assert "go on in a minute" in (await ann.post("/profile/name", 429, name="Eve")).text
        now[0] += 60
        await ann.post("/profile/name", name="Eve")
        assert "Eve" in (await ann.get("/profile")).html


@pytest.mark.holds("console.md#security-11")
async def test_operators_make_any_number_of_changes(console: Any, few: int) -> None:
    async with console() as c:
        root = await c.as_("root", role="operator", acme="owner")
        for number in range(few + 2):
            await root.post(f"{KEYS}/new", 200, page=f"{KEYS}/new", name=f"number {number}")
            await root.post("/site/new-account", name=f"account-{number}", group="default")
        assert len(await keys(c)) == few + 2


async def keys(c: Any) -> list[str]:
    return [key.id for key in await c.services.store.keys.list("acme")]
