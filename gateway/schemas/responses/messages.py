"""The messages of a chat request, made of the items of a Responses request.

An answer's text, its calls of tools and the reasoning before them are one assistant message; the results of its calls
follow it directly. Images and documents in a result go into a user message after all results, because a chat request
has no place for them in a result.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.errors import InvalidValue, MissingParameter, UnsupportedParameter
from gateway.schemas.chat_messages import CachedPart
from gateway.schemas.chat_rules import is_image_url
from gateway.schemas.reasoning_state import read_state
from gateway.schemas.responses.compaction import BEFORE, TRIGGER
from gateway.schemas.responses.items import (
    AudioInput,
    CallOutputItem,
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    HostedItem,
    InputFile,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputText,
    Part,
    ReasoningItem,
    Refusal,
    ToolsItem,
)
from gateway.schemas.responses.tools import ToolSet
from gateway.schemas.schema_errors import invalid

Message = dict[str, Any]
TEXT_ALONE = {"type", "text"}  # the members of a part that a string says as well
_array = msgspec.json.Decoder(list[Raw])


class Conversation:
    """Takes the items in order; `end` returns the messages."""

    def __init__(self, model: str, tools: ToolSet) -> None:
        self.left_out: set[str] = set()  # types of items that have no place in a chat request
        self._model, self._tools = model, tools
        self._messages: list[Message] = []
        self._answer: Message | None = None  # the assistant message that is not complete
        self._media: list[Any] = []  # parts from results, for the user message after them
        self._signatures: dict[str, Raw] = {}  # `extra_content` by the id of a call
        self._called: set[str] = set()

    def add_system(self, role: str, text: str | list[dict[str, Any]]) -> None:
        """Add instructions."""
        self._flush()
        self._messages.append({"role": role, "content": text})

    def add_user(self, content: str | list[dict[str, Any]]) -> None:
        """Add input of the caller."""
        self._flush()
        self._messages.append({"role": "user", "content": content})

    def add(self, item: Item, path: str) -> None:
        """Add an item; raises BadRequest with the exact param."""
        if isinstance(item, MessageItem):
            self._add_message(item, path)
        elif isinstance(item, FunctionCallItem):
            self._add_call(item, item.arguments)
        elif isinstance(item, CallOutputItem):
            self._add_output(item, path)
        elif isinstance(item, CustomCallItem):
            self._add_call(item, msgspec.json.encode({"input": item.input}).decode())
        elif isinstance(item, ReasoningItem):
            self._add_reasoning(item)
        elif isinstance(item, HostedItem):
            assert isinstance(item.kind, str)
            if item.kind != TRIGGER:
                self.left_out.add(item.kind)
        elif isinstance(item, CompactionItem):
            if item.summary is not None:
                self.add_user(BEFORE + item.summary)
        else:
            assert isinstance(item, ToolsItem), "its tools are read with the others"

    def end(self) -> list[Message]:
        """The messages of all items; raises InvalidValue if they say nothing."""
        self._flush()
        if not self._messages:
            raise InvalidValue("Invalid 'input': it has no item that this model can read.", param="input")
        return self._messages

    def _flush(self) -> None:
        """Complete the assistant message, or the results of its calls."""
        answer, self._answer = self._answer, None
        if answer is not None and (answer.get("content") or answer.get("tool_calls")):
            if content := answer.get("content"):
                answer["content"] = _joined(content)
            self._messages.append(answer)
        if self._media:
            self._messages.append({"role": "user", "content": self._media})
            self._media = []

    def _add_message(self, item: MessageItem, path: str) -> None:
        if item.role == "assistant":
            self._add_answer(item, path)
        elif isinstance(item.content, str):
            self._add_text(item.role, item.content)
        else:
            if not item.content:
                raise MissingParameter(f"Missing required parameter: '{path}.content[0]'.", param=f"{path}.content")
            media = item.role == "user"
            parts = [_part(part, f"{path}.content[{at}]", media=media) for at, part in enumerate(item.content)]
            self._add_text(item.role, parts[0]["text"] if len(parts) == 1 and parts[0].keys() == TEXT_ALONE else parts)

    def _add_text(self, role: str, content: str | list[dict[str, Any]]) -> None:
        if role == "user":
            self.add_user(content)
        else:
            self.add_system(role, content)

    def _add_answer(self, item: MessageItem, path: str) -> None:
        if isinstance(item.content, str):
            parts = [{"type": "text", "text": item.content}] if item.content else []
        else:
            parts = [_answer_part(part, f"{path}.content[{at}]") for at, part in enumerate(item.content)]
        begun = self._answer
        if begun is not None and begun.get("content") and not begun.get("tool_calls"):
            self._flush()
        answer = self._open()
        if parts:
            answer.setdefault("content", []).extend(parts)

    def _add_call(self, item: FunctionCallItem | CustomCallItem, arguments: str) -> None:
        call_id, name = item.call_id, self._tools.flat(item.namespace, item.name)
        self._called.add(call_id)
        call: dict[str, Any] = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        if call_id in self._signatures:
            call["extra_content"] = self._signatures[call_id]
        self._open().setdefault("tool_calls", []).append(call)

    def _add_output(self, item: CallOutputItem, path: str) -> None:
        if item.call_id not in self._called:
            raise invalid(f"{path}.call_id", "no earlier item of the input called a tool with this id")
        media, self._media = self._media, []
        self._flush()
        self._media = media
        content: Any = item.output
        if not isinstance(content, str):
            texts = [part for part in content if isinstance(part, InputText | OutputText)]
            others = [part for part in content if not isinstance(part, InputText | OutputText)]
            content = [_part(part, path) for part in texts]
            if others:
                self._media.append({"type": "text", "text": f"From the result of the call {item.call_id}:"})
                self._media += [_part(part, f"{path}.output[{content_at(item, part)}]") for part in others]
            content = content or ("The result follows the results of all calls." if others else "")
        self._messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})

    def _add_reasoning(self, item: ReasoningItem) -> None:
        """Keep reasoning that this model wrote; all other reasoning is left out."""
        state = read_state(item.encrypted_content, self._model)
        if state is None:
            return
        self._signatures.update(state.calls)
        text = "".join(part.text for part in item.content or item.summary or ())
        if not text and state.thinking_blocks is msgspec.UNSET and state.reasoning_details is msgspec.UNSET:
            return
        answer = self._open()
        if text:
            answer["reasoning_content"] = answer.get("reasoning_content", "") + text
        for name in ("thinking_blocks", "reasoning_details"):
            raw = getattr(state, name)
            if raw is not msgspec.UNSET:
                answer[name] = [*answer.get(name, ()), *_array.decode(raw)]

    def _open(self) -> Message:
        """The assistant message that is not complete; a new one after results."""
        if self._answer is None:
            self._flush()
            self._answer = {"role": "assistant"}
        return self._answer


def content_at(item: CallOutputItem, part: Any) -> int:
    """The position of a part in a result."""
    return next(at for at, one in enumerate(item.output) if one is part)


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The text of an answer, which many servers take as a string only."""
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _answer_part(part: Part, path: str) -> dict[str, Any]:
    if isinstance(part, OutputText | InputText):
        return {"type": "text", "text": part.text}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.refusal}
    raise invalid(f"{path}.type", "an assistant message has only 'output_text' and 'refusal'")


def _part(part: Part, path: str, *, media: bool = True) -> dict[str, Any]:
    """A part of a message that is no answer, with its mark for the upstream's cache."""
    written = _content(part, path, media=media)
    if not isinstance(part, CachedPart) or (mark := part.cache_breakpoint) is None:
        return written
    if part.prompt_cache_breakpoint is None:
        # Written anew: what was sent is only looked through for an upstream of the dialect.
        written["cache_control"] = {"type": "ephemeral", **({} if mark.ttl is None else {"ttl": "1h"})}
    else:
        ttl = {} if mark.ttl is None else {"ttl": mark.ttl}
        written["prompt_cache_breakpoint"] = {"mode": mark.mode, **ttl}
    return written


def _content(part: Part, path: str, *, media: bool) -> dict[str, Any]:
    if isinstance(part, InputText | OutputText):
        return {"type": "text", "text": part.text}
    if isinstance(part, Refusal) or not media:
        raise invalid(f"{path}.type", "a message of this role has only text")
    if isinstance(part, InputImage):
        return _image(part, path)
    if isinstance(part, AudioInput):
        return {"type": "input_audio", "input_audio": part.input_audio}
    return _file(part, path)


def _image(part: InputImage, path: str) -> dict[str, Any]:
    if part.file_id is not None:
        raise _no_store(f"{path}.file_id")
    if part.image_url is None:
        raise MissingParameter(f"Missing required parameter: '{path}.image_url'.", param=f"{path}.image_url")
    if not is_image_url(part.image_url):
        raise invalid(f"{path}.image_url", "expected an https URL or a base64 data URL of an image")
    image = {"url": part.image_url}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _file(part: InputFile, path: str) -> dict[str, Any]:
    if part.file_id is not None:
        raise _no_store(f"{path}.file_id")
    if part.file_url is not None:
        text = f"Unsupported parameter: '{path}.file_url'. Files are not fetched; send 'file_data'."
        raise UnsupportedParameter(text, param=f"{path}.file_url")
    if part.file_data is None:
        raise MissingParameter(f"Missing required parameter: '{path}.file_data'.", param=f"{path}.file_data")
    if not part.file_data[:5].lower().startswith("data:"):
        raise invalid(f"{path}.file_data", "expected a data URL")
    file = {"file_data": part.file_data}
    if part.filename is not None:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _no_store(param: str) -> UnsupportedParameter:
    text = f"Unsupported parameter: '{param}'. There is no file store; send the data itself."
    return UnsupportedParameter(text, param=param)
