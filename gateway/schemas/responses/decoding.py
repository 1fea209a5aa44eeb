"""Reads a Responses request.

`decode_responses_request(body)` is the only way in; it raises nothing but `BadRequest` errors. It returns a chat
request, which any provider can serve and by which the call is charged; its `native` keeps what was sent, for upstreams
that have the dialect. Nothing is stored here, so what refers to stored things is refused by name.
"""

from __future__ import annotations

from msgspec import Raw

from gateway.errors import BadRequest, UnsupportedParameter
from gateway.schemas.cache_marks import ANTHROPIC_MARK, OPENAI_MARK, marks_in
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.forbidden import header_name, is_forbidden, strip_forbidden
from gateway.schemas.native_request import RESPONSES
from gateway.schemas.reasoning_state import is_ours
from gateway.schemas.request_fields import NULL, OWN
from gateway.schemas.responses.chat import translated
from gateway.schemas.responses.compaction import BEFORE, OpenSealed, is_triggered, message_item, open_items
from gateway.schemas.responses.items import CompactionItem, Item, ReasoningItem, ToolsItem, read_items
from gateway.schemas.responses.native import ResponsesNative, dropped_tools
from gateway.schemas.responses.options import Tool, read_tools
from gateway.schemas.responses.request import ResponsesRequest
from gateway.schemas.responses.terms import in_responses_terms
from gateway.schemas.responses.tools import ToolSet
from gateway.schemas.session_hints import session_of_metadata
from gateway.schemas.validation import BodyDecoder

#: Fields that refer to what an upstream stored or runs later.
STATEFUL = ("previous_response_id", "conversation", "prompt", "context_management")
_body = BodyDecoder(
    ResponsesRequest, own=OWN, large_fields=frozenset({"input", "tools", "text", "instructions", "client_metadata"})
)


def decode_responses_request(
    body: bytes | Examined, open_sealed: OpenSealed | None = None, *, compacts: bool = False
) -> ChatRequest:
    """The request in `body`, translated; raises only BadRequest errors, each with the wire's code and exact param.

    `open_sealed` opens the summaries that the gateway has sealed for the caller; `compacts`: the whole request is for a
    compaction.
    """
    asked, fields = _body.decode(body)
    if NULL in fields.values():
        drop_nulls(fields)
    _refuse_stateful(asked, fields)
    dropped = _strip(fields, body)
    items = read_items(asked.input) if isinstance(asked.input, list) else []
    compacted = open_items(items, open_sealed)
    triggered = is_triggered(items)
    tools = ToolSet.of(_all_tools(asked, items), asked.tool_choice)
    chat = translated(asked, items, tools, fields, compacts=compacts or triggered)
    try:
        request = decode_chat_request(chat.document)
    except BadRequest as error:
        raise in_responses_terms(error) from None
    request.body = body if isinstance(body, bytes) else body.content
    if OPENAI_MARK.encode() in request.body or ANTHROPIC_MARK.encode() in request.body:
        request.cache_marks = marks_in(request.messages)
    request.native = ResponsesNative(
        dialect=RESPONSES,
        fields=_native_fields(asked, fields, items),
        dropped=(*dropped, "service_tier") if asked.service_tier == "ultrafast" else dropped,
        session=session_of_metadata(fields.get("client_metadata")),
        asked=asked.model,
        hosted=tools.hosted,
        custom=tools.custom,
        bare_tools=tools.bare,
        spaces=tools.spaces,
        marks=request.cache_marks,
        extra_tools=any(isinstance(item, ToolsItem) for item in items),
        demanded=tools.demanded,
        compacts="document" if compacts else "item" if triggered else "",
        compacted=compacted,
        chosen=tools.chosen,
    )
    request.dropped = (*dropped, *map(header_name, (*chat.left_out, *dropped_tools(tools.left_out))))
    return request


def _refuse_stateful(asked: ResponsesRequest, fields: dict[str, Raw]) -> None:
    named = [name for name in STATEFUL if name in fields]
    if asked.background:
        named.append("background")
    if asked.prompt_cache_options is not None and asked.prompt_cache_options.prewarm:
        named.append("prompt_cache_options.prewarm")
    if named:
        text = f"Unsupported parameter: '{named[0]}'. Nothing is stored here; send the whole input with each request."
        raise UnsupportedParameter(text, param=named[0])


def _strip(fields: dict[str, Raw], body: bytes | Examined) -> tuple[str, ...]:
    """Remove what no upstream may see; returns the names of it, fit for a header."""
    if not any(map(is_forbidden, unexplained_names(body, 0))):
        return ()
    items = {"items": fields.pop("input")}  # the name `input` is one of a tool's, in which nothing is searched
    searched = [name for name in fields if name != "tools"]
    removed = strip_forbidden(fields, searched)
    removed += [f"input{name.removeprefix('items')}" for name in strip_forbidden(items, ["items"])]
    fields["input"] = items["items"]
    return tuple(removed)


def _all_tools(asked: ResponsesRequest, items: list[Item]) -> list[Tool]:
    tools = read_tools(asked.tools) if asked.tools else []
    for index, item in enumerate(items):
        if isinstance(item, ToolsItem):
            tools += read_tools(item.tools, f"input[{index}].tools")
    return tools


def _native_fields(asked: ResponsesRequest, fields: dict[str, Raw], items: list[Item]) -> dict[str, Raw]:
    """What an upstream of the dialect gets: summaries as they are, and no reasoning of other vendors."""
    if not any(_is_sealed(item) for item in items):
        return fields
    assert isinstance(asked.input, list)
    kept = []
    for raw, item in zip(asked.input, items, strict=True):
        if isinstance(item, CompactionItem) and item.summary is not None:
            kept.append(message_item(BEFORE + item.summary))
        elif not _is_sealed(item):
            kept.append(bytes(raw))
    return {**fields, "input": Raw(b"[%b]" % b",".join(kept))}


def _is_sealed(item: Item) -> bool:
    """Whether an item is the gateway's own, and no upstream can read it."""
    if isinstance(item, CompactionItem):
        return item.summary is not None
    return isinstance(item, ReasoningItem) and is_ours(item.encrypted_content)
