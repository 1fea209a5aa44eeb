"""Requests to an identity provider: small JSON documents in bounded time, a few at once. No redirect is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from gateway.errors import GatewayError, IdentityProviderUnavailable
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from gateway.web.fair_turns import FairTurns

T = TypeVar("T")

TIMEOUTS = Timeouts(connect=5.0, first_byte=10.0, idle=10.0, total=15.0)  # seconds
MAX_BYTES = 2**18
AT_ONCE = 8
SHARE = 4  # of them for one network of clients
CROWDED = "Too many sign-ins of your network are under way; try again in a moment"
FORM = "application/x-www-form-urlencoded"


class Fetch:
    """The requests to one identity provider. The client is that of all of them, which closes it.

    Each has its own turns, so that a slow provider does not hold up the others. Networks of clients share them; "" is
    the gateway, which fetches the provider's documents.
    """

    def __init__(self, client: Upstream) -> None:
        self._client = client
        self._turns = FairTurns(AT_ONCE, share=SHARE, refusal=CROWDED)

    async def get(self, url: str, kind: type[T], *, headers: Mapping[str, str] | None = None, network: str = "") -> T:
        """The document at a URL; IdentityProviderUnavailable if there is none, TooManyRequests."""
        sent = {"Accept": "application/json", **(headers or {})}
        status, body = await self._in_turn(network, "GET", url, sent, None)
        if status != 200:
            raise IdentityProviderUnavailable(detail=f"status {status}")
        return decoded(body, kind)

    async def post(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str], network: str
    ) -> tuple[int, bytes]:
        """The status and the body of the answer to a form; IdentityProviderUnavailable, TooManyRequests."""
        sent = {"Accept": "application/json", "Content-Type": FORM, **headers}
        return await self._in_turn(network, "POST", url, sent, urlencode(form).encode())

    async def _in_turn(
        self, network: str, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(TIMEOUTS.total), self._turns.turn_of(network):
                return await self._send(method, url, headers, body)
        except TimeoutError:
            raise IdentityProviderUnavailable(detail=f"no answer within {TIMEOUTS.total:.0f} s") from None

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, bytes]:
        try:
            sent = self._client.send(method, url, headers=headers, body=body, timeouts=TIMEOUTS)
            async with await sent as answer:
                return answer.status, await answer.read(limit=MAX_BYTES)
        except GatewayError as error:
            # The client's messages speak of model providers.
            name = type(error).__name__.removeprefix("Upstream")
            raise IdentityProviderUnavailable(detail=f"{name}: {error.detail or ''}") from None


def decoded(body: bytes, kind: type[T]) -> T:
    """The document in an answer; IdentityProviderUnavailable for anything else. Its text is not in the error."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise IdentityProviderUnavailable(detail="an answer is not the expected JSON") from None
