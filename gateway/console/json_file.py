"""A JSON document as a file that the browser saves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.console.replies import Download
from gateway.http_server.piecewise import pieces_of


async def json_file(name: str, document: Callable[[], Any]) -> Download:
    """The file `name` with the document, which is made and encoded in a thread before anything is sent."""
    content = await asyncio.to_thread(lambda: msgspec.json.format(msgspec.json.encode(document())))
    return Download(name, "application/json", pieces_of(content))
