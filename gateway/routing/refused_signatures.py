"""What to send once if an upstream refuses signed reasoning that another vendor of the same dialect wrote.

Such reasoning has no mark of its vendor, so only the refusal shows that it is foreign. Messages: thinking of earlier
turns is left out. Anthropic refuses a call of a tool without its thinking while `thinking` is a budget, so thinking is
off for this one call where the last assistant turn has a call. Responses: reasoning items are left out. Gemini: the
signatures are left out, and the provider sends Google's documented bypass to a model that demands one. Chat: the fields
that carry any of these are left out. A request is examined only after its upstream has refused it.
"""

from __future__ import annotations

import re
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET, MsgspecError, Raw, structs

from gateway.errors import GatewayError
from gateway.plugins.provider import Chat
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_messages import AssistantMessage
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.native_request import GEMINI, MESSAGES, RESPONSES
from gateway.schemas.request_fields import RequestFields

R = TypeVar("R", bound=RequestFields)
Object = dict[str, Raw]

#: Anthropic, Bedrock, OpenAI, Azure, Gemini and Vertex, in the order of the alternatives.
_REFUSALS = re.compile(
    r"invalid `?(signature|data)`? in `?(thinking|redacted_thinking)`? block"
    r"|encrypted content .*could not be (verified|decrypted|parsed)|invalid_encrypted_content"
    r"|(invalid|corrupted) thought[ _]?signature|thought[ _]?signature is (not valid|invalid)",
    re.IGNORECASE | re.DOTALL,
)
_THINKING = (b'"thinking"', b'"redacted_thinking"')
_SPELLINGS = frozenset({"thoughtSignature", "thought_signature"})
_OFF = Raw(b'{"type":"disabled"}')
_SIGNED = ("thinking_blocks", "reasoning_details")
_objects = msgspec.json.Decoder(list[Object])


def without_signatures(adapted: Adapted[R], error: GatewayError) -> Adapted[R] | None:
    """The request without signed reasoning; None if the error is about other things, or the request has none."""
    request = adapted.request
    if not isinstance(request, ChatRequest) or not _REFUSALS.search(f"{error.detail} {error.message}"):
        return None
    try:
        cleaned, names = _native(request) if _goes_untranslated(adapted) else _chat(request)
    except MsgspecError:  # a form that only the upstream reads
        return None
    if not names:
        return None

    def accepted() -> None:  # the answer names what was left out of it
        adapted.dropped = (*adapted.dropped, *(name for name in names if name not in adapted.dropped))

    return Adapted(adapted.candidate, cast("R", cleaned), adapted.dropped, if_accepted=accepted)


def _goes_untranslated(adapted: Adapted[R]) -> bool:
    """Whether the candidate gets the request in the dialect in which it was sent."""
    native, candidate = getattr(adapted.request, "native", None), adapted.candidate
    if native is None:
        return False
    return cast("Chat", candidate.provider).accepted_fields(native.dialect, candidate.target) is not None


def _native(request: ChatRequest) -> tuple[ChatRequest, tuple[str, ...]]:
    """The request in its own dialect, and the names of what was left out; no names if it has nothing of the kind."""
    native = request.native
    clean = (
        None if native is None else {MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}.get(native.dialect)
    )
    if native is None or clean is None:
        return request, ()
    fields = dict(native.fields)
    names = clean(fields)
    return structs.replace(request, native=structs.replace(native, fields=fields)), names


def _list(raw: Raw | None) -> list[Object]:
    """The objects of a list, or a single one, as Google takes it; empty for another form."""
    text = b"" if raw is None else bytes(raw).strip()
    if text[:1] == b"{":
        text = b"[%b]" % text
    return _objects.decode(text) if text[:1] == b"[" else []


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _is(part: Object, kind: bytes) -> bool:
    return bytes(part.get("type", b"")) == kind


def _messages(fields: dict[str, Raw]) -> tuple[str, ...]:
    kept: list[Object] = []
    changed = calls = False
    for turn in _list(fields.get("messages")):
        blocks = _list(turn.get("content"))
        left = [block for block in blocks if bytes(block.get("type", b"")) not in _THINKING]
        if bytes(turn.get("role", b"")) == b'"assistant"':
            calls = any(_is(block, b'"tool_use"') for block in left)
        changed = changed or len(left) < len(blocks)
        if left or not blocks:
            kept.append({**turn, "content": _raw(left)} if len(left) < len(blocks) else turn)
    if not changed:
        return ()
    fields["messages"] = _raw(kept)
    if not calls or "thinking" not in fields:
        return ("messages.thinking",)
    fields["thinking"] = _OFF
    if b'"clear_thinking' in bytes(fields.get("context_management", b"")):  # refused while thinking is off
        del fields["context_management"]
        return "messages.thinking", "thinking", "context_management"
    return "messages.thinking", "thinking"


def _responses(fields: dict[str, Raw]) -> tuple[str, ...]:
    items = _list(fields.get("input"))
    left = [item for item in items if not _is(item, b'"reasoning"')]
    if not left or len(left) == len(items):
        return ()
    fields["input"] = _raw(left)
    return ("input.reasoning",)


def _gemini(fields: dict[str, Raw]) -> tuple[str, ...]:
    contents = _list(fields.get("contents"))
    changed = False
    for content in contents:
        parts = _list(content.get("parts"))
        signed = [part for part in parts if not _SPELLINGS.isdisjoint(part)]
        for part in signed:
            for name in _SPELLINGS:
                part.pop(name, None)
        if signed:
            content["parts"], changed = _raw(parts), True
    if changed:
        fields["contents"] = _raw(contents)
    return ("contents.thoughtSignature",) if changed else ()


def _chat(request: ChatRequest) -> tuple[ChatRequest, tuple[str, ...]]:
    """A translated request without signed reasoning, and the name of what was left out; no names if it has none."""
    messages = [_unsigned(one) if isinstance(one, AssistantMessage) else one for one in request.messages]
    if all(new is old for new, old in zip(messages, request.messages, strict=True)):
        return request, ()
    fields = dict(request.fields)
    if sent := _list(fields.get("messages")):
        for message in sent:
            for name in _SIGNED:
                message.pop(name, None)
            calls = _list(message.get("tool_calls"))
            if any(call.pop("extra_content", None) for call in calls):
                message["tool_calls"] = _raw([{k: v for k, v in one.items() if k != "extra_content"} for one in calls])
        fields["messages"] = _raw(sent)
    return structs.replace(request, messages=messages, fields=fields), ("messages.reasoning",)


def _unsigned(message: AssistantMessage) -> AssistantMessage:
    calls = message.tool_calls
    if isinstance(calls, list) and any(getattr(call, "extra_content", UNSET) is not UNSET for call in calls):
        plain = [
            structs.replace(call, extra_content=UNSET) if hasattr(call, "extra_content") else call for call in calls
        ]
        message = structs.replace(message, tool_calls=plain)
    signed = {name: UNSET for name in _SIGNED if getattr(message, name, UNSET) is not UNSET}
    return structs.replace(message, **signed) if signed else message
