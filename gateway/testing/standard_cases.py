"""What the clients of all chat dialects get of a provider's answers, against the classes of their standards.

The answer to a plain question is written as the gateway writes it: as chat completions, completions, Responses,
Messages and Gemini, whole and streamed. Without the packages of the extra `conformance` the case is skipped, and its
reason says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec

from gateway.billing.delivered import Delivered
from gateway.encoders.chat_form import AnswerForm
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import CompletionUsage
from gateway.testing.chat_cases import ask
from gateway.testing.subject import Case, NotConcerned, Subject

FORM = AnswerForm("chatcmpl-aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1, "public-name", include_usage=True)
WORDS = "Say something in five words."
EXTRA = "pip install 'model-gateway[conformance]' installs the classes of the standards"


async def answers_hold_the_standards(subject: Subject) -> None:
    """Neither a missing member nor one that is foreign or of another type, in no dialect of clients."""
    try:
        from gateway.testing.standards import faults_of
        from gateway.testing.standards.classes import Missing
    except ModuleNotFoundError as error:
        raise NotConcerned(f"the package {error.name} is missing: {EXTRA}") from None
    chunks = await subject.stream(ask(WORDS))
    answer = await subject.chat.chat(ask(WORDS), subject.target)
    answer.usage = answer.usage or CompletionUsage()  # the gateway's estimate
    try:
        for path, dialect, request in _clients():
            encoder = dialect.stream_encoder(FORM, request, _count)
            frames = [encoder.feed(deepcopy(chunk)) for chunk in chunks]
            faults = faults_of(path, "text/event-stream", b"".join([*frames, encoder.close()]))
            assert not faults, f"the stream at {path}: {'; '.join(faults)}"
            faults = faults_of(path, "application/json", dialect.encode(deepcopy(answer), FORM, request))
            assert not faults, f"the whole answer at {path}: {'; '.join(faults)}"
    except Missing as error:
        raise NotConcerned(str(error)) from None


def _clients() -> Iterator[tuple[str, Any, ChatRequest]]:
    """The path, the dialect and the same question of each kind of client."""
    # The HTTP surface: authors of plugins who do not run this case need not import it.
    from gateway.api.endpoints.chat_dialect import ChatCompletions
    from gateway.api.endpoints.completions import Completions
    from gateway.api.endpoints.gemini import Gemini
    from gateway.api.endpoints.messages import Messages
    from gateway.api.endpoints.responses import Responses

    said = [{"role": "user", "content": WORDS}]
    contents = [{"role": "user", "parts": [{"text": WORDS}]}]
    for path, dialect, fields in (
        ("/v1/chat/completions", ChatCompletions(), {"model": "public-name", "messages": said}),
        ("/v1/completions", Completions(), {"model": "public-name", "prompt": WORDS}),
        ("/v1/responses", Responses(), {"model": "public-name", "input": WORDS}),
        ("/v1/messages", Messages(), {"model": "public-name", "messages": said, "max_tokens": 100}),
        ("/v1beta/models/m:generateContent", Gemini("public-name"), {"contents": contents}),
    ):
        yield path, dialect, dialect.decode(msgspec.json.encode(fields))


def _count(usage: CompletionUsage | None, delivered: Delivered, is_whole: bool) -> CompletionUsage:
    return usage or CompletionUsage()


CASES: tuple[Case, ...] = (answers_hold_the_standards,)
