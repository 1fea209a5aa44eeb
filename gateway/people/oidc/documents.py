"""What an identity provider publishes: its metadata and its keys, kept for an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.config.oidc_settings import issuer_problem
from gateway.errors import IdentityProviderUnavailable
from gateway.log import gateway_log

T = TypeVar("T")

FRESH = 3600.0  # seconds
USABLE = 86_400.0  # seconds that an old document is used while there is no new one
PAUSE = 5.0  # seconds after a failure
WELL_KNOWN = "/.well-known/openid-configuration"


class Metadata(Struct, frozen=True):
    """The discovery document, as far as it is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    id_token_signing_alg_values_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None


class JsonWebKeys(Struct, frozen=True):
    """A set of public keys."""

    keys: list[dict[str, Any]]


class FetchedDocument(Generic[T]):
    """A document that is fetched when it is needed and older than an hour; one request at a time."""

    def __init__(self, name: str, fetch: Callable[[], Awaitable[T]]) -> None:
        self._name = name  # for the log
        self._fetch = fetch
        self._value: T | None = None
        self._at = 0.0
        self._failure: IdentityProviderUnavailable | None = None
        self._failed_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self, *, younger_than: float = FRESH, pause: float | None = None) -> T:
        """The document; IdentityProviderUnavailable if it cannot be fetched, and none of the last day is there.

        For `pause` seconds after a failure, by default 5, it is not fetched again.
        """
        async with self._lock:
            now = monotonic()
            if self._value is not None and now - self._at < younger_than:
                return self._value
            if self._failure is None or now - self._failed_at >= (PAUSE if pause is None else pause):
                await self._renew()
            if self._value is not None and (self._failure is None or now - self._at < USABLE):
                return self._value
            raise IdentityProviderUnavailable(detail=self._failure.detail if self._failure else None)

    async def _renew(self) -> None:
        try:
            self._value = await self._fetch()
        except IdentityProviderUnavailable as error:
            self._failure, self._failed_at = error.with_traceback(None), monotonic()
            gateway_log.warning("%s could not be fetched: %s", self._name, error.detail)
        else:
            self._failure, self._at = None, monotonic()


def checked_metadata(metadata: Metadata, issuer: str) -> Metadata:
    """The metadata if they are of this issuer and lead to places like it; IdentityProviderUnavailable."""
    if metadata.issuer != issuer:
        raise IdentityProviderUnavailable(detail=f"the metadata are of another issuer: {metadata.issuer[:200]!r}")
    secure = urlsplit(issuer).scheme == "https"
    named = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri, metadata.userinfo_endpoint)
    for url in named:
        if url and (issuer_problem(url.partition("?")[0]) or (secure and not url.startswith("https://"))):
            raise IdentityProviderUnavailable(detail="the metadata have an endpoint that is not https")
    return metadata
