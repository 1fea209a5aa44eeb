"""The address and the login of one Redis server, for `RedisLink` and for the admin client.

`gateway.store` makes these from the configured URL or from the embedded server's socket. A repr never contains a
password.
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
