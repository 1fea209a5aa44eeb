"""What Bedrock calls an error → the typed error, from an answer's head and body or from an exception in its stream.

Bedrock's status alone may mislead: a quota comes as 400, an expired key sometimes too. Its name for the error decides,
and where there is none, as from a proxy in front of it, the status. Sharp edge: the name is AWS's word and stays in
`detail`; the message goes to callers only where it is about their own request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway import Answer
from gateway.errors import GatewayError
from gateway.plugins.upstream_errors import error_body, error_of_answer

from .._shared.documents import json_object
from .event_stream import Frame

# The HTTP status that each error amounts to, by its name in lower case without "exception".
STATUS: Mapping[str, int] = {
    "validation": 400,
    "serialization": 400,
    "accessdenied": 403,
    "unrecognizedclient": 403,
    "invalidsignature": 403,
    "incompletesignature": 403,
    "missingauthenticationtoken": 403,
    "expiredtoken": 403,
    "resourcenotfound": 404,
    "unknownoperation": 404,
    "modeltimeout": 408,
    "modelerror": 424,
    "modelstreamerror": 424,
    "throttling": 429,
    "modelnotready": 429,
    "servicequotaexceeded": 429,
    "internalserver": 500,
    "internalfailure": 500,
    "serviceunavailable": 503,
}


async def raise_for_status(answer: Answer, hidden: Sequence[str]) -> None:
    """Raise the typed error unless the answer is a success."""
    if 200 <= answer.status < 300:
        return
    body = await error_body(answer)
    document = json_object(body)
    kind = _plain(answer.headers.get("x-amzn-errortype") or _text(document.get("__type")))
    status = STATUS.get(_key(kind), answer.status)
    raise error_of_answer(status, answer.headers, _described(kind, document) if kind else body, hidden)


def raise_exception(frame: Frame, hidden: Sequence[str]) -> None:
    """Raise the typed error if a frame of a stream is an exception."""
    headers = frame.headers
    kind = headers.get(":message-type", "event")
    if kind == "exception":
        raise error_of_exception(headers.get(":exception-type", ""), frame.payload, hidden)
    if kind == "error":
        message = msgspec.json.encode({"message": headers.get(":error-message", "")})
        raise error_of_exception(headers.get(":error-code", ""), message, hidden)


def error_of_exception(kind: str, payload: bytes, hidden: Sequence[str]) -> GatewayError:
    """The typed error for an exception of that type inside a stream."""
    kind = _plain(kind)
    return error_of_answer(STATUS.get(_key(kind), 500), {}, _described(kind, json_object(payload)), hidden)


def _plain(kind: str) -> str:
    """The bare name: AWS writes `name:address`, or a namespace and `#` before it."""
    return kind.split(":", 1)[0].rsplit("#", 1)[-1].strip()


def _key(kind: str) -> str:
    return kind.lower().removesuffix("exception")


def _described(kind: str, document: Mapping[str, Any]) -> bytes:
    """The error in the shape that is understood for every vendor."""
    message = _text(document.get("message") or document.get("Message") or document.get("originalMessage"))
    return msgspec.json.encode({"error": {"message": message, "code": kind}})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
