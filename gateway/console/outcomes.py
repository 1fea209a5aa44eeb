"""Outcomes of calls in words, and the colours of their tags. `NO_ERRORS` says which of them are no errors."""

from __future__ import annotations

from gateway.ledger.line_meta import NO_ERRORS

WORDS = {
    "abandoned": "the client left before the call began",
    "client_closed": "the client left first",
    "content_filter": "refused by the provider's filter",
    "content_policy_violation": "refused by the provider's filter",
    "context_length_exceeded": "longer than the model permits",
    "internal_error": "a fault of the gateway",
    "invalid_value": "refused by the provider",
    "reclaimed": "no end was reported",
    "replayed": "the stored answer of an earlier call",
    "request_cancelled": "cancelled by an owner or operator",
    "server_is_overloaded": "the provider was overloaded",
    "service_unavailable": "no provider could be used",
    "slow_down": "the provider had too many requests",
    "superseded": "another call took its place",
    "upstream_auth_error": "the provider refused the gateway's credential",
    "upstream_error": "the provider failed",
    "upstream_invalid_response": "the provider's answer was not valid",
    "upstream_stream_truncated": "the provider's stream broke off",
    "upstream_timeout": "the provider did not answer in time",
    "worker_died": "a process of the gateway ended",
}


def outcome_text(outcome: str) -> str:
    """The name of an outcome, with words where the name is not plain."""
    return f"{outcome}: {WORDS[outcome]}" if outcome in WORDS else outcome


def outcome_tone(outcome: str) -> str:
    """The class of the tag of an outcome: `good`, `bad` for an error, `warn` for other ends."""
    if outcome not in NO_ERRORS:
        return "bad"
    return "good" if outcome in ("ok", "") else "warn"
