"""The pages of prices: the same figures as `gateway models --json`."""

from __future__ import annotations

import re

from gateway.admin.models import model_form
from gateway.admin.price_list import price_terms
from gateway.billing.price_terms import OwnPrice
from gateway.console.elements import amount_text
from tests.console.client import ROOT

MODELS = """
[models.a-cheap]
provider = "fake"
price = { input = 0.000007, output = 2, currency = "USD" }

[models.b-rich]
provider = "fake"
aliases = ["best"]
context_window = 200_000

[models.b-rich.price]
input = 1.25
cached_input = 0.125
output = 10
audio_input = 32
per_request = 0.01
currency = "USD"
tiers = [{ above_input_tokens = 100_000, input = 2.5 }]

[models.c-vip]
provider = "fake"
groups = ["vip"]
price = { input = 9, output = 9, currency = "USD" }

[models.d-image]
provider = "fake"
endpoints = ["images"]
price = { per_image = { "1024x1024" = { high = 0.04 } } }

[groups.vip]
price_factor = 0.9
"""


def rows(html: str) -> dict[str, str]:
    """The text of each model's row."""
    found = re.findall(r"<tr>\s*<td class=\"wrap\"><strong>([^<]+)</strong>(.*?)</tr>", html, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", " ", rest).split()) for name, rest in found}


async def test_prices_are_those_of_the_command_for_accounts_of_two_groups(console) -> None:
    async with console(models=MODELS) as c:
        await c.services.store.accounts.move("other", "vip")
        own = OwnPrice(amounts=(("input", 500_000_000),))
        await c.services.store.account_prices.set(ROOT, "acme", "b-rich", own)
        await c.services.store.accounts.allow("acme", ["c-vip"])
        await c.services.store.accounts.deny("acme", ["a-cheap"])
        for account, names in (("acme", ["b-rich", "c-vip", "d-image"]), ("other", ["c-vip"])):
            owner = await c.as_(f"owner-{account}", **{account: "owner"})
            shown = rows((await owner.get(f"/accounts/{account}/prices")).html)
            assert list(shown) == names
            terms = price_terms(c.services.settings, await c.services.store.accounts.show(account))
            for name in names:
                price = model_form(name, c.services.settings.models[name], terms.of(name))["price"]
                amounts = [value for key, value in price.items() if isinstance(value, str) and key != "currency"]
                assert all(amount_text(amount) in shown[name] for amount in amounts), name
        assert (
            "own price" in rows((await (await c.as_("x", acme="member")).get("/accounts/acme/prices")).html)["b-rich"]
        )


async def test_prices_are_searched_filtered_and_sorted(console) -> None:
    async with console(models=MODELS) as c:
        ann = await c.as_("ann", acme="member")
        page = "/accounts/acme/prices"
        assert list(rows((await ann.get(f"{page}?q=BEST")).html)) == ["b-rich"]
        assert list(rows((await ann.get(f"{page}?endpoint=images")).html)) == ["d-image"]
        assert list(rows((await ann.get(f"{page}?sort=input&order=desc")).html)) == ["b-rich", "a-cheap", "d-image"]
        assert list(rows((await ann.get(f"{page}?sort=output")).html)) == ["a-cheap", "b-rich", "d-image"]
        assert "No model fits" in (await ann.get(f"{page}?q=nothing")).text


async def test_price_list_is_public_only_if_the_operator_says_so(console) -> None:
    async with console(models=MODELS) as c:
        stranger = await c.browser()
        assert (await stranger.ask("GET", "/prices")).location == "/sign-in?next=%2Fprices"
        assert "Price list" not in (await stranger.get("/sign-in")).text
    async with console(models=MODELS, public_prices=True) as c:
        own = OwnPrice(amounts=(("input", 123_456_789),))
        await c.services.store.account_prices.set(ROOT, "acme", "b-rich", own)
        page = await (await c.browser()).get("/prices")
        assert list(rows(page.html)) == ["a-cheap", "b-rich", "d-image"] and "0.000007" in page.text
        assert "0.123456789" not in page.html and "acme" not in page.html
