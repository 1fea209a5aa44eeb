"""Nulls, empty lists and empty texts for fields that a client does not use, on the endpoints beside chat.

- https://github.com/sbintuitions/JMTEB/pull/14: a client sends `dimensions` as null; OpenAI's older models refuse it.
- https://github.com/64bit/async-openai/issues/187: a form has a field `language` without a text.

The upstream gets what it gets without the field, and the answer and the charge are the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.completions.request import CompletionsRequest
from gateway.schemas.embeddings import EmbeddingRequest
from gateway.schemas.images import ImageRequest
from gateway.schemas.scoring.moderation import ModerationRequest
from gateway.schemas.scoring.rerank import RerankRequest
from gateway.schemas.speech import SpeechRequest
from gateway.schemas.transcription import TranscriptionRequest, TranslationRequest
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until
from tests.reports.endpoints import (
    BODIES,
    CHAT,
    COMPLETIONS,
    DIALECTS,
    EMBEDDINGS,
    IMAGES,
    KINDS,
    MODERATIONS,
    RERANK,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    post,
    right_answer,
    settings_for,
)

REQUIRED = {
    CHAT: {"model", "messages"},
    EMBEDDINGS: {"model", "input"},
    IMAGES: {"model", "prompt"},
    MODERATIONS: {"model", "input"},
    RERANK: {"model", "query", "documents"},
    SPEECH: {"model", "input", "voice"},
    TRANSCRIPTIONS: {"model", "file"},
    TRANSLATIONS: {"model", "file"},
    COMPLETIONS: {"model", "prompt"},
}
FIELDS = {
    path: sorted(set(kind.field_classes) - REQUIRED[path])
    for path, kind in (
        (CHAT, ChatRequest),
        (EMBEDDINGS, EmbeddingRequest),
        (IMAGES, ImageRequest),
        (MODERATIONS, ModerationRequest),
        (RERANK, RerankRequest),
        (SPEECH, SpeechRequest),
        (TRANSCRIPTIONS, TranscriptionRequest),
        (TRANSLATIONS, TranslationRequest),
        (COMPLETIONS, CompletionsRequest),
    )
}
#: Fields of upstreams' own, which the gateway does not know.
OWN = {
    "openai": ["guided_json", "top_k"],
    "cohere": ["input_type"],
    "gemini": [],
    "deepgram": ["redact", "utt_split"],
    "elevenlabs": ["language_code", "voice_settings", "seed", "num_speakers"],
}
NULLS = [
    (path, dialect, name)
    for path, dialects in DIALECTS.items()
    if path not in (TRANSCRIPTIONS, TRANSLATIONS)
    for dialect in dialects
    for name in (*FIELDS[path], *OWN[dialect])
    if not (path == SPEECH and name == "response_format")  # its default is a format that not all of them make
]
#: Optional fields that are an object; PHP writes an empty one as a list.
OBJECTS = [
    *((CHAT, name) for name in ("audio", "logit_bias", "metadata", "moderation", "prediction", "prompt_cache_options")),
    *((CHAT, name) for name in ("response_format", "stream_options", "tool_choice", "web_search_options")),
    (IMAGES, "svg"),
    (COMPLETIONS, "logit_bias"),
    (COMPLETIONS, "stream_options"),
]
LISTS = ("languages", "keywords", "timestamp_granularities", "include", "known_speaker_names")
TEXTS = [
    (dialect, name)
    for dialect in DIALECTS[TRANSCRIPTIONS]
    for name in (
        *(name for name in FIELDS[TRANSCRIPTIONS]),
        *(f"{name}[]" for name in LISTS),
        "chunking_strategy[type]",
        "chunking_strategy[threshold]",
        *OWN[dialect],
    )
]
FORMS = [
    *((TRANSCRIPTIONS, dialect, name) for dialect, name in TEXTS),
    *((TRANSLATIONS, "openai", name) for name in (*FIELDS[TRANSLATIONS], *OWN["openai"])),
]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model for each endpoint and dialect."""
    upstream.answer = right_answer
    return settings_for(upstream, tmp_path)


async def served(client: Client, upstream: FakeUpstream, ledger: Ledger, path: str, **sent: Any) -> tuple[Any, ...]:
    """What the upstream got, what the caller got, what was dropped and what was charged, of a call that is served."""
    response, content = await post(client, path, **sent)
    assert response.status == 200, content
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    seen = upstream.seen[-1]
    boundary = seen.headers["content-type"].partition("boundary=")[2].encode()
    return (
        seen.path,
        seen.body.replace(boundary, b"-") if boundary else seen.body,
        re.sub(rb'"(created|id)":("[^"]*"|[0-9]+)', b"", content),
        response.headers.get("x-gateway-dropped-params"),
        line.amount,
    )


@pytest.mark.parametrize(("path", "dialect", "name"), NULLS)
async def test_null_of_an_optional_field_is_absent(
    client: Client, upstream: FakeUpstream, ledger: Ledger, path: str, dialect: str, name: str
) -> None:
    body = {"model": f"{KINDS[path]}-{dialect}", **BODIES[path]}
    with_null = await served(client, upstream, ledger, path, body={**body, name: None})
    assert with_null == await served(client, upstream, ledger, path, body=body)


@pytest.mark.parametrize("name", ["guided_json", "top_k"])
async def test_null_of_a_field_that_chat_does_not_know_is_absent(
    client: Client, upstream: FakeUpstream, ledger: Ledger, name: str
) -> None:
    body = {"model": "chat-openai", **BODIES[CHAT]}
    with_null = await served(client, upstream, ledger, CHAT, body={**body, name: None})
    assert with_null == await served(client, upstream, ledger, CHAT, body=body)


@pytest.mark.parametrize("empty", [b"[]", b"[ \n]"])
@pytest.mark.parametrize(("path", "name"), OBJECTS)
async def test_empty_list_for_an_optional_object_is_absent(
    client: Client, upstream: FakeUpstream, ledger: Ledger, path: str, name: str, empty: bytes
) -> None:
    body = {"model": f"{KINDS[path]}-openai", **BODIES[path]}
    text = msgspec.json.encode({**body, name: 0}).replace(b'"%b":0' % name.encode(), b'"%b":' % name.encode() + empty)
    with_list = await served(client, upstream, ledger, path, body=text)
    assert with_list == await served(client, upstream, ledger, path, body=body)


@pytest.mark.parametrize("path", [EMBEDDINGS, IMAGES, SPEECH])
async def test_empty_list_of_an_upstreams_own_field_is_passed_on(
    client: Client, upstream: FakeUpstream, path: str
) -> None:
    """`transforms: []` switches a default off at OpenRouter: this list is no absence."""
    body = {"model": f"{KINDS[path]}-openai", **BODIES[path], "transforms": []}
    assert (await post(client, path, body=body))[0].status == 200
    assert upstream.seen[-1].json["transforms"] == []


@pytest.mark.parametrize("value", ["", "[]"])
@pytest.mark.parametrize(("path", "dialect", "name"), FORMS)
async def test_field_of_a_form_without_a_value_is_absent(
    client: Client, upstream: FakeUpstream, ledger: Ledger, path: str, dialect: str, name: str, value: str
) -> None:
    if value == "[]" and name.partition("[")[0] not in LISTS:
        pytest.skip("a text, and no list")
    model = ("model", f"transcription-{dialect}")
    with_empty = await served(client, upstream, ledger, path, fields=(model, (name, value)))
    assert with_empty == await served(client, upstream, ledger, path, fields=(model,))


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (EMBEDDINGS, "input", []),
        (EMBEDDINGS, "input", ""),
        (EMBEDDINGS, "input", None),
        (EMBEDDINGS, "input", [""]),
        (EMBEDDINGS, "input", [[]]),
        (EMBEDDINGS, "model", ""),
        (EMBEDDINGS, "model", []),
        (EMBEDDINGS, "dimensions", []),
        (IMAGES, "prompt", ""),
        (IMAGES, "prompt", None),
        (IMAGES, "prompt", []),
        (IMAGES, "n", []),
        (SPEECH, "input", ""),
        (SPEECH, "input", []),
        (SPEECH, "voice", None),
        (SPEECH, "voice", ""),
        (SPEECH, "voice", []),
        (SPEECH, "speed", []),
        (CHAT, "messages", []),
        (CHAT, "messages", None),
        (CHAT, "temperature", []),
        (COMPLETIONS, "prompt", []),
        (COMPLETIONS, "prompt", [[]]),
        (COMPLETIONS, "max_tokens", []),
    ],
)
async def test_empty_value_that_changes_the_answer_is_refused(
    client: Client, upstream: FakeUpstream, path: str, name: str, value: Any
) -> None:
    body = {"model": f"{KINDS[path]}-openai", **BODIES[path], name: value}
    response, content = await post(client, path, body=body)
    assert (response.status, json.loads(content)["error"]["param"].partition("[")[0]) == (400, name)
    assert not upstream.seen


@pytest.mark.parametrize(("model", "file", "param"), [("", None, "model"), ("transcription-openai", b"", "file")])
async def test_form_with_an_empty_model_or_file_is_refused(
    client: Client, upstream: FakeUpstream, model: str, file: bytes | None, param: str
) -> None:
    response, content = await post(client, TRANSCRIPTIONS, fields=(("model", model),), file=file)
    assert (response.status, json.loads(content)["error"]["param"]) == (400, param)
    assert not upstream.seen
