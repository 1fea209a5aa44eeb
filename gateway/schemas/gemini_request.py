"""What a caller asks of a chat model in Google's dialect: the body of `:generateContent` (docs/fields.md, "Gemini").

`decode_gemini(body, model, …)` checks it and returns the `ChatRequest` that it amounts to, with what was sent in
`native`: its fields have dotted names (`generationConfig.temperature`), so that a table of what an upstream accepts can
name each. It raises nothing but `BadRequest` errors. Sharp edge: an error names fields of this dialect, never of chat.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.errors import BadRequest, InvalidValue, MissingParameter, UnsupportedParameter
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.duplicate_keys import Examined, own_request, unexplained_names
from gateway.schemas.forbidden import header_name, is_forbidden
from gateway.schemas.gemini_contents import Content, Contents, Opaque
from gateway.schemas.gemini_conversation import ConversationWriter
from gateway.schemas.gemini_names import rewritten, snake_names, without_nulls
from gateway.schemas.gemini_options import OPAQUE_CONFIG, GenerationConfig, ThinkingConfig, ToolConfig, Tools
from gateway.schemas.gemini_terms import CONFIG, chat_terms, opaque_config
from gateway.schemas.native_request import GEMINI, NativeRequest
from gateway.schemas.request_fields import OWN, Core, Hint, RequestFields
from gateway.schemas.validation import BodyDecoder

FUNCTIONS = "functionDeclarations"
CONFIG_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(GenerationConfig)) | OPAQUE_CONFIG


class GeminiRequest(RequestFields, kw_only=True, rename="camel"):
    """A request; an absent or null field is None, or UNSET where nobody reads it."""

    contents: Core[Contents]
    system_instruction: Core[Content | None] = None
    tools: Core[Tools | None] = None
    tool_config: Core[ToolConfig | None] = None
    generation_config: Core[GenerationConfig | None] = None
    safety_settings: Hint[Opaque] = UNSET
    cached_content: Core[str | None] = None
    labels: Hint[Opaque] = UNSET
    service_tier: Hint[Opaque] = UNSET
    store: Hint[bool | None] = None
    model: Hint[str | None] = None  # it is in the path; clients repeat it in some bodies


class TokenCountRequest(RequestFields, kw_only=True, rename="camel"):
    """The body of `:countTokens` that wraps a request."""

    generate_content_request: Core[GeminiRequest]


#: Fields that are not forwarded: the path has the model, and nothing is stored.
UNSENT = frozenset({"model", "store"})
KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(GeminiRequest)) - OWN
_SNAKE = snake_names(GeminiRequest) | {"generate_content_request"}
_LARGE = frozenset({"contents", "systemInstruction", "tools", "generationConfig"})
_bodies = BodyDecoder(GeminiRequest, own=OWN, large_fields=_LARGE)
_counts = BodyDecoder(TokenCountRequest, own=OWN, large_fields=frozenset({"generateContentRequest"}))
_thinking = msgspec.json.Decoder(ThinkingConfig)
_table = msgspec.json.Decoder(dict[str, Raw])
_tables = msgspec.json.Decoder(list[dict[str, Raw]])


def decode_gemini(body: bytes | Examined, model: str, *, stream: bool = False, wrapped: bool = False) -> ChatRequest:
    """The request in `body` for `model`; raises only BadRequest errors, with the exact param.

    `wrapped`: the request may be in a field `generateContentRequest`, as `:countTokens` takes it.
    """
    if not 1 <= len(model) <= 256:
        raise InvalidValue("Invalid 'model': expected 1 to 256 characters.", param="model")
    content, removed = _named(body)
    if wrapped and not isinstance(content, Examined) and b"generateContentRequest" in content:
        content = _unwrapped(content)
    sent, fields = _bodies.decode(content)
    sent.fields = without_nulls(fields)
    sent.extra = tuple(name for name in sent.fields if name not in KNOWN)
    if sent.cached_content is not None:
        text = "Unsupported parameter: 'cachedContent'. The gateway keeps no contents; send them in the request."
        raise UnsupportedParameter(text, param="cachedContent")
    native, left_out = _native(sent)
    request, only_native = _translated(sent, model, stream=stream, left_out=left_out)
    request.body = content if isinstance(content, bytes) else content.content
    removed = list(map(header_name, removed))
    request.dropped = (*removed, *request.dropped)
    request.native = NativeRequest(
        GEMINI,
        fields=native,
        dropped=(*removed, *map(header_name, left_out)),
        unknown=(*removed, *sent.extra),
        only_native=only_native,
    )
    return request


def wants_thoughts(request: ChatRequest) -> bool:
    """Whether the caller asked for the thoughts of the model."""
    raw = request.native.fields.get(f"{CONFIG}.thinkingConfig") if request.native is not None else None
    return raw is not None and _thinking.decode(raw).include_thoughts is True


def _named(body: bytes | Examined) -> tuple[bytes | Examined, list[str]]:
    """The body with names in camel case, without what no upstream may see, and the names of that."""
    names = unexplained_names(body, 0)
    if names.isdisjoint(_SNAKE) and not any(map(is_forbidden, names)):
        return body, []
    kind = TokenCountRequest if names & {"generateContentRequest", "generate_content_request"} else GeminiRequest
    content, removed = rewritten(body if isinstance(body, bytes) else body.content, kind)
    return (content if isinstance(body, bytes) else Examined(content, body.names, None)), removed


def _unwrapped(body: bytes) -> bytes:
    """The request inside the body of `:countTokens`."""
    try:
        inner = _table.decode(body).get("generateContentRequest")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body  # its decoder names the error
    if inner is None:
        return body
    _counts.decode(body)
    return bytes(inner)


def _native(sent: GeminiRequest) -> tuple[dict[str, Raw], list[str]]:
    """The fields for an upstream of this dialect, and what none of them gets."""
    fields = {name: raw for name, raw in sent.fields.items() if name not in UNSENT and name in KNOWN}
    left_out = list(sent.extra)
    config = fields.pop(CONFIG, None)
    if config is not None:
        for name, raw in without_nulls(_table.decode(config)).items():
            if name in CONFIG_FIELDS:
                fields[f"{CONFIG}.{name}"] = raw
            else:
                left_out.append(f"{CONFIG}.{name}")
    if "tools" in fields:
        functions = _functions(fields.pop("tools"), left_out)
        if functions:
            fields["tools"] = Raw(msgspec.json.encode(functions))
    if "tools" not in fields:
        fields.pop("toolConfig", None)
    return fields, left_out


def _functions(raw: Raw, left_out: list[str]) -> list[dict[str, Raw]]:
    """The tools with functions alone; Google's own tools, which it charges by itself, are left out and named."""
    tools = _tables.decode(raw) if bytes(raw)[:1] == b"[" else [_table.decode(raw)]
    names = (name for tool in tools for name in without_nulls(tool) if name != FUNCTIONS)
    left_out += dict.fromkeys(f"tools.{name}" for name in names)
    return [{FUNCTIONS: tool[FUNCTIONS]} for tool in map(without_nulls, tools) if FUNCTIONS in tool]


def _translated(sent: GeminiRequest, model: str, *, stream: bool, left_out: list[str]) -> tuple[ChatRequest, str]:
    """The chat request that `sent` amounts to, and the path of what only an upstream of this dialect can serve."""
    writer, terms = ConversationWriter(), chat_terms(sent.tools, sent.tool_config, sent.generation_config)
    writer.write_system(sent.system_instruction)
    writer.write(sent.contents)
    if not any(message["role"] != "system" for message in writer.messages):
        raise MissingParameter("Missing required parameter: 'contents[0].parts', which say nothing.", param="contents")
    config = _table.decode(sent.fields[CONFIG]) if CONFIG in sent.fields else {}
    unsaid = [*left_out, *terms.left_out, *opaque_config(config)]
    unsaid += [name for name in ("safetySettings", "labels", "serviceTier") if name in sent.fields]
    document: dict[str, Any] = {"model": model, "messages": writer.messages, **terms.fields}
    if stream:
        document["stream"] = True
    try:
        # Examined: the names of the keys were checked where they were sent.
        request = decode_chat_request(own_request(document))
    except BadRequest as error:
        cause = "it has more turns, parts or nesting than can be served"
        raise InvalidValue(f"Invalid 'contents': {cause}.", param="contents", detail=error.message) from None
    request.dropped = tuple(map(header_name, unsaid))
    return request, terms.only_native or writer.only_native
