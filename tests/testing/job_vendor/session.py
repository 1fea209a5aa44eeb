"""The vendor's sign-in: a token in return for the key, kept until shortly before it expires."""

from __future__ import annotations

import asyncio
import time

import msgspec
from msgspec import Struct

from gateway import Timeouts, Upstream, raise_for_status
from gateway.errors import RequestTooLarge, UpstreamAuthError, UpstreamRejected

from .dialect import JSON, read_document

RENEWED_AFTER = 0.8  # of the time that a token is valid


class Granted(Struct):
    """The vendor's answer to a sign-in."""

    token: str
    expires_in: float  # seconds


class Session:
    """One token for all calls of a provider."""

    def __init__(self, upstream: Upstream, url: str, key: str) -> None:
        self._upstream, self._url, self._key = upstream, url, key
        self._token = ""
        self._renewal = 0.0  # time.monotonic() from which the token is renewed
        self._lock = asyncio.Lock()

    async def token(self, timeouts: Timeouts) -> str:
        """A token that is valid now. Calls that come during a sign-in wait for it instead of signing in, too."""
        async with self._lock:
            if time.monotonic() >= self._renewal:
                await self._sign_in(timeouts)
            return self._token

    def forget(self, token: str) -> None:
        """The vendor refused this token before its time; a newer one stays."""
        if token == self._token:
            self._renewal = 0.0

    async def _sign_in(self, timeouts: Timeouts) -> None:
        body = msgspec.json.encode({"key": self._key})
        sent = time.monotonic()
        async with await self._upstream.send(
            "POST", f"{self._url}/sign-in", headers=JSON, body=body, timeouts=timeouts
        ) as answer:
            try:
                await raise_for_status(answer, hidden=[self._key])
            except (UpstreamRejected, RequestTooLarge) as error:
                # A 400 here is about the operator's key, and not about the caller's request.
                raise UpstreamAuthError(detail=f"the sign-in was refused: {error.detail}") from None
            granted = read_document(await answer.read(), Granted)
        self._token, self._renewal = granted.token, sent + RENEWED_AFTER * granted.expires_in
