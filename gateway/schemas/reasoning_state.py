"""What a model of another dialect wants back with its next request, carried by clients of Responses and of Messages.

Signed thinking blocks, reasoning details and signatures of tool calls have no place in a Responses item. They are
written into `encrypted_content` of a reasoning item, which clients send back unread: `gw1.` and base64 of JSON. In
Messages, signatures of calls are in the `data` of a block `redacted_thinking` before the call. The text is not secret:
it holds only what the caller's own answer had. It is returned to the model that it came from; a text that is not the
gateway's, is broken or is of another model is left out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error

import msgspec
from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType

PREFIX = "gw1."


class ReasoningState(Struct, omit_defaults=True, frozen=True):
    """The state of one reasoning item; `models` are the requested name and the one that answered."""

    models: tuple[str, ...]
    thinking_blocks: Raw | UnsetType = UNSET
    reasoning_details: Raw | UnsetType = UNSET
    calls: dict[str, Raw] = {}  # `extra_content` by the id of a tool call


_decoder = msgspec.json.Decoder(ReasoningState)
_encoder = msgspec.json.Encoder()


def is_ours(text: str | None) -> bool:
    """Whether the gateway wrote this `encrypted_content`."""
    return text is not None and text.startswith(PREFIX)


def write_state(state: ReasoningState) -> str:
    """The text that carries `state`."""
    return PREFIX + b64encode(_encoder.encode(state)).decode()


def read_state(text: str | None, model: str) -> ReasoningState | None:
    """The state in `text`; None if it is not the gateway's, is broken, or is of another model than `model`."""
    if text is None or not text.startswith(PREFIX):
        return None
    try:
        state = _decoder.decode(b64decode(text[len(PREFIX) :], validate=True))
    except (Error, MsgspecError, ValueError, RecursionError):
        return None
    return state if model in state.models and _is_whole(state) else None


def _is_whole(state: ReasoningState) -> bool:
    """Whether the lists are lists, and the objects are objects: a caller may write anything."""
    lists = (state.thinking_blocks, state.reasoning_details)
    return all(raw is UNSET or bytes(raw).startswith(b"[") for raw in lists) and all(
        bytes(raw).startswith(b"{") for raw in state.calls.values()
    )
