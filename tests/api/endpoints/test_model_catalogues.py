"""The lists of models that coding agents read: Codex's `models`, and names that Claude Code accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.api.endpoints.codex_models import INSTRUCTIONS
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream
from tests.api.conftest import Client

#: Members without which Codex takes the whole list for unreadable.
REQUIRED = {
    "slug", "display_name", "supported_reasoning_levels", "shell_type", "visibility", "supported_in_api", "priority",
    "base_instructions", "supports_reasoning_summaries", "support_verbosity", "truncation_policy",
    "supports_parallel_tool_calls", "experimental_supported_tools",
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {"provider": "up", "model": "upstream-m1", "price": {"input": 1, "output": 2}, "context_window": 131_072}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "glm": {**model, "aliases": ["claude-glm"], "reasoning": False},
                "thinks": {**model, "reasoning": True},
                "gpt-5-mini": {**model, "shutdown_date": "2999-12-31"},
                "unknown-window": {name: value for name, value in model.items() if name != "context_window"},
                "vectors": {**model, "endpoints": ["embeddings"], "price": {"input": 1}},
                "secret": {**model, "groups": ["inner"]},
            },
        },
        demo=True,
    )


async def listed(client: Client, query: str = "", **headers: str) -> Any:
    async with client.request("GET", f"/v1/models{query}", headers={**client.headers, **headers}) as response:
        assert response.status == 200
        return await response.json()


async def test_codex_gets_models_beside_the_list_of_all_clients(client: Client) -> None:
    plain = await listed(client)
    assert set(plain) == {"object", "data"}
    found = await listed(client, "?client_version=0.171.0")
    assert found["data"] == plain["data"]
    assert [model["slug"] for model in found["models"]] == ["claude-glm", "glm", "thinks"]
    for model in found["models"]:
        assert set(model) >= REQUIRED
        assert model["context_window"] == 131_072
        assert model["base_instructions"] == INSTRUCTIONS
        assert model["truncation_policy"].keys() == {"mode", "limit"}
    by_slug = {model["slug"]: model for model in found["models"]}
    assert by_slug["glm"]["supported_reasoning_levels"] == []
    assert [one["effort"] for one in by_slug["thinks"]["supported_reasoning_levels"]] == ["low", "medium", "high"]
    assert [model["priority"] for model in found["models"]] == [0, 1, 2]


async def test_model_with_a_shutdown_date_is_deprecated_for_anthropics_clients(client: Client) -> None:
    found = await listed(client, **{"anthropic-version": "2023-06-01"})
    stages = {model["id"]: (model["lifecycle"], model.get("max_input_tokens")) for model in found["data"]}
    assert stages["gpt-5-mini"] == ("deprecated", 131_072)
    assert (stages["glm"], stages["unknown-window"]) == (("active", 131_072), ("active", None))


async def test_claude_code_gets_the_alias_that_it_accepts(client: Client) -> None:
    """It sends the version and a limit, and shows ids that begin with `claude` or `anthropic` only."""
    found = await listed(client, "?limit=1000", **{"anthropic-version": "2023-06-01"})
    shown = [model["id"] for model in found["data"] if model["id"].startswith(("claude", "anthropic"))]
    assert shown == ["claude-glm"]
    [alias] = [model for model in found["data"] if model["id"] == "claude-glm"]
    assert (alias["type"], alias["display_name"]) == ("model", "claude-glm")
    assert found["has_more"] is False


@pytest.mark.parametrize(
    ("headers", "members", "id_header"),
    [
        ({"anthropic-version": "2023-06-01"}, {"type", "error", "request_id"}, "request-id"),
        ({"x-goog-api-client": "genai"}, {"error"}, "x-request-id"),
        ({}, {"error"}, "x-request-id"),
    ],
)
async def test_errors_of_the_lists_have_the_form_of_the_clients_api(
    client: Client, headers: dict[str, str], members: set[str], id_header: str
) -> None:
    wrong_key = {**client.headers, "Authorization": "Bearer sk-unknown"}
    for path, key, status in (("/v1/models", wrong_key, 401), ("/v1/models/nothing", client.headers, 404)):
        async with client.request("GET", path, headers={**key, **headers}) as response:
            document = await response.json()
            assert (response.status, set(document)) == (status, members)
            assert id_header in response.headers
            assert ("status" in document["error"]) is ("x-goog-api-client" in headers)
