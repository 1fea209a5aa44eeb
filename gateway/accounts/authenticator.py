"""Authentication: from a credential to an ApiKey, and the current permissions of that key.

A credential is only used as input of an HMAC. Redis stores the HMAC and does not know the pepper. A worker caches the
immutable mapping HMAC → (account, key id). The validity of a key is never cached: `confirm`, and the ledger's `admit`,
read Redis each time, so a revocation applies to the next request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from msgspec import Struct

from gateway.accounts.pepper import derive
from gateway.errors import InsufficientPermissions, InvalidApiKey
from gateway.ledger.admission import key_is_gone
from gateway.ledger.api_key import ApiKey
from gateway.ledger.paging import PAGE
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot
from gateway.store.verification import verify

CREDENTIAL = re.compile(r"sk-[\x21-\x7e]{1,509}", re.ASCII)
#: White space of ASCII, and that of Unicode as UTF-8 in headers, which are read byte by byte.
_SPACE = r"(?:[\s\x85\xa0]|\xc2[\x85\xa0]|\xe2\x80[\x80-\x8f\xa8-\xaf]|\xe3\x80\x80|\xef\xbb\xbf)*"
SPACED = re.compile(rf"{_SPACE}({CREDENTIAL.pattern}){_SPACE}")
BEARER = re.compile(r"bearer +(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
CACHE_SIZE = 100_000  # some 25 MB when full

OK, KEY, ACCOUNT, GONE = 0, 1, 2, 3  # codes of confirm.lua
# Suffixes of the key's id that never change, so workers may cache them.
SHOWS_COST = "cost"
USER = "user="  # then the id of the user who has the key


class KeyView(Struct, frozen=True):
    """The permissions of a key at one moment, for the models that `confirm` was asked about."""

    key: ApiKey
    group: str
    rules: dict[str, str]  # the account's own rule of each of these models: + or -, empty for none
    models: frozenset[str] | None  # the key's own restriction
    scopes: str = ""  # see `key_scopes`

    def permits(self, model: str, groups: frozenset[str]) -> bool:
        """Whether the key may use `model`, which `groups` may use; the rule of admit.lua.

        KeyError for a model that `confirm` was not asked about.
        """
        rule = self.rules[model]
        if self.models is not None and model not in self.models:
            return False
        return rule == "+" or (rule != "-" and self.group in groups)


class Fingerprint:
    """Turns a credential into the name of its record: its HMAC-SHA256, which is useless without the pepper.

    It takes 0.65 µs, because the two keyed halves of the HMAC are made once and copied; `hmac.digest` took 2.0.
    """

    def __init__(self, pepper: bytes) -> None:
        block = derive(pepper, "api-key").ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def __call__(self, credential: str) -> str:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(credential.encode())
        outer.update(inner.digest())
        return outer.hexdigest()


class RotatedFingerprint(str):
    """The fingerprint of a credential under the current pepper, with the one under the previous pepper."""

    previous: str


class Authenticator:
    """Finds the key of a credential.

    During a rotation of the pepper, a key that is found under the previous one is stored under the current one, too.
    """

    def __init__(
        self,
        links: Links,
        pepper: bytes,
        *,
        previous_pepper: bytes = b"",
        on_found: Callable[[], None] = lambda: None,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        self._links = links
        self._fingerprint: Callable[[str], str] = Fingerprint(pepper)
        if previous_pepper:
            self._fingerprint = _rotating(self._fingerprint, Fingerprint(previous_pepper))
        self._on_found = on_found  # called when the store has a key under one of the peppers
        self._known: dict[str, ApiKey] = {}  # by fingerprint; credentials are not kept in memory
        self._size = cache_size
        self._confirm = load_script("confirm")

    def fingerprint(self, credential: str | None) -> str | None:
        """The fingerprint of a credential; None if its form is invalid."""
        if credential is None or not CREDENTIAL.fullmatch(credential):
            return None
        return self._fingerprint(credential)

    def fingerprint_of_subject(self, text: str) -> str:
        """The fingerprint of a key that nobody has the text of: `text` is no possible credential."""
        assert not CREDENTIAL.fullmatch(text)
        return self._fingerprint(text)

    def cached(self, fingerprint: str | None) -> ApiKey | None:
        """The key, if it is in the cache; it may be revoked meanwhile."""
        return self._known.get(fingerprint) if fingerprint is not None else None

    async def authenticate(self, credential: str | None) -> ApiKey:
        """The key of a credential, or InvalidApiKey; `confirm` and `admit` check whether the key is valid."""
        return await self.identify(self.fingerprint(credential))

    async def identify(self, fingerprint: str | None) -> ApiKey:
        """`authenticate` by the credential's fingerprint; StoreUnavailable if the store lost its data."""
        if fingerprint is None:
            raise InvalidApiKey
        known = self._known.get(fingerprint)
        if known is not None:
            return known
        found = await self._find(fingerprint)
        if found is None:
            await verify(self._links.link(f"kh:{fingerprint}"))
            raise InvalidApiKey
        self._on_found()
        account, key_id, *marks = found.decode().split(":")
        user = next((mark.removeprefix(USER) for mark in marks if mark.startswith(USER)), "")
        key = ApiKey(account, key_id, SHOWS_COST in marks, user)
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        self._known[fingerprint] = key
        return key

    async def _find(self, fingerprint: str) -> bytes | None:
        """The record of a key."""
        name = f"kh:{fingerprint}"
        found: bytes | None = await self._links.link(name).call_repeatable("GET", name)
        if found is None and isinstance(fingerprint, RotatedFingerprint):
            former = f"kh:{fingerprint.previous}"
            found = await self._links.link(former).call_repeatable("GET", former)
            if found is not None:
                await self._links.link(name).call_repeatable("SET", name, found, "NX")
        return found

    async def confirm(self, key: ApiKey, models: Iterable[str] = ()) -> KeyView:
        """The key's permissions now; InvalidApiKey, or InsufficientPermissions if its account is disabled.

        The view answers for `models` only. They are read in pages, so that many models do not hold the store.
        """
        wanted, rules = list(dict.fromkeys(models)), dict[str, str]()
        name = slot(key.account)
        for start in range(0, max(len(wanted), 1), PAGE):
            page = wanted[start : start + PAGE]
            code, *reply = await self._links.link(name).eval(self._confirm, [name], [key.id, *page], repeatable=True)
            if code == GONE:
                raise key_is_gone()
            if code == ACCOUNT:
                raise InsufficientPermissions("This account is disabled")
            if code != OK:
                raise InvalidApiKey
            group, own, scopes, *found = [value.decode() for value in reply]
            rules.update(zip(page, found, strict=True))
        only = frozenset(own.strip("\n").split("\n")) if own else None
        return KeyView(key, group, rules, only, scopes)


def _rotating(current: Callable[[str], str], previous: Callable[[str], str]) -> Callable[[str], str]:
    def fingerprint(credential: str) -> str:
        both = RotatedFingerprint(current(credential))
        both.previous = previous(credential)
        return both

    return fingerprint


def bearer(authorization: str | None, api_key: str | None = None) -> str | None:
    """The credential in `Authorization`; without that header, in `api_key` (see `key_headers`)."""
    if authorization is None:
        credential = api_key.strip(" \t") if api_key is not None else None
    elif authorization.startswith("Bearer sk-"):  # the usual spelling
        credential = authorization[7:]
    else:
        match = BEARER.fullmatch(authorization.strip(" \t"))
        credential = match[1] if match else None
    return credential if credential is not None and CREDENTIAL.fullmatch(credential) else None


def has_space(authorization: str | None, api_key: str | None = None) -> bool:
    """Whether these headers, of which `bearer` makes no credential, have one with white space around it."""
    if authorization is None:
        text = api_key or ""
    elif authorization[:6].lower() == "bearer":
        text = authorization[6:].removeprefix(" ")
    else:
        return False
    found = SPACED.fullmatch(text)
    return found is not None and found[1] != text
