"""A multipart/form-data body for an upstream, whose files stream through without ever being whole in memory.

::

    form = Multipart().field("model", "whisper-1").file("file", chunks, filename="a.wav", content_type="audio/wav")
    await upstream.send("POST", url, body=form)

Sharp edge: names and file names come from callers; what could end a header line is percent-encoded, as browsers do.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator


class Multipart:
    """Fields and files in the order they were added; it can be sent once."""

    def __init__(self) -> None:
        self._boundary = secrets.token_hex(16).encode()
        self._parts: list[tuple[bytes, bytes | AsyncIterator[bytes]]] = []

    @property
    def content_type(self) -> str:
        """The header that goes with the body."""
        return f"multipart/form-data; boundary={self._boundary.decode()}"

    def field(self, name: str, value: str) -> Multipart:
        """Add a text field."""
        self._parts.append((f'form-data; name="{_quoted(name)}"'.encode(), value.encode()))
        return self

    def file(
        self,
        name: str,
        content: bytes | AsyncIterator[bytes],
        *,
        filename: str,
        content_type: str = "application/octet-stream",
    ) -> Multipart:
        """Add a file, whole or as the chunks in which it arrives."""
        head = (
            f'form-data; name="{_quoted(name)}"; filename="{_quoted(filename)}"\r\nContent-Type: {_line(content_type)}'
        )
        self._parts.append((head.encode(), content))
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        """The encoded body."""
        for head, content in self._parts:
            yield b"--%b\r\nContent-Disposition: %b\r\n\r\n" % (self._boundary, head)
            if isinstance(content, bytes):
                yield content
            else:
                async for chunk in content:
                    yield chunk
            yield b"\r\n"
        yield b"--%b--\r\n" % self._boundary


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")
