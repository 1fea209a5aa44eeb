"""Reports and exports take long: a person has few of them at a time, and everybody else's pages are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admin.audit_trail import AuditFilter
from gateway.console import report_form
from gateway.console.site import MOST_AT_ONCE
from gateway.people import personal_data
from gateway.reports import call_lists
from gateway.reports import reports as report_service
from gateway.web import request_limits
from tests.console.client import PASSWORD, ROOT, Browser, Shown
from tests.console.history import ago, calls
from tests.console.test_waits import leave
from tests.held import Held, held
from tests.polling import until

__all__ = ["held"]

REPORTS = "/accounts/acme/reports"
PATHS = (REPORTS, f"{REPORTS}.csv", f"{REPORTS}.json", "/site/reports", "/site/reports.csv", "/site/reports.json")
MOST, MOST_OF_SITE = request_limits.REPORTS.most, request_limits.EXPORTS.most_of_site or 0
EACH = 2  # places: one of the person, one of the site


def ask(browser: Browser, *paths: str) -> list[asyncio.Task[Shown]]:
    return [asyncio.create_task(browser.ask("GET", path)) for path in paths]


async def export(browser: Browser, path: str = "/profile/data", **form: str) -> Shown:
    return await browser.ask("POST", path, {**(await browser.get("/profile")).hidden(), **form})


@pytest.mark.holds("console.md#reports-3")
@pytest.mark.parametrize("path", PATHS)
async def test_one_person_has_few_reports_under_way_on_pages_and_as_files(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held.put(monkeypatch, report_service, "_read")
    async with console() as c:
        operator = await c.as_("root", role="operator")
        waiting = ask(operator, REPORTS, "/site/reports.json")
        try:
            await until(lambda: len(c.site.waits) == EACH * MOST)
            refused = await operator.ask("GET", path)
            assert refused.status == 429 and "You have two reports under way" in refused.text
            await leave(waiting.pop())
            await until(lambda: len(c.site.waits) == EACH * (MOST - 1))
            waiting += ask(operator, path)
            await until(lambda: len(c.site.waits) == EACH * MOST)
        finally:
            held.go.set()
        assert [shown.status for shown in await asyncio.gather(*waiting)] == [200, 200]
        assert len(c.site.waits) == 0


@pytest.mark.holds("console.md#security-5")
async def test_slow_reports_and_lists_of_calls_take_no_turns_of_other_pages(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, report_service, "_read")
    held.put(monkeypatch, call_lists, "read_calls")
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        waiting = ask(ann, REPORTS, *["/accounts/acme/usage.csv"] * MOST_AT_ONCE)
        try:
            await until(lambda: len(c.site.waits) == len(waiting) - 1 + EACH and held.calls == 1)
            async with asyncio.timeout(20.0):
                assert "Profile" in (await ann.get("/profile")).text
        finally:
            held.go.set()
        await asyncio.gather(*waiting)


@pytest.mark.holds("console.md#reports-3")
async def test_report_of_too_many_rows_says_what_to_do_on_the_page_and_as_a_file(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report_form.MOST_ROWS == 10_000
    monkeypatch.setattr(report_form, "MOST_ROWS", 2)
    async with console() as c:
        for model in ("m1", "m2", "m3"):
            await calls(c, ago(hours=1), model=model)
        operator, text = (
            await c.as_("root", role="operator"),
            "more than 2 rows; choose a shorter range or fewer groups",
        )
        for path in PATHS:
            refused = await operator.ask("GET", f"{path}?group_by=model")
            is_page = not path.endswith(("csv", "json"))
            assert (text in refused.text, refused.status) == ((False, 200) if is_page else (True, 400))
            by_day = await operator.ask("GET", f"{path}?group_by=model&group_by=day")
            assert text in by_day.text and by_day.status == (200 if is_page else 400)
            assert (await operator.ask("GET", f"{path}?group_by=endpoint")).status == 200
        assert 'name="group_by"' in (await operator.get(f"{REPORTS}?group_by=model")).html
        assert "All others" not in (await operator.get(f"{REPORTS}?group_by=endpoint")).html
        assert "All others" in (await operator.get(f"{REPORTS}?group_by=model")).html


@pytest.mark.holds("console.md#security-5")
async def test_exports_do_not_keep_others_from_reading_and_writing(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, personal_data, "_usage")
    async with console() as c:
        ann, ben = await c.as_("ann", acme="member"), await c.as_("ben", acme="member")
        exported = asyncio.create_task(export(ann))
        try:
            await until(lambda: held.calls == 1)
            async with asyncio.timeout(20.0):
                await ben.post("/profile/name", name="Benjamin")
                assert "Benjamin" in (await ben.get("/profile")).html
        finally:
            held.go.set()
        assert (await exported).status == 200
        trail = (await c.services.people()).audit_trail
        assert (await trail.list(ROOT, AuditFilter()))[0].action == "users.export"


@pytest.mark.holds("console.md#personal-data-1")
async def test_one_person_has_one_export_under_way_and_the_site_a_few(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, personal_data, "_usage")
    async with console() as c:
        user = await c.user("root@example.com", role="operator", password=PASSWORD)
        other = f"/site/users/{(await c.user('other@example.com')).id}/export"
        root, *rest = [await c.signed_in(user), *[await c.as_(f"p{number}") for number in range(MOST_OF_SITE)]]
        waiting = [asyncio.create_task(export(root, other, current_password=PASSWORD))]
        try:
            await until(lambda: held.calls == 1)
            async with asyncio.timeout(20.0):
                for path in ("/profile/data", other):
                    refused = await export(root, path, current_password=PASSWORD)
                    assert refused.status == 429 and "You have an export of personal data under way" in refused.text
                waiting += [asyncio.create_task(export(one)) for one in rest[1:]]
                await until(lambda: len(c.site.waits) == EACH * MOST_OF_SITE)
                refused = await export(rest[0])
                assert refused.status == 429 and "Others have exports of personal data under way" in refused.text
        finally:
            held.go.set()
        assert {shown.status for shown in await asyncio.gather(*waiting)} == {200}
        assert len(c.site.waits) == 0 and (await export(rest[0])).status == 200
