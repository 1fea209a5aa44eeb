"""A provider of anything but chats may give back anything: answered or refused, and settled once."""

from __future__ import annotations

import io
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway import (
    CompletionUsage,
    EmbeddingAnswer,
    Embeddings,
    GeneratedImage,
    ImageAnswer,
    ImageEdit,
    ImageEvent,
    Images,
    ImageUsage,
    Moderation,
    ModerationAnswer,
    ModerationResult,
    Provider,
    RankedDocument,
    Rerank,
    RerankAnswer,
    Segment,
    Speech,
    SpeechChunk,
    SpeechUsage,
    Transcript,
    TranscriptEvent,
    Transcription,
    TranscriptUsage,
)
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.ledger import Ledger
from gateway.plugins.loader import load_plugins
from gateway.routing.circuit_breaker import Circuit
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing.image_edit_cases import PIXEL
from gateway.testing.transcription_cases import RecordedSilence
from tests.conftest import PEPPER
from tests.polling import until

from .conftest import Client
from .poison import load, plugin

BALANCE = 10 * NANO
FORMATS = ("json", "verbose_json", "srt", "vtt", "diarized_json", "text")
VAST = 10**30
PNG = "iVBORw0KGgo" + "A" * 89
PRICE = {
    "input": 1000, "output": 1, "audio_input": 1000, "audio_output": 1000, "image_input": 1, "image_output": 1,
    "per_second_in": "0.01", "per_second_out": "0.01", "per_image": {"*": {"*": "0.01"}}, "per_character": 1000,
    "per_request": "0.001",
    "per_search_unit": "0.01",
}  # fmt: skip


class Anything(Provider, Embeddings, ImageEdit, Images, Moderation, Rerank, Speech, Transcription):
    """Gives back `what`, whatever it was asked."""

    name = "anything"
    embedding_fields = None
    image_fields = None
    image_edit_fields = None
    moderation_fields = None
    rerank_fields = None
    speech_fields = None
    transcription_fields = None
    gives_urls = True
    transcript_formats = frozenset(FORMATS)
    what: ClassVar[list[Any]] = []

    async def embed(self, request: Any, target: Any) -> Any:
        return self.what[0]

    async def generate_images(self, request: Any, target: Any) -> Any:
        return self.what[0]

    def can_translate(self, target: Any) -> bool:
        return True

    async def edit_images(self, request: Any, target: Any) -> Any:
        return self.what[0]

    async def stream_edits(self, request: Any, target: Any) -> AsyncIterator[Any]:
        for item in self.what:
            yield item

    async def moderate(self, request: Any, target: Any) -> Any:
        return self.what[0]

    async def rerank(self, request: Any, target: Any) -> Any:
        return self.what[0]

    async def transcribe(self, request: Any, target: Any) -> Any:
        return self.what[0]

    async def stream_images(self, request: Any, target: Any) -> AsyncIterator[Any]:
        for item in self.what:
            yield item

    async def speak(self, request: Any, target: Any) -> AsyncIterator[Any]:
        for item in self.what:
            yield item

    async def stream_transcript(self, request: Any, target: Any) -> AsyncIterator[Any]:
        for item in self.what:
            yield item


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """One model, which does everything and charges for everything."""
    endpoints = ["embeddings", "images", "moderation", "rerank", "speech", "transcription"]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"p": {"plugin": "anything"}},
            "groups": {"default": {}},
            "models": {"m": {"provider": "p", "price": PRICE, "endpoints": endpoints, "retries": 0}},
        },
        demo=True,
    )


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings) -> Iterator[Gateway]:
    plugins = load_plugins(PluginSettings())
    load(plugins, "anything", lambda: plugin("anything", lambda register: register(Anything)))
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    yield gateway
    io_loop.run_sync(gateway.close)


def wrong(kind: Any, *fields: Any, **named: Any) -> Any:
    return kind(*fields, **named)


THINGS: list[Any] = [None, 5, "text", b"bytes", {}, [], object(), math.nan, VAST]
VECTORS = [
    *THINGS,
    *(wrong(EmbeddingAnswer, thing) for thing in THINGS),
    *(wrong(EmbeddingAnswer, [thing]) for thing in THINGS),
    *(wrong(EmbeddingAnswer, [[thing]]) for thing in (*THINGS, True, math.inf, 1e39, [1.0])),
    *(wrong(EmbeddingAnswer, [vector]) for vector in (bytearray(8), memoryview(bytes(8)), b"abc", b"\0\0\xc0\x7f")),
    *(wrong(EmbeddingAnswer, [[1.0]], usage) for usage in (*THINGS, CompletionUsage(VAST, 0, 0))),
    *(wrong(EmbeddingAnswer, [[1.0]], wrong(CompletionUsage, thing, 0, 0)) for thing in THINGS),
]
JUDGEMENTS = [
    *THINGS,
    *(wrong(ModerationAnswer, thing) for thing in THINGS),
    *(wrong(ModerationAnswer, [thing]) for thing in THINGS),
    *(wrong(ModerationAnswer, [wrong(ModerationResult, thing, {}, {})]) for thing in THINGS),
    *(wrong(ModerationAnswer, [wrong(ModerationResult, True, thing, {})]) for thing in THINGS),
    *(wrong(ModerationAnswer, [wrong(ModerationResult, True, {}, thing)]) for thing in THINGS),
    *(wrong(ModerationAnswer, [wrong(ModerationResult, True, {}, {}, thing)]) for thing in THINGS),
    *(wrong(ModerationAnswer, [wrong(ModerationResult, True, {"hate": thing}, {})]) for thing in THINGS),
    *(
        wrong(ModerationAnswer, [wrong(ModerationResult, True, {}, {"hate": thing})])
        for thing in (*THINGS, True, 1.5, -0.1, math.inf)
    ),
    *(
        wrong(ModerationAnswer, [wrong(ModerationResult, True, {}, {}, {"hate": thing})])
        for thing in (*THINGS, [[]], [{}], ["text", "smell"])
    ),
    wrong(ModerationAnswer, [wrong(ModerationResult, True, {5: True, "\ud800": True}, {None: 0.5})]),
    ModerationAnswer([ModerationResult(True, {}, {})] * 2),
]
RANKINGS = [
    *THINGS,
    *(wrong(RerankAnswer, thing) for thing in THINGS),
    *(wrong(RerankAnswer, [thing]) for thing in THINGS),
    *(wrong(RerankAnswer, [wrong(RankedDocument, thing, 1.0)]) for thing in (*THINGS, True, 0, -1, 1.0)),
    *(wrong(RerankAnswer, [wrong(RankedDocument, 0, thing)]) for thing in (*THINGS, True, math.inf, 10**400)),
    *(wrong(RerankAnswer, [RankedDocument(0, 1.0)], usage) for usage in (*THINGS, CompletionUsage(VAST, 0, 0))),
    *(wrong(RerankAnswer, [RankedDocument(0, 1.0)], wrong(CompletionUsage, thing, 0, 0)) for thing in THINGS),
    *(
        wrong(RerankAnswer, [RankedDocument(0, 1.0)], wrong(CompletionUsage, 1, 0, 1, search_units=thing))
        for thing in (*THINGS, -1, math.inf)
    ),
    RerankAnswer([RankedDocument(0, 1.0)] * 2),
]
IMAGES = [
    *THINGS,
    *(wrong(ImageAnswer, thing) for thing in THINGS),
    *(wrong(ImageAnswer, [thing]) for thing in THINGS),
    *(wrong(ImageAnswer, [wrong(GeneratedImage, b64_json=thing)]) for thing in THINGS),
    *(wrong(ImageAnswer, [GeneratedImage(b64_json=PNG)], usage=thing) for thing in THINGS),
    *(wrong(ImageAnswer, [GeneratedImage(b64_json=PNG)], size=thing, quality=thing) for thing in THINGS),
    *(wrong(ImageAnswer, [wrong(GeneratedImage, b64_json=PNG, revised_prompt=thing)]) for thing in (*THINGS, "\ud800")),
    wrong(ImageAnswer, [GeneratedImage(b64_json=PNG)], usage=wrong(ImageUsage, VAST, -VAST, 5)),
    wrong(ImageAnswer, [GeneratedImage(b64_json=PNG)], size="\ud800"),
    wrong(ImageAnswer, [GeneratedImage(url="https://\ud800")]),
    ImageAnswer([GeneratedImage(url="https://images.example/1.png")]),
]
IMAGE_EVENTS = [
    *([thing] for thing in THINGS),
    [],
    *([wrong(ImageEvent, thing)] for thing in THINGS),
    *([wrong(ImageEvent, PNG, partial_index=thing)] for thing in THINGS),
    *([wrong(ImageEvent, PNG, usage=thing)] for thing in THINGS),
    *([wrong(ImageEvent, PNG, size=thing)] for thing in (*THINGS, "\ud800")),
    [ImageEvent(PNG, partial_index=0)] * 100,
    [ImageEvent(PNG)] * 100,
]
SOUNDS = [
    *([thing] for thing in THINGS),
    [],
    *([wrong(SpeechChunk, thing)] for thing in THINGS),
    *([SpeechChunk(b"\0" * 48), wrong(SpeechChunk, usage=thing)] for thing in THINGS),
    *([SpeechChunk(b"\0" * 48), SpeechChunk(usage=wrong(SpeechUsage, thing, thing))] for thing in THINGS),
    [SpeechChunk(b"\0" * 48), "then text"],
]
TRANSCRIPTS = [
    *THINGS,
    *(wrong(Transcript, thing) for thing in THINGS),
    *(wrong(Transcript, "\ud800") for _ in range(1)),
    *(wrong(Transcript, "x", duration=thing) for thing in (*THINGS, -1.0, math.inf)),
    *(wrong(Transcript, "x", segments=thing) for thing in (*THINGS, [None], [Segment(math.nan, VAST, "x")])),
    *(wrong(Transcript, "x", words=thing) for thing in (*THINGS, [None])),
    *(wrong(Transcript, "x", language=thing, logprobs=thing) for thing in THINGS),
    *(wrong(Transcript, "x", usage=thing) for thing in THINGS),
    *(wrong(Transcript, "x", usage=wrong(TranscriptUsage, thing, thing)) for thing in THINGS),
]
EVENTS = [
    *([thing] for thing in THINGS),
    [],
    *([wrong(TranscriptEvent, thing)] for thing in THINGS),
    *([wrong(TranscriptEvent, segment=thing)] for thing in THINGS),
    *([wrong(TranscriptEvent, done=thing)] for thing in THINGS),
    *([wrong(TranscriptEvent, "x"), wrong(TranscriptEvent, done=thing)] for thing in TRANSCRIPTS),
    *([wrong(TranscriptEvent, "x", logprobs=thing)] for thing in THINGS),
]


def form(path: str, **fields: str) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for name, value in {"model": "m", **fields}.items():
        data.add_field(name, value)
    if "images" in path:
        data.add_field("image", io.BytesIO(PIXEL), filename="a.png")
    else:
        data.add_field("file", io.BytesIO(RecordedSilence(0.5).data), filename="a.wav")
    return data


FORMS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits")
CASES: dict[str, tuple[str, Any, list[Any]]] = {
    "vectors": ("/v1/embeddings", {"model": "m", "input": "hi"}, VECTORS),
    "base64": ("/v1/embeddings", {"model": "m", "input": "hi", "encoding_format": "base64"}, VECTORS),
    "judgements": ("/v1/moderations", {"model": "m", "input": "hi"}, JUDGEMENTS),
    "rankings": ("/v1/rerank", {"model": "m", "query": "hi", "documents": ["hi"]}, RANKINGS),
    "images": ("/v1/images/generations", {"model": "m", "prompt": "hi"}, IMAGES),
    "addresses": ("/v1/images/generations", {"model": "m", "prompt": "hi", "response_format": "url"}, IMAGES),
    "image events": ("/v1/images/generations", {"model": "m", "prompt": "hi", "stream": True}, IMAGE_EVENTS),
    "edits": ("/v1/images/edits", {"prompt": "hi"}, IMAGES),
    "edit events": ("/v1/images/edits", {"prompt": "hi", "stream": "true"}, IMAGE_EVENTS),
    "sound": ("/v1/audio/speech", {"model": "m", "input": "hi", "voice": "v", "response_format": "pcm"}, SOUNDS),
    "sound events": ("/v1/audio/speech", {"model": "m", "input": "hi", "voice": "v", "stream_format": "sse"}, SOUNDS),
    **{name: ("/v1/audio/transcriptions", {"response_format": name}, TRANSCRIPTS) for name in FORMATS},
    **{
        f"translated {name}": ("/v1/audio/translations", {"response_format": name}, TRANSCRIPTS)
        for name in FORMATS
        if name != "diarized_json"
    },
    "transcript events": ("/v1/audio/transcriptions", {"stream": "true"}, EVENTS),
    "speaker events": ("/v1/audio/transcriptions", {"stream": "true", "response_format": "diarized_json"}, EVENTS),
}


@pytest.mark.slow
@pytest.mark.no_standard  # the provider gives what no vendor does
@pytest.mark.parametrize("case", CASES)
async def test_any_provider_result_is_an_answer_or_a_502_settled_once(
    client: Client,
    accounts: Accounts,
    ledger: Ledger,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    path, fields, answers = CASES[case]
    monkeypatch.setattr(Circuit, "failed", lambda *_, **__: None)  # each failure is seen
    statuses: dict[int, int] = {}
    for answer in answers:
        monkeypatch.setattr(Anything, "what", answer if "events" in case or case == "sound" else [answer])
        sent: dict[str, Any] = {"data": form(path, **fields)} if path in FORMS else {"json": fields}
        headers = {name: value for name, value in client.headers.items() if name != "Content-Type"}
        async with client.request("POST", path, headers=headers, **sent) as response:
            try:
                body = await response.read()
            except aiohttp.ClientError:
                body = b""
            statuses[response.status] = statuses.get(response.status, 0) + 1
            assert response.status in (200, 502, 503), (answer, body)
            if response.content_type == "application/json" and body:
                assert msgspec.json.decode(body), answer
            assert b"internal_error" not in body, answer
    assert statuses[200] and statuses[502]
    account = await until(lambda: free(accounts))
    assert (await ledger.audit()).mismatches == []
    assert 0 <= BALANCE - account.balance <= BALANCE // 2


async def free(accounts: Accounts) -> Any:
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.mark.parametrize("sound", [5, 2**40, [1, 2], "text"])
async def test_only_bytes_are_accepted_as_audio(client: Client, monkeypatch: pytest.MonkeyPatch, sound: Any) -> None:
    """`bytes(5)` would be five zeros, and `bytes(2**40)` all the memory there is."""
    monkeypatch.setattr(Anything, "what", [wrong(SpeechChunk, sound)])
    body = {"model": "m", "input": "hi", "voice": "v", "response_format": "pcm"}
    async with client.request("POST", "/v1/audio/speech", json=body) as response:
        assert response.status == 502


async def test_transcript_without_its_final_event_costs_nothing(
    client: Client, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Anything, "what", [TranscriptEvent(done=Transcript("I heard")), "and then nonsense"])
    headers = {name: value for name, value in client.headers.items() if name != "Content-Type"}
    async with client.request(
        "POST", "/v1/audio/transcriptions", headers=headers, data=form("/v1/audio/transcriptions", stream="true")
    ) as response:
        assert response.status == 502
    assert (await until(lambda: free(accounts))).balance == BALANCE
