"""`POST /v1/audio/transcriptions`: every form it takes, every form it answers in, what is held and charged."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import read_form
from gateway.uploads.form import MAX_TEXT
from tests.api.conftest import Client, record_holds, settled
from tests.delays import forever
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/audio/transcriptions"
SECOND = NANO // 100
TOKEN = NANO // 1000
LIMIT = 2 << 20


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Transcribers priced by second and by token, one of the whisper family, and the fake one for what never ends."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["forward_params"] = ["seed"]
    model = {
        "provider": "up", "model": "upstream-t1", "price": {"per_second_in": "0.01"}, "endpoints": ["transcription"],
    }  # fmt: skip
    scripts = {"slow": {"interval": 0.05}, "silent": {"silent_after": 3}, "none": {"usage": "none"}}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"limits": {"max_audio_body": LIMIT}},
            "providers": {"up": up, "other": up, "fake": {"plugin": "fake", "models": scripts}},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "t1": model,
                "secret": {**model, "groups": ["inner"]},
                "tokens": {**model, "price": {"input": 1000, "audio_input": 1000, "output": 1000}},
                "whisper-1": {**model, "model": "whisper-1"},
                "groq": {**model, "model": "openai/whisper-large-v3-turbo"},
                "by-token": {**model, "model": "whisper-1", "price": {"audio_input": 1000, "output": 1000}},
                "plain": {**model, "unsupported_params": ["stream"]},
                "two": {"targets": places, "strategy": "in_order", **{k: model[k] for k in ("price", "endpoints")}},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                **{name: {**model, "provider": "fake", "model": name} for name in (*scripts, "fake")},
            },
        },
        demo=True,
    )  # fmt: skip


def wav(seconds: float = 2.0) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(seconds * 16_000)))
    return buffer.getvalue()


Part = tuple[str, str | bytes]


def encode(
    *fields: Part, file: bytes | None = b"", filename: str = "a.wav", boundary: str = "edge", name: str = "file"
) -> bytes:
    """A form, the file last; the default is two seconds of silence, None leaves it out."""
    body = b""
    for field, value in fields:
        raw = value.encode() if isinstance(value, str) else value
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n'.encode() + raw + b"\r\n"
    if file is not None:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
        body += head.encode()
        body += (file or wav()) + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


async def send(
    client: Client, data: Any, *, boundary: str = "edge", headers: dict[str, str] | None = None
) -> tuple[aiohttp.ClientResponse, str, bool]:
    """The response, the text of its body, and whether that came to its end."""
    content_type = f"multipart/form-data; boundary={boundary}"
    text, whole = b"", True
    data = io.BytesIO(data) if isinstance(data, bytes) else data
    async with client.request(
        "POST", PATH, data=data, headers={**client.headers, "Content-Type": content_type, **(headers or {})}
    ) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            whole = False
    return response, text.decode(), whole


async def ask(client: Client, *fields: Part, model: str = "t1", **form: Any) -> tuple[aiohttp.ClientResponse, Any]:
    """A transcription; the response and its JSON."""
    response, text, _ = await send(client, encode(("model", model), *fields, **form))
    return response, json.loads(text)


async def refused(client: Client, *fields: Part, **form: Any) -> tuple[int, str, str | None]:
    response, document = await ask(client, *fields, **form)
    error = document["error"]
    return response.status, error["code"], error["param"]


def events(text: str) -> list[dict[str, Any]]:
    frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: {") for frame in frames)
    return [json.loads(frame[6:]) for frame in frames]


async def line_of(ledger: Ledger, response: aiohttp.ClientResponse) -> Any:
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


async def untouched(accounts: Accounts, upstream: FakeUpstream, folder: Path) -> None:
    """Nothing held, nothing charged, nothing sent, no file left."""
    account = await accounts.show("acme")
    assert (account.balance, account.held) == (10 * NANO, 0)
    assert upstream.seen == []
    assert not list(folder.glob("tmp/*"))
    await until(lambda: not spooled(folder))


def spooled(folder: Path) -> int:
    """Descriptors of this process that lead to files without a name in the folder."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += str(folder / "tmp") in str(link.readlink())
        except FileNotFoundError:
            continue
    return found


# Forms in ------------------------------------------------------------------------------------------------------------


async def test_upstream_gets_the_file_and_the_fields(client: Client, upstream: FakeUpstream) -> None:
    file = wav(0.5)
    fields: list[Part] = [
        ("language", "de"), ("prompt", "Namen: Grünfink"), ("temperature", "0.5"), ("keywords", '["heron", "reed"]'),
        ("languages[]", "de"), ("languages[]", "en"), ("include[]", "logprobs"),
        ("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "0.7"),
        ("known_speaker_names", "Ada"), ("known_speaker_references", "data:audio/wav;base64,AAAA"), ("seed", "7"),
        ("api_key", "sk-evil"),
    ]  # fmt: skip
    response, document = await ask(client, *fields, file=file, filename="C:\\tmp\\vögel.WAV")
    assert document == {"text": f"I heard {len(file)} bytes", "usage": {"type": "duration", "seconds": 3.0}}
    assert response.headers["x-gateway-dropped-params"] == "api_key"
    seen = upstream.seen[0]
    assert int(seen.headers["content-length"]) == len(seen.body)
    assert 'filename="vögel.WAV"\r\nContent-Type: audio/wav\r\n\r\n'.encode() + file in seen.body
    assert read_form(seen)[0] == {
        "model": "upstream-t1", "response_format": "json", "language": "de", "prompt": "Namen: Grünfink",
        "temperature": "0.5", "keywords[]": "reed", "languages[]": "en", "include[]": "logprobs",
        "chunking_strategy[type]": "server_vad", "chunking_strategy[threshold]": "0.7", "known_speaker_names[]": "Ada",
        "known_speaker_references[]": "data:audio/wav;base64,AAAA", "seed": "7",
    }  # fmt: skip
    assert seen.body.count(b'name="languages[]"') == 2


async def test_parts_are_accepted_in_any_order(client: Client) -> None:
    body = encode(("x", "1"), boundary="edge")[: -len("--edge--\r\n")] + encode(("model", "t1"), file=None)
    assert (await send(client, body))[0].status == 200


@pytest.mark.parametrize("size", [1_000, 300_000])
async def test_compressed_forms_are_decoded(client: Client, upstream: FakeUpstream, size: int) -> None:
    file = wav(1.0) + os.urandom(size)
    data = gzip.compress(encode(("model", "t1"), file=file))
    _, text, _ = await send(client, data, headers={"Content-Encoding": "gzip"})
    assert json.loads(text)["text"] == f"I heard {len(file)} bytes"


async def test_body_without_a_length_is_read_to_its_end(client: Client) -> None:
    body = encode(("model", "t1"))

    async def dribble() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    assert (await send(client, dribble()))[0].status == 200


async def test_expect_continue_is_answered_only_for_a_valid_key(client: Client) -> None:
    body = encode(("model", "t1"), file=wav(5.0))
    async with client.request(
        "POST", PATH, data=body, expect100=True,
        headers={**client.headers, "Content-Type": "multipart/form-data; boundary=edge"},
    ) as response:  # fmt: skip
        assert response.status == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.base_url.rpartition(":")[2]))
    writer.write(
        b"POST "
        + PATH.encode()
        + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-unknown\r\nExpect: 100-continue\r\n"
        b"Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: 1000000\r\n\r\n"
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


# Forms out -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "asked", "body"),
    [
        ("text", "json", "I heard 64044 bytes\n"),
        (
            "srt",
            "verbose_json",
            "1\n00:00:00,000 --> 00:00:01,500\nI heard\n\n2\n00:00:01,500 --> 00:00:03,000\n64044 bytes\n",
        ),
        (
            "vtt",
            "verbose_json",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nI heard\n\n00:00:01.500 --> 00:00:03.000\n64044 bytes\n",
        ),
    ],
)
async def test_text_formats_are_written_by_the_gateway(
    client: Client, upstream: FakeUpstream, format: str, asked: str, body: str
) -> None:
    response, text, _ = await send(client, encode(("model", "t1"), ("response_format", format)))
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert text == body
    assert read_form(upstream.seen[0])[0]["response_format"] == asked


async def test_verbose_json_has_times(client: Client) -> None:
    _, document = await ask(client, ("response_format", "verbose_json"))
    segments = document.pop("segments")
    assert document == {
        "task": "transcribe", "language": "english", "duration": 3.0, "text": "I heard 64044 bytes",
        "usage": {"type": "duration", "seconds": 3.0},
    }  # fmt: skip
    assert segments[1] == {
        "id": 1, "seek": 0, "start": 1.5, "end": 3.0, "text": "64044 bytes", "tokens": [], "temperature": 0.0,
        "avg_logprob": 0.0, "compression_ratio": 0.0, "no_speech_prob": 0.0,
    }  # fmt: skip


async def test_words_are_returned_if_requested(client: Client, upstream: FakeUpstream) -> None:
    fields = ("response_format", "verbose_json"), ("timestamp_granularities[]", "word")
    _, document = await ask(client, *fields, model="fake")
    assert "segments" not in document
    assert document["words"][0] == {"word": "I", "start": 0.0, "end": 0.167}
    _, document = await ask(client, *fields, ("timestamp_granularities[]", "segment"), model="fake")
    assert document["segments"] and document["words"]


async def test_diarized_json_names_the_speakers(client: Client) -> None:
    _, document = await ask(client, ("response_format", "diarized_json"))
    assert document["segments"][1] == {
        "id": "seg_1", "type": "transcript.text.segment", "start": 1.5, "end": 3.0, "speaker": "B",
        "text": "64044 bytes",
    }  # fmt: skip
    assert (document["task"], document["duration"]) == ("transcribe", 3.0)


async def test_transcript_stream_has_deltas_and_the_whole_text_without_a_done_marker(
    client: Client, ledger: Ledger
) -> None:
    response, text, whole = await send(client, encode(("model", "t1"), ("stream", "true")))
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events(text)
    assert whole and "".join(event["delta"] for event in deltas) == "I heard 64044 bytes "
    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert done == {"type": "transcript.text.done", "text": "I heard 64044 bytes"}  # its usage would be tokens
    assert (await line_of(ledger, response)).amount == -3 * SECOND


async def test_diarized_stream_has_segments(client: Client) -> None:
    data = encode(("model", "fake"), ("stream", "true"), ("response_format", "diarized_json"))
    found = events((await send(client, data))[1])
    segments = [event for event in found if event["type"] == "transcript.text.segment"]
    assert [segment["speaker"] for segment in segments] == ["A", "B", "A"]
    assert segments[0].keys() == {"type", "id", "start", "end", "speaker", "text"}


@pytest.mark.parametrize("model", ["whisper-1", "plain"])
async def test_stream_option_is_ignored_for_models_without_streaming(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    response, document = await ask(client, ("stream", "true"), model=model)
    assert response.headers["Content-Type"] == "application/json"
    assert document["text"] == "I heard 64044 bytes"
    assert "stream" not in read_form(upstream.seen[0])[0]


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("text/plain", b"I heard it\n"),
        ("text/plain", b"1\n00:00:00,000 --> 00:00:01,500\nI heard\n\n2\n00:01,500 --> 00:03,000\nit\n"),
        ("text/vtt", b"WEBVTT\n\n00:00.000 --> 00:01.500 align:left\nI heard\n\n00:01.500 --> 00:03.000\nit\n"),
    ],
)
async def test_plain_text_answer_of_the_upstream_is_read(
    client: Client, upstream: FakeUpstream, media_type: str, body: bytes
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": media_type}, body=body))
    _, document = await ask(client, ("response_format", "verbose_json"))
    assert document["text"] == "I heard it"
    if b"-->" in body:
        assert [(segment["start"], segment["end"]) for segment in document["segments"]] == [(0.0, 1.5), (1.5, 3.0)]


# Bad input -----------------------------------------------------------------------------------------------------------

VERBOSE = ("response_format", "verbose_json")
NAMES = [("known_speaker_names[]", name) for name in "abcde"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ([("response_format", "xml")], "invalid_value", "response_format"),
        ([("temperature", "1.5")], "decimal_above_max_value", "temperature"),
        ([("temperature", "warm")], "invalid_type", "temperature"),
        ([("temperature", "nan")], "invalid_type", "temperature"),
        ([("stream", "perhaps")], "invalid_type", "stream"),
        ([("language", "German")], "invalid_value", "language"),
        ([("timestamp_granularities[]", "word")], "invalid_value", "timestamp_granularities"),
        ([VERBOSE, ("timestamp_granularities[]", "syllable")], "invalid_value", "timestamp_granularities[0]"),
        ([("include[]", "everything")], "invalid_value", "include[0]"),
        ([("chunking_strategy", "never")], "invalid_value", "chunking_strategy"),
        ([("chunking_strategy[type]", "client_vad")], "invalid_value", "chunking_strategy.type"),
        ([("chunking_strategy[threshold]", "0.5")], "missing_required_parameter", "chunking_strategy.type"),
        (
            [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "2")],
            "decimal_above_max_value",
            "chunking_strategy.threshold",
        ),
        (NAMES, "array_above_max_length", "known_speaker_names"),
        (NAMES[:2], "invalid_value", "known_speaker_references"),
        ([NAMES[0], ("known_speaker_references[]", "https://x")], "invalid_value", "known_speaker_references[0]"),
        ([("languages", "[1]")], "invalid_type", "languages[0]"),
        ([("language", "de"), ("language", "en")], "invalid_value", "language"),
        ([("language[x]", "de")], "invalid_value", "language"),
        ([("stream", "true"), VERBOSE], "invalid_value", "response_format"),
        ([("prompt", "x" * (MAX_TEXT + 1))], "string_above_max_length", "prompt"),
        ([("prompt", b"\xff")], "invalid_value", "prompt"),
        ([("model", "t1")], "invalid_value", "model"),
        ([("x", "y")] * 64, "invalid_value", None),
    ],
)
async def test_invalid_fields_are_named_and_nothing_is_held_or_sent(
    client: Client,
    upstream: FakeUpstream,
    accounts: Accounts,
    tmp_path: Path,
    fields: list[Part],
    code: str,
    param: str | None,
) -> None:
    assert await refused(client, *fields) == (400, code, param)
    await untouched(accounts, upstream, tmp_path)


@pytest.mark.parametrize(
    ("form", "code", "param"),
    [
        ({"file": None}, "missing_required_parameter", "file"),
        ({"file": b"hello, I am no sound"}, "invalid_value", "file"),
        ({"file": b"%PDF-1.7 \xff\xfe", "filename": "a.mp3"}, "invalid_value", "file"),
        ({"file": b"\0\1\2\3" * 99, "filename": "a.bin"}, "invalid_value", "file"),
        ({"model": ""}, "empty_string", "model"),
        ({"model": "chat"}, "unsupported_parameter", "model"),
    ],
)
async def test_invalid_files_and_models_are_named(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path, form: Any, code: str, param: str
) -> None:
    assert await refused(client, **form) == (400, code, param)
    await untouched(accounts, upstream, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        encode(("language", "de")),
        encode(("model", "t1")).replace(wav(), b""),
        encode(("model", "t1"))[: -len("--edge--\r\n")] + encode(),
        b"no form",
    ],
    ids=["no model", "empty file", "two files", "no form"],
)
async def test_forms_without_the_required_fields_are_refused(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path, body: bytes
) -> None:
    response, text, _ = await send(client, body)
    assert response.status == 400
    assert json.loads(text)["error"]["message"]
    await untouched(accounts, upstream, tmp_path)


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed; boundary=edge", "text/plain"])
@pytest.mark.parametrize("seconds", [0.5, 5.0])
async def test_other_media_types_are_refused(client: Client, content_type: str, seconds: float) -> None:
    data = encode(("model", "t1"), file=wav(seconds))
    response, text, _ = await send(client, data, headers={"Content-Type": content_type})
    assert (response.status, json.loads(text)["error"]["code"]) == (415, "unsupported_content_type")


async def test_other_encodings_are_refused(client: Client) -> None:
    response, _, _ = await send(client, encode(("model", "t1")), headers={"Content-Encoding": "br"})
    assert response.status == 415


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_upload_over_the_limit_is_refused(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path, encoding: str
) -> None:
    data = encode(("model", "t1"), file=wav() + bytes(LIMIT))
    data = gzip.compress(data) if encoding == "gzip" else data
    response, text, _ = await send(client, data, headers={"Content-Encoding": encoding})
    assert (response.status, json.loads(text)["error"]["code"]) == (413, "request_too_large")
    await untouched(accounts, upstream, tmp_path)


@pytest.mark.parametrize("size", [3_000, 400_000])
async def test_form_that_is_cut_anywhere_is_refused_and_leaves_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, tmp_path: Path, size: int
) -> None:
    body = encode(("model", "t1"), file=wav(0.05) + bytes(size))
    step = 100 if size < 10_000 else size // 12
    headers = {**client.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    async with aiohttp.ClientSession() as session:
        for stop in range(0, len(body) - 2, step):
            async with session.post(client.base_url + PATH, data=body[:stop], headers=headers) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (400, "invalid_value"), stop
    await untouched(accounts, upstream, tmp_path)


async def test_error_in_a_large_form_is_reported_before_its_end(client: Client, tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield encode(("model", "t1"), ("prompt", b"x" * (MAX_TEXT + 1)), file=None)[: -len("--edge--\r\n")]
        await forever()
        yield b""

    response, text, _ = await asyncio.wait_for(send(client, endless()), 60)
    assert (response.status, json.loads(text)["error"]["param"]) == (400, "prompt")


async def test_upload_that_cannot_be_stored_is_a_503(
    client: Client, accounts: Accounts, upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").touch()  # no folder can be made here
    response, text, _ = await send(client, encode(("model", "t1"), file=wav() + bytes(500_000)))
    assert (response.status, json.loads(text)["error"]["code"]) == (503, "service_unavailable")
    assert str(tmp_path) not in text
    assert upstream.seen == []
    assert (await accounts.show("acme")).held == 0


async def test_key_is_checked_before_a_body_is_read(client: Client, upstream: FakeUpstream, keys: Keys) -> None:
    headers = {"Authorization": "Bearer sk-unknown"}
    assert (await send(client, encode(("model", "t1"), file=wav(60)[:LIMIT]), headers=headers))[0].status == 401
    assert (await send(client, b"no form", headers=headers))[0].status == 401
    assert (await ask(client, model="secret"))[0].status == 403
    assert upstream.seen == []


# Failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 600_000])
async def test_every_attempt_sends_the_whole_file(
    client: Client, upstream: FakeUpstream, ledger: Ledger, size: int
) -> None:
    upstream.enqueue(Reply.error(500, "broken"))
    file = wav() + bytes(size)
    response, document = await ask(client, model="two", file=file)
    assert document["text"] == f"I heard {len(file)} bytes"
    assert [read_form(seen) for seen in upstream.seen] == [
        ({"model": "first", "response_format": "json"}, len(file)),
        ({"model": "second", "response_format": "json"}, len(file)),
    ]
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["attempts"]) == (-3 * SECOND, 2)


@pytest.mark.parametrize("document", [{}, {"text": 5}, {"error": {"message": "no"}}, [], 5, None])
async def test_invalid_transcript_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, document: Any
) -> None:
    upstream.answer = lambda _: Reply.json(document)
    response, _ = await ask(client)
    assert response.status == 502
    account = await settled(accounts)
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_truncated_stream_ends_with_the_error_frame(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.stream([{"type": "transcript.text.delta", "delta": "I heard"}], done=False))
    response, text, whole = await send(client, encode(("model", "t1"), ("stream", "true")))
    delta, error = events(text)
    assert (delta["delta"], error["error"]["code"], whole) == ("I heard", "upstream_stream_truncated", False)
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["estimated"]) == (-2 * SECOND, True)  # what the header says


async def test_stream_that_breaks_off_before_the_first_event_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    """Segments are only told to callers who asked for speakers."""
    segment = {"type": "transcript.text.segment", "start": 0, "end": 1, "text": "I", "speaker": "A", "id": "s"}
    upstream.answer = lambda _: Reply.stream([segment], done=False)
    response, _, _ = await send(client, encode(("model", "t1"), ("stream", "true")))
    account = await settled(accounts)
    assert (response.status, account.balance, account.held) == (502, 10 * NANO, 0)


async def test_caller_that_disconnects_closes_the_upstream_and_pays_for_the_audio(
    client: Client, upstream: FakeUpstream, ledger: Ledger, tmp_path: Path
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[b": hm\n\n"], end="silence"))
    task = asyncio.ensure_future(send(client, encode(("model", "t1"), ("stream", "true"), file=wav() + bytes(500_000))))
    await upstream.wait_started(frames=1)
    task.cancel()
    await asyncio.wait([task])
    assert (await upstream.wait_ended()).outcome == "left"

    async def newest() -> Any:
        lines = [line async for line in ledger.lines("acme") if line.kind == "use"]
        return lines[-1] if lines else None

    line = await until(newest)
    assert line.meta["outcome"] == "client_closed"
    assert line.amount == -2 * SECOND
    await until(lambda: not spooled(tmp_path))


# Money ---------------------------------------------------------------------------------------------------------------


async def test_seconds_are_held_by_the_header_and_charged_by_the_upstreams_count(
    client: Client, gateway: Gateway, ledger: Ledger
) -> None:
    holds = record_holds(gateway)
    response, _ = await ask(client, file=wav(4.0))
    assert [hold.amount for hold in holds] == [6 * SECOND]  # a quarter more, and a second
    line = await line_of(ledger, response)
    assert (line.amount, line.meta.get("estimated")) == (-3 * SECOND, None)
    assert "x-gateway-estimated" not in response.headers


async def test_audio_without_a_count_is_charged_by_its_header(client: Client, ledger: Ledger) -> None:
    response, document = await ask(client, model="none", file=wav(4.0))
    assert document["usage"] == {"type": "duration", "seconds": 4.0}
    assert response.headers["x-gateway-estimated"] == "true"
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["estimated"]) == (-4 * SECOND, True)


async def test_audio_without_a_header_is_charged_by_its_size(client: Client, ledger: Ledger, gateway: Gateway) -> None:
    holds = record_holds(gateway)
    response, _ = await ask(client, model="none", file=bytes(32_000), filename="a.mp3")
    assert (await line_of(ledger, response)).amount == -2 * SECOND  # 16,000 bytes a second
    assert holds[0].amount == 9 * SECOND  # 4,000 bytes a second, and a second


@pytest.mark.parametrize("seconds", [-1, 1e9, "many", None])
async def test_impossible_seconds_neither_credit_nor_empty_an_account(
    client: Client, upstream: FakeUpstream, ledger: Ledger, gateway: Gateway, seconds: Any
) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(Reply.json({"text": "x", "usage": {"type": "duration", "seconds": seconds}}))
    response, _ = await ask(client)
    line = await line_of(ledger, response)
    assert -holds[0].amount <= line.amount <= -2 * SECOND


@pytest.mark.holds("prices.md#audio-6")
@pytest.mark.parametrize("place", ["usage", "duration"])
@pytest.mark.parametrize("seconds", [-1, 1e9])
async def test_impossible_seconds_are_replaced_by_the_estimate_flagged_and_logged(
    client: Client,
    upstream: FakeUpstream,
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
    seconds: float,
    place: str,
) -> None:
    counted = {"usage": {"type": "duration", "seconds": seconds}} if place == "usage" else {"duration": seconds}
    upstream.enqueue(Reply.json({"text": "x", **counted}))
    response, document = await ask(client, ("response_format", "verbose_json"))
    assert response.headers["x-gateway-estimated"] == "true"
    assert (document["duration"], document["usage"]) == (2.0, {"type": "duration", "seconds": 2.0})
    line = await line_of(ledger, response)
    assert (line.amount, line.meta["estimated"]) == (-2 * SECOND, True)
    request_id = response.headers["x-request-id"]
    assert f"{request_id}: impossible counts from up, estimated" in [record.getMessage() for record in caplog.records]


@pytest.mark.holds("prices.md#audio-6")
@pytest.mark.parametrize("model", ["whisper-1", "groq"])
@pytest.mark.parametrize("wanted", ["json", "text"])
async def test_seconds_are_asked_of_models_that_tell_them_in_one_format_only(
    client: Client, upstream: FakeUpstream, ledger: Ledger, model: str, wanted: str
) -> None:
    upstream.enqueue(Reply.json({"text": "hello", "duration": 7.5, "segments": [], "language": "english"}))
    response, text, _ = await send(client, encode(("model", model), ("response_format", wanted)))
    if wanted == "json":
        assert json.loads(text) == {"text": "hello", "usage": {"type": "duration", "seconds": 7.5}}
    else:
        assert text == "hello\n"
    assert read_form(upstream.seen[0])[0]["response_format"] == "verbose_json"
    line = await line_of(ledger, response)
    assert (line.amount, line.meta.get("estimated")) == (-7.5 * SECOND, None)


@pytest.mark.parametrize(
    ("model", "fields"), [("t1", []), ("by-token", []), ("whisper-1", [("include[]", "logprobs")])]
)
async def test_format_of_the_caller_is_asked_where_no_other_is_needed_or_known(
    client: Client, upstream: FakeUpstream, model: str, fields: list[Part]
) -> None:
    response, _ = await ask(client, *fields, model=model)
    assert response.status == 200
    assert read_form(upstream.seen[0])[0]["response_format"] == "json"


async def test_model_that_refuses_the_format_is_asked_in_the_callers(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    error = {"message": "response_format 'verbose_json' is not compatible", "param": "response_format"}
    upstream.enqueue(Reply.json({"error": error}, status=400))
    response, document = await ask(client, model="whisper-1")
    assert (response.status, document["usage"]["seconds"]) == (200, 3.0)
    assert [read_form(seen)[0]["response_format"] for seen in upstream.seen] == ["verbose_json", "json"]
    assert (await line_of(ledger, response)).amount == -3 * SECOND


async def test_tokens_are_charged_by_the_upstreams_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    usage = {
        "type": "tokens", "input_tokens": 40, "output_tokens": 7, "total_tokens": 47,
        "input_token_details": {"text_tokens": 10, "audio_tokens": 30},
    }  # fmt: skip
    upstream.enqueue(Reply.json({"text": "x", "usage": usage}))
    response, document = await ask(client, model="tokens")
    assert document["usage"] == usage
    line = await line_of(ledger, response)
    assert -line.amount == 47 * TOKEN
    counts = line.meta["usage"]
    assert (counts["in_text"], counts["in_audio"], counts["out_text"]) == (10, 30, 7)


async def test_tokens_without_a_count_are_estimated(client: Client, ledger: Ledger, gateway: Gateway) -> None:
    holds = record_holds(gateway)
    response, _ = await ask(client, model="tokens")
    line = await line_of(ledger, response)
    assert -line.amount == (21 + 5) * TOKEN  # ten tokens a second, and one for four letters
    assert line.meta["estimated"]
    assert holds[0].amount >= -line.amount


async def test_insufficient_balance_is_refused_before_the_upstream(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys, tmp_path: Path
) -> None:
    await accounts.create("poor", balance=SECOND)
    key = await keys.create("poor")
    headers = {"Authorization": f"Bearer {key.text}"}
    response, text, _ = await send(client, encode(("model", "t1"), file=wav() + bytes(500_000)), headers=headers)
    assert (response.status, json.loads(text)["error"]["type"]) == (429, "insufficient_quota")
    await untouched(accounts, upstream, tmp_path)


@pytest.mark.parametrize("size", [0, 500_000])
async def test_same_idempotency_key_transcribes_once_with_any_boundary(
    client: Client, upstream: FakeUpstream, accounts: Accounts, size: int
) -> None:
    file = wav() + bytes(size)
    headers = {"Idempotency-Key": "take-1"}
    _, text, _ = await send(client, encode(("model", "t1"), file=file), headers=headers)
    again, repeated, _ = await send(
        client, encode(("model", "t1"), file=file, boundary="other"), boundary="other", headers=headers
    )
    assert again.headers["Idempotent-Replayed"] == "true"
    assert repeated == text
    assert len(upstream.seen) == 1
    assert (await settled(accounts)).balance == 10 * NANO - 3 * SECOND
    response, _, _ = await send(client, encode(("model", "t1"), file=file + b"!"), headers=headers)
    assert response.status == 400
