"""A configuration with many models: each page shows the first ones, leads to the others, and takes their names."""

from __future__ import annotations

import re

from gateway.console.choices import MOST_MODELS
from gateway.console.numbered_pages import numbered_page
from gateway.console.replies import PAGE
from tests.console.client import Browser, Shown
from tests.console.conftest import OpenConsole

MANY = 130
LAST = f"m{MANY - 1:03}"
MODEL = """
[models.{name}]
provider = "fake"
aliases = ["also-{name}"]
price = {{ input = {amount}, output = 2.5 }}
"""
MODELS = "[groups.vip]\n" + "".join(MODEL.format(name=f"m{n:03}", amount=MANY - n) for n in range(MANY))
NEXT = r'<a class="button" href="([^"]*page=\d+[^"]*)">Next</a>'
NAME = re.compile(r"\bm\d\d\d\b")


def names(page: Shown, pattern: str) -> list[str]:
    """The models in a part of the page, each once."""
    return list(dict.fromkeys(NAME.findall(page.found(pattern).replace("also-", ""))))


async def all_pages(browser: Browser, path: str, pattern: str) -> list[str]:
    """The models of a list, page by page."""
    page = await browser.get(path)
    found = names(page, pattern)
    while match := re.search(NEXT, page.html):
        page = await browser.get(match[1].replace("&amp;", "&"))
        found += names(page, pattern)
    return found


EVERY = [f"m{n:03}" for n in range(MANY)]
TABLE = r"<tbody>(.*?)</tbody>"
TEXT = r'(?s)id="rows">(.*?)</pre>'


def test_pages_are_numbered_from_one_and_the_last_one_is_shown_for_a_higher_number() -> None:
    rows = range(PAGE + 3)
    assert numbered_page(rows, "").extent == f"1–{PAGE} of {PAGE + 3}"
    assert [len(numbered_page(rows, number).rows) for number in ("1", "2", "9", "0", "-1", "x", "9" * 30)] == [
        PAGE,
        3,
        3,
        PAGE,
        PAGE,
        PAGE,
        PAGE,
    ]
    assert numbered_page(range(PAGE), "1").extent == "" and not numbered_page(range(PAGE), "1").has_more
    assert (numbered_page([], "").rows, numbered_page([], "").extent) == ([], "")


async def test_lists_of_models_have_pages_that_lead_to_all_of_them(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        operator = await c.as_("root", role="operator", acme="owner")
        for path in ("/accounts/acme/prices", "/site/models"):
            assert await all_pages(operator, path, TABLE) == EVERY, path
        assert await all_pages(operator, "/accounts/acme/prices?sort=input", TABLE) == EVERY[::-1]
        assert await all_pages(operator, "/site/configuration", TEXT) == EVERY
        assert len((await operator.get("/accounts/acme/prices")).body) < 60_000


async def test_lists_of_models_are_searched(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        operator = await c.as_("root", role="operator", acme="owner")
        assert names(await operator.get("/accounts/acme/prices?q=also-M12"), TABLE) == [
            f"m{n}" for n in range(120, 130)
        ]
        assert names(await operator.get(f"/site/models?q={LAST}"), TABLE) == [LAST]
        found = await operator.get("/site/configuration?q=m12")
        assert names(found, TEXT) == [f"m{n}" for n in range(120, 130)]
        assert "No model fits" in (await operator.get("/site/configuration?q=nothing")).text


async def test_key_gets_a_model_that_is_typed_and_its_form_shows_it(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        owner = await c.as_("owner", acme="owner")
        form = await owner.get("/accounts/acme/keys/new")
        offered = re.findall(r'name="models" value="([^"]+)"', form.html)
        assert offered == EVERY[:MOST_MODELS]
        typed = {"name": "k", "owner": "service", "models": "m001", "more_models": f"also-{LAST}\r\nm128\r\n"}
        refused = {**typed, "more_models": "m12x"}
        shown = await owner.post("/accounts/acme/keys/new", 400, page="/accounts/acme/keys/new", **refused)
        assert "no model 'm12x'" in shown.text
        await owner.post("/accounts/acme/keys/new", 200, page="/accounts/acme/keys/new", **typed)
        [key] = await c.services.store.keys.list("acme")
        assert key.models == ["m001", LAST, "m128"]
        marked = re.findall(
            r'name="models" value="([^"]+)" checked', (await owner.get(f"/accounts/acme/keys/{key.id}")).html
        )
        assert marked == ["m001", "m128", LAST]


async def test_account_gets_a_rule_and_a_price_for_a_model_that_is_typed(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        operator = await c.as_("root", role="operator")
        page = "/site/accounts/acme"
        await operator.post(f"{page}/models", page=page, more_models=LAST, rule="deny")
        assert LAST in (await c.services.store.accounts.show("acme")).denied
        assert f"{LAST} denied" in (await operator.get(page)).text
        assert f"Price of {LAST}" in (await operator.get(f"{page}/price?model={LAST}")).text
        assert f'value="{LAST}"' in (await operator.get(f"{page}/price?model={LAST}")).html


async def test_playground_offers_a_model_that_is_typed(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        member = await c.as_("member", acme="member")
        page = await member.get("/accounts/acme/playground")
        assert f'<option value="{LAST}"' not in page.html and "Another model" in page.text
        assert f'<option value="{LAST}"' in (await member.get(f"/accounts/acme/playground?model={LAST}")).html
        assert "no chat model of this name" in (await member.get("/accounts/acme/playground?model=m999")).text
