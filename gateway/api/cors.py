"""Answers to browsers on pages of other origins, which `server.cors_origins` names; without it no header is sent.

A preflight has no key, since browsers send none with it. Its answer says only what every answer says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

ANY = "*"
METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
MAX_AGE = "7200"  # seconds that a browser keeps the answer to a preflight; Chromium keeps none longer
#: Headers of answers that a page may read.
EXPOSED = ", ".join(
    (
        "x-request-id", "X-Client-Request-Id", "request-id", "Retry-After", "retry-after-ms", "x-should-retry",
        "openai-processing-ms", "openai-organization", "Idempotent-Replayed",
        *(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
        *(f"x-gateway-{what}" for what in (
            "attempts", "cost", "dropped-params", "estimated", "max-tokens", "model", "provider",
        )),
    )
)  # fmt: skip
_NAMES = re.compile(r"[A-Za-z0-9_-]+(?: *, *[A-Za-z0-9_-]+)*")
MAX_NAMES = 2048  # characters


def cors_headers(headers: Mapping[str, str], origins: Sequence[str]) -> dict[str, str]:
    """The headers of an answer to a request with these headers."""
    found = {} if ANY in origins else {"Vary": "Origin"}
    origin = headers.get("Origin")
    if origin is None or not (ANY in origins or origin in origins):
        return found
    allowed = ANY if ANY in origins else origin
    return {**found, "Access-Control-Allow-Origin": allowed, "Access-Control-Expose-Headers": EXPOSED}


def preflight_headers(method: str, headers: Mapping[str, str], answer: Mapping[str, str]) -> dict[str, str] | None:
    """The further headers of the answer to a preflight; None for any other request, or of an origin not allowed."""
    if method != "OPTIONS" or "Access-Control-Allow-Origin" not in answer:
        return None
    if headers.get("Access-Control-Request-Method") is None:
        return None
    names = headers.get("Access-Control-Request-Headers") or ""
    wanted = names if len(names) <= MAX_NAMES and _NAMES.fullmatch(names) else "Authorization, Content-Type"
    return {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": wanted,
        "Access-Control-Max-Age": MAX_AGE,
    }
