"""The gateway of the money property: a model for each dialect and variant, and the constants that would take time."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.routing.circuit_breaker import Circuit
from tests.money.cases import AWAY, DIALECTS, HIDDEN, TWO, VARIANTS
from tests.money.dialects import MODELS
from tests.money.promises import MAX_OUTPUT, PRICE
from tests.providers import cohere_dialect, converse_dialect
from tests.providers import gemini_upstream as google

IDLE = 0.2  # seconds of silence after which an upstream has failed


def money_settings(folder: Path, *, url: str, away: str) -> Settings:
    """Settings with every upstream at `url`, and those without a server at `away`."""
    models = {f"{dialect}-{variant}": _model(dialect, variant) for dialect in DIALECTS for variant in _ALL}
    providers = {**_providers(url, ""), **_providers(away, "-away")}
    return parse(
        {
            "store": {"data_dir": str(folder)},
            "providers": providers,
            "models": models,
            "groups": {
                "default": {},
                "times-0.5": {"price_factor": Decimal("0.5")},
                "times-1.37": {"price_factor": Decimal("1.37")},
            },
            "log": {"access": False},
        },
        demo=True,
    )


_ALL = (*VARIANTS, HIDDEN, TWO, AWAY)


def _model(dialect: str, variant: str) -> dict[str, Any]:
    target = {"provider": f"{dialect}-away" if variant == AWAY else dialect, "model": MODELS[dialect]}
    return {
        **({"targets": [target, {**target, "model": f"{MODELS[dialect]}-b"}]} if variant == TWO else target),
        "strategy": "in_order",
        "price": PRICE,
        "groups": ["default", "times-0.5", "times-1.37"],
        "batch_factor": Decimal("0.5"),
        "max_output_tokens": MAX_OUTPUT,
        "default_reserve_output": 64,
        "retries": 1 if variant == TWO else 0,
        "reasoning": variant == HIDDEN,
        "disconnect": variant if variant in ("drain", "void") else "auto" if variant == HIDDEN else "delivered",
        "hold": "clamp" if variant == "clamp" else "strict",
        "first_byte_timeout": IDLE,
        "idle_timeout": IDLE,
    }


def _providers(url: str, suffix: str) -> dict[str, Any]:
    return {
        f"openai{suffix}": {"plugin": "openai", "base_url": f"{url}/v1"},
        f"responses{suffix}": {"plugin": "openai", "base_url": f"{url}/v1", "responses": True},
        f"completions{suffix}": {"plugin": "openai", "base_url": f"{url}/v1", "completions": True},
        f"anthropic{suffix}": {"plugin": "anthropic", "base_url": url, "api_key": "sk-ant-canary-01"},
        f"gemini{suffix}": {"plugin": "gemini", "base_url": f"{url}/v1beta", "api_key": google.KEY},
        f"cohere{suffix}": {"plugin": "cohere", "base_url": url, "api_key": cohere_dialect.KEY},
        f"bedrock{suffix}": {
            "plugin": "bedrock",
            "base_url": url,
            "region": converse_dialect.REGION,
            "access_key_id": converse_dialect.KEY_ID,
            "secret_access_key": converse_dialect.SECRET,
        },
    }


def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for callers who have left, and keep every circuit closed: failures are the cases here."""
    monkeypatch.setattr("gateway.inference.disconnects.USAGE_WITHIN", 0.05)
    monkeypatch.setattr("gateway.inference.disconnects.DRAIN_WITHIN", 0.1)
    monkeypatch.setattr("gateway.routing.retry_policy.PAUSE", 0.0)
    monkeypatch.setattr(Circuit, "failed", lambda *_, **__: None)
