"""`gateway config`: what is in effect, what a reload would change, and a schema that editors check a file with."""

from __future__ import annotations

import asyncio
import json
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from msgspec import Struct, structs

from gateway.config.loader import DEMO, load, parse
from gateway.config.settings import SECTIONS, Settings
from gateway.config.toml_reader import SettingsError, fields_of
from gateway.config.variables import takes_variable
from gateway.runtime.console_requests import LocalRequests
from gateway.runtime.local_socket import LocalServer
from gateway.services.services import AdminServices

from .conftest import Terminal

ROOT = Path(__file__).parents[2]
CANARY = "config-canary-31bc"
FURTHER = """
[server]
port = 8090
tags = ["team"]

[server.limits]
max_json_body = 2048

[mail]
host = "127.0.0.1"
from = "gateway@example.com"
user = "gateway"
password = "env:MAIL_PASSWORD"

[oidc.company]
label = "Company"
issuer = "https://id.example.com"
client_id = "gateway"
client_secret = "env:OIDC_SECRET"

[providers.up]
plugin = "openai"
base_url = "https://api.example.com/v1"
headers = { "x-team" = "a" }
credentials = [{ api_key = "env:ONE" }, { api_key = "env:TWO" }]

[models."big/one"]
provider = "up"
model = "one"
price = [
    { input = 1.25, output = 10, currency = "USD" },
    { input = "0.000000001", output = 2, effective_from = 2027-01-01 },
]
created = 2026-11-21
shutdown_date = 2027-12-31
fallbacks = ["other"]
continue_cut = true

[models.drawn]
provider = "up"
endpoints = ["images"]
price = { per_image = { "*" = { low = 0.01, "*" = 0.04 } } }

[groups.cheap]
price_factor = 0.000000001
max_session_cost = 0.5
"""


def plain(value: Any) -> Any:
    """A document of TOML as editors check it."""
    match value:
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case date() | datetime():
            return value.isoformat()
        case _:
            return value


def of(settings: Settings) -> Settings:
    """What is left of two settings when their files are not compared."""
    return structs.replace(settings, file="")


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """The local socket of a console process that uses these settings."""
    requests = LocalRequests(cast(AdminServices, SimpleNamespace(settings=settings)))
    server, loop = LocalServer(settings.data_dir, requests.answer), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        requests.close()


@pytest.fixture
def full(terminal: Terminal) -> Terminal:
    """A configuration with much in it."""
    terminal.config.write_text(terminal.config.read_text() + FURTHER)
    return terminal


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """What `gateway config schema` prints."""
    document = json.loads(Terminal(Path()).ok("config", "schema"))
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


# Show -----------------------------------------------------------------------------------------------------------------


def test_what_is_shown_is_a_configuration_of_the_same_settings(full: Terminal, tmp_path: Path) -> None:
    text = full.ok("config", "show")
    shown = tmp_path / "shown.toml"
    shown.write_text(text)
    assert of(load(shown)) == of(load(full.config))
    assert "header_timeout = 10.0" in text  # a default
    assert full.json("config", "show") == tomllib.loads(text)


def test_literal_credentials_are_not_shown(terminal: Terminal) -> None:
    terminal.config.write_text('[providers.up]\nplugin = "openai"\nproject = "sk-canary-0123456789abcdef"\n')
    assert "canary" not in terminal.ok("config", "show")


def test_wrong_configuration_is_refused_with_file_and_key(terminal: Terminal) -> None:
    terminal.config.write_text("[server]\nprot = 1\n")
    assert "server.prot: unknown key" in terminal.refused("config", "show")


# Diff -----------------------------------------------------------------------------------------------------------------


def test_file_as_the_gateway_runs_it_has_no_difference(full: Terminal) -> None:
    with running(load(full.config)):
        assert full.ok("config", "diff") == ""
        assert full.json("config", "diff") == {"changed": False, "diff": []}


def test_changed_value_is_a_difference_to_the_running_gateway(full: Terminal) -> None:
    with running(load(full.config)):
        full.config.write_text(full.config.read_text().replace("port = 8090", "port = 8091"))
        result = full.run("config", "diff")
    assert result.exit_code == 1
    changed = [line for line in result.stdout.splitlines() if line.startswith(("-", "+"))]
    assert changed == ["--- running", "+++ file", "-port = 8090", "+port = 8091"]


def test_difference_without_a_running_gateway_is_refused(terminal: Terminal) -> None:
    assert "no gateway with a console answers" in terminal.refused("config", "diff")


# Schema ---------------------------------------------------------------------------------------------------------------


def test_schema_accepts_configurations(full: Terminal, schema: Draft202012Validator) -> None:
    for text in (
        full.config.read_text(),
        (ROOT / "conf" / "gateway.toml").read_text(),
        DEMO,
        full.ok("config", "show"),
    ):
        assert [error.message for error in schema.iter_errors(plain(tomllib.loads(text)))] == []


@pytest.mark.parametrize(
    "document",
    [
        {"sever": {}},
        {"server": {"prot": 1}},
        {"server": {"port": 70_000}},
        {"server": {"port": "8080"}},
        {"server": {"shutdown_delay": "later"}},
        {"store": {"keep_lines": "2 days"}},
        {"log": {"level": "loud"}},
        {"groups": {"a": {"price_factor": 1001}}},
        {"providers": {"a": {}}},
        {"providers": {"a": {"plugin": "openai", "base_ur": "http://127.0.0.1"}}},
        {"providers": {"a": {"plugin": "openai", "api_key": "sk-literal"}}},
        {"providers": {"a": {"plugin": "openai", "preset": "no-such"}}},
        {"providers": {"a": {"plugin": "openai", "credentials": [{"api_kye": "env:A"}]}}},
        {"models": {"m": {"price": {"input": -1}}}},
        {"models": {"m": {"price": {"inptu": 1}}}},
        {"models": {"m": {"price": [{"input": 1, "tiers": {"flex": {"inptu": 1}}}]}}},
        {"models": {"m": {"targets": [{"model": "a"}]}}},
        {"models": {"m": {"shutdown_date": "soon"}}},
        {"models": {"m": {"continue_cut": "always"}}},
        {"models": {"m": {"aliases": "one"}}},
    ],
    ids=str,
)
def test_schema_refuses_what_the_gateway_refuses(schema: Draft202012Validator, document: Mapping[str, Any]) -> None:
    assert not schema.is_valid(document)
    if "providers" not in document:  # whose options the plugin reads
        with pytest.raises(SettingsError):
            parse(json.loads(json.dumps(document), parse_float=Decimal))


def test_schema_knows_the_keys_of_every_section_and_their_defaults(schema: Draft202012Validator) -> None:
    document = cast("dict[str, Any]", schema.schema)
    assert document["$defs"]["Server"]["properties"]["drain_timeout"]["default"] == 30.0
    assert set(document["properties"]) == {
        "server", "metrics", "store", "database", "console", "oidc", "mail", "notify", "providers", "models", "groups",
        "plugins", "hooks", "log", "telemetry", "batches", "files", "include",
    }  # fmt: skip


def leaves(kind: type[Struct], key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The fields of a section and of the sections in it, with their types."""
    for name, field in fields_of(kind).items():
        of_field = field.type
        if isinstance(of_field, type) and issubclass(of_field, Struct):
            yield from leaves(of_field, (*key, name))
        else:
            yield (*key, name), of_field


def test_schema_takes_a_variable_for_each_value_that_the_gateway_takes_it_for(schema: Draft202012Validator) -> None:
    number = 0
    for section, field in fields_of(Settings).items():
        if section in SECTIONS and isinstance(field.type, type) and issubclass(field.type, Struct):
            for path, kind in leaves(field.type):
                document: Any = "env:NAME"
                for name in reversed((section, *path)):
                    document = {name: document}
                number += takes_variable(kind)
                assert schema.is_valid(document) or not takes_variable(kind), path
    assert number > 80
    model = {"provider": "env:P", "free": "env:F", "groups": ["env:G"], "price": {"input": "env:I"}}
    assert schema.is_valid({"models": {"m": model}})
    assert schema.is_valid({"providers": {"p": {"plugin": "fake", "fetch_media": "env:F"}}})
    assert not schema.is_valid({"server": {"port": "env:1X"}})
    assert not schema.is_valid({"server": {"limits": "env:LIMITS"}})


# Several files, and values from the environment -----------------------------------------------------------------------


def test_values_of_all_files_and_of_the_environment_are_shown_and_compared(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = terminal.config.parent / "conf.d"
    folder.mkdir()
    text = terminal.config.read_text()
    terminal.config.write_text('include = ["conf.d/*.toml"]\n' + text)
    part = folder / "10.toml"
    part.write_text(
        '[groups.extra]\nrpm = "env:EXTRA_RPM"\n[mail]\nuser = "env:MAIL_USER"\npassword = "env:MAIL_PASSWORD"\n'
    )
    for name, value in (("EXTRA_RPM", "7"), ("MAIL_USER", "postmaster"), ("MAIL_PASSWORD", CANARY)):
        monkeypatch.setenv(name, value)
    shown = terminal.json("config", "show")
    assert shown["groups"]["extra"]["rpm"] == 7
    assert shown["mail"]["user"] == "postmaster"
    assert shown["mail"]["password"] == "env:MAIL_PASSWORD"
    assert CANARY not in terminal.ok("config", "show")
    with running(load(terminal.config)):
        assert terminal.ok("config", "diff") == ""
        part.write_text(part.read_text().replace('"env:EXTRA_RPM"', "8"))
        changed = [line for line in terminal.run("config", "diff").stdout.splitlines() if line.startswith(("-r", "+r"))]
        assert changed[-2:] == ["-rpm = 7", "+rpm = 8"]
    part.write_text("[groups.extra]\nrmp = 1\n")
    assert f"{part}: groups.extra.rmp: unknown key" in terminal.refused("config", "show")
    assert f"{part}: groups.extra.rmp: unknown key" in terminal.run("check").stderr


def test_names_of_files_and_fields_are_shown(terminal: Terminal) -> None:
    terminal.config.write_text(terminal.config.read_text() + '[server]\ntls_cert = "a.crt"\ntls_key = "a.key"\n')
    assert terminal.json("config", "show")["server"]["tls_key"] == "a.key"
