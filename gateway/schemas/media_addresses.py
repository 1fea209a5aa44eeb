"""Images and documents that a chat request names by address: where they are, and the request with their content.

Only https addresses count. Any other value goes to the provider as it is, which forwards or refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from gateway.schemas.chat_messages import FilePart, ImagePart, Message, UserMessage
from gateway.schemas.chat_request import ChatRequest

PDF = "application/pdf"
_TYPES: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": PDF,
}
_PLACES = {"image_url": "url", "file": "file_data"}  # by the type of a part: the member that has the address

_messages = msgspec.json.Decoder(list[Message])


class MediaAddress(Struct, frozen=True):
    """One address."""

    url: str
    param: str  # the place in the request


def media_addresses(request: ChatRequest) -> list[MediaAddress]:
    """The addresses in the messages, in their order."""
    return [
        MediaAddress(url, f"messages[{at}].content[{number}].{place}")
        for at, message in enumerate(request.messages)
        if isinstance(message, UserMessage) and isinstance(message.content, list)
        for number, part in enumerate(message.content)
        for url, place in _address_of(part)
    ]


def media_type(content: bytes) -> str:
    """The type of an image or a PDF by its first bytes; "" for anything else."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _TYPES.items() if content.startswith(magic)), "")


def with_media(request: ChatRequest, contents: Mapping[str, bytes]) -> ChatRequest:
    """The request with data URLs in the place of addresses; `contents`: the data URL of each address."""
    messages = msgspec.json.decode(request.fields["messages"])
    for part in _parts(messages):
        place = _PLACES[part["type"]]
        holder = part[part["type"]]
        content = contents.get(str(holder.get(place)))
        if content is not None:
            holder[place] = Raw(b'"%b"' % content)
    fields = {**request.fields, "messages": Raw(msgspec.json.encode(messages))}
    body = msgspec.json.encode(fields)
    return structs.replace(request, messages=_messages.decode(fields["messages"]), fields=fields, body=body)


def _address_of(part: object) -> Iterator[tuple[str, str]]:
    if isinstance(part, ImagePart) and _is_address(part.image_url.url):
        yield part.image_url.url, "image_url.url"
    elif isinstance(part, FilePart) and _is_address(part.file.file_data or ""):
        yield part.file.file_data or "", "file.file_data"


def _is_address(text: str) -> bool:
    return text[:8].lower() == "https://"


def _parts(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The parts of users' messages that may have an address."""
    for message in messages:
        if message.get("role") == "user" and isinstance(message.get("content"), list):
            yield from (part for part in message["content"] if part.get("type") in _PLACES)
