"""Gemini's finish reasons and block reasons in the wire's words (docs/providers/gemini.md, "Finish reasons")."""

from __future__ import annotations

from gateway.errors import UpstreamInvalidResponse

FILTERED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "MODEL_ARMOR",
        "ESCALATION",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
    }
)
FAILED = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
    }
)
VAGUE = frozenset({"OTHER", "FINISH_REASON_UNSPECIFIED", "PUP_LIMITED_DISABLED", "CONTINUATION"})
_PLAIN = {"STOP": "stop", "MAX_TOKENS": "length", "NO_IMAGE": "stop"}


def finish_reason(reason: str, *, called: bool, spoke: bool, usable: bool) -> str:
    """The wire's reason for a choice that `spoke` or `called` functions; `usable` says whether any choice did.

    Raises UpstreamInvalidResponse where the reason means failure, or is unknown, and nothing usable was produced.
    """
    if called:
        return "tool_calls"
    if reason in _PLAIN:
        return _PLAIN[reason]
    if reason in FILTERED:
        return "content_filter"
    if reason in VAGUE:
        return "stop" if spoke else "content_filter"
    if not usable:
        raise UpstreamInvalidResponse(detail=f"finish reason {reason!r}")
    return "stop"


def refusal(block_reason: str) -> str:
    """What a caller reads when the prompt itself was blocked; the vendor's word for it, if it is a word."""
    word = block_reason.lower().replace("_", " ") if block_reason.replace("_", "").isalpha() else "other"
    return f"The model provider blocked this prompt ({word[:40]})."
