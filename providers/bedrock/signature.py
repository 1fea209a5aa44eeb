"""AWS Signature Version 4: the headers that prove a request was written by whoever holds the secret key.

`Signer("eu-west-1").headers(credentials, url, body_hash=hash_of(body), at=time.time())` returns the headers of one POST
of JSON. The path is encoded once more for signing than it is on the wire, which is AWS's rule for all services but S3.
Sharp edge: what is signed must be what is sent, so `url` is the very text that goes to `Upstream.send`.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import quote, urlsplit

from msgspec import Struct

SERVICE = "bedrock"
ALGORITHM = "AWS4-HMAC-SHA256"
PORTS = {"http": 80, "https": 443}


class Credentials(Struct, frozen=True, kw_only=True):
    """What AWS knows a caller by; the token is there only for keys that expire."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that must not be seen in an error or a log."""
        return tuple(filter(None, (self.access_key_id, self.secret_access_key, self.session_token)))

    def __repr__(self) -> str:
        return "Credentials(***)"

    __str__ = __repr__


class Signer:
    """Signs for one region; remembers the key derived from a secret, which holds for a day."""

    def __init__(self, region: str, *, service: str = SERVICE) -> None:
        self._region = region
        self._service = service
        self._derived: tuple[str, str, bytes] = ("", "", b"")  # day, secret, key

    def headers(self, credentials: Credentials, url: str, *, body_hash: str, at: float) -> dict[str, str]:
        """The headers to send with a POST of JSON to `url` at Unix time `at`, signature included."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
        address = urlsplit(url)
        headers = {
            "content-type": "application/json",
            "host": _host(address.scheme, address.netloc),
            "x-amz-date": moment,
        }
        if credentials.session_token:
            headers["x-amz-security-token"] = credentials.session_token
        names = sorted(headers)
        listed = ";".join(names)
        canonical = "\n".join(
            (
                "POST",
                quote(address.path or "/", safe="/~"),
                "",  # no query
                *(f"{name}:{headers[name]}" for name in names),
                "",
                listed,
                body_hash,
            )
        )
        scope = f"{moment[:8]}/{self._region}/{self._service}/aws4_request"
        wanted = f"{ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = self._key(credentials.secret_access_key, moment[:8])
        signature = hmac.digest(key, wanted.encode(), "sha256").hex()
        headers["authorization"] = (
            f"{ALGORITHM} Credential={credentials.access_key_id}/{scope}, SignedHeaders={listed}, Signature={signature}"
        )
        return headers

    def _key(self, secret: str, day: str) -> bytes:
        if self._derived[:2] != (day, secret):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (day, secret, key)
        return self._derived[2]

    def __repr__(self) -> str:
        return f"Signer({self._region!r})"


def hash_of(body: bytes) -> str:
    """The body's part in a signature."""
    return hashlib.sha256(body).hexdigest()


def _host(scheme: str, netloc: str) -> str:
    """The Host header as the transport writes it: without a port that goes without saying."""
    return netloc.lower().removesuffix(f":{PORTS.get(scheme, '')}")
