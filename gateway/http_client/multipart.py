"""A multipart/form-data body for an upstream; its files are streamed and are never completely in memory.

::

    form = Multipart().field("model", "whisper-1").file("file", chunks, filename="a.wav", content_type="audio/wav")
    await upstream.send("POST", url, body=form)

Sharp edge: names and file names come from callers; characters that could end a header line are percent-encoded.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator


class Multipart:
    """Fields and files in the order they were added; it can be sent once."""

    def __init__(self) -> None:
        self._boundary = secrets.token_hex(16).encode()
        self._parts: list[tuple[bytes, bytes | AsyncIterator[bytes]]] = []
        self._length: int | None = 0  # of all contents; None if one is unknown

    @property
    def content_type(self) -> str:
        """The Content-Type of the body."""
        return f"multipart/form-data; boundary={self._boundary.decode()}"

    @property
    def length(self) -> int | None:
        """Bytes of the body; None when a file came without its size."""
        if self._length is None:
            return None
        frames = sum(len(self._head(head)) + len(b"\r\n") for head, _ in self._parts)
        return self._length + frames + len(self._end())

    def field(self, name: str, value: str) -> Multipart:
        """Add a text field."""
        self._add(f'form-data; name="{_quoted(name)}"', value.encode(), len(value.encode()))
        return self

    def file(
        self,
        name: str,
        content: bytes | AsyncIterator[bytes],
        *,
        filename: str,
        content_type: str = "application/octet-stream",
        size: int | None = None,
    ) -> Multipart:
        """Add a file as bytes or as chunks; without `size`, in bytes, the body has no Content-Length."""
        head = (
            f'form-data; name="{_quoted(name)}"; filename="{_quoted(filename)}"\r\nContent-Type: {_line(content_type)}'
        )
        self._add(head, content, len(content) if isinstance(content, bytes) else size)
        return self

    def _add(self, head: str, content: bytes | AsyncIterator[bytes], size: int | None) -> None:
        self._parts.append((head.encode(), content))
        self._length = None if self._length is None or size is None else self._length + size

    def _head(self, head: bytes) -> bytes:
        return b"--%b\r\nContent-Disposition: %b\r\n\r\n" % (self._boundary, head)

    def _end(self) -> bytes:
        return b"--%b--\r\n" % self._boundary

    async def chunks(self) -> AsyncIterator[bytes]:
        """The encoded body."""
        for head, content in self._parts:
            yield self._head(head)
            if isinstance(content, bytes):
                yield content
            else:
                async for chunk in content:
                    yield chunk
            yield b"\r\n"
        yield self._end()


def _quoted(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")
