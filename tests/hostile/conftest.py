"""The handlers' fixtures: models on a scriptable upstream, and a client with a good key."""

from __future__ import annotations

from tests.api.conftest import Client, client, settings, upstream

__all__ = ["Client", "client", "settings", "upstream"]
