"""Moved to `gateway.upstream_errors`, where third parties' providers find it too."""

from gateway.upstream_errors import *  # noqa: F403
