"""Models that two providers serve in order, both on the same scripted server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream

PRICE: Mapping[str, Any] = MappingProxyType({"price": {"input": 1, "output": 2}})
#: A model whose first target gets `first`, and the other one `second`.
IN_ORDER: Mapping[str, Any] = MappingProxyType(
    {
        "targets": [{"provider": "one", "model": "first"}, {"provider": "two", "model": "second"}],
        "strategy": "in_order",
        **PRICE,
    }
)


def settings_with(models: Mapping[str, Any], folder: Path, upstream: FakeUpstream, **provider: Any) -> Settings:
    """The settings of these models; `provider` is what both providers have beside an address and a key."""
    given = {
        "plugin": "openai",
        "base_url": upstream.base_url,
        "api_key": "sk-upstream-canary-0123456789",
        **provider,
    }
    return parse(
        {"store": {"data_dir": str(folder)}, "providers": {"one": given, "two": given}, "models": models},
        demo=True,
    )
