"""Hides credentials, and for callers also addresses, in texts from outside: of upstreams, plugins and callers.

`redact` is for logs and the operator's terminal, `clean` for callers. Each text is cut before a pattern reads it, and
each pattern takes time in proportion to the text: one that may begin with a long run of characters begins only where
the run begins (`(?<!…)`), so a run without a match is read once and not once per character. Most texts have nothing to
hide. A pattern takes some 0.1 µs per character, so it reads only texts that have a part of each of its matches.
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
# Parts of their matches, as `_folded` writes them: a text without one has no match.
_SECRET_HAS = ("sk-", "gwa_", "bearer", "basic", "key", "token", "password", "secret")
_SHAPED_HAS = (
    "pk-", "pk_", "rk-", "rk_", "sk-", "sk_", "xai-", "xai_", "api-", "api_", "hf-", "hf_", "aiza", "akia", "asia",
    "eyj",
)  # fmt: skip
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

_KEY_HAS = (*_SHAPED_HAS, "bearer", "basic", "key-", "key_", "org-", "org_", "proj-", "proj_")
_HOST_HAS = (
    "localhost", ".com", ".net", ".org", ".io", ".ai", ".dev", ".cloud", ".internal", ".local", ".lan", ".svc",
    ".invalid",
)  # fmt: skip
_PORT_OR_OCTET = re.compile(r":\d{3}|\.\d{1,3}\.")


def redact(text: str) -> str:
    """`text` with everything that looks like a credential hidden; at most `MAX_TEXT` characters of it."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + " …"
    folded = _folded(text)
    if _has(folded, _SECRET_HAS):
        text = _SECRET.sub(r"\1***", text)
    if "://" in text:
        text = _USER_INFO.sub(r"\1***", text)
    return _SHAPED.sub("***", text) if _has(folded, _SHAPED_HAS) else text


def clean(text: str, hidden: Sequence[str] = ()) -> str:
    """`text` for a caller: one line, limited in length, without addresses, texts like credentials and `hidden` texts.

    The `hidden` texts are removed first: a cut could leave the beginning of one.
    """
    text = hide(text[: 4 * MAX_TEXT], hidden)[: 4 * MAX_MESSAGE]
    text = " ".join(text.split())
    if "://" in text:
        text = _URL.sub(REMOVED, text)
    folded = _folded(text)
    if _has(folded, _KEY_HAS):
        text = _KEY.sub(REMOVED, text)
    if _has(folded, _HOST_HAS) or _PORT_OR_OCTET.search(text):
        text = _HOST.sub(REMOVED, text)
    return printable(text[:MAX_MESSAGE])


def _folded(text: str) -> str:
    """`text` with one form of each letter, as patterns see it that ignore case: to them ı and İ are an i."""
    return text.lower() if text.isascii() else text.casefold().replace("ı", "i").replace("i\u0307", "i")


def _has(folded: str, parts: tuple[str, ...]) -> bool:
    return any(part in folded for part in parts)


def printable(text: str) -> str:
    """`text` without characters that cannot be printed."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


def hide(text: str, hidden: Sequence[str]) -> str:
    """`text` without the `hidden` texts."""
    for secret in hidden:
        if secret:
            text = text.replace(secret, REMOVED)
    return text
