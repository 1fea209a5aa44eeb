"""Values that whole and streamed answers of the Gemini dialect share: parts, finish reasons, usage, frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.tool_arguments import arguments_object
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.gemini_conversation import wrapped_signature

FINISH_REASONS: Mapping[str, str] = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "content_filter": "SAFETY",
}
#: Members of an upstream's usage that are passed on: tokens by modality, and the kind of traffic.
KEPT_USAGE = ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails", "trafficType")
#: In place of comments, which Google's own clients take for text of an answer. White space is allowed in JSON, too.
KEEP_ALIVE = b"\n"

Document = dict[str, Any]


class Framing:
    """Writes documents into a stream: as events, or as the elements of an array."""

    __slots__ = ("begun", "is_array")

    def __init__(self, *, is_array: bool) -> None:
        self.is_array = is_array
        self.begun = False

    def frame(self, document: Document) -> bytes:
        """One document."""
        encoded = encode_whole(document)
        if not self.is_array:
            return b"data: %b\r\n\r\n" % encoded
        before, self.begun = b",\r\n" if self.begun else b"[", True
        return before + encoded

    def end(self) -> bytes:
        """The end of a complete stream."""
        if not self.is_array:
            return b""
        return b"]" if self.begun else b"[]"


def stamped(form: AnswerForm, document: Document) -> Document:
    """The document with the model and the id of the answer."""
    return {**document, "modelVersion": form.model, "responseId": form.id}


def candidate(index: int, parts: list[Any], **members: Any) -> Document:
    """One candidate."""
    return {"content": {"parts": parts, "role": "model"}, **members, "index": index}


def usage_metadata(usage: CompletionUsage, upstream: Any = None) -> Document:
    """The usage in this dialect, in which thoughts are counted beside the visible answer."""
    cached, thoughts = usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details.reasoning_tokens
    out: Document = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": max(0, usage.completion_tokens - thoughts),
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
    }
    if cached:
        out["cachedContentTokenCount"] = cached
    if thoughts:
        out["thoughtsTokenCount"] = thoughts
    if isinstance(upstream, dict):
        out |= {name: upstream[name] for name in KEPT_USAGE if upstream.get(name) is not None}
    return out


def function_call(id: str, name: str, arguments: str, extra_content: Raw | UnsetType) -> Document:
    """A whole call as a part, with the signature that it came with."""
    part: Document = {"functionCall": {"id": id, "name": name, "args": arguments_object(arguments)}}
    signature = _signature(extra_content)
    return {**part, "thoughtSignature": signature} if signature else part


def thought_parts(text: str | UnsetType | None, blocks: Raw | UnsetType, *, is_shown: bool = False) -> list[Document]:
    """Reasoning as parts: with the signatures of another vendor, or without them where the upstream gave none.

    `is_shown`: the text of the blocks was sent before, so only their signatures are.
    """
    found = [] if blocks is UNSET else msgspec.json.decode(blocks)
    signed = [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []
    parts = [
        {
            "text": "" if is_shown else str(block["thinking"]),
            "thought": True,
            "thoughtSignature": wrapped_signature(str(block["signature"])),
        }
        for block in signed
        if block.get("signature") and block.get("thinking") is not None
    ]
    return parts or ([{"text": text, "thought": True}] if text else [])


def media_parts(images: Raw | UnsetType) -> list[Document]:
    """The images of an answer that are inside it."""
    found = [] if images is UNSET else msgspec.json.decode(images)
    urls = [image.get("image_url", {}).get("url", "") for image in found or () if isinstance(image, dict)]
    parts = []
    for url in urls:
        head, _, data = str(url).partition(";base64,")
        if head.startswith("data:") and data:
            parts.append({"inlineData": {"mimeType": head[5:], "data": data}})
    return parts


def logprobs_result(logprobs: Any) -> Document:
    """The member of a candidate with its log probabilities; empty without any."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not content:
        return {}
    chosen = [_token(one) for one in content]
    tops = [{"candidates": [_token(one) for one in place.get("top_logprobs") or ()]} for place in content]
    return {"logprobsResult": {"chosenCandidates": chosen, "topCandidates": tops}}


def _token(one: Any) -> Document:
    return {"token": one.get("token"), "logProbability": one.get("logprob")}


def _signature(extra_content: Raw | UnsetType) -> str:
    """The signature in a call's `extra_content`; "" without one."""
    if extra_content is UNSET:
        return ""
    try:
        signature = msgspec.json.decode(extra_content)["google"]["thought_signature"]
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, IndexError):
        return ""
    return signature if isinstance(signature, str) else ""
