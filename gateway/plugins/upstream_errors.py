"""Maps an upstream's error to a typed error of the gateway, for every provider.

The table is in docs/errors.md, "The provider". `raise_for_status` reads a status and a body of any known shape.
`error_of_document` reads an `error` inside a 200 answer or an event stream. A provider whose vendor has a shape of its
own gives them the message and the pause that it has read. The class of the error decides whether another target may be
tried. Sharp edge: only errors about the caller's request carry the upstream's message, without
addresses and keys. For errors about the operator's account, status and code go into `detail`, for the log.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from gateway.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    RequestTooLarge,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.plugins.context_words import is_limit_in_time, is_too_long
from gateway.redaction import MAX_DETAIL, MAX_MESSAGE, REMOVED, hide, redact
from gateway.redaction import clean as clean
from gateway.schemas.answer_surrogates import decode_whole, whole

if TYPE_CHECKING:
    from gateway.http_client.upstream import Answer

MAX_BODY = 256 * 1024  # bytes of an error's body that are read
MAX_READ = 4 * MAX_MESSAGE  # characters of an upstream's message that are read
REQUEST_IDS = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-goog-request-id", "cf-ray")
MAX_WAIT = 86_400.0  # seconds; a longer Retry-After is ignored

_FILTER = re.compile(
    r"content[ _]?filter|content[ _]management|content[ _]policy|responsible[ _]?ai|moderation[ _]blocked"
    r"|requires moderation|safety system|flagged|data[ _]?inspection|inappropriate content|sensitive content"
    r"|new_sensitive",
    re.IGNORECASE,
)
_CREDIT = re.compile(
    r"insufficient[ _](quota|funds|balance|credits?)|credit[ _]balance|out of credits|billing|payment required"
    r"|exceeded your current quota|\bquota_exceeded\b|spend[ _]limit|usage limits?\b.{0,80}regain access",
    re.IGNORECASE,
)
# A full queue: Ollama (ollama/ollama#4159). A server that loads its model: llama.cpp, by its type
# (mostlygeek/llama-swap#146); "error loading model" is the message of one that cannot.
_OVERLOAD = re.compile(
    r"overload|over capacity|no capacity|at capacity|too busy|high demand|(server|llm) busy|\bunavailable_error\b",
    re.IGNORECASE,
)
_RATE = re.compile(r"rate[ _]?limit|too many requests|slow[ _]down|resource[ _]exhausted", re.IGNORECASE)
_WAIT = re.compile(
    r"(?:try again|retry)(?: your request)? (?:in|after) "
    r"(\d{1,6}(?:\.\d{1,6})?) ?(ms\b|milliseconds?\b|s\b|sec(?:ond)?s?\b)",
    re.IGNORECASE,
)
_TIME = re.compile(r"time[d ]?[ _-]?out", re.IGNORECASE)
_AUTH = re.compile(r"authentication|invalid[ _]api[ _]?key|permission[ _]denied|unauthori[sz]ed", re.IGNORECASE)
_INVALID = re.compile(r"invalid[ _]?request|bad[ _]?request|validation|invalid[ _]argument|unsupported", re.IGNORECASE)

# What an upstream quotes is the caller's: a tool called `billing` must not look like an account without money.
_QUOTED_NAME = re.compile(r"(?<![\w:])(?<!: )(['\"`])[^\s'\"`]{1,128}\1(?!\w)")
_QUOTE = re.compile(r"(?<!\w)['\"`]")
_NESTED = re.compile(r"\{\s*\\?['\"]")  # the document of another upstream, inside a message

_any = msgspec.json.Decoder()
_PARAM = re.compile(r"[A-Za-z_][\w.\[\]-]{0,99}")
_REQUEST_ID = re.compile(r"[\w.:/=+-]{1,100}", re.ASCII)
_CODE = re.compile(r"[a-z0-9_.-]{1,64}", re.IGNORECASE)


class Complaint(Struct, frozen=True):
    """The parts of an upstream's error that could be parsed."""

    message: str = ""
    code: str = ""  # its code, type and status text together: only matched, never sent to callers
    param: str | None = None
    status: int = 0  # a status inside the document, when there is one


async def raise_for_status(
    answer: Answer, hidden: Sequence[str] = (), *, message: str | None = None, retry_after: float | None = None
) -> None:
    """Raise the typed error unless the status is 200 to 299; `hidden` texts, such as the key in use, are removed.

    `message` and `retry_after` (seconds) are what the provider has read of an error in the vendor's own shape. They
    replace those of the body and of the header Retry-After; None or "" leaves them.
    """
    if not 200 <= answer.status < 300:
        body = await error_body(answer)
        raise error_of_answer(answer.status, answer.headers, body, hidden, message=message, retry_after=retry_after)


async def error_body(answer: Answer) -> bytes:
    """The body of an error status, up to 256 KiB, empty if it does not arrive; b"" for 200 to 299, whose body stays.

    A body that was read can be read again, so `raise_for_status` finds it, too.
    """
    if 200 <= answer.status < 300:
        return b""
    try:
        return await answer.read(limit=MAX_BODY)
    except UpstreamError:
        return b""  # the status is enough


def error_of_answer(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    hidden: Sequence[str] = (),
    *,
    message: str | None = None,
    retry_after: float | None = None,
) -> GatewayError:
    """The typed error for an answer with an error status; `message` and `retry_after` are as in `raise_for_status`."""
    for text in filter(None, hidden):
        body = body.replace(text.encode(), REMOVED.encode())
    complaint = _parse(body)
    if message:
        complaint = msgspec.structs.replace(complaint, message=message)
    complaint = _without(hidden, complaint)
    wait = _wait(retry_after) or wait_asked(headers) or _wait_in_words(complaint.message)
    error = _typed(status, complaint, retry_after=wait)
    if isinstance(error, UpstreamError):
        error.answered, error.asked_wait = status, wait
    error.upstream_request_id = request_id_of(headers)
    return error


def error_of_document(error: Any, hidden: Sequence[str] = (), *, retry_after: float | None = None) -> GatewayError:
    """The typed error for the value of a top-level `error`, an object or a text, in an answer of status 200.

    Of an object, `message`, `code`, `type`, `param` and `status` (of HTTP) are read, so an error in the vendor's own
    shape can be given in these words. `retry_after` is the pause that the vendor asks for, in seconds.
    """
    complaint = _without(hidden, _complaint(error))
    return _typed(complaint.status or _status_of_text(complaint), complaint, retry_after=_wait(retry_after))


def request_id_of(headers: Mapping[str, str]) -> str:
    """The upstream's id of a request, under any vendor's name; "" without one."""
    for name in REQUEST_IDS:
        text = headers.get(name)
        if text is not None and _REQUEST_ID.fullmatch(text):
            return text
    return ""


def clean_error(error: GatewayError, hidden: Sequence[str] = ()) -> None:
    """Clean the texts of an error that a provider raised: its author may have put an address or a key into them."""
    if error.message != error.default_message:
        error.message = clean(error.message, hidden) or error.default_message
        error.args = (error.message,)
    if error.code != error.default_code and not _CODE.fullmatch(hide(error.code or "", hidden)):
        error.code = error.default_code
    if error.param != error.default_param:
        param = error.param or ""
        error.param = _param(param) if redact(hide(param, hidden)) == param else error.default_param
    if error.detail:
        # The `hidden` texts are removed first: a cut could leave the beginning of one.
        error.detail = redact(hide(error.detail, hidden)[:MAX_DETAIL])


def _without(hidden: Sequence[str], complaint: Complaint) -> Complaint:
    """The complaint without the `hidden` texts; in a body they may be escaped, so they are removed here again."""
    message, code = hide(complaint.message, hidden)[:MAX_READ], hide(complaint.code, hidden)
    return Complaint(message, code, complaint.param, complaint.status)


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """Seconds the upstream asks to wait: retry-after-ms, or Retry-After in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            wait = float(text) * scale
        except ValueError:
            wait = _until(text)
        if (asked := _wait(wait)) is not None:
            return asked
    return None


def _wait(seconds: float | None) -> float | None:
    """A pause that an upstream may ask for; None for any other value."""
    return seconds if seconds is not None and 0 < seconds <= MAX_WAIT else None


def _wait_in_words(message: str) -> float | None:
    """The pause in a message such as "Please try again in 1.2s"."""
    found = _WAIT.search(message)
    if found is None:
        return None
    return _wait(float(found[1]) * (0.001 if found[2].casefold().startswith("m") else 1.0))


def _until(date: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _typed(status: int, complaint: Complaint, *, retry_after: float | None) -> GatewayError:
    words = f"{complaint.code} {_QUOTED_NAME.sub('', complaint.message)}"
    # Only its code and type: the upstream's message may quote the prompt, which must not be logged.
    detail = clean(f"upstream status {status}: {complaint.code}").rstrip(": ")
    if status in {400, 403, 413, 422, 500} and (error := _about_the_request(status, complaint, words, detail)):
        return error
    if status == 400:
        words = f"{complaint.code} {_before_quotes(complaint.message)}"
    if status == 402 or (status in {400, 401, 403, 429} and _CREDIT.search(words)):
        return UpstreamOverloaded(
            "The model provider is not available",
            code="service_unavailable",
            retry_after=retry_after or 1.0,
            detail=detail,
        )
    if status == 429 or (status in {400, 413} and is_limit_in_time(words)):
        return UpstreamRateLimited(retry_after=retry_after or 1.0, detail=detail)
    if status in {400, 422}:
        return UpstreamRejected(clean(complaint.message) or None, param=complaint.param, detail=detail)
    if status in {498, 529} or (status >= 500 and _OVERLOAD.search(words)):
        return UpstreamOverloaded(retry_after=retry_after or 1.0, detail=detail)
    kind = _BY_STATUS.get(status, UpstreamError)
    if 300 <= status < 400:
        kind = UpstreamInvalidResponse  # redirects are not followed
    if kind is UpstreamError and status < 500:
        return UpstreamError(detail=detail).began_at("request")
    return kind(detail=detail)


def _before_quotes(message: str) -> str:
    """The message up to the first thing that it quotes; whole if that is the error of a further upstream."""
    quote, nested = _QUOTE.search(message), _NESTED.search(message)
    if quote is None or (nested is not None and nested.start() < quote.start()):
        return _QUOTED_NAME.sub("", message)
    return message[: quote.start()]


def _about_the_request(status: int, complaint: Complaint, words: str, detail: str) -> GatewayError | None:
    """The error about the caller's request, if the upstream names one; else None."""
    if is_too_long(words):
        return ContextLengthExceeded(
            clean(complaint.message) or "The prompt is too long for the model", param="messages", detail=detail
        )
    if status in {400, 403, 422} and _FILTER.search(words):
        return ContentFiltered(param="messages", detail=detail)
    return None


_BY_STATUS: Mapping[int, Callable[..., GatewayError]] = {
    401: UpstreamAuthError,
    403: UpstreamAuthError,
    408: UpstreamTimeout,
    413: RequestTooLarge,
    504: UpstreamTimeout,
    524: UpstreamTimeout,
}

# The order matters if a text matches twice: an overflow is often also called an invalid request.
_STATUS_BY_TEXT: tuple[tuple[Callable[[str], object], int], ...] = (
    (is_too_long, 400),
    (_FILTER.search, 400),
    (_CREDIT.search, 402),
    (_OVERLOAD.search, 529),
    (_RATE.search, 429),
    (is_limit_in_time, 429),
    (_TIME.search, 504),
    (_AUTH.search, 401),
    (_INVALID.search, 400),
)


def _status_of_text(complaint: Complaint) -> int:
    """The HTTP status for an error without one; 500 if its text matches nothing."""
    for text in (complaint.code, _QUOTED_NAME.sub("", complaint.message)):
        for says, status in _STATUS_BY_TEXT:
            if says(text):
                return status
    return 500


def _parse(body: bytes) -> Complaint:
    """The complaint in an error body: JSON of any known shape, or plain text."""
    try:
        document = decode_whole(_any, body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Complaint(message=body[:MAX_READ].decode("utf-8", "replace"))
    if isinstance(document, list) and document:
        document = document[0]  # some gateways wrap the error in an array
    if isinstance(document, dict) and document.get("error"):
        inner = _complaint(document["error"])
        outer = _word(document.get("code"))  # {"code": "…", "error": "text"}
        return msgspec.structs.replace(inner, code=f"{outer} {inner.code}".strip())
    if isinstance(document, dict) and isinstance(document.get("detail"), dict):
        document = document["detail"]  # ElevenLabs
    return _complaint(document)


_MESSAGES = ("message", "detail", "msg", "err_msg", "status_msg", "error_msg", "error", "errors")


def _complaint(value: Any) -> Complaint:
    if not isinstance(value, dict):
        return Complaint(message=_text(value))
    message = next((_text(value[key]) for key in _MESSAGES if value.get(key)), "")
    words = [_word(value.get(key)) for key in ("code", "type", "status", "err_code", "category")]
    inner = value.get("innererror")  # Azure: the result of the content filter
    if isinstance(inner, dict):
        words.append(_word(inner.get("code")))
    details = value.get("details")  # Anthropic: distinguishes a spent budget from a rate limit
    if isinstance(details, dict):
        words.append(_word(details.get("error_code")))
    return Complaint(message, " ".join(word for word in words if word), _param(value.get("param")), _status(value))


def _status(value: dict[str, Any]) -> int:
    for key in ("code", "status", "status_code"):
        number = value.get(key)
        if isinstance(number, str) and number.isascii() and number.isdigit():
            number = int(number[:4])
        if isinstance(number, int) and 400 <= number <= 599:
            return number
    return 0


def _param(value: Any) -> str | None:
    return value if isinstance(value, str) and _PARAM.fullmatch(value) else None


def _word(value: Any) -> str:
    return str(value)[:100] if isinstance(value, str | int) else ""


def _text(value: Any) -> str:
    """The text of a message, which may be a list of validation errors or an object with one."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return next((_text(value[key]) for key in ("message", "msg", "detail") if value.get(key)), "")
    if isinstance(value, list):
        return "; ".join(filter(None, (_text(item) for item in value[:5])))
    return ""
