"""Values that whole and streamed chat answers share: their form, ids, finish reasons and service tier."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.errors import UpstreamInvalidResponse
from gateway.ids import tool_call_id
from gateway.schemas.chat_response import FINISH_REASONS


class AnswerForm(msgspec.Struct, frozen=True):
    """The form of the answer that the caller requested."""

    id: str
    created: int  # Unix seconds
    model: str  # the public name of the model in the answer
    include_usage: bool = False
    obfuscation: str = "upstream"  # padding of delta chunks: as the upstream sent it; "on": also if absent; "off": none
    legacy_functions: bool = False  # answer with function_call, because the request used functions
    service_tier: str | None = None  # the requested tier, for upstreams that do not report the used one
    metadata: Raw | UnsetType = UNSET  # of the request, echoed on a whole answer


def call_id(upstream_id: str) -> str:
    """The upstream's id if clients send it back unchanged, else a new one."""
    plain = upstream_id.replace("-", "").replace("_", "")
    return upstream_id if len(upstream_id) <= 64 and plain.isalnum() and plain.isascii() else tool_call_id()


def finish_reason(reason: str, *, called: bool, has_content: bool, legacy: bool = False) -> str:
    """The wire's finish reason; UpstreamInvalidResponse for an unknown one that ends an empty answer."""
    if reason not in FINISH_REASONS:
        if not (has_content or called):
            raise UpstreamInvalidResponse(detail=f"unknown finish reason {reason!r}")
        reason = "stop"
    if called and reason in {"stop", "function_call", "tool_calls"}:
        return "function_call" if legacy else "tool_calls"
    return reason


def service_tier(used: str | UnsetType | None, asked: str | None) -> str | UnsetType:
    """The tier in an answer: the one the upstream reported, else the requested one in the terms of answers."""
    if used is not UNSET and used is not None:
        return used
    return UNSET if asked is None else {"auto": "default", "fast": "priority"}.get(asked, asked)
