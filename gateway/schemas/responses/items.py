"""The items of a Responses request: messages, tool calls and their results, reasoning (docs/fields.md, "Responses").

`read_items` decodes each item by its `type`; a message may come without one. Items of tools that an upstream runs by
itself are kept as `HostedItem`, which has only its type: only an upstream of the same dialect takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect
from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType

from gateway.errors import UnsupportedParameter
from gateway.schemas.chat_messages import MAX_PARTS, CachedPart, InputAudio, ItemId, Label
from gateway.schemas.schema_errors import first_error, invalid, parse_json

# Parts -------------------------------------------------------------------------------------------------------------


class InputText(CachedPart, tag="input_text", tag_field="type", gc=False):
    """A piece of text."""

    text: str


class InputImage(CachedPart, tag="input_image", tag_field="type", gc=False):
    """An image: an https URL, or the image itself as a base64 data URL."""

    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class InputFile(CachedPart, tag="input_file", tag_field="type", gc=False):
    """A document as a data URL; there is no file store, and no address is fetched."""

    file_data: str | None = None
    filename: Label | None = None
    file_id: str | None = None
    file_url: str | None = None


class AudioInput(CachedPart, tag="input_audio", tag_field="type", gc=False):
    """Audio to listen to."""

    input_audio: InputAudio


class OutputText(Struct, tag="output_text", tag_field="type", gc=False):
    """Text of an earlier answer."""

    text: str


class Refusal(Struct, tag="refusal", tag_field="type", gc=False):
    """What an assistant said instead of an answer."""

    refusal: str


class SummaryText(Struct, tag="summary_text", tag_field="type", gc=False):
    """Reasoning that was shown to the caller."""

    text: str


class ReasoningText(Struct, tag="reasoning_text", tag_field="type", gc=False):
    """Reasoning as the model wrote it."""

    text: str


Part = InputText | InputImage | InputFile | AudioInput | OutputText | Refusal
Parts = Annotated[list[Part], Meta(max_length=MAX_PARTS)]
Output = str | Annotated[list[InputText | InputImage | InputFile | OutputText], Meta(max_length=MAX_PARTS)]

# Items -------------------------------------------------------------------------------------------------------------


class MessageItem(Struct, gc=False):
    """A message."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    id: ItemId | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Struct, gc=False):
    """An earlier call of a function."""

    call_id: ItemId
    name: Label
    arguments: str
    id: ItemId | None = None
    namespace: Label | None = None


class CustomCallItem(Struct, gc=False):
    """An earlier call of a custom tool."""

    call_id: ItemId
    name: Label
    input: str
    id: ItemId | None = None
    namespace: Label | None = None


class CallOutputItem(Struct, gc=False):
    """What a function or a custom tool answered."""

    call_id: ItemId
    output: Output
    id: ItemId | None = None


class ReasoningItem(Struct, gc=False):
    """Reasoning before an answer; `encrypted_content` is the upstream's or the gateway's own."""

    summary: Annotated[list[SummaryText], Meta(max_length=MAX_PARTS)] | None = None
    content: Annotated[list[ReasoningText], Meta(max_length=MAX_PARTS)] | None = None
    encrypted_content: str | None = None
    id: ItemId | None = None


class ToolsItem(Struct, gc=False):
    """Tools beside those of the field `tools`."""

    tools: Annotated[list[Raw], Meta(max_length=128)]
    role: Literal["developer", "system"] | None = None


class CompactionItem(Struct, gc=False):
    """What stands for the conversation before it; the content is an upstream's or the gateway's own."""

    encrypted_content: str
    id: ItemId | None = None
    summary: Any = None  # a text, if the gateway has opened the content


class HostedItem(Struct, gc=False):
    """An item of a tool that an upstream runs by itself."""

    id: ItemId | None = None
    kind: str | UnsetType = UNSET  # its `type`, set by `read_items`


Item = (
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ReasoningItem
    | ToolsItem
    | CompactionItem
    | HostedItem
)

#: Items of tools that an upstream runs by itself, or that only its own clients know.
HOSTED_ITEMS = frozenset(
    {
        "apply_patch_call", "apply_patch_call_output", "code_interpreter_call",
        "computer_call", "computer_call_output", "file_search_call", "image_generation_call", "local_shell_call",
        "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools",
        "shell_call", "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call",
    }
)  # fmt: skip
COMPACTIONS = ("compaction", "compaction_summary")
_KINDS: Mapping[str, type[Struct]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
    "reasoning": ReasoningItem,
    "additional_tools": ToolsItem,
    **dict.fromkeys(COMPACTIONS, CompactionItem),
    **dict.fromkeys((*HOSTED_ITEMS, "compaction_trigger"), HostedItem),
}


class _Typed(Struct):
    """The type of an item."""

    type: str | None = None


_peek = msgspec.json.Decoder(_Typed)
_decoders: Mapping[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in set(_KINDS.values())
}


def read_items(items: Sequence[Raw]) -> list[Item]:
    """The items of `input`; raises BadRequest with the exact param."""
    return [_read(raw, f"input[{index}]") for index, raw in enumerate(items)]


def _read(raw: Raw, path: str) -> Item:
    try:
        kind = _peek.decode(raw).type or "message"
    except MsgspecError:
        raise _explained(raw, _Typed, path) from None
    struct = _KINDS.get(kind)
    if struct is None:
        if kind == "item_reference":
            text = (
                f"Unsupported value for '{path}.type': 'item_reference'. Nothing is stored here; send the item itself."
            )
            raise UnsupportedParameter(text, param=path)
        known = ", ".join(f"'{name}'" for name in _KINDS if name not in HOSTED_ITEMS)
        raise invalid(f"{path}.type", f"'{kind[:64]}' is none of {known}, nor an item of a known hosted tool")
    try:
        item: Item = _decoders[struct].decode(raw)
    except MsgspecError:
        raise _explained(raw, struct, path) from None
    if isinstance(item, HostedItem):
        item.kind = kind
    elif isinstance(item, CompactionItem):
        item.summary = None  # no field of the caller's
    return item


def _explained(raw: Raw, struct: type[Struct], path: str) -> Exception:
    error = first_error(parse_json(bytes(raw)), msgspec.inspect.type_info(struct), path)
    return error or invalid(path, "it cannot be read")
