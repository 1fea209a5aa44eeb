"""One process's way to the store: the link for the money's road, and a redis-py client for everything that may be slow.

`link(slot_key)` is asked for every call that touches an account, so that a cluster can answer with another server's
link later. `client` (command line, administration, scans) never retries either: redis-py's own default of ten tries
once applied one INCRBY four times.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.errors import StoreUnavailable
from gateway.store.url import address_of
from gateway.transport.redis_address import RedisAddress
from gateway.transport.redis_link import RedisLink

CLIENT_TIMEOUT = 10.0  # seconds; a scan may take long, a person waits


class Store:
    """An opened store; `open` makes it, `close` ends its connections."""

    def __init__(self, address: RedisAddress, *, timeout: float = 0.25) -> None:
        self.address = address
        self.client: redis.asyncio.Redis = _client(address)
        self._link = RedisLink(address, timeout=timeout)

    @classmethod
    async def open(cls, where: str | Path | RedisAddress, *, timeout: float = 0.25, required: bool = True) -> Store:
        """Connect to a URL, a socket's path or an address.

        StoreFault for a URL that makes no sense; StoreUnavailable when nobody answers, unless not `required`: then the
        store is returned all the same and its link goes on trying.
        """
        store = cls(address_of(where), timeout=timeout)
        try:
            await store._link.connect()
        except StoreUnavailable:
            if required:
                await store.close()
                raise
        except BaseException:
            await store.close()
            raise
        return store

    def link(self, slot_key: str) -> RedisLink:
        """The link to the server that holds this key's slot; there is one server as yet."""
        return self._link

    @property
    def links(self) -> list[RedisLink]:
        """Every link, for hooks and figures."""
        return [self._link]

    async def ping(self) -> float:
        """One round trip over the link, in seconds; StoreUnavailable when there is none."""
        started = time.perf_counter()
        await self._link.call("PING")
        return time.perf_counter() - started

    async def warnings(self) -> list[str]:
        """What about the server's configuration could lose money; empty when all is well."""
        info: dict[str, Any] = _fields(await self._link.call("INFO"))
        found = []
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            found.append(
                f"the store's maxmemory-policy is {policy}: it may throw balances away; set maxmemory-policy noeviction"
            )
        if info.get("aof_enabled") == "0":
            found.append("the store keeps no append-only file: a crash loses settled money; set appendonly yes")
        if info.get("role") == "slave":
            found.append("the store is a replica and refuses writes; give the master's URL")
        return found

    async def close(self) -> None:
        """Close every connection; calls in flight fail with StoreUnavailable."""
        await asyncio.gather(self._link.close(), self.client.aclose())


def _fields(info: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.decode(errors="replace").splitlines() if ":" in line)


def _client(address: RedisAddress) -> redis.asyncio.Redis:
    """redis-py's client for the same address, with retries off; it connects at its first command."""
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username or None,
        "password": address.password or None,
        "protocol": address.protocol,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": CLIENT_TIMEOUT,
        "socket_connect_timeout": 2.0,
    }
    if address.path:
        return redis.asyncio.Redis(unix_socket_path=address.path, **options)
    if address.tls:
        options |= {
            "ssl": True,
            "ssl_cert_reqs": "required" if address.tls_verify else "none",
            "ssl_check_hostname": address.tls_verify,
            "ssl_ca_certs": address.tls_ca or None,
            "ssl_certfile": address.tls_cert or None,
            "ssl_keyfile": address.tls_key or None,
        }
    return redis.asyncio.Redis(host=address.host, port=address.port, **options)
