"""`/v1/batches` with the runner beside it: shapes, validation, results, money, limits, cancel and expiry."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.batches.records import BatchRecords
from gateway.files.records import FileRecords
from gateway.ledger import Ledger
from gateway.runtime.batches.runner import Runner
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.polling import until

from .conftest import Api, jsonl, line

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
COST = 7 * 1_000 + 3 * 2_000  # nano-units of a call with this usage


def answer(seen: Any) -> Reply:
    """An answer that repeats the question."""
    text = seen.json["messages"][-1]["content"]
    message = {"role": "assistant", "content": f"echo {text}"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return Reply.json(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": USAGE}
    )


@pytest.fixture
def echo(upstream: FakeUpstream) -> FakeUpstream:
    """The upstream, with answers whose cost is known."""
    upstream.answer = answer
    return upstream


async def charges(ledger: Ledger) -> list[int]:
    """What each settled call was charged, in nano-units."""
    return [-line.amount async for line in ledger.lines("acme") if line.kind in ("use", "adj") and line.amount]


@pytest.mark.holds("operations/batches.md#batches-1", "api.md#post-v1batches-2")
async def test_batch_runs_all_lines_and_charges_each_once(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    made = await api.create(jsonl(*(line(number) for number in range(20))), metadata={"night": "1"})
    assert made["object"] == "batch"
    assert made["status"] == "validating"
    assert made["expires_at"] == made["created_at"] + 86_400
    ended = await api.ended(made)
    assert ended["status"] == "completed"
    assert ended["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    assert ended["metadata"] == {"night": "1"}
    assert ended["error_file_id"] is None
    assert ended["errors"] is None
    assert ended["cost"] == "0.00026"
    assert ended["in_progress_at"] <= ended["finalizing_at"] <= ended["completed_at"]
    lines = await api.lines(ended["output_file_id"])
    assert sorted(one["custom_id"] for one in lines) == sorted(f"line-{number}" for number in range(20))
    for one in lines:
        assert one["id"].startswith("batch_req_")
        assert one["error"] is None
        assert one["response"]["status_code"] == 200
        assert one["response"]["request_id"].startswith("req_")
        number = one["custom_id"].removeprefix("line-")
        assert one["response"]["body"]["choices"][0]["message"]["content"] == f"echo Hi {number}"
    await settled(accounts)
    assert await charges(ledger) == [COST] * 20
    _, file = await api.ask("GET", f"/v1/files/{ended['output_file_id']}")
    assert (file["purpose"], file["filename"]) == ("batch_output", f"{made['id']}_output.jsonl")
    assert (await ledger.audit()).mismatches == []


@pytest.mark.holds("operations/batches.md#batches-3")
async def test_ledger_lines_of_a_batch_have_its_id_as_session_and_upstreams_get_that_of_each_line(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts, client: Any
) -> None:
    named = line(1)
    named["body"]["prompt_cache_key"] = "agent-7"
    made = await api.create(jsonl(line(0), named))
    await api.ended(made)
    status, _ = await api.ask("POST", "/v1/chat/completions", json=line(2)["body"])
    assert status == 200
    await settled(accounts)
    sessions = [one.meta.get("session", "") async for one in ledger.lines("acme") if one.kind == "use"]
    assert sorted(sessions) == ["", made["id"], made["id"]]
    keys = {seen.json["messages"][0]["content"]: seen.json.get("prompt_cache_key") for seen in echo.seen}
    assert keys == {"Hi 0": None, "Hi 1": "agent-7", "Hi 2": None}


@pytest.mark.holds("operations/batches.md#batches-2", "api.md#post-v1batches-4")
async def test_batch_factor_is_held_charged_and_audited(
    api: Api, runner: Runner, echo: FakeUpstream, gateway: Gateway, ledger: Ledger, accounts: Accounts
) -> None:
    ended = await api.ended(await api.create(jsonl(line(1, model="half"))))
    assert ended["cost"] == "0.0000065"
    await settled(accounts)
    [charged] = [one async for one in ledger.lines("acme") if one.kind == "use"]
    assert charged.amount == -COST // 2
    assert charged.meta["price_factor"] == "0.5"
    assert (await ledger.audit()).mismatches == []


async def test_call_outside_a_batch_has_the_whole_price(
    api: Api, echo: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    await api.ask("POST", "/v1/chat/completions", json=line(1, model="half")["body"])
    await settled(accounts)
    assert await charges(ledger) == [COST]


@pytest.mark.holds("operations/batches.md#batches-2")
async def test_batch_factor_multiplies_that_of_the_group(
    client: Client, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts, keys: Keys
) -> None:
    await accounts.create("cheap", balance=NANO, group="fifth")
    cheap = Api(client, (await keys.create("cheap", name="k")).text)
    ended = await cheap.ended(await cheap.create(jsonl(line(1, model="half"))))
    assert ended["cost"] == "0.0000013"
    await settled(accounts, "cheap")
    assert [one.meta["price_factor"] async for one in ledger.lines("cheap") if one.kind == "use"] == ["0.1"]
    assert (await ledger.audit()).mismatches == []


BAD_LINES: list[tuple[str, bytes, str]] = [
    ("no JSON", b"{", "invalid_json_line"),
    ("no object", b"[]", "invalid_json_line"),
    ("deep", b'{"custom_id":' + b"[" * 5_000, "invalid_json_line"),
    ("no UTF-8", b'{"custom_id": "\xff"}', "invalid_json_line"),
    ("no id", jsonl({"method": "POST"})[:-1], "invalid_custom_id"),
    ("number as id", jsonl(line(1, custom_id=5))[:-1], "invalid_custom_id"),
    ("long id", jsonl(line(1, custom_id="x" * 513))[:-1], "invalid_custom_id"),
    ("method", jsonl(line(1, method="GET"))[:-1], "invalid_method"),
    ("no method", jsonl({"custom_id": "a"})[:-1], "invalid_method"),
    ("url", jsonl(line(1, url="/v1/embeddings"))[:-1], "mismatched_endpoint"),
    ("body", jsonl(line(1, body=[1]))[:-1], "invalid_body"),
    ("no body", jsonl({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"})[:-1], "invalid_body"),
    ("no model", jsonl(line(1, body={}))[:-1], "missing_required_parameter"),
    ("stream", jsonl(line(1, body={"model": "m1", "stream": True}))[:-1], "unsupported_value"),
]


@pytest.mark.parametrize(("text", "code"), [bad[1:] for bad in BAD_LINES], ids=[bad[0] for bad in BAD_LINES])
@pytest.mark.holds("api.md#post-v1batches-1")
async def test_bad_line_fails_the_batch_and_names_its_number(
    api: Api, runner: Runner, echo: FakeUpstream, text: bytes, code: str
) -> None:
    ended = await api.ended(await api.create(jsonl(line(0)) + b"\n" + text + b"\r\n" + jsonl(line(2))))
    assert ended["status"] == "failed"
    [error] = ended["errors"]["data"]
    assert (error["code"], error["line"]) == (code, 3)
    assert echo.seen == []


@pytest.mark.holds("api.md#post-v1batches-1")
async def test_duplicate_ids_and_many_errors_are_reported_up_to_a_bound(api: Api, runner: Runner) -> None:
    ended = await api.ended(await api.create(jsonl(*[line(1)] * 80)))
    errors = ended["errors"]["data"]
    assert len(errors) == 50
    assert {error["code"] for error in errors} == {"duplicate_custom_id"}
    assert [error["line"] for error in errors[:3]] == [2, 3, 4]


async def test_file_of_blank_lines_fails(api: Api, runner: Runner) -> None:
    ended = await api.ended(await api.create(b"\n \r\n\n"))
    assert [error["code"] for error in ended["errors"]["data"]] == ["empty_file"]


async def test_failed_lines_are_in_the_file_of_errors(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    lines = [line(0), line(1, model="nobody"), line(2, model="secret"), line(3, body={"model": "m1"}), line(4)]
    ended = await api.ended(await api.create(jsonl(*lines)))
    assert ended["status"] == "completed"
    assert ended["request_counts"] == {"total": 5, "completed": 2, "failed": 3}
    failed = {one["custom_id"]: one["response"] for one in await api.lines(ended["error_file_id"])}
    assert {name: response["status_code"] for name, response in failed.items()} == {
        "line-1": 403,
        "line-2": 403,
        "line-3": 400,
    }
    assert failed["line-3"]["body"]["error"]["code"] == "missing_required_parameter"
    await settled(accounts)
    assert await charges(ledger) == [COST, COST]


@pytest.mark.holds("operations/batches.md#the-process-3")
async def test_failing_upstream_is_tried_again_up_to_a_bound(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.runtime.batches.verdict.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("gateway.runtime.batches.verdict.LONGEST_PAUSE", 0.02)
    broken = Reply.json({"error": {"message": "no"}}, status=500)
    echo.enqueue(*[broken] * 3)
    ended = await api.ended(await api.create(jsonl(line(0))))
    assert ended["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    echo.enqueue(*[broken] * 5)
    ended = await api.ended(await api.create(jsonl(line(0))))
    assert ended["request_counts"] == {"total": 1, "completed": 0, "failed": 1}
    [failed] = await api.lines(ended["error_file_id"])
    assert failed["response"]["status_code"] == 502
    await settled(accounts)
    assert await charges(ledger) == [COST]


@pytest.mark.holds("operations/batches.md#the-process-2")
async def test_rate_limit_of_the_key_makes_the_batch_wait(
    client: Any, runner: Runner, echo: FakeUpstream, keys: Keys, api_key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines succeed, although the limit refuses many of their calls."""
    slow = Api(client, (await keys.create("acme", name="slow", rpm=600)).text)  # ten a second
    ended = await slow.ended(await slow.create(jsonl(*(line(number) for number in range(615)))))
    assert ended["request_counts"] == {"total": 615, "completed": 615, "failed": 0}
    assert len(echo.seen) == 615


@pytest.mark.holds("api.md#post-v1batches-3")
async def test_max_cost_is_never_exceeded(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    lines = [line(number) for number in range(30)]
    for one in lines:
        one["body"]["max_tokens"] = 3
    ended = await api.ended(await api.create(jsonl(*lines), max_cost="0.0001"))
    assert ended["max_cost"] == "0.0001"
    assert ended["status"] == "completed"
    await settled(accounts)
    paid = await charges(ledger)
    assert 4 * COST <= sum(paid) <= 100_000
    counts = ended["request_counts"]
    assert counts["completed"] == len(paid)
    assert counts["failed"] == 30 - len(paid) > 0
    errors = await api.lines(ended["error_file_id"])
    assert {one["response"]["body"]["error"]["code"] for one in errors} == {"batch_budget_exceeded"}


async def test_what_running_lines_hold_is_stored_while_they_run(
    api: Api, runner: Runner, echo: FakeUpstream, gateway: Gateway
) -> None:
    echo.answer = lambda seen: _slowly(answer(seen), 30.0) if "Hi 1" in str(seen.json) else answer(seen)
    made = await api.create(jsonl(line(0), line(1)))
    records = BatchRecords(gateway.store)

    async def held_by_one() -> int:
        batch, _ = await records.find("acme", made["id"])
        return batch.held if batch.completed == 1 else 0

    held = await until(held_by_one)
    account = await gateway.store.client.hgetall("{a:acme}")
    assert held == int(account[b"held"]) > 0
    await api.ask("POST", f"/v1/batches/{made['id']}/cancel")


@pytest.mark.holds("operations/batches.md#the-process-3")
async def test_lines_without_money_are_in_the_file_of_errors(
    client: Any, runner: Runner, echo: FakeUpstream, keys: Keys, accounts: Accounts, ledger: Ledger
) -> None:
    await accounts.create("poor", balance=COST)
    poor = Api(client, (await keys.create("poor", name="k")).text)
    ended = await poor.ended(await poor.create(jsonl(*(line(number) for number in range(5)))))
    assert ended["status"] == "completed"
    assert ended["request_counts"]["failed"] == 5
    for one in await poor.lines(ended["error_file_id"]):
        assert one["response"]["body"]["error"]["type"] == "insufficient_quota"


@pytest.mark.holds("operations/batches.md#the-process-3")
async def test_revoked_key_ends_its_batch(
    client: Any, api: Api, runner: Runner, echo: FakeUpstream, keys: Keys, api_key: Any
) -> None:
    key = await keys.create("acme", name="soon revoked")
    own = Api(client, key.text)
    echo.answer = lambda seen: _slowly(Reply.json({}), 30.0) if len(echo.seen) > 2 else answer(seen)
    made = await own.create(jsonl(*(line(number) for number in range(30))))
    await until(lambda: len(echo.seen) > 4)
    await keys.revoke(key.id)
    ended = await api.ended(made)
    assert ended["status"] == "failed"
    assert [error["code"] for error in ended["errors"]["data"]] == ["invalid_api_key"]
    lines = await api.lines(ended["output_file_id"]) + await api.lines(ended["error_file_id"])
    assert sorted(one["custom_id"] for one in lines) == sorted(f"line-{number}" for number in range(30))


@pytest.mark.holds("api.md#post-v1batches-cancel-1")
async def test_cancelled_batch_keeps_what_it_has(api: Api, runner: Runner, echo: FakeUpstream) -> None:
    echo.answer = lambda seen: answer(seen) if len(echo.seen) <= 4 else _slowly(Reply.json({}, status=500), 0.5)
    made = await api.create(jsonl(*(line(number) for number in range(40))))
    await until(lambda: len(echo.seen) > 4)
    status, cancelling = await api.ask("POST", f"/v1/batches/{made['id']}/cancel")
    assert (status, cancelling["status"]) == (200, "cancelling")
    assert cancelling["cancelling_at"] >= made["created_at"]
    ended = await api.ended(made)
    assert ended["status"] == "cancelled"
    assert ended["cancelled_at"] is not None
    lines = await api.lines(ended["output_file_id"]) + await api.lines(ended["error_file_id"])
    assert sorted(one["custom_id"] for one in lines) == sorted(f"line-{number}" for number in range(40))
    codes = {one["error"]["code"] for one in await api.lines(ended["error_file_id"]) if one["error"]}
    assert codes == {"batch_cancelled"}
    again = await api.ask("POST", f"/v1/batches/{made['id']}/cancel")
    assert again[1]["status"] == "cancelled"


@pytest.mark.holds("api.md#post-v1batches-2")
async def test_expired_batch_names_the_lines_that_were_not_run(
    api: Api, gateway: Gateway, echo: FakeUpstream, io_loop: Any
) -> None:
    made = await api.create(jsonl(line(0), line(1)))
    records = BatchRecords(gateway.store)
    batch, _ = await records.find("acme", made["id"])
    batch.expires_at = 1
    echo.answer = lambda seen: _slowly(Reply.json({}, status=500), 0.3)
    await records.save(batch)
    stop = asyncio.Event()
    running = asyncio.create_task(Runner(gateway, stop).run())
    ended = await api.ended(made)
    stop.set()
    await running
    assert ended["status"] == "expired"
    errors = await api.lines(ended["error_file_id"])
    assert {one["error"]["code"] for one in errors} == {"batch_expired"}
    assert len(errors) == 2


async def test_batch_whose_input_was_deleted_fails(api: Api, gateway: Gateway) -> None:
    made = await api.create(jsonl(line(0)))
    await api.ask("DELETE", f"/v1/files/{made['input_file_id']}")
    stop = asyncio.Event()
    running = asyncio.create_task(Runner(gateway, stop).run())
    ended = await api.ended(made)
    stop.set()
    await running
    assert (ended["status"], ended["errors"]["data"][0]["code"]) == ("failed", "file_not_found")


async def test_embeddings_responses_and_messages_are_served(api: Api, runner: Runner, upstream: FakeUpstream) -> None:
    bodies = {
        "/v1/embeddings": {"model": "m1", "input": "one two"},
        "/v1/completions": {"model": "m1", "prompt": "one two", "max_tokens": 5},
        "/v1/responses": {"model": "m1", "input": "one two"},
        "/v1/messages": {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    }
    for path, body in bodies.items():
        asked = {"custom_id": "a", "method": "POST", "url": path, "body": body}
        refused = {**asked, "custom_id": "b", "body": {"model": "m1"}}
        ended = await api.ended(await api.create(jsonl(asked, refused), endpoint=path))
        assert ended["request_counts"] == {"total": 2, "completed": 1, "failed": 1}, path
        [found] = await api.lines(ended["output_file_id"])
        kind = found["response"]["body"].get("object") or found["response"]["body"]["type"]
        assert (
            kind
            == {
                "/v1/embeddings": "list",
                "/v1/completions": "text_completion",
                "/v1/responses": "response",
                "/v1/messages": "message",
            }[path]
        )
        for file in (ended["input_file_id"], ended["output_file_id"], ended["error_file_id"]):
            await api.ask("DELETE", f"/v1/files/{file}")


async def test_batches_of_others_are_not_found(
    api: Api, client: Any, accounts: Accounts, keys: Keys, gateway: Gateway
) -> None:
    made = await api.create(jsonl(line(0)))
    await accounts.create("other", balance=NANO)
    other = Api(client, (await keys.create("other", name="k")).text)
    member = Api(client, (await keys.create("acme", name="u", user="usr_x")).text)
    for one in (other, member):
        assert (await one.ask("GET", f"/v1/batches/{made['id']}"))[0] == 404
        assert (await one.ask("POST", f"/v1/batches/{made['id']}/cancel"))[0] == 404
        assert (await one.ask("GET", "/v1/batches"))[1]["data"] == []
    assert [one["id"] for one in (await api.ask("GET", "/v1/batches"))[1]["data"]] == [made["id"]]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/images/generations"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": 5}, "input_file_id"),
        ({"metadata": {"a": 5}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"max_cost": "0"}, "max_cost"),
        ({"max_cost": -1}, "max_cost"),
        ({"max_cost": "much"}, "max_cost"),
        ({"max_cost": 1e300}, "max_cost"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
    ],
)
async def test_wrong_batch_is_refused_by_name(api: Api, change: dict[str, Any], param: str) -> None:
    _, file = await api.upload(jsonl(line(0)))
    asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h", **change}
    status, found = await api.ask("POST", "/v1/batches", json=asked)
    assert (status, found["error"]["param"]) == (400, param)


@pytest.mark.holds("api.md#post-v1batches-4")
async def test_account_has_a_bound_of_open_batches(api: Api, gateway: Gateway) -> None:
    _, file = await api.upload(jsonl(line(0)))
    asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    statuses = [(await api.ask("POST", "/v1/batches", json=asked))[0] for _ in range(21)]
    assert statuses == [200] * 20 + [429]
    assert await gateway.store.client.scard("{a:acme}:bo") == 20
    _, page = await api.ask("GET", "/v1/batches?limit=15")
    _, rest = await api.ask("GET", f"/v1/batches?limit=15&after={page['last_id']}")
    assert (len(page["data"]), page["has_more"], len(rest["data"]), rest["has_more"]) == (15, True, 5, False)


@pytest.mark.holds("operations/batches.md#the-process-1")
async def test_lines_of_an_account_run_in_its_share_of_the_places(api: Api, runner: Runner, echo: FakeUpstream) -> None:
    most = 0

    def counted(seen: Any) -> Reply:
        nonlocal most
        most = max(most, sum(one.outcome == "open" for one in echo.seen))
        reply = answer(seen)
        reply.delay = 0.02
        return reply

    echo.answer = counted
    await api.ended(await api.create(jsonl(*(line(number) for number in range(60)))))
    assert 1 < most <= 8


@pytest.mark.holds("operations/batches.md#when-the-process-ends-2")
async def test_full_disk_delays_results_and_loses_none(
    api: Api, runner: Runner, echo: FakeUpstream, ledger: Ledger, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.runtime.batches.line_work.DISK_AGAIN", 0.01)
    write, refused = os.write, 0

    def full(descriptor: int, data: bytes) -> int:
        nonlocal refused
        if b"batch_req_" in data and refused < 30:
            refused += 1
            return write(descriptor, data[: len(data) // 2])
        return write(descriptor, data)

    monkeypatch.setattr("gateway.batches.results.os.write", full)
    ended = await api.ended(await api.create(jsonl(*(line(number) for number in range(20)))))
    assert refused == 30
    assert ended["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    lines = await api.lines(ended["output_file_id"])
    assert sorted(one["custom_id"] for one in lines) == sorted(f"line-{number}" for number in range(20))
    await settled(accounts)
    assert await charges(ledger) == [COST] * 20


@pytest.mark.holds("api.md#get-v1files-1")
async def test_batch_that_has_begun_needs_its_input_no_more(api: Api, runner: Runner, echo: FakeUpstream) -> None:
    echo.answer = lambda seen: _slowly(answer(seen), 0.05)
    made = await api.create(jsonl(*(line(number) for number in range(30))))
    await until(lambda: len(echo.seen) > 0)
    assert (await api.ask("DELETE", f"/v1/files/{made['input_file_id']}"))[0] == 200
    ended = await api.ended(made)
    assert ended["request_counts"] == {"total": 30, "completed": 30, "failed": 0}


def _slowly(reply: Reply, seconds: float) -> Reply:
    reply.delay = seconds
    return reply


@pytest.mark.holds("operations/batches.md#several-machines-3")
async def test_second_runner_of_a_folder_waits_for_the_first(
    api: Api, gateway: Gateway, echo: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    stops = [asyncio.Event(), asyncio.Event()]
    first, second = [asyncio.create_task(Runner(gateway, stop).run()) for stop in stops]
    ended = await api.ended(await api.create(jsonl(*(line(number) for number in range(20)))))
    assert ended["request_counts"]["completed"] == 20
    stops[0].set()
    await first
    ended = await api.ended(await api.create(jsonl(line(1))))
    assert ended["request_counts"]["completed"] == 1
    stops[1].set()
    await second
    await settled(accounts)
    assert len(echo.seen) == 21


async def test_stopping_runner_leaves_lines_for_the_next_one(
    api: Api, gateway: Gateway, echo: FakeUpstream, ledger: Ledger, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that do not end in time are cut, cost nothing and run again."""
    monkeypatch.setattr("gateway.runtime.batches.runner.END_WITHIN", 0.1)
    echo.answer = lambda seen: _slowly(answer(seen), 30.0) if len(echo.seen) > 5 else answer(seen)
    stop = asyncio.Event()
    running = asyncio.create_task(Runner(gateway, stop).run())
    made = await api.create(jsonl(*(line(number) for number in range(15))))
    await until(lambda: len(echo.seen) > 9)
    stop.set()
    await running
    _, found = await api.ask("GET", f"/v1/batches/{made['id']}")
    assert found["status"] == "in_progress"
    assert found["request_counts"] == {"total": 15, "completed": 5, "failed": 0}
    echo.answer, stop = answer, asyncio.Event()
    running = asyncio.create_task(Runner(gateway, stop).run())
    ended = await api.ended(made)
    stop.set()
    await running
    assert ended["request_counts"] == {"total": 15, "completed": 15, "failed": 0}
    await settled(accounts)
    assert await charges(ledger) == [COST] * 15


@pytest.mark.holds("operations/batches.md#several-machines-1")
async def test_file_of_another_machine_is_refused(api: Api, tmp_path: Path) -> None:
    _, file = await api.upload(jsonl(line(0)))
    (tmp_path / "files" / ".id").write_text("another")
    assert (await api.ask("GET", f"/v1/files/{file['id']}"))[0] == 200
    assert (await api.ask("GET", f"/v1/files/{file['id']}/content"))[0] == 404
    asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    status, found = await api.ask("POST", "/v1/batches", json=asked)
    assert (status, found["error"]["param"]) == (400, "input_file_id")


@pytest.mark.holds("operations/batches.md#several-machines-2")
async def test_files_of_a_lost_machine_are_forgotten_a_day_after_their_end(
    api: Api, gateway: Gateway, tmp_path: Path
) -> None:
    _, file = await api.upload(jsonl(line(0)))
    records, client = FileRecords(gateway.store), gateway.store.client
    [due] = [name async for name in client.scan_iter("files:due:*")]
    await client.zadd(due, {f"acme {file['id']}": time.time() - 80_000})
    assert await records.forget_foreign("here", most=10) == 0
    await client.zadd(due, {f"acme {file['id']}": time.time() - 90_000})
    assert await records.forget_foreign("here", most=10) == 1
    assert (await api.ask("GET", f"/v1/files/{file['id']}"))[0] == 404


@pytest.mark.holds("operations/batches.md#several-machines-2")
async def test_batch_of_a_lost_machine_expires_after_two_days(api: Api, gateway: Gateway) -> None:
    made = await api.create(jsonl(line(0)))
    records, client = BatchRecords(gateway.store), gateway.store.client
    [opened] = [name async for name in client.scan_iter("batches:open:*")]
    for age, ended in ((170_000, 0), (180_000, 1)):
        await client.zadd(opened, {f"acme {made['id']}": time.time() - age})
        assert await records.expire_foreign("here", most=10, keep=60) == ended
    _, found = await api.ask("GET", f"/v1/batches/{made['id']}")
    assert found["status"] == "expired"
    assert await client.scard("{a:acme}:bo") == 0
    assert await client.zcard(opened) == 0


async def test_ended_batch_is_forgotten_when_its_time_is_over(
    api: Api, runner: Runner, echo: FakeUpstream, gateway: Gateway
) -> None:
    made = await api.create(jsonl(line(0)))
    await api.ended(made)
    client = gateway.store.client
    [due] = [name async for name in client.scan_iter("batches:due:*")]
    place = due.decode().rpartition(":")[2]
    records = BatchRecords(gateway.store)
    assert await records.expired(place, most=10) == 0
    await client.zadd(due, {f"acme {made['id']}": 1})
    assert await records.expired(place, most=10) == 1
    assert (await api.ask("GET", f"/v1/batches/{made['id']}"))[0] == 404
    assert (await api.ask("GET", "/v1/batches"))[1]["data"] == []


async def test_nothing_is_served_where_batches_are_off(
    api: Api, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = gateway.settings
    monkeypatch.setattr(
        gateway, "settings", structs.replace(settings, batches=structs.replace(settings.batches, enabled=False))
    )
    assert (await api.upload(jsonl(line(0))))[0] == 404
    for method, path in (("GET", "/v1/files"), ("GET", "/v1/batches"), ("POST", "/v1/batches"), ("GET", "/v1/files/x")):
        status, found = await api.ask(method, path, **({"json": {}} if method == "POST" else {}))
        assert (status, found["error"]["code"]) == (404, "not_found")
