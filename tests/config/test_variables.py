"""`env:NAME` in place of a value: how the text is read, and what is said of one that cannot be used."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gateway.config import price_settings, public_prices
from gateway.config.loader import parse
from gateway.config.public_tables import PublicTables
from gateway.config.secret import Secret
from gateway.config.secret_headers import SecretHeaders
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.setup.effective_configuration import effective_configuration

CANARY = "canary-0815"


def settings_of(text: str) -> Settings:
    return parse(tomllib.loads(text, parse_float=Decimal), file="gateway.toml")


def faults_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings_of(text)
    return [str(fault) for fault in caught.value.problems]


def value_of(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = settings[name] if isinstance(settings, dict) else getattr(settings, name)
    return settings


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("server.port", "8090", 8090),
        ("server.port", " 8090\n", 8090),
        ("server.host", "0.0.0.0", "0.0.0.0"),
        ("server.host", "10", "10"),
        ("server.proxy_protocol", "false", False),
        ("server.drain_timeout", "2", 2.0),
        ("server.drain_timeout", "2.5", 2.5),
        ("server.trusted_proxies", "10.0.0.0/8, 192.168.0.1", ("10.0.0.0/8", "192.168.0.1/32")),
        ("server.trusted_proxies", '["10.0.0.0/8"]', ("10.0.0.0/8",)),
        ("server.trusted_proxies", "", ()),
        ("server.cors_origins", "https://a.example,https://b.example", ("https://a.example", "https://b.example")),
        ("server.shutdown_delay", "auto", "auto"),
        ("server.shutdown_delay", "7", 7.0),
        ("server.limits.unknown_model_status", "404", 404),
        ("server.unknown_params", "drop", "drop"),
        ("store.data_dir", "env:LITERAL", "env:LITERAL"),
        ("console.signup_credit", "0.10", 100_000_000),
        ("console.public_url", "https://gw.example.com", "https://gw.example.com"),
        ("log.level", "debug", "debug"),
    ],
)
def test_text_of_a_variable_is_read_as_the_type_of_the_setting(
    monkeypatch: pytest.MonkeyPatch, key: str, text: str, value: Any
) -> None:
    monkeypatch.setenv("VALUE", text)
    section, _, name = key.rpartition(".")
    assert value_of(settings_of(f'[{section}]\n{name} = "env:VALUE"\n'), key) == value


MODEL = """
[providers.fake]
plugin = "env:PLUGIN"

[models.m]
provider = "env:PROVIDER"
endpoints = ["env:ENDPOINT", "embeddings"]
created = "env:CREATED"
continue_cut = "env:CUT"
images_like = "env:LIKE"
price = { input = "env:INPUT", output = 2, tiers = [{ above_input_tokens = "env:ABOVE", input = 3 }] }
"""


def test_variables_stand_in_tables_lists_and_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "PLUGIN": "fake", "PROVIDER": "fake", "ENDPOINT": "chat", "CREATED": "2026-11-21", "CUT": "true",
        "LIKE": "gpt-4o", "INPUT": "0.25", "ABOVE": "1000",
    }  # fmt: skip
    for name, text in texts.items():
        monkeypatch.setenv(name, text)
    settings = settings_of(MODEL)
    model = settings.models["m"]
    assert settings.providers["fake"].plugin == "fake"
    assert model.endpoints == ("chat", "embeddings")
    assert model.created == 1_795_219_200
    assert (model.continue_cut, model.images_like) == (True, "gpt-4o")
    assert model.price is not None
    assert model.price[0].amounts()["input"] == 250_000_000
    assert model.price[0].tiers[0].above_input_tokens == 1000


def test_variable_may_name_a_public_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRICE", "openai/gpt-5-mini")
    settings = settings_of('[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\nprice = "env:PRICE"\n')
    assert (
        settings.models["m"].price
        == settings_of('[providers.p]\nplugin = "fake"\n[models.m]\nprovider = "p"\nprice = "openai/gpt-5-mini"\n')
        .models["m"]
        .price
    )


class Options(Struct, kw_only=True):
    """As a plugin declares them."""

    base_url: str = ""
    retries: int = 0
    regions: tuple[str, ...] = ()
    api_key: Secret | None = None
    headers: SecretHeaders = {}
    extra: dict[str, Any] = {}


def test_options_of_providers_are_read_where_their_types_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "http://127.0.0.1:9000/v1")
    monkeypatch.setenv("RETRIES", "3")
    monkeypatch.setenv("REGIONS", "eu,us")
    settings = settings_of(
        """
[providers.p]
plugin = "fake"
base_url = "env:URL"
retries = "env:RETRIES"
regions = "env:REGIONS"
api_key = "env:KEY"
headers = { x-key = "env:HEADER" }
extra = { note = "env:NOTE" }
"""
    )
    options = settings.provider_options("p", Options)
    assert (options.base_url, options.retries, options.regions) == ("http://127.0.0.1:9000/v1", 3, ("eu", "us"))
    assert options.api_key is not None
    assert options.api_key.reference == "env:KEY"
    assert options.headers["x-key"].reference == "env:HEADER"
    assert options.extra == {"note": "env:NOTE"}
    shown = effective_configuration(settings)
    assert 'base_url = "env:URL"' in shown


REFERENCES = """
[store]
url = "env:A"
password = "env:B"
pepper = "env:C"
previous_pepper = "env:D"
[database]
url = "env:E"
[mail]
host = "mail.example.com"
from = "a@example.com"
user = "u"
password = "env:F"
[notify]
webhook = "env:G"
secrets = ["env:H"]
[oidc.corp]
issuer = "https://login.example.com"
client_id = "env:ID"
client_secret = "env:I"
[providers.p]
plugin = "fake"
proxy = "env:J"
credentials = [{ api_key = "env:K" }]
"""


def test_references_keep_their_meaning_and_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ID", "gateway")
    settings = settings_of(REFERENCES)
    assert settings.store.url == "env:A"
    assert settings.notify.secrets == ("env:H",)
    assert settings.oidc["corp"].client_id == "gateway"
    assert settings.oidc["corp"].client_secret == "env:I"
    proxy = settings.providers["p"].proxy
    assert proxy is not None
    assert proxy.url == Secret.parse("env:J")
    assert settings.providers["p"].credentials == ({"api_key": "env:K"},)
    shown = effective_configuration(settings)
    for name in "ABCDEFGHIJK":
        assert f'"env:{name}"' in shown
    assert 'client_id = "gateway"' in shown


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        ('[server]\nport = "env:VALUE"', None, "server.port: environment variable VALUE is not set"),
        ('[server]\nport = "env:NOT-A-NAME"', None, "server.port: env: wants the name of an environment variable"),
        ('[server]\nport = "env:"', None, "server.port: env: wants the name of an environment variable"),
        ('[server]\nport = "env:VALUE"', CANARY, "server.port: environment variable VALUE: expected int, got str"),
        ('[server]\nport = "env:VALUE"', "70000", "server.port: environment variable VALUE: expected int <= 65535"),
        ('[server]\nport = "env:VALUE"', "1\nx = 2", "server.port: environment variable VALUE: expected int, got str"),
        ('[log]\nlevel = "env:VALUE"', CANARY, "log.level: environment variable VALUE: expected one of"),
        (
            '[server]\ntags = ["a", "env:VALUE"]',
            CANARY.upper(),
            "server.tags[1]: environment variable VALUE: expected str mat",
        ),
        ('[server]\ntags = "env:VALUE"', CANARY.upper(), "server.tags: environment variable VALUE: expected str match"),
        ('[server]\ntags = "env:VALUE"', '["env:VALUE"]', "server.tags: environment variable VALUE: expected str matc"),
        ('[console]\nsignup_credit = "env:VALUE"', "-0.0815", "console.signup_credit: environment variable VALUE: ***"),
        ('[server]\nlimits = "env:VALUE"', "{}", "server.limits: expected a table, got a string"),
        ('[notify]\nsecrets = "env:VALUE"', "a", "notify.secrets: expected"),
    ],
)
def test_value_that_cannot_be_used_is_named_and_hidden(
    monkeypatch: pytest.MonkeyPatch, line: str, text: str | None, message: str
) -> None:
    monkeypatch.delenv("VALUE", raising=False)
    if text is not None:
        monkeypatch.setenv("VALUE", text)
    fault = faults_of(f"{line}\n")[0]
    assert fault.startswith(f"gateway.toml: {message}")
    assert CANARY not in fault.lower()
    assert "0.0815" not in fault


@pytest.mark.parametrize(
    ("lines", "key", "text"),
    [
        ('[models.m]\nprovider = "env:VALUE"\nfree = true', "models.m.provider", CANARY),
        ('[console]\nsignup_group = "env:VALUE"', "console.signup_group", CANARY),
        ('[models.m]\nprovider = "fake"\nfree = true\ngroups = "env:VALUE"', "models.m.groups[1]", f"default,{CANARY}"),
        ('[models.m]\nprovider = "fake"\nfree = true\ngroups = ["env:VALUE"]', "models.m.groups[0]", CANARY),
    ],
)
def test_value_that_names_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch, lines: str, key: str, text: str) -> None:
    monkeypatch.setenv("VALUE", text)
    fault = faults_of(f'[providers.fake]\nplugin = "fake"\n{lines}\n')[0]
    assert fault.startswith(f"gateway.toml: {key}: environment variable VALUE: no ")
    assert "'***'" in fault
    assert CANARY not in fault


def test_amount_is_hidden_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALUE", "-8_150_815")
    assert "8150815" not in faults_of('[console]\nsignup_credit = "env:VALUE"\n')[0]


@pytest.mark.parametrize("value", ["nan", "-nan"])
def test_what_is_no_number_is_a_problem_like_others(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VALUE", value)
    for written in (value, '"env:VALUE"'):
        assert "expected seconds" in faults_of(f"[server]\nshutdown_delay = {written}\n")[0]


def test_variable_may_name_a_price_of_a_table_of_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALUE", "openai/gpt-5-mini")
    seen: list[PublicTables] = []
    real = public_prices.public_price

    def noted(name: str, tables: PublicTables) -> Any:
        seen.append(tables)
        return real(name, tables)

    monkeypatch.setattr(price_settings, "public_price", noted)
    settings_of(
        f'[store]\ndata_dir = "{tmp_path}"\n[providers.p]\nplugin = "fake"\n'
        '[models.m]\nprovider = "p"\nprice = "env:VALUE"\n'
    )
    assert seen
    assert all(tables.folder.startswith(str(tmp_path)) for tables in seen)


def test_values_are_shown_with_their_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORT", "8090")
    monkeypatch.setenv("PROXIES", "10.0.0.0/8")
    shown = tomllib.loads(
        effective_configuration(settings_of('[server]\nport = "env:PORT"\ntrusted_proxies = "env:PROXIES"\n'))
    )
    assert shown["server"]["port"] == 8090
    assert shown["server"]["trusted_proxies"] == ["10.0.0.0/8"]
