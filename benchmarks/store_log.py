"""Keeps the store of a measured gateway from rewriting its log."""

from __future__ import annotations

import redis

from benchmarks.contenders.contender import Running


def keep_log(server: Running) -> None:
    """Let the store not rewrite its log: the process that does so takes the load's core for up to half a second.

    It took 5 % of the time at 3,500 calls per second, and made the p99 of all kinds of phases grow alike, from 50 to
    216 ms.
    """
    with redis.Redis(unix_socket_path=server.store_socket) as store:
        store.config_set("auto-aof-rewrite-percentage", 0)
