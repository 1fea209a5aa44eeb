"""The items of an answer, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.reasoning_state import ReasoningState, write_state
from gateway.schemas.responses.native import ResponsesNative

_encode = encode_whole


def item_id(prefix: str, suffix: str, position: int) -> str:
    """The id of the item at `position` of the answer with this suffix."""
    return f"{prefix}_{suffix}_{position}"


def text_part(text: str, annotations: Sequence[Any] = (), logprobs: Sequence[Any] | None = None) -> bytes:
    """A part with text."""
    shown = b"" if logprobs is None else b',"logprobs":%b' % _encode(logprobs)
    return b'{"type":"output_text","text":%b,"annotations":%b%b}' % (_encode(text), _encode(annotations), shown)


def refusal_part(text: str) -> bytes:
    """A part with a refusal."""
    return b'{"type":"refusal","refusal":%b}' % _encode(text)


def message_item(id_: str, parts: Sequence[bytes], status: str) -> bytes:
    """A message."""
    return b'{"id":%b,"type":"message","status":"%b","role":"assistant","content":[%b]}' % (
        _encode(id_),
        status.encode(),
        b",".join(parts),
    )


class CalledTool(Struct, frozen=True):
    """A tool as the caller has named it."""

    name: str
    namespace: str = ""
    is_custom: bool = False

    @classmethod
    def of(cls, name: str, native: ResponsesNative) -> Self:
        """The tool that a chat answer calls `name`."""
        namespace, own = native.spaces.get(name, ("", name))
        return cls(own, namespace, name in native.custom)

    @property
    def members(self) -> bytes:
        """The members of an item or of an event that name it."""
        space = b',"namespace":%b' % _encode(self.namespace) if self.namespace else b""
        return b'"name":%b%b' % (_encode(self.name), space)


def call_item(id_: str, call_id: str, tool: CalledTool, arguments: str, *, status: str) -> bytes:
    """A call of a function, or of a custom tool with `arguments` as its input."""
    return b'{"id":%b,"type":"%b","status":"%b","call_id":%b,%b,"%b":%b}' % (
        _encode(id_),
        b"custom_tool_call" if tool.is_custom else b"function_call",
        status.encode(),
        _encode(call_id),
        tool.members,
        b"input" if tool.is_custom else b"arguments",
        _encode(arguments),
    )


def summary_part(text: str) -> bytes:
    """A part of a reasoning item."""
    return b'{"type":"summary_text","text":%b}' % _encode(text)


def reasoning_item(id_: str, text: str, state: ReasoningState | None) -> bytes:
    """A reasoning item; without a state it is not complete."""
    summary = summary_part(text) if text else b""
    kept = b"" if state is None else b',"encrypted_content":%b' % _encode(write_state(state))
    return b'{"id":%b,"type":"reasoning","summary":[%b]%b}' % (_encode(id_), summary, kept)


def image_item(id_: str, status: str, result: str | None = None) -> bytes:
    """A generated image; `result` is its base64."""
    return b'{"id":%b,"type":"image_generation_call","status":"%b","result":%b}' % (
        _encode(id_),
        status.encode(),
        _encode(result),
    )


def flat_annotations(annotations: Any) -> list[Any]:
    """Chat's annotations in the form of the dialect, where a kind is no object of its own; others are left out."""
    found = decoded(annotations)
    flat = []
    for one in found if isinstance(found, list) else ():
        kind = one.get("type") if isinstance(one, dict) else None
        inner = one.get(kind) if isinstance(kind, str) else None
        if isinstance(inner, dict):
            flat.append({"type": kind, **inner})
    return flat


def image_results(images: Any) -> list[str]:
    """The base64 of images in an answer; addresses are left out."""
    found, results = decoded(images), []
    for one in found if isinstance(found, list) else ():
        url = one.get("image_url") if isinstance(one, dict) else None
        url = url.get("url") if isinstance(url, dict) else None
        if isinstance(url, str) and url.startswith("data:"):
            results.append(url.partition(",")[2])
    return results


def decoded(value: Any) -> Any:
    """A value that a provider gave, decoded if it is raw JSON; None if it cannot be read."""
    if not isinstance(value, Raw):
        return None if value is UNSET else value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return None


def raw(value: Any) -> Raw | UnsetType:
    """A value that a provider gave, as raw JSON; UNSET for none."""
    if value is UNSET or value is None:
        return UNSET
    return value if isinstance(value, Raw) else Raw(_encode(value))


def logprobs_of(value: Any) -> list[Any] | None:
    """The log probabilities of the text in a chat choice; None without any."""
    found = decoded(value)
    content = found.get("content") if isinstance(found, dict) else None
    return list(map(_with_bytes, content)) if isinstance(content, list) else None


def _with_bytes(one: Any) -> Any:
    """A token with its bytes, which chat's upstreams may leave out and this dialect may not."""
    if not isinstance(one, dict):
        return one
    inner = one.get("top_logprobs")
    token = one | ({"top_logprobs": list(map(_with_bytes, inner))} if isinstance(inner, list) else {})
    text = one.get("token")
    if not isinstance(one.get("bytes"), list) and isinstance(text, str):
        token["bytes"] = list(text.encode("utf-8", "surrogatepass"))
    return token
