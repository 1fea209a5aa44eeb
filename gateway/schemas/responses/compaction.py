"""Compaction of a Responses conversation: what asks for it, and what stands for it later.

An upstream that has compaction gets the request as it was sent. Any other model is asked for a summary. It goes to the
client in an item that only the gateway can read; in a later request, the summary takes the place of that item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from gateway.schemas.responses.items import CompactionItem, HostedItem, Item
from gateway.schemas.schema_errors import invalid

#: In `AcceptedFields.tools` of an upstream that has compaction.
COMPACTION = "compaction"
TRIGGER = "compaction_trigger"
PREFIX = "gwc1."  # of what a gateway has sealed

INSTRUCTION = (
    "Write a summary of this conversation, from which another session can continue the work without having seen it. "
    "Include what the user asked for, and each constraint that the user named, in the user's words where they matter; "
    "decisions and their reasons; names of files, commands, identifiers and values that are still needed; what was "
    "done, and what it showed; what is not done yet, and the next step. Write the summary only, and call no tool."
)
BEFORE = "Summary of the conversation up to this point:\n\n"

#: Opens a sealed text of the caller's account; None if it is not one.
OpenSealed = Callable[[str], str | None]

_encode = msgspec.json.Encoder().encode


def message_item(text: str) -> bytes:
    """The JSON of a message of the user."""
    content = [{"type": "input_text", "text": text}]
    return _encode({"type": "message", "role": "user", "content": content})


def is_triggered(items: Sequence[Item]) -> bool:
    """Whether the input asks for a compaction; InvalidValue for a trigger that is not the last item."""
    for index, item in enumerate(items):
        if isinstance(item, HostedItem) and item.kind == TRIGGER:
            if index < len(items) - 1:
                raise invalid(f"input[{index}].type", f"'{TRIGGER}' must be the last item")
            return True
    return False


def open_items(items: Sequence[Item], open_sealed: OpenSealed | None) -> str:
    """Open the sealed summaries of the items; the path of one that is of another service, or "".

    InvalidValue for one that was changed, or was sealed for another account.
    """
    foreign = ""
    for index, item in enumerate(items):
        if not isinstance(item, CompactionItem):
            continue
        path = f"input[{index}].encrypted_content"
        if not item.encrypted_content.startswith(PREFIX) or open_sealed is None:
            foreign = foreign or path
            continue
        item.summary = open_sealed(item.encrypted_content)
        if item.summary is None:
            raise invalid(path, "it was changed, or is not of this account")
    return foreign


def with_instruction(items: Sequence[bytes]) -> Raw:
    """The input that asks a model for a summary, in place of the trigger."""
    return Raw(b"[%b]" % b",".join([*items, message_item(INSTRUCTION)]))
