"""Lets another target finish a text stream that its upstream cut, where its text is proved to fit (`seam`).

The other target is asked as `continuation_requests` says. Nothing of its answer is sent to the caller before it is
known to fit. If it does not fit, the next request or target follows while attempts are left. A stream without a rest
that fits stays cut, and the caller gets the error of the cut; so does one with a tool call, a second choice or other
content. A request that went up in its own dialect is continued in that of chat. A call is continued once. Sharp edge:
no upstream reports the usage of the whole answer, so the charge follows the delivered text and is marked as estimated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from msgspec import UNSET

from gateway.catalog import Model
from gateway.errors import GatewayError, UpstreamError, UpstreamTruncated
from gateway.http_client.send_state import current
from gateway.routing.attempt_answers import note_failure, note_not_joined, note_usage
from gateway.routing.continuation_requests import Asked, ask_others
from gateway.routing.delivered_text import DeliveredText
from gateway.routing.dispatcher import Dispatcher, Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.routing.seam import NotJoined, Seam
from gateway.schemas.answer_surrogates import WaitingSurrogates
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk

Attempt = Callable[[Adapted[ChatRequest]], AsyncIterator[ChatChunk]]
REFUSED = "refused"  # in the metric, beside the forms of a seam


@dataclass(eq=False, repr=False, slots=True)
class Continuation:
    """The way to the rest of one opened stream, if that is cut."""

    opened: Opened[ChatChunk]
    options: Callable[[], Sequence[Adapted[ChatRequest]]]  # the requests to the targets; asked for at the cut
    _: KW_ONLY
    model: Model  # the requested one
    mode: str  # "proved" or "any"
    dispatcher: Dispatcher
    attempt: Attempt
    tried: list[Candidate]
    on_joined: Callable[[str, str], None]  # called with the form of the seam and the text before it
    reported: Callable[[], object]  # the usage that the upstream has reported before the cut
    delivered: DeliveredText = field(default_factory=DeliveredText)

    async def after(self, failure: UpstreamError) -> AsyncIterator[ChatChunk]:
        """The rest of the answer from another target; raises `failure` when there is none."""
        here = self.opened.candidate
        try:
            asked = ask_others(self.delivered, self.options(), here, self.mode) if failure.retryable else None
            model = self.model
            if asked is None or not asked.options or not self.dispatcher.may_continue(model, self.tried):
                raise failure
            note_usage(current(), self.reported())
            note_failure(current(), self.tried, here, failure)
            try:
                other, rest = await self._find(asked)
            except BaseException as error:
                # The target that delivered is the last one, also where the caller leaves now.
                self.tried[:] = [*(candidate for candidate in self.tried if candidate is not here), here]
                if isinstance(error, GatewayError | NotJoined):
                    # The errors of the other targets are about a request that the caller did not send.
                    self.dispatcher.metrics.inc("gateway_joins", (model.name, REFUSED))
                    raise failure from None
                raise
            self.dispatcher.failed(here, failure)
        finally:
            del failure  # its traceback refers to this frame
        self.opened.continue_with(other)
        self.opened.rest = chunks = rest.chunks()  # whose end closes it
        self.dispatcher.metrics.inc("gateway_joins", (model.name, rest.seam.form))
        self.on_joined(rest.seam.form, asked.delivered)
        return chunks

    async def _find(self, asked: Asked) -> tuple[Opened[ChatChunk], JoinedStream]:
        """The first stream whose text fits, while attempts are left."""
        while True:
            other = await self._open(asked)
            try:
                return other, await self._joined(other, asked)
            except NotJoined:
                asked.leave_out(other.candidate)
                if not asked.options:
                    raise
                if not self.dispatcher.may_continue(asked.options[0].candidate.model, self.tried):
                    raise

    async def _open(self, asked: Asked) -> Opened[ChatChunk]:
        """The first stream that begins; a target that refuses the request is followed by the next one."""
        options = asked.options
        while True:
            try:
                return await self.dispatcher.open(options, self.attempt, self.tried)
            except GatewayError as error:
                last = self.tried[-1]
                at = next((at for at, option in enumerate(options) if option.candidate is last), len(options))
                options = options[at + 1 :]
                if (isinstance(error, UpstreamError) and error.retryable) or not options:
                    raise
                if not self.dispatcher.may_continue(options[0].candidate.model, self.tried):
                    raise

    async def _joined(self, other: Opened[ChatChunk], asked: Asked) -> JoinedStream:
        """The stream, read until its text is known to fit."""
        state = current()
        rest = JoinedStream(other, asked.seam(other.candidate), partial(note_usage, state))
        try:
            await rest.read_to_seam()
        except BaseException as error:
            if isinstance(error, NotJoined):
                note_not_joined(state, self.tried, other.candidate)
            elif isinstance(error, UpstreamError):
                note_failure(state, self.tried, other.candidate, error)
                self.dispatcher.failed(other.candidate, error)
            await other.close()
            raise
        return rest


class JoinedStream:
    """The chunks of another target as parts of the answer: from the seam on, without role, reasoning and usage."""

    def __init__(self, other: Opened[ChatChunk], seam: Seam, on_usage: Callable[[object], None]) -> None:
        self.seam = seam
        self._on_usage = on_usage
        self._other = other
        self._first: ChatChunk | None = None  # from the seam on
        self._surrogates = WaitingSurrogates()

    async def read_to_seam(self) -> None:
        """Read until the text is known to fit; NotJoined if it does not, UpstreamError if the stream fails before."""
        chunk: ChatChunk | None = self._other.first
        while chunk is not None:
            if self._feed(self._plain(chunk)):
                self._first = chunk
                return
            chunk = await anext(self._other.rest, None)
        raise UpstreamTruncated()

    async def chunks(self) -> AsyncIterator[ChatChunk]:
        """Every chunk from the seam on."""
        try:
            assert self._first is not None
            yield self._first
            self._first = None
            async for chunk in self._other.rest:
                yield self._plain(chunk)
        finally:
            await self._other.close()

    def _feed(self, chunk: ChatChunk) -> bool:
        """Whether the text is known to fit with this chunk, which then has the new text only."""
        new: str | None = None
        for part in chunk.choices:
            delta = part.delta
            if delta.content:
                new = self.seam.feed(delta.content)
                delta.content = new or UNSET
            if new is not None:
                continue
            if delta.tool_calls or delta.function_call:
                delta.content = new = self.seam.before_call()
            elif delta.continues:
                raise NotJoined
            elif part.finish_reason is not None:
                delta.content = new = self.seam.end()
        return new is not None

    def _plain(self, chunk: ChatChunk) -> ChatChunk:
        if chunk.usage:
            self._on_usage(chunk.usage)
        chunk.usage = UNSET
        chunk.choices = [part for part in chunk.choices if part.index == 0]
        for part in chunk.choices:
            delta = part.delta
            delta.role = delta.reasoning_content = delta.reasoning_details = delta.thinking_blocks = UNSET
            text = delta.content or ""
            if text:
                text = self._surrogates.join(0, text)
            if part.finish_reason is not None:
                text += self._surrogates.give_up(0)
            if text or delta.content:
                delta.content = text
        return chunk
