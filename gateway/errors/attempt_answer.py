"""What one attempt of a call answered, as the ledger line of the call keeps it.

It has names of the configuration and codes of the gateway only: no text of an upstream or of a plugin gets into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from msgspec import Struct

from gateway.errors import GatewayError, Unavailable, UpstreamAuthError, UpstreamError

OK = "ok"
CANCELLED = "cancelled"  # the gateway ended the attempt, because another one had answered
NOT_JOINED = "not_joined"  # its text did not fit what another attempt had delivered
MOST_ANSWERS = 6  # of one call; `retries` allows three attempts
MOST_NAME = 64  # characters of a name

#: About the credential or the credit that the operator has at the provider; callers do not get the status.
OPERATORS_OWN = frozenset({UpstreamAuthError.default_code, Unavailable.default_code})


class AttemptAnswer(Struct, frozen=True, omit_defaults=True):
    """One attempt; its stored form is at most a few hundred bytes."""

    provider: str
    model: str  # of the configuration: the requested model or a fallback
    code: str  # OK, CANCELLED, an error code, or the outcome of the call if that ended the attempt
    status: int = 0  # of the upstream's HTTP answer; 0 if there was none
    ms: int = 0  # until the attempt failed or ended
    # What its upstream may charge for it, where that is not in the usage of the line: what it has reported, or else, of
    # an attempt that the gateway gave up, the prompt by our estimate.
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False

    @classmethod
    def of(cls, provider: str, model: str, code: str, *, status: int, seconds: float) -> Self:
        """The answer with its names cut to `MOST_NAME`."""
        return cls(provider[:MOST_NAME], model[:MOST_NAME], code, status, max(0, int(seconds * 1000)))


def code_of(error: BaseException | None) -> str:
    """The code of an error, if it is one of the gateway's; a plugin may raise an error with any code."""
    if isinstance(error, GatewayError):
        for code in (error.code, error.default_code):
            if code in _CODES:
                return code
    return UpstreamError.default_code


def outcome_code(outcome: str) -> str:
    """The outcome of a call as the code of the attempt that was its last."""
    return outcome if outcome in _CODES or outcome in _OUTCOMES else UpstreamError.default_code


def _codes(kind: type[GatewayError]) -> Iterator[str]:
    if kind.default_code is not None:
        yield kind.default_code
    for sub in kind.__subclasses__():
        if sub.__module__.startswith("gateway.errors"):
            yield from _codes(sub)


_CODES = frozenset(_codes(GatewayError))
#: The codes of failures of an upstream or of its plugin.
UPSTREAM_CODES = frozenset(_codes(UpstreamError))
_OUTCOMES = frozenset({OK, "client_closed", "worker_died", "content_policy_violation"})
