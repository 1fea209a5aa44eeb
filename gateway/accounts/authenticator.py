"""Who calls: from a credential to an ApiKey, and what that key may do at this moment.

Keys only ever enter HMAC: Redis holds the HMAC under a pepper it does not know, and a worker remembers just the
immutable mapping HMAC → (account, key id). Whether the key still holds is never remembered: `confirm`, and later the
ledger's `admit`, ask Redis each time, so a revocation is seen by the very next request.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.errors import InsufficientPermissions, InvalidApiKey
from gateway.ledger.scripts import Links, load_script, slot

if TYPE_CHECKING:
    from gateway.config.settings import Settings

CREDENTIAL = re.compile(r"sk-[\x21-\x7e]{1,509}", re.ASCII)
BEARER = re.compile(r"bearer +(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
CACHE_SIZE = 100_000  # some 25 MB when full
PEPPER_BYTES = 32

OK, KEY, ACCOUNT = 0, 1, 2  # codes of confirm.lua
SHOWS_COST = "cost"  # a mark behind the key's id, fixed when the key is made, so that workers may remember it


class PepperFault(Exception):
    """The pepper cannot be used; the text is for the operator."""


class ApiKey(Struct, frozen=True):
    """Who calls: an account and one of its keys."""

    account: str
    id: str
    shows_cost: bool = False  # answers tell what they cost


class KeyView(Struct, frozen=True):
    """What a key may do, as of one moment."""

    key: ApiKey
    group: str
    allowed: frozenset[str]
    denied: frozenset[str]
    models: frozenset[str] | None  # the key's own restriction

    def permits(self, model: str, groups: frozenset[str]) -> bool:
        """Whether the key may use `model`, which `groups` may use; the rule of admit.lua."""
        if self.models is not None and model not in self.models:
            return False
        return model in self.allowed or (model not in self.denied and self.group in groups)


class Fingerprint:
    """Turns a credential into the name it is stored under: its HMAC-SHA256, worthless without the pepper.

    0.65 µs, with the two keyed halves of the HMAC made once and copied; `hmac.digest` took 2.0.
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


class Authenticator:
    """Finds out whose credential it is."""

    def __init__(self, links: Links, pepper: bytes, *, cache_size: int = CACHE_SIZE) -> None:
        self._links = links
        self._fingerprint = Fingerprint(pepper)
        self._known: dict[str, ApiKey] = {}  # by fingerprint: no credential stays in memory
        self._size = cache_size
        self._confirm = load_script("confirm")

    def fingerprint(self, credential: str | None) -> str | None:
        """The name a credential is stored under; None for what cannot be one."""
        if credential is None or not CREDENTIAL.fullmatch(credential):
            return None
        return self._fingerprint(credential)

    def cached(self, fingerprint: str | None) -> ApiKey | None:
        """The key, if this worker has met it before; says nothing about whether it still holds."""
        return self._known.get(fingerprint) if fingerprint is not None else None

    async def authenticate(self, credential: str | None) -> ApiKey:
        """Whose credential it is, or InvalidApiKey; whether it still holds, `confirm` and `admit` say."""
        return await self.identify(self.fingerprint(credential))

    async def identify(self, fingerprint: str | None) -> ApiKey:
        """`authenticate` by the credential's fingerprint."""
        if fingerprint is None:
            raise InvalidApiKey
        known = self._known.get(fingerprint)
        if known is not None:
            return known
        name = f"kh:{fingerprint}"
        found = await self._links.link(name).call("GET", name)
        if found is None:
            raise InvalidApiKey
        account, kid, *marks = found.decode().split(":")
        key = ApiKey(account, kid, SHOWS_COST in marks)
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        self._known[fingerprint] = key
        return key

    async def confirm(self, key: ApiKey) -> KeyView:
        """What the key may do now; InvalidApiKey when revoked or expired, InsufficientPermissions for its account."""
        name = slot(key.account)
        code, *told = await self._links.link(name).eval(self._confirm, [name], [key.id])
        if code == ACCOUNT:
            raise InsufficientPermissions("This account is disabled")
        if code != OK:
            raise InvalidApiKey
        group, models, *rules = [value.decode() for value in told]
        by_rule: dict[str, set[str]] = {"+": set(), "-": set()}
        for model, rule in zip(rules[::2], rules[1::2], strict=True):
            by_rule[rule].add(model)
        only = frozenset(models.strip("\n").split("\n")) if models else None
        return KeyView(key, group, frozenset(by_rule["+"]), frozenset(by_rule["-"]), only)


def bearer(authorization: str | None, api_key: str | None = None) -> str | None:
    """The credential of a request's headers; `api_key` is the Azure-style header, heeded without the other only."""
    if authorization is None:
        credential = api_key.strip(" \t") if api_key is not None else None
    elif authorization.startswith("Bearer sk-"):  # as nearly everybody writes it
        credential = authorization[7:]
    else:
        match = BEARER.fullmatch(authorization.strip(" \t"))
        credential = match[1] if match else None
    return credential if credential is not None and CREDENTIAL.fullmatch(credential) else None


def derive(pepper: bytes, purpose: str) -> bytes:
    """A key for one purpose: what leaks from one use helps with no other."""
    return hmac.digest(pepper, b"model-gateway " + purpose.encode(), "sha256")


def load_pepper(data_dir: str | Path) -> bytes:
    """The pepper in `data_dir`, made at the first start; losing the file makes every key invalid."""
    path = Path(data_dir) / "pepper"
    if not path.exists():
        _make_pepper(path)
    if path.stat().st_mode & 0o077:
        raise PepperFault(f"{path} can be read by others; chmod 600 it")
    return read_pepper(path.read_text("ascii", "replace"), source=str(path))


def pepper_of(settings: Settings) -> bytes:
    """The pepper the settings name, or the one in data_dir, made at its first use."""
    secret = settings.pepper
    if secret is not None:
        return read_pepper(secret.reveal(), source=f"store.pepper ({secret.reference})")
    return load_pepper(settings.data_dir)


def read_pepper(text: str, *, source: str) -> bytes:
    """A pepper from its text, at least 16 bytes of it."""
    pepper = text.strip().encode()
    if len(pepper) < 16:
        raise PepperFault(f"{source} is too short for a pepper: it needs at least 16 characters")
    return pepper


def _make_pepper(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"pepper.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(PEPPER_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # whole or not at all, and never over another process's pepper
        except FileExistsError:
            return
    finally:
        draft.unlink()
