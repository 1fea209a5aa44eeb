"""Decodes the JSON of answers and events; what cannot be read at all is an error of the upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document
from gateway.schemas.answer_surrogates import decode_whole

from .fitting import fitted

T = TypeVar("T")

_any = msgspec.json.Decoder()
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # raised for broken JSON, UTF-8, types and nesting


def decoded(decoder: msgspec.json.Decoder[T], data: bytes, *, strict: bool = False, surrogates: bool = False) -> T:
    """The decoded object, without the parts that do not fit; UpstreamInvalidResponse if `data` is not one.

    `strict`: a number that is written as a text does not fit. `surrogates`: texts keep surrogates, which the
    encoders of chats and transcripts join.
    """
    try:
        return decoder.decode(data)
    except UNREADABLE:
        pass
    try:
        return fitted(data, decoder.type, strict=strict, surrogates=surrogates)
    except UNREADABLE as error:
        raise UpstreamInvalidResponse(detail=f"{type(error).__name__}: {error}"[:300]) from None


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; an empty one if `data` is not an object."""
    try:
        document = decode_whole(_any, data)
    except UNREADABLE:
        return {}
    return document if isinstance(document, dict) else {}


def raise_error_event(data: bytes, hidden: Sequence[str]) -> NoReturn:
    """Raise for an event that is called `error`: an object with or without an `error` inside, or plain text."""
    document = json_object(data)
    text = data.decode("utf-8", "replace")
    raise error_of_document(document.get("error") or document or text, hidden)


def raise_error_inside(data: bytes, hidden: Sequence[str]) -> None:
    """Raise for a top-level `error`, an object or a text, in an answer with status 200."""
    if error := json_object(data).get("error"):
        raise error_of_document(error, hidden)
