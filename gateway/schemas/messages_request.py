"""What a caller asks of a chat model in Anthropic's dialect: the body of `POST /v1/messages` (docs/fields.md).

`decode_messages(body, …)` checks it and returns the `ChatRequest` that it amounts to, with what was sent in `native`.
It raises nothing but `BadRequest` errors. Sharp edge: an error names fields of this dialect, never those of chat.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from gateway.errors import BadRequest, InvalidValue, UnsupportedParameter
from gateway.schemas.cache_marks import marks_in
from gateway.schemas.chat_messages import NonEmpty
from gateway.schemas.chat_request import ChatRequest, Tokens, decode_chat_request
from gateway.schemas.chat_rules import json_object
from gateway.schemas.duplicate_keys import Examined, own_request, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.forbidden import header_name, is_forbidden
from gateway.schemas.messages_blocks import SystemContent, Turn
from gateway.schemas.messages_conversation import ConversationWriter
from gateway.schemas.messages_native import MessagesNative, vendor_tools
from gateway.schemas.messages_options import (
    CallerMetadata,
    JsonOutput,
    MessagesToolChoice,
    OutputConfig,
    Thinking,
    ToolDefinition,
)
from gateway.schemas.messages_rules import check_tool_definitions, check_turns
from gateway.schemas.messages_terms import chat_terms
from gateway.schemas.native_request import MESSAGES
from gateway.schemas.request_fields import NULL, OWN, Core, Hint, RequestFields, Sampling
from gateway.schemas.schema_errors import invalid
from gateway.schemas.session_hints import session_of_user
from gateway.schemas.validation import BodyDecoder

OLD_VERSION, NEW_VERSION = "2023-06-01", "2026-10-21"
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Sampling fields, which the newer version refuses with any value.
SAMPLING = ("temperature", "top_p", "top_k")
#: Fields that the gateway writes into what it forwards.
OURS = frozenset({"model", "max_tokens", "stream"})

Opaque = Raw | UnsetType


class TokenCountRequest(RequestFields, kw_only=True):
    """The fields of `POST /v1/messages/count_tokens`; an absent or null field is None, or UNSET where it is opaque."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    messages: Core[Annotated[list[Turn], Meta(min_length=1, max_length=100_000)]]
    system: Core[SystemContent | None] = None
    max_tokens: Core[Tokens | None] = None
    stream: Core[bool | None] = None
    stop_sequences: Core[list[NonEmpty] | None] = None
    temperature: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    top_p: Sampling[Annotated[float, Meta(ge=0, le=1)] | None] = None
    top_k: Sampling[Annotated[int, Meta(ge=0, le=2**63 - 1)] | None] = None
    tools: Core[Annotated[list[ToolDefinition], Meta(max_length=128)] | None] = None
    tool_choice: Core[MessagesToolChoice | None] = None
    thinking: Core[Thinking | None] = None
    output_config: Core[OutputConfig | None] = None
    output_format: Core[JsonOutput | None] = None
    metadata: Core[CallerMetadata | None] = None
    service_tier: Hint[Literal["auto", "standard_only"] | None] = None
    speed: Hint[Literal["standard", "fast"] | None] = None
    cache_control: Hint[Opaque] = UNSET
    container: Hint[Opaque] = UNSET
    compaction: Hint[Opaque] = UNSET
    context_management: Hint[Opaque] = UNSET
    diagnostics: Hint[Opaque] = UNSET
    inference_geo: Hint[Opaque] = UNSET
    mcp_servers: Hint[Opaque] = UNSET
    user_profile_id: Hint[Opaque] = UNSET
    workspace_id: Hint[Opaque] = UNSET


class MessagesRequest(TokenCountRequest, kw_only=True):
    """A valid request for an answer."""

    max_tokens: Core[Tokens]


_LARGE = frozenset({"messages", "system", "tools", "output_config", "output_format"})
_KNOWN = frozenset(MessagesRequest.field_classes)
#: Objects in which an upstream might look for an address; the others are free text, schemas or plain values.
_SEARCHED = _KNOWN - {"model", "max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata"}
_answers: BodyDecoder[TokenCountRequest] = BodyDecoder(MessagesRequest, own=OWN, large_fields=_LARGE)
#: Fields of chat, which mean something else here.
_CHAT = frozenset(ChatRequest.field_classes)
_counts = BodyDecoder(TokenCountRequest, own=OWN, large_fields=_LARGE)


def decode_messages(
    body: bytes | Examined, *, version: str = "", betas: tuple[str, ...] = (), counts: bool = False
) -> ChatRequest:
    """The request in `body`; raises only BadRequest errors, with the exact param.

    `version` and `betas` come from the headers; a version that is newer than the gateway is for the upstream to judge.
    `counts`: the request asks for the number of its tokens alone.
    """
    if version and (not _VERSION.fullmatch(version) or version < OLD_VERSION):
        raise invalid("anthropic-version", f"expected a date from {OLD_VERSION} on, such as {NEW_VERSION}")
    sent = _decode(body, _counts if counts else _answers)
    _check(sent, version)
    request, only_native = _translated(sent)
    request.body = body if isinstance(body, bytes) else body.content
    metadata: CallerMetadata | None = getattr(sent, "metadata", None)  # a count of tokens has none
    request.native = MessagesNative(
        MESSAGES,
        fields={name: raw for name, raw in sent.fields.items() if name not in OURS},
        version=version,
        betas=betas,
        dropped=sent.dropped,
        unknown=sent.unknown_fields,
        session=session_of_user(metadata.user_id) if metadata is not None else "",
        vendor_tools=vendor_tools(sent.tools or ()),
        only_native=only_native,
    )
    return request


def _decode(body: bytes | Examined, decoder: BodyDecoder[TokenCountRequest]) -> TokenCountRequest:
    """The typed request, with its fields as sent, without what no upstream may see."""
    sent, fields = decoder.decode(body)
    if NULL in fields.values():
        drop_nulls(fields)
    names = unexplained_names(body, 0)
    if any(map(is_forbidden, names)):
        sent.take_fields(fields, searched=_SEARCHED)
        clean, fields = decoder.decode(msgspec.json.encode(sent.fields))
        clean.fields, clean.extra, clean.dropped = fields, sent.extra, sent.dropped
        return clean
    sent.fields, sent.extra, sent.dropped = fields, tuple(name for name in fields if name not in _KNOWN), ()
    return sent


def _check(sent: TokenCountRequest, version: str) -> None:
    """Raise the first broken rule."""
    if version == NEW_VERSION:
        for name in SAMPLING:
            if getattr(sent, name) is not None:
                text = f"Unsupported parameter: '{name}' is not accepted with anthropic-version {NEW_VERSION}."
                raise UnsupportedParameter(text, param=name)
    for name in ("output_config.format.schema", "output_format.schema"):
        wanted = sent.output_format if name == "output_format.schema" else None
        if sent.output_config is not None and name != "output_format.schema":
            wanted = sent.output_config.format
        if wanted is not None and json_object(wanted.schema, name) is UNSET:
            raise invalid(name, "expected an object")
    if sent.tools is not None:
        check_tool_definitions(sent.tools)
    check_turns(sent.messages)


def _translated(sent: TokenCountRequest) -> tuple[ChatRequest, str]:
    """The chat request that `sent` amounts to, and the path of what only an upstream of this dialect can serve."""
    writer, terms = ConversationWriter(sent.model), chat_terms(sent)
    writer.write(sent.system, sent.messages)
    left_out = [*terms.left_out, *writer.left_out, *(name for name in sent.extra if name in _CHAT)]
    extra = {name: sent.fields[name] for name in sent.extra if name not in _CHAT}
    document = {**extra, "model": sent.model, "messages": writer.messages, **terms.fields}
    for name in ("max_tokens", "stream"):
        if getattr(sent, name) is not None:
            document[name] = getattr(sent, name)
    try:
        # Examined: the names of the keys were checked where they were sent.
        request = decode_chat_request(own_request(document))
    except BadRequest as error:
        cause = "it has more turns, blocks or nesting than can be served"
        raise InvalidValue(f"Invalid 'messages': {cause}.", param="messages", detail=error.message) from None
    writer.mark(request.messages)
    request.cache_marks = marks_in(request.messages)
    request.dropped = (*sent.dropped, *map(header_name, left_out))
    return request, terms.only_native or writer.only_native
