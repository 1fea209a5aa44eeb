"""Inputs of batches that nobody should send: they fail with reasons, or their lines have results and exact charges.

What each faulty line is answered with is in `tests/api/files/test_batches.py`; here lines of many kinds are mixed,
broken and cut, with every end of line.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import parse_amount
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.runtime.batches.runner import Runner
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.files.conftest import Api, api, configuration, jsonl, line, runner

from .test_forms import SPLICES

__all__ = ["api", "runner"]

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
BOM = b"\xef\xbb\xbf"
DEEP = 60_000
#: Bodies that are no request which can succeed; each is an object with a model, so the line itself is valid.
WRONG: tuple[dict[str, Any], ...] = (
    {"model": "secret", "messages": [{"role": "user", "content": "Hi"}]},
    {"model": "no such model", "messages": [{"role": "user", "content": "Hi"}]},
    {"model": "m1"},
    {"model": "m1", "messages": []},
    {"model": "m1", "messages": "Hi"},
    {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": -1},
    {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10**30},
    {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "n": 10**6},
    {"model": "m1", "messages": [{"role": "user", "content": [{"type": "nothing"}]}]},
    {"model": "../m1", "messages": [{"role": "user", "content": "Hi"}]},
    {"model": "m1\u0000", "messages": [{"role": "user", "content": "\u0000"}]},
)


def changed(**changes: Iterable[Any]) -> list[bytes]:
    """A line with one field, for each of its values."""
    [(name, values)] = changes.items()
    return [json.dumps({**line(90), name: value}).encode() for value in values]


#: Lines with which an input is not run at all, by the code of the reason.
REFUSED: dict[str, list[bytes]] = {
    "invalid_json_line": [
        b"{", b"[]", b"null", b"\0", b"\xff\xfe", b'{"custom_id":"\xff"}', b"\xed\xa0\x80", BOM + b"{}", b"{}{}",
        b"[" * DEEP, b'{"a":' * (DEEP // 5), b'{"custom_id":"x","method":"POST","url":"/v1","body":' + b"[" * DEEP,
        b"{'custom_id': 'a'}", b'{"custom_id":"\\ud800"}', b"a\rb", b"\x1b[2J", b"{\0}",
    ],
    "invalid_custom_id": [b"{}", b'{"custom_id":""}', b'{"custom_id":1}', b'{"custom_id":"' + b"x" * 513 + b'"}'],
    "invalid_method": changed(method=("GET", "post", None, 5)),
    "mismatched_endpoint": changed(
        url=("/v1/embeddings", "/v1/chat/completions/", "/v1/../v1/chat/completions", "http://x/", "/admin", 7)
    ),
    "invalid_body": changed(body=([], "text", 5, None)),
    "missing_required_parameter": changed(body=({}, {"model": 5}, {"model": ""})),
    "unsupported_value": changed(body=[{"model": "m1", "stream": one} for one in (True, 1, "no")]),
    "duplicate_custom_id": [json.dumps(line(0)).encode()],
    "line_too_long": [b'{"custom_id":"' + b"x" * 150_000 + b'"}'],
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Lines of at most 100,000 bytes, and one try for each."""
    document = configuration(tmp_path, upstream, max_line=100_000, attempts=1, max_open=1000)
    document["files"] = {"max_file": 10_000_000, "max_account": 1_000_000_000, "max_account_files": 10_000}
    return parse(document, demo=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """New batches are found at once."""
    monkeypatch.setattr("gateway.runtime.batches.runner.LOOK_EVERY", 0.02)


@pytest.fixture
def odd(upstream: FakeUpstream) -> FakeUpstream:
    """The upstream: answers, some of them with line breaks and odd texts, and fails now and then."""

    def answer(seen: Any) -> Reply:
        kind = len(upstream.seen) % 7
        text = ("Hi", "a\r\nb\u2028c", "\u0000", "{}\n{}", '"', "é", "Hi")[kind]
        choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
        document = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
        if kind == 6:
            return Reply.json({"error": {"message": "no", "type": "server_error"}}, status=500)
        return Reply.json({**document, "usage": USAGE if kind else {"prompt_tokens": -5, "completion_tokens": 10**18}})

    upstream.answer = answer
    return upstream


async def proved(api: Api, batch: Any, accounts: Accounts, ledger: Ledger, known: set[str]) -> None:
    """Each line has one result; the charges of the batch are its cost; `known` are the lines of the ledger before."""
    results = await api.lines(batch["output_file_id"]) + await api.lines(batch["error_file_id"])
    counts = batch["request_counts"]
    assert len(results) == counts["completed"] + counts["failed"] == counts["total"]
    assert max(Counter(one["custom_id"] for one in results).values(), default=1) == 1
    for one in results:
        if one["response"]["status_code"] != 200:
            error = json.dumps(one["response"]["body"])
            assert one["response"]["body"]["error"].keys() == {"message", "type", "param", "code"}
            assert not any(inside in error for inside in ("Traceback", ".py", "127.0.0.1", "canary")), error
    await settled(accounts)
    lines = [one async for one in ledger.lines("acme") if one.kind == "use" and one.request_id not in known]
    assert sum(-one.amount + one.uncollected for one in lines) == parse_amount(batch["cost"])
    answered = [one["response"]["request_id"] for one in results if one["response"]["status_code"] == 200]
    assert {one.request_id for one in lines} >= set(answered) and len(set(answered)) == len(answered)
    known |= {one.request_id for one in lines}
    assert (await accounts.show("acme")).held == 0


@pytest.mark.parametrize("code", REFUSED)
async def test_faulty_line_fails_its_batch_with_its_number_and_calls_no_upstream(
    api: Api, runner: Runner, odd: FakeUpstream, accounts: Accounts, code: str
) -> None:
    before = await accounts.show("acme")
    for faulty in REFUSED[code]:
        good = [json.dumps(line(number)).encode() for number in range(3)]
        ended = await api.ended(await api.create(b"\r\n".join([*good, b"", faulty, *good[:0]])))
        assert ended["status"] == "failed", faulty[:80]
        [error] = ended["errors"]["data"]
        assert (error["code"], error["line"]) == (code, 5), faulty[:80]
        assert len(error["message"]) < 200
        assert ended["cost"] == "0" and ended["output_file_id"] is None
    assert odd.seen == [] and await accounts.show("acme") == before


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\r\n\n"])
async def test_lines_that_cannot_succeed_have_errors_and_charge_nothing_beside_good_ones(
    api: Api, runner: Runner, odd: FakeUpstream, accounts: Accounts, ledger: Ledger, end: bytes
) -> None:
    wrong = [line(100 + number, body=body) for number, body in enumerate(WRONG)]
    odd_ids = ["\u0000", "a\nb", "\u2028", "__proto__", "x" * 512, '"', "../../etc/passwd", "<b>", "💥"]
    good = [{**line(number), "custom_id": name} for number, name in enumerate(odd_ids)]
    good[0]["body"]["api_base"] = "http://127.0.0.1:1/"
    lines = [json.dumps(one).encode() for pair in zip(wrong, [*good, *good], strict=False) for one in pair]
    unique = list(dict.fromkeys(lines))
    ended = await api.ended(await api.create(BOM + end.join(unique)))
    assert ended["status"] == "completed", ended["errors"]
    await proved(api, ended, accounts, ledger, set())
    done = {one["custom_id"] for one in await api.lines(ended["output_file_id"])}
    assert done and done <= set(odd_ids)
    assert not any("api_base" in seen.json for seen in odd.seen)
    assert (await ledger.audit()).mismatches == []


@pytest.mark.parametrize("seed", range(4))
async def test_mangled_inputs_fail_or_have_a_result_and_the_exact_charge_of_each_line(
    api: Api, runner: Runner, odd: FakeUpstream, accounts: Accounts, ledger: Ledger, seed: int
) -> None:
    chance, known, statuses = random.Random(seed), set[str](), Counter[str]()
    for number in range(15):
        content = bytearray(jsonl(*(line(one) for one in range(chance.randrange(1, 8)))))
        for _ in range(chance.choice((0, 0, 1, 2))):
            at = chance.randrange(len(content))
            wound = chance.randrange(4)
            if wound == 0:
                content[at:at] = chance.choice([*SPLICES, b"\n", b"\r", BOM, b'"stream":true,'])
            elif wound == 1:
                del content[at : at + chance.randrange(1, 60)]
            elif wound == 2:
                content[at] = chance.randrange(256)
            else:
                content[at:at] = content[at : at + chance.randrange(200)]
        fields = {"max_cost": chance.choice(["0.0003", "1"])} if number % 7 == 0 else {}
        ended = await api.ended(await api.create(bytes(content) or b"\n", **fields))
        statuses[ended["status"]] += 1
        if ended["status"] == "completed":
            await proved(api, ended, accounts, ledger, known)
            assert not fields or parse_amount(ended["cost"]) <= parse_amount(fields["max_cost"])
        else:
            assert ended["errors"]["data"] and ended["cost"] == "0"
    assert min(statuses["completed"], statuses["failed"]) > 1, statuses
    assert (await ledger.audit()).mismatches == []


@pytest.mark.parametrize("seed", range(3))
async def test_mangled_forms_store_a_whole_file_or_nothing(
    client: Client, http_server: HTTPServer, gateway: Gateway, api_key: Any, settings: Settings, seed: int
) -> None:
    chance, statuses = random.Random(seed), Counter[int]()
    head = b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--edge\r\n'
    head += b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
    whole = head + jsonl(line(1)) + b"\r\n--edge--\r\n"
    kept = 0
    for _ in range(100):
        body = bytearray(whole)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(head))
            if chance.random() < 0.5:
                body[at:at] = chance.choice(SPLICES)
            else:
                del body[at : at + chance.randrange(1, 40)]
        headers = {"Authorization": f"Bearer {api_key.text}", "Content-Type": "multipart/form-data; boundary=edge"}
        async with client.request("POST", "/v1/files", data=bytes(body), headers=headers) as response:
            document = json.loads(await response.read())
            statuses[response.status] += 1
            assert response.status in (200, 400), (response.status, body)
            if response.status == 200:
                kept += 1
                assert document["bytes"] > 0 and len(document["filename"]) <= 255
            else:
                assert document["error"].keys() == {"message", "type", "param", "code"}
    assert min(statuses[200], statuses[400]) > 5, statuses
    files = list(Path(settings.files_dir).glob("*/*"))
    assert len(files) == kept and all(path.name.startswith("file-") for path in files)
    assert await gateway.store.client.zcard("{a:acme}:fz") == kept
    assert not list(Path(settings.data_dir).glob("tmp/*"))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (b"../../etc/passwd", "passwd"),
        (b"..\\\\..\\\\boot.ini", "boot.ini"),
        (b"a%0D%0ASet-Cookie: x=1", None),
        (b'a\\"; filename=\\"b', None),
        ("\u202egpj.sh".encode(), "gpj.sh"),
        (b"/", "file"),
        (b"x" * 5000, None),
    ],
)
async def test_name_of_a_file_is_no_path_and_no_header(api: Api, client: Client, name: bytes, kept: str | None) -> None:
    start = b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--edge\r\n'
    form = b'Content-Disposition: form-data; name="file"; filename="%b"\r\n\r\n' % name
    body = start + form + jsonl(line(1)) + b"\r\n--edge--\r\n"
    headers = {**api.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    async with client.request("POST", "/v1/files", data=body, headers=headers) as response:
        file = await response.json()
    if response.status == 400 and kept is None:
        return
    assert (response.status, kept in (None, file["filename"])) == (200, True), file
    assert "/" not in file["filename"] and "\\" not in file["filename"] and file["filename"].isprintable()
    async with client.request("GET", f"/v1/files/{file['id']}/content", headers=api.headers) as response:
        assert response.status == 200 and await response.read() == jsonl(line(1))
        assert "Set-Cookie" not in response.headers
        disposition = response.headers["Content-Disposition"]
        assert disposition.startswith('attachment; filename="') and disposition.count('"') == 2
