"""An address that somebody else uses first, in a real browser: with and without mail, and with an identity provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.config.settings import OidcSettings
from tests.console.browser.address_story import Stage, Story, Way
from tests.console.browser.mailbox import mailbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the provider's own packages
]

DEFAULT = Way()
MAIL = Way(mail=True, proved="mail")
VOUCHES = Way(provider="vouches", proved="provider")
IS_SILENT = Way(provider="is silent")
#: The way, whether the operator invites before mallory makes the user, and to which role.
STORIES: dict[str, list[tuple[Way, bool, str]]] = {
    "mail": [
        (DEFAULT, False, "operator"),
        (DEFAULT, True, "operator"),
        (DEFAULT, False, "owner"),
        (DEFAULT, True, "owner"),
        (MAIL, False, "operator"),
        (MAIL, True, "owner"),
    ],
    "provider": [
        (VOUCHES, False, "owner"),
        (VOUCHES, True, "operator"),
        (IS_SILENT, False, "operator"),
        (IS_SILENT, True, "owner"),
    ],
}


@asynccontextmanager
async def staged(console: Any, stories: list[tuple[Way, bool, str]]) -> AsyncIterator[Stage]:
    """One server and one browser for all these stories."""
    from oidc_provider_mock import User, run_server_in_thread

    from tests.console.browser.chromium import windows

    async with AsyncExitStack() as stack:
        c = await stack.enter_async_context(console())
        mails, mail = await stack.enter_async_context(mailbox())
        claims = [way.claims(n) for n, (way, _, _) in enumerate(stories)]
        people = [User(sub=subject, claims=one) for both in claims for subject, one in both.items()]
        server = stack.enter_context(run_server_in_thread(require_nonce=True, user_claims=people))
        issuer, secret = f"http://localhost:{server.server_port}", "env:OIDC_TEST_SECRET"
        corp = OidcSettings(issuer=issuer, client_id="gateway", client_secret=secret, label="Corp")
        stage = Stage(c, mails, mail, corp)
        await stage.begin(await stack.enter_async_context(windows()))
        yield stage


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-1")
@pytest.mark.parametrize("name", STORIES)
async def test_role_that_an_operator_gives_is_never_that_of_somebody_else_who_used_the_address(
    console: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In both orders of events, for a role on the site and for one in another account."""
    from tests.console.browser.axe import violations

    monkeypatch.setenv("OIDC_TEST_SECRET", "secret")
    async with staged(console, STORIES[name]) as stage:
        for n, (way, operator_first, role) in enumerate(STORIES[name]):
            story = Story(stage, way, n, role)
            await story.tell(operator_first=operator_first)
        assert await violations(stage.operator) == []
        if name == "mail":
            await story.boss_accepts_another_invitation()
