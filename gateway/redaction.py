"""Hides credentials, and for callers also addresses, in texts from outside: of upstreams, plugins and callers.

`redact` is for logs and the operator's terminal, `clean` for callers. Each text is cut before a pattern reads it, and
each pattern takes time in proportion to the text: one that may begin with a long run of characters begins only where
the run begins (`(?<!…)`), so a run without a match is read once and not once per character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_TEXT = 16 * 1024  # characters of one text that are read
MAX_DETAIL = 2048  # characters of the detail of an error in a log line
MAX_MESSAGE = 600  # characters of a message that a caller gets
REMOVED = "[removed]"

_SECRET = re.compile(
    r"(sk-|gwa_|Bearer\s+|Basic\s+|(?:api[-_]?key|token|password|secret)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;)}\]]+",
    re.IGNORECASE,
)
_SHAPED = re.compile(
    r"\b(?:pk|rk|gsk|xai|nvapi|hf)[-_][A-Za-z0-9_-]{12,}|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{8,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w.-]+"
)
_USER_INFO = re.compile(r"(://)[^\s/@\"'<>]*(?=@)")

_URL = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s\"'<>)\]]+", re.IGNORECASE)
_KEY = re.compile(
    r"\b(?:bearer|basic)\s+[\w.~+/=-]{6,}|\b(?:sk|pk|rk|gsk|xai|nvapi)[-_][\w*-]{4,}"
    r"|\b(?:key|api|org|proj|hf)[-_][\w*-]{12,}"
    r"|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{8,}|(?<![\w-])eyJ[\w-]{8,}\.[\w.-]+",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|(?<![\w.-])[\w.-]+:\d{3,5}\b|\blocalhost\b"
    r"|(?<![\w.-])[\w.-]+\.(?:com|net|org|io|ai|dev|cloud|internal|local|lan|svc|invalid)\b",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` with everything that looks like a credential hidden; at most `MAX_TEXT` characters of it."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + " …"
    text = _SECRET.sub(r"\1***", text)
    if "://" in text:
        text = _USER_INFO.sub(r"\1***", text)
    return _SHAPED.sub("***", text)


def clean(text: str, hidden: Sequence[str] = ()) -> str:
    """`text` for a caller: one line, limited in length, without addresses, texts like credentials and `hidden` texts.

    The `hidden` texts are removed first: a cut could leave the beginning of one.
    """
    text = hide(text[: 4 * MAX_TEXT], hidden)[: 4 * MAX_MESSAGE]
    text = " ".join(text.split())
    for pattern in (_URL, _KEY, _HOST):
        text = pattern.sub(REMOVED, text)
    return "".join(character for character in text[:MAX_MESSAGE] if character.isprintable())


def hide(text: str, hidden: Sequence[str]) -> str:
    """`text` without the `hidden` texts."""
    for secret in hidden:
        if secret:
            text = text.replace(secret, REMOVED)
    return text
