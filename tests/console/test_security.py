"""What protects the console: tokens of forms, cookies, redirects, headers, limits."""

from __future__ import annotations

import re
import time
from urllib.parse import urlencode

import pyotp
import pytest
from yarl import URL

from gateway.console.table import ROUTES
from gateway.people import sign_in_limits
from tests.console.client import HOME, PASSWORD, ROOT, XSRF

LINK = re.compile(r'(?:href|action|src)="([^"]*)"')


async def test_write_without_the_right_token_is_refused_and_changes_nothing(console) -> None:
    async with console() as c:
        ann, eve = await c.as_("ann", acme="member"), await c.as_("eve")
        before_sign_in = await (await c.browser()).token("/sign-in")
        for token in ("", "nonsense", await eve.token(), before_sign_in):
            answer = await ann.ask("POST", "/profile/name", {"name": "changed", "xsrf": token})
            assert answer.status == 403 and "This form is too old" in answer.text
        assert "changed" not in (await ann.get("/profile")).html
        await ann.post("/profile/name", name="changed")
        assert "changed" in (await ann.get("/profile")).html


#: Forms of people who sign in lead on who has done so in another tab, whatever token they have.
LEAD_ON = {
    "/sign-in": "/",
    "/sign-in/oidc": "/",
    "/sign-in/code": "/sign-in",
    "/sign-in/oidc/password": "/sign-in",
}


@pytest.mark.holds("console.md#security-1", "security.md#the-console-2")
async def test_every_write_needs_a_token(console) -> None:
    async with console() as c:
        browser = await c.as_("root", role="operator", acme="owner")
        writes = [route for route in ROUTES if route.writes]
        for route in writes:
            path = route.path.format(**dict.fromkeys(route.parameters, "acme"))
            answer = await browser.ask("POST", path, {})
            if route.path in LEAD_ON:
                assert (answer.status, answer.location) == (303, LEAD_ON[route.path])
            else:  # a form that needs a link is not found without it
                assert answer.status in ((403, 404) if route.audience == "public" else (403,)), route.path


async def test_token_of_the_time_before_the_sign_in_does_not_work_after_it(console) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        old = await browser.token("/sign-in")
        await browser.post("/sign-in", page="/sign-in", email="ann@example.com", password=PASSWORD)
        assert (await browser.ask("POST", "/profile/name", {"name": "x", "xsrf": old})).status == 403
        assert "gateway-visitor" not in browser.cookies


@pytest.mark.holds("security.md#accounts-and-sessions-4")
async def test_sign_in_begins_a_session_of_its_own_whatever_cookie_the_browser_had(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        browser.session.cookie_jar.update_cookies({"gateway-session": "planted"}, URL(c.url))
        await browser.post("/sign-in", page="/sign-in", email="ann@example.com", password=PASSWORD)
        first = browser.cookies["gateway-session"]
        assert first != "planted" and len(first) >= 43
        link = await (await c.services.people()).sign_in_links.create(ROOT, user.id)
        page = f"/sign-in/link?token={link.token}"
        await browser.post("/sign-in/link", page=page, token=link.token, action="sign_in")
        assert browser.cookies["gateway-session"] != first
        sessions = await (await c.services.people()).sessions.list(ROOT, user.id)
        here = [one for one in sessions if one.user_agent != HOME.user_agent]
        assert len(here) == 1  # the one before has ended


@pytest.mark.holds("security.md#the-console-2")
async def test_cookies_are_kept_from_scripts_and_other_sites(console) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        page = await browser.ask("GET", "/sign-in")
        token = await browser.token("/sign-in")
        form = {"xsrf": token, "email": "ann@example.com", "password": PASSWORD}
        answer = await browser.ask("POST", "/sign-in", form)
        for cookie in (*page.headers.getall("Set-Cookie"), *answer.headers.getall("Set-Cookie")):
            name, _, rest = cookie.partition("=")
            assert name in ("gateway-session", "gateway-visitor", "gateway-known-browser") and "Domain" not in rest
            assert "HttpOnly" in rest and "SameSite=Lax" in rest and "Path=/" in rest and "Secure" not in rest


@pytest.mark.parametrize("how", ["public_url", "proxy"])
async def test_cookies_over_https_are_secure_and_bound_to_the_host(console, how: str) -> None:
    settings = {"public_url": "https://console.example.com"} if how == "public_url" else {}
    headers = {"X-Forwarded-Proto": "https"} if how == "proxy" else {}
    async with console(**settings) as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        page = await browser.ask("GET", "/sign-in", headers=headers)
        visitor = page.headers["Set-Cookie"].partition(";")[0]
        assert visitor.startswith("__Host-gateway-visitor=")
        form = {"xsrf": page.found(XSRF), "email": "ann@example.com", "password": PASSWORD}
        sent = {**headers, "Cookie": visitor}
        answer = await browser.ask("POST", "/sign-in", form, headers=sent)
        [cookie] = [text for text in answer.headers.getall("Set-Cookie") if text.startswith("__Host-gateway-session=")]
        assert "; Secure" in cookie and "HttpOnly" in cookie and "Path=/" in cookie and "Domain" not in cookie
        session = cookie.partition(";")[0]
        assert (await browser.ask("GET", "/profile", headers={**headers, "Cookie": session})).status == 200
        plain = session.removeprefix("__Host-")  # what another host could set
        assert (await browser.ask("GET", "/profile", headers={**headers, "Cookie": plain})).status == 303


FOREIGN = (
    "https://evil.example",
    "//evil.example",
    "/\\evil.example",
    "/\t/evil.example",
    "\\\\evil.example",
    "javascript:alert(1)",
    "/a\r\nLocation: https://evil.example",
    "%2f%2fevil.example",
)


async def test_sign_in_leads_to_no_other_site(console) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        for target in FOREIGN:
            browser = await c.browser()
            form = {"email": "ann@example.com", "password": PASSWORD, "next": target}
            answer = await browser.post("/sign-in", page="/sign-in", **form)
            assert answer.location == "/", target
            assert (await browser.ask("GET", f"/sign-in?{urlencode({'next': target})}")).location == "/", target


async def test_code_of_the_second_factor_leads_to_no_other_site(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)
        factor, now = (await c.services.people()).second_factor, time.time()
        secret = factor.propose(user).secret
        await factor.enable(user.actor(""), secret, pyotp.TOTP(secret).at(now))
        browser = await c.browser()
        form = {"email": user.email, "password": PASSWORD, "next": FOREIGN[1]}
        answer = await browser.post("/sign-in", page="/sign-in", **form)
        [cookie] = answer.headers.getall("Set-Cookie")
        assert cookie.startswith("gateway-second-step-") and "HttpOnly" in cookie and "SameSite=Lax" in cookie
        assert answer.location.startswith("/sign-in/code?step=") and "next" not in answer.location
        page = await browser.get(f"{answer.location}&{urlencode({'next': FOREIGN[1]})}")
        assert page.found(r'name="next" value="([^"]*)"') == "/"
        form = {"code": pyotp.TOTP(secret).at(now + 30), "next": FOREIGN[1]}
        assert (await browser.post("/sign-in/code", page=answer.location, **form)).location == "/"


async def test_sign_in_leads_back_to_the_page_that_was_wanted(console) -> None:
    async with console(root_path="/gw") as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        first = await browser.ask("GET", "/profile?a=b%26c")
        assert first.location == "/gw/sign-in?next=%2Fprofile%3Fa%3Db%2526c"
        page = first.location.removeprefix("/gw")
        target = (await browser.get(page)).found(r'name="next" value="([^"]*)"')
        form = {"email": "ann@example.com", "password": PASSWORD, "next": target}
        assert (await browser.post("/sign-in", page=page, **form)).location == "/gw/profile?a=b%26c"


@pytest.mark.holds("security.md#the-console-3")
async def test_attempts_to_sign_in_are_limited_by_email(console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_limits, "PER_SUBJECT", 3)
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        statuses = []
        for password in ("wrong", "wrong", "wrong", PASSWORD):
            token = await browser.token("/sign-in")
            form = {"xsrf": token, "email": "ann@example.com", "password": password}
            statuses.append((await browser.ask("POST", "/sign-in", form)).status)
        assert statuses == [401, 401, 401, 429]


@pytest.mark.holds("security.md#the-console-3")
async def test_unknown_email_gets_the_answer_of_a_wrong_password(console) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        texts = set()
        for email in ("ann@example.com", "nobody@example.com", "no address"):
            browser = await c.browser()
            page = await browser.post("/sign-in", 401, page="/sign-in", email=email, password="wrong password")
            texts.add(page.text)
        assert len(texts) == 1 and "The e-mail address or the password is wrong." in texts.pop()


@pytest.mark.holds("security.md#the-console-2")
async def test_pages_carry_the_headers_that_forbid_foreign_content_and_frames(console) -> None:
    async with console() as c:
        browser = await c.as_("ann", acme="member")
        for path, status in (("/profile", 200), ("/nothing", 404), ("/sign-in/link?token=x", 404)):
            answer = await browser.ask("GET", path)
            assert answer.status == status and answer.headers["Cache-Control"] == "no-store"
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Frame-Options"] == "DENY"
            assert "Server" not in answer.headers and "style=" not in answer.html and "<style" not in answer.html
            assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=", answer.html)


async def test_failure_is_a_page_without_a_trace(console, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as c:
        browser = await c.as_("ann")
        people = await c.services.people()

        async def broken(*args: object) -> None:
            raise RuntimeError("the inner secret")

        monkeypatch.setattr(people.sessions, "list", broken)
        answer = await browser.ask("GET", "/profile")
        assert answer.status == 500 and "Something went wrong" in answer.text
        assert "inner secret" not in answer.html and "Traceback" not in answer.html


async def test_form_that_is_too_long_or_of_another_kind_is_refused(console) -> None:
    async with console() as c:
        browser = await c.as_("ann")
        token = await browser.token()
        assert (await browser.ask("POST", "/profile/name", {"xsrf": token, "name": "x" * 300_000})).status == 413
        json = {"Content-Type": "application/json"}
        assert (await browser.ask("POST", "/profile/name", headers=json, raw=b"{}")).status == 415
        assert (await browser.ask("POST", "/profile/name", {"xsrf": token, "name": "x" * 30_000})).status == 400
        assert (await browser.ask("PUT", "/profile/name", {})).status == 405


async def test_files_are_kept_by_their_hash(console) -> None:
    async with console(root_path="/gw") as c:
        browser = await c.browser()
        page = await browser.get("/sign-in")
        files = [link for link in LINK.findall(page.html) if "/static/" in link]
        assert len(files) >= 4
        for file in files:
            path = file.removeprefix("/gw")
            answer = await browser.ask("GET", path)
            assert answer.status == 200 and "immutable" in answer.headers["Cache-Control"]
            again = await browser.ask("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
            assert again.status == 304 and not again.body
        old = "/static/0123456789abcdef/console.css"
        assert (await browser.ask("GET", old)).headers["Cache-Control"] == "no-cache"
        for bad in ("/static/0123456789abcdef/../../site.py", "/static/0123456789abcdef/vendor/htmx/LICENSE"):
            assert (await browser.ask("GET", bad)).status == 404


async def test_console_works_behind_a_path_that_the_proxy_keeps_or_removes(console) -> None:
    async with console(root_path="/gw") as c:
        browser = await c.as_("ann", acme="member")
        kept = await browser.get("/profile")
        browser.root = ""
        removed = await browser.get("/profile")
        for page in (kept, removed):
            own = [link for link in LINK.findall(page.html) if not link.startswith(("#", "mailto:"))]
            assert own and all(link.startswith("/gw/") for link in own)
        assert (await browser.ask("GET", "/gwprofile")).status == 404
