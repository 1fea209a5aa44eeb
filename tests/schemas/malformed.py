"""Bodies that must be answered with the wire's 400, made from a seed so that a failure can be replayed.

`malformed_bodies(10_000)` yields them; the schema tests feed them to the decoder, the end-to-end tests to a gateway.
None of them is a valid chat request, and none is empty of reason: each comes from one way of breaking a good one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

GOOD: dict[str, Any] = {
    "model": "gpt-5-mini",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Grüße 🌍"}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ],
    "temperature": 0.5,
    "max_tokens": 16,
    "n": 1,
    "stop": ["\n"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "logit_bias": {"50256": -100},
    "metadata": {"team": "blue"},
    "user": "u-1",
}

WRONG: list[Any] = [None, True, -1, 10**400, 1.5, -1e308, "", "x" * 70_000, [], [[]], {}, {"a": 1}, [None]]


def good_body(*, ascii_only: bool = False) -> bytes:
    """A valid request that uses many fields."""
    return json.dumps(GOOD, ensure_ascii=ascii_only).encode()


def malformed_bodies(count: int, *, seed: int = 1) -> Iterator[bytes]:
    """`count` bodies, each way of breaking in turn; the same seed gives the same bodies."""
    chance = random.Random(seed)
    for index in range(count):
        yield WAYS[index % len(WAYS)](chance)


def bad_json(chance: random.Random) -> bytes:
    """A good body with one byte that JSON cannot have there."""
    body = good_body()
    structural = [at for at, byte in enumerate(body) if byte in b'{}[]:,"']
    at = chance.choice(structural)
    # A control character is wrong both inside and outside of a string.
    return body[:at] + bytes([chance.choice(b"\x00\x01\x08\x0b\x0c\x0e\x1f")]) + body[at:]


def truncated(chance: random.Random) -> bytes:
    """A good body cut short; cut to nothing too."""
    body = good_body()
    return body[: chance.randrange(len(body))]


def trailing(chance: random.Random) -> bytes:
    """Something after the end."""
    return good_body() + chance.choice([b"}", b"]", b",", b"{}", b"\x00", b"null", b"#", b"\xef\xbb\xbf", b" 0"])


def not_an_object(chance: random.Random) -> bytes:
    """JSON, but no object; or no JSON at all."""
    texts = [
        b"[]",
        b"null",
        b"true",
        b"0",
        b'"{}"',
        b"[" + good_body() + b"]",
        b"NaN",
        b"-",
        b"\xef\xbb\xbf" + good_body(),
    ]
    texts += [
        b"",
        b" ",
        b"model=gpt&messages=hi",
        b"<xml/>",
        b"\x1f\x8b\x08\x00",
        b"{'model':'x'}",
        b"{,}",
        b"\xff\xfe{\x00}\x00",
    ]
    return chance.choice(texts)


def deep(chance: random.Random) -> bytes:
    """Nesting beyond any stack, in known and unknown places, closed or not."""
    depth = chance.choice([12_000, 19_000])
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    field = chance.choice([b"messages", b"x", b"tools", b"metadata", b"stop", b"response_format"])
    end = chance.choice([b"", b"1" + closing * depth + b"}"])
    return b'{"model":"m","%b":' % field + opening * depth + end


def bad_utf8(chance: random.Random) -> bytes:
    """Bytes that are no UTF-8, anywhere inside a string: known, ignored or a name."""
    bad = chance.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80"])
    body = good_body(ascii_only=True)[:-1] + b', "ignored": {"name": "text"}}'
    at = chance.choice(
        [body.index(word) + 1 for word in (b"gpt-5", b"brief", b"text", b"blue", b"ignored", b"name", b"u-1")]
    )
    return body[:at] + bad + body[at:]


def lone_surrogate(chance: random.Random) -> bytes:
    """An escaped a lone surrogate in a name."""
    half = chance.choice([b"\\ud800", b"\\udfff", b"\\ud83d\\u0041", b"\\uDC00\\uD800"])
    field = chance.choice([b"user", b"model"])  # in a name it is refused, elsewhere replaced
    return good_body()[:-1] + b', "%b": "%b"}' % (field, half)


def wrong_type(chance: random.Random) -> bytes:
    """A value of the wrong type somewhere in a known field."""
    document = json.loads(good_body())
    path = chance.choice(TYPED_PATHS)
    holder: Any = document
    for step in path[:-1]:
        holder = holder[step]
    right = type(holder[path[-1]])
    wrong = [value for value in WRONG if value is not None and not _acceptable(value, right)]
    holder[path[-1]] = chance.choice(wrong)
    return json.dumps(document).encode()


def _acceptable(value: Any, right: type) -> bool:
    if right is list:
        return isinstance(value, str | list)  # content and stop are either
    if right is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is right


def out_of_range(chance: random.Random) -> bytes:
    """A number no field takes, written as JSON writes it or as it does not."""
    field = chance.choice(["temperature", "top_p", "max_tokens", "n", "presence_penalty", "top_logprobs", "seed"])
    numbers = [
        "1e999",
        "-1e999",
        "9" * 400,
        "-" + "9" * 5000,
        "NaN",
        "Infinity",
        "-Infinity",
        "0x10",
        "01",
        "+1",
        ".5",
        "1.",
    ]
    return good_body()[:-1] + f', "{field}": {chance.choice(numbers)}}}'.encode()


def missing(chance: random.Random) -> bytes:
    """A required field is not there."""
    document = json.loads(good_body())
    path = chance.choice(REQUIRED_PATHS)
    holder: Any = document
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return json.dumps(document).encode()


def contradiction(chance: random.Random) -> bytes:
    """Well-typed fields that may not be together, or values outside their lists."""
    change = chance.choice(CONTRADICTIONS)
    return json.dumps({**GOOD, **change}).encode()


TYPED_PATHS: list[list[str | int]] = [
    ["model"], ["messages", 0, "role"], ["messages", 3, "tool_call_id"], ["messages", 1, "content", 0],
    ["messages", 1, "content", 0, "text"], ["messages", 1, "content", 0, "type"],
    ["messages", 2, "tool_calls", 0, "function"], ["messages", 2, "tool_calls", 0, "function", "arguments"],
    ["messages", 0], ["max_tokens"], ["n"], ["stream"], ["stream_options", "include_usage"], ["tools", 0],
    ["tools", 0, "type"],
    ["tools", 0, "function", "name"], ["tools", 0, "function", "parameters"], ["logit_bias", "50256"],
    ["metadata", "team"], ["user"], ["temperature"],
]  # fmt: skip

REQUIRED_PATHS: list[list[str | int]] = [
    ["model"], ["messages"], ["messages", 0, "role"], ["messages", 0, "content"], ["messages", 1, "content", 0, "text"],
    ["messages", 1, "content", 0, "type"], ["messages", 2, "tool_calls", 0, "id"], ["messages", 2, "tool_calls"],
    ["messages", 2, "tool_calls", 0, "function", "name"], ["messages", 3, "tool_call_id"], ["tools", 0, "type"],
    ["tools", 0, "function"], ["tools", 0, "function", "name"],
]  # fmt: skip

CONTRADICTIONS: list[dict[str, Any]] = [
    {"messages": []},
    {"model": ""},
    {"model": "m" * 257},
    {"stream": False},
    {"stream": None},
    {"max_completion_tokens": 17},
    {"top_logprobs": 3},
    {"stop": ["a", "b", "c", "d", "e"]},
    {"stop": ["a", ""]},
    {"modalities": ["text", "audio"]},
    {"modalities": ["video"]},
    {"service_tier": "gold"},
    {"reasoning_effort": "maximal"},
    {"tool_choice": {"type": "function", "function": {"name": "g"}}},
    {"tool_choice": "perhaps"},
    {"functions": [{"name": "f"}]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
    {"response_format": {"type": "yaml"}},
    {"metadata": {str(n): "" for n in range(17)}},
    {"metadata": {"k" * 65: ""}},
    {"logit_bias": {"token": 1}},
    {"logit_bias": {"1": 101}},
    {"safety_identifier": "s" * 129},
    {"messages": [{"role": "tool", "tool_call_id": "never", "content": ""}]},
    {"messages": [{"role": "assistant"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]},
]

WAYS: list[Callable[[random.Random], bytes]] = [
    bad_json,
    truncated,
    trailing,
    not_an_object,
    deep,
    bad_utf8,
    lone_surrogate,
    wrong_type,
    out_of_range,
    missing,
    contradiction,
]
