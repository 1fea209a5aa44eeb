"""The access line of a request that was not served: what an operator needs to explain the refusal afterwards.

Only such lines have these fields, so a line of a served request costs no more. Sharp edge: most of them are the
caller's own text. It is cut and redacted, and nothing but this line uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from gateway.accounts.authenticator import bearer
from gateway.accounts.key_headers import key_headers
from gateway.errors.facts import RefusalFacts
from gateway.log import AccessLine, redact
from gateway.redaction import printable

MAX_TEXT = 200  # characters of a caller's text
SHORTEST_KEY = 20  # characters of a credential whose last four are shown


class RefusalLine(AccessLine):
    """An access line with the reason of a refusal and the caller's marks."""

    limit: str = ""  # what is used up, as in `GatewayError.limit`
    scope: str = ""  # whose limit it is
    key_last4: str = ""  # of a key that is not known
    client: str = ""  # address
    user_agent: str = ""
    caller_request_id: str = ""  # X-Request-ID
    traceparent: str = ""
    upstream_request_id: str = ""


def refusal_line(
    line: AccessLine,
    facts: RefusalFacts,
    headers: Mapping[str, str],
    *,
    model: str,
    client: str,
    unknown_key: bool,
) -> RefusalLine:
    """`line` with what is known about the refusal; `model` is the requested one, "" if it is not known."""
    get = headers.get
    fields = structs.asdict(line)
    fields["model"] = line.model or _short(model)
    return RefusalLine(
        **fields,
        limit=facts.limit,
        scope=facts.scope,
        key_last4=_last4(headers) if unknown_key else "",
        client=client,
        user_agent=_short(get("User-Agent")),
        caller_request_id=_short(get("X-Request-Id")),
        traceparent=_short(get("Traceparent")),
        upstream_request_id=facts.upstream_request_id,
    )


def _last4(headers: Mapping[str, str]) -> str:
    """The last characters of the credential in `headers`; "" for none, or one so short that they would tell much."""
    key = bearer(*key_headers(headers)) or ""
    return _short(key[-4:]) if len(key) >= SHORTEST_KEY else ""


def _short(text: str | None) -> str:
    return "" if not text else redact(printable(text[:MAX_TEXT]))
