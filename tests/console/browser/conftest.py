"""Browser tests need a Chromium and Playwright; without them they are skipped, and say why."""

from __future__ import annotations

import importlib.util

import pytest

from tests.processes.conftest import yard

__all__ = ["yard"]


@pytest.fixture(autouse=True)
def has_browser() -> None:
    """Skip the test without a browser."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed: pip install playwright")
    from tests.console.browser.chromium import chromium_path

    if not chromium_path():
        pytest.skip("there is no Chromium on PATH: apt-get install chromium-headless-shell")
