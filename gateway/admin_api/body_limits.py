"""The limits of requests to the console process; a module of its own, because workers read it without the database."""

from __future__ import annotations

from typing import Final

from gateway.http_server.limits import ServerLimits

LIMITS: Final = ServerLimits(max_body_bytes=2**40)  # the handlers' own limit of a body has an answer
