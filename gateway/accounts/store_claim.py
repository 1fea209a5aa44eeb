"""Writes the identity of a store: once on an empty or older store, and again when the pepper is rotated.

The deployment id is written at the first start. The fingerprint of the pepper is written then, too, if the store has no
keys; on an older store with keys, `prove_pepper` writes it when a presented key was found under that pepper.

The copies of a cluster are written first and the one that `read_identity` reads is written last. So an interrupted
claim is completed by the next one, which takes over the id that it finds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from gateway.accounts.pepper import Peppers
from gateway.errors import InvalidValue
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.listing.names import ACCOUNTS
from gateway.ledger.paging import scan_pages
from gateway.store import Store
from gateway.store.identity import SCHEMA, StoreGuard, StoreIdentity, identity_of
from gateway.store.links import slot

AT_ONCE = 500  # reads in flight


async def read_identity(store: Store) -> StoreIdentity | None:
    """The identity of the store; None if it has none."""
    key = store.identity_keys[0]
    return identity_of(await store.link(key).call("HGETALL", key))


async def claim(store: Store, peppers: Sequence[str] = ()) -> StoreIdentity:
    """The store's identity, which is written if there is none. `peppers`: fingerprints, the current one first."""
    found = await read_identity(store) or await _create(store)
    if not peppers:
        return found
    if not found.peppers:
        return found if await has_keys(store) else await prove_pepper(store, peppers)
    if set(peppers) & set(found.peppers) and set(found.peppers) != set(peppers):
        return await prove_pepper(store, peppers)  # a rotation begins or has ended
    return found


async def prove_pepper(store: Store, peppers: Sequence[str]) -> StoreIdentity:
    """Write the fingerprints of the peppers with which keys are found; return the identity."""
    await gather_bounded(store.link(key).call("HSET", key, "peppers", " ".join(peppers)) for key in _last_first(store))
    found = await read_identity(store)
    assert found is not None, "it was claimed before"
    return found


class PepperCheck:
    """Asks whether the store's keys have the pepper of this process; whoever makes or looks up a key asks first."""

    def __init__(self, store: Store, peppers: Callable[[], Peppers]) -> None:
        self._store = store
        self._peppers = peppers

    async def check(self) -> None:
        """InvalidValue if the store's keys have another pepper; PepperError if there is none here."""
        fingerprints = self._peppers().fingerprints
        identity = await claim(self._store)
        if problem := StoreGuard(peppers=fingerprints).problem(identity):
            raise InvalidValue(problem)
        if not identity.peppers and not await has_keys(self._store):
            await prove_pepper(self._store, fingerprints)


async def has_keys(store: Store) -> bool:
    """Whether any account has an API key."""
    async for page in scan_pages(store.link(ACCOUNTS), "SSCAN", ACCOUNTS, count=AT_ONCE):
        sets = [f"{slot(account.decode())}:ks" for account in page]
        if any(await gather_bounded(store.link(name).call("EXISTS", name) for name in sets)):
            return True
    return False


async def _create(store: Store) -> StoreIdentity:
    deployment = secrets.token_hex(16)
    for key in _last_first(store):
        call = store.link(key).call
        await call("HSETNX", key, "deployment", deployment)
        deployment = (await call("HGET", key, "deployment")).decode()  # of an interrupted claim, or a parallel one
        await call("HSETNX", key, "schema", SCHEMA)
    return StoreIdentity(deployment)


def _last_first(store: Store) -> list[str]:
    return store.identity_keys[::-1]
