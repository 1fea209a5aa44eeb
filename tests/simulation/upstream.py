"""The upstream of a world: a provider whose answers the seed draws, and what it has really done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

from msgspec import Struct

from gateway import Chat, ChatChunk, ChatRequest, CompletionUsage, Provider, Target, current_call
from gateway.errors import UpstreamOverloaded, UpstreamTruncated

PROMPT, WORD = 20, 1  # tokens of each prompt, and of each word of an answer


class Truth(Struct):
    """What the upstream did for one call of the gateway."""

    prompt: str = ""  # it names the caller's call
    requests: int = 0
    words: int = 0  # of the last request
    whole: bool = False


class WorldUpstream:
    """Answers of one world by the text of the prompt, which names the call."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.truths: dict[str, Truth] = {}  # by the id of the gateway's request
        self.fails_until = 0.0  # loop time
        self.silent_until = 0.0


class WorldProvider(Provider, Chat):
    """Streams words; `upstream` is the world's."""

    name = "world"
    world: WorldUpstream

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        world, loop = self.world, asyncio.get_running_loop()
        call = current_call()
        assert call is not None
        truth = world.truths.setdefault(call.request_id, Truth(str(request.messages[0].content)))
        truth.requests += 1
        truth.words, truth.whole = 0, False
        dice, limit = world.dice, request.max_output or 50
        await asyncio.sleep(dice.expovariate(1 / 0.05))
        if loop.time() < world.fails_until:
            raise UpstreamOverloaded(detail="the upstream is full")
        words = min(limit, dice.randrange(1, 40))
        cut_at = dice.randrange(words) if dice.random() < 0.05 else -1
        for number in range(words):
            if number == cut_at:
                raise UpstreamTruncated()
            if loop.time() < world.silent_until:
                await asyncio.sleep(world.silent_until - loop.time())
            truth.words = number + 1
            yield ChatChunk.text(f"word{number} ")
            if dice.random() < 0.5:
                await asyncio.sleep(dice.expovariate(1 / 0.02))
        yield ChatChunk.finish("length" if words == limit else "stop")
        yield ChatChunk(choices=[], usage=CompletionUsage(PROMPT, words * WORD, PROMPT + words * WORD))
        truth.whole = True
