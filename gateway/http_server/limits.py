"""What one client connection may take of the server."""

from __future__ import annotations

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may take; times in seconds, enforced to within `ServerState.tick`."""

    max_header_bytes: int = 65_536
    max_header_count: int = 100
    max_body_bytes: int = 33_554_432  # a handler may change it per request with `set_max_body_size`
    header_timeout: float = 10.0  # from a request's first byte to the end of its head; from connect to a first byte
    keepalive_timeout: float = 65.0  # between requests
    body_idle_timeout: float = 15.0  # without any body byte; also the grace before the rate below is demanded
    min_body_rate: int = 1_024  # bytes per second, on average
    write_timeout: float = 30.0  # without the client taking a byte
    read_buffer: int = 65_536  # bytes one read takes, and that may wait unparsed per connection
    write_high_water: int = 65_536  # bytes unsent from which on `write` and `flush` make their caller wait
    skip_bytes: int = 65_536  # rest of an unread body that is read and dropped to keep the connection
    linger_timeout: float = 5.0  # how long a client may go on sending to a closed connection
    linger_bytes: int = 16_777_216
    backlog: int = 1_024
