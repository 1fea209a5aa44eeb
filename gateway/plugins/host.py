"""The part of the gateway that `startup` and `shutdown` hooks of plugins may use."""

from __future__ import annotations

from typing import Protocol

from gateway.config.settings import Settings
from gateway.http_client.upstream import Upstream
from gateway.store import Store


class Gateway(Protocol):
    """One worker's gateway; a reload replaces its settings."""

    settings: Settings

    @property
    def store(self) -> Store: ...
    @property
    def upstream(self) -> Upstream: ...
