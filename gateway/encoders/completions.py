"""Encodes answers in the dialect of `POST /v1/completions` (docs/api.md): texts in place of messages.

A text may begin with its prompt, if the request has `echo`. The prompt is no output, so it is not counted as delivered.
Its length is known for a text. For token numbers it is estimated until the upstream's count of the whole answer comes,
which then stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw

from gateway.billing.delivered import QUARTERS_PER_TOKEN, Delivered
from gateway.billing.usage import is_possible, text_units
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_completion import normalize_completion
from gateway.encoders.chat_form import AnswerForm
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.ids import answer_id
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, ChatMessage, ChunkChoice, CompletionUsage, Delta
from gateway.schemas.completions.native import CompletionsNative
from gateway.sse import DONE, encode_data

#: Finish reasons in this dialect; any other end is a "stop".
REASONS = frozenset({"stop", "length", "content_filter"})
_MEMBERS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def encode_text_completion(answer: ChatCompletion, form: AnswerForm, native: CompletionsNative) -> bytes:
    """The JSON document of a whole answer; UpstreamInvalidResponse if it lacks a choice, or a valid end."""
    if not native.has_all(len(answer.choices)):
        raise UpstreamInvalidResponse(detail=f"{len(answer.choices)} choices for {len(native.prompts)} prompts")
    normalize_completion(answer, form)
    choices = [
        _choice(choice.index, _text(choice.message), _logprobs(choice.logprobs, native, 0), choice.finish_reason)
        for choice in answer.choices
    ]
    usage = (answer.usage or CompletionUsage()).public()
    return encode_whole(_document(form, choices, answer.system_fingerprint) | {"usage": usage})


def delivered_texts(answer: ChatCompletion, delivered: Delivered, native: CompletionsNative) -> Delivered:
    """Our own count of a whole answer: `delivered` counts its texts, with their prompts if they are echoed."""
    if not native.echo:
        return delivered
    if native.is_tokens and answer.usage is not None and is_possible(answer.usage):
        return Delivered()
    echoed = sum(echoed_units(native, choice.index) for choice in answer.choices)
    delivered.text_quarter_tokens = max(0, delivered.text_quarter_tokens - echoed)
    return delivered


def echoed_units(native: CompletionsNative, index: int) -> int:
    """Quarter tokens of the prompt in the text of a choice; an estimate for token numbers."""
    prompt = native.prompt_of(index)
    return text_units(prompt) if isinstance(prompt, str) else QUARTERS_PER_TOKEN * len(prompt)


class CompletionsStreamEncoder(AnswerEncoder):
    """Turns one provider stream into chunks with texts."""

    __slots__ = ("_echoed", "_native", "_offsets")

    def __init__(self, form: AnswerForm, native: CompletionsNative, count: CountAnswer | None = None) -> None:
        super().__init__(form, count=count)
        self._native = native
        self._echoed: dict[int, int] = {}  # quarter tokens of prompts that are still to come, by choice
        self._offsets: dict[int, int] = {}  # characters that were sent, by choice

    @property
    def continues_native(self) -> bool:
        return False

    def close(self) -> bytes:
        if not self._native.has_all(len(self._choices)):
            raise UpstreamTruncated()
        return super().close()

    def part_frames(self, chunk: ChatChunk, part: ChunkChoice) -> bytes:
        text, offset = _text(part.delta), self._offsets.get(part.index, 0)
        if text and self._native.echo:
            self._leave_echo(part.index, text)
        logprobs = _logprobs(part.logprobs, self._native, offset)
        if not text and logprobs is None:
            return b""
        self._offsets[part.index] = offset + len(text)
        return self._frame(chunk, [_choice(part.index, text, logprobs, None)])

    def last_frames(self, finishes: list[ChunkChoice]) -> bytes:
        frames = [self._frame(self._last, [_choice(part.index, "", None, part.finish_reason)]) for part in finishes]
        if self.form.include_usage:
            document = _document(self.form, [], self._last.system_fingerprint)
            frames.append(encode_data(encode_whole(document | {"usage": self.counted_usage()})))
        return b"".join([*frames, DONE])

    def _frame(self, chunk: ChatChunk, choices: list[dict[str, Any]]) -> bytes:
        document = _document(self.form, choices, chunk.system_fingerprint)
        if self.form.include_usage:
            document["usage"] = None
        return encode_data(encode_whole(document))

    def _leave_echo(self, index: int, text: str) -> None:
        """Take the part of `text` that is its prompt from what was delivered."""
        waiting = self._echoed.get(index)
        waiting = echoed_units(self._native, index) if waiting is None else waiting
        echoed = min(waiting, text_units(text))
        self._echoed[index] = waiting - echoed
        self.delivered.text_quarter_tokens -= echoed

    def _take_usage(self, usage: Any) -> None:
        super()._take_usage(usage)
        if self._native.echo and self._native.is_tokens and self.counted:
            self.delivered = Delivered()
            self._counted = copy(self.delivered)


def _document(form: AnswerForm, choices: list[dict[str, Any]], fingerprint: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": answer_id("cmpl-", form.id),
        "object": "text_completion",
        "created": form.created,
        "model": form.model,
        "choices": choices,
    }
    if fingerprint is not None:
        document["system_fingerprint"] = fingerprint
    return document


def _choice(index: int, text: str, logprobs: Any, reason: str | None) -> dict[str, Any]:
    if reason is not None and reason not in REASONS:
        reason = "stop"
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _text(message: ChatMessage | Delta) -> str:
    return message.content or message.refusal or ""


# Log probabilities ---------------------------------------------------------------------------------------------------


def _logprobs(given: Any, native: CompletionsNative, offset: int) -> dict[str, Any] | None:
    """The log probabilities in the form of this dialect; None if they were not asked for, or are of no known form.

    `offset`: the place of the text, in characters. Some servers write those of a chat.
    """
    if not native.logprobs or given is None:
        return None
    if isinstance(given, Raw):
        try:
            given = msgspec.json.decode(given)
        except msgspec.MsgspecError:
            return None
    if not isinstance(given, Mapping):
        return None
    if isinstance(given.get("content"), list):
        return _of_chat(given["content"], offset)
    lists = {name: value if isinstance(value := given.get(name), list) else None for name in _MEMBERS}
    return None if lists["tokens"] is None else lists


def _of_chat(content: list[Any], offset: int) -> dict[str, Any]:
    tokens = [token for token in content if isinstance(token, Mapping) and isinstance(token.get("token"), str)]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token["token"])
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token.get("logprob") for token in tokens],
        "top_logprobs": [_table(token.get("top_logprobs")) for token in tokens],
        "text_offset": offsets,
    }


def _table(tops: Any) -> dict[str, Any]:
    listed = [top for top in tops if isinstance(top, Mapping)] if isinstance(tops, list) else []
    return {str(top.get("token")): top.get("logprob") for top in listed}
