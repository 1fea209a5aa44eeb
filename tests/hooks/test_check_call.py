"""`check_call`: a hook sees each request before its hold, and may refuse or replace it, at every endpoint."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway import CheckedCall, errors
from gateway.accounts.accounts import Accounts
from gateway.inference.hooked_call import document_of
from gateway.plugins.texts import texts_of
from gateway.runtime.gateway import Gateway
from gateway.runtime.watchdog import Stall, note_stall
from gateway.schemas.duplicate_keys import own_request
from gateway.testing import FakeUpstream
from gateway.testing.image_edit_cases import PIXEL
from gateway.testing.reply import Reply
from tests.api.conftest import record_holds, settled
from tests.inference.test_garbage_endpoints import Ask
from tests.polling import until

from .conftest import Client, Scripted, counted

WORD = "Kestrel"
SAID = f"one {WORD} two"
ASKS = {
    "chat": Ask("chat/completions", messages=[{"role": "user", "content": SAID}], user=WORD),
    "chat, streamed": Ask("chat/completions", messages=[{"role": "user", "content": SAID}], stream=True),
    "chat, parts and tools": Ask(
        "chat/completions",
        messages=[
            {"role": "system", "content": [{"type": "text", "text": SAID}]},
            {"role": "user", "name": WORD, "content": [{"type": "text", "text": SAID}]},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": "K\\u0065strel", "b": ["Kestrel"]}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": SAID},
        ],
        tools=[{"type": "function", "function": {"name": "f", "description": SAID, "parameters": {"title": WORD}}}],
        stop=[WORD],
        metadata={"a": WORD},
        prediction={"type": "content", "content": SAID},
    ),
    "completions": Ask("completions", prompt=SAID, suffix=WORD),
    "completions, several": Ask("completions", prompt=[SAID, WORD]),
    "responses": Ask("responses", input=SAID, instructions=SAID),
    "responses, items": Ask(
        "responses",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": SAID}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":"K\\u0065strel"}'},
            {"type": "function_call_output", "call_id": "c", "output": SAID},
        ],
    ),
    "embeddings": Ask("embeddings", input=[SAID, WORD]),
    "moderations": Ask("moderations", input=SAID),
    "images": Ask("images/generations", prompt=SAID),
    "edits": Ask("images/edits", image=PIXEL, prompt=SAID),
    "speech": Ask("audio/speech", voice="alloy", input=SAID, instructions=SAID),
    "transcriptions": Ask("audio/transcriptions", seconds=1.0, prompt=SAID),
    "rerank": Ask("rerank", query=SAID, documents=[WORD, {"text": SAID}]),
}


async def mask(call: CheckedCall) -> Any:
    return call.with_texts(lambda text: text.replace(WORD, "bird"))


def sent(upstream: FakeUpstream) -> bytes:
    """All that the upstream got, with escapes in it resolved once more."""
    bodies = b"\n".join(b"%b %b" % (seen.path.encode(), seen.body) for seen in upstream.seen)
    return bodies + bodies.replace(b"\\\\u0065", b"e").replace(b"\\u0065", b"e")


@pytest.mark.parametrize("name", ASKS)
async def test_a_masked_word_never_reaches_an_upstream(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, name: str
) -> None:
    ask = ASKS[name]
    scripted.on_call = mask

    assert await ask.send(client, "m") == 200

    assert upstream.seen and WORD.encode() not in sent(upstream) and b"bird" in sent(upstream)
    counted(gateway)
    upstream.seen.clear()
    assert await ask.send(client, "free") == 200, "a model without the hook"
    assert WORD.encode() in sent(upstream)


@pytest.mark.parametrize(
    ("model", "path", "body", "headers"),
    [
        ("native", "/v1/responses", {**ASKS["responses, items"].fields, "instructions": SAID}, {}),
        (
            "claude",
            "/v1/messages",
            {
                "max_tokens": 50,
                "system": SAID,
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": SAID}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": SAID}}
                        ],
                    },
                ],
                "tools": [{"name": "f", "description": SAID, "input_schema": {"type": "object", "title": WORD}}],
                "metadata": {"user_id": WORD},
            },
            {"anthropic-version": "2023-06-01"},
        ),
        (
            "gemini",
            "/v1beta/models/gemini:generateContent",
            {
                "contents": [
                    {"role": "user", "parts": [{"text": SAID}, {"functionCall": {"name": "f", "args": {"a": WORD}}}]}
                ],
                "systemInstruction": {"parts": [{"text": SAID}]},
                "tools": [{"functionDeclarations": [{"name": "f", "description": SAID}]}],
            },
            {},
        ),
    ],
)
async def test_a_masked_word_never_reaches_an_upstream_of_the_callers_own_dialect(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, model: str, path: str, body: Any, headers: Any
) -> None:
    """The request is forwarded as it was sent, apart from the masked word."""
    scripted.on_call = mask
    upstream.enqueue(Reply.error(400, "enough"), Reply.error(400, "enough"))
    names = {**client.headers, **headers}

    async with client.request("POST", path, json={"model": model, **body}, headers=names) as response:
        assert response.status == 400 and upstream.seen
    assert WORD.encode() not in sent(upstream) and b"bird" in sent(upstream)

    scripted.on_call = None
    async with client.request("POST", path, json={"model": model, **body}, headers=names) as response:
        assert response.status == 400
    assert WORD.encode() in sent(upstream)


@pytest.mark.parametrize("name", ASKS)
async def test_a_refusal_holds_nothing_and_calls_no_upstream(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, name: str
) -> None:
    async def refuse(call: CheckedCall) -> Any:
        raise errors.InvalidValue("Not this", code="forbidden_word", param="messages")

    scripted.on_call = refuse
    holds = record_holds(gateway)

    assert await ASKS[name].send(client, "m") == 400

    assert (holds, upstream.seen) == ([], [])
    assert counted(gateway) == {("check", "check_call", "refused"): 1.0}


async def test_a_refusal_has_the_status_code_and_text_of_the_hook_without_secrets(
    client: Client, scripted: type[Scripted]
) -> None:
    async def refuse(call: CheckedCall) -> Any:
        raise errors.InvalidValue("Not this: sk-secret0123456789abcdef at http://10.0.0.1:99/x", code="forbidden_word")

    scripted.on_call = refuse
    response, answer = await client.chat(model="m")
    assert (response.status, answer["error"]["code"]) == (400, "forbidden_word")
    assert "sk-secret" not in str(answer) and "10.0.0.1" not in str(answer)


async def test_a_hook_sees_who_calls_what(client: Client, gateway: Gateway, scripted: type[Scripted]) -> None:
    headers = {**client.headers, "x-session-id": "s-1"}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    async with client.request("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200
    [call] = scripted.calls
    assert (call.endpoint, call.model, call.account, call.user, call.stream) == ("chat", "m", "acme", "", False)
    assert call.request_id == response.headers["x-request-id"]
    assert call.document == body
    assert call.request.messages[0].content == "Hi"
    assert list(call.texts()) == ["m", "user", "Hi"]


async def test_a_hook_that_changes_what_it_sees_changes_nothing(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    async def meddle(call: CheckedCall) -> Any:
        call.document["messages"][0]["content"] = "other"
        call.request.messages[0].content = "other"
        call.request.fields.clear()

    scripted.on_call = meddle
    response, _ = await client.chat(model="m")
    assert response.status == 200 and b"other" not in upstream.seen[-1].body and b"Hi" in upstream.seen[-1].body


async def test_the_replaced_request_is_held_and_charged(
    client: Client, gateway: Gateway, scripted: type[Scripted], accounts: Accounts
) -> None:
    async def enlarge(call: CheckedCall) -> Any:
        return {**call.document, "messages": [{"role": "user", "content": "word " * 4000}]}

    holds = record_holds(gateway)
    await client.chat(model="m", max_tokens=10)
    scripted.on_call = enlarge
    await client.chat(model="m", max_tokens=10)
    assert holds[1].amount > holds[0].amount + 3000 * 1000
    await settled(accounts)


def _more(**changes: Any) -> Any:
    async def replaced(call: CheckedCall) -> Any:
        return {**call.document, **changes}

    return replaced


async def _raises(call: CheckedCall) -> Any:
    raise RuntimeError("secret-of-the-plugin")


async def _exits(call: CheckedCall) -> Any:
    raise SystemExit


async def _cancels_itself(call: CheckedCall) -> Any:
    raise asyncio.CancelledError


async def _unreachable(call: CheckedCall) -> Any:
    raise errors.UpstreamUnreachable()


async def _returns(call: CheckedCall) -> Any:
    return ["no dict"]


async def _cannot_be_written(call: CheckedCall) -> Any:
    return {**call.document, "x": object()}


FAILURES = {
    "it raises": (_raises, "failed"),
    "it exits": (_exits, "failed"),
    "it cancels itself": (_cancels_itself, "failed"),
    "its server is away": (_unreachable, "failed"),
    "it returns something else": (_returns, "invalid"),
    "it returns no JSON": (_cannot_be_written, "invalid"),
    "it changes the model": (_more(model="free"), "invalid"),
    "it asks for a stream": (_more(stream=True), "invalid"),
    "it asks for a longer answer": (_more(max_tokens=11), "invalid"),
    "it asks for more answers": (_more(n=2), "invalid"),
    "it writes an invalid request": (_more(messages=[]), "invalid"),
    "it writes a huge request": (_more(user="x" * (33 << 20)), "invalid"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failed_check_refuses_the_call(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, name: str
) -> None:
    scripted.on_call, outcome = FAILURES[name]
    response, answer = await client.chat(model="m", max_tokens=10)
    assert (response.status, answer["error"]["code"], upstream.seen) == (503, "service_unavailable", [])
    assert "secret-of-the-plugin" not in str(answer)
    assert counted(gateway) == {("check", "check_call", outcome): 1.0}


class TestOpen:
    @pytest.fixture
    def hook_settings(self) -> dict[str, Any]:
        return {"timeout": 20, "on_failure": "open"}

    @pytest.mark.parametrize("name", FAILURES)
    async def test_a_call_goes_on_as_it_was_sent_if_the_hook_may_fail(
        self, client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, name: str
    ) -> None:
        scripted.on_call, outcome = FAILURES[name]
        response, _ = await client.chat(model="m", max_tokens=10)
        assert response.status == 200
        assert msgspec.json.decode(upstream.seen[-1].body)["messages"] == [{"role": "user", "content": "Hi"}]
        assert counted(gateway)["check", "check_call", outcome] == 1.0


class TestTimeLimit:
    @pytest.fixture
    def hook_settings(self) -> dict[str, Any]:
        return {"timeout": 0.05, "concurrency": 2}

    async def test_a_hook_that_swallows_its_cancellation_does_not_hold_the_call(
        self, client: Client, gateway: Gateway, scripted: type[Scripted]
    ) -> None:
        release = asyncio.Event()

        async def stubborn(call: CheckedCall) -> Any:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        scripted.on_call = stubborn
        outcomes = [(await client.chat(model="m"))[0].status for _ in range(3)]
        assert outcomes == [503, 503, 503]
        counts = counted(gateway)
        assert counts == {("check", "check_call", "timeout"): 2.0, ("check", "check_call", "busy"): 1.0}
        assert len(gateway.dispatcher.stuck) == 2
        release.set()
        await until(lambda: not len(gateway.dispatcher.stuck))
        scripted.on_call = None

        async def is_served() -> bool:  # a busy machine may take longer than the limit
            return (await client.chat(model="m"))[0].status == 200

        await until(is_served)


class TestQuarantine:
    async def test_a_hook_that_keeps_failing_is_quarantined_and_probed(
        self, client: Client, gateway: Gateway, scripted: type[Scripted]
    ) -> None:
        scripted.on_call = _raises
        for _ in range(6):
            await client.chat(model="m")
        counts = counted(gateway)
        assert counts == {("check", "check_call", "failed"): 5.0, ("check", "check_call", "quarantined"): 1.0}
        assert len(scripted.calls) == 5
        assert (await client.chat(model="free"))[0].status == 200, "models without the hook are served"

        gateway.health.provider("hooks/check").due(0.0)
        scripted.on_call = None
        assert (await client.chat(model="m"))[0].status == 200
        assert gateway.health.all_closed

    async def test_a_hook_that_blocks_the_event_loop_is_quarantined(
        self, client: Client, gateway: Gateway, scripted: type[Scripted]
    ) -> None:
        assert "hooks/check" in gateway.watchdog.names("tests", "")
        for _ in range(5):
            note_stall(gateway, Stall(0.7, "tests", "hook.py:1 in check_call", "hooks/check"))
        assert (await client.chat(model="m"))[0].status == 503
        assert scripted.calls == []

    async def test_no_plugin_sees_a_call_of_a_revoked_key(
        self, client: Client, gateway: Gateway, scripted: type[Scripted], keys: Any, api_key: Any
    ) -> None:
        assert (await client.chat(model="m"))[0].status == 200  # the worker knows the key
        scripted.calls.clear()
        await keys.revoke(api_key.id)
        assert (await client.chat(model="m"))[0].status == 401
        assert scripted.calls == []


async def test_an_idempotency_key_stays_that_of_the_callers_body(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    scripted.on_call = mask
    headers = {**client.headers, "Idempotency-Key": "k-1"}
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    answers = []
    for _ in range(2):
        async with client.request("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            answers.append(await response.read())
    assert answers[0] == answers[1] and len(upstream.seen) == 1
    masked = {"model": "m", "messages": [{"role": "user", "content": "one bird two"}]}
    async with client.request("POST", "/v1/chat/completions", json=masked, headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize("size", [70_000, 300_000, 900_000])
async def test_a_large_request_is_masked_as_a_whole(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, size: int
) -> None:
    scripted.on_call = mask
    text = f"{SAID} " * (size // len(SAID))
    response, _ = await client.chat(model="m", messages=[{"role": "user", "content": text}], max_tokens=5)
    assert response.status == 200 and WORD.encode() not in sent(upstream) and b"bird" in sent(upstream)


async def test_a_lone_surrogate_hides_no_word(client: Client, scripted: type[Scripted], upstream: FakeUpstream) -> None:
    scripted.on_call = mask
    body = b'{"model":"m","messages":[{"role":"user","content":"\\ud800 K\\u0065strel"}]}'
    async with client.request("POST", "/v1/chat/completions", data=body) as response:
        assert response.status == 200
    assert WORD.encode() not in sent(upstream) and b"bird" in sent(upstream)


def test_the_body_of_a_socket_has_its_tools() -> None:
    document = {"model": "m", "input": "Hi", "tools": [{"type": "function", "name": WORD}]}
    assert document_of(own_request(document)) == document


async def test_the_record_of_a_call_names_its_hooks(client: Client, gateway: Gateway, scripted: type[Scripted]) -> None:
    scripted.on_call = mask
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    async with client.request("POST", "/v1/chat/completions", json=body) as response:
        request_id = response.headers["x-request-id"]

    async def receipt() -> Any:
        async with client.request("GET", f"/v1/usage/{request_id}") as response:
            return await response.json() if response.status == 200 else None

    assert (await until(receipt))["hooks"] == {"check": "replaced"}


def test_texts_are_all_strings_but_content_in_base64() -> None:
    data = "QUJD" * 40
    document = {
        "a": "one",
        "b": [{"data": data, "text": data}, "two"],
        "url": f"data:image/png;base64,{data}",
        "source": {"type": "text", "data": data},
        "content": "data:a;base64,Kestrel",
        "c": ["data:a;base64,Kestrel"],
        "arguments": '{"x": "th\\u0072ee"}',
    }
    hidden = "data:a;base64,Kestrel"
    assert list(texts_of(document)) == ["one", data, "two", "text", data, hidden, hidden, "three"]
