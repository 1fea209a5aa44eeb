"""`POST /v1/audio/speech`: bytes and events as they are made, honest ends, and what is held and charged for them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Account, Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.schemas.speech import MEDIA_TYPES
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import AUDIO
from tests.api.conftest import Client, record_holds, settled
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/audio/speech"
TEXT = "Three herons stand in the reeds."  # 32 characters
CHARACTER = NANO // 1000
SECOND = NANO // 100
TOKEN = NANO // 1000


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Voices priced by character, by second and by token; the fake provider for what never ends."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["forward_params"] = ["seed"]
    model = {"provider": "up", "model": "upstream-v1", "price": {"per_character": 1000}, "endpoints": ["speech"]}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    scripts = {
        "endless": {"endless": True, "interval": 0.01},
        "silent": {"silent_after": 2},
        "cut": {"fail_after": 3, "interval": 0.01},
        "late": {"latency": 2.5},
    }
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"limits": {"commit_after": 0.1, "keepalive_comment": 0.1}},
            "providers": {"up": up, "other": up, "fake": {"plugin": "fake", "models": scripts}},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "v1": model,
                "secret": {**model, "groups": ["inner"]},
                "timed": {**model, "price": {"per_second_out": "0.01"}},
                "tokens": {**model, "price": {"input": 1000, "audio_output": 1000, "output": 1000}},
                "tts-1": {**model, "model": "tts-1"},
                "plain": {**model, "unsupported_params": ["stream_format"]},
                "two": {"targets": places, "strategy": "in_order", "price": model["price"], "endpoints": ["speech"]},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                **{name: {**model, "provider": "fake", "model": name} for name in scripts},
                "endless-timed": {
                    **model, "provider": "fake", "model": "endless", "price": {"per_second_out": "0.01"},
                },
            },
        },
        demo=True,
    )  # fmt: skip


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "v1", "input": TEXT, "voice": "alloy", **fields}


async def speak(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, bytes, bool]:
    """The response, what came of its body, and whether that came to its end."""
    headers = {**client.headers, **fields.pop("headers", {})}
    sound, whole = b"", True
    async with client.request("POST", PATH, json=body(**fields), headers=headers) as response:
        try:
            async for part in response.content.iter_any():
                sound += part
        except aiohttp.ClientError:
            whole = False
    return response, sound, whole


async def refused(client: Client, **fields: Any) -> tuple[int, dict[str, Any]]:
    response, text, _ = await speak(client, **fields)
    return response.status, json.loads(text)["error"]


def events(text: bytes) -> list[dict[str, Any]]:
    frames = [frame for frame in text.decode().split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: {") for frame in frames)
    return [json.loads(frame[6:]) for frame in frames]


async def line_of(ledger: Ledger, response: aiohttp.ClientResponse) -> Any:
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


# Bytes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", sorted(AUDIO))
async def test_every_format_is_streamed_with_its_media_type(
    client: Client, upstream: FakeUpstream, ledger: Ledger, format: str
) -> None:
    response, sound, whole = await speak(client, response_format=format)
    assert (response.status, sound, whole) == (200, AUDIO[format], True)
    assert response.headers["Content-Type"] == MEDIA_TYPES[format]
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert "Content-Length" not in response.headers
    assert (await line_of(ledger, response)).amount == -len(TEXT) * CHARACTER


async def test_default_speech_format_is_mp3(client: Client) -> None:
    response, sound, _ = await speak(client)
    assert (response.headers["Content-Type"], sound) == ("audio/mpeg", AUDIO["mp3"])


async def test_upstream_gets_the_fields_unchanged_and_its_own_model_name(
    client: Client, upstream: FakeUpstream
) -> None:
    response, _, _ = await speak(
        client,
        voice={"id": "voice_1"},
        speed=1.5,
        instructions="softly",
        stream_format="audio",
        api_key="sk-evil",
        seed=1,
    )
    assert upstream.seen[0].json == {
        "model": "upstream-v1", "input": TEXT, "voice": {"id": "voice_1"}, "speed": 1.5, "seed": 1,
        "instructions": "softly",
    }  # fmt: skip
    assert response.headers["x-gateway-dropped-params"] == "api_key"


async def test_first_bytes_arrive_while_the_rest_is_generated(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "audio/pcm"}, frames=[bytes(4800)], end="silence"))
    async with client.request("POST", PATH, json=body(response_format="pcm")) as response:
        assert await response.content.readexactly(4800) == bytes(4800)


# Events --------------------------------------------------------------------------------------------------------------


async def test_audio_events_end_with_usage_and_without_a_done_marker(client: Client, ledger: Ledger) -> None:
    response, text, whole = await speak(client, stream_format="sse", response_format="pcm")
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert whole and b"[DONE]" not in text
    *deltas, last = events(text)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(b64decode(event["audio"]) for event in deltas) == AUDIO["pcm"]
    assert last == {
        "type": "speech.audio.done", "usage": {"input_tokens": 6, "output_tokens": 50, "total_tokens": 56},
    }  # fmt: skip
    assert (await line_of(ledger, response)).amount == -len(TEXT) * CHARACTER


async def test_audio_bytes_of_the_upstream_become_events(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "audio/pcm"}, frames=[AUDIO["pcm"]]))
    _, text, _ = await speak(client, stream_format="sse", response_format="pcm")
    delta, last = events(text)
    assert b64decode(delta["audio"]) == AUDIO["pcm"]
    assert last["usage"]["input_tokens"] == 8  # estimated: a token for four letters
    assert last["usage"]["output_tokens"] == 22  # 21 tokens for a second, rounded up


@pytest.mark.parametrize("model", ["tts-1", "plain"])
async def test_events_are_refused_for_models_without_event_streaming(
    client: Client, upstream: FakeUpstream, accounts: Accounts, model: str
) -> None:
    status, error = await refused(client, model=model, stream_format="sse")
    assert (status, error["code"], error["param"]) == (400, "unsupported_value", "stream_format")
    assert upstream.seen == []
    assert (await accounts.show("acme")).held == 0
    assert (await speak(client, model=model))[0].status == 200


@pytest.mark.slow
async def test_comments_keep_the_connection_alive_during_silence(client: Client) -> None:
    _, text, whole = await speak(client, model="late", stream_format="sse")
    assert text.startswith(b": keep-alive\n\n")
    assert whole and events(text)[-1]["type"] == "speech.audio.done"


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": ""}, "empty_string", "input"),
        ({"input": "x" * 4097}, "string_above_max_length", "input"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": None}, "invalid_type", "input"),
        ({"voice": 7}, "invalid_type", "voice"),
        ({"voice": {}}, "missing_required_parameter", "voice.id"),
        ({"voice": ""}, "empty_string", "voice"),
        ({"speed": 0.2}, "decimal_below_min_value", "speed"),
        ({"speed": 4.1}, "decimal_above_max_value", "speed"),
        ({"speed": "fast"}, "invalid_type", "speed"),
        ({"response_format": "ogg"}, "invalid_value", "response_format"),
        ({"stream_format": "chunks"}, "invalid_value", "stream_format"),
        ({"instructions": "x" * 4097}, "string_above_max_length", "instructions"),
        ({"model": ""}, "empty_string", "model"),
        ({"model": "late", "response_format": "flac"}, "unsupported_value", "response_format"),
        ({"model": "chat"}, "unsupported_parameter", "model"),
    ],
)
async def test_invalid_requests_name_the_field_and_hold_and_send_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, fields: dict[str, Any], code: str, param: str
) -> None:
    status, error = await refused(client, **fields)
    assert (status, error["code"], error["param"]) == (400, code, param)
    assert upstream.seen == []
    account = await accounts.show("acme")
    assert (account.balance, account.held) == (10 * NANO, 0)


@pytest.mark.slow
async def test_voice_that_the_provider_does_not_have_is_named_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    """The provider refuses it after the hold was taken."""

    async def released() -> Account | None:
        account = await accounts.show("acme")
        return account if account.held == 0 else None

    status, error = await refused(client, model="late", voice="nobody")
    assert (status, error["code"], error["param"]) == (400, "invalid_value", "voice")
    assert upstream.seen == []
    account = await until(released)
    assert account.balance == 10 * NANO


@pytest.mark.parametrize("field", ["model", "input", "voice"])
async def test_missing_fields_are_named(client: Client, field: str) -> None:
    document = {name: value for name, value in body().items() if name != field}
    async with client.request("POST", PATH, json=document) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"], error["param"]) == (400, "missing_required_parameter", field)


async def test_model_of_another_group_is_not_permitted(client: Client) -> None:
    assert (await refused(client, model="secret"))[0] == 403


async def test_voice_unknown_to_the_upstream_is_a_caller_error(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    error = {"message": "no voice 'zork'", "type": "invalid_request_error", "param": "voice", "code": None}
    upstream.enqueue(Reply.json({"error": error}, status=400))
    status, told = await refused(client, voice="zork")
    assert (status, told["code"], told["param"]) == (400, "invalid_value", "voice")
    assert (await accounts.show("acme")).balance == 10 * NANO


# Failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        Reply.error(500, "broken"),
        Reply.json({"error": {"message": "overloaded"}}),
        Reply(headers={"Content-Type": "text/html"}, body=b"<html>"),
        Reply(headers={"Content-Type": "audio/mpeg"}, frames=[]),
    ],
)
async def test_failure_before_the_first_byte_is_retried_on_the_next_target(
    client: Client, upstream: FakeUpstream, ledger: Ledger, failure: Reply
) -> None:
    upstream.enqueue(failure)
    response, sound, whole = await speak(client, model="two")
    assert (response.status, sound, whole) == (200, AUDIO["mp3"], True)
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["attempts"]) == (-len(TEXT) * CHARACTER, 2)


async def test_answer_without_audio_is_an_error_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    done = {"type": "speech.audio.done", "usage": {"input_tokens": 3, "output_tokens": 3}}
    upstream.answer = lambda _: Reply.stream([done], done=False)
    status, error = await refused(client, stream_format="sse")
    assert (status, error["code"]) == (502, "upstream_invalid_response")
    account = await settled(accounts)
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_truncated_audio_has_no_clean_end(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "audio/pcm"}, frames=[bytes(4800)], end="cut"))
    response, sound, whole = await speak(client, response_format="pcm")
    assert (response.status, sound, whole) == (200, bytes(4800), False)
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["outcome"]) == (-len(TEXT) * CHARACTER, "upstream_stream_truncated")


async def test_truncated_audio_events_end_with_the_error_frame(client: Client, upstream: FakeUpstream) -> None:
    frame = b'data: {"type":"speech.audio.delta","audio":"AAAA"}\n\n'
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[frame]))
    _, text, whole = await speak(client, stream_format="sse")
    delta, error = events(text)
    assert delta["type"] == "speech.audio.delta"
    assert error["error"]["code"] == "upstream_stream_truncated"
    assert not whole


@pytest.mark.parametrize("form", ["audio", "sse"])
async def test_failure_during_the_audio_is_reported(client: Client, ledger: Ledger, form: str) -> None:
    response, text, whole = await speak(client, model="cut", stream_format=form)
    assert text and not whole
    assert form == "audio" or events(text)[-1]["error"]["code"] == "upstream_error"
    assert (await line_of(ledger, response)).meta["outcome"] == "upstream_error"


@pytest.mark.parametrize("form", ["audio", "sse"])
async def test_caller_that_disconnects_closes_the_upstream_and_pays_for_the_text(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts, form: str
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "audio/mpeg"}, frames=[AUDIO["mp3"]], end="silence"))
    async with client.request("POST", PATH, json=body(stream_format=form)) as response:
        await response.content.readany()
    seen = await upstream.wait_ended()
    assert seen.outcome == "left"
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["outcome"]) == (-len(TEXT) * CHARACTER, "client_closed")
    await until(lambda: _nothing_held(accounts))


async def _nothing_held(accounts: Accounts) -> bool:
    return (await accounts.show("acme")).held == 0


async def test_revoked_key_cuts_the_audio(client: Client, keys: Keys, gateway: Gateway, ledger: Ledger) -> None:
    async with client.request("POST", PATH, json=body(model="endless")) as response:
        await response.content.readany()
        key = next(iter(gateway.active_calls._calls.values())).key
        await keys.revoke(key.id)
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(response.content.read(), 30)
    assert (await line_of(ledger, response)).meta["outcome"] == "invalid_api_key"


# Money ---------------------------------------------------------------------------------------------------------------


async def test_hold_for_characters_is_exact(client: Client, gateway: Gateway, accounts: Accounts) -> None:
    holds = record_holds(gateway)
    await speak(client, input="äöü" * 10)
    assert [hold.amount for hold in holds] == [30 * CHARACTER]
    await until(lambda: _nothing_held(accounts))
    assert (await accounts.show("acme")).balance == 10 * NANO - 30 * CHARACTER


@pytest.mark.holds("prices.md#audio-4")
@pytest.mark.parametrize("format", ["pcm", "wav", "mp3"])
async def test_delivered_seconds_are_charged(client: Client, gateway: Gateway, ledger: Ledger, format: str) -> None:
    holds = record_holds(gateway)
    response, _, _ = await speak(client, model="timed", response_format=format)
    line = await line_of(ledger, response)
    delivered = 1.008 if format == "mp3" else 1.0  # 42 frames of 24 ms
    assert -line.amount == round(delivered * SECOND)
    assert not line.meta.get("estimated")
    assert holds[0].amount >= -line.amount


async def test_seconds_that_only_a_decoder_could_count_are_estimated(client: Client, ledger: Ledger) -> None:
    response, _, _ = await speak(client, model="timed", response_format="flac")
    line = await line_of(ledger, response)
    assert line.meta["estimated"]
    assert 0.9 * SECOND < -line.amount < 1.1 * SECOND


@pytest.mark.holds("prices.md#audio-4")
async def test_sound_that_claims_impossible_seconds_is_estimated_flagged_and_logged(
    client: Client, upstream: FakeUpstream, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    page = b"OggS\0\4" + (48_000 * 10**9).to_bytes(8, "little") + bytes(13)  # thirty years
    upstream.enqueue(Reply(body=page + bytes(8_000 - len(page)), headers={"Content-Type": "audio/ogg"}))
    response, _, _ = await speak(client, model="timed", response_format="opus")
    line = await line_of(ledger, response)
    assert (-line.amount, line.meta["estimated"]) == (SECOND, True)  # 64 kbit/s
    text = f"{response.headers['x-request-id']}: impossible seconds from up, estimated"
    assert text in [record.getMessage() for record in caplog.records]


@pytest.mark.holds("prices.md#audio-4")
async def test_sound_without_any_length_is_estimated(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply(body=bytes(8_000), headers={"Content-Type": "audio/ogg"}))
    response, _, _ = await speak(client, model="timed", response_format="opus")
    line = await line_of(ledger, response)
    assert (-line.amount, line.meta["estimated"]) == (SECOND, True)


@pytest.mark.holds("prices.md#audio-4")
async def test_seconds_of_a_wav_do_not_follow_a_false_byte_rate(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    sound = bytearray(AUDIO["wav"])
    sound[28:32] = (480_000).to_bytes(4, "little")
    upstream.enqueue(Reply(body=bytes(sound), headers={"Content-Type": "audio/wav"}))
    response, _, _ = await speak(client, model="timed", response_format="wav")
    assert -(await line_of(ledger, response)).amount == SECOND


async def test_tokens_are_charged_by_the_upstreams_count(client: Client, ledger: Ledger) -> None:
    response, _, _ = await speak(client, model="tokens", stream_format="sse")
    line = await line_of(ledger, response)
    assert -line.amount == (6 + 50) * TOKEN
    assert not line.meta.get("estimated")


@pytest.mark.parametrize("usage", [{"input_tokens": -5, "output_tokens": 3}, {"output_tokens": 10**18}, "many", None])
async def test_missing_or_impossible_usage_is_estimated(
    client: Client, upstream: FakeUpstream, ledger: Ledger, gateway: Gateway, usage: Any
) -> None:
    holds = record_holds(gateway)
    done = {"type": "speech.audio.done", "usage": usage}
    delta = b'data: {"type":"speech.audio.delta","audio":"%b"}\n\n' % (b"AAAA" * 16_000)  # a second
    upstream.enqueue(Reply.stream([delta, done], done=False))
    response, _, _ = await speak(client, model="tokens", stream_format="sse", response_format="pcm")
    line = await line_of(ledger, response)
    assert -line.amount == (8 + 22) * TOKEN
    assert line.meta["estimated"]
    assert holds[0].amount >= -line.amount


async def test_endless_audio_stops_when_the_balance_is_used_up(
    client: Client, accounts: Accounts, keys: Keys, ledger: Ledger, gateway: Gateway
) -> None:
    await accounts.create("poor", balance=20 * SECOND)
    key = await keys.create("poor")
    holds = record_holds(gateway)
    headers = {"Authorization": f"Bearer {key.text}"}
    response, text, whole = await speak(
        client, model="endless-timed", stream_format="sse", response_format="pcm", headers=headers
    )
    assert not whole
    assert events(text)[-1]["error"]["type"] == "insufficient_quota"
    line = await until(lambda: last_line(ledger, "poor", response.headers["x-request-id"]))
    assert -line.amount <= holds[0].amount + SECOND // 5  # one chunk more, at most
    assert (await accounts.show("poor")).balance >= 0


async def test_insufficient_balance_is_refused_before_the_upstream(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    await accounts.create("poor", balance=31 * CHARACTER)
    key = await keys.create("poor")
    status, error = await refused(client, headers={"Authorization": f"Bearer {key.text}"})
    assert (status, error["type"]) == (429, "insufficient_quota")
    assert upstream.seen == []


@pytest.mark.parametrize("form", ["audio", "sse"])
async def test_same_idempotency_key_synthesizes_once(
    client: Client, upstream: FakeUpstream, accounts: Accounts, form: str
) -> None:
    headers = {"Idempotency-Key": "line-1"}
    first, sound, _ = await speak(client, stream_format=form, headers=headers)
    again, repeated, whole = await speak(client, stream_format=form, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (repeated, whole) == (sound, True)
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert len(upstream.seen) == 1
    assert (await settled(accounts)).balance == 10 * NANO - len(TEXT) * CHARACTER
