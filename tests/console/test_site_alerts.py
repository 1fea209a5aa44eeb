"""What needs action is on every page of operators and viewers, can be hidden for a time, and has its runbook."""

from __future__ import annotations

import re

import pytest

from gateway.admin.machine_state import MachineState
from gateway.admin.machines import Machine, announce
from tests.console.client import Console
from tests.console.conftest import OpenConsole

TEXT = "The store refused 1 settlement: calls are not charged."
BAD = MachineState(reports=True, workers=2, workers_wanted=2, refused_settlements=1)
WORST = MachineState(
    reports=True,
    workers=1,
    workers_wanted=2,
    refused_settlements=1,
    importer_blocked=1,
    below_floor=1,
    reload_problem="x",
)


async def look(c: Console, state: MachineState) -> None:
    """The machine has this state, and the console has looked."""
    await announce(c.services.store.store, Machine("1", "one:8080", "aaa", "1.0", state=state))
    await c.services.attention.refresh()


@pytest.mark.holds("console.md#alerts-1")
async def test_banner_is_on_every_page_of_operators_and_viewers_and_of_nobody_else(console: OpenConsole) -> None:
    async with console() as c:
        await look(c, BAD)
        operator = await c.as_("root", role="operator", acme="owner")
        viewer, owner = await c.as_("eva", role="viewer"), await c.as_("ann", acme="owner")
        for page in ("/site", "/site/models", "/accounts/acme", "/profile", "/site/alerts"):
            assert TEXT in (await operator.get(page)).text, page
        shown = await viewer.get("/site/calls")
        assert TEXT in shown.text and "Hide for" not in shown.text
        for page in ("/accounts/acme", "/profile"):
            assert TEXT not in (await owner.get(page)).text
        stranger = await c.browser()
        assert TEXT not in (await stranger.get("/sign-in")).text


async def test_each_finding_leads_to_its_page_and_to_a_section_of_the_runbook(console: OpenConsole) -> None:
    async with console() as c:
        await look(c, BAD)
        operator = await c.as_("root", role="operator")
        html = (await operator.get("/profile")).html
        page, section = re.findall(r'class="links"><a href="([^"]+)".*?href="/docs/runbook#([^"]+)"', html)[0]
        assert (page, section) == ("/site", "gatewaysettlementsrefused")
        runbook = (await operator.get("/docs/runbook")).html
        assert f'<h3 id="{section}"' in runbook and "gateway refused list" in runbook


@pytest.mark.holds("console.md#alerts-2")
async def test_finding_is_hidden_from_the_operator_who_hides_it_and_the_page_alerts_still_has_it(
    console: OpenConsole,
) -> None:
    async with console() as c:
        await look(c, BAD)
        operator, other = await c.as_("root", role="operator"), await c.as_("rita", role="operator")
        done = await operator.post("/site/alerts/hide", id="refused:one:8080", hours="8", back="/site/models")
        assert done.location == "/site/models"
        assert "hidden from you for 8 hours" in (await operator.get("/site/models")).text
        assert TEXT not in (await operator.get("/site/models")).text
        assert TEXT in (await other.get("/site/models")).text
        shown = (await operator.get("/site/alerts")).text
        assert f"{TEXT} hidden from you" in shown and "began" in shown


async def test_hiding_needs_a_known_alert_and_a_known_time_and_leads_to_no_other_site(console: OpenConsole) -> None:
    async with console() as c:
        await look(c, BAD)
        operator = await c.as_("root", role="operator")
        assert "has ended already" in (await operator.post("/site/alerts/hide", 404, id="x", hours="8")).text
        refused = await operator.post("/site/alerts/hide", 400, id="refused:one:8080", hours="9999")
        assert "Choose one of" in refused.text
        done = await operator.post("/site/alerts/hide", id="refused:one:8080", hours="1", back="https://evil.example/")
        assert done.location == "/"


async def test_banner_has_three_findings_and_the_number_of_the_others(console: OpenConsole) -> None:
    async with console() as c:
        await look(c, WORST)
        operator = await c.as_("root", role="operator")
        shown = await operator.get("/profile")
        assert shown.html.count('class="links"') == 3 and "more alert" in shown.text
        assert "owes more than the credit line" in (await operator.get("/site/alerts")).text


async def test_page_says_that_nothing_needs_a_hand(console: OpenConsole) -> None:
    async with console() as c:
        shown = (await (await c.as_("eva", role="viewer")).get("/site/alerts")).text
        assert "no alert now" in shown and "No alert began or ended lately" in shown
