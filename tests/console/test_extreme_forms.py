"""Every field that a form of the console has takes any text, on SQLite and on PostgreSQL: no request fails."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import pytest

from gateway.console.table import ROUTES
from gateway.console.visit import Visit
from gateway.database.address import DatabaseAddress
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, Browser
from tests.console.samples import Samples
from tests.console.test_hostile_text import FIELDS
from tests.extreme_texts import divided
from tests.strange_texts import MARKS, RAW

__all__ = ["database_address", "database_url"]

#: They end the session, or wait for providers.
LEFT_OUT = {"/sign-out", "/profile/password", "/site/connect", "/site/models/probe"}
WRITING = [route for route in ROUTES if route.writes and route.path not in LEFT_OUT]
HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
KINDS = ("accounts", "keys", "users")
quoted = cache(quote_from_bytes)  # of a quarter of a mebibyte it takes longer than the request


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The fields that were read of forms."""
    found: set[str] = set()
    for method in ("text", "raw", "texts"):
        own = getattr(Visit, method)

        def read(visit: Visit, name: str, own: Any = own) -> Any:
            found.add(name)
            return own(visit, name)

        monkeypatch.setattr(Visit, method, read)
    return found


def form_with(fields: Mapping[str, str], name: str, text: bytes) -> bytes:
    """The form as bytes, with that text in one field."""
    rest = {other: value for other, value in fields.items() if other != name}
    return f"{urlencode(rest)}&{name}={quoted(text)}".encode()


async def fill(c: Any, names: set[str], texts: Mapping[str, bytes], database: DatabaseAddress | None = None) -> int:
    """Send one text in turn in each field of each form; how many requests were sent.

    With a database, each text that it has of both kinds.
    """
    user = await c.user("root@example.com", role="operator", password=PASSWORD, acme="owner")
    samples, operator, sent, at = Samples(c), await c.signed_in(user), 0, 0
    for route in WRITING:
        browser: Browser = await c.browser() if route.audience == "public" else operator
        xsrf = await browser.token("/sign-in" if route.audience == "public" else "")
        sample = await samples.of(route, user)
        names.clear()
        await browser.ask("POST", sample.path, {**dict.fromkeys(FIELDS, "1"), **sample.form, "xsrf": xsrf})
        read = sorted(names - {"xsrf"})
        for name in read:
            at += 1
            path = (await samples.of(route, user)).path if at % 10 == 0 else sample.path
            all_texts = [*texts.values()]
            for text in divided(all_texts, database, at) if database is not None else [all_texts[at % len(texts)]]:
                sent += 1
                content = form_with({**sample.form, "current_password": PASSWORD, "xsrf": xsrf}, name, text)
                shown = await browser.ask("POST", path, raw=content, headers=HEADERS)
                assert shown.status < 500, (route.path, name, content[:500], shown.text)
    assert (await operator.get("/site/users")).status == 200
    assert (await operator.get("/accounts/acme/keys")).status == 200
    return sent


@pytest.mark.holds("console.md#security-9")
@pytest.mark.parametrize("database_address", ["sqlite"], indirect=True)  # the next test has PostgreSQL
async def test_strange_text_in_any_field_is_no_failure(console: Any, names: set[str]) -> None:
    async with console() as c:
        assert await fill(c, names, RAW) > 100


@pytest.mark.slow
async def test_each_strange_text_in_any_field_is_no_failure(
    console: Any, names: set[str], database_address: DatabaseAddress
) -> None:
    async with console() as c:
        sent = await fill(c, names, {**RAW, "marks": MARKS[1:-1][: 1 << 18]}, database_address)
        assert sent > (300 if database_address.file is not None else 150)


@pytest.mark.parametrize("kind", KINDS)
async def test_strange_text_in_an_import_is_no_failure(console: Any, kind: str) -> None:
    heads = {"accounts": "name,group,credit,operation", "keys": "account,name,models", "users": "email,name,account"}
    rows = {"accounts": "TEXT,default,1,TEXT", "keys": "acme,TEXT,TEXT", "users": "TEXT@example.com,TEXT,acme"}
    async with console() as c:
        browser = await c.as_("root", role="operator", password=PASSWORD)
        xsrf = await browser.token("/site/import")
        for text in RAW.values():
            for table in (f"{heads[kind]}\n{rows[kind]}\n", f"{heads[kind]},TEXT\n{rows[kind]},1\n"):
                content = table.encode().replace(b"TEXT", text)
                for path in ("/site/import", "/site/import/confirm"):
                    fields = {"xsrf": xsrf, "kind": kind, "current_password": PASSWORD}
                    form = form_with(fields, "content", content)
                    shown = await browser.ask("POST", path, raw=form, headers=HEADERS)
                    assert shown.status < 500, (path, content, shown.text)
