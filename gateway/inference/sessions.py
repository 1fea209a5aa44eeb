"""The session of a call: the conversation of one agent or chat, whose calls share the upstream's prompt cache.

Its id comes from the first of: a session header, `prompt_cache_key`, and the session that the request's dialect has
(`NativeRequest.session`). A chat request with an answer in its history has one in any case: a keyed hash of what stays
the same in a conversation. Every worker and every machine finds the same id, because the keys come from the pepper.
Sharp edge: callers choose ids, so an id means nothing beyond its account.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from gateway.accounts.pepper import derive
from gateway.redaction import redact
from gateway.schemas.chat_messages import (
    AssistantMessage,
    AudioPart,
    DeveloperMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    UserMessage,
)
from gateway.schemas.chat_request import ChatRequest

#: Headers that name a session, the first one counts; in the spelling of the parser.
HEADERS = (
    "X-Gateway-Session",
    "X-Session-Id",
    "X-Claude-Code-Session-Id",
    "Session-Id",  # Codex
    "Session_id",  # Codex, older versions
    "X-Opencode-Session",
    "X-Session-Affinity",  # opencode
    "Thread-Id",  # Codex
)
PLAIN = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}", re.ASCII)  # what is kept as it is
DIGEST = 16  # bytes
SEARCHED = 64  # messages in which the first answer must be
MOST = 65_536  # characters of one text that are hashed, with the length of the text


class SessionIds:
    """Finds the ids of sessions."""

    __slots__ = ("_given", "_history", "_upstream")

    def __init__(self, pepper: bytes) -> None:
        self._given = derive(pepper, "session-given")
        self._history = derive(pepper, "session-history")
        self._upstream = derive(pepper, "session-upstream")

    def of(self, given: str, request: object, account: str, model: str) -> str:
        """The id of the call's session, of `PLAIN` characters; empty for a call without one.

        `given` is the text of a header, empty without one.
        """
        if given:
            return self._kept(given)
        if type(request) is not ChatRequest:
            return ""
        native = request.native
        given = request.prompt_cache_key or (native.session if native is not None else "")
        if given:
            return self._kept(given)
        parts = _beginning(request.messages) if len(request.messages) > 1 else ()  # one message has no answer
        return self._hash(self._history, "history", (account.encode(), model.encode(), *parts)) if parts else ""

    def upstream_key(self, account: str, session: str) -> str:
        """The name that upstreams get for a session; it tells nothing about the account or the id."""
        return self._hash(self._upstream, "session", (account.encode(), session.encode()))

    def _kept(self, given: str) -> str:
        """An id as it is, or its hash: names of people and secrets have no place in reports."""
        if PLAIN.fullmatch(given) and redact(given) == given:
            return given
        return self._hash(self._given, "hash", (given.encode("utf-8", "surrogatepass"),))

    @staticmethod
    def _hash(key: bytes, kind: str, parts: Sequence[bytes]) -> str:
        digest = blake2b(key=key, digest_size=DIGEST)
        for part in parts:
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return f"{kind}-{digest.hexdigest()}"


def _beginning(messages: Sequence[Message]) -> list[bytes] | None:
    """The texts before the first answer, up to the first of the user; None without an answer or a user."""
    for end, message in enumerate(messages):
        if type(message) is AssistantMessage:
            break
        if end == SEARCHED:
            return None
    else:
        return None
    texts: list[str] = []
    for message in messages[:end]:
        if isinstance(message, UserMessage):
            return [_cut(text) for text in (*texts, "user", *_texts(message))]
        if isinstance(message, SystemMessage | DeveloperMessage):
            texts += ["system", *_texts(message)]
    return None


def _cut(text: str) -> bytes:
    return b"%d:%b" % (len(text), text[:MOST].encode("utf-8", "surrogatepass"))


def _texts(message: UserMessage | SystemMessage | DeveloperMessage) -> Iterator[str]:
    """The content, without the marks of what to cache: agents move these with each turn."""
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content:
        match part:
            case TextPart():
                yield part.text
            case ImagePart():
                yield part.image_url.url
            case AudioPart():
                yield part.input_audio.data
            case FilePart():
                yield part.file.file_data or ""
