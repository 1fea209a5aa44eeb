"""The addresses of a store: one server, a master that sentinels name, or a cluster.

`gateway.store` makes these from the configured URL or from the embedded server's socket. No repr shows a password.
"""

from __future__ import annotations

import msgspec


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One server: a unix socket when `path` is set, else `host` and `port`, over TLS when `tls`."""

    host: str = "127.0.0.1"
    port: int = 6379
    path: str = ""
    username: str = ""
    password: str = ""
    db: int = 0
    tls: bool = False
    tls_verify: bool = True
    tls_ca: str = ""  # PEM file; empty = the system's authorities
    tls_cert: str = ""  # PEM file of a client certificate
    tls_key: str = ""
    protocol: int = 3  # RESP version in HELLO; in version 2, maps such as HGETALL's are flat lists

    def __str__(self) -> str:
        """The address for logs: no user, no password."""
        if self.path:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"

    def __repr__(self) -> str:
        return f"RedisAddress({self})"


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
