"""Models, configuration, calls, ledger, audit and audit trail for operators; members and statements for owners."""

from __future__ import annotations

import asyncio
import time
import tomllib
from decimal import Decimal

import msgspec
import pytest

from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.admin.machines import Machine, announce
from gateway.config.loader import parse
from gateway.database.tables import superseded_lines
from gateway.ids import Ids
from gateway.ledger.import_hints import DATABASE
from gateway.people.playground_keys import PlaygroundKeys
from gateway.routing.circuit_sync import HASH, CircuitEvent, read_circuit_events
from gateway.setup.effective_configuration import effective_configuration
from tests.console.client import PASSWORD, ROOT
from tests.console.history import ago, calls
from tests.console.sights import furnished


async def test_every_page_of_an_operator_and_an_owner_shows_what_is_there(console) -> None:
    async with console() as c:
        await furnished(c)
        c.workers.start("req_1", "acme")
        operator = await c.as_("root", role="operator", password=PASSWORD)
        expected = {
            "/site/models": ("fake-chat", "all 3 targets in use"),
            "/site/configuration": ('plugin = "fake"', "[models.tiny]"),
            "/site/calls?range=7d": ("fake-chat", "Older"),
            "/site/running": ("req_1", "Cancel"),
            "/site/ledger/acme": ("open", "25.00"),
            "/site/audit-trail": ("users.create", "cli:root"),
            "/site/connect": ("OPENAI_API_KEY",),
            "/accounts/acme/members": ("ann.owner@example.com", "Statements"),
            f"/accounts/acme/statements/{ago(hours=1)[:7]}": ("Opening balance", "nightly reports"),
            "/accounts/acme/playground": ("Only members",),
        }
        for path, texts in expected.items():
            shown = await operator.get(path)
            assert all(text in shown.text for text in texts), (path, shown.text)
            assert "Demo data" not in shown.text  # the mark of the demo
        shown = await operator.get("/site/models?q=FAKE-")
        assert "fake-chat fake 1 in use 0" not in shown.text and "tiny" not in shown.text


@pytest.mark.holds("operations/machines.md#several-machines-1")
async def test_operators_and_viewers_are_told_on_each_page_that_machines_differ(console) -> None:
    banner = "Machines run different configurations"
    async with console() as c:
        store, viewer, owner = (
            c.services.store.store,
            await c.as_("eva", role="viewer"),
            await c.as_("ann", acme="owner"),
        )
        await announce(store, Machine("1", "one:8080", "aaa", "1.0"))
        await c.services.attention.refresh()
        shown = await viewer.get("/site/configuration")
        assert banner not in shown.text and "one:8080 aaa" in shown.text
        await announce(store, Machine("2", "two:8080", "bbb", "1.0"))
        await c.services.attention.refresh()
        shown = await viewer.get("/site/configuration")
        assert banner in shown.text and "two:8080 bbb" in shown.text
        assert banner in (await viewer.get("/site/models")).text
        assert banner not in (await owner.get("/accounts/acme")).text


async def test_call_is_found_by_its_id_and_pages_have_every_call_once(console) -> None:
    async with console() as c:
        ids = await calls(c, *(ago(minutes=minute) for minute in range(120, 0, -1)), model="fake-chat")
        viewer = await c.as_("eva", role="viewer")
        found = await viewer.get(f"/site/calls?request_id={ids[3]}")
        assert ids[3] in found.html and ids[4] not in found.text and "Refund" not in found.text
        seen, path = list[str](), "/site/calls"
        while path:
            html = (await viewer.get(path)).html
            seen += [id_ for id_ in ids if f'/usage/{id_}"' in html]
            path = (
                html.partition('">Older')[0].rpartition('href="')[2].replace("&amp;", "&") if ">Older" in html else ""
            )
        assert sorted(seen) == sorted(ids)
        assert "No call fits" in (await viewer.get("/site/calls?model=none")).text


async def test_call_is_found_by_the_id_that_its_client_saw(console) -> None:
    async with console() as c:
        ids = Ids()
        first, other = ids.request_id(), ids.request_id()
        for request_id in (first, other):
            await calls(c, ago(minutes=3), request_id=request_id)
        shown = ids.completion_id(first)
        viewer = await c.as_("eva", role="viewer")
        found = (await viewer.get(f"/site/calls?request_id={shown}")).html
        assert f'/usage/{first}"' in found and other not in found
        assert first in (await viewer.get(f"/accounts/acme/usage/{shown}")).html
        c.workers.start(other, "acme")
        operator = await c.as_("root", role="operator")
        await operator.post(f"/site/running/{ids.completion_id(other)}/cancel")
        assert c.workers.calls == {}


async def test_running_call_is_cancelled_by_an_owner_of_its_account_alone(console) -> None:
    async with console() as c:
        c.workers.start("req_1", "other")
        owner = await c.as_("ann", acme="owner")
        await owner.post("/accounts/acme/running/req_1/cancel", 404)
        assert "req_1" in c.workers.calls
        operator = await c.as_("root", role="operator")
        await operator.post("/site/running/req_1/cancel")
        assert c.workers.calls == {}


async def test_running_calls_of_several_machines_name_them_to_operators_alone(console) -> None:
    async with console() as c:
        c.workers.start("req_1", "acme", "one:8080")
        c.workers.start("req_2", "acme", "two:8080")
        c.workers.silent_machines = 1
        viewer, owner = await c.as_("eva", role="viewer"), await c.as_("ann", acme="owner")
        assert "one:8080" not in (await viewer.get("/site/running")).text, "there is one machine"
        for number, name in enumerate(("one", "two")):
            await announce(c.services.store.store, Machine(str(number), f"{name}:8080", "aaa", "1.0"))
        await c.services.machines.refresh()
        shown = await viewer.get("/site/running")
        assert all(text in shown.text for text in ("one:8080", "two:8080", "1 machine does not answer"))
        shown = await owner.get("/accounts/acme/running")
        assert "req_2" in shown.text and "8080" not in shown.text and "1 machine does not answer" in shown.text


async def test_audit_of_all_accounts_is_shown_clean(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        shown = await operator.post("/site/audit", 200)
        assert "clean" in shown.text and "not clean" not in shown.text
        await operator.post("/site/audit", 404, account="nobody")


@pytest.mark.holds("operations/backup.md#older-store-1")
async def test_superseded_lines_are_named_booked_and_acknowledged(console) -> None:
    async with console() as c:
        database = await c.services.database()
        columns = {"account": "acme", "balance": 0, "uncollected": 0, "late": False, "meta": "", "hash": b"", "at": 0}
        with database.writing() as connection:
            for n in (1, 2):
                row = {"seq": n, "stream_id": f"{n}-0", "request_id": f"op-{n}", "kind": "topup", "amount": n * 10**9}
                connection.execute(superseded_lines.insert().values(**columns, **row, superseded_at=1))
        await c.services.store.store.link(DATABASE).call("SET", DATABASE, database.id)
        operator = await c.as_("root", role="operator", password=PASSWORD)
        shown = await operator.post("/site/audit", 200)
        assert "not clean" in shown.text and "2 lines of the ledger are lost in the store" in shown.text
        shown = await operator.get("/site/superseded")
        assert "op-1" in shown.text and "op-2" in shown.text
        before = (await c.services.store.accounts.show("acme")).balance
        for form in ({"line": "1"}, {"action": "book"}, {"line": "1", "action": "other"}):
            await operator.post("/site/superseded", 400, current_password=PASSWORD, **form)
        await operator.post("/site/superseded", 401, line="1", action="book", current_password="wrong")
        await operator.post("/site/superseded", line="1", action="book", current_password=PASSWORD)
        assert (await c.services.store.accounts.show("acme")).balance == before + 10**9
        await operator.post("/site/superseded", all="1", action="acknowledge", current_password=PASSWORD)
        assert "No line is open" in (await operator.get("/site/superseded")).text
        assert (await c.services.store.accounts.show("acme")).balance == before + 10**9


async def test_owner_sets_budget_role_and_threshold_and_members_of_others_are_not_found(console) -> None:
    async with console() as c:
        owner, bob = await c.as_("ann", acme="owner"), await c.user("bob@example.com", acme="member")
        eve = await c.user("eve@example.com", other="member")
        page, people = "/accounts/acme/members", await c.services.people()
        await owner.post(f"{page}/{bob.id}/budget", budget="5", every="month")
        assert "0.00 of 5.00 per month" in (await owner.get(page)).text
        await owner.post(f"{page}/{bob.id}/budget", budget="5", every="")
        budget = await people.member_budgets.show(ROOT, bob.id, "acme")
        assert (budget.budget, budget.every) == (5_000_000_000, None)
        await owner.post(f"{page}/{bob.id}/role", page=page, role="owner")
        for path in ("role", "budget", "remove"):
            await owner.post(f"{page}/{eve.id}/{path}", 404, role="owner", budget="1")
        await owner.post("/accounts/acme/notifications", balance_low="12.5")
        assert 'value="12.5"' in (await owner.get(page)).html
        shown = await owner.post(page, 200, email="new@example.com", role="member")
        assert "/invitation?token=" in shown.html
        await owner.post(f"{page}/{bob.id}/remove")
        assert (await people.users.show(ROOT, bob.id)).accounts == {}


async def test_configuration_is_shown_without_secrets_and_checked(console, monkeypatch) -> None:
    models = """
    [providers.vendor]
    plugin = "openai"
    api_key = "env:VENDOR_KEY"
    base_url = "https://user:hidden-word@vendor.example/v1"
    [models.one]
    provider = "vendor"
    free = true
    """
    monkeypatch.setenv("VENDOR_KEY", "the-secret-itself")
    async with console(models=models) as c:
        operator = await c.as_("root", role="operator")
        shown = await operator.get("/site/configuration")
        assert "env:VENDOR_KEY" in shown.text
        assert "the-secret-itself" not in shown.html and "hidden-word" not in shown.html


async def test_reload_asks_the_gateway_and_says_whether_it_has_taken_the_file(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        refused = await operator.post("/site/configuration/reload", 409)
        assert "no configuration file" in refused.text


async def test_playground_key_is_one_per_user_and_account_until_it_is_revoked(console) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="member", other="member")
        people, keys = await c.services.people(), c.services.store.keys
        actor, playground = ann.actor(""), people.playground_keys
        first = await playground.text(actor, "acme")
        again = PlaygroundKeys(people.pepper, keys, people.member_keys, c.services.store.key_service)
        assert first == await again.text(actor, "acme") != await playground.text(actor, "other")
        [key] = await keys.list("acme")
        await keys.revoke(key.id)
        assert await playground.text(actor, "acme") != first
        browser = await c.signed_in(ann)
        assert first not in (await browser.get("/accounts/acme/keys")).html


async def test_calls_that_are_the_first_at_the_same_time_share_one_key_of_the_playground(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        people = await c.services.people()
        actor, playground = user.actor(""), people.playground_keys
        assert len(set(await asyncio.gather(*(playground.text(actor, "acme") for _ in range(4))))) == 1
        [key] = await c.services.store.keys.list("acme")
        assert (key.name, key.state, key.user) == ("Playground", "active", user.id)
        events = await newest_events(ROOT, people.audit_trail, c.services.store.outbox, AuditFilter(), limit=50)
        assert [event.object for event in events if event.action == "keys.create"] == [f"key:{key.id}"]
        shown = await (await c.signed_in(user)).get("/accounts/acme/keys")
        assert shown.html.count(f'/keys/{key.id}"') == 1 and "Playground" in shown.text


async def test_target_that_is_not_used_is_shown_with_its_reason(console) -> None:
    async with console() as c:
        event = CircuitEvent("w", "fake", 0, cause="credential", seconds=60.0, at=time.time())
        await c.services.store.store.link(HASH).call("HSET", HASH, event.field, msgspec.json.encode(event))
        shown = await (await c.as_("eva", role="viewer")).get("/site/models?state=bad")
        assert "3 of 3 targets not used" in shown.text and "it refused the credential" in shown.text


async def test_probe_now_lets_the_next_call_try_a_target_that_is_not_used(console) -> None:
    async with console() as c:
        store = c.services.store.store
        events = [
            CircuitEvent("w", "fake", 0, model, "failures", 300.0, time.time()) for model in ("fake-chat", "tiny")
        ]
        for event in events:
            await store.link(HASH).call("HSET", HASH, event.field, msgspec.json.encode(event))
        operator = await c.as_("root", role="operator")
        assert "Probe now" not in (await (await c.as_("eva", role="viewer")).get("/site/models")).text
        assert (await operator.get("/site/models")).text.count("Probe now") == 2
        form = {"provider": "fake", "credential": "1", "model": "tiny"}
        await operator.post("/site/models/probe", **form)
        shown = await operator.get("/site/models")
        assert "The next call tries the target." in shown.text and shown.text.count("Probe now") == 1
        assert {event.key.model: event.seconds for event in await read_circuit_events(store)} == {
            "fake-chat": 300.0,
            "tiny": 0.0,
        }
        await operator.post("/site/models/probe", **form)
        assert "in use already, or is tried next" in (await operator.get("/site/models")).text
        assert "no such target" in (await operator.post("/site/models/probe", 404, **{**form, "model": "none"})).text
        probes = [event for _, event in await c.services.store.outbox.read() if event.action == "targets.probe"]
        assert [(event.object, event.after) for event in probes] == [("target:fake#1/tiny", {"causes": ["failures"]})]


def test_limits_of_the_server_are_shown_as_a_table_that_the_file_may_have() -> None:
    settings = parse({"server": {"port": 8085, "limits": {"max_json_body": 2048, "max_account_bodies": 4096}}})
    text = effective_configuration(settings)
    server, limits = (text.split(f"[{name}]\n", 1)[1].split("\n[", 1)[0] for name in ("server", "server.limits"))
    assert "port = 8085" in server and "max_" not in server
    assert "max_json_body = 2048" in limits and "port" not in limits
    assert parse({"server": tomllib.loads(text, parse_float=Decimal)["server"]}).server == settings.server


def test_literal_secrets_of_a_demo_are_hidden() -> None:
    provider = {"plugin": "openai", "api_key": "very-secret", "headers": {"x-team": "also-secret"}}
    settings = parse({"providers": {"v": provider}, "models": {"m": {"provider": "v", "free": True}}}, demo=True)
    text = effective_configuration(settings)
    assert "very-secret" not in text and "also-secret" not in text and 'plugin = "openai"' in text
