"""The `keep_answer` hooks of a model: they get the answers of providers, when the caller has had them.

An answer is kept as its provider gave it, before `check_answer` hooks changed it: they see it again when it is given
again. The chunks of a stream are joined as they pass, up to `MOST_ANSWER` bytes. An answer that was cut, refused,
filtered or limited in length is not kept, nor one of a fallback, nor one that two targets gave. Sharp edge: a stream
that is collected has no text fast path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import methodcaller
from typing import Any

import msgspec

from gateway.errors import GatewayError
from gateway.hooks.runner import PASSED, HookFailed, HookRunner
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.given_answers import can_be_given
from gateway.inference.services import Services
from gateway.plugins.chunk_accumulator import ChatFold
from gateway.plugins.hook import MOST_ANSWER, CheckedCall, WholeAnswer
from gateway.routing.dispatcher import Opened
from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.native_request import NativeCompletion

#: Reasons why a whole answer ends by itself. A limit may be lower than another caller of the same request would get.
COMPLETE = frozenset({"stop", "tool_calls", "function_call"})

_encode = msgspec.json.Encoder().encode


class WholeKeeping:
    """A whole answer; it is written before the endpoint changes it."""

    def __init__(self, answer: Any) -> None:
        self._answer: WholeAnswer | None = None
        if isinstance(answer, ChatCompletion):
            if not _is_complete(answer):
                return
            if isinstance(answer, NativeCompletion):  # without the document, which only its own API can pass on
                answer = ChatCompletion(*(getattr(answer, name) for name in ChatCompletion.__struct_fields__))
        try:
            self._answer = WholeAnswer.of(answer)
        except ValueError:  # it is too large, or has a lone surrogate
            return

    def whole(self) -> WholeAnswer | None:
        """The answer; None if it is not to be kept."""
        return self._answer


class StreamKeeping:
    """The chunks of a stream."""

    def __init__(self) -> None:
        self._fold: ChatFold | None = ChatFold()
        self._size = 0

    def add(self, chunk: Any) -> None:
        """Add the next chunk, before the encoder changes it."""
        if self._fold is None:
            return
        try:
            for part in chunk.choices:
                self._size += len(_encode(part.delta)) + (len(_encode(part.logprobs)) if part.logprobs else 0)
            self._fold.add(chunk)
        except (TypeError, ValueError, AttributeError, msgspec.MsgspecError):
            self._fold = None  # the encoder says what is wrong with it, if the caller does not get it either
        if self._size > MOST_ANSWER:
            self._fold = None

    async def items(self, source: AsyncIterator[ChatChunk]) -> AsyncIterator[ChatChunk]:
        """The chunks as they come."""
        async for chunk in source:
            self.add(chunk)
            yield chunk

    def whole(self) -> WholeAnswer | None:
        """The answer; None if it is not to be kept."""
        if self._fold is None:
            return None
        try:
            return WholeKeeping(self._fold.whole()).whole()
        except GatewayError:
            return None


def collect_whole(call: Call, endpoint: Endpoint[Any], answer: Any, services: Services) -> None:
    """Collect a whole answer for the hooks that get it."""
    if (hooked := call.hooked) is not None and _keepers(call, endpoint, services):
        hooked.keeping = WholeKeeping(answer)


def collect_stream(call: Call, endpoint: Endpoint[Any], opened: Opened[Any], services: Services) -> None:
    """Collect a stream, as it passes, for the hooks that get it."""
    if (hooked := call.hooked) is not None and _keepers(call, endpoint, services):
        hooked.keeping = keeping = StreamKeeping()
        keeping.add(opened.first)
        opened.rest = keeping.items(opened.rest)


def keep_answer(call: Call, services: Services) -> None:
    """Give the answer to the hooks; called when the caller has had all of it."""
    hooked = call.hooked
    if hooked is None or hooked.keeping is None:
        return
    keeping, hooked.keeping = hooked.keeping, None
    if call.client_gone or call.stopped or call.fallback or call.joined is not None:
        return
    answer = keeping.whole()
    if answer is not None:
        runners = services.call_hooks.of("keep_answer", call.model.hooks)
        services.call_hooks.after_call(_keep(runners, hooked.view(), answer, call.key.account))


async def _keep(runners: Sequence[HookRunner], seen: CheckedCall, answer: WholeAnswer, account: str) -> None:
    for runner in runners:
        try:
            await runner.run(
                "keep_answer",
                methodcaller("keep_answer", seen, answer),
                _ignored,
                account=account,
                digest=hash(seen.request_id),
            )
        except (HookFailed, GatewayError):
            continue  # it is counted, and the caller has the answer


def _keepers(call: Call, endpoint: Endpoint[Any], services: Services) -> list[HookRunner]:
    assert call.hooked is not None
    if call.hooked.answer is not None or not can_be_given(call, endpoint):
        return []
    return services.call_hooks.of("keep_answer", call.model.hooks)


def _ignored(_: Any) -> tuple[None, str]:
    return None, PASSED


def _is_complete(answer: ChatCompletion) -> bool:
    return bool(answer.choices) and all(choice.finish_reason in COMPLETE for choice in answer.choices)
