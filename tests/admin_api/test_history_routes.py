"""Reports, statements, refused settlements, prices, imports, the file on disk and the state of the history."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.admin.history_state import all_pages
from gateway.admin.machines import Machine, announce
from gateway.config.settings import Settings
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger.api_key import ApiKey
from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile
from gateway.store.links import slot
from gateway.web import piecewise
from tests.admin_api.client import ROOT, Api
from tests.admin_api.samples import UNIT, Samples
from tests.history.made_lines import Account
from tests.ledger.records import quote_of, record_of


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-4")
async def test_report_and_statement_are_also_csv_files(api) -> None:
    async with api() as a:
        await a.as_operator()
        account = Account(await a.services.database())
        account.call("2026-10-05T10:30", 500)
        account.call("2026-11-05T10:30", 70)
        account.flush()
        query = "from=2026-10-01T00:00:00Z&to=2026-11-01T00:00:00Z&group_by=month,account"
        report = await a.get(f"/usage?{query}")
        assert [(row["month"], row["account"], row["amount"]) for row in report["rows"]] == [
            ("2026-10", "acme", "0.0000005")
        ]
        answer = await a.ask("GET", f"/usage/csv?{query}")
        (row,) = csv.DictReader(io.StringIO(answer.document))
        assert (row["month"], row["calls"], row["amount"]) == ("2026-10", "1", "0.0000005")
        await Samples(a).statement("acme")
        found = (await a.ask("GET", "/accounts/acme/statements/2026-01/csv")).document
        assert [line["amount"] for line in csv.DictReader(io.StringIO(found))] == ["0", "2", "-1", "1"]
        for path, status in (("2026-13", 400), ("2026-1", 400), ("2026-10", 200)):
            assert (await a.ask("GET", f"/accounts/acme/statements/{path}")).status == status
        refused = await a.ask("POST", "/accounts/other/statements", {"month": "2026-11"})
        assert refused.status in (404, 409), refused.document
        assert (await a.ask("GET", "/usage?group_by=nothing")).error["param"] == "group_by"


async def test_report_with_a_limit_has_the_most_expensive_groups_and_the_sums_of_the_others(api) -> None:
    async with api() as a:
        await a.as_operator()
        database = await a.services.database()
        for name, amount in (("acme", 500), ("beta", 900), ("gamma", 70), ("delta", 30)):
            account = Account(database, name)
            account.call("2026-10-05T10:30", amount)
            account.flush()
        query = "from=2026-10-01T00:00:00Z&to=2026-11-01T00:00:00Z"
        report = await a.get(f"/usage?{query}&group_by=account&limit=2")
        assert [(row["account"], row["amount"]) for row in report["rows"]] == [
            ("beta", "0.0000009"),
            ("acme", "0.0000005"),
        ]
        assert (report["others"]["calls"], report["others"]["amount"]) == (2, "0.0000001")
        assert (report["total"]["calls"], report["total"]["amount"]) == (4, "0.0000015")
        assert "others" not in await a.get(f"/usage?{query}&group_by=account")
        empty = await a.get("/usage?from=2020-10-01T00:00:00Z&to=2020-11-01T00:00:00Z&group_by=account&limit=2")
        assert (empty["rows"], empty["others"]["calls"], empty["total"]["calls"]) == ([], 0, 0)
        for refused in ("group_by=day&limit=2", "group_by=tag&limit=2", "limit=2", "session=s&group_by=key&limit=2"):
            assert (await a.ask("GET", f"/usage?{refused}")).error["param"] == "limit"


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-1")
async def test_token_gets_a_few_files_at_the_same_time(api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api() as a:
        await a.as_operator()
        head = await a.ask("HEAD", "/usage/csv")
        assert head.status == 200 and head.headers["Content-Type"].startswith("text/csv")
        monkeypatch.setattr(piecewise, "MOST_OF_ONE", 0)
        refused = await a.ask("GET", "/usage/csv")
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-4")
async def test_cost_of_the_operator_is_hidden_from_tokens_of_an_account(api) -> None:
    async with api() as a:
        store = a.services.store
        await store.accounts.credit("acme", UNIT)
        key = await store.keys.create("acme")
        hold = await store.ledger.admit("req_1", ApiKey("acme", key.id), quote_of())
        store.ledger.book(hold, structs.replace(record_of(500), upstream_cost=40))
        await store.ledger.drain()
        paths = ("/accounts/acme/lines", "/calls/req_1?account=acme")
        for scope, account, shown in (("read", None, True), ("read", "acme", False)):
            a.token = await a.make_token(scope, account=account)
            for path in paths:
                assert ("upstream_cost" in json.dumps(await a.get(path))) == shown
        assert (await a.ask("GET", "/usage?margin=true")).status == 403
        assert (await a.ask("GET", "/usage?account=other")).status == 404


@pytest.mark.holds("admin-api.md#running-calls-3")
async def test_status_about_the_operator_s_credential_is_hidden_from_tokens_of_an_account(api) -> None:
    async with api() as a:
        refused = AttemptAnswer("one", "m", "upstream_auth_error", 401, 12)
        failed = AttemptAnswer("two", "m", "upstream_error", 500, 7)
        served = AttemptAnswer("three", "m", "ok", 200, 340)
        account = Account(await a.services.database())
        request = account.call("2026-10-05T10:30", 500, attempts=3, answers=[refused, failed, served])
        plain = account.call("2026-10-05T10:31", 500, attempts=1)
        account.flush()
        for token_account, status in ((None, 401), ("acme", None)):
            a.token = await a.make_token("read", account=token_account)
            document = await a.get(f"/calls/{request}")
            assert (
                document["answers"]
                == document["lines"][0]["answers"]
                == [
                    {"provider": "one", "model": "m", "code": "upstream_auth_error", "status": status, "ms": 12},
                    {"provider": "two", "model": "m", "code": "upstream_error", "status": 500, "ms": 7},
                    {"provider": "three", "model": "m", "code": "ok", "status": 200, "ms": 340},
                ]
            )
            old = await a.get(f"/calls/{plain}")
            assert (old["answers"], "answers" in old["lines"][0]) == ([], False)


async def test_own_price_is_set_and_cleared_by_actors_with_both_scopes(api) -> None:
    async with api() as a:
        a.token = await a.make_token("accounts", "credits")
        path = "/accounts/acme/prices/short"
        done = await a.ask("PUT", path, {"amounts": {"input": "0.2"}})
        assert done.document["prices"] == {"fake-chat": {"input": "0.2"}}
        for bad in ({}, {"factor": "1", "amounts": {"input": "1"}}, {"factor": "x"}, {"amounts": {"inputt": "1"}}):
            assert (await a.ask("PUT", path, bad)).status == 400, bad
        assert (await a.ask("PUT", "/accounts/acme/prices/nothing", {"factor": "1"})).status == 400
        assert (await a.ask("DELETE", path)).document["prices"] == {}
        a.token = await a.make_token("accounts")
        assert "'accounts' and 'credits'" in (await a.ask("DELETE", path)).error["message"]


async def store_price(a: Any, model: str, text: str) -> None:
    """Store an own price of acme that the API would not take."""
    await a.services.store.store.link(slot("acme")).call("HSET", slot("acme"), f"p:{model}", text)


async def test_own_price_of_a_model_that_is_gone_is_cleared_though_its_name_is_an_alias_now(api) -> None:
    async with api() as a:
        await a.as_operator()
        await a.ask("PUT", "/accounts/acme/prices/fake-chat", {"factor": "2"})
        await store_price(a, "short", '{"factor": "3"}')
        done = await a.ask("DELETE", "/accounts/acme/prices/short")
        assert done.document["prices"] == {"fake-chat": {"factor": "2"}}


async def test_own_price_that_a_newer_version_has_stored_is_named(api) -> None:
    async with api() as a:
        await a.as_operator()
        await a.ask("PUT", "/accounts/acme/prices/short", {"factor": "2"})
        await store_price(a, "fake-chat", '{"per_smell": "1"}')
        forms = {form["id"]: form for form in await a.pages("/accounts/acme/models?limit=1")}
        assert (forms["fake-chat"]["unreadable"], forms["fake-chat"]["price"]) == (True, {})


async def test_refused_settlements_are_listed_and_booked_once(api, settings: Settings) -> None:
    async with api() as a:
        await a.as_operator()
        store = a.services.store
        await store.accounts.credit("acme", UNIT)
        key = (await store.keys.create("acme")).id
        (settings.data_dir / "journal").mkdir(parents=True)
        file = RefusedFile(settings.data_dir / "journal")
        seconds, _ = await store.store.client.time()
        for number, account in enumerate(("acme", "nobody")):
            meta = json.dumps({"key": key, "model": "fake-chat"})
            file.add(Entry(account, f"req_{number}", key, "use", -250, 1, seconds * 1_000_000, meta, hold=10**9))
        pages = await a.pages("/refused-settlements?limit=1")
        assert [(row["request_id"], row["state"]) for row in pages] == [("req_0", "open"), ("req_1", "no account")]
        missing = await a.ask("POST", "/refused-settlements/book", {"request_ids": ["req_0", "req_7"]})
        assert missing.status == 404 and len(file.read()) == 2
        assert (await a.ask("POST", "/refused-settlements/book", {})).status == 400
        for left in (1, 1):
            await a.post("/refused-settlements/book", {"all": True})
            assert len(file.read()) == left
        assert (await store.accounts.show("acme")).balance == UNIT - 250
        events = await a.get("/audit-trail?object=call")
        assert [event["action"] for event in events["data"]] == ["refused.book"]


async def test_reload_is_asked_for_only_with_a_sound_file(api, settings: Settings) -> None:
    async with api() as a:
        await a.as_operator()
        assert await a.post("/configuration/reload", {}) == {"pid": 4242, "forced": False}
        await a.services.store.account_admin.move(ROOT, "acme", "vip")
        text = Path(settings.file).read_text()
        Path(settings.file).write_text(text.replace("[groups.vip]\nrpm = 5\n", ""))
        refused = await a.ask("POST", "/configuration/reload", {})
        assert refused.status == 409 and "vip" in refused.error["message"]
        found = await a.post("/configuration/check", {})
        assert [fault["key"] for fault in found["faults"]] == ["groups.vip"]
        assert (await a.post("/configuration/check", {"force": True}))["ok"]
        await a.post("/configuration/reload", {"force": True})
        Path(settings.file).write_text("[server]\nprot = 1\n")
        refused = await a.ask("POST", "/configuration/reload", {"force": True})
        assert refused.status == 400 and "server.prot" in refused.error["message"]
        assert a.reloads == [False, True]


@pytest.mark.holds("operations/machines.md#several-machines-2")
async def test_event_of_a_reload_has_the_prices_and_limits_that_change(api, settings: Settings) -> None:
    async with api() as a:
        await a.as_operator()
        text = Path(settings.file).read_text()
        Path(settings.file).write_text(text.replace("[groups.vip]\nrpm = 5\n", "[groups.vip]\nrpm = 6\n"))
        await a.post("/configuration/reload", {})
        [event] = (await a.get("/audit-trail?object=configuration"))["data"]
        assert event["before"]["limits"]["vip"]["rpm"] == 5
        assert event["after"]["limits"]["vip"]["rpm"] == 6
        assert event["after"]["forced"] is False
        assert "prices" not in event["before"]


async def test_machines_of_the_store_are_listed(api) -> None:
    async with api() as a:
        await a.as_operator()
        await announce(a.services.store.store, Machine("1", "one:8080", "abc", "1.0"))
        [machine] = (await a.get("/machines"))["data"]
        assert (machine["name"], machine["configuration"], machine["version"]) == ("one:8080", "abc", "1.0")


async def test_import_of_a_faulty_file_names_each_fault_and_changes_nothing(api) -> None:
    async with api() as a:
        await a.as_operator()
        content = "name,group\nnew,default\nBad Name,default\nmore,vipp\n"
        answer = await a.ask("POST", "/imports/accounts", {"name": "a.csv", "content": content})
        assert answer.status == 400
        for text in ("a.csv, line 3, column name", "a.csv, line 4, column group"):
            assert text in answer.error["message"]
        assert [account["name"] for account in (await a.get("/accounts"))["data"]] == ["acme", "other"]
        keys = {"content": "account,name\nacme,one\n"}
        assert (await a.ask("POST", "/imports/keys", {**keys, "make_keys": False})).status == 400
        (made,) = (await a.post("/imports/keys", keys))["keys"]
        assert made["key"].startswith("sk-") and made["name"] == "one"
        assert (await a.post("/imports/keys", keys))["keys"] == []


async def test_state_of_the_history_names_missing_lines_and_blocked_accounts(api) -> None:
    async with api() as a:
        await a.as_operator()
        for _ in range(2):
            await a.services.store.accounts.credit("acme", UNIT)
        assert await _state(a) == (4, ["acme", "other"], [])  # each has the line of its opening
        line = Account(await a.services.database(), "other")
        line.line("2026-10-01T10:00", "topup", 7)
        line.flush()
        missing, behind, blocked = await _state(a)
        assert (missing, behind) == (3, ["acme", "other"])
        ((account, reason),) = blocked
        assert account == "other" and "has lost lines" in reason


async def test_state_of_the_history_comes_in_pages_of_accounts_which_the_command_puts_together(api) -> None:
    async with api() as a:
        await a.as_operator()
        for _ in range(2):
            await a.services.store.accounts.credit("other", UNIT)
        pages, cursor = list[dict[str, Any]](), ""
        while not pages or cursor:
            pages.append(await a.get(f"/history?limit=1&cursor={cursor}"))
            cursor = pages[-1].pop("next_cursor")
        assert [(page["accounts"], page["missing_lines"]) for page in pages] == [(1, 1), (1, 3)]
        found = all_pages(pages)
        assert (found["accounts"], found["missing_lines"]) == (2, 4)
        assert [one["account"] for one in found["behind"]] == ["other", "acme"]
        assert found["oldest_missing"] == pages[0]["oldest_missing"]
        assert found["lag_seconds"] == max(page["lag_seconds"] for page in pages)


async def _state(a: Api) -> tuple[int, list[str], list[tuple[str, str]]]:
    found = await a.get("/history")
    behind = [one["account"] for one in found["behind"]]
    return found["missing_lines"], behind, [(one["account"], one["reason"]) for one in found["blocked"]]
