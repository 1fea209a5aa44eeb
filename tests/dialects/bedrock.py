"""Answers of Claude on Bedrock: Converse, and InvokeModel with Anthropic's document or events."""

from __future__ import annotations

import base64
import json
from typing import Any

from gateway.testing import Reply
from tests.providers import converse_dialect

Document = dict[str, Any]


def whole(blocks: list[Document], reason: str, usage: Document) -> Reply:
    """A document of Converse with these blocks of content."""
    message = {"role": "assistant", "content": blocks}
    return Reply.json({"output": {"message": message}, "stopReason": reason, "usage": usage})


def streamed(blocks: list[Document], reason: str, usage: Document) -> Reply:
    """The same as events of ConverseStream."""
    frames = [converse_dialect.event("messageStart", role="assistant")]
    for index, block in enumerate(blocks):
        frames += _block_events(index, block)
    frames += [
        converse_dialect.event("messageStop", stopReason=reason),
        converse_dialect.event("metadata", usage=usage),
    ]
    return converse_dialect.streamed(*frames)


def _block_events(index: int, block: Document) -> list[bytes]:
    at = {"contentBlockIndex": index}
    begun: list[bytes] = []
    if "toolUse" in block:
        use = block["toolUse"]
        start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
        begun = [converse_dialect.event("contentBlockStart", start=start, **at)]
        deltas: list[Document] = [{"toolUse": {"input": json.dumps(use["input"])}}]
    elif "reasoningContent" in block:
        said = block["reasoningContent"]["reasoningText"]
        deltas = [{"reasoningContent": {name: said[name]}} for name in ("text", "signature")]
    else:
        deltas = [block]
    added = [converse_dialect.event("contentBlockDelta", delta=delta, **at) for delta in deltas]
    return [*begun, *added, converse_dialect.event("contentBlockStop", **at)]


def invoked(messages: Reply) -> Reply:
    """A stream of Anthropic's events as InvokeModelWithResponseStream frames it."""
    found = [
        line.removeprefix(b"data: ")
        for line in b"".join(messages.frames or ()).split(b"\n")
        if line.startswith(b"data: ")
    ]
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    parts = [json.dumps({"bytes": base64.b64encode(event).decode()}).encode() for event in found]
    return converse_dialect.streamed(*(converse_dialect.frame(headers, part) for part in parts))
