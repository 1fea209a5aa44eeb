"""The pages about models that providers list."""

from __future__ import annotations

from tests.console.conftest import OpenConsole
from tests.discovery.shared_lists import MODELS, found_in


async def test_pages_show_what_is_served_and_why_the_rest_is_not(console: OpenConsole) -> None:
    async with console(models=MODELS) as c:
        c.services.use_models(found_in(c.services.settings))
        operator = await c.as_("root", role="operator", acme="owner")
        page = await operator.get("/site/models")
        assert "1 of 4 models served" in page.text
        assert "router/acme/large" in page.text
        listed = await operator.get("/site/models/discovered")
        assert "the list has no price for it" in listed.text
        assert "pattern of yours has to say free = true" in listed.text
        assert "alert(1)" not in listed.html
        assert "acme/unpriced" not in (await operator.get("/site/models/discovered?state=served")).text
        assert "No model fits" in (await operator.get("/site/models/discovered?q=nothing")).text
        prices = await operator.get("/accounts/acme/prices")
        assert "router/acme/large" in prices.text
        configuration = await operator.get("/site/configuration")
        assert "router/*" in configuration.text
        assert "acme/large" not in configuration.text


async def test_without_discovery_the_page_says_how_to_begin(console: OpenConsole) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        assert (
            "No provider of the configuration has discover = true"
            in (await operator.get("/site/models/discovered")).text
        )
        assert "Its own list" not in (await operator.get("/site/models")).text
