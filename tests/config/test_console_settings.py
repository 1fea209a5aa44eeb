"""[console] and [mail] are checked with all other settings."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError


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


def test_links_begin_with_the_public_address() -> None:
    assert parse({}).console.base_url == "http://127.0.0.1:8081"
    own = parse({"console": {"host": "::1", "port": 8443, "root_path": "/gw"}})
    assert own.console.base_url == "http://[::1]:8443/gw"
    assert (
        parse({"console": {"public_url": "https://gw.example.com/ai/"}}).console.base_url == "https://gw.example.com/ai"
    )


def test_password_of_the_mail_server_is_a_reference() -> None:
    settings = parse({"mail": {"host": "h", "from": "a@b", "user": "me", "password": "env:MAIL_PASSWORD"}})
    assert settings.mail_password is not None
    assert settings.mail_password.reference == "env:MAIL_PASSWORD"
    assert parse({}).mail_password is None
