"""The limits of client connections on the three ports, from the settings and the descriptors of the process.

Heads, bodies and idle connections have the same times on every port. The side port answers small questions of probes
and scrapers, and its process, the supervisor, needs its descriptors for other work.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from gateway.admin_api.body_limits import LIMITS
from gateway.config.settings import Settings
from gateway.http_server.client_address import Network, networks
from gateway.http_server.limits import ServerLimits
from gateway.runtime.descriptors import descriptor_limit, helper_connections, shares

CONSOLE_CONNECTIONS: Final = 1_024  # a browser opens six
SIDE_CONNECTIONS: Final = 256
SIDE_BODY: Final = 4_096  # bytes; no request of the side port has a body
SIDE_HEADER: Final = 16_384  # bytes
SIDE_TIMEOUT: Final = 10.0  # seconds for a head, and for a body


def worker_limits(settings: Settings) -> ServerLimits:
    """The limits of `/v1` in one worker."""
    limits = settings.server.limits
    return ServerLimits(
        max_header_bytes=limits.max_header_bytes,
        max_body_bytes=limits.max_json_body,
        header_timeout=limits.header_timeout,
        keepalive_timeout=limits.keepalive_timeout,
        body_idle_timeout=limits.body_timeout,
        body_total_timeout=limits.body_total_timeout,
        min_body_rate=limits.min_body_rate,
        write_timeout=limits.write_timeout,
        backlog=limits.accept_queue,
        max_connections=shares(descriptor_limit(), limits.max_connections).connections,
    )


def console_limits(settings: Settings) -> ServerLimits:
    """The limits of the console and the admin API."""
    most = helper_connections(descriptor_limit(), CONSOLE_CONNECTIONS)
    return structs.replace(worker_limits(settings), max_body_bytes=LIMITS.max_body_bytes, max_connections=most)


def side_limits(settings: Settings) -> ServerLimits:
    """The limits of the side port."""
    return structs.replace(
        worker_limits(settings),
        max_header_bytes=min(settings.server.limits.max_header_bytes, SIDE_HEADER),
        max_body_bytes=SIDE_BODY,
        header_timeout=min(settings.server.limits.header_timeout, SIDE_TIMEOUT),
        body_total_timeout=SIDE_TIMEOUT,
        max_connections=helper_connections(descriptor_limit(), SIDE_CONNECTIONS),
    )


def trusted_proxies(settings: Settings) -> tuple[Network, ...]:
    """The networks of `server.trusted_proxies`."""
    return networks(settings.server.trusted_proxies)
