"""The headers of a caller that are forwarded to upstreams: the W3C trace context to all, `OpenAI-Beta` to its dialect.

A provider with `forward_headers` also gets those that it names.

Those of Anthropic's dialect are read by its endpoint, which passes on the flags that an upstream takes.

The pipeline of a call runs `bind(forwarded_headers(headers))` once. All upstream requests of its task, and of the tasks
that it starts, then have these headers. A provider whose dialect is OpenAI's own adds `dialect_headers()` to its
request. Sharp edge: values come from callers, so only a valid trace context or a short plain text is forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar

from msgspec import Struct, structs

_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{1,200})?")
_PLAIN = re.compile(r"[\x20-\x7e]{1,512}")
_FLAG = re.compile(r"[A-Za-z0-9_.-]{1,128}")
MAX_FLAGS = 4096  # characters of a list of flags that are read
_BETA = re.compile(r"[A-Za-z0-9_.,=; -]{1,512}")


class ForwardedHeaders(Struct, frozen=True):
    """The forwarded headers, by the upstreams that may get them."""

    everywhere: Mapping[str, str]
    same_dialect: Mapping[str, str]
    anthropic_version: str = ""
    anthropic_betas: tuple[str, ...] = ()
    named: Mapping[str, str] = {}  # by lower-case name: those that the configuration names, for providers that do


_NONE = ForwardedHeaders({}, {})
_carried: ContextVar[ForwardedHeaders] = ContextVar("caller_headers", default=_NONE)


def forwarded_headers(headers: Mapping[str, str]) -> ForwardedHeaders:
    """The headers of `headers` to forward; four look-ups if there are none."""
    parent, beta, version = headers.get("Traceparent"), headers.get("Openai-Beta"), headers.get("Anthropic-Version")
    flags = headers.get("Anthropic-Beta")
    if parent is None and beta is None and version is None and flags is None:
        return _NONE
    everywhere, same_dialect = {}, {}
    if parent is not None and _TRACE_PARENT.fullmatch(parent):
        everywhere["traceparent"] = parent
        state = headers.get("Tracestate")
        if state is not None and _PLAIN.fullmatch(state):
            everywhere["tracestate"] = state
    if beta is not None and _BETA.fullmatch(beta):
        same_dialect["OpenAI-Beta"] = beta
    return ForwardedHeaders(everywhere, same_dialect, (version or "").strip(), _flags(flags or ""))


def _flags(text: str) -> tuple[str, ...]:
    """The flags in a list, each once; what can be none is left out."""
    found = (flag.strip() for flag in text[:MAX_FLAGS].split(","))
    return tuple(dict.fromkeys(flag for flag in found if _FLAG.fullmatch(flag)))


def with_named(forwarded: ForwardedHeaders, names: Iterable[str], headers: Mapping[str, str]) -> ForwardedHeaders:
    """`forwarded` with those of `headers` that `names` has, in lower case, and whose value is a short plain text."""
    found = {name: value for name in names if (value := headers.get(name.title())) and _PLAIN.fullmatch(value)}
    return structs.replace(forwarded, named=found) if found else forwarded


def bind(headers: ForwardedHeaders) -> None:
    """Forward exactly these headers with the upstream requests of this task."""
    if _carried.get() is not headers:  # a request that was sent ahead begins in the task of the one before it
        _carried.set(headers)


def forwarded_headers_now() -> ForwardedHeaders:
    """What this task forwards."""
    return _carried.get()


def trace_headers() -> Mapping[str, str]:
    """The headers for every upstream."""
    return _carried.get().everywhere


def named_headers(names: Collection[str], sent: Mapping[str, str]) -> dict[str, str]:
    """The caller's headers of these lower-case names, except those that the provider sends itself."""
    carried = _carried.get().named
    if not carried:
        return {}
    own = {name.lower() for name in sent}
    return {name: value for name, value in carried.items() if name in names and name not in own}


def dialect_headers() -> Mapping[str, str]:
    """The headers for an upstream of OpenAI's own dialect."""
    return _carried.get().same_dialect


def anthropic_headers() -> tuple[str, tuple[str, ...]]:
    """The caller's `anthropic-version`, "" if it sent none, and the flags of its `anthropic-beta`."""
    carried = _carried.get()
    return carried.anthropic_version, carried.anthropic_betas
