"""The store's address from the settings: the URL and the passwords may be references to secrets.

No message and no command line contains the URL or a password: each process looks the references up itself.
"""

from __future__ import annotations

import msgspec

from gateway.config.settings import Settings
from gateway.store.address import ClusterAddress, SentinelAddress, StoreAddress
from gateway.store.fault import StoreSetupError
from gateway.store.redis_address import RedisAddress
from gateway.store.url import parse_address


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
