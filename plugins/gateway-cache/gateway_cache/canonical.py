"""What makes two requests the same: the digest of a canonical form, without what does not change the answer."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway import CheckedCall

Scope = Literal["account", "key", "everyone"]

#: Top-level fields that say who asks, how the answer is sent, or how an upstream keeps its prompts.
IGNORED: Final = frozenset(
    {
        "encoding_format", "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "store",
        "stream", "stream_options", "user",
    }
)  # fmt: skip
#: Endpoints whose answer depends on the request alone.
DETERMINISTIC: Final = frozenset({"embeddings", "gemini_embeddings", "moderation", "rerank"})
#: Where the text of a user is that a request of another wording may have instead.
_LISTS: Final = ("messages", "input")
_GATEWAY: Final = version("model-gateway")  # the form of stored answers may change with it

_encode = msgspec.json.Encoder(order="sorted").encode


class Question(Struct, frozen=True):
    """A request without the last text of its user, and that text."""

    frame: str  # the digest of the rest
    text: str


def scope_of(call: CheckedCall, scope: Scope) -> str:
    """Who shares answers with this call."""
    if scope == "everyone":
        return ""
    return f"{call.account}/{call.key_id}" if scope == "key" else call.account


def digest(call: CheckedCall, scope: Scope) -> str:
    """The digest of a request, the same for all that are the same."""
    return _digest(call, scope, canonical(call))


def canonical(call: CheckedCall) -> dict[str, Any]:
    """The fields that change the answer: null equals absence, and 1.0 equals 1."""
    document = {name: _plain(value) for name, value in call.document.items() if name not in IGNORED}
    return {name: value for name, value in document.items() if value is not None} | {"model": call.model}


def is_deterministic(call: CheckedCall) -> bool:
    """Whether the same request has the same answer, as far as a request can say that."""
    return call.endpoint in DETERMINISTIC or call.document.get("temperature") in (0, 0.0)


def question(call: CheckedCall, scope: Scope) -> Question | None:
    """The last text of the user, for a comparison by meaning; None if the request does not end with one."""
    document = canonical(call)
    text: Any = document.get("prompt", document.get("input"))
    name = "prompt" if "prompt" in document else "input"
    if not isinstance(text, str):
        name = next((one for one in _LISTS if isinstance(document.get(one), list)), "")
        items = document.get(name) or [None]
        text = _user_text(items[-1])
        document[name] = items[:-1]
    else:
        document[name] = None
    if not isinstance(text, str) or not text.strip():
        return None
    return Question(_digest(call, scope, document), text)


def _user_text(item: Any) -> str | None:
    """The text of a message of the user that has nothing else."""
    if not isinstance(item, dict) or item.get("role") != "user" or not set(item) <= {"role", "content", "type"}:
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    part: dict[str, Any] = content[0]
    text = part.get("text")
    return text if isinstance(text, str) and set(part) <= {"type", "text"} else None


def _digest(call: CheckedCall, scope: Scope, document: dict[str, Any]) -> str:
    found = hashlib.blake2b(digest_size=32)
    for part in (_GATEWAY, scope, scope_of(call, scope), call.endpoint):
        found.update(part.encode() + b"\0")
    found.update(_encode(document))
    return found.hexdigest()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
