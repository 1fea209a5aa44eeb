"""The pages of prices: the same figures as `gateway models --json`."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from pathlib import Path
from typing import Any

from gateway.billing.price_terms import OwnPrice
from gateway.console.elements import amount_text
from tests.cli.conftest import Terminal
from tests.console.client import ROOT

HEAD = """
[store]
url = "unix://{store}"
data_dir = "{folder}"

[providers.fake]
plugin = "fake"
"""

MODELS = """
[models.a-cheap]
provider = "fake"
price = { input = 0.000007, output = 2, currency = "USD" }

[models.b-rich]
provider = "fake"
groups = ["default", "vip"]
aliases = ["best"]
context_window = 200_000

[[models.b-rich.price]]
input = 1.25
cached_input = 0.125
output = 10
audio_input = 32
per_request = 0.01
currency = "USD"
effective_from = "2026-01-01"
tiers = [{ above_input_tokens = 100_000, input = 2.5 }]
service_tier_multiplier = { flex = 0.5 }

[[models.b-rich.price]]
input = 1.5
output = 12
per_request = 0.02
currency = "USD"
effective_from = "2999-01-01"
tiers = [{ above_input_tokens = 100_000, input = 3, output = 20 }]

[models.c-vip]
provider = "fake"
groups = ["vip"]
price = { input = 9, output = 9, currency = "USD" }

[models.d-image]
provider = "fake"
endpoints = ["images"]
unsupported_params = ["seed", "stop"]
reasoning = true
shutdown_date = 2999-12-31
price = { per_image = { "1024x1024" = { high = 0.04 }, "*" = { low = 0.01, "*" = 0.03 } } }

[groups.vip]
price_factor = 0.9
"""


TOKENS = "per 1,000,000 tokens"
MAIN = {"input": "input", "cached_input": "cached input", "output": "output"}
OTHERS = {"audio_input": ("audio input", TOKENS), "per_request": ("request", "each")}
CAPABILITIES = {"d-image": ["reasoning", "ignores seed, stop"]}
WINDOWS = {"b-rich": ["200,000"]}


def rows(html: str) -> dict[str, str]:
    """The text of each model's row."""
    found = re.findall(r"<tr>\s*<td class=\"wrap\"><strong>([^<]+)</strong>(.*?)</tr>", html, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", " ", rest).split()) for name, rest in found}


async def test_every_figure_is_that_of_the_command_for_accounts_of_two_groups(
    console, valkey: Path, tmp_path: Path
) -> None:
    async with console(models=MODELS, public_prices=True) as c:
        config = tmp_path / "gateway.toml"
        config.write_text(HEAD.format(store=valkey, folder=tmp_path / "var") + MODELS)
        terminal, store = Terminal(config), c.services.store
        await store.accounts.move("other", "vip")  # pays 0.9 of the list
        await store.account_prices.set(ROOT, "acme", "b-rich", OwnPrice(amounts=(("input", 123_456_789),)))
        await store.accounts.allow("acme", ["c-vip"])
        await store.accounts.deny("acme", ["a-cheap"])
        listed = {model["id"]: model for model in await asyncio.to_thread(terminal.json, "models")}
        for account, names in (
            ("acme", ["b-rich", "c-vip", "d-image"]),
            ("other", ["b-rich", "c-vip"]),
        ):
            paid = {m["id"]: m for m in await asyncio.to_thread(terminal.json, "models", "--account", account)}
            ann = await c.as_(f"ann-{account}", **{account: "member"})
            shown = cells((await ann.get(f"/accounts/{account}/prices")).html)
            assert shown == {name: expected(paid[name], listed[name]["price"]) for name in names}
            assert paid["b-rich"]["price"] != listed["b-rich"]["price"]  # there is something to tell apart
        public = await (await c.browser()).get("/prices")
        names = ["a-cheap", "b-rich", "d-image"]
        assert cells(public.html) == {name: expected(listed[name], listed[name]["price"]) for name in names}
        assert "own price" not in public.text and "0.123456789" not in public.html and "acme" not in public.html


def cells(html: str) -> dict[str, list[list[str]]]:
    """The lines of each cell of each model's row, from the prices on."""
    found = {}
    for row in re.findall(r"<tr>\s*<td class=\"wrap\"><strong>.*?</tr>", html, re.DOTALL):
        first, *rest = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        found[lines(first)[0]] = [lines(first)[1:], *(lines(cell) for cell in rest)]
    return found


def lines(cell: str) -> list[str]:
    """The lines of a cell, or of a text, without commas."""
    texts = (" ".join(unescape(re.sub(r"<[^>]+>", " ", line)).split()) for line in cell.split("<br>"))
    return [text.replace(",", "") for text in texts if text]


def expected(model: dict[str, Any], listed: dict[str, Any]) -> list[list[str]]:
    """What the row of a model says, from the document of the command."""
    price = model["price"]
    about = [", ".join(model["aliases"])] if model["aliases"] else []
    if price != listed:
        factor = model["price_factor"]
        about.append("own price" + (f" list × {factor}" if factor != "1" else ""))
    about += [f"since {price['effective_from']}"] if "effective_from" in price else []
    about += ["until 2999-12-31"] if model["id"] == "d-image" else []
    columns = []
    for name in ("input", "cached_input", "output"):
        text = (
            [amount_text(price[name])]
            if name in price
            else ["as input" if name == "cached_input" and "input" in price else "–"]
        )
        if name in price and price[name] != listed.get(name):
            text.append(f"list {amount_text(listed[name])}")
        columns.append(text)
    window = WINDOWS.get(model["id"], ["–"])
    others = [f"tier {name} × {factor}" for name, factor in price.get("service_tier_multiplier", {}).items()]
    for later in model["later_prices"]:
        changed = [f"{text} {amount_text(later[name])}" for name, text in MAIN.items() if name in later]
        others.append(" ".join([f"from {later['effective_from']}", *changed, *other_lines(later)]))
    can = [", ".join(model["endpoints"]), *CAPABILITIES.get(model["id"], [])]
    cells = [about, *columns, window, [*other_lines(price), *others], can]
    return [lines("<br>".join(cell)) for cell in cells]


def other_lines(price: dict[str, Any]) -> list[str]:
    found = [f"{text} {amount_text(price[name])} {unit}" for name, (text, unit) in OTHERS.items() if name in price]
    for size, amounts in price.get("per_image", {}).items():
        names = {quality: "others" if quality == "*" else quality for quality in amounts}
        qualities = " ".join(f"{names[quality]} {amount_text(amount)}" for quality, amount in amounts.items())
        found.append(f"image {'other sizes' if size == '*' else size} {qualities} each")
    for tier in price.get("tiers", []):
        above = f"above {tier['above_input_tokens']:,} input tokens: "
        found += [f"{above}{text} {amount_text(tier[name])} {TOKENS}" for name, text in MAIN.items() if name in tier]
    return found


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
