"""A provider that repeats the last message, word by word: the smallest complete plugin.

Configure it as any other::

    [providers.echo]
    plugin = "echo"
    delay = 0.05                   # seconds between words

Sharp edge: it reports no usage, so the gateway estimates tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from gateway import Chat, ChatChunk, ChatRequest, Provider, Target, hookimpl


class EchoProvider(Provider, Chat):
    """Repeats what you say."""

    name = "echo"

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        delay: float = 0.0  # seconds between words

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The text of the last message."""
        content = request.messages[-1].content or ""
        text = content if isinstance(content, str) else " ".join(getattr(part, "text", "") for part in content)
        for index in range(request.choices):
            for word in text.split():
                if self.options.delay:
                    await asyncio.sleep(self.options.delay)
                yield ChatChunk.text(f"{word} ", index=index)
            yield ChatChunk.finish("stop", index=index)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Tell the gateway about the provider."""
    register(EchoProvider)
