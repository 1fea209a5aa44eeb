"""Vendors' prompt caches: how many tokens of a request are read from a cache, and how many are written to it.

A request is read as a list of blocks in the order of the prompt: tools, instructions, messages. A block is compared
byte for byte, with its members in their order and with ids of calls; its tokens are those of its text. OpenAI and
Gemini find the longest beginning of an earlier request by themselves, OpenAI among those of the same
`prompt_cache_key`. Claude reads and writes at marks only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from gateway.testing import Seen

Document = dict[str, Any]

MARK_LOOKBACK = 20  # blocks before a mark in which Claude looks for an earlier one


class Block(Struct, frozen=True):
    """A piece of the prompt; `marked`: Claude's cache ends here."""

    text: str
    id: str = ""  # of a call; not counted
    marked: bool = False

    @property
    def tokens(self) -> int:
        return -(-len(self.text.encode()) // 4)

    @property
    def compared(self) -> tuple[str, str]:
        return self.text, self.id


class Counted(Struct):
    """The tokens of one request."""

    prompt: int
    cached: int = 0
    written: int = 0


Beginning = tuple[tuple[str, str], ...]


class PromptCache(Struct):
    """The cache of one vendor."""

    by_key: dict[str, list[Beginning]] = field(default_factory=dict)
    marked: set[Beginning] = field(default_factory=set)

    def count(self, seen: Seen) -> Counted:
        """Count a request, and keep it."""
        path = seen.path.partition("?")[0]
        blocks = list(blocks_of(path, seen.json))
        counted = Counted(sum(block.tokens for block in blocks))
        if path.endswith(("/messages", "/invoke", "/invoke-with-response-stream", "/converse", "/converse-stream")):
            self._by_marks(blocks, counted)
        else:
            self._by_beginning(blocks, counted, str(seen.json.get("prompt_cache_key", "")))
        return counted

    def _by_beginning(self, blocks: list[Block], counted: Counted, key: str) -> None:
        prompt = tuple(block.compared for block in blocks)
        earlier = self.by_key.setdefault(key, [])
        length = max((_same(prompt, one) for one in earlier), default=0)
        counted.cached = sum(block.tokens for block in blocks[:length])
        earlier.append(prompt)

    def _by_marks(self, blocks: list[Block], counted: Counted) -> None:
        prompt = tuple(block.compared for block in blocks)
        ends = [position + 1 for position, block in enumerate(blocks) if block.marked]
        assert len(ends) <= 4, "Claude refuses a fifth mark"
        read = max((n for end in ends for n in range(end, max(0, end - MARK_LOOKBACK), -1)
                    if prompt[:n] in self.marked), default=0)  # fmt: skip
        counted.cached = sum(block.tokens for block in blocks[:read])
        if ends:
            counted.written = max(0, sum(block.tokens for block in blocks[: ends[-1]]) - counted.cached)
        self.marked.update(prompt[:end] for end in ends)


def _same(one: Beginning, other: Beginning) -> int:
    """How many blocks are the same from the start."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def blocks_of(path: str, body: Document) -> Iterator[Block]:
    """The prompt of a request."""
    if path.endswith("/chat/completions"):
        return _chat(body)
    if path.endswith("/responses"):
        return _responses(body)
    if path.endswith(("/converse", "/converse-stream")):
        return _converse(body)
    if "contents" in body:
        return _gemini(body)
    return _messages(body)


def _tool(name: str, description: str, schema: Document) -> Block:
    return Block(f"tool {name} {description} {json.dumps(schema)}")


def _call(name: str, arguments: Any, id: str = "") -> Block:
    known = json.loads(arguments) if isinstance(arguments, str) else arguments
    return Block(f"call {name} {json.dumps(known)}", id)


def _texts(kind: str, content: Any, id: str = "") -> Iterator[Block]:
    for part in [{"text": content}] if isinstance(content, str) else content:
        yield Block(f"{kind} {part['text']}", id, "cache_control" in part)


def _chat(body: Document) -> Iterator[Block]:
    for one in body.get("tools", []):
        function = one["function"]
        yield _tool(function["name"], function["description"], function["parameters"])
    for message in body["messages"]:
        if message.get("content"):
            yield from _texts(message["role"], message["content"], message.get("tool_call_id", ""))
        for call in message.get("tool_calls", ()):
            yield _call(call["function"]["name"], call["function"]["arguments"], call["id"])


def _responses(body: Document) -> Iterator[Block]:
    for one in body.get("tools", []):
        yield _tool(one["name"], one["description"], one["parameters"])
    if body.get("instructions"):
        yield Block(f"system {body['instructions']}")
    for item in body["input"]:
        if item["type"] == "message":
            yield from _texts(item["role"], item["content"])
        elif item["type"] == "function_call":
            yield _call(item["name"], item["arguments"], item["call_id"])
        elif item["type"] == "function_call_output":
            yield from _texts("tool", item["output"], item["call_id"])
        else:
            assert item["type"] == "reasoning", item
            yield Block(f"thinking {json.dumps(item['summary'])}", str(item.get("encrypted_content")))


def _messages(body: Document) -> Iterator[Block]:
    for one in body.get("tools", []):
        yield _tool(one["name"], one["description"], one["input_schema"])
    if body.get("system"):
        yield from _texts("system", body["system"])
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            marked = "cache_control" in block
            if block["type"] == "tool_use":
                yield _call(block["name"], block["input"], block["id"])
            elif block["type"] == "tool_result":
                inner = block["content"]
                parts = [{"text": inner}] if isinstance(inner, str) else inner
                marked = marked or any("cache_control" in part for part in parts)
                yield Block(f"tool {''.join(part['text'] for part in parts)}", block["tool_use_id"], marked)
            elif block["type"] == "thinking":
                yield Block(f"thinking {block['thinking']}", block["signature"])
            else:
                yield Block(f"{message['role']} {block['text']}", "", marked)


def _converse(body: Document) -> Iterator[Block]:
    found = list(_unmarked_converse(body))
    for block, following in zip(found, [*found[1:], Block("")], strict=True):
        if block.text != "point":
            yield Block(block.text, block.id, following.text == "point")


def _unmarked_converse(body: Document) -> Iterator[Block]:
    for one in body.get("toolConfig", {}).get("tools", []):
        spec = one["toolSpec"]
        yield _tool(spec["name"], spec["description"], spec["inputSchema"]["json"])
    parts = [("system", block) for block in body.get("system", [])]
    parts += [(message["role"], block) for message in body["messages"] for block in message["content"]]
    for role, block in parts:
        if "cachePoint" in block:
            yield Block("point")
        elif "toolUse" in block:
            use = block["toolUse"]
            yield _call(use["name"], use["input"], use["toolUseId"])
        elif "toolResult" in block:
            result = block["toolResult"]
            yield Block(f"tool {''.join(part['text'] for part in result['content'])}", result["toolUseId"])
        elif "reasoningContent" in block:
            said = block["reasoningContent"]["reasoningText"]
            yield Block(f"thinking {said['text']}", said["signature"])
        else:
            yield Block(f"{role} {block['text']}")


def _gemini(body: Document) -> Iterator[Block]:
    for one in body.get("tools", []):
        for declared in one["functionDeclarations"]:
            schema = declared.get("parametersJsonSchema") or declared["parameters"]
            yield _tool(declared["name"], declared["description"], schema)
    contents = [body["systemInstruction"], *body["contents"]] if "systemInstruction" in body else body["contents"]
    for content in contents:
        role = {"model": "assistant"}.get(content.get("role", "system"), content.get("role", "system"))
        for part in content["parts"]:
            if "functionCall" in part:
                yield _call(part["functionCall"]["name"], part["functionCall"]["args"])
            elif "functionResponse" in part:
                answered = part["functionResponse"]
                yield Block(f"tool {next(iter(answered['response'].values()))}", answered["name"])
            elif part["text"]:  # a stream ends with an empty text, as at Google
                yield Block(f"{role} {part['text']}")
