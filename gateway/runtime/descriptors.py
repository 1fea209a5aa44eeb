"""The file descriptors of a process: the limit, and how many of them client connections may use.

A running call needs two: the client's connection and the upstream's. The rest is reserved for uploads on the disk and
for what must work under any load: the store, the journal, logs and modules. So clients alone cannot use up the
descriptors, and a call that was admitted can always connect to its upstream.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final, NamedTuple

#: The highest limit that is asked for. Some systems have a hard limit of a billion; nothing here needs that many.
MOST: Final = 1 << 20
RESERVED: Final = 192  # for the store, the journal, logs, files that are read for a moment, and refused connections


class DescriptorShares(NamedTuple):
    """How many descriptors a worker uses for what."""

    connections: int  # of clients; as many again are kept for upstreams
    uploads: int  # temporary files


def raise_limit() -> None:
    """Raise the soft limit of this process, and of its later children, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS allows less than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """The soft limit of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else soft


def shares(limit: int, wanted_connections: int = 0) -> DescriptorShares:
    """The shares of a process with `limit` descriptors; at most `wanted_connections` for clients unless that is 0."""
    free = max(limit - RESERVED, 24)
    uploads = free // 8
    connections = (free - uploads) // 2
    return DescriptorShares(min(connections, wanted_connections or connections), uploads)


def helper_connections(limit: int, wanted: int) -> int:
    """How many client connections a process without upstreams may have: at most `wanted`, and half of what is free."""
    return min(max(limit - RESERVED, 24) // 2, wanted)
