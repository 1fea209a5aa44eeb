"""Keys for foreign credentials: an `authenticate` hook says whose one is, and the gateway finds or creates the key.

Each subject that a hook names has a key record of its own, which nobody has the text of. So limits, scopes, revocation,
ledger lines and reports hold for it as for any key: a revoked one stays revoked, whatever the hook says. An answer of a
hook is kept for `CACHED_FOR` seconds, at most as long as the credential is valid. A refused credential is refused again
without a hook for `REFUSED_FOR` seconds, and an address with many of them has to wait. Only digests of credentials are
kept, and none is logged. Sharp edge: a hook that fails lets nobody in, also with `on_failure = "open"`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from gateway.accounts.accounts import NAME
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.key_headers import key_headers
from gateway.accounts.key_settings import CLEARABLE, MAX_NAME, KeyLimits
from gateway.accounts.keys import Keys
from gateway.errors import (
    GatewayError,
    InvalidApiKey,
    InvalidValue,
    NotFound,
    Overloaded,
    RequestRateLimited,
    Unavailable,
)
from gateway.hooks.call_hooks import CallHooks
from gateway.hooks.runner import PASSED, HookFailed
from gateway.ledger.api_key import ApiKey
from gateway.log import gateway_log
from gateway.plugins.hook import Identity

MOST_BYTES: Final = 8192  # of a credential
CACHED_FOR: Final = 60.0  # seconds
REFUSED_FOR: Final = 10.0
KNOWN: Final = 20_000  # credentials, and addresses, that a worker remembers
REFUSALS: Final = 30  # of one address in `WINDOW` seconds
WINDOW: Final = 60.0
NEW_KEYS: Final = 600  # of one worker in `WINDOW` seconds

_BEARER = re.compile(r"bearer +(\S+)", re.ASCII | re.IGNORECASE)
_CREDENTIAL = re.compile(r"[\x21-\x7e]+", re.ASCII)
_OWN = re.compile(r"(sk-|gw[a-z]_)", re.IGNORECASE)  # keys and tokens of the gateway itself
_SUBJECT = re.compile(r"[\x20-\x7e]{1,512}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)

V = TypeVar("V")


class _Known(Struct, frozen=True):
    """Whose credential it is; without a key, nobody's."""

    key: ApiKey | None
    until: float  # monotonic seconds


class ForeignKeys:
    """Finds the keys of foreign credentials, in one worker."""

    def __init__(self, hooks: CallHooks, auth: Authenticator, keys: Keys) -> None:
        self._hooks, self._auth, self._keys = hooks, auth, keys
        self._salt = secrets.token_bytes(32)
        self._known: dict[bytes, _Known] = {}
        self._asking: dict[bytes, asyncio.Task[_Known]] = {}
        self._refusals: dict[str, tuple[float, int]] = {}  # by address: the begin of its window, and their number
        self._new_keys = (0.0, 0)

    async def identify(
        self, names: tuple[str, ...], headers: Mapping[str, str], path: str, address: Callable[[], str]
    ) -> ApiKey:
        """The key for the credential in these headers, by the hooks of these names.

        InvalidApiKey for a credential that no hook knows, RequestRateLimited for an address that has sent many, and
        Unavailable if a hook fails.
        """
        credential = _credential(headers, path)
        digest, now = hashlib.blake2b(credential.encode(), key=self._salt).digest(), time.monotonic()
        known = self._known.get(digest)
        if known is None or known.until <= now:
            self._check_share(address(), now)
            asking = self._asking.get(digest)
            if asking is None:
                asking = self._asking[digest] = asyncio.ensure_future(self._ask(names, credential, digest))
                asking.add_done_callback(lambda task: self._asked(digest, task))
            known = await asyncio.shield(asking)
            if known.key is None:
                self._note_refusal(address(), now)
        if known.key is None:
            raise InvalidApiKey
        return known.key

    def _asked(self, digest: bytes, task: asyncio.Task[_Known]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled() and task.exception() is None:
            _put(self._known, digest, task.result())

    async def _ask(self, names: tuple[str, ...], credential: str, digest: bytes) -> _Known:
        """Ask one hook after the other."""
        failed: HookFailed | None = None
        for runner in self._hooks.of("authenticate", names):
            try:
                identity, _ = await runner.run(
                    "authenticate",
                    methodcaller("authenticate", credential),
                    _accepted,
                    account="",
                    digest=int.from_bytes(digest[:8], "big"),
                )
            except HookFailed as failure:
                failed = failure
                continue
            except GatewayError:
                continue  # it refuses the credential
            if identity is not None:
                key = await self._key(runner.name, identity)
                return _Known(key, time.monotonic() + (_valid_for(identity) if key is not None else REFUSED_FOR))
        if failed is not None:
            raise Unavailable("This credential could not be checked; try again in a moment", detail=str(failed))
        return _Known(None, time.monotonic() + REFUSED_FOR)

    async def _key(self, hook: str, identity: Identity) -> ApiKey | None:
        """The key of a subject, made if need be; None if its account does not exist."""
        # It is no possible credential, so no caller can present it as a key.
        text = f"subject {hook} {identity.account} {identity.subject}"
        fingerprint = self._auth.fingerprint_of_subject(text)
        try:
            return await self._auth.identify(fingerprint)
        except InvalidApiKey:
            self._count_new_key()
        name = (identity.name or f"{hook}: {identity.subject}")[:MAX_NAME]
        try:
            await self._keys.create(
                identity.account, name=name, user=identity.user, text=text, **cast("KeyLimits", dict(identity.limits))
            )
        except NotFound:
            gateway_log.warning("hook %s names an account that does not exist", hook)
            return None
        except InvalidValue as error:  # a limit that is not possible; or another worker has just made the key
            if await self._keys.owner_of(text) is None:
                gateway_log.warning("hook %s: no key can be made: %s", hook, error.message)
                return None
        return await self._auth.identify(fingerprint)

    def _count_new_key(self) -> None:
        now, (began, number) = time.monotonic(), self._new_keys
        if now - began > WINDOW:
            began, number = now, 0
        if number >= NEW_KEYS:
            raise Overloaded("Too many new subjects at once; try again in a moment")
        self._new_keys = began, number + 1

    def _check_share(self, address: str, now: float) -> None:
        began, number = self._refusals.get(address, (now, 0))
        if number >= REFUSALS and now - began < WINDOW:
            raise RequestRateLimited("Too many invalid credentials from this address", retry_after=began + WINDOW - now)

    def _note_refusal(self, address: str, now: float) -> None:
        began, number = self._refusals.get(address, (now, 0))
        if now - began >= WINDOW:
            began, number = now, 0
        _put(self._refusals, address, (began, number + 1))


def _credential(headers: Mapping[str, str], path: str) -> str:
    """The credential in a request's headers; InvalidApiKey if it has none, or one that no hook may see."""
    authorization, api_key = key_headers(headers, path)
    if authorization is not None:
        found = _BEARER.fullmatch(authorization.strip(" \t"))
        text = found[1] if found is not None else ""
    else:
        text = (api_key or "").strip(" \t")
    if len(text) > MOST_BYTES or _CREDENTIAL.fullmatch(text) is None or _OWN.match(text):
        raise InvalidApiKey
    return text


def _accepted(found: Any) -> tuple[Identity | None, str]:
    """What a hook returned; ValueError if it is neither an identity nor None."""
    if found is None:
        return None, PASSED
    if not isinstance(found, Identity):
        raise ValueError(f"an identity is an Identity, not a {type(found).__name__}")
    texts = ((found.account, NAME), (found.subject, _SUBJECT), (found.user, _USER))
    if not all(isinstance(text, str) and form.fullmatch(text) for text, form in texts):
        raise ValueError("its account, subject or user cannot be one")
    if not isinstance(found.name, str) or not found.name.isprintable():
        raise ValueError("its name cannot be shown")
    if found.expires is not None and not isinstance(found.expires, (int, float)):
        raise ValueError("its end is no time")
    if not isinstance(found.limits, Mapping) or not set(found.limits) <= set(CLEARABLE):
        raise ValueError("its limits are not those of a key")
    if found.expires is not None and not found.expires > time.time():
        return None, PASSED  # the credential is no longer valid
    return found, PASSED


def _valid_for(identity: Identity) -> float:
    """Seconds for which an identity is kept."""
    return CACHED_FOR if identity.expires is None else max(0.0, min(CACHED_FOR, identity.expires - time.time()))


def _put(table: dict[Any, V], name: Any, value: V) -> None:
    table.pop(name, None)
    if len(table) >= KNOWN:
        del table[next(iter(table))]
    table[name] = value
