"""The store of the settings: its address, and the connection of a command that opens it for a while.

The URL and the passwords may be references to secrets. No message and no command line contains the URL or a password:
each process looks the references up itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from gateway.config.settings import Settings
from gateway.store import EmbeddedServer, Store
from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress, StoreAddress
from gateway.store.fault import StoreSetupError
from gateway.store.identity import StoreGuard, known_deployment
from gateway.store.url import parse_address

PATIENCE = 10.0  # seconds for one answer: a person waits


def configured_address(settings: Settings) -> StoreAddress | None:
    """The address of the operator's own store; None for the embedded one.

    SecretError names a variable or file that holds no secret, StoreSetupError describes a fault in the URL.
    """
    store = settings.store
    if not store.url:
        return None
    secret = settings.store_url
    address = parse_address(secret.reveal() if secret is not None else store.url)
    password, sentinel_password = settings.store_password, settings.sentinel_password
    if password is not None:
        address = _with_password(address, password.reveal())
    if sentinel_password is not None:
        if not isinstance(address, SentinelAddress):
            raise StoreSetupError("store.sentinel_password: store.url names no sentinels")
        text = sentinel_password.reveal()
        sentinels = tuple(_replace(one, text) for one in address.sentinels)
        address = msgspec.structs.replace(address, sentinels=sentinels)
    return address


def _with_password(address: StoreAddress, password: str) -> StoreAddress:
    match address:
        case SentinelAddress():
            return msgspec.structs.replace(address, server=_replace(address.server, password))
        case ClusterAddress():
            return msgspec.structs.replace(address, nodes=tuple(_replace(node, password) for node in address.nodes))
        case _:
            return _replace(address, password)


def _replace(address: RedisAddress, password: str) -> RedisAddress:
    return msgspec.structs.replace(address, password=password)


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[Store]:
    """The store, closed at the end, with or without a running gateway.

    An embedded one that no gateway serves is started, and stopped at the end.
    """
    async with AsyncExitStack() as stack:
        address: StoreAddress | Path | None = configured_address(settings)
        if address is None:
            address = await stack.enter_async_context(EmbeddedServer.attach_or_start(settings.data_dir))
        guard = StoreGuard(deployment=known_deployment(settings.data_dir).read())
        store = await Store.open(address, timeout=PATIENCE, guard=guard)
        stack.push_async_callback(store.close)
        yield store
