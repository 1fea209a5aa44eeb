"""What a request's head says of the one who sends it, read once: a head that comes again brings its reading along.

An SDK sends one head with each of its requests, the length of the body apart, so the fourteen headers that matter here
are looked up, checked and hashed once per connection. Sharp edge: `fingerprint` says which key this would be, and never
that the key still holds; nothing here may rest on Content-Length, nor on anything but the head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from gateway.accounts.authenticator import Authenticator, bearer
from gateway.http_client.forwarded_headers import ForwardedHeaders, forwarded_headers
from gateway.http_server.reply import JSON
from gateway.log import redact

ORGANIZATION, PROJECT = "OpenAI-Organization".title(), "OpenAI-Project".title()  # as the parser spells names
_CLIENT_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,512}")
_TOLD = re.compile(r"[\x20-\x7e]{1,64}")


class RequestMetadata(Struct, frozen=True):
    """A head, read; texts are empty where it says nothing, or nothing sound."""

    fingerprint: str | None  # of the credential; None where none was sent that could be one
    forwarded_headers: ForwardedHeaders
    client_request_id: str
    idempotency_key: str | None
    sends_json: bool  # or does not say what it sends
    coding: str  # of the body: "identity", "gzip", or what nobody here reads
    organization: str  # what the caller says of itself, as are the next two: for the access log alone
    project: str
    sdk: str  # and which attempt of its own this is: `python 3.52.0 retry 1`

    @classmethod
    def of(cls, headers: Mapping[str, str], auth: Authenticator) -> RequestMetadata:
        """Read a head."""
        get = headers.get
        authorization, media = get("Authorization"), get("Content-Type")
        client_id = get("X-Client-Request-Id")
        return cls(
            auth.fingerprint(bearer(authorization, get("Api-Key") if authorization is None else None)),
            forwarded_headers(headers),
            client_id if client_id is not None and _CLIENT_REQUEST_ID.fullmatch(client_id) else "",
            get("Idempotency-Key"),
            media is None or media.partition(";")[0].strip().lower() == JSON,
            get("Content-Encoding", "identity").strip().lower(),
            _told(headers, ORGANIZATION),
            _told(headers, PROJECT),
            _sdk(headers),
        )


def _told(headers: Mapping[str, str], name: str) -> str:
    """A short header that the caller sent about itself; empty when it is absent or odd."""
    value = headers.get(name)
    return "" if value is None or not _TOLD.fullmatch(value) else redact(value)


def _sdk(headers: Mapping[str, str]) -> str:
    language = _told(headers, "X-Stainless-Lang")
    if not language:
        return ""
    retry = _told(headers, "X-Stainless-Retry-Count")
    version = _told(headers, "X-Stainless-Package-Version")
    return f"{language} {version}" + (f" retry {retry}" if retry not in ("", "0") else "")
