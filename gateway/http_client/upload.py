"""A streamed request body whose length is checked and whose source is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

WRONG_LENGTH: Final = "a request body is not as long as its Content-Length says"


class Upload:
    """The pieces of a body, as an async iterator; close it."""

    def __init__(self, pieces: AsyncGenerator[bytes], length: int | None) -> None:
        self._pieces = pieces
        self._left = length  # bytes not yet read; None: any number
        self._reading = asyncio.Lock()

    def __aiter__(self) -> Upload:
        return self

    async def __anext__(self) -> bytes:
        """The next piece; ValueError when the body is not as long as its Content-Length."""
        async with self._reading:
            try:
                piece = await anext(self._pieces)
            except StopAsyncIteration:
                if self._left:
                    raise ValueError(WRONG_LENGTH) from None
                raise
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise ValueError(WRONG_LENGTH)
        return piece

    async def close(self) -> None:
        """Close the source as soon as no read of it is running."""
        async with self._reading:
            await self._pieces.aclose()
