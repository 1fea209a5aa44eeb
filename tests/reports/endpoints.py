"""The endpoints beside chat before one scripted server, in every dialect that has them, and a right answer to each."""

from __future__ import annotations

import io
import wave
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import AUDIO, PIXEL, openai_dialect
from gateway.testing.reply import Seen
from tests.api.conftest import Client

CHAT, EMBEDDINGS, IMAGES = "/v1/chat/completions", "/v1/embeddings", "/v1/images/generations"
MODERATIONS, RERANK = "/v1/moderations", "/v1/rerank"
SPEECH, TRANSCRIPTIONS = "/v1/audio/speech", "/v1/audio/transcriptions"
COMPLETIONS, TRANSLATIONS = "/v1/completions", "/v1/audio/translations"
#: The dialects of each endpoint: models are called ENDPOINT-DIALECT.
DIALECTS = {
    EMBEDDINGS: ("openai", "gemini", "cohere"),
    IMAGES: ("openai", "gemini"),
    MODERATIONS: ("openai",),
    RERANK: ("openai", "cohere"),
    SPEECH: ("openai", "gemini", "deepgram", "elevenlabs"),
    TRANSCRIPTIONS: ("openai", "gemini", "deepgram", "elevenlabs"),
    TRANSLATIONS: ("openai",),
    COMPLETIONS: ("openai",),
}
PRICES: dict[str, dict[str, Any]] = {
    CHAT: {"input": 1, "output": 2},
    EMBEDDINGS: {"input": 1000},
    IMAGES: {"per_image": {"*": "0.01"}},
    MODERATIONS: {"per_request": "0.01"},
    RERANK: {"input": 1000, "per_search_unit": "0.01"},
    SPEECH: {"per_character": 1000},
    TRANSCRIPTIONS: {"per_second_in": "0.01"},
    TRANSLATIONS: {"per_second_in": "0.01"},
    COMPLETIONS: {"input": 1, "output": 2},
}
KINDS = {
    CHAT: "chat",
    COMPLETIONS: "chat",
    EMBEDDINGS: "embeddings",
    IMAGES: "images",
    MODERATIONS: "moderation",
    RERANK: "rerank",
    SPEECH: "speech",
    TRANSCRIPTIONS: "transcription",
    TRANSLATIONS: "transcription",
}
#: The least body of each endpoint.
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    COMPLETIONS: {"prompt": "Hi"},
    EMBEDDINGS: {"input": ["a grey heron"]},
    IMAGES: {"prompt": "a grey heron"},
    MODERATIONS: {"input": "a grey heron"},
    RERANK: {"query": "a grey heron", "documents": ["a heron", {"text": "a gull"}]},
    SPEECH: {"input": "Three herons.", "voice": "alloy", "response_format": "wav"},
}


def settings_for(upstream: FakeUpstream, folder: Path) -> Settings:
    """A model for each endpoint and dialect."""
    key = "canary-0123456789"
    up: dict[str, Any] = {
        "plugin": "openai",
        "base_url": upstream.base_url,
        "api_key": f"sk-{key}",
        "forward_params": ["*"],
    }
    up["completions"] = True
    providers: dict[str, Any] = {
        "openai": up,
        "anthropic": {"plugin": "anthropic", "base_url": upstream.url, "api_key": f"sk-ant-{key}"},
        "gemini": {"plugin": "gemini", "base_url": f"{upstream.url}/v1beta", "api_key": f"AIzaSy{key}"},
        "bedrock": {"plugin": "bedrock", "base_url": upstream.url, "region": "us-east-1", "api_key": key},
        "cohere": {"plugin": "cohere", "base_url": upstream.url, "api_key": key},
        "deepgram": {"plugin": "deepgram", "base_url": upstream.url, "api_key": key},
        "elevenlabs": {
            "plugin": "elevenlabs",
            "base_url": upstream.url,
            "api_key": key,
            "voice_map": {"alloy": "21m00Tcm4TlvDq8ikWAM"},
        },
    }
    models: dict[str, Any] = {
        f"{KINDS[path]}-{dialect}": {
            "provider": dialect,
            "model": "gemini-2.5-flash" if dialect == "gemini" else "upstream",
            "price": PRICES[path],
            "endpoints": [KINDS[path]],
            "retries": 0,
        }
        for path, dialects in {CHAT: ("openai", "anthropic", "gemini", "bedrock", "cohere"), **DIALECTS}.items()
        for dialect in dialects
    }
    models["voice-by-second"] = {**models["speech-openai"], "price": {"per_second_out": "0.01"}}
    return parse(
        {
            "store": {"data_dir": str(folder)},
            "providers": providers,
            "groups": {"default": {}},
            "models": models,
        },
        demo=True,
    )


def right_answer(seen: Seen) -> Reply:
    """A right answer of whatever endpoint was asked."""
    path = seen.path.partition("?")[0]
    if path.endswith(":batchEmbedContents"):
        vectors = [{"values": [0.5, 0.25]} for _ in seen.json["requests"]]
        return Reply.json({"embeddings": vectors, "usageMetadata": {"promptTokenCount": 3}})
    if path.endswith("/v2/embed"):
        floats = [[0.5, 0.25] for _ in seen.json["texts"]]
        return Reply.json({"embeddings": {"float": floats}, "meta": {"billed_units": {"input_tokens": 3}}})
    if path.endswith("/v2/rerank"):
        results = [{"index": index, "relevance_score": 0.5} for index in range(len(seen.json["documents"]))]
        return Reply.json({"id": "r", "results": results, "meta": {"billed_units": {"search_units": 1}}})
    if "enerateContent" in path:
        return _gemini(path, seen.body)
    if path.endswith("/v1/speak") or "/v1/text-to-speech/" in path:
        return Reply(headers={"Content-Type": "audio/wav"}, body=AUDIO["wav"])
    if path.endswith("/v1/listen"):
        channel = {"alternatives": [{"transcript": "I heard"}]}
        return Reply.json({"results": {"channels": [channel]}, "metadata": {"duration": 2.0}})
    if path.endswith("/v1/speech-to-text"):
        return Reply.json({"text": "I heard", "audio_duration_secs": 2.0})
    return openai_dialect(seen)


def _gemini(path: str, body: bytes) -> Reply:
    part: dict[str, Any] = {"text": "I heard"}
    if b'"IMAGE"' in body:
        part = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    elif b'"AUDIO"' in body:
        part = {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": b64encode(AUDIO["pcm"]).decode()}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 50}
    frame = {"candidates": [candidate], "usageMetadata": usage}
    return Reply.stream([frame], done=False) if "stream" in path else Reply.json(frame)


def wav(seconds: float = 2.0) -> bytes:
    """A file of silence."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(seconds * 16_000)))
    return buffer.getvalue()


def form(*fields: tuple[str, str], file: bytes | None = None) -> aiohttp.FormData:
    """A form of these texts and a file of two seconds."""
    data = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields:
        data.add_field(name, value)
    data.add_field("file", wav() if file is None else file, filename="a.wav", content_type="audio/wav")
    return data


async def post(
    client: Client, path: str, *, body: Any = None, fields: tuple[tuple[str, str], ...] = (), file: bytes | None = None
) -> tuple[aiohttp.ClientResponse, bytes]:
    """The response to a JSON body or to a form, and its content."""
    headers = {"Authorization": client.headers["Authorization"]}
    data: Any = form(*fields, file=file)
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with client.request("POST", path, data=data, headers=headers) as response:
        return response, await response.read()
