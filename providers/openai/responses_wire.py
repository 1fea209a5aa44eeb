"""What is read of the events and documents of the Responses API."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType


class WirePart(Struct):
    """A part of a message or of reasoning."""

    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: Raw | UnsetType = UNSET


class WireItem(Struct):
    """An item of an answer."""

    type: str = ""
    id: str | None = None
    call_id: str = ""
    status: str | None = None
    name: str = ""
    arguments: Any = None
    input: Any = None
    content: list[WirePart] | None = None
    summary: list[WirePart] | None = None


class WireDetails(Struct):
    """Why an answer is incomplete."""

    reason: str = ""


class WireResponse(Struct):
    """A response."""

    status: str = ""
    output: list[WireItem] = []
    error: Any = None
    incomplete_details: WireDetails | None = None
    usage: Raw | UnsetType = UNSET
    service_tier: str | None = None


class WireEvent(Struct):
    """An event of a stream."""

    type: str = ""
    delta: Any = None
    item_id: str | None = None
    output_index: int | None = None
    item: WireItem | None = None
    part: WirePart | None = None


class WireState(Struct):
    """An event with a response."""

    response: WireResponse
