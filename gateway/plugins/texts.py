"""Every text of a JSON document: to look at, or to change; for the checks of plugins.

A text is a string that is a value, at any depth. Names of fields are no texts, nor is the content of files and images
in base64, in the fields that may hold it: elsewhere such a string is a text. The arguments of a tool call are JSON in a
string: where they have escapes, the texts are those inside, so that no spelling hides a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

#: Fields that may hold base64; `data` only of an object that is no text.
_OPAQUE = frozenset({"b64_json", "data", "encrypted_content", "file_data", "signature", "thoughtSignature"})
#: Fields that may hold the address of a file, and so its content.
_ADDRESSES = frozenset({"audio_url", "data", "file_data", "file_url", "image_url", "url", "video_url"})
_LEAST = 64  # characters of what counts as base64 there
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\r\n]+={0,2}\s*", re.ASCII)
_DATA_URL = re.compile(r"data:[^,\s]{0,200};base64,[A-Za-z0-9+/_\-\r\n]*={0,2}\s*", re.ASCII | re.IGNORECASE)
_ARGUMENTS = "arguments"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Change = Callable[[str], str]


def texts_of(document: Any) -> Iterator[str]:
    """The texts in their order."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    change_texts(document, note)
    return iter(found)


def change_texts(document: Any, change: Change, *, but: frozenset[str] = frozenset()) -> Any:
    """Replace each text of the document, in place, by what `change` returns for it; returns the document.

    `but`: fields of the top level that stay as they are.
    """
    if isinstance(document, str):
        return change(document)
    stack = [_entries(document, but)]
    while stack:
        for owner, place, value in stack[-1]:
            if isinstance(value, str):
                if not _is_opaque(owner, place, value):
                    owner[place] = _changed(place, value, change)
            elif isinstance(value, (dict, list)):
                stack.append(_entries(value))
                break
        else:
            stack.pop()
    return document


def _entries(owner: Any, but: frozenset[str] = frozenset()) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(owner, dict):
        return iter([(owner, name, value) for name, value in owner.items() if name not in but])
    return iter([(owner, index, value) for index, value in enumerate(owner)] if isinstance(owner, list) else [])


def _is_opaque(owner: Any, place: Any, text: str) -> bool:
    """Whether the string is the content of a file, or what only its vendor can read."""
    if place == "data" and owner.get("type") == "text":
        return False
    if place in _ADDRESSES and text[:5].lower() == "data:":
        return _DATA_URL.fullmatch(text) is not None
    return place in _OPAQUE and len(text) >= _LEAST and _BASE64.fullmatch(text) is not None


def _changed(place: Any, text: str, change: Change) -> str:
    if place == _ARGUMENTS and "\\" in text:
        try:
            inside = _decode(text)
        except (msgspec.MsgspecError, RecursionError):
            return change(text)
        if isinstance(inside, (dict, list)):
            return _encode(change_texts(inside, change)).decode()
    return change(text)
