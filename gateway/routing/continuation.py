"""Continues a text stream at another target when its upstream cut it off, if the model has `continue_cut = true`.

The new target gets the conversation, the text so far as an assistant message, and the request to continue it. This
works for plain text only: a stream with a tool call, a second choice, reasoning or other content stays cut, and so does
structured output. It happens once per call, if an attempt is left. When no other target answers, the caller gets the
error of the cut. Sharp edge: no upstream reports the usage of the whole answer, so the charge follows the delivered
text and is marked as estimated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec
from msgspec import UNSET, Raw, structs

from gateway.billing.usage import text_units, tokens_of
from gateway.errors import GatewayError, UpstreamError, UpstreamTruncated
from gateway.http_client.send_state import current
from gateway.routing.attempt_answers import note_failure
from gateway.routing.dispatcher import Dispatcher, Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.answer_surrogates import ends_in_high_surrogate, whole
from gateway.schemas.chat_messages import AssistantMessage, TextFormat, UserMessage
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, Delta

RESUME_PROMPT = "Continue your answer exactly where it stops. Repeat nothing, explain nothing."
MAX_TEXT = 1 << 20  # characters of text that are kept; a longer answer stays cut

Attempt = Callable[[Adapted[ChatRequest]], AsyncIterator[ChatChunk]]


@dataclass(eq=False, repr=False, slots=True)
class Continuation:
    """The rest of one opened stream, followed by the rest of another one if the first is cut."""

    opened: Opened[ChatChunk]
    options: Sequence[Adapted[ChatRequest]]
    _: KW_ONLY
    dispatcher: Dispatcher
    attempt: Attempt
    tried: list[Candidate]
    on_continued: Callable[[], None]  # called when another target continues
    continued: bool = False
    _rest: AsyncIterator[ChatChunk] = field(init=False)
    _parts: list[str] | None = field(default_factory=list)  # the text so far; None once it cannot be continued
    _size: int = 0
    _ended: bool = False

    def __post_init__(self) -> None:
        self._rest = self.opened.rest  # which the caller replaces with `chunks`

    async def chunks(self) -> AsyncIterator[ChatChunk]:
        """Every chunk after the first."""
        self._note(self.opened.first)
        try:
            async for chunk in self._rest:
                self._note(chunk)
                yield chunk
            if self._ended:
                return
            failure: UpstreamError = UpstreamTruncated()
        except UpstreamError as error:
            failure = error
        try:
            opened = await self._other(failure)
        finally:
            del failure  # its traceback refers to this frame
        try:
            yield _plain(opened.first)
            async for chunk in opened.rest:
                yield _plain(chunk)
        finally:
            await opened.close()

    async def _other(self, failure: UpstreamError) -> Opened[ChatChunk]:
        """The stream of the target that continues; raises `failure` when none does."""
        here = self.opened.candidate
        try:
            options = self._options_to_continue() if failure.retryable else []
            if not options or not self.dispatcher.may_continue(self.options[0].candidate.model, self.tried):
                raise failure
            note_failure(current(), self.tried, here, failure)
            try:
                opened = await self.dispatcher.open(options, self.attempt, self.tried)
            except BaseException as error:
                # The target that delivered is the last one, also where the caller leaves now.
                self.tried[:] = [*(candidate for candidate in self.tried if candidate is not here), here]
                if isinstance(error, GatewayError):
                    # The errors of the other targets are about a request that the caller did not send.
                    raise failure from None
                raise
            self.dispatcher.failed(here, failure)
        finally:
            del failure  # as above
        self.opened.continue_with(opened)
        self.continued = True
        self.on_continued()
        return opened

    def _note(self, chunk: ChatChunk) -> None:
        self._ended = self._ended or any(part.finish_reason for part in chunk.choices)
        if self._parts is None:
            return
        for part in chunk.choices:
            if part.index or not _is_text(part.delta):
                self._parts = None
                return
            if part.delta.content:
                self._parts.append(part.delta.content)
                self._size += len(part.delta.content)
        if self._size > MAX_TEXT:
            self._parts = None

    def _options_to_continue(self) -> list[Adapted[ChatRequest]]:
        """The other targets, with the request to continue; empty when this answer cannot be continued."""
        if not self._parts or self._ended or not _is_prose(self.options[0].request):
            return []
        text = "".join(self._parts)
        text = whole(text[:-1] if ends_in_high_surrogate(text) else text)  # what the client got of it
        here = self.opened.candidate.target
        return [
            structs.replace(option, request=continued(option.request, text, factor=option.candidate.model.token_factor))
            for option in self.options
            if option.candidate.target is not here
        ]


def continued(request: ChatRequest, text: str, *, factor: float) -> ChatRequest:
    """The request for the rest of an answer whose beginning is `text`."""
    messages = [*request.messages, AssistantMessage(content=text), UserMessage(content=RESUME_PROMPT)]
    fields = {**request.fields, "messages": _appended(request.fields.get("messages"), messages)}
    limits = {}
    for name in ("max_tokens", "max_completion_tokens"):
        limit = getattr(request, name)
        if limit is not None:
            limits[name] = max(1, limit - tokens_of(text_units(text), factor=factor))
            fields[name] = Raw(b"%d" % limits[name])
    return structs.replace(request, messages=messages, fields=fields, **limits)


def _appended(sent: Raw | None, messages: Sequence[object]) -> Raw:
    """The messages as the caller sent them, and the two that the gateway adds."""
    ours = b",".join(map(msgspec.json.encode, messages[-2:]))
    body = bytes(sent).rstrip() if sent is not None else b""
    return Raw(body[:-1] + b"," + ours + b"]") if body else Raw(msgspec.json.encode(messages))


def _is_prose(request: ChatRequest) -> bool:
    plain_format = request.response_format is None or isinstance(request.response_format, TextFormat)
    return plain_format and request.choices == 1 and not request.logprobs and "audio" not in (request.modalities or ())


def _is_text(delta: Delta) -> bool:
    return not any(value is not UNSET and value is not None for value in delta.other_parts)


def _plain(chunk: ChatChunk) -> ChatChunk:
    """A chunk of the other target as part of this answer, without its role and its usage."""
    chunk.usage = UNSET
    chunk.choices = [_without_role(part) for part in chunk.choices if part.index == 0]
    return chunk


def _without_role(part: ChunkChoice) -> ChunkChoice:
    part.delta.role = UNSET
    return part
