"""A JSON document as a file that the browser saves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from gateway.console.replies import Download

PIECE = 100_000  # bytes: a slow browser takes each of them in time


async def json_file(name: str, document: Callable[[], Any]) -> Download:
    """The file `name` with the document, which is made and encoded in a thread before anything is sent."""
    content = await asyncio.to_thread(lambda: msgspec.json.format(msgspec.json.encode(document())))
    return Download(name, "application/json", _pieces(content))


async def _pieces(content: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]
