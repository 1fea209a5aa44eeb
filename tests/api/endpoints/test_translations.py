"""`POST /v1/audio/translations`: what goes up, every form of the answer, every refusal, what is held and charged."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import read_form
from tests.api.conftest import Client, record_holds, settled
from tests.api.endpoints.test_transcriptions import Part, encode, line_of, spooled, untouched, wav

from .test_transcriptions import LIMIT, SECOND, TOKEN

PATH = "/v1/audio/translations"


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models on servers that translate, on servers that do not, and on both."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {
        "provider": "up", "model": "upstream-t1", "price": {"per_second_in": "0.01"}, "endpoints": ["transcription"],
    }  # fmt: skip
    places = [{"provider": "deaf", "model": "first"}, {"provider": "up", "model": "second"}]
    either = {"strategy": "in_order", "price": model["price"], "endpoints": model["endpoints"]}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"limits": {"max_audio_body": LIMIT}},
            "providers": {
                "up": {**up, "forward_params": ["seed"]},
                "deaf": {**up, "translations": False},
                "gemini": {"plugin": "gemini", "api_key": "AIzaSycanary-0123456789"},
                "fake": {"plugin": "fake"},
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "t1": model,
                "secret": {**model, "groups": ["inner"]},
                "tokens": {**model, "price": {"input": 1000, "audio_input": 1000, "output": 1000}},
                "whisper-1": {**model, "model": "whisper-1"},
                "deaf": {**model, "provider": "deaf"},
                "gemini": {**model, "provider": "gemini", "model": "gemini-2.5-flash"},
                "two": {"targets": places, **either},
                "pair": {"targets": [places[1], {"provider": "up", "model": "third"}], **either},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "fake": {**model, "provider": "fake"},
            },
        },
        demo=True,
    )


async def send(
    client: Client, *fields: Part, model: str = "t1", headers: dict[str, str] | None = None, **form: Any
) -> tuple[aiohttp.ClientResponse, str]:
    """The response to a form, and its text."""
    data = io.BytesIO(encode(("model", model), *fields, **form))
    kind = {"Content-Type": "multipart/form-data; boundary=edge"}
    async with client.request("POST", PATH, data=data, headers={**client.headers, **kind, **(headers or {})}) as answer:
        return answer, await answer.text()


# What goes up and comes down -----------------------------------------------------------------------------------------


async def test_upstream_gets_the_file_and_the_fields(client: Client, upstream: FakeUpstream) -> None:
    fields = [("prompt", "Herons."), ("temperature", "0.5"), ("seed", "7")]
    response, text = await send(client, *fields, file=wav(0.5))
    assert (response.status, json.loads(text)) == (200, {"text": f"I heard {len(wav(0.5))} bytes"})
    assert upstream.seen[0].path == "/v1/audio/translations"
    texts, size = read_form(upstream.seen[0])
    assert texts == {"model": "upstream-t1", "response_format": "json", **dict(fields)}
    assert size == len(wav(0.5))


async def test_fields_of_transcriptions_alone_are_left_out_and_named(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await send(client, ("language", "de"), ("stream", "true"), ("timestamp_granularities[]", "word"))
    assert (response.status, response.content_type) == (200, "application/json")
    assert set(read_form(upstream.seen[0])[0]) == {"model", "response_format"}
    dropped = set(response.headers["x-gateway-dropped-params"].split(","))
    assert dropped == {"language", "stream", "timestamp_granularities"}


async def test_verbose_json_says_that_it_is_a_translation_into_english(client: Client) -> None:
    _, text = await send(client, ("response_format", "verbose_json"))
    document = json.loads(text)
    assert set(document) == {"task", "language", "duration", "text", "segments"}
    assert (document["task"], document["language"], document["duration"]) == ("translate", "english", 3.0)
    assert [segment["text"] for segment in document["segments"]] == ["I heard", f"{len(wav())} bytes"]


async def test_language_is_english_whatever_the_upstream_calls_it(client: Client, upstream: FakeUpstream) -> None:
    """Some servers name the language that was spoken."""
    upstream.enqueue(Reply.json({"text": "Herons.", "language": "german", "duration": 1.5, "segments": []}))
    _, text = await send(client, ("response_format", "verbose_json"))
    assert json.loads(text)["language"] == "english"


@pytest.mark.parametrize(
    ("form", "begin"), [("text", "I heard "), ("srt", "1\n00:00:00,000 --> 00:00:01,500\n"), ("vtt", "WEBVTT\n\n")]
)
async def test_text_formats_are_written_by_the_gateway(client: Client, form: str, begin: str) -> None:
    response, text = await send(client, ("response_format", form))
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert text.startswith(begin) and text.endswith("\n")


async def test_deployment_of_the_path_is_the_model(client: Client, upstream: FakeUpstream) -> None:
    headers = {**client.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    path = "/openai/deployments/t1/audio/translations"
    async with client.request("POST", path, data=io.BytesIO(encode()), headers=headers) as response:
        assert response.status == 200
    assert upstream.seen[0].path == "/v1/audio/translations"


async def test_provider_without_a_network_translates(client: Client) -> None:
    response, text = await send(client, model="fake")
    assert response.status == 200 and json.loads(text)["text"].startswith("I heard")


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["deaf", "gemini"])
async def test_model_that_does_not_translate_is_refused_and_nothing_is_held_or_sent(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path, model: str
) -> None:
    response, text = await send(client, model=model)
    error = json.loads(text)["error"]
    assert (response.status, error["code"], error["param"]) == (400, "unsupported_parameter", "model")
    assert "translate" in error["message"]
    await untouched(accounts, upstream, tmp_path)


async def test_only_targets_that_translate_are_asked(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await send(client, model="two")
    assert response.status == 200
    assert [read_form(seen)[0]["model"] for seen in upstream.seen] == ["second"]


@pytest.mark.parametrize(
    ("model", "fields", "form", "refusal"),
    [
        ("t1", [("response_format", "diarized_json")], {}, (400, "invalid_value", "response_format")),
        ("t1", [("response_format", "odd")], {}, (400, "invalid_value", "response_format")),
        ("t1", [("temperature", "2")], {}, (400, "decimal_above_max_value", "temperature")),
        ("t1", [("temperature", "warm")], {}, (400, "invalid_type", "temperature")),
        ("t1", [("prompt", "a"), ("prompt", "b")], {}, (400, "invalid_value", "prompt")),
        ("t1", [], {"file": None}, (400, "missing_required_parameter", "file")),
        ("chat", [], {}, (400, "unsupported_parameter", "model")),
        ("secret", [], {}, (403, "model_not_permitted", "model")),
        ("nothing", [], {}, (403, "model_not_permitted", "model")),
    ],
    ids=str,
)
async def test_invalid_form_gets_its_error_and_nothing_is_held_or_sent(
    client: Client,
    upstream: FakeUpstream,
    accounts: Accounts,
    tmp_path: Path,
    model: str,
    fields: list[Part],
    form: dict[str, Any],
    refusal: tuple[int, str, str],
) -> None:
    response, text = await send(client, *fields, model=model, **form)
    error = json.loads(text)["error"]
    assert (response.status, error["code"], error["param"]) == refusal
    await untouched(accounts, upstream, tmp_path)


async def test_upload_over_the_limit_is_refused(client: Client, upstream: FakeUpstream) -> None:
    response, text = await send(client, file=bytes(LIMIT))
    assert (response.status, json.loads(text)["error"]["code"]) == (413, "request_too_large")
    assert upstream.seen == []


# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("api.md#post-v1audiotranslations-1")
async def test_seconds_are_held_by_the_header_and_charged_by_the_upstreams_count(
    client: Client, gateway: Gateway, ledger: Ledger
) -> None:
    holds = record_holds(gateway)
    response, _ = await send(client, file=wav(4.0))
    assert [hold.amount for hold in holds] == [6 * SECOND]  # a quarter more, and a second
    line = await line_of(ledger, response)
    assert (line.amount, line.meta.get("estimated"), line.meta["endpoint"]) == (-3 * SECOND, None, "translation")


@pytest.mark.holds("api.md#post-v1audiotranslations-1")
async def test_audio_without_a_count_is_charged_by_its_header(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json({"text": "Herons."}))
    response, _ = await send(client, file=wav(4.0))
    assert response.headers["x-gateway-estimated"] == "true"
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["estimated"]) == (-4 * SECOND, True)


async def test_seconds_are_asked_of_whisper_in_the_format_that_tells_them(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json({"text": "hello", "duration": 7.5, "segments": [], "language": "english"}))
    response, text = await send(client, model="whisper-1")
    assert json.loads(text) == {"text": "hello"}
    assert read_form(upstream.seen[0])[0]["response_format"] == "verbose_json"
    assert (await line_of(ledger, response)).amount == -7.5 * SECOND


async def test_tokens_are_charged_by_the_upstreams_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    details = {"text_tokens": 2, "audio_tokens": 20}
    usage = {"type": "tokens", "input_tokens": 22, "output_tokens": 5, "input_token_details": details}
    upstream.enqueue(Reply.json({"text": "Herons.", "usage": usage}))
    response, _ = await send(client, model="tokens")
    assert (await line_of(ledger, response)).amount == -27 * TOKEN


async def test_every_attempt_sends_the_whole_file_and_one_is_charged(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path
) -> None:
    upstream.enqueue(Reply.error(503, "no"))
    response, text = await send(client, model="pair", file=wav(20.0))
    assert response.status == 200 and f"{len(wav(20.0))} bytes" in text
    assert [read_form(seen)[1] for seen in upstream.seen] == [len(wav(20.0))] * 2
    assert (await settled(accounts)).balance == 10 * NANO - 3 * SECOND
    assert not spooled(tmp_path)


async def test_same_idempotency_key_translates_once_and_is_not_that_of_a_transcription(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    headers = {"Idempotency-Key": "take-1"}
    _, text = await send(client, headers=headers)
    again, repeated = await send(client, headers=headers)
    assert (again.headers["Idempotent-Replayed"], repeated) == ("true", text)
    assert len(upstream.seen) == 1
    assert (await settled(accounts)).balance == 10 * NANO - 3 * SECOND
    form = {**client.headers, **headers, "Content-Type": "multipart/form-data; boundary=edge"}
    data = io.BytesIO(encode(("model", "t1")))
    async with client.request("POST", "/v1/audio/transcriptions", data=data, headers=form) as other:
        assert other.status == 400
    assert len(upstream.seen) == 1
