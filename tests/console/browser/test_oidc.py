"""A sign-in by another program's identity provider, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.config.settings import OidcSettings
from tests.console.client import PASSWORD, ROOT

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the provider's own packages
async def test_person_signs_in_by_a_provider_and_is_known_the_next_time(
    console: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oidc_provider_mock import User, run_server_in_thread

    from tests.console.browser.axe import violations
    from tests.console.browser.chromium import window

    monkeypatch.setenv("OIDC_TEST_SECRET", "secret")
    people_there = [
        User(sub=name, claims={"email": f"{name}@example.com", "email_verified": True}) for name in ("ann", "ben")
    ]
    with run_server_in_thread(require_nonce=True, user_claims=people_there) as server:
        async with console() as c, window(tmp_path / "profile") as w:
            user = await c.user("ann@example.com", acme="member")
            settings = c.services.settings
            corp = OidcSettings(
                issuer=f"http://localhost:{server.server_port}",
                client_id="gateway",
                client_secret="env:OIDC_TEST_SECRET",
                label="Corp",
            )
            address = structs.replace(settings.console, public_url=c.url)
            c.services.use(structs.replace(settings, oidc={"corp": corp}, console=address))
            for _ in range(2):
                await w.page.goto(f"{c.url}/profile")
                await w.page.get_by_role("button", name="Sign in with Corp").click()
                await w.page.get_by_role("button", name="ann", exact=True).click()
                await w.page.get_by_role("heading", name="Profile").wait_for()
                await w.page.get_by_text("Disconnect Corp").wait_for()
                assert w.page.url == f"{c.url}/profile"
                await w.page.get_by_role("button", name="Sign out").click()
                await w.page.get_by_role("heading", name="Sign in").wait_for()
            await c.user("ben@example.com", password=PASSWORD)
            await w.page.get_by_role("button", name="Sign in with Corp").click()
            await w.page.get_by_role("button", name="ben", exact=True).click()
            await w.page.get_by_role("heading", name="Your password, once").wait_for()
            assert await violations(w.page) == []
            await w.page.get_by_label("Password").fill(PASSWORD)
            await w.page.get_by_role("button", name="Connect and sign in").click()
            await w.page.get_by_role("button", name="Sign out").wait_for()
            # The provider's own pages have other faults.
            assert [fault for fault in w.faults if "Security Policy" in fault] == []
            people = await c.services.people()
            assert len(await people.identities.list(ROOT, user.id)) == 1
