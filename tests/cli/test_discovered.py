"""Commands know the models that providers list."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.discovery.shared_lists import MODELS, write_lists


@pytest.fixture
def listed(terminal: Terminal, valkey: Path) -> Terminal:
    """A terminal whose provider has given its list to a worker."""
    data_dir = terminal.config.parent / "var"
    terminal.config.write_text(f'[store]\nurl = "unix://{valkey}"\ndata_dir = "{data_dir}"\n{MODELS}')

    async def write(store: Store) -> None:
        await write_lists(store, load(terminal.config))

    on_store(valkey, write)
    return terminal


def test_models_shows_discovered_ones_and_why_others_are_not_served(listed: Terminal) -> None:
    assert [model["id"] for model in listed.json("models")] == ["fake-chat", "router/acme/large"]
    found = listed.json("models", "--discovered")
    assert {row["upstream_model"]: row["state"] for row in found["models"]} == {
        "acme/large": "served",
        "acme/free": "free",
        "acme/unpriced": "no_price",
    }
    [provider] = found["providers"]
    assert (provider["state"], provider["served"]) == ("ok", 1)
    result = listed.run("models", "--discovered")
    assert "gateway: router: ok; served 1, not served: 1 free, 1 name, 1 no_price; last list 2" in result.stderr
    assert "router/acme/large" in result.stdout
    assert listed.json("models", "--health")[-1]["model"] == "router/acme/large"
    assert "exclude each other" in listed.refused("models", "--discovered", "--health", status=2)


def test_accounts_and_keys_may_name_discovered_models(listed: Terminal) -> None:
    listed.ok("accounts", "create", "acme", "--balance", "5")
    listed.ok("accounts", "deny", "acme", "router/acme/large")
    assert listed.json("accounts", "show", "acme")["denied"] == ["router/acme/large"]
    listed.ok("accounts", "price", "acme", "router/acme/large", "--factor", "0.5")
    [price] = [one for one in listed.json("models", "--account", "acme") if one["id"] == "router/acme/large"]
    assert price["price_factor"] == "0.5"
    assert "no model 'router/acme/other'" in listed.run("accounts", "allow", "acme", "router/acme/other").stderr


def test_config_show_has_the_patterns_and_not_their_models(listed: Terminal) -> None:
    text = listed.ok("config", "show")
    assert '[models."router/*"]' in text
    assert 'price = ["upstream"]' in text
    assert "acme/large" not in text
    again = listed.config.with_name("again.toml")
    again.write_text(text)
    assert load(again).patterns == load(listed.config).patterns


def test_check_names_a_plugin_that_cannot_list_models(listed: Terminal) -> None:
    listed.config.write_text(listed.config.read_text().replace('plugin = "fake"', 'plugin = "fake"\ndiscover = true'))
    result = listed.run("check", "--offline")
    assert result.exit_code == 1
    assert "providers.fake.discover: the plugin fake cannot list models" in result.stderr
    assert "models: 2, providers: 2" in result.stderr


def test_an_update_of_public_prices_names_the_models_of_lists(listed: Terminal, tmp_path: Path) -> None:
    text = listed.config.read_text().replace('price = "upstream"', 'price = ["public", "upstream"]')
    listed.config.write_text(text)
    (tmp_path / "new.toml").write_text('"acme/large" = { input = 9, output = 9 }\n')
    words = ("prices", "update", "--from", str(tmp_path / "new.toml"), "--dry-run")
    assert listed.json(*words)["pattern_models"] == [{"model": "router/acme/large", "change": "changed"}]
    assert "router/acme/large, of a pattern: changed" in listed.run(*words).stderr
    listed.config.write_text(text.replace("unix://", "unix:///nowhere"))
    away = listed.run(*words)
    assert (away.exit_code, "of a pattern" in away.stderr) == (0, False)
    assert "the models that providers list are not among those below" in away.stderr
