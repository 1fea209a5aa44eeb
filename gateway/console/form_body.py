"""The form in the body of a request for a page. A form that anybody may send has a few fields, so it is small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from tornado.httputil import HTTPServerRequest

from gateway.errors import InvalidValue, UnsupportedContentType
from gateway.web.request_body import RequestBody

MAX_FORM: Final = 2**18  # bytes
MAX_PUBLIC_FORM: Final = 12_288  # bytes; three times the longest password takes up to 9,216
PUBLIC_FORM_WITHIN: Final = 10.0  # seconds
MAX_FIELDS: Final = 2000
FORM: Final = "application/x-www-form-urlencoded"


def admit_form(body: RequestBody, *, is_public: bool) -> None:
    """Allow the form of an admitted request, smaller and in less time if anybody may send it; RequestTooLarge."""
    if is_public:
        body.admit(MAX_PUBLIC_FORM, within=PUBLIC_FORM_WITHIN)
    else:
        body.admit(MAX_FORM)


def read_form(request: HTTPServerRequest, body: RequestBody) -> Mapping[str, list[str]]:
    """The fields; UnsupportedContentType, InvalidValue."""
    kind = request.headers.get("Content-Type", FORM).partition(";")[0].strip().lower()
    if kind != FORM:
        raise UnsupportedContentType("Send the form as application/x-www-form-urlencoded")
    try:
        return parse_qs(body.content.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:  # UnicodeDecodeError is one
        raise InvalidValue("The form cannot be read") from None
