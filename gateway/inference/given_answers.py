"""The `answer_call` hooks of a model: they may answer a call in place of a provider, when its money is held.

A given answer has the form of a provider's, so it is encoded, checked, counted and settled like one, in whichever API
the caller speaks. A streamed request gets chunks that are made of it. It is charged by its own usage at the price of
the call, times the factor of the hook. The line has the product of both factors, so it can be recomputed. Sharp edge:
only what every provider could have answered can be given, so no compactions and no tools of an upstream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any

import msgspec
from msgspec import UNSET, Raw, structs

from gateway.amounts import NANO, format_amount
from gateway.billing.price import Price
from gateway.billing.price_terms import OwnPrice
from gateway.errors import GatewayError
from gateway.hooks.runner import ANSWERED, PASSED, HookFailed
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.plugins.hook import MOST_ANSWER, WholeAnswer
from gateway.routing.dispatcher import Opened
from gateway.schemas.chat_response import (
    FINISH_REASONS,
    ChatChunk,
    ChatCompletion,
    ChunkChoice,
    CustomCall,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
)
from gateway.schemas.embeddings import EmbeddingAnswer
from gateway.schemas.scoring.moderation import ModerationAnswer
from gateway.schemas.scoring.rerank import RerankAnswer

#: What hooks can give and get; other answers are sound, images, or a socket.
GIVEN = (ChatCompletion, EmbeddingAnswer, ModerationAnswer, RerankAnswer)
HEADER = "x-gateway-answered-by"
PIECE = 4096  # characters of a chunk
_encode = msgspec.json.Encoder().encode
_RAWS = ("audio", "annotations", "reasoning_details", "thinking_blocks", "images")


def can_be_given(call: Call, endpoint: Endpoint[Any]) -> bool:
    """Whether the answer of the call has a form that hooks can give and get."""
    if endpoint.answers not in GIVEN or call.quote.vendor_input:
        return False
    native = getattr(call.request, "native", None)
    return native is None or not (native.compacts or native.only_native)


async def ask_hooks(call: Call, endpoint: Endpoint[Any], services: Services) -> bool:
    """Ask the hooks for an answer, which is then `call.hooked.answer`; raises the error of a refusal."""
    hooked = call.hooked
    assert hooked is not None
    runners = services.call_hooks.of("answer_call", call.model.hooks)
    if not runners or not can_be_given(call, endpoint):
        return False
    for runner in runners:
        try:
            answer, outcome = await runner.run(
                "answer_call",
                methodcaller("answer_call", hooked.view()),
                partial(_accepted, call, endpoint),
                account=call.key.account,
                digest=hash(call.request_id),
            )
        except HookFailed as failure:
            hooked.failed(runner, failure)
            continue
        except GatewayError:
            hooked.refused(runner)
            raise
        hooked.note(runner, outcome)
        if answer is not None:
            hooked.answer = answer
            call.reply.headers[HEADER] = runner.name
            call.reply.headers.pop("x-gateway-max-tokens", None)  # no upstream gets a limit
            _charge(call, runner.settings.price_factor)
            return True
    return False


def stream_of(call: Call) -> Opened[Any]:
    """The given answer as a stream."""
    assert call.hooked is not None
    chunks = _chunks(call.hooked.answer)
    # The candidate is only named: no attempt has begun, and the answer was found valid.
    return Opened(call.adapted[0].candidate, next(chunks), _one_by_one(chunks), in_flight=False)


def _accepted(call: Call, endpoint: Endpoint[Any], found: Any) -> tuple[Any, str]:
    """What a hook returned: nothing, or an answer in the form of providers; ValueError if it is not possible."""
    if found is None:
        return None, PASSED
    if not isinstance(found, WholeAnswer) or not isinstance(found.content, bytes):
        raise ValueError(f"an answer is a WholeAnswer with bytes, not a {type(found).__name__}")
    if len(found.content) > MOST_ANSWER:
        raise ValueError(f"its answer has {len(found.content)} bytes, of at most {MOST_ANSWER}")
    try:
        answer = _decoder(endpoint.answers).decode(found.content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its answer is no {endpoint.answers.__name__}: {error}") from None
    if isinstance(answer, ChatCompletion):
        if not answer.choices or any(one.finish_reason not in FINISH_REASONS for one in answer.choices):
            raise ValueError("its answer has no choice, or one without a finish")
        if any(choice.index != position for position, choice in enumerate(answer.choices)):
            raise ValueError("the choices of its answer are not numbered from 0")
    elif isinstance(answer, EmbeddingAnswer) and len(answer.vectors) != len(call.request.inputs):
        raise ValueError(f"its answer has {len(answer.vectors)} vectors for {len(call.request.inputs)} inputs")
    return answer, ANSWERED


@lru_cache(maxsize=len(GIVEN))
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _charge(call: Call, factor: int) -> None:
    """Charge the call at its price times a factor of at most 1, rounded up to 1e-9."""
    if factor == NANO:
        return
    before = call.quote.price
    product = -(-before.factor * factor // NANO)
    call.quote = structs.replace(call.quote, price=_listed(call).times(product))
    call.hold.price_factor = format_amount(product)


def _listed(call: Call) -> Price:
    """The price of the call without a factor, of which audits make the price again."""
    price, model = call.quote.price, call.model
    if price.factor == NANO:
        return price
    own = call.quote.terms.of(model.name)
    settings = [own.replaced(listed) if isinstance(own, OwnPrice) else listed for listed in model.listed]
    return next((one for one in map(Price.of, settings) if one.version == price.version), price)


def _chunks(answer: ChatCompletion) -> Iterator[ChatChunk]:
    """The answer as a stream: of each choice its reasoning, text and calls; then the finishes; then the usage."""
    for choice in answer.choices:
        message, index = choice.message, choice.index
        for name in ("reasoning_content", "content", "refusal"):
            text = getattr(message, name) or ""
            for start in range(0, len(text), PIECE):
                logprobs = choice.logprobs if name != "reasoning_content" and not start else None
                yield _chunk(answer, ChunkChoice(index, _delta(**{name: text[start : start + PIECE]}), logprobs))
        raws = {name: raw for name in _RAWS if (raw := getattr(message, name)) not in (UNSET, None, [])}
        if raws:
            yield _chunk(answer, ChunkChoice(index, _delta(**raws)))
        calls = list(message.tool_calls or ())
        if message.function_call:
            calls.append(ToolCall(function=message.function_call))
        for position, call in enumerate(calls):
            for part in _call_parts(position, call):
                yield _chunk(answer, ChunkChoice(index, Delta(tool_calls=[part])))
    for choice in answer.choices:
        yield _chunk(answer, ChunkChoice(choice.index, finish_reason=choice.finish_reason))
    last = _chunk(answer)
    last.usage, last.moderation = answer.usage or UNSET, answer.moderation
    yield last


def _call_parts(position: int, call: ToolCall) -> Iterator[ToolCallDelta]:
    """A call of a tool in pieces: its name comes with the first one."""
    kind = call.custom if call.custom else call.function
    text = (kind.input if isinstance(kind, CustomCall) else kind.arguments if kind else "") or ""
    for start in range(0, max(1, len(text)), PIECE):
        part, piece = ToolCallDelta(position), text[start : start + PIECE]
        name = (kind.name if kind else "") if not start else UNSET
        if call.custom:
            part.custom = CustomCall(name, piece)
        else:
            part.function = FunctionCall(name, piece)
        if not start:
            part.id, part.type, part.extra_content = call.id, call.type, call.extra_content
        yield part


def _delta(**fields: Any) -> Delta:
    delta = Delta()
    for name, value in fields.items():
        setattr(delta, name, Raw(_encode(value)) if isinstance(value, list) else value)
    return delta


def _chunk(answer: ChatCompletion, *choices: ChunkChoice) -> ChatChunk:
    tier = answer.service_tier
    return ChatChunk(choices=list(choices), system_fingerprint=answer.system_fingerprint, service_tier=tier)


async def _one_by_one(chunks: Iterator[ChatChunk]) -> AsyncIterator[ChatChunk]:
    for chunk in chunks:
        yield chunk
