"""Gemini's server as the tests see it: answers of the vendor's shape, and a `FakeUpstream` that speaks the dialect.

Every document here is also read by Google's own SDK (`test_gemini_sdk.py`), which refuses keys it does not know.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gateway import ChatChunk, ChatCompletion, ChatRequest, Secret, Target, Upstream
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream, Reply, Seen
from gateway_providers.gemini import GeminiProvider

KEY = "AIzaSyTestOnlyNotARealKey0123456789abcd"
TARGET = Target("gemini", "gemini-2.5-flash", "house-flash")
SIGNATURE = "CiQBjz1rX3Rob3VnaHQtc2lnbmF0dXJl"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def part(**fields: Any) -> dict[str, Any]:
    return fields


def candidate(*parts: dict[str, Any], finish: str | None = None, index: int = 0, **extra: Any) -> dict[str, Any]:
    """A candidate as protocol buffers write it: an index of 0 is left out, and so is content without parts."""
    out: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    if finish is not None:
        out["finishReason"] = finish
    if index:
        out["index"] = index
    return {**out, **extra}


def document(*candidates: dict[str, Any], usage: dict[str, Any] | None = None, **extra: Any) -> dict[str, Any]:
    """A whole answer or a frame."""
    out: dict[str, Any] = {"candidates": list(candidates)} if candidates else {}
    if usage is not None:
        out["usageMetadata"] = usage
    return {**out, "modelVersion": "gemini-2.5-flash", "responseId": "mAITaLnzBJTM", **extra}


def usage(prompt: int, candidates: int = 0, thoughts: int = 0, **extra: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"promptTokenCount": prompt, "totalTokenCount": prompt + candidates + thoughts}
    if candidates:
        out["candidatesTokenCount"] = candidates
    if thoughts:
        out["thoughtsTokenCount"] = thoughts
    return {**out, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}], **extra}


HELLO = document(candidate(part(text="Hello there."), finish="STOP"), usage=usage(7, 3))

THOUGHT = document(
    candidate(
        part(text="**Adding**\n\nTwo and two.", thought=True),
        part(text="Four.", thoughtSignature=SIGNATURE),
        finish="STOP",
        avgLogprobs=-0.01,
    ),
    usage=usage(12, 2, 31, cachedContentTokenCount=8),
)

CALLS = document(
    candidate(
        part(functionCall={"name": "tide", "args": {"port": "Brest", "days": 2}}, thoughtSignature=SIGNATURE),
        part(functionCall={"name": "wind", "args": {"port": "Brest"}, "id": "fc-7"}),
        part(functionCall={"name": "moon"}),
        finish="STOP",
        finishMessage="Model generated function call(s).",
    ),
    usage=usage(41, 24),
)

BLOCKED = document(promptFeedback={"blockReason": "PROHIBITED_CONTENT"}, usage=usage(9))

CANDIDATES = document(
    candidate(part(text="One."), finish="STOP"),
    candidate(part(text="Two."), finish="MAX_TOKENS", index=1),
    usage=usage(5, 4),
)

PICTURE = document(
    candidate(
        part(text="Here it is."),
        part(inlineData={"mimeType": "image/png", "data": PNG}),
        finish="STOP",
    ),
    usage=usage(6, 1290, candidatesTokensDetails=[{"modality": "IMAGE", "tokenCount": 1290}]),
)

SOUND = document(
    candidate(part(inlineData={"mimeType": "audio/L16;codec=pcm;rate=24000", "data": "AAABAAIAAwA="}), finish="STOP"),
    usage=usage(4, 30, candidatesTokensDetails=[{"modality": "AUDIO", "tokenCount": 30}]),
)

LOGPROBS = document(
    candidate(
        part(text="Hé"),
        finish="STOP",
        logprobsResult={
            "topCandidates": [
                {
                    "candidates": [
                        {"token": "Hé", "tokenId": 1, "logProbability": -0.1},
                        {"token": "Ho", "tokenId": 2, "logProbability": -2.5},
                    ]
                }
            ],
            "chosenCandidates": [{"token": "Hé", "tokenId": 1, "logProbability": -0.1}],
        },
    ),
    usage=usage(2, 1),
)

STREAM = [
    document(candidate(part(text="**Plan**", thought=True)), usage=usage(12, 0, 9)),
    document(candidate(part(text="Two and ")), usage=usage(12, 3, 14)),
    document(candidate(part(text="two.")), usage=usage(12, 5, 14)),
    document(candidate(part(text="", thoughtSignature=SIGNATURE), finish="STOP"), usage=usage(12, 5, 14)),
]

CALL_STREAM = [
    document(
        candidate(part(functionCall={"name": "tide", "args": {"port": "Brest"}}, thoughtSignature=SIGNATURE)),
        usage=usage(41, 12),
    ),
    document(candidate(part(functionCall={"name": "wind", "args": {"port": "Brest"}})), usage=usage(41, 24)),
    document(candidate(part(text=""), finish="STOP"), usage=usage(41, 24)),
]

DOCUMENTS = [HELLO, THOUGHT, CALLS, BLOCKED, CANDIDATES, PICTURE, SOUND, LOGPROBS, *STREAM, *CALL_STREAM]


def google_error(code: int, status: str, message: str = "No.", *, reason: str = "", delay: str = "") -> dict[str, Any]:
    """An error body as Google's servers write it."""
    details: list[dict[str, Any]] = []
    if reason:
        info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}
        details.append({**info, "metadata": {"service": "generativelanguage.googleapis.com"}})
    if delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"error": {"code": code, "message": message, "status": status, **({"details": details} if details else {})}}


def sse(*documents: Any) -> Reply:
    """A stream as Google frames it: CRLF, no names, no end marker."""
    frames = [b"data: " + msgspec.json.encode(one) + b"\r\n\r\n" for one in documents]
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=frames)


def vector(text: str, length: int) -> list[float]:
    """A vector that belongs to its text; its length is not 1, as a shortened one of Gemini's is not."""
    digest = hashlib.sha512(text.encode()).digest() * -(-length // 64)
    return [byte / 100 - 1.2 for byte in digest[:length]]


def gemini(seen: Seen) -> Reply:
    """The dialect: repeats the last text, whole or as a stream, with usage; draws, speaks and embeds when asked."""
    path, _, query = seen.path.partition("?")
    if "key=" in query:
        return Reply.json(google_error(400, "INVALID_ARGUMENT", "never in the URL"), status=400)
    if path.endswith(":batchEmbedContents"):
        return Reply.json({"embeddings": [{"values": _embedded(one)} for one in seen.json["requests"]]})
    frames = _frames(seen.json)
    if path.endswith(":generateContent"):
        parts = [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
        return Reply.json(document(candidate(*parts, finish="STOP"), usage=frames[-1]["usageMetadata"]))
    if path.endswith(":streamGenerateContent") and query == "alt=sse":
        return sse(*frames, document(candidate(part(text=""), finish="STOP"), usage=frames[-1]["usageMetadata"]))
    return Reply.json(google_error(404, "NOT_FOUND", f"no such method: {path}"), status=404)


def _embedded(request: dict[str, Any]) -> list[float]:
    settings = request.get("embedContentConfig", request)
    return vector(request["content"]["parts"][0]["text"], settings.get("outputDimensionality", 16))


def _frames(asked: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = asked.get("generationConfig", {}).get("responseModalities", ["TEXT"])
    if "IMAGE" in wanted:
        return [document(PICTURE["candidates"][0] | {"finishReason": None}, usage=PICTURE["usageMetadata"])]
    if "AUDIO" in wanted:
        sound = SOUND["candidates"][0]["content"]["parts"][0]
        return [document(candidate(sound), usage=SOUND["usageMetadata"]) for _ in range(4)]
    if "inlineData" in asked["contents"][-1]["parts"][-1]:
        words = ["The", "boats", "are", "in."]
    else:
        words = asked["contents"][-1]["parts"][-1]["text"].split()
    return [document(candidate(part(text=f"{word} ")), usage=usage(9, at)) for at, word in enumerate(words, 1)]


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[GeminiProvider]:
    """A started provider that talks to `fake` under the developer API's paths."""
    link = Upstream()
    given = {"base_url": f"{fake.url}/v1beta", "api_key": Secret("literal", KEY), **options}
    subject = GeminiProvider(GeminiProvider.Options(**given), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def chat_request(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    """A chat request; without messages a short one."""
    said = list(messages) or [{"role": "user", "content": "hi"}]
    return decode_chat_request(msgspec.json.encode({"model": "house-flash", "messages": said, **fields}))


async def sent(request: ChatRequest, *, target: Target = TARGET, **options: Any) -> dict[str, Any]:
    """The body that reaches Gemini for `request`."""
    async with FakeUpstream() as fake, provider(fake, **options) as subject:
        fake.enqueue(Reply.json(HELLO))
        await subject.chat(request, target)
        body: dict[str, Any] = fake.seen[0].json
        return body


async def answer_to(reply: Any, request: ChatRequest | None = None) -> ChatCompletion:
    """What becomes of a whole answer."""
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(reply if isinstance(reply, Reply) else Reply.json(reply))
        return await subject.chat(request or chat_request(), TARGET)


async def chunks_of(*frames: Any, request: ChatRequest | None = None) -> list[ChatChunk]:
    """What becomes of a stream."""
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(frames[0] if isinstance(frames[0], Reply) else sse(*frames))
        return [chunk async for chunk in subject.stream_chat(request or chat_request(stream=True), TARGET)]
