"""Old names of keys in [server]: each works for one release and gives a warning."""

from __future__ import annotations

import tomllib
from decimal import Decimal

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError


def settings_of(server: str) -> Settings:
    return parse(tomllib.loads(f"[server]\n{server}", parse_float=Decimal), file="gateway.toml")


def faults_of(server: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings_of(server)
    return [str(fault) for fault in caught.value.problems]


def test_new_names_give_no_warning() -> None:
    settings = settings_of('keepalive_timeout = 7\nresponse_headers = ["cost", "model"]')
    assert settings.server.keepalive_timeout == 7
    assert settings.server.response_headers == ("cost", "model")
    assert settings.warnings == ()


def test_old_timeout_name_sets_the_new_one_and_gives_a_warning() -> None:
    settings = settings_of("idle_timeout = 7.5")
    assert settings.server.keepalive_timeout == 7.5
    [warning] = settings.warnings
    assert warning.startswith("gateway.toml: server.idle_timeout: an old name")
    assert warning.endswith("use server.keepalive_timeout")


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("debug_headers = true", ("model", "provider", "attempts")),
        ("cost_header = true", ("cost",)),
        ("cost_header = false", ()),
        ("debug_headers = true\ncost_header = true", ("model", "provider", "attempts", "cost")),
        ('cost_header = true\nresponse_headers = ["model"]', ("model", "cost")),
        ('cost_header = true\nresponse_headers = ["cost"]', ("cost",)),
        ('debug_headers = false\nresponse_headers = ["model"]', ("model",)),
    ],
)
def test_old_header_switch_adds_its_headers(text: str, headers: tuple[str, ...]) -> None:
    settings = settings_of(text)
    assert settings.server.response_headers == headers
    assert [warning.split(": ")[1] for warning in settings.warnings] == [
        f"server.{old}" for old in ("debug_headers", "cost_header") if old in text
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("idle_timeout = 0.0", "server.idle_timeout: expected float > 0.0"),
        ("idle_timeout = 5\nkeepalive_timeout = 5", "server.idle_timeout: the old name of keepalive_timeout, which is"),
        ("debug_headers = 1", "server.debug_headers: expected bool, got int"),
        ('response_headers = ["price"]', "server.response_headers[0]: expected one of"),
        ('response_headers = "cost"', "server.response_headers: expected array, got str"),
        ('cost_header = true\nresponse_headers = "cost"', "server.response_headers: expected array, got str"),
    ],
)
def test_wrong_value_is_one_error_under_the_name_in_the_file(text: str, fault: str) -> None:
    [found] = faults_of(text)
    assert found.startswith(f"gateway.toml: {fault}")


def test_server_section_that_is_not_a_table_is_one_error() -> None:
    with pytest.raises(SettingsError) as caught:
        parse({"server": True}, file="gateway.toml")
    assert [str(fault) for fault in caught.value.problems] == ["gateway.toml: server: expected a table, got a boolean"]
