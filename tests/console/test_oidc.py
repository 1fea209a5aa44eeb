"""Signing in by an identity provider, over real sockets: what is checked, and what leads in."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pyotp
import pytest
from joserfc.jwk import RSAKey
from msgspec import structs
from yarl import URL

from gateway.people.oidc import documents
from tests.console.client import PASSWORD, ROOT
from tests.console.identity_provider import (
    SECRET,
    IdentityProvider,
    encoded,
    other_key,
    signed,
    signed_with_the_public_key,
    unsigned,
)
from tests.console.oidc_world import TABLE, OpenWorld, away, back, come, oidc_world, reasons, replaced
from tests.console.opening import MODELS

__all__ = ["oidc_world"]
CODE_PAGE = r"/sign-in/code\?step=[0-9a-f]{12}&next=%2Fprofile"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the provider's own packages
async def test_provider_of_another_project_is_understood(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from oidc_provider_mock import User, run_server_in_thread

    monkeypatch.setenv("OIDC_TEST_SECRET", SECRET)
    claims = {"email": "ann@example.com", "email_verified": True, "groups": ["leads"]}
    with run_server_in_thread(require_nonce=True, user_claims=[User(sub="ann", claims=claims)]) as server:
        tables = TABLE.format(name="corp", issuer=f"http://localhost:{server.server_port}", label="Corp")
        async with console(models=MODELS + tables) as c:
            browser = await c.browser()
            address = URL(await away(browser))
            async with browser.session.post(address, data={"sub": "ann"}, allow_redirects=False) as answer:
                target = urlsplit(answer.headers["Location"])
            done = await browser.ask("GET", f"{target.path}?{target.query}")
            assert done.status == 303 and "gateway-session" in browser.cookies
            user = await (await c.services.people()).users.find(ROOT, "ann@example.com")
            assert user.accounts == {"acme": "owner"}


def expired(provider: IdentityProvider) -> None:
    provider.changes = {"exp": int(time.time()) - 120}


def made_later(provider: IdentityProvider) -> None:
    provider.changes = {"iat": int(time.time()) + 3600}


def made_long_ago(provider: IdentityProvider) -> None:
    provider.changes = {"iat": int(time.time()) - 3600}


def without(name: str) -> Callable[[IdentityProvider], None]:
    return with_claim(name, None)


def with_claim(name: str, value: Any) -> Callable[[IdentityProvider], None]:
    def change(provider: IdentityProvider) -> None:
        provider.changes = {name: value}

    return change


def signed_by(sign: Callable[[dict[str, Any]], str]) -> Callable[[IdentityProvider], None]:
    def change(provider: IdentityProvider) -> None:
        provider.sign = sign

    return change


def with_nested_header(claims: dict[str, Any]) -> str:
    """A token whose header is nested deeper than a parser goes."""
    header = b'{"alg": "RS256", "crit": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    return f"{encoded(header)}.{signed(claims, 'RS256', other_key()).partition('.')[2]}"


def says(**answer: Any) -> Callable[[IdentityProvider], None]:
    def change(provider: IdentityProvider) -> None:
        provider.answer = {name: provider.issuer if value == "own" else value for name, value in answer.items()}

    return change


REFUSED: list[tuple[str, Callable[[IdentityProvider], None]]] = [
    ("algorithm", signed_by(unsigned)),
    ("algorithm", signed_by(signed_with_the_public_key)),
    ("signature", signed_by(lambda claims: signed(claims, "RS256", other_key()))),
    ("signature", signed_by(lambda claims: signed(claims, "RS256", other_key())[:-40])),
    ("token", signed_by(lambda claims: "no token")),
    ("nonce", with_claim("nonce", "another")),
    ("nonce", without("nonce")),
    ("audience", with_claim("aud", "another")),
    ("audience", with_claim("aud", ["gateway", "another"])),
    ("audience", with_claim("azp", "another")),
    ("issuer", with_claim("iss", "http://127.0.0.1:1")),
    ("expired", expired),
    ("times", made_later),
    ("times", made_long_ago),
    ("times", without("iat")),
    ("times", without("exp")),
    ("times", with_claim("exp", 10**400)),
    ("token", signed_by(with_nested_header)),
    ("subject", with_claim("sub", "")),
    ("issuer", says()),
    ("issuer", says(iss="http://127.0.0.1:1")),
    ("cancelled", says(code=None, error="access_denied", iss="own")),
    ("error", says(code=None, error="<b>server_error</b>", iss="own")),
    ("code", says(code="unknown", iss="own")),
]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-10", "security.md#accounts-and-sessions-5")
async def test_sign_in_that_is_not_as_it_must_be_is_refused(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        corp.metadata = {"authorization_response_iss_parameter_supported": True}
        corp.answer = {"iss": corp.issuer}
        sound = dict(vars(corp))
        for number, (reason, change) in enumerate(REFUSED):
            vars(corp).update(sound, asked=[])
            change(corp)
            browser = await c.browser()
            refused = await come(browser)
            assert refused.status == 403 and (await reasons(c))[0] == reason, (number, reason, await reasons(c))
            assert "gateway-session" not in browser.cookies
            for secret in (corp.asked[0]["state"], corp.asked[0]["nonce"], "127.0.0.1", "server_error", "ann@"):
                assert secret not in refused.html
        vars(corp).update(sound)
        assert (await come(await c.browser())).status == 303  # as it must be


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-10", "security.md#accounts-and-sessions-5")
async def test_state_belongs_to_one_browser_and_one_use(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        browser, other = await c.browser(), await c.browser()
        await away(other)  # so it has a cookie of its own
        path = await back(browser, await away(browser))
        for victim, target in (
            (other, path),  # login CSRF: the address of another browser
            (browser, replaced(path, state="x" * 43)),
            (browser, path.replace("/oidc/corp/", "/oidc/rival/")),
        ):
            refused = await victim.ask("GET", target)
            assert refused.status == 403 and "begun in another browser" in refused.text
            assert "gateway-session" not in victim.cookies
        assert corp.codes  # no code was redeemed
        [(name, cookie)] = [one for one in browser.cookies.items() if one[0].startswith("gateway-oidc-")]
        assert (await browser.ask("GET", path)).status == 303  # links of other people have not ended it
        browser.session.cookie_jar.update_cookies({name: cookie}, URL(c.url))
        replayed = await browser.ask("GET", path)
        assert replayed.status == 403 and "was used already" in replayed.text


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-10", "security.md#accounts-and-sessions-5")
async def test_answer_of_one_provider_is_not_taken_for_that_of_another(oidc_world: OpenWorld) -> None:
    """Mix-up: the sign-in began at `rival`, and the answer comes from `corp`, or to the address of `corp`."""
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        browser = await c.browser()
        at_rival = await away(browser, "rival")
        mixed = f"{corp.issuer}/authorization?{urlsplit(at_rival).query}"
        path = await back(browser, mixed)  # corp's code, sent to the address of rival
        refused = await browser.ask("GET", replaced(path, iss=corp.issuer))
        assert refused.status == 403 and await reasons(c) == ["issuer"] and len(corp.codes) == 1
        path = await back(browser, await away(browser, "rival"))
        refused = await browser.ask("GET", path.replace("/oidc/rival/", "/oidc/corp/"))
        assert refused.status == 403 and "begun in another browser" in refused.text


async def test_session_is_a_new_one_and_the_one_before_ends(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        user = await c.user("ann@example.com")
        browser = await c.signed_in(await c.user("eve@example.com"))
        before = browser.cookies["gateway-session"]
        shown = await browser.ask("POST", "/sign-in/oidc", {"xsrf": await browser.token(), "provider": "corp"})
        done = await browser.ask("GET", await back(browser, shown.found(r'href="(http[^"]+)"')))
        assert done.status == 303 and browser.cookies["gateway-session"] != before
        browser.session.cookie_jar.update_cookies({"gateway-session": before}, URL(c.url))
        assert (await browser.ask("GET", "/profile")).status == 303  # to the sign-in
        assert len(await (await c.services.people()).sessions.list(ROOT, user.id)) == 1


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-10")
async def test_sign_in_by_a_provider_leads_to_own_paths_only(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        await c.user("ann@example.com")
        for target in ("https://evil.example", "//evil.example", "/\\evil.example"):
            assert (await come(await c.browser(), next=target)).location == "/", target


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-6")
async def test_second_factor_is_asked_for_after_the_provider(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        user = await c.user("ann@example.com")
        people = await c.services.people()
        secret = people.second_factor.propose(user).secret
        now = int(time.time())
        await people.second_factor.enable(user.actor(""), secret, pyotp.TOTP(secret).at(now))
        browser = await c.browser()
        done = await come(browser, next="/profile")
        assert re.fullmatch(CODE_PAGE, done.location) and "gateway-session" not in browser.cookies
        code = pyotp.TOTP(secret).at(now + 30)
        assert (await browser.post("/sign-in/code", page=done.location, code=code)).status == 303
        assert (await browser.get("/profile")).status == 200


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-6")
async def test_user_with_a_second_factor_is_connected_only_when_the_code_was_right(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        for email, password in (("ann@example.com", ""), ("bob@example.com", PASSWORD)):
            user = await c.user(email, password=password)
            secret, now = people.second_factor.propose(user).secret, int(time.time())
            await people.second_factor.enable(user.actor(""), secret, pyotp.TOTP(secret).at(now))
            corp.person = {"sub": email, "email": email, "email_verified": True, "groups": ["search"]}
            browser = await c.browser()
            done = await come(browser, next="/profile")
            if password:
                done = await browser.post(done.location, page=done.location, password=password)
            assert re.fullmatch(CODE_PAGE, done.location)
            await browser.post("/sign-in/code", 401, page=done.location, code="abcdef")
            assert await people.identities.list(ROOT, user.id) == []
            assert (await people.users.show(ROOT, user.id)).accounts == {}
            code = pyotp.TOTP(secret).at(now + 30)
            assert (await browser.post("/sign-in/code", page=done.location, code=code)).status == 303
            assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
            assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "member"}
            await people.identities.end_all(ROOT, user.id)
            assert (await browser.ask("GET", "/profile")).status == 303  # the session began with it


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-11")
async def test_documents_are_kept_and_new_keys_are_found(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.people.oidc.provider.KEYS_AGAIN_AFTER", 0.0)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        for _ in range(2):
            assert (await come(await c.browser())).status == 303
        assert corp.fetched.count(".well-known/openid-configuration") == corp.fetched.count("keys") == 1
        new = RSAKey.generate_key(2048, {"kid": "two"})
        corp.keys, corp.sign = [new], lambda claims: signed(claims, "PS256", new, kid="two")
        assert (await come(await c.browser())).status == 303
        assert corp.fetched.count("keys") == 2


async def test_provider_that_is_away_or_answers_nonsense_is_an_error_page(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PAUSE", 0.0)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        browser = await c.browser()
        for metadata in (
            {"issuer": "http://127.0.0.1:1"},
            {"token_endpoint": "http://evil.example/token"},
            {"jwks_uri": 3},
            {"padding": "x" * 300_000},
        ):
            corp.metadata = metadata
            page = await browser.post("/sign-in/oidc", 503, page="/sign-in", provider="corp")
            assert "does not answer as it should" in page.text and "evil" not in page.html
        corp.metadata = {}
        assert (await come(browser)).status == 303
        await browser.post("/sign-out")
        await browser.post("/sign-in/oidc", 400, page="/sign-in", provider="nobody")


async def test_claims_that_the_token_lacks_come_from_the_userinfo_endpoint(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        corp.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        corp.userinfo, corp.person = corp.person | {"groups": ["search"]}, {"sub": "subject-1"}
        assert (await come(await c.browser())).status == 303
        assert (await (await c.services.people()).users.find(ROOT, "ann@example.com")).accounts == {"acme": "member"}
        corp.userinfo |= {"sub": "another"}
        assert (await come(await c.browser())).status == 403 and await reasons(c) == ["subject"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-12")
async def test_attempts_are_limited_by_address(oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.people.sign_in_limits.PROVIDER_PER_ADDRESS", 2)
    async with oidc_world() as (c, _):
        await c.user("ann@example.com")
        browser = await c.browser()
        for _ in range(3):
            assert (await come(await c.browser())).status == 303  # successes do not count
        for status in (200, 200, 429):
            await browser.post("/sign-in/oidc", status, page="/sign-in", provider="corp")


async def test_changed_settings_are_used_after_a_reload(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        await c.user("ann@example.com")
        browser = await c.browser()
        old = c.services.settings
        renamed = structs.replace(old.oidc["corp"], label="Renamed")
        console = structs.replace(old.console, public_url="https://gw.test")
        c.services.use(structs.replace(old, oidc={"corp": renamed}, console=console))
        sent = {"X-Forwarded-Proto": "https"}
        page = await browser.ask("GET", "/sign-in", headers=sent)
        assert "Sign in with Renamed" in page.text and "Rival" not in page.text
        visitor = page.headers["Set-Cookie"].partition(";")[0]
        form = {"xsrf": page.found(r'name="xsrf" value="([^"]+)"'), "provider": "corp"}
        shown = await browser.ask("POST", "/sign-in/oidc", form, headers={**sent, "Cookie": visitor})
        assert "redirect_uri=https%3A%2F%2Fgw.test%2Fsign-in%2Foidc%2Fcorp%2Fcallback" in shown.found(
            r'href="(http[^"]+)"'
        )
        [cookie] = [text for text in shown.headers.getall("Set-Cookie") if "gateway-oidc-" in text]
        assert re.match(r"__Host-gateway-oidc-[0-9a-f]{12}=[\w-]{43};", cookie)
        assert all(flag in cookie for flag in ("HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600"))


@pytest.mark.slow
def test_console_without_a_provider_does_not_load_joserfc() -> None:
    code = "import sys, gateway.runtime.console; print('joserfc' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
