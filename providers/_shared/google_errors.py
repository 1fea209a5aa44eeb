"""What Google calls an error, of Gemini or of Vertex AI → the typed error (docs/providers/gemini.md, "Errors").

The common reader of `upstream_errors` does most of it. Here is what only Google does: a bad key of the operator's is a
400 whose details say so, the time to wait stands in the details too, and an ordinary rate limit speaks of billing.
Sharp edge: the details are looked at for reasons and delays only; their texts may name projects, and go nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway import Answer
from gateway.errors import GatewayError, UpstreamAuthError, UpstreamRateLimited
from gateway.plugins.upstream_errors import (
    MAX_WAIT,
    error_body,
    error_of_answer,
    error_of_document,
    request_id_of,
    wait_asked,
)
from gateway.schemas.answer_surrogates import decode_whole

_any = msgspec.json.Decoder()
_OUR_CREDENTIAL = re.compile(r"(API_KEY|ACCESS_TOKEN|CREDENTIALS|ACCOUNT_STATE|SERVICE_DISABLED|CONSUMER_)[A-Z_]*")
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


async def raise_for_status(answer: Answer, hidden: Sequence[str] = ()) -> None:
    """Raise the typed error unless the answer is a success; `hidden` texts, such as the key in use, are cut out."""
    if not 200 <= answer.status < 300:
        raise error_of(answer.status, answer.headers, await error_body(answer), hidden)


def error_of(status: int, headers: Mapping[str, str], body: bytes, hidden: Sequence[str] = ()) -> GatewayError:
    """The typed error for an answer that is no success."""
    known = _known(status, _error(body), wait_asked(headers))
    if known is None:
        return error_of_answer(status, headers, body, hidden)
    known.upstream_request_id = request_id_of(headers)
    return known


def error_in_answer(data: bytes, hidden: Sequence[str] = ()) -> GatewayError | None:
    """The typed error inside an answer of status 200, whole or a frame; None when it holds none."""
    error = _error(data)
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code <= 599 else 0
    return _known(status, error, None) or error_of_document(error, hidden)


def _known(status: int, error: Any, asked: float | None) -> GatewayError | None:
    """The error where Google's details decide it."""
    details = _details(error)
    reasons = [reason for detail in details if isinstance(reason := detail.get("reason"), str)]
    if status in {400, 403} and any(_OUR_CREDENTIAL.fullmatch(reason) for reason in reasons):
        return UpstreamAuthError(detail=f"upstream status {status}: {' '.join(reasons)}"[:200])
    if status == 429:
        wait = next((wait for detail in details if (wait := _delay(detail.get("retryDelay")))), None)
        limited = UpstreamRateLimited(
            retry_after=wait or asked or 1.0, detail="upstream status 429: RESOURCE_EXHAUSTED"
        )
        limited.answered, limited.asked_wait = status, wait or asked
        return limited
    return None


def _error(body: bytes) -> Any:
    """The value of `error` in a document, which may stand in an array; empty when there is none."""
    try:
        document = decode_whole(_any, body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(document, list) and document:
        document = document[0]
    return document.get("error") if isinstance(document, dict) else None


def _details(error: Any) -> list[dict[str, Any]]:
    details = error.get("details") if isinstance(error, dict) else None
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def _delay(text: Any) -> float | None:
    """Seconds in a duration such as `17s`."""
    found = _DELAY.fullmatch(text) if isinstance(text, str) else None
    wait = float(found[1]) if found else 0.0
    return wait if 0 < wait <= MAX_WAIT else None
