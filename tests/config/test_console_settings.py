"""[console] and [mail] are checked with all other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.secret_references import secret_texts, unreadable
from gateway.config.tls_files import TlsFiles
from gateway.config.toml_reader import SettingsError
from gateway.console.snippets import api_url

CORP = {"issuer": "https://login.example.com", "client_id": "gateway", "client_secret": "env:OIDC_SECRET"}
TLS = {"tls_cert": "tls.crt", "tls_key": "tls.key"}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"console": {"public_url": "gateway.example.com"}}, "console.public_url"),
        ({"console": {"public_url": "https://me:secret@gateway.example.com"}}, "console.public_url"),
        ({"console": {"public_url": "https://gateway.example.com/?a=b"}}, "console.public_url"),
        ({"console": {"root_path": "gateway"}}, "console.root_path"),
        ({"console": {"root_path": "/gateway/"}}, "console.root_path"),
        ({"console": {"root_path": "/.*"}}, "console.root_path"),
        ({"console": {"signup": "maybe"}}, "console.signup"),
        ({"console": {"signup_group": "vip"}}, "console.signup_group"),
        ({"console": {"signup_domains": ["@Example.com"]}}, "console.signup_domains[0]"),
        ({"console": {"host": "0.0.0.0"}, "oidc": {"corp": CORP}}, "console.public_url"),
        ({"oidc": {"Corp": CORP}}, "oidc.Corp"),
        ({"oidc": {"a": CORP, "b": CORP}}, "oidc.b.issuer"),
        ({"oidc": {"corp": CORP | {"issuer": "http://login.example.com"}}}, "oidc.corp.issuer"),
        ({"oidc": {"corp": CORP | {"issuer": "https://login.example.com?a=b"}}}, "oidc.corp.issuer"),
        ({"oidc": {"corp": CORP | {"client_secret": "a literal"}}}, "oidc.corp.client_secret"),
        ({"oidc": {"corp": {name: CORP[name] for name in ("issuer", "client_id")}}}, "oidc.corp.client_secret"),
        ({"oidc": {"corp": CORP | {"scopes": ["a b"]}}}, "oidc.corp.scopes[0]"),
        ({"oidc": {"corp": CORP | {"grants": [{"claim": "a", "value": "b"}]}}}, "oidc.corp.grants[0]"),
        ({"mail": {"host": "smtp.example.com"}}, "mail.from"),
        ({"mail": {"host": "smtp.example.com", "from": "Gateway <gw@example.com>"}}, "mail.from"),
        ({"mail": {"host": "smtp.example.com", "from": "gw@example.com", "user": "me"}}, "mail.password"),
        ({"mail": {"password": "env:PASSWORD"}}, "mail.user"),
        ({"mail": {"user": "me", "password": "a literal"}}, "mail.password"),
        ({"mail": {"port": 0}}, "mail.port"),
    ],
)
def test_impossible_setting_is_named(table: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(table)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert "me:secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "warning"),
    [
        ({"oidc": {"corp": CORP}}, "console.public_url: missing"),
        ({"oidc": {"corp": CORP}, "console": {"public_url": "http://gw.example.com"}}, "without encryption"),
        ({"oidc": {"corp": CORP}, "console": {"public_url": "https://gw.test", "pages": False}}, "console.pages"),
        ({"console": {"signup": "open"}}, "console.signup: open needs [mail] or [oidc.NAME]"),
    ],
)
def test_setting_that_is_probably_not_meant_is_a_warning(table: dict[str, Any], warning: str) -> None:
    [found] = parse(table).warnings
    assert warning in found
    assert parse({"oidc": {"corp": CORP}, "console": {"public_url": "https://gw.test"}}).warnings == ()


def test_reload_refuses_a_client_secret_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse({"oidc": {"corp": CORP}})
    assert [problem.key for problem in unreadable(settings)] == ["oidc.corp.client_secret"]
    monkeypatch.setenv("OIDC_SECRET", "a secret of the test")
    assert unreadable(settings) == [] and secret_texts(settings) == ["a secret of the test"]
    assert settings.oidc_secret("corp").reveal() == "a secret of the test"


def test_links_begin_with_the_public_address() -> None:
    assert parse({}).console_url == "http://127.0.0.1:8081"
    own = {"console": {"host": "::1", "port": 8443, "root_path": "/gw"}}
    assert parse(own).console_url == "http://[::1]:8443/gw"
    assert parse({**own, "server": TLS}).console_url == "https://[::1]:8443/gw"
    assert parse({"console": {"public_url": "https://gw.example.com/ai/"}}).console_url == "https://gw.example.com/ai"


def test_address_of_the_api_follows_tls() -> None:
    assert api_url(parse({}), "gw.test") == "http://127.0.0.1:8080/v1"
    assert api_url(parse({"server": {**TLS, "host": "0.0.0.0"}}), "gw.test") == "https://gw.test:8080/v1"


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"server": {"tls_cert": "a"}}, "server.tls_key: missing: tls_cert needs it"),
        ({"server": {"tls_key": "a"}}, "server.tls_cert: missing: tls_key needs it"),
        ({"server": {"tls_client_ca": "a"}}, "server.tls_cert: missing: tls_client_ca needs it"),
        ({"console": {"tls_client_ca": "a"}}, "server.tls_cert: missing: tls_client_ca of [console] needs it"),
    ],
)
def test_files_of_tls_go_together(tables: dict[str, Any], fault: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(tables)
    assert fault in str(caught.value)


def test_files_of_tls_start_at_the_folder_of_the_configuration() -> None:
    settings = parse({"server": {**TLS, "tls_client_ca": "/ca.pem"}}, file="/etc/gateway/gateway.toml")
    assert settings.tls_files == TlsFiles(
        Path("/etc/gateway/tls.crt"), Path("/etc/gateway/tls.key"), Path("/ca.pem"), None
    )
    assert parse({}).tls_files is None


def test_password_of_the_mail_server_is_a_reference() -> None:
    settings = parse({"mail": {"host": "h", "from": "a@b", "user": "me", "password": "env:MAIL_PASSWORD"}})
    assert settings.mail_password is not None
    assert settings.mail_password.reference == "env:MAIL_PASSWORD"
    assert parse({}).mail_password is None
