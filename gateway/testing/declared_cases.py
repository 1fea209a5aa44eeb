"""What a provider declares, it does: each field that `chat_fields` names changes the request, in the right media type.

A call is made with a field and without it, and what the upstream saw must differ. So a dialect may write the field
wherever it likes. A field that the provider refuses is not looked for. Sharp edge: it is not checked
that the vendor understands it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gateway.testing.openai_dialect import AUDIO
from gateway.testing.reply import Seen
from gateway.testing.sent_cases import IMAGE, TOOL, Ask, ChatCall, requests_of
from gateway.testing.subject import NotConcerned, Subject

WAV = base64.b64encode(AUDIO["wav"]).decode()
PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
SCHEMA = {"type": "object", "properties": {"wader": {"type": "string"}}, "required": ["wader"]}
TEXT = {"type": "text", "text": "What is this?"}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [TEXT, part]}]}


_PLAIN: Mapping[str, Any] = {"messages": [{"role": "user", "content": [TEXT]}]}
_WITH_TOOL: Mapping[str, Any] = {"tools": [TOOL]}
_FUNCTION = {"functions": [TOOL["function"]]}

#: By the name of a field: fields of a request without it, and what is added.
SAMPLES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "temperature": ({}, {"temperature": 0.37}),
    "top_p": ({}, {"top_p": 0.61}),
    "stop": ({}, {"stop": ["whimbrel"]}),
    "n": ({}, {"n": 2}),
    "presence_penalty": ({}, {"presence_penalty": 0.37}),
    "frequency_penalty": ({}, {"frequency_penalty": 0.37}),
    "logit_bias": ({}, {"logit_bias": {"1734": 7}}),
    "logprobs": ({}, {"logprobs": True}),
    "top_logprobs": ({"logprobs": True}, {"top_logprobs": 3}),
    "seed": ({}, {"seed": 73219}),
    "tools": ({}, _WITH_TOOL),
    "tool_choice": (_WITH_TOOL, {"tool_choice": "required"}),
    "parallel_tool_calls": (_WITH_TOOL, {"parallel_tool_calls": False}),
    "functions": ({}, _FUNCTION),
    "function_call": (_FUNCTION, {"function_call": {"name": "find_heron"}}),
    "response_format": (
        {},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "wader", "schema": SCHEMA}}},
    ),
    "image_url": (_PLAIN, _part(IMAGE)),
    "input_audio": (_PLAIN, _part({"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}})),
    "file": (
        _PLAIN,
        _part({"type": "file", "file": {"filename": "wader.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}),
    ),
    "user": ({}, {"user": "oystercatcher"}),
    "metadata": ({}, {"metadata": {"bird": "oystercatcher"}}),
}
Case = Callable[[Subject], Awaitable[None]]


def declared_cases(ask: Ask, calls: Mapping[str, ChatCall]) -> tuple[Case, ...]:
    """The cases of chat; `calls` are the ways to make a call, by their names."""

    async def declared_fields_are_sent(subject: Subject) -> None:
        names = _declared(subject)
        for which, call in calls.items():
            for name in names:
                without, added = SAMPLES[name]
                try:
                    before = [await requests_of(subject, call(subject, ask(fields=without)), name) for _ in range(2)]
                    after = await requests_of(subject, call(subject, ask(fields={**without, **added})), name)
                except NotConcerned:
                    continue  # the provider refuses this field for this model
                assert _differ(before, after), (
                    f"{which} sends the same with {name} and without it, although `chat_fields` names it: send it, or "
                    "do not name it"
                )

    async def media_types_are_right(subject: Subject) -> None:
        for which, call in calls.items():
            for seen in await requests_of(subject, call(subject, ask()), "a question"):
                kind = seen.headers.get("content-type", "")
                assert not _is_json(seen.body) or re.match(r"application/([\w.-]+\+)?json\b", kind), (
                    f"{which}: {seen.method} has a body of JSON, and its Content-Type is {kind!r}"
                )
            fields = subject.chat.chat_fields
            if fields is not None and "image_url" not in fields:
                continue
            try:
                sent = await requests_of(subject, call(subject, ask(fields=_part(IMAGE))), "an image")
            except NotConcerned:
                continue
            for seen in sent:
                other = re.search(rb"image\\?/(jpe?g|gif|webp)", b"\n".join([seen.body, *_values(seen)]))
                assert other is None, f"{which}: the image is a PNG, and it is sent as {other[0].decode()}"

    return declared_fields_are_sent, media_types_are_right


def _declared(subject: Subject) -> list[str]:
    """The fields to look for."""
    fields = subject.chat.chat_fields
    refused = subject.chat.refused_sampling(subject.target)
    names = [name for name in SAMPLES if (fields is None or name in fields) and name not in refused]
    if not names:
        raise NotConcerned("`chat_fields` names no field that has a sample")
    return names


def _differ(before: list[list[Seen]], after: list[Seen]) -> bool:
    """Whether a call with a field sent something else than two without it; what varies by itself is not compared."""
    first, second = (list(map(_stable, requests)) for requests in before)
    if first != second:
        # Ids or boundaries that are made for each call.
        steady = {
            name for one, other in zip(first, second, strict=False) for name in one if one[name] == other.get(name)
        }
    else:
        steady = {name for one in first for name in one}
    if len(first) != len(after):
        return True
    return "body" not in steady or any(
        {name: value for name, value in one.items() if name in steady}
        != {name: value for name, value in _stable(other).items() if name in steady}
        for one, other in zip(first, after, strict=True)
    )


def _stable(seen: Seen) -> dict[str, object]:
    return {**seen.headers, "method": seen.method, "path": seen.path, "body": seen.body}


def _values(seen: Seen) -> list[bytes]:
    return [value.encode() for value in seen.headers.values()]


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body), dict | list)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
