"""`gateway models`, `gateway plugins`, `gateway check` and `gateway serve`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.config.settings import Settings

from .conftest import Terminal


def test_models_command_shows_the_models_of_the_configuration(terminal: Terminal) -> None:
    chat, other = terminal.json("models")
    assert (chat["id"], chat["provider"], chat["model"], chat["groups"]) == (
        "fake-chat",
        "fake",
        "fake-chat",
        ["default"],
    )
    assert chat["price"] == {"input": "0.5", "output": "1.5"}
    assert (other["model"], other["groups"], other["price"]) == ("a", ["vip"], {})
    assert [target["weight"] for target in other["targets"]] == [2, 1]


def test_models_command_shows_the_endpoints_of_each_model(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\nfree = true\n'
        'endpoints = ["embeddings", "images"]\n'
    )
    [model] = terminal.json("models")
    assert model["endpoints"] == ["embeddings", "images"]
    heads, row = terminal.ok("models").splitlines()[:2]
    assert "endpoints" in heads.lower()
    assert "embeddings" in row
    assert "images" in row


def test_models_command_prints_every_part_of_a_price(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\n[models.m.price]\ninput = 1\noutput = 2\n'
        'per_image = { "*" = 0.04 }\ntiers = [{ above_input_tokens = 9, input = 3 }]\n'
        'service_tier_multiplier = { flex = 0.5 }\ncurrency = "EUR"\neffective_from = 2026-11-01\n'
    )
    [model] = terminal.json("models")
    assert model["price"] == {
        "input": "1",
        "output": "2",
        "per_image": {"*": {"*": "0.04"}},
        "tiers": [{"above_input_tokens": 9, "input": "3"}],
        "service_tier_multiplier": {"flex": "0.5"},
        "currency": "EUR",
        "effective_from": "2026-11-01",
    }
    assert "input=1 output=2" in terminal.ok("models")


def test_models_command_resolves_a_public_price_and_names_its_version(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\nprice = "openai/gpt-5-mini@2026-11"\n'
    )
    [model] = terminal.json("models")
    assert (model["price"]["input"], model["price"]["currency"]) == ("0.25", "USD")
    assert re.fullmatch(r"[0-9a-f]{12}", model["price_version"])
    assert model["later_prices"] == []
    assert model["price_version"] in terminal.ok("models")


def test_models_command_shows_current_and_future_prices(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\nprice = [{ input = 1, output = 1 },'
        " { input = 2, output = 2, effective_from = 2026-01-01 },"
        " { input = 3, output = 3, effective_from = 2099-01-01 }]\n"
    )
    [model] = terminal.json("models")
    assert (model["price"]["input"], model["price_version"][12:]) == ("2", "@2026-01-01")
    [later] = model["later_prices"]
    assert (later["input"], later["effective_from"], later["version"][12:]) == ("3", "2099-01-01", "@2099-01-01")
    heads, row = terminal.ok("models").splitlines()[:2]
    assert "later_prices" in heads
    assert row.endswith("from 2099-01-01: input=3 output=3")


@pytest.mark.holds("prices.md#prices-1")
def test_check_refuses_a_model_without_a_price_and_an_unknown_price_name(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\n'
        '[models.n]\nprovider = "p"\nprice = "openai/gpt-5-minni"\n'
    )
    result = terminal.run("check", "--json")
    assert result.exit_code == 1
    faults = {fault["key"]: fault["message"] for fault in json.loads(result.stdout)["faults"]}
    assert faults["models.m.price"] == "missing: a model has a price, or says free = true"
    assert 'nearest: "openai/gpt-5-mini"' in faults["models.n.price"]


def test_plugins_command_shows_the_built_in_plugins(terminal: Terminal) -> None:
    reports = {report["name"]: report for report in terminal.json("plugins")}
    assert {"openai", "fake"} <= reports.keys()
    names = {"name", "version", "source", "providers", "hooks", "capabilities", "state", "reason"}
    assert reports["fake"].keys() == names
    assert reports["fake"]["state"] == "active"
    assert "chat" in reports["fake"]["capabilities"]


def test_plugins_command_says_why_a_plugin_is_not_loaded(terminal: Terminal) -> None:
    terminal.config.write_text('[plugins]\ndisabled = ["fake"]\n')
    reports = {report["name"]: report for report in terminal.json("plugins")}
    assert (reports["fake"]["state"], reports["fake"]["reason"]) == ("disabled", "named in plugins.disabled")


def test_check_of_a_valid_configuration_prints_ok(terminal: Terminal) -> None:
    found = terminal.json("check")
    assert (found["ok"], found["faults"]) == (True, [])
    assert terminal.ok("check").strip().endswith("gateway.toml: ok")


def without_vip(terminal: Terminal) -> None:
    """Remove the group from the file."""
    text = terminal.config.read_text().replace('groups = ["vip"]\n', "").replace("[groups.vip]\nrpm = 5\n", "")
    terminal.config.write_text(text)


def test_check_refuses_to_lack_a_group_that_accounts_are_in_unless_forced(terminal: Terminal) -> None:
    for name in ("ann", "ben"):
        terminal.ok("accounts", "create", name, "--group", "vip")
    terminal.ok("accounts", "create", "other")
    assert terminal.json("check")["ok"]
    without_vip(terminal)
    result = terminal.run("check", "--json")
    assert result.exit_code == 1
    [fault] = json.loads(result.stdout)["faults"]
    complaint = "no group is named 'vip', but 2 accounts are in it (ann, ben); see gateway accounts move"
    assert (fault["key"], fault["message"]) == ("groups.vip", complaint)
    found = terminal.json("check", "--force")
    assert (found["ok"], found["warnings"][-1]) == (True, f"groups.vip: {complaint}")
    for name in ("ann", "ben"):
        terminal.ok("accounts", "move", name, "default")
    assert terminal.json("check")["ok"]


def test_reload_is_refused_where_no_gateway_runs(terminal: Terminal) -> None:
    assert "no gateway runs on this machine" in terminal.refused("reload")
    folder = terminal.config.parent / "var"
    folder.mkdir(exist_ok=True)
    (folder / "gateway.pid").write_text("1\n")  # of a gateway that has ended
    assert "no gateway runs on this machine" in terminal.refused("reload")


def test_check_names_file_and_key_of_every_error(terminal: Terminal) -> None:
    terminal.config.write_text('[server]\nprot = 1\n[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\n')
    result = terminal.run("check", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(fault["file"], fault["key"]) for fault in found["faults"]] == [
        (str(terminal.config), "server.prot"),
        (str(terminal.config), "models.m.price"),
    ]
    assert f'gateway: {terminal.config}: server.prot: unknown key; nearest: "port"\n' in result.stderr


@pytest.mark.holds("operations/redis.md#redis-for-production-8")
def test_check_verifies_plugin_options_secrets_and_store(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    monkeypatch.setenv("SHORT_PEPPER", "short")
    terminal.config.write_text(
        '[store]\nurl = "redis://127.0.0.1:1"\n[plugins]\ndisabled = ["fkae"]\n'
        '[providers.a]\nplugin = "fakee"\n[providers.b]\nplugin = "openai"\nbase_ulr = "x"\n'
        '[providers.c]\nplugin = "anthropic"\napi_key = "env:NO_SUCH_KEY"\n'
        '[models.m]\nprovider = "c"\nfree = true\nendpoints = ["speech"]\n'
    )
    result = terminal.run("check", "--json")
    assert result.exit_code == 1
    faults = {fault["key"]: fault["message"] for fault in json.loads(result.stdout)["faults"]}
    assert faults["plugins.disabled[0]"].endswith('nearest: "fake"')
    assert faults["providers.a.plugin"].endswith('nearest: "fake"')
    assert faults["providers.b.base_ulr"].endswith('nearest: "base_url"')
    assert faults["providers.c.api_key"] == "environment variable NO_SUCH_KEY is not set"
    assert faults["models.m.endpoints[0]"] == 'no provider of this model serves speech; its provider serves "chat"'
    assert "store.url" in faults


@pytest.mark.holds("plugins.md#providers-1")
def test_check_refuses_a_model_without_endpoints_whose_provider_has_no_chat(terminal: Terminal) -> None:
    """`endpoints` is `["chat"]` where the file does not name it."""
    provider = '[providers.d]\nplugin = "deepgram"\napi_key = "env:D"\n[models.m]\nprovider = "d"\nfree = true\n'
    terminal.config.write_text(provider)
    result = terminal.run("check", "--offline", "--json")
    assert result.exit_code == 1
    (fault,) = json.loads(result.stdout)["faults"]
    assert fault["key"] == "models.m.endpoints[0]"
    served = '"speech", "transcription"'
    assert fault["message"] == f"no provider of this model serves chat; its provider serves {served}"
    terminal.config.write_text(provider + 'endpoints = ["speech"]\n')
    assert terminal.run("check", "--offline", "--json").exit_code == 0


@pytest.mark.holds("plugins.md#providers-1")
def test_check_warns_of_a_target_that_serves_no_endpoint_of_its_model(terminal: Terminal) -> None:
    terminal.config.write_text(
        '[providers.a]\nplugin = "anthropic"\napi_key = "env:A"\n'
        '[providers.d]\nplugin = "deepgram"\napi_key = "env:D"\n'
        '[models.m]\nfree = true\ntargets = [{ provider = "a", model = "x" }, { provider = "d", model = "y" }]\n'
    )
    result = terminal.run("check", "--offline", "--json")
    assert result.exit_code == 0
    (warning,) = [text for text in json.loads(result.stdout)["warnings"] if "targets" in text]
    assert warning == (
        'models.m.targets[1]: never called, because its provider serves "speech", "transcription", '
        'and the model has the endpoints "chat"'
    )


def test_check_verifies_the_proxy_of_each_provider(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = {
        "literal": "http://gate:canary@proxy.example:3128",
        "socks": "socks5://proxy.example:1080",
        "unset": "env:NO_SUCH_PROXY",
        "no-url": "env:ODD_PROXY",
        "missing": "file:no-such-file",
        "good": "http://proxy.example:3128",
        "all": "env",
    }
    monkeypatch.delenv("NO_SUCH_PROXY", raising=False)
    monkeypatch.setenv("ODD_PROXY", "http://gate:canary@proxy.example:3128/path")
    monkeypatch.setenv("HTTPS_PROXY", "socks5://gate:canary@proxy.example:1080")
    text = "".join(f'[providers.{name}]\nplugin = "fake"\nproxy = "{proxy}"\n' for name, proxy in proxies.items())
    terminal.config.write_text(text)
    result = terminal.run("check", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["faults"]
    assert {(fault["file"], fault["key"]) for fault in found} == {
        (str(terminal.config), "providers.literal.proxy"),
        (str(terminal.config), "providers.socks.proxy"),
    }
    terminal.config.write_text(text.replace("gate:canary@", "").replace("socks5:", "http:"))
    result = terminal.run("check", "--json")
    faults = {fault["key"]: fault["message"] for fault in json.loads(result.stdout)["faults"]}
    assert faults.pop("providers.missing.proxy").startswith("file ")
    assert faults == {
        "providers.unset.proxy": "environment variable NO_SUCH_PROXY is not set",
        'providers."no-url".proxy': "env:ODD_PROXY: a proxy's URL ends with its host or port",
        "providers.all.proxy": "HTTPS_PROXY: a proxy's URL begins with http:// or https://; other protocols are not"
        " supported",
    }
    assert "canary" not in result.output


def test_check_warns_if_the_environment_sets_no_proxy(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    terminal.config.write_text(terminal.config.read_text().replace('"fake"\n', '"fake"\nproxy = "env"\n', 1))
    found = terminal.json("check")
    warning = "providers.fake.proxy: neither HTTP_PROXY nor HTTPS_PROXY is set, so no proxy is used"
    assert (found["ok"], warning in found["warnings"]) == (True, True)


def test_check_finds_an_invalid_pepper(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_PEPPER", "short")
    terminal.config.write_text(terminal.config.read_text().replace("[store]", '[store]\npepper = "env:SHORT_PEPPER"'))
    assert "store.pepper: store.pepper (env:SHORT_PEPPER) is too short" in terminal.run("check").stderr


def test_serve_passes_the_settings_to_the_supervisor(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Settings, Any, bool]] = []

    def run(settings: Settings, *, config_path: Path | None, demo: bool, accept_empty_store: bool) -> int:
        assert not accept_empty_store
        calls.append((settings, config_path, demo))
        return 3

    supervisor = ModuleType("gateway.runtime.supervisor")
    supervisor.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gateway.runtime.supervisor", supervisor)
    assert terminal.run("serve").exit_code == 3
    assert terminal.run("serve", "--demo").exit_code == 3
    assert terminal.run("serve", "--demo", "--config", str(terminal.config)).exit_code == 3
    assert [(path, demo) for _, path, demo in calls] == [
        (terminal.config, False),
        (None, True),
        (terminal.config, True),
    ]
    assert calls[1][0].file == ""
    assert calls[2][0].demo
