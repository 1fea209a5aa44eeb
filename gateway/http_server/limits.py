"""Limits of one client connection."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection; times in seconds, enforced to within `ServerState.tick`."""

    max_header_bytes: int = 65_536
    max_header_count: int = 100
    max_body_bytes: int = 33_554_432  # a handler may change it per request with `set_max_body_size`
    header_timeout: float = 10.0  # from a request's first byte to the end of its head; from connect to a first byte
    keepalive_timeout: float = 65.0  # between requests
    body_idle_timeout: float = 15.0  # without any body byte; the rate below is that of the last so many seconds
    min_body_rate: int = 1_024  # bytes per second
    body_total_timeout: float = 900.0  # for a whole body
    write_timeout: float = 30.0  # without a byte sent to the client
    read_buffer: int = 65_536  # bytes of one read, and the most bytes held per connection
    write_high_water: int = 65_536  # unsent bytes at which `write` makes its caller wait
    skip_bytes: int = 65_536  # the largest rest of a body that is dropped to keep the connection open
    linger_timeout: float = 5.0  # for a client that still sends after our FIN
    linger_bytes: int = 16_777_216  # for such a client
    backlog: int = 1_024  # connections that wait to be accepted; the system may allow fewer
    max_connections: int = 0  # open at a time; 0: no limit
