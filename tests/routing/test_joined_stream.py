"""A joined stream has the new text and the end only, however the second target cuts its chunks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from gateway.errors import UpstreamTruncated
from gateway.routing.continuation import JoinedStream
from gateway.routing.dispatcher import Opened
from gateway.routing.seam import NotJoined, Prefilled, Restart, Seam
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, CompletionUsage, Delta
from tests.routing.test_seam import FORMS, TEXTS, answer_of, joined, pieces


class Other:
    """The stream of a second target."""

    def __init__(self, chunks: list[ChatChunk]) -> None:
        self.first = chunks[0]
        self.rest = self._rest(chunks[1:])
        self.closed = False

    async def _rest(self, chunks: list[ChatChunk]) -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    async def close(self) -> None:
        self.closed = True


def halves(text: str) -> list[str]:
    """The text as servers in JavaScript cut it: some characters in two chunks."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


def chunks_of(answer: list[str], rng: random.Random, *, ends: bool = True) -> list[ChatChunk]:
    """The chunks of an answer, with roles, reasoning, empty texts and counts between them."""
    found: list[ChatChunk] = []
    for text in answer:
        delta = Delta(content=text)
        if rng.random() < 0.1:
            delta.role = "assistant"
        found.append(ChatChunk(choices=[ChunkChoice(delta=delta)]))
        if rng.random() < 0.1:
            found.append(rng.choice((ChatChunk.reasoning("Hm"), ChatChunk.text(""), ChatChunk())))
    if not found:
        found.append(ChatChunk.text(""))
    if ends and rng.random() < 0.5:
        found.append(ChatChunk.finish("stop"))
    elif ends:  # the finish comes with the last text
        found[-1].choices = found[-1].choices or [ChunkChoice()]
        found[-1].choices[0].finish_reason = "stop"
    usage = CompletionUsage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    return [*found, ChatChunk.with_usage(usage)] if ends else found


async def got(seam: Seam, delivered: str, chunks: list[ChatChunk]) -> str | None:
    """What the caller has in the end; None for a cut."""
    other = Other(chunks)
    stream = JoinedStream(cast("Opened[ChatChunk]", other), seam, lambda usage: None)
    try:
        await stream.read_to_seam()
    except NotJoined:
        return None
    text, finishes = delivered, 0
    async for chunk in stream.chunks():
        assert not chunk.usage
        for part in chunk.choices:
            assert not part.delta.role
            assert not part.delta.reasoning_content
            text += part.delta.content or ""
            finishes += part.finish_reason is not None
    assert finishes == 1
    assert other.closed
    return text


async def test_chunks_join_as_their_texts_do() -> None:
    seen = 0
    for seed in range(3_000):
        rng = random.Random(seed)
        text, form = rng.choice(TEXTS), rng.choice(FORMS)
        cut = rng.randint(1, len(text))
        delivered = text[:cut]
        kind: Any = rng.choice((Prefilled, Restart)) if delivered.strip() else Restart
        answer, _ = answer_of(form, text, cut, rng)
        cuts = halves(answer) if rng.random() < 0.3 else pieces(answer, rng)
        expected = joined(kind(delivered), delivered, pieces(answer, rng))
        found = await got(kind(delivered), delivered, chunks_of(cuts, rng))
        assert found == expected, (seed, form, kind, delivered, answer)
        seen += found is not None
    assert seen > 800


async def test_a_call_follows_text_that_fits_and_no_other() -> None:
    call = ChatChunk.tool_call(0, id="a", name="f", arguments="{}")
    for texts, whole in (([" now"], "I look now"), ([], "I look"), (["I look"], "I look"), (["Sure"], None)):
        chunks = [*map(ChatChunk.text, texts), call, ChatChunk.finish("tool_calls")]
        assert await got(Prefilled("I look"), "I look", [ChatChunk(choices=c.choices) for c in chunks]) == whole
    assert await got(Restart("I look"), "I look", [ChatChunk.text("I lo"), call, ChatChunk.finish("stop")]) is None


async def test_other_content_before_the_seam_is_another_answer() -> None:
    refusal = ChatChunk(choices=[ChunkChoice(delta=Delta(refusal="No"))])
    chunks = [refusal, ChatChunk.text(" now"), ChatChunk.finish("stop")]
    assert await got(Prefilled("I look"), "I look", chunks) is None


async def test_a_stream_that_ends_before_the_seam_is_cut() -> None:
    chunks = chunks_of(["I l"], random.Random(0), ends=False)
    with pytest.raises(UpstreamTruncated):
        await got(Restart("I look"), "I look", chunks)
