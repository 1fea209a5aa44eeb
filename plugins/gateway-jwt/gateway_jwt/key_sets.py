"""The public keys of an issuer: found by its metadata, kept, and asked for again, all within bounds.

Keys are kept for `FRESH` seconds. A token with an unknown key id makes the set be read again, at most once in
`AGAIN_AFTER` seconds, so that no caller can make the gateway ask the issuer often. While the issuer is away, the old
keys are used for `KEPT` seconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from gateway import Timeouts, raise_for_status
from gateway.errors import GatewayError, UpstreamInvalidResponse

if TYPE_CHECKING:
    from gateway import Upstream

FRESH: Final = 600.0  # seconds
KEPT: Final = 86_400.0
AGAIN_AFTER: Final = 30.0
MOST_BYTES: Final = 262_144
MOST_KEYS: Final = 100
_TIMEOUTS: Final = Timeouts(connect=3.0, first_byte=5.0, idle=3.0, total=8.0)
_KINDS: Final = frozenset({"RSA", "EC", "OKP"})


class Metadata(Struct):
    """What is read of the metadata of an issuer."""

    issuer: str
    jwks_uri: str


class Jwks(Struct):
    """A set of keys."""

    keys: list[dict[str, Any]]


class KeySets:
    """The keys of one issuer."""

    def __init__(self, upstream: Upstream, *, issuer: str, jwks_url: str) -> None:
        self._upstream, self._issuer, self._jwks_url = upstream, issuer, jwks_url
        self._keys: dict[str, Any] = {}  # by key id; "" for one without
        self._read_at = self._asked_at = -KEPT
        self._reading = asyncio.Lock()

    async def key(self, key_id: str) -> KeySet | None:
        """The set with the key of this id alone; None if the issuer has no such key.

        An Upstream error if the issuer gives no keys, and none are kept. Without an id, the issuer must have one key.
        """
        now = time.monotonic()
        if self._is_due(key_id, now):
            async with self._reading:
                if self._is_due(key_id, now := time.monotonic()):
                    await self._read(now)
        return self._found(key_id)

    def _found(self, key_id: str) -> KeySet | None:
        if not key_id:
            return KeySet(list(self._keys.values())) if len(self._keys) == 1 else None
        key = self._keys.get(key_id)
        return None if key is None else KeySet([key])

    def _is_due(self, key_id: str, now: float) -> bool:
        if now - self._asked_at < AGAIN_AFTER:
            return False
        return now - self._read_at > FRESH or self._found(key_id) is None

    async def _read(self, now: float) -> None:
        """Read the keys; keeps the old ones if that fails and they are not too old."""
        self._asked_at = now
        try:
            if not self._jwks_url:
                await self._find()
            found = await self._document(self._jwks_url, Jwks)
        except GatewayError:
            if now - self._read_at > KEPT:
                self._keys = {}
                self._asked_at = -KEPT  # the next credential asks again: nothing can be checked meanwhile
                raise
            return
        self._keys, self._read_at = _keys(found), now

    async def _find(self) -> None:
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = await self._document(url, Metadata)
        if metadata.issuer != self._issuer:
            raise UpstreamInvalidResponse(detail="the metadata is of another issuer")
        check_url(metadata.jwks_uri)
        self._jwks_url = metadata.jwks_uri

    async def _document(self, url: str, kind: type[Any]) -> Any:
        answer = await self._upstream.send("GET", url, headers={"Accept": "application/json"}, timeouts=_TIMEOUTS)
        async with answer:
            await raise_for_status(answer)
            body = await answer.read(limit=MOST_BYTES)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UpstreamInvalidResponse(detail="the issuer sent no valid document") from None


def check_url(url: str) -> None:
    """UpstreamInvalidResponse for an address without encryption that leaves this machine."""
    local = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")
    if not url.startswith(("https://", *local)):
        raise UpstreamInvalidResponse(detail="the address of the issuer's keys is not https")


def _keys(found: Jwks) -> dict[str, Any]:
    """The keys that may sign; symmetric ones, and those that cannot be read, are left out."""
    keys: dict[str, Any] = {}
    for entry in found.keys[:MOST_KEYS]:
        if entry.get("kty") not in _KINDS or entry.get("use", "sig") != "sig":
            continue
        try:
            [key] = KeySet.import_key_set({"keys": [entry]}).keys
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        keys[str(entry.get("kid") or "")] = key
    return keys
