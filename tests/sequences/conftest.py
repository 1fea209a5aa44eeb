"""The console with the admin API beside it, as one process serves them, without the limits of changes."""

from __future__ import annotations

import pytest

from gateway.admin_api import api, authentication
from gateway.console import site
from tests.console.conftest import console, database_url, hashes

__all__ = ["console", "database_url", "hashes"]


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of changes and of attempts have tests of their own."""
    monkeypatch.setattr(authentication, "MOST_UNKNOWN", 10**9)
    for module in (api, site):
        monkeypatch.setattr(module, "MOST_CHANGES", 10**9)
    monkeypatch.setattr(api, "MOST_CHANGES_OF_SITE", 10**9)
