"""`/discovery`: the lists of providers, and why a model is not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.accounts.pepper import load_pepper
from gateway.config.settings import Settings
from tests.admin_api.conftest import OpenApi
from tests.discovery.lists import settings_of
from tests.discovery.shared_lists import MODELS, found_in


@pytest.fixture
def settings(tmp_path: Path, valkey: Path) -> Settings:
    """Settings with a provider that lists its models."""
    settings = settings_of(MODELS, tmp_path)
    load_pepper(settings.data_dir)
    return settings


async def test_lists_and_models_are_shown_with_reasons(api: OpenApi, settings: Settings) -> None:
    async with api() as a:
        a.token = await a.make_token("read")
        a.services.use_models(found_in(settings))
        [one] = (await a.ask("GET", "/discovery")).document["data"]
        assert (one["provider"], one["state"], one["served"]) == ("router", "ok", 1)
        assert one["not_served"] == {"free": 1, "name": 1, "no_price": 1}
        rows = await a.pages("/discovery/models?limit=2")
        assert [(row["upstream_model"], row["state"]) for row in rows] == [
            ("acme/free", "free"),
            ("acme/large", "served"),
            ("acme/unpriced", "no_price"),
        ]
        assert rows[1]["id"] == "router/acme/large"
        assert rows[1]["price"] == {"input": "1.5", "output": "6"}
        models = (await a.ask("GET", "/models")).document["data"]
        assert [model["id"] for model in models] == ["fake-chat", "router/acme/large"]
