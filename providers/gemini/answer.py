"""A whole answer of Gemini's as a `ChatCompletion`, and the pieces that streams share with it.

`read_completion(body, audio_format=…)` is pure. Sharp edge: a prompt that was blocked has no candidates at all, and
becomes a choice with a refusal.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway import ChatCompletion, ChatMessage, Choice, FunctionCall, ToolCall
from gateway.schemas.answer_surrogates import whole

from .audio import pcm, wav_header
from .contents import extra_content
from .finish import finish_reason, refusal
from .usage import read_usage
from .wire import Blob, LogProb, LogProbs, WireCall, WireCandidate, read_whole

AUDIO_KEPT = 3600  # seconds that a caller is told a spoken answer lives; it is nowhere but in the answer
_BY_PROMPT = ("gemini-1*", "gemini-2*")
_QUERIES = ("webSearchQueries", "imageSearchQueries")
_MOST = 1000  # queries that are told apart; no answer has so many


def read_completion(
    body: bytes, hidden: Sequence[str] = (), *, audio_format: str = "pcm16", model: str = ""
) -> ChatCompletion:
    """The completion in a JSON body; an error that rides in it is raised."""
    answer = read_whole(body, hidden)
    searches = Searches(model)
    for candidate in answer.candidates or ():
        searches.add(candidate.grounding_metadata)
    completion = ChatCompletion(usage=read_usage(answer.usage_metadata, searches=searches.count))
    if not answer.candidates and answer.block_reason is not None:
        message = ChatMessage(refusal=refusal(answer.block_reason))
        completion.choices = [Choice(message=message, finish_reason="content_filter")]
        return completion
    messages = [_message(candidate, audio_format) for _, candidate in answer.numbered]
    usable = any(_spoke(message) or message.tool_calls for message in messages)
    for (index, candidate), message in zip(answer.numbered, messages, strict=True):
        reason = finish_reason(
            candidate.finish_reason or "", called=bool(message.tool_calls), spoke=_spoke(message), usable=usable
        )
        completion.choices.append(Choice(index, message, logprobs(candidate.logprobs_result), reason))
    return completion


def tool_call(call: WireCall, signature: str | None) -> ToolCall:
    """A function call with an id, which Gemini may leave out, and its arguments as compact JSON text."""
    arguments = "{}"
    if call.args is not UNSET and call.args != b"null":
        arguments = msgspec.json.format(bytes(call.args), indent=-1).decode()
    out = ToolCall(
        id=call.id or f"call_{secrets.token_hex(12)}",
        type="function",
        function=FunctionCall(name=call.name, arguments=arguments),
    )
    if signature:
        out.extra_content = extra_content(signature)
    return out


def image(blob: Blob, number: int) -> dict[str, Any]:
    """An image of a chat answer, as an entry of `message.images`."""
    return {"type": "image_url", "image_url": {"url": f"data:{blob.mime_type};base64,{blob.data}"}, "index": number}


def audio_head() -> dict[str, Any]:
    """What a spoken answer says of itself once."""
    return {"id": f"audio_{secrets.token_hex(12)}", "expires_at": int(time.time()) + AUDIO_KEPT}


def logprobs(result: LogProbs | None) -> dict[str, Any] | None:
    """The wire's log probabilities, with alternatives where they were asked."""
    if result is None or not result.chosen_candidates:
        return None
    tops = result.top_candidates or []
    content = []
    for place, chosen in enumerate(result.chosen_candidates):
        others = (tops[place].candidates or []) if place < len(tops) else []
        content.append({**_token(chosen), "top_logprobs": [_token(other) for other in others]})
    return {"content": content, "refusal": None}


def _token(one: LogProb) -> dict[str, Any]:
    token = whole(one.token)
    raw = token.encode()
    return {"token": token, "logprob": max(one.log_probability, -9999.0), "bytes": list(raw)}


def _message(candidate: WireCandidate, audio_format: str) -> ChatMessage:
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    images: list[dict[str, Any]] = []
    blobs: list[Blob] = []
    for part in candidate.parts:
        if part.text is not None:
            (reasoning if part.thought else text).append(part.text)
        elif part.function_call is not None:
            calls.append(tool_call(part.function_call, part.thought_signature))
        elif part.inline_data is not None and not part.thought:
            if part.inline_data.mime_type.startswith("audio/"):
                blobs.append(part.inline_data)
            else:
                images.append(image(part.inline_data, len(images)))
    message = ChatMessage(content="".join(text) if text or not (calls or blobs) else None)
    if reasoning:
        message.reasoning_content = "".join(reasoning)
    if calls:
        message.tool_calls = calls
    if images:
        message.images = Raw(msgspec.json.encode(images))
    if blobs:
        message.audio = _audio(blobs, audio_format)
    return message


def _audio(blobs: Iterable[Blob], audio_format: str) -> Raw:
    samples = b"".join(map(pcm, blobs))
    if audio_format == "wav":
        samples = wav_header(len(samples)) + samples
    return Raw(msgspec.json.encode({**audio_head(), "data": base64.b64encode(samples).decode(), "transcript": ""}))


def _spoke(message: ChatMessage) -> bool:
    return bool(message.content) or message.images is not UNSET or message.audio is not UNSET


class Searches:
    """The Google searches of an answer, for the charge: `groundingMetadata` names their queries.

    Gemini 3 and later charge each query, earlier models each prompt that was grounded, however many queries it took.
    Frames of a stream may repeat queries, and a query counts once.
    """

    def __init__(self, model: str) -> None:
        name = model.rpartition("/")[2]
        self._by_prompt = any(fnmatchcase(name, pattern) for pattern in _BY_PROMPT)
        self._queries: set[int] = set()  # hashes, since a query has any length

    def add(self, metadata: Any) -> None:
        """Take the queries of a candidate's `groundingMetadata`; anything else has none."""
        if not isinstance(metadata, dict):
            return
        for name in _QUERIES:
            queries = metadata.get(name)
            for query in queries if isinstance(queries, list) else ():
                if isinstance(query, str) and query and len(self._queries) < _MOST:
                    self._queries.add(hash(query))

    @property
    def count(self) -> int:
        """The number of searches that Google charges."""
        return min(len(self._queries), 1) if self._by_prompt else len(self._queries)
