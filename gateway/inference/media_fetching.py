"""What a worker keeps for fetching content by address: for which providers, and how many requests are under way."""

from __future__ import annotations

import ssl

from gateway.config.settings import Settings
from gateway.uploads.budget import Budget

OF_WORKER, OF_ACCOUNT = 64, 16  # addresses that are fetched at a time


class MediaFetching:
    """Made once per worker; `tls` replaces the trusted certificates of the system in tests."""

    def __init__(self, settings: Settings, tls: ssl.SSLContext | None = None) -> None:
        self.budget = Budget("images and documents that are fetched", OF_WORKER, OF_ACCOUNT)
        self.tls = tls
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Read the providers with `fetch_media` from the settings."""
        self.providers = frozenset(name for name, provider in settings.providers.items() if provider.fetch_media)
