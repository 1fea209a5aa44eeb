"""Running calls: who sees and ends which, and the answer while workers are silent."""

from __future__ import annotations

import pytest

from tests.admin_api.workers import MadeUpWorkers


@pytest.mark.holds("admin-api.md#running-calls-2")
async def test_restricted_token_sees_and_ends_calls_of_its_account_only(api) -> None:
    workers = MadeUpWorkers()
    async with api(workers=workers) as a:
        for n, account in enumerate(("acme", "other", "acme")):
            workers.start(f"req_{n}", account)
        a.token = await a.make_token("accounts", account="acme")
        first = await a.get("/calls?limit=1")
        rest = await a.get(f"/calls?limit=1&cursor={first['next_cursor']}")
        assert [call["request_id"] for page in (first, rest) for call in page["data"]] == ["req_0", "req_2"]
        assert rest["next_cursor"] is None
        assert (first["data"][0]["cost"], first["data"][0]["held"]) == ("0.0000005", "0.000001")
        assert (await a.ask("GET", "/calls?account=other")).status == 404
        assert (await a.ask("POST", "/calls/req_1/cancel")).status == 404
        assert (await a.ask("POST", "/calls/req_2/cancel")).status == 200
        assert list(workers.calls) == ["req_0", "req_1"]


@pytest.mark.holds("admin-api.md#running-calls-1")
async def test_silent_workers_are_counted_and_without_any_answer_it_is_503(api) -> None:
    workers = MadeUpWorkers()
    workers.silent = 1
    async with api(workers=workers) as a:
        await a.as_operator()
        assert (await a.ask("GET", "/calls")).status == 503
        assert (await a.ask("POST", "/calls/req_9/cancel")).status == 503
        workers.start("req_0", "acme")
        page = await a.get("/calls")
        assert (len(page["data"]), page["silent_workers"]) == (1, 1)


async def test_machine_that_does_not_answer_is_counted_and_its_call_may_be_running_still(api) -> None:
    workers = MadeUpWorkers()
    workers.silent_machines = 1
    async with api(workers=workers) as a:
        await a.as_operator()
        page = await a.get("/calls")
        assert (page["data"], page["silent_workers"], page["silent_machines"]) == ([], 0, 1)
        refused = await a.ask("POST", "/calls/req_9/cancel")
        assert (refused.status, "A machine does not answer" in refused.document["error"]["message"]) == (503, True)


async def test_names_of_machines_are_shown_only_with_a_scope_for_the_site(api) -> None:
    workers = MadeUpWorkers()
    async with api(workers=workers) as a:
        workers.start("req_0", "acme", "host:8080")
        await a.as_operator()
        assert [call["machine"] for call in (await a.get("/calls"))["data"]] == ["host:8080"]
        a.token = await a.make_token("accounts", account="acme")
        assert [call["machine"] for call in (await a.get("/calls"))["data"]] == [None]
        assert (await a.ask("POST", "/calls/req_0/cancel")).document["machine"] is None
