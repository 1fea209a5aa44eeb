"""`gateway import litellm`: a configuration of LiteLLM's proxy becomes one of the gateway."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import load
from tests.cli.conftest import Terminal

LITELLM = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/OPENAI_API_KEY
      weight: 3
      rpm: 500
  - model_name: gpt-4o
    litellm_params:
      model: azure/my-deployment
      api_base: https://x.openai.azure.com
      api_version: "2024-10-21"
      api_key: sk-this-must-not-be-repeated
  - model_name: claude
    litellm_params:
      model: claude-3-5-sonnet
      api_key: os.environ/ANTHROPIC_API_KEY
      timeout: 300
  - model_name: house
    litellm_params:
      model: hosted_vllm/Qwen/Qwen3-8B
      api_base: http://10.0.0.7:8000/v1
      input_cost_per_token: 0.0000002
      output_cost_per_token: 6e-7
    model_info: {max_input_tokens: 32768, max_output_tokens: 4096}
  - model_name: embed
    litellm_params: {model: text-embedding-3-small, api_key: os.environ/OPENAI_API_KEY}
    model_info: {mode: embedding, input_cost_per_token: 2e-8}
  - model_name: "anything/*"
    litellm_params: {model: "openrouter/*"}
  - model_name: odd
    litellm_params: {model: replicate/some/model}
  - model_name: private
    litellm_params: {model: openai/never-heard-of, api_key: os.environ/OPENAI_API_KEY}
router_settings:
  routing_strategy: least-busy
  num_retries: 5
  fallbacks: [{gpt-4o: [claude, odd]}]
  model_group_alias: {gpt-4: gpt-4o}
  redis_host: localhost
litellm_settings:
  request_timeout: 120
  drop_params: true
general_settings:
  master_key: sk-1234567890
"""


@pytest.fixture
def converted(terminal: Terminal, tmp_path: Path) -> Any:
    (tmp_path / "config.yaml").write_text(LITELLM)
    return terminal.json("import", "litellm", str(tmp_path / "config.yaml"))


def test_models_targets_prices_and_fallbacks_are_converted(converted: Any) -> None:
    document = tomllib.loads(converted["toml"])
    providers, models = document["providers"], document["models"]
    assert providers["openai"] == {"plugin": "openai", "api_key": "env:OPENAI_API_KEY"}
    assert providers["azure"]["endpoint"] == "https://x.openai.azure.com"
    assert providers["hosted_vllm"] == {"plugin": "openai", "preset": "vllm", "base_url": "http://10.0.0.7:8000/v1"}
    assert models["gpt-4o"]["targets"] == [
        {"provider": "openai", "model": "gpt-4o", "weight": 3},
        {"provider": "azure", "model": "my-deployment"},
    ]
    assert (models["gpt-4o"]["strategy"], models["gpt-4o"]["retries"]) == ("least_busy", 2)
    assert (models["gpt-4o"]["aliases"], models["gpt-4o"]["fallbacks"]) == (["gpt-4"], ["claude"])
    assert models["gpt-4o"]["price"] == "openai/gpt-4o"
    assert models["claude"]["total_timeout"] == 300.0
    assert models["house"]["price"] == {"input": 0.2, "output": 0.6}
    assert (models["house"]["context_window"], models["house"]["max_output_tokens"]) == (32768, 4096)
    assert (models["embed"]["endpoints"], models["embed"]["total_timeout"]) == (["embeddings"], 120.0)
    assert set(models) == {"gpt-4o", "claude", "house", "embed", "private"}


def test_what_has_no_counterpart_is_named_and_secrets_are_not_repeated(converted: Any) -> None:
    text = converted["toml"]
    for comment in (
        "# litellm_params.rpm has no counterpart",
        "# api_key stands in the file of LiteLLM itself: put it into $AZURE_2_API_KEY",
        "# a name with * has no counterpart: write each model",
        "# there is no plugin for replicate/some/model",
        "# fallback odd: there is no such model",
        "# router_settings.redis_host has no counterpart",
        "# litellm_settings.drop_params has no counterpart",
        "# general_settings: its keys and database are made anew",
        "# num_retries = 5: the gateway makes at most 2 attempts after the first",
        "# no price is known: set price, or free = true",
    ):
        assert comment in text
    assert "sk-" not in text
    assert converted["variables"] == ["ANTHROPIC_API_KEY", "AZURE_2_API_KEY", "OPENAI_API_KEY"]


def test_converted_file_is_a_configuration(converted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in converted["variables"]:
        monkeypatch.setitem(os.environ, variable, "a-secret")
    path = tmp_path / "converted.toml"
    path.write_text(converted["toml"].replace("[models.private]", "[models.private]\nfree = true"))
    settings = load(path)
    assert set(settings.models) == {"gpt-4o", "claude", "house", "embed", "private"}


def test_claude_on_vertex_is_served_by_the_plugin_of_its_dialect(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        """
model_list:
  - model_name: claude
    litellm_params: {model: vertex_ai/claude-sonnet-4-5@20250929, vertex_project: p, vertex_location: global}
  - model_name: gemini
    litellm_params: {model: vertex_ai/gemini-2.5-pro, vertex_project: p, vertex_location: global}
"""
    )
    document = tomllib.loads(terminal.json("import", "litellm", str(tmp_path / "config.yaml"))["toml"])
    plugins = {name: document["providers"][model["provider"]]["plugin"] for name, model in document["models"].items()}
    assert plugins == {"claude": "anthropic", "gemini": "gemini"}
    claude = document["models"]["claude"]
    assert claude["model"] == "claude-sonnet-4-5@20250929"
    assert document["providers"][claude["provider"]] == {"plugin": "anthropic", "project": "p", "location": "global"}


def test_file_that_is_none_and_a_missing_package_are_refused(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "config.yaml", tmp_path / "out.toml"
    path.write_text("a: [")
    assert "is no YAML" in terminal.refused("import", "litellm", str(path))
    path.write_text("a: 1")
    assert "no model_list" in terminal.refused("import", "litellm", str(path))
    path.write_text("model_list: [{model_name: x}]")
    assert "entry 1 of model_list" in terminal.refused("import", "litellm", str(path))
    path.write_text("model_list: []")
    out.write_text("kept")
    assert "exists already" in terminal.refused("import", "litellm", str(path), "--out", str(out))
    assert out.read_text() == "kept"
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "model-gateway[litellm]" in terminal.refused("import", "litellm", str(path))
