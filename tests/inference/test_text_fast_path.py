"""Text that goes past the generators: nobody can tell from the answer, the bill or the record which way it came."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from msgspec import structs

from gateway.amounts import NANO
from gateway.api.inference_handler import InferenceHandler
from gateway.encoders.chat import ChatStreamEncoder
from gateway.http_client.response import Response
from gateway.http_server.client_writer import ClientWriter
from gateway.inference import event_stream, text_fast_path
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import Slot
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway_providers._shared.text_events import MAX_UNUSED
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import USAGE, chunk, documents, text_of
from tests.ledger_lines import last_line
from tests.polling import until, until_still

PAUSE = 0.004  # seconds between frames, so that each is one piece and finds its reader waiting


def words(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"content": text}) for text in texts]


def two_choices(index: int, text: str) -> dict[str, Any]:
    return {**chunk(), "choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]}


TOOL = chunk({"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "f"}}]})
END = [chunk(finish="stop"), {**chunk(), "choices": [], "usage": USAGE}]
STREAMS = {
    "words": [*words(*"abcdefgh"), *END],
    "every kind of text": [
        *words("a", "b", "é", "\n", '"', "\\", "\U0001f600", "\0", " ", "", "data: x\n\n", "z"),
        *END,
    ],
    "between other things": [
        *words("a", "b", "c"),
        chunk({"reasoning_content": "hm"}),
        *words("d", "e"),
        TOOL,
        *words("f", "g"),
        chunk({"content": "h", "role": "assistant"}),
        chunk({"content": None}),
        *words("i", "j"),
        *END,
        *words("too late"),
    ],
    "two choices": [
        *(two_choices(index, text) for index, text in [(0, "a"), (0, "b"), (0, "c"), (1, "d"), (1, "e"), (0, "f")]),
        *(two_choices(index, text) for index, text in [(1, "g"), (1, "h"), (0, "i"), (0, "j"), (1, "k"), (0, "l")]),
        chunk(finish="stop"),
        *(two_choices(1, text) for text in "mno"),
        {**chunk(finish="stop"), "choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
    ],
    "ids that change": [chunk({"content": "a"}, id=f"up-{number}") for number in range(12)] + END,
    "counts in each": [chunk({"content": "a"}, usage={**USAGE, "completion_tokens": n}) for n in range(5)] + END,
    "counts that come back": [
        *(chunk({"content": "a"}, usage=USAGE) for _ in range(3)),
        {**chunk(), "choices": [], "usage": {**USAGE, "completion_tokens": 1}},
        *(chunk({"content": "a"}, usage=USAGE) for _ in range(3)),
        chunk(finish="stop"),
    ],
    "other tiers": [
        *(chunk({"content": "a"}, service_tier=tier) for tier in ["default"] * 3 + ["flex"] * 3 + ["default"] * 3),
        *END,
    ],
    "no finish": words(*"abcdefgh"),
    "an error at last": [*words(*"abcdef"), {"error": {"message": "boom"}}],
}


VARYING = {"ids that change", "counts in each", "counts that come back"}  # which cannot go past


@pytest.mark.parametrize("name", STREAMS)
async def test_answer_and_record_are_the_same_with_and_without_the_fast_path(
    client: Client,
    upstream: FakeUpstream,
    gateway: Gateway,
    ledger: Ledger,
    name: str,
    taken: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(gateway.ids), "completion_id", lambda self, request_id: "chatcmpl-same")
    monkeypatch.setattr("gateway.api.endpoints.chat.time.time", lambda: 1.0)
    chunks: list[int] = []
    settle = gateway.settlement.settle

    def settled(call: Any, usage: Any) -> Any:
        chunks.append(call.chunks)
        return settle(call, usage)

    monkeypatch.setattr(gateway.settlement, "settle", settled)
    seen, frames = [], STREAMS[name]
    for lane in (True, False):
        if not lane:
            monkeypatch.setattr(event_stream, "open_fast_path", lambda *args, **others: None)
        upstream.enqueue(Reply.stream(frames, interval=PAUSE, done=frames[-1] is not STREAMS["no finish"][-1]))
        taken.clear()
        response, text, failure = await client.stream(n=2, service_tier="auto", stream_options={"include_usage": True})
        assert bool(taken) == (lane and name not in VARYING)
        request_id = response.headers["x-request-id"]
        line = await until(lambda request_id=request_id: last_line(ledger, "acme", request_id))
        seen.append(
            (text.replace(request_id, ""), type(failure), line.meta["usage"], line.meta["outcome"], line.amount)
        )
    assert seen[0] == seen[1]
    assert chunks[0] == chunks[1]


async def test_events_that_arrive_together_take_the_fast_path_together(
    client: Client, upstream: FakeUpstream, taken: list[str]
) -> None:
    reply = Reply.stream([*words(*"abcdef"), *END], interval=PAUSE)
    assert reply.frames is not None
    reply.frames[3:6] = [b"".join(reply.frames[3:6])]
    upstream.enqueue(reply)
    _, text, failure = await client.stream()
    assert failure is None
    assert text_of(text) == "abcdef"
    assert "".join(taken).endswith("def")


async def test_fast_path_is_used_for_a_stream_whose_chunk_form_changes_every_second(
    client: Client, upstream: FakeUpstream, taken: list[str]
) -> None:
    chunks = [chunk({"content": text}, created=second) for second in range(2 * MAX_UNUSED) for text in "abc"]
    upstream.enqueue(Reply.stream([*chunks, *END], interval=PAUSE))
    _, text, failure = await client.stream()
    assert failure is None
    assert text_of(text) == "abc" * 2 * MAX_UNUSED
    assert "".join(taken).endswith("bc" * MAX_UNUSED)


async def test_chunk_form_found_at_the_last_try_is_used_for_the_fast_path(
    client: Client, upstream: FakeUpstream, taken: list[str]
) -> None:
    chunks = [chunk({"content": "a"}, created=second) for second in range(MAX_UNUSED)]
    chunks += [chunk({"content": text}, created=second) for second in range(100, 103) for text in "bcd"]
    upstream.enqueue(Reply.stream([*chunks, *END], interval=PAUSE))
    _, text, _ = await client.stream()
    assert text_of(text) == "a" * MAX_UNUSED + "bcd" * 3
    assert "".join(taken) == "cd" * 3


async def test_text_that_arrives_after_the_client_disconnected_is_not_charged(
    client: Client, upstream: FakeUpstream, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Response] = []
    take, left, settle = Response.take, InferenceHandler.on_connection_close, gateway.settlement.settle
    charged: list[Any] = []

    def taking(incoming: Response, lane: Any = None) -> Any:
        answers.append(incoming)
        return take(incoming, lane)

    def leaving(handler: InferenceHandler) -> None:
        left(handler)
        answers[-1].push(late[0])  # as if it had been read in the same turn of the loop

    def settled(call: Any, usage: Any) -> Any:
        charged.append(usage)
        return settle(call, usage)

    monkeypatch.setattr(Response, "take", taking)
    monkeypatch.setattr(InferenceHandler, "on_connection_close", leaving)
    monkeypatch.setattr(gateway.settlement, "settle", settled)
    late = Reply.stream(words("x" * 400)).frames or []
    upstream.enqueue(structs.replace(Reply.stream(words(*"abcd"), interval=PAUSE), end="silence"))
    reading = asyncio.create_task(client.stream())
    await upstream.wait_started(frames=4)
    reading.cancel()
    await until(lambda: charged)
    assert charged[0].out_text <= 1


async def test_fast_path_is_not_used_for_a_stream_whose_chunks_all_differ(
    client: Client, upstream: FakeUpstream, taken: list[str]
) -> None:
    chunks = [chunk({"content": "a"}, created=second) for second in range(2 * MAX_UNUSED)]
    chunks += words(*"bbbb")
    upstream.enqueue(Reply.stream([*chunks, *END], interval=PAUSE))
    _, text, _ = await client.stream()
    assert text_of(text) == "a" * 2 * MAX_UNUSED + "bbbb"
    assert not taken


async def test_client_that_does_not_read_pauses_the_upstream(
    client: Client, upstream: FakeUpstream, accounts: Any, keys: Any, taken: list[str]
) -> None:
    await accounts.create("rich", balance=1000 * NANO)
    key = await keys.create("rich", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    text = "word " * 6000
    upstream.enqueue(Reply.stream([*words(*[text] * 500), *END], interval=0.001))  # 15 MB
    host, port = client.base_url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    with socket.create_connection((host, int(port))) as sock:
        sock.setblocking(False)
        body = b'{"model":"m1","stream":true,"max_tokens":6000000,"messages":[{"role":"user","content":"Hi"}]}'
        headers = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items()).encode()
        start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n" % (len(body), headers)
        await loop.sock_sendall(sock, start + body)
        await until(lambda: upstream.seen and upstream.seen[0].frames > 100)
        assert await until_still(lambda: upstream.seen[0].frames) < 450
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            piece = await loop.sock_recv(sock, 1 << 20)
            assert piece, received[-500:]
            received += piece
    assert taken
    assert received.count(text.encode()) == 500
    assert b"data: [DONE]" in received


async def test_fast_path_stops_when_the_balance_is_used_up(
    client: Client, upstream: FakeUpstream, accounts: Any, keys: Any, taken: list[str]
) -> None:
    await accounts.create("small", balance=NANO // 200)  # 0.005: 2,500 tokens of output
    key = await keys.create("small", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    upstream.enqueue(Reply.stream([*words(*["word " * 80] * 60), *END], interval=PAUSE))  # 100 tokens each
    _, text, _ = await client.stream()
    assert documents(text)[-1]["error"]["type"] == "insufficient_quota"
    assert taken

    async def settled() -> Any:
        account = await accounts.show("small")
        return account if account.held == 0 else None

    account = await until(settled)
    assert -100 * 2 * NANO // 1_000_000 <= account.balance < NANO // 1000


async def test_failure_in_the_fast_path_ends_the_stream_with_an_error_frame(
    client: Client, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(encoder: ChatStreamEncoder, *args: Any, **others: Any) -> bytes:
        raise LookupError("broken")

    monkeypatch.setattr(ChatStreamEncoder, "feed_texts", broken)
    upstream.enqueue(Reply.stream([*words(*"abcdef"), *END], interval=PAUSE))
    _, text, failure = await client.stream()
    assert documents(text)[-1]["error"]["code"] == "upstream_error"
    assert "[DONE]" not in text
    assert failure is not None
    assert (await upstream.wait_ended()).outcome == "left"


async def test_text_is_counted_as_delivered_right_before_it_is_sent(
    client: Client, upstream: FakeUpstream, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed in between has charged for what it sent, and for one piece more at most."""
    events: list[str] = []
    push, delivered = ClientWriter.send_chunk, Slot.delivered

    def sent(writer: ClientWriter, data: bytes) -> Any:
        events.append("sent")
        return push(writer, data)

    def noted(place: Slot, units: int) -> None:
        events.append("noted")
        delivered(place, units)

    monkeypatch.setattr(ClientWriter, "send_chunk", sent)
    monkeypatch.setattr(Slot, "delivered", noted)
    upstream.enqueue(Reply.stream([*words(*"abcdef"), *END], interval=PAUSE))
    await client.stream()
    assert len(taken) >= 4
    noted_at = [position for position, event in enumerate(events) if event == "noted"]
    assert len(noted_at) >= 6
    assert all(events[position + 1] == "sent" for position in noted_at[1:])  # the first is sent with the headers


async def test_fast_path_is_closed_with_its_stream(
    client: Client, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = []
    opened = text_fast_path.open_fast_path

    def noted(rest: Any, *args: Any, **others: Any) -> Any:
        lanes.append(rest.lane)
        return opened(rest, *args, **others)

    monkeypatch.setattr(event_stream, "open_fast_path", noted)
    upstream.enqueue(Reply.stream([*words(*"abc"), *END], interval=PAUSE))
    await client.stream()
    assert [lane.take for lane in lanes] == [None]
