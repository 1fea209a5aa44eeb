"""Names, notes, tags and errors with HTML in them: every page shows them as text, and carries the headers that forbid
scripts of its own.
"""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec
import pytest

import gateway.console
from gateway.admin.user_rows import User
from gateway.billing.usage import Usage
from gateway.console.table import ROUTES
from gateway.inference.running_calls import RunningCall
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client
from gateway.routing.circuit_sync import HASH, CircuitEvent
from tests.console.client import PASSWORD, ROOT, Browser, Console, Shown
from tests.console.history import ago, history
from tests.console.samples import Samples

pytestmark = pytest.mark.slow

TAG = "x-evil"
HOSTILE = f"\"'><{TAG} onload=alert(1)></script><!--{{{{31337+981976232}}}}{{% x %}}"
EVALUATED = "982007569"
QUOTED = json.dumps(HOSTILE)  # as TOML has it, too; names of providers, groups and accounts cannot be hostile
MODELS = f"""
[models.{QUOTED}]
provider = "fake"
aliases = [{json.dumps(f"alias {HOSTILE}")}]
price = {{ input = 1, output = 2, currency = "USD", per_image = {{ {QUOTED} = {{ high = 1 }} }} }}
"""
CONSOLE = Path(gateway.console.__file__).parent
#: The names of all fields of forms, and of all parameters of addresses.
FIELDS = {
    name for file in CONSOLE.glob("templates/*.html") for name in re.findall(r'\bname="(\w+)"', file.read_text())
} - {"xsrf", "viewport"}
QUERY = urlencode(
    {
        name: HOSTILE
        for file in CONSOLE.rglob("*.py")
        for name in re.findall(r'\b(?:query|queries)\("(\w+)"\)', file.read_text())
    }
)
ENDS_SESSION = ("/sign-out", "/profile/password")
#: Pages with texts of people or of the configuration; each of them must show the hostile one.
SHOWING = {
    "/accounts/{account}", "/accounts/{account}/keys", "/accounts/{account}/keys/{key}",
    "/accounts/{account}/keys/{key}/rotate", "/accounts/{account}/keys/{key}/revoke", "/accounts/{account}/keys/new",
    "/accounts/{account}/usage", "/accounts/{account}/usage.csv", "/accounts/{account}/usage/{request_id}",
    "/accounts/{account}/reports", "/accounts/{account}/reports.csv", "/accounts/{account}/reports.json",
    "/accounts/{account}/prices", "/prices", "/accounts/{account}/playground", "/accounts/{account}/running",
    "/accounts/{account}/members", "/accounts/{account}/statements/{month}",
    "/accounts/{account}/statements/{month}/lines.csv", "/profile", "/site/accounts/{account}",
    "/site/accounts/{account}/price", "/site/audit-trail",
    "/site/calls", "/site/configuration", "/site/ledger/{account}", "/site/models", "/site/running", "/site/users",
    "/site/users/{user}",
}  # fmt: skip
#: How links begin. The documentation is a text of the project, and has links between its pages and to others.
OWN = ("/", "#")
OF_DOCUMENTATION = re.compile(r"https://|[\w./-]+(#|$)")


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, str] = {}
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name: value or "" for name, value in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "hx-get")]
        assert tag != "script" or "src" in dict(attrs)


async def seeded(c: Console) -> tuple[User, Browser, dict[str, str]]:
    """An operator who is an owner of acme, their browser, and objects by parameter: all with texts of an attacker."""
    people, store = await c.services.people(), c.services.store
    user = await c.user("o'evil@example.com", role="operator", password=PASSWORD, acme="owner")
    await people.users.edit(ROOT, user.id, {"name": HOSTILE})
    session = await people.sign_in.with_password(user.email, PASSWORD, Client("127.0.0.1", HOSTILE))
    assert isinstance(session, NewSession)
    key = await store.keys.create("acme", name=HOSTILE, user=user.id, models=[HOSTILE])
    await store.account_admin.credit(ROOT, "acme", 5, note=HOSTILE)
    account = await history(c)
    account.line(ago(), "credit", 5_000, note=HOSTILE)
    names = dict.fromkeys(("model", "provider", "outcome", "endpoint", "served_model", "service_tier"), HOSTILE)
    request_id = account.call(
        ago(), 1_000, key=key.id, user=user.id, usage=Usage(in_text=1), tags={"team": HOSTILE}, **names
    )
    account.flush()
    event = CircuitEvent("w", "fake", 0, cause=HOSTILE, seconds=60.0, at=time.time())
    await store.store.link(HASH).call("HSET", HASH, event.field, msgspec.json.encode(event))
    c.workers.calls["req_1"] = RunningCall(
        1, "req_1", "acme", key.id, HOSTILE, HOSTILE, HOSTILE, True, 1.0, 5, 500, 1000
    )
    browser = await c.browser()
    browser.use_session(session)
    return await people.users.show(ROOT, user.id), browser, {"key": key.id, "request_id": request_id, "user": user.id}


def assert_harmless(shown: Shown, where: str) -> None:
    """The text is text, and the headers forbid scripts and foreign content."""
    assert "default-src 'self'" in shown.headers["Content-Security-Policy"], where
    assert shown.headers["X-Content-Type-Options"] == "nosniff" and shown.headers["Cache-Control"] == "no-store", where
    if not shown.headers.get("Content-Type", "").startswith("text/html"):
        return  # the browser makes no page of it
    is_documentation = where.removeprefix("GET ").startswith("/docs/")
    seen = Seen(shown.html)
    assert TAG not in seen.tags and "style" not in seen.tags, where
    assert not [name for name in seen.attributes if name.startswith("on") or name == "style"], where
    links = [link for link in seen.links if not link.startswith(OWN)]
    assert not [link for link in links if not (is_documentation and OF_DOCUMENTATION.match(link))], where
    assert EVALUATED not in shown.html, where


@pytest.mark.holds("console.md#security-1", "security.md#the-console-1")
async def test_hostile_text_is_text_on_every_page(console) -> None:
    async with console(models=MODELS, public_prices=True) as c:
        user, browser, objects = await seeded(c)
        samples, showing = Samples(c), set()
        for route in (route for route in ROUTES if route.method == "GET"):
            wanted = {name: objects[name] for name in route.parameters if name in objects}
            path = (await samples.of(route, user)).path
            if wanted:
                path = route.path.format(**{"account": "acme", **wanted})
            shown = await browser.ask("GET", path)
            assert shown.status < 500, route.path
            assert_harmless(shown, route.path)
            if TAG in shown.html:
                showing.add(route.path)
        assert showing >= SHOWING, SHOWING - showing


@pytest.mark.holds("security.md#the-console-1")
async def test_hostile_input_comes_back_as_text(console) -> None:
    async with console(models=MODELS) as c:
        user, operator, _ = await seeded(c)
        stranger, samples = await c.browser(), Samples(c)
        tokens = {operator: await operator.token(), stranger: await stranger.token("/sign-in")}
        form = dict.fromkeys(FIELDS, HOSTILE)
        for route in (route for route in ROUTES if route.path not in ENDS_SESSION):
            browser = stranger if route.audience == "public" else operator
            sample = await samples.of(route, user)
            separator = "&" if "?" in sample.path else "?"
            shown = await (
                browser.ask("POST", sample.path, {**form, **sample.form, "xsrf": tokens[browser]})
                if route.writes
                else browser.ask("GET", f"{sample.path}{separator}{QUERY}")
            )
            assert shown.status < 500, (route.path, shown.text)
            assert browser is stranger or shown.status != 403, (route.path, shown.text)
            assert_harmless(shown, f"{route.method} {route.path}")
            if browser is stranger and "gateway-session" in browser.cookies:
                stranger = await c.browser()
                tokens[stranger] = await stranger.token("/sign-in")
        for path in ("/accounts/{}", "/{}", "/accounts/acme/usage/{}", "/site/users/{}", "/site/ledger/{}"):
            shown = await operator.ask("GET", path.format(quote(HOSTILE, safe="")))
            assert shown.status == 404, (path, shown.text)
            assert_harmless(shown, path)
