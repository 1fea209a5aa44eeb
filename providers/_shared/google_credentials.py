"""What proves to Google who asks: a fixed key, or on Vertex a token that google-auth fetches and renews.

`await credentials.headers()` gives the headers of a request. google-auth blocks, so it works in a thread: renewal
begins `EARLY` seconds before a token runs out, one renewal at a time, and requests go on with the old token meanwhile.
Sharp edge: a request waits only if there is no token that is still good, and a failed renewal is then its failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any

import msgspec

from gateway import Secret
from gateway.errors import UpstreamAuthError, UpstreamTimeout

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
EARLY = 300.0  # seconds before its end at which a token is renewed
LATE = 20.0  # seconds before its end from which it is not used any more
AGAIN = 10.0  # seconds between attempts while an old token still serves
PATIENCE = 15.0  # seconds that a request waits for a token


class FixedHeaders:
    """A key in a header, or no credential, for a server that wants none; `hidden` are the secrets."""

    def __init__(self, headers: dict[str, str], *, hidden: tuple[str, ...] = ()) -> None:
        self._headers = headers
        self.hidden = hidden

    async def headers(self) -> dict[str, str]:
        """The same each time."""
        return self._headers


class Token(msgspec.Struct, frozen=True):
    """An OAuth token and when it runs out, in seconds since 1970."""

    text: str
    ends: float

    def __repr__(self) -> str:
        return "Token(***)"


class VertexToken:
    """A token of Google Cloud's that is renewed before it runs out; `fetch` blocks, and is called in a thread."""

    def __init__(self, fetch: Callable[[], Token], common: Mapping[str, str]) -> None:
        self._fetch = fetch
        self._common = common
        self._token = Token("", 0.0)
        self._headers: dict[str, str] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._next_try = 0.0
        self.hidden: tuple[str, ...] = ()

    async def headers(self) -> dict[str, str]:
        """Headers with a token that is good; UpstreamAuthError when Google gives none."""
        left = self._token.ends - time.time()
        if left < EARLY and (left < LATE or time.time() >= self._next_try):
            renewal = self._renew()
            if left < LATE:
                await _wait_for(renewal)
        return self._headers

    async def close(self) -> None:
        """Stop waiting for a renewal; its thread ends by itself."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _renew(self) -> asyncio.Task[None]:
        if self._renewal is None or self._renewal.done():
            self._next_try = time.time() + AGAIN
            self._renewal = asyncio.get_running_loop().create_task(self._fetch_token())
            self._renewal.add_done_callback(_look_at)
        return self._renewal

    async def _fetch_token(self) -> None:
        token = await asyncio.to_thread(self._fetch)
        # The old one stays hidden too: an error of a call that still uses it may quote it.
        self.hidden = tuple(text for text in (token.text, self._token.text) if text)
        self._token = token
        self._headers = {**self._common, "Authorization": f"Bearer {token.text}"}


async def _wait_for(renewal: asyncio.Task[None]) -> None:
    """Wait for a renewal that others may be waiting for as well, so that leaving does not end it."""
    done, _ = await asyncio.wait([renewal], timeout=PATIENCE)
    if not done:
        raise UpstreamTimeout(detail="no token in time").began_at("connection")
    if renewal.cancelled() or renewal.exception() is not None:
        error = None if renewal.cancelled() else renewal.exception()
        raise UpstreamAuthError(detail=f"no token: {type(error).__name__}").began_at("connection")


def _look_at(renewal: asyncio.Task[None]) -> None:
    """Take note of a failure nobody waited for: the next request tries again."""
    if not renewal.cancelled():
        renewal.exception()


async def vertex_token(key_file: Secret | None, common: Mapping[str, str]) -> VertexToken:
    """The token of `google_token_source`, which is called in a thread; `common` are the other headers."""
    return VertexToken(await asyncio.to_thread(google_token_source, key_file), common)


def google_token_source(key_file: Secret | None) -> Callable[[], Token]:
    """What fetches tokens: for a service account's key, or for the environment's default credentials. Blocks.

    Raises ValueError when the extra is not installed or the credentials cannot be used; never with their text.
    """
    try:
        import google.auth  # here, not at the top: an extra
        from google.auth.transport.requests import Request
        from google.oauth2 import service_account
    except ImportError:
        raise ValueError("Vertex needs google-auth: pip install 'model-gateway[vertex]'") from None
    credentials: Any
    service_accounts: Any = service_account  # untyped
    try:
        if key_file is None:
            credentials, _ = google.auth.default(scopes=[SCOPE])
        else:
            info = msgspec.json.decode(key_file.reveal())
            credentials = service_accounts.Credentials.from_service_account_info(info, scopes=[SCOPE])
    except (
        google.auth.exceptions.GoogleAuthError,
        msgspec.MsgspecError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        # Their messages may quote the key file.
        raise ValueError(f"the credentials for Vertex cannot be used: {type(error).__name__}") from None

    def fetch() -> Token:
        credentials.refresh(Request())
        return Token(credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp())

    return fetch
