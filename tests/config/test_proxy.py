"""What `proxy` may say, what it comes to, and which requests take a proxy; a URL with a password is never quoted."""

from __future__ import annotations

import base64
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.config.loader import parse
from gateway.config.proxy import Proxies, Proxy, ProxyError, ProxySetting
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError

VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def settings_of(proxy: str, *, demo: bool = False, more: str = "") -> Settings:
    text = f"[providers.p]\nplugin = 'fake'\nproxy = {proxy}\n{more}"
    return parse(tomllib.loads(text, parse_float=Decimal), file="gateway.toml", demo=demo)


def fault_of(proxy: str, *, more: str = "") -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(proxy, more=more)
    [fault] = caught.value.problems
    return str(fault)


# URLs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/network.md#http-proxies-3")
@pytest.mark.parametrize(
    ("text", "url", "authorization"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128", ""),
        ("https://proxy.example:3129/", "https://proxy.example:3129", ""),
        ("http://proxy.example", "http://proxy.example:80", ""),
        ("https://proxy.example", "https://proxy.example:443", ""),
        ("HTTP://Proxy.Example:3128", "http://proxy.example:3128", ""),
        ("http://[::1]:3128", "http://[::1]:3128", ""),
        ("http://10.0.0.1:3128", "http://10.0.0.1:3128", ""),
        ("http://user:word@proxy.example:3128", "http://proxy.example:3128", basic("user:word")),
        ("http://user@proxy.example:3128", "http://proxy.example:3128", basic("user:")),
        ("http://us%40er:w%3Ao%2Fr%C3%A9@proxy.example:1", "http://proxy.example:1", basic("us@er:w:o/ré")),
    ],
)
def test_proxy_url_is_split_into_address_and_credentials(text: str, url: str, authorization: str) -> None:
    proxy = Proxy.parse(text)
    assert (proxy.url, proxy.authorization) == (url, authorization)


@pytest.mark.parametrize(
    "text",
    [
        "socks5://u:canary@proxy.example:1080",
        "ftp://u:canary@proxy.example",
        "http://u:canary@proxy.example:port",
        "http://u:canary@proxy.example:99999",
        "http://u:canary@proxy.example:0",
        "http://u:canary@proxy.example:3128/path",
        "http://u:canary@proxy.example:3128?query",
        "http://u:canary@proxy.example:3128#fragment",
        "http://u:canary@",
        "http://u:canary@pro xy:3128",
        "http://u:canary@proxy\r\nX: y:3128",
        "http://u:canary@[::1:3128",
        "canary",
        "",
    ],
)
def test_invalid_proxy_url_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ProxyError) as caught:
        Proxy.parse(text)
    assert "canary" not in str(caught.value)
    assert "proxy.example" not in str(caught.value)


def test_credentials_are_not_shown_by_repr() -> None:
    setting = ProxySetting.parse("http://user:canary@proxy.example:3128", literals=True)
    settings = settings_of("'http://user:canary@proxy.example:3128'", demo=True)
    shown = repr((setting, setting.resolve(), settings))
    assert "canary" not in shown
    assert basic("user:canary") not in shown


# The setting ---------------------------------------------------------------------------------------------------------


def test_provider_has_no_proxy_unless_it_is_configured() -> None:
    settings = parse({"providers": {"p": {"plugin": "fake"}}}, file="gateway.toml")
    assert settings.providers["p"].proxy is None


def test_proxy_setting_is_not_passed_to_the_plugin_options() -> None:
    provider = settings_of("'http://proxy.example:3128'", more="base_url = 'x'\n").providers["p"]
    assert provider.options == {"base_url": "x"}
    assert provider.proxy is not None
    proxy = Proxy("http://proxy.example:3128")
    assert provider.proxy.resolve() == Proxies(proxy, proxy)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'http://u:canary@proxy.example:3128'", "a proxy's URL with credentials is given as env:NAME or file:PATH"),
        ("'http://u@proxy.example:3128'", "a proxy's URL with credentials is given as env:NAME or file:PATH"),
        ("'socks5://proxy.example:1080'", "a proxy's URL begins with http:// or https://; other protocols"),
        ("'http://proxy.example:3128/path'", "a proxy's URL ends with its host or port"),
        ("'http://proxy.example:none'", "not a URL: expected http://HOST:PORT or https://HOST:PORT"),
        ("'environment'", 'expected "env", http://HOST:PORT, https://HOST:PORT, env:NAME or file:PATH'),
        ("''", 'expected "env", http://HOST:PORT'),
        ("true", 'expected "env", http://HOST:PORT'),
        ("'env:NOT-A-NAME'", "env: wants the name of an environment variable"),
        ("'file:'", "file: wants a path"),
    ],
)
def test_proxy_error_names_file_and_key(value: str, message: str) -> None:
    fault = fault_of(value)
    assert fault.startswith(f"gateway.toml: providers.p.proxy: {message}")
    assert "canary" not in fault


def test_literal_credentials_are_accepted_in_demo_mode_only() -> None:
    setting = settings_of("'http://u:canary@proxy.example:3128'", demo=True).providers["p"].proxy
    assert setting is not None
    assert setting.resolve().http == Proxy("http://proxy.example:3128", basic("u:canary"))


@pytest.mark.parametrize("key", ["proxy", "plugin"])
def test_option_for_all_credentials_is_refused_in_a_single_one(key: str) -> None:
    fault = fault_of("'env'", more=f"credentials = [{{}}, {{ {key} = 'http://proxy.example' }}]")
    assert fault == (
        f"gateway.toml: providers.p.credentials[1].{key}: {key} is set once for all credentials of a provider"
    )


# References ----------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/network.md#http-proxies-4")
def test_url_comes_from_a_variable_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = Proxy("https://proxy.example:3128", basic("u:word"))
    monkeypatch.setenv("CORPORATE_PROXY", "https://u:word@proxy.example:3128")
    assert ProxySetting.parse("env:CORPORATE_PROXY").resolve() == Proxies(expected, expected)
    (tmp_path / "proxy").write_text("https://u:word@proxy.example:3128\n")
    setting = ProxySetting.parse("file:proxy", folder=tmp_path)
    assert setting.file == tmp_path / "proxy"
    assert setting.resolve() == Proxies(expected, expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "environment variable CORPORATE_PROXY is not set"),
        ("", "environment variable CORPORATE_PROXY is empty"),
        ("socks5://u:canary@h:1", "env:CORPORATE_PROXY: a proxy's URL begins with http:// or https://"),
        ("http://u:canary@h:1/canary", "env:CORPORATE_PROXY: a proxy's URL ends with its host or port"),
    ],
)
def test_reference_to_an_invalid_url_is_named_without_its_text(
    value: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("CORPORATE_PROXY", value)
    with pytest.raises(ProxyError) as caught:
        ProxySetting.parse("env:CORPORATE_PROXY").resolve()
    assert str(caught.value).startswith(message)
    assert "canary" not in str(caught.value)


# The environment -----------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/network.md#http-proxies-5")
def test_environment_sets_a_proxy_per_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ProxySetting.parse("env").resolve() == Proxies()
    monkeypatch.setenv("HTTPS_PROXY", "http://u:word@secure.example:3128")
    assert ProxySetting.parse("env").resolve() == Proxies(None, Proxy("http://secure.example:3128", basic("u:word")))
    monkeypatch.setenv("HTTP_PROXY", "upper.example:3128")
    monkeypatch.setenv("http_proxy", "lower.example:3128")  # wins, and needs no scheme
    assert ProxySetting.parse("env").resolve().http == Proxy("http://lower.example:3128")


def test_invalid_proxy_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5h://u:canary@h:1")
    with pytest.raises(ProxyError) as caught:
        ProxySetting.parse("env").resolve()
    assert str(caught.value).startswith("HTTPS_PROXY: a proxy's URL begins with http:// or https://")
    assert "canary" not in str(caught.value)


@pytest.mark.holds("operations/network.md#http-proxies-5")
@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "direct"),
    [
        ("", "api.example.com", 443, False),
        ("*", "api.example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "badexample.com", 443, False),
        (".example.com", "api.example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("EXAMPLE.com", "API.example.COM", 443, True),
        ("localhost, 10.0.0.7 example.com", "10.0.0.7", 8000, True),
        ("localhost,,example.com", "api.example.org", 443, False),
        ("example.com:8000", "example.com", 8000, True),
        ("example.com:8000", "api.example.com", 8000, False),
        ("example.com:8000", "example.com", 443, False),
        ("::1", "::1", 8000, True),
        ("[::1]", "::1", 8000, True),
        ("10.0.0.0/8", "10.0.0.7", 8000, False),
    ],
)
def test_hosts_and_domains_of_no_proxy_are_reached_directly(
    no_proxy: str, host: str, port: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    found = ProxySetting.parse("env").resolve().proxy_for("https", host, port)
    assert (found is None) == direct


def test_named_proxy_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    proxies = ProxySetting.parse("http://proxy.example:3128").resolve()
    for scheme in ("http", "https"):
        assert proxies.proxy_for(scheme, "api.example.com", 443) == Proxy("http://proxy.example:3128")
