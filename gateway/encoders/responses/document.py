"""The response object: the document of a whole answer, and a part of the first and last events of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.encoders.chat_form import AnswerForm, service_tier
from gateway.errors import GatewayError
from gateway.ids import answer_id
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.native_request import NativeRequest
from gateway.schemas.request_fields import NULL
from gateway.schemas.responses.native import ResponsesNative

_encode = msgspec.json.Encoder().encode
_table = msgspec.json.Decoder(dict[str, Raw])
_tables = msgspec.json.Decoder(list[dict[str, Raw]])

#: Fields of the request that are repeated, with the values of those that were not sent: the standard's defaults.
ECHOED: Mapping[str, bytes] = {
    "instructions": b"null",
    "max_output_tokens": b"null",
    "max_tool_calls": b"null",
    "metadata": b"{}",
    "parallel_tool_calls": b"true",
    "prompt_cache_key": b"null",
    "reasoning": b'{"effort":null,"summary":null}',
    "safety_identifier": b"null",
    "temperature": b"1.0",
    "text": b'{"format":{"type":"text"}}',
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_logprobs": b"0",
    "top_p": b"1.0",
    "truncation": b'"disabled"',
}
ECHOED_IF_SENT = ("user",)
#: Members that are the same in each response that is written here. A request with penalties has them left out.
FIXED: Mapping[str, bytes] = {
    "background": b"false",
    "frequency_penalty": b"0.0",
    "presence_penalty": b"0.0",
    "previous_response_id": b"null",
    "store": b"false",
}
NULLS: Mapping[str, bytes] = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"), b"null")
DEFAULT_TIER = b'"default"'
#: Members of each response that an upstream may leave out, as llama.cpp does.
REQUIRED = frozenset({"object", "created_at", "output", "service_tier", *NULLS, *ECHOED, *FIXED})
#: Those of them that may not be null.
NUMBERS = frozenset({"temperature", "top_p", "top_logprobs", "frequency_penalty", "presence_penalty"})
IS_FUNCTION = Raw(b'"function"')
FUNCTION = {"description": NULL, "parameters": NULL, "strict": NULL}
SCHEMA = {"description": NULL, "strict": Raw(b"false")}  # of an answer
#: The error codes of the dialect, by the HTTP status that the error would have had.
CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


_FIXED = b"".join(b',"%b":%b' % (name.encode(), value) for name, value in FIXED.items())
_RESPONSE = (
    b'%b,"status":"%b","completed_at":%b,"error":%b,"incomplete_details":%b%b,"output":[%b],"usage":%b,'
    b'"service_tier":%b}'
)


class ResponseDocument:
    """Writes the response object of one answer in its states."""

    __slots__ = ("_after", "_before", "_fields", "_form", "asked_limit", "id", "model", "suffix")

    def __init__(self, form: AnswerForm, request: ChatRequest) -> None:
        self.id = answer_id("resp_", form.id)
        self.suffix = answer_id("", form.id)
        self._form = form
        self._before = b'{"id":%b,"object":"response","created_at":%d' % (_encode(self.id), form.created)
        native = request.native
        fields = native.fields if isinstance(native, NativeRequest) else {}
        if isinstance(native, ResponsesNative) and native.bare_tools and "tools" in fields:
            fields = {**fields, "tools": _with_all_members(fields["tools"])}
        self._fields = fields
        self.model = Raw(_encode(form.model))
        self.asked_limit = fields.get("max_output_tokens", Raw(b"null"))
        self._after = b',"model":%b,%b' % (bytes(self.model), _echo(fields))

    def whole(self, response: dict[str, Raw]) -> dict[str, Raw]:
        """An upstream's response with the members that each response has, where the upstream left some out."""
        if response.keys() >= REQUIRED and not any(response[name] == NULL for name in NUMBERS):
            return response
        known = {"object": b'"response"', "created_at": b"%d" % self._form.created, "output": b"[]"}
        known |= {"service_tier": DEFAULT_TIER}
        known |= {**NULLS, **FIXED, **_echoed(self._fields)}
        sent = {name: raw for name, raw in response.items() if raw != NULL or name not in NUMBERS}
        return {name: Raw(value) for name, value in known.items()} | sent

    def write(
        self,
        status: str,
        output: Sequence[bytes] = (),
        *,
        usage: CompletionUsage | None = None,
        reason: str = "",
        error: GatewayError | None = None,
        tier: str | UnsetType | None = UNSET,
    ) -> bytes:
        """The JSON of the response. `reason`: why it is incomplete, as a finish reason of chat."""
        used = service_tier(tier, self._form.service_tier)
        return _RESPONSE % (
            self._before,
            status.encode(),
            b"%d" % time.time() if status == "completed" else b"null",
            b"null" if error is None else error_object(error),
            b'{"reason":"%b"}' % REASONS[reason].encode() if reason in REASONS else b"null",
            self._after,
            b",".join(output),
            b"null" if usage is None else usage_object(usage),
            DEFAULT_TIER if used is UNSET or used is None else _encode(used),
        )


def usage_object(usage: CompletionUsage) -> bytes:
    """The JSON of a usage, in the words of the dialect."""
    inside, outside = usage.prompt_tokens_details, usage.completion_tokens_details
    written = 0 if inside.cache_write_tokens is UNSET else inside.cache_write_tokens
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
        b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
        % (
            usage.prompt_tokens,
            inside.cached_tokens,
            written,
            usage.completion_tokens,
            outside.reasoning_tokens,
            usage.total_tokens,
        )
    )


def error_object(error: GatewayError) -> bytes:
    """The JSON of an error inside a response, with a code of the dialect's own list."""
    return _encode({"code": CODES.get(error.status, "server_error"), "message": error.message})


def _echoed(fields: Mapping[str, Raw]) -> dict[str, bytes]:
    """The fields of the request that a response repeats."""
    values = {name: _given(name, fields.get(name), default) for name, default in ECHOED.items()}
    return values | {name: bytes(fields[name]) for name in ECHOED_IF_SENT if name in fields}


def _echo(fields: Mapping[str, Raw]) -> bytes:
    """The fields of the request and what is fixed, as members of an object."""
    members = [b'"%b":%b' % (name.encode(), value) for name, value in _echoed(fields).items()]
    return b",".join(members) + _FIXED


def _given(name: str, sent: Raw | None, default: bytes) -> bytes:
    if sent is None:
        return default
    if name == "reasoning":
        return _encode({**_table.decode(default), **_table.decode(sent)})
    if name == "text":
        return _encode(_text({**_table.decode(default), **_table.decode(sent)}))
    return bytes(sent)


def _text(options: dict[str, Raw]) -> dict[str, Any]:
    """The text options, with each member that the standard has for a schema."""
    form = _table.decode(options["format"])
    return {**options, "format": {**SCHEMA, **form}} if "schema" in form else options


def _with_all_members(tools: Raw) -> Raw:
    """The tools, with each member that the standard has for a function."""
    return Raw(
        _encode([{**FUNCTION, **tool} if tool.get("type") == IS_FUNCTION else tool for tool in _tables.decode(tools)])
    )
