"""The body of a chat request for an OpenAI-compatible server: the caller's fields as sent, with the few that are ours.

Fields stay `msgspec.Raw`, so nothing is decoded to be encoded again: 3 µs for a body of 1 KB.
Sharp edge: `request.fields` belongs to the call and may be used by another attempt, so it is copied first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw, structs

from gateway import ChatRequest, Target

from .cache_marks import Marks, with_marks
from .history import said_there
from .presets import Instead, Quirks

TRUE = Raw(b"true")
_WITH_USAGE = Raw(b'{"include_usage":true}')
_WITH_USAGE_PLAIN = Raw(b'{"include_usage":true,"include_obfuscation":false}')
_NULL = Raw(b"null")

_encoder = msgspec.json.Encoder()


CACHE_KEY = "prompt_cache_key"
_HEADER_TEXT = re.compile(r"[!-~]{1,256}")


class _Switch(msgspec.Struct):
    """DeepSeek's `thinking`."""

    type: str = ""


_switch = msgspec.json.Decoder(_Switch)


def chat_body(
    request: ChatRequest,
    target: Target,
    quirks: Quirks,
    *,
    stream: bool,
    limit_field: str = "",
    marks: Marks = "as_sent",
) -> bytes:
    """The JSON to send for `request` to `target`.

    `limit_field`: the usual field of the output limit there. `marks`: in whose words it takes marks for its cache.
    """
    fields = dict(request.fields)
    fields["model"] = Raw(_encoder.encode(target.model))
    fields.pop("stream_options", None)
    if stream:
        fields["stream"] = TRUE
        if not quirks.no_stream_options:
            fields["stream_options"] = stream_options(request)
    else:
        fields.pop("stream", None)
    limit = target.max_tokens_field or quirks.max_tokens_field or limit_field
    if limit:
        _spell_max_tokens(fields, limit)
    if quirks.instead:
        _say_otherwise(fields, request, quirks.instead)
    for name, theirs in quirks.rename.items():
        if name in fields:
            fields[theirs] = fields.pop(name)
    for name, value in quirks.always.items():
        fields.setdefault(name, value)
    if quirks.has_accent:
        fields["messages"] = said_there(request, fields["messages"], quirks, thinks=_thinks(request, fields))
    if request.cache_marks:
        fields["messages"] = with_marks(request, fields["messages"], target, marks)
    return _encoder.encode(fields)


def without_cache_key(request: ChatRequest) -> tuple[ChatRequest, str]:
    """The request without its cache key, and the key for a header; empty for one that no header can have."""
    fields = {name: value for name, value in request.fields.items() if name != CACHE_KEY}
    key = request.prompt_cache_key or ""
    return structs.replace(request, fields=fields), key if is_header_text(key) else ""


def is_header_text(key: str) -> bool:
    """Whether a header can have this key."""
    return _HEADER_TEXT.fullmatch(key) is not None


def stream_options(request: ChatRequest) -> Raw:
    """Usage is asked for always, whoever asked the gateway; padding unless the caller declined it."""
    asked = request.stream_options
    return _WITH_USAGE_PLAIN if asked is not None and asked.include_obfuscation is False else _WITH_USAGE


def _spell_max_tokens(fields: dict[str, Raw], name: str) -> None:
    # Both may be given, since the request is valid when they are equal, or one of them null.
    given = [fields.pop(spelling, _NULL) for spelling in ("max_tokens", "max_completion_tokens")]
    values = [value for value in given if value != _NULL]
    if values:
        fields[name] = values[0]


def _say_otherwise(fields: dict[str, Raw], request: ChatRequest, instead: Mapping[str, Instead]) -> None:
    """Values that the server calls otherwise; what the caller said in the server's own words stays."""
    for name, words in instead.items():
        value = getattr(request, name)
        if isinstance(value, str) and value in words:
            fields.pop(name, None)
            for theirs, said in words[value].items():
                fields.setdefault(theirs, said)


def _thinks(request: ChatRequest, fields: Mapping[str, Raw]) -> bool:
    """Whether the answer will be thought about and may call tools: then DeepSeek wants its earlier thoughts back."""
    if not request.as_tools:
        return False
    try:
        return _switch.decode(fields.get("thinking", b"{}")).type != "disabled"
    except msgspec.MsgspecError:
        return True  # whatever the caller wrote there is for the server to judge
