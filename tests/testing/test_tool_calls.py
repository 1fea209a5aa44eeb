"""The example of tool calls in docs/plugins.md, run on mixed parts of two calls; and the example of refusals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from gateway import Answer, ChatChunk, Upstream, error_body, fold_chat, raise_for_status
from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamRateLimited, UpstreamRejected
from gateway.testing import FakeUpstream, Reply

DOCS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def example(first_line: str) -> str:
    """The block of code of the page that begins with this line."""
    (found,) = re.findall(rf"^```python\n({re.escape(first_line)}\n.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    return str(found)


class Event(Struct):
    """An event of a vendor that names calls by their ids."""

    kind: str
    id: str = ""
    name: str = ""
    arguments: str = ""


class Lines:
    """An answer with these lines."""

    def __init__(self, *events: Event) -> None:
        self.events = events

    async def lines(self) -> AsyncIterator[bytes]:
        for event in self.events:
            yield msgspec.json.encode(event)


def tool_calls() -> Callable[..., AsyncIterator[ChatChunk]]:
    """The example as a function of an answer."""
    first = "positions: dict[str, int] = {}  # of the calls of this stream, by the vendor's ids"
    body = textwrap.indent(example(first), "    ")
    names: dict[str, Any] = {
        "ChatChunk": ChatChunk,
        "Event": Event,
        "read_document": lambda data, kind: msgspec.json.decode(data, type=kind),
    }
    exec(f"async def chunks(answer):\n{body}    yield ChatChunk.finish('tool_calls')\n", names)
    found: Callable[..., AsyncIterator[ChatChunk]] = names["chunks"]
    return found


@pytest.mark.holds("plugins.md#tool-calls-1")
async def test_mixed_parts_of_tool_calls_are_put_together_by_their_positions() -> None:
    answer = Lines(
        Event("tool", "c1", "weather", '{"city":'),
        Event("tool", "c2", "time", '{"zone":'),
        Event("tool", "c1", arguments='"Oslo"}'),
        Event("other"),
        Event("tool", "c2", arguments='"UTC"}'),
    )
    (choice,) = (await fold_chat(tool_calls()(answer))).choices
    calls = msgspec.to_builtins(choice.message.tool_calls)
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("c1", "weather", '{"city":"Oslo"}'),
        ("c2", "time", '{"zone":"UTC"}'),
    ]
    assert choice.finish_reason == "tool_calls"


async def checked(reply: Reply) -> GatewayError:
    """What the example about refusals raises."""
    names: dict[str, Any] = {
        "Answer": Answer,
        "Struct": Struct,
        "msgspec": msgspec,
        "error_body": error_body,
        "raise_for_status": raise_for_status,
    }
    exec(compile(example("class Refusal(Struct):"), "page", "exec", dont_inherit=True), names)
    async with FakeUpstream(lambda seen: reply) as fake:
        link = Upstream()
        try:
            async with await link.send("GET", fake.url) as answer:
                with pytest.raises(GatewayError) as caught:
                    await names["check"](answer, ["s3cret-token"])
                return caught.value
        finally:
            await link.close()


async def test_example_of_refusals_gives_reason_and_pause_and_reads_other_shapes() -> None:
    own = await checked(Reply.json({"reason": "too hot for s3cret-token"}, status=400))
    assert (type(own), own.message) == (UpstreamRejected, "too hot for [removed]")
    paused = await checked(Reply.json({"reason": "slow", "retry_in": 7}, status=429))
    assert (type(paused), paused.retry_after) == (UpstreamRateLimited, 7.0)
    assert (await checked(Reply.error(400, "too cold"))).message == "too cold"
    assert type(await checked(Reply(status=302, body=b"\xff"))) is UpstreamInvalidResponse
