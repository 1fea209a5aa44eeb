"""The pages of batches: who sees, cancels and reads which, their progress, and pages of a long list."""

from __future__ import annotations

import re
import time

import pytest
from msgspec import structs

from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.batches.batch import BatchError
from gateway.batches.records import BatchRecords
from gateway.billing.usage import Usage
from tests.batches.made import made_batch, made_file
from tests.console.client import ROOT, Console
from tests.console.history import ago, calls

IDS = re.compile(r'<a id="(batch_[0-9a-f]{32})"')
OWN = "/accounts/acme/batches"
CONTENT = b'{"custom_id":"a"}\n' * 30_000


@pytest.mark.holds("console.md#batches-1")
async def test_members_see_their_own_batches_and_owners_all_of_the_account(console) -> None:
    async with console() as c:
        store, ann = c.services.store.store, await c.user("ann@example.com", acme="member")
        own, service = await made_batch(store, "acme", user=ann.id), await made_batch(store, "acme")
        other = await made_batch(store, "other")
        member, owner = await c.signed_in(ann), await c.as_("bob", acme="owner")
        operator = await c.as_("root", role="operator")
        assert IDS.findall((await member.get(OWN)).html) == [own.id]
        assert set(IDS.findall((await owner.get(OWN)).html)) == {own.id, service.id}
        assert set(IDS.findall((await operator.get("/site/batches")).html)) == {own.id, service.id, other.id}
        for browser, batch, status in (
            (member, own, 200), (member, service, 404), (owner, service, 200), (owner, other, 404),
            (operator, service, 200),
        ):  # fmt: skip
            await browser.get(f"{OWN}/{batch.id}", status)


@pytest.mark.holds("console.md#batches-2")
async def test_page_shows_progress_cost_times_and_errors(console) -> None:
    async with console() as c:
        store, owner = c.services.store.store, await c.as_("bob", acme="owner")
        runs = await made_batch(
            store, "acme", status="in_progress", total=2000, completed=1200, failed=34, cost=1_500_000_007,
            held=20_000_000, max_cost=5_000_000_000, metadata={"night": "<b>1</b>"},
        )  # fmt: skip
        shown = await owner.get(f"{OWN}/{runs.id}")
        assert "1,234 of 2,000 lines have a result: 1,200 completed, 34 failed." in shown.text
        assert "So far 1.500000007 USD Held 0.02 USD At most 5.00 USD" in shown.text
        assert "night=<b>1</b>" in shown.text
        assert 'hx-trigger="every 5s"' in shown.html
        wrong = BatchError("invalid_json_line", "The line is not a valid JSON object.", line=3)
        failed = await made_batch(store, "acme", status="failed", errors=(wrong,), failed_at=1, held=7)
        shown = await owner.get(f"{OWN}/{failed.id}")
        assert "3 invalid_json_line The line is not a valid JSON object." in shown.text
        assert "Held 0.00 USD" in shown.text
        assert "Cancel" not in shown.text and "hx-trigger" not in shown.html


@pytest.mark.holds("console.md#batches-3")
async def test_owner_and_maker_cancel_a_batch_once_with_one_event(console) -> None:
    async with console() as c:
        store, ann = c.services.store.store, await c.user("ann@example.com", acme="member")
        batch = await made_batch(store, "acme", user=ann.id)
        member, viewer = await c.signed_in(ann), await c.as_("eve", role="viewer")
        path = f"{OWN}/{batch.id}"
        assert "Cancel" not in (await viewer.get(path)).text
        assert (await viewer.ask("POST", f"{path}/cancel", {"xsrf": await viewer.token()})).status == 403
        assert (await member.ask("POST", f"{path}/cancel", {})).status == 403  # without a token
        assert (await BatchRecords(store).find("acme", batch.id))[1] is None
        await member.post(f"{path}/cancel", page=path)
        shown = await member.get(path)
        assert "cancelling" in shown.text and f'action="{path}/cancel"' not in shown.html
        owner = await c.as_("bob", acme="owner")
        assert (await owner.ask("POST", f"{path}/cancel", {"xsrf": await owner.token()})).status == 303
        assert await cancellations(c) == [(f"user:{ann.id}", f"batch:{batch.id}")]
        ended = await made_batch(store, "acme", status="completed")
        refused = await owner.ask("POST", f"{OWN}/{ended.id}/cancel", {"xsrf": await owner.token()})
        assert refused.status == 400 and "has ended already" in refused.text


async def cancellations(c: Console) -> list[tuple[str, str]]:
    """Actor and object of each event of a cancellation."""
    trail = (await c.services.people()).audit_trail
    events = await newest_events(ROOT, trail, c.services.store.outbox, AuditFilter(), limit=100)
    forms = [event.json_form() for event in events if event.action == "batches.cancel"]
    return [(form["actor"], form["object"]) for form in forms]


@pytest.mark.holds("console.md#batches-4")
async def test_files_are_for_owners_and_the_maker_and_are_sent_whole(console) -> None:
    async with console() as c:
        services, ann = c.services, await c.user("ann@example.com", acme="member")
        store, folder = services.store.store, services.settings.files_dir
        results = await made_file(store, folder, "acme", CONTENT, user=ann.id)
        batch = await made_batch(store, "acme", user=ann.id, status="completed", output_file_id=results)
        path = f"{OWN}/{batch.id}"
        member, owner = await c.signed_in(ann), await c.as_("bob", acme="owner")
        for browser in (member, owner):
            shown = await browser.get(path)
            assert f'href="{path}/files/output"' in shown.html and "files/input" not in shown.html
            answer = await browser.get(f"{path}/files/output")
            assert answer.body == CONTENT
            assert answer.headers["Content-Disposition"] == f'attachment; filename="{batch.id}_output.jsonl"'
            for part in ("input", "errors", "nothing"):
                assert (await browser.ask("GET", f"{path}/files/{part}")).status == 404
        for role in ("operator", "viewer"):
            browser = await c.as_(role, role=role)
            assert "files/output" not in (await browser.get(path)).html
            assert (await browser.ask("GET", f"{path}/files/output")).status == 403
        other = await c.as_("carl", acme="member")
        assert (await other.ask("GET", f"{path}/files/output")).status == 404


@pytest.mark.holds("operations/batches.md#batches-3")
async def test_page_leads_to_the_calls_of_the_batch(console) -> None:
    async with console() as c:
        owner = await c.as_("bob", acme="owner")
        batch = await made_batch(c.services.store.store, "acme", created_at=int(time.time()) - 3600)
        [own] = await calls(c, ago(), cost=7, usage=Usage(in_text=1), session=batch.id)
        [other] = await calls(c, ago(), cost=7, usage=Usage(in_text=1))
        link = (await owner.get(f"{OWN}/{batch.id}")).found(r'href="([^"]+)">Calls of the batch')
        shown = (await owner.get(link.removeprefix("/gw"))).html
        assert own in shown and other not in shown


@pytest.mark.parametrize("path", [OWN, "/site/batches"])
async def test_long_list_has_pages_that_a_deleted_batch_does_not_move(console, path: str) -> None:
    async with console() as c:
        store, operator = c.services.store.store, await c.as_("root", role="operator")
        made = [(await made_batch(store, "acme")).id for _ in range(120)]
        pages, shown = list[list[str]](), await operator.get(path)
        while True:
            pages.append(IDS.findall(shown.html))
            older = re.search(r'href="([^"]+before=[^"]+)"', shown.html)
            if older is None:
                break
            await store.client.hdel("{a:acme}:bt", pages[-1][-1])
            shown = await operator.get(older[1])
        assert [len(page) for page in pages] == [50, 50, 20]
        assert sorted(id_ for page in pages for id_ in page) == sorted(made)


async def test_gateway_without_batches_has_no_pages_of_them(console) -> None:
    async with console() as c:
        browser = await c.as_("bob", acme="owner")
        assert "Batches" in (await browser.get("/accounts/acme")).text
        settings = c.services.settings
        off = structs.replace(settings.batches, enabled=False)
        c.services.use(structs.replace(settings, batches=off))
        assert "Batches" not in (await browser.get("/accounts/acme")).text
        await browser.get(OWN, 404)
