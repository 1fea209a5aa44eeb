"""The addresses of a store: one server, a master that sentinels name, or a cluster.

`RedisAddress` (`redis_address`) is one server; this module has the other two. No repr shows a password.
"""

from __future__ import annotations

import msgspec

from gateway.store.redis_address import RedisAddress


class SentinelAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Sentinels, the service's name, and how to log in to its master; the master's host and port come from them."""

    sentinels: tuple[RedisAddress, ...]
    service: str
    server: RedisAddress

    def __str__(self) -> str:
        """The address for logs: no user, no password."""
        return f"redis+sentinel://{_hosts(self.sentinels)}/{self.service}/{self.server.db}"

    def __repr__(self) -> str:
        return f"SentinelAddress({self})"


class ClusterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The first nodes of a cluster; they name the others, which have the same login."""

    nodes: tuple[RedisAddress, ...]

    def __str__(self) -> str:
        """The address for logs: no user, no password."""
        return f"redis+cluster://{_hosts(self.nodes)}"

    def __repr__(self) -> str:
        return f"ClusterAddress({self})"


StoreAddress = RedisAddress | SentinelAddress | ClusterAddress


def _hosts(addresses: tuple[RedisAddress, ...]) -> str:
    return ",".join(f"{address.host}:{address.port}" for address in addresses)
