"""The few headers of a caller that travel on to upstreams: the W3C trace context to all, `OpenAI-Beta` to its dialect.

The walk of a call says `bind(forwarded_headers(headers))` once; whatever its task and the tasks it starts send upstream
then carries them. A provider whose dialect is OpenAI's own adds `dialect_headers()` to its request. Sharp edge: values
come from callers, so only what has the exact form of a trace context, or is plain short text, goes anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar

from msgspec import Struct

_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{1,200})?")
_TRACE_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_BETA = re.compile(r"[A-Za-z0-9_.,=; -]{1,512}")


class ForwardedHeaders(Struct, frozen=True):
    """What travels on, by where it may go."""

    everywhere: Mapping[str, str]
    same_dialect: Mapping[str, str]


_NONE = ForwardedHeaders({}, {})
_carried: ContextVar[ForwardedHeaders] = ContextVar("caller_headers", default=_NONE)


def forwarded_headers(headers: Mapping[str, str]) -> ForwardedHeaders:
    """What of `headers` travels on; two look-ups for nothing."""
    parent, beta = headers.get("Traceparent"), headers.get("Openai-Beta")
    if parent is None and beta is None:
        return _NONE
    everywhere, same_dialect = {}, {}
    if parent is not None and _TRACE_PARENT.fullmatch(parent):
        everywhere["traceparent"] = parent
        state = headers.get("Tracestate")
        if state is not None and _TRACE_STATE.fullmatch(state):
            everywhere["tracestate"] = state
    if beta is not None and _BETA.fullmatch(beta):
        same_dialect["OpenAI-Beta"] = beta
    return ForwardedHeaders(everywhere, same_dialect)


def bind(headers: ForwardedHeaders) -> None:
    """Let the calls that this task makes carry those headers, and nothing else."""
    if _carried.get() is not headers:  # a request that was sent ahead begins in the task of the one before it
        _carried.set(headers)


def trace_headers() -> Mapping[str, str]:
    """What every upstream is sent."""
    return _carried.get().everywhere


def dialect_headers() -> Mapping[str, str]:
    """What an upstream of OpenAI's own dialect may be sent."""
    return _carried.get().same_dialect
