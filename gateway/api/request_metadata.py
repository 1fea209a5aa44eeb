"""The metadata in a request's head: credential, content type, ids. It is cached with an equal head.

An SDK sends the same head with each request, except for the length of the body. So the headers that are used here
are looked up, checked and hashed once per connection. Sharp edge: `fingerprint` identifies a key and does not prove
that it is valid. Nothing here may depend on Content-Length, nor on anything outside the head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from gateway.accounts.authenticator import Authenticator, bearer, has_space
from gateway.accounts.key_headers import key_headers
from gateway.http_client.forwarded_headers import ForwardedHeaders, forwarded_headers
from gateway.http_server.reply import JSON
from gateway.inference.sessions import HEADERS as SESSION_HEADERS
from gateway.inference.tags import HEADER
from gateway.log import redact

ORGANIZATION, PROJECT = "OpenAI-Organization".title(), "OpenAI-Project".title()  # in the spelling of the parser
TAGS = HEADER.title()
_CLIENT_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,512}")
_SHORT_TEXT = re.compile(r"[\x20-\x7e]{1,64}")


class RequestMetadata(Struct, frozen=True):
    """The metadata of one head; a text is empty if its header is absent or invalid."""

    fingerprint: str | None  # HMAC of the credential; None if the head has no possible credential
    key_has_space: bool  # it has one with white space around it
    forwarded_headers: ForwardedHeaders
    client_request_id: str
    idempotency_key: str | None
    sends_json: bool  # also True without a Content-Type
    coding: str  # content coding of the body: "identity", "gzip", or an unsupported one
    organization: str  # unverified, like the next two fields: only for the access log
    project: str
    sdk: str  # language, version and retry count: `python 3.52.0 retry 1`
    tags: str | None  # `x-gateway-tags` as sent
    session: str  # of the first header that names one, as sent

    @classmethod
    def of(cls, headers: Mapping[str, str], auth: Authenticator, target: str = "") -> RequestMetadata:
        """The metadata of `headers`; `target` is the path with its query."""
        get = headers.get
        authorization, api_key = key_headers(headers, target)
        media, client_id = get("Content-Type"), get("X-Client-Request-Id")
        fingerprint = auth.fingerprint(bearer(authorization, api_key))
        return cls(
            fingerprint,
            fingerprint is None and has_space(authorization, api_key),
            forwarded_headers(headers),
            client_id if client_id is not None and _CLIENT_REQUEST_ID.fullmatch(client_id) else "",
            get("Idempotency-Key"),
            media is None or media.partition(";")[0].strip().lower() == JSON,
            get("Content-Encoding", "identity").strip().lower(),
            _short_header(headers, ORGANIZATION),
            _short_header(headers, PROJECT),
            _sdk(headers),
            get(TAGS),
            next((value for name in SESSION_HEADERS if (value := get(name))), ""),
        )


def _short_header(headers: Mapping[str, str], name: str) -> str:
    """A header of at most 64 printable characters; empty if it is absent or invalid."""
    value = headers.get(name)
    return "" if value is None or not _SHORT_TEXT.fullmatch(value) else redact(value)


def _sdk(headers: Mapping[str, str]) -> str:
    language = _short_header(headers, "X-Stainless-Lang")
    if not language:
        return ""
    retry = _short_header(headers, "X-Stainless-Retry-Count")
    version = _short_header(headers, "X-Stainless-Package-Version")
    return f"{language} {version}" + (f" retry {retry}" if retry not in ("", "0") else "")
