"""redis-py's clients for slow commands, without retries: with the default of ten, one INCRBY was applied four times.

They connect at their first command. Sharp edge: for a cluster it is a RedisCluster, which has the same commands but
sends those without a key to all masters.
"""

from __future__ import annotations

from typing import Any, cast

import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress, StoreAddress

CLIENT_TIMEOUT = 10.0  # seconds; a scan may take long, a person waits
CONNECT_TIMEOUT = 2.0


def cold_client(address: StoreAddress) -> redis.asyncio.Redis:
    """A client for an address of any kind."""
    match address:
        case SentinelAddress():
            return _master_client(address)
        case ClusterAddress():
            return cast(redis.asyncio.Redis, _cluster_client(address))
        case _:
            return server_client(address)


async def close_client(client: redis.asyncio.Redis) -> None:
    """Close it, and the connections to sentinels, which redis-py does not close itself."""
    await client.aclose()
    pool = getattr(client, "connection_pool", None)
    if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


def server_client(address: RedisAddress) -> redis.asyncio.Redis:
    """A client for one server."""
    options = {"db": address.db, **_options(address)}
    if address.path:
        return redis.asyncio.Redis(unix_socket_path=address.path, **options)
    return redis.asyncio.Redis(host=address.host, port=address.port, **options, **_tls(address))


def _master_client(address: SentinelAddress) -> redis.asyncio.Redis:
    first = address.sentinels[0]
    sentinel = redis.asyncio.sentinel.Sentinel(  # type: ignore[no-untyped-call]
        [(one.host, one.port) for one in address.sentinels],
        sentinel_kwargs={**_options(first), **_tls(first)},
    )
    server = address.server
    client: redis.asyncio.Redis = sentinel.master_for(address.service, db=server.db, **_options(server), **_tls(server))
    return client


def _cluster_client(address: ClusterAddress) -> redis.asyncio.cluster.RedisCluster:
    first = address.nodes[0]
    return redis.asyncio.cluster.RedisCluster(
        startup_nodes=[redis.asyncio.cluster.ClusterNode(node.host, node.port) for node in address.nodes],
        require_full_coverage=False,
        **_options(first),
        **_tls(first),
    )


def _options(address: RedisAddress) -> dict[str, Any]:
    return {
        "username": address.username or None,
        "password": address.password or None,
        "protocol": address.protocol,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": CLIENT_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
    }


def _tls(address: RedisAddress) -> dict[str, Any]:
    if not address.tls:
        return {}
    return {
        "ssl": True,
        "ssl_cert_reqs": "required" if address.tls_verify else "none",
        "ssl_check_hostname": address.tls_verify,
        "ssl_ca_certs": address.tls_ca or None,
        "ssl_certfile": address.tls_cert or None,
        "ssl_keyfile": address.tls_key or None,
    }
