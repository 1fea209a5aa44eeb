"""`gateway check` finds what would stop `gateway serve` later: constructors, literal credentials, modes of files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from gateway import Chat, Provider, Secret, hookimpl
from gateway.plugins import loader
from gateway.plugins.loader import PluginReport
from tests.certificate_files import CertificateFiles

from .conftest import Terminal

CANARY = "check-canary-77aa"


def faults_of(terminal: Terminal, *words: str) -> dict[str, str]:
    result = terminal.run("check", "--json", *words)
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return {fault["key"]: fault["message"] for fault in document["faults"]}


def write(terminal: Terminal, text: str) -> None:
    """Add to the configuration."""
    terminal.config.write_text(terminal.config.read_text() + text)


@pytest.mark.parametrize(
    "url", ["api.example.com/v1", "ftp://api.example.com", "https://", "https://u:p@api.example.com"]
)
def test_base_url_that_is_no_address_is_a_fault(terminal: Terminal, url: str) -> None:
    write(terminal, f'[providers.up]\nplugin = "openai"\nbase_url = "{url}"\n')
    assert faults_of(terminal)["providers.up"] == "base_url must be an http or https address without credentials"
    assert "providers.up" in faults_of(terminal, "--offline")


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "api-key", "x-goog-api-key", "Cookie", "X-Auth-Token"])
def test_literal_credential_in_headers_is_a_fault(terminal: Terminal, name: str) -> None:
    write(
        terminal,
        '[providers.up]\nplugin = "openai"\nbase_url = "https://api.example.com"\n'
        f'headers = {{ {name} = "{CANARY}" }}\n',
    )
    result = terminal.run("check", "--json")
    (key,) = {fault["key"] for fault in json.loads(result.stdout)["faults"]}
    assert key.startswith("providers.up.headers.")
    assert CANARY not in result.output


def test_headers_may_be_references_and_other_headers_literals(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UP_TOKEN", CANARY)
    write(
        terminal,
        '[providers.up]\nplugin = "openai"\nbase_url = "https://api.example.com"\n'
        'headers = { Authorization = "env:UP_TOKEN", X-Title = "mine" }\n',
    )
    assert faults_of(terminal) == {}
    monkeypatch.delenv("UP_TOKEN")
    assert faults_of(terminal) == {"providers.up.headers.Authorization": "environment variable UP_TOKEN is not set"}


def test_files_that_others_may_read_or_change_are_named(terminal: Terminal, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("sk-something")
    write(terminal, f'[providers.up]\nplugin = "anthropic"\napi_key = "file:{secret}"\n')
    terminal.config.chmod(0o666)
    secret.chmod(0o644)
    found = terminal.json("check")["warnings"]
    assert any(text.startswith(f"{terminal.config}: other users can change it (mode 0666)") for text in found)
    assert any(text.startswith("providers.up.api_key: other users can read or change") for text in found)
    terminal.config.chmod(0o600)
    secret.chmod(0o600)
    assert not any("other users" in text for text in terminal.json("check")["warnings"])


def test_offline_check_needs_no_secret_and_no_store(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    terminal.config.write_text(
        '[store]\nurl = "redis://127.0.0.1:1"\n[providers.c]\nplugin = "anthropic"\napi_key = "env:NO_SUCH_KEY"\n'
        'proxy = "env:NO_SUCH_PROXY"\n[models.m]\nprovider = "c"\nfree = true\n'
    )
    assert set(faults_of(terminal)) == {"providers.c.api_key", "providers.c.proxy", "store.url"}
    assert faults_of(terminal, "--offline") == {}
    write(terminal, '[models.n]\nprovider = "d"\nfree = true\n')
    assert set(faults_of(terminal, "--offline")) == {"models.n.provider"}


class Babbling(Provider, Chat):
    """Its constructor quotes its key."""

    name = "babbling"

    class Options(Struct, frozen=True):
        api_key: Secret

    def __init__(self, options: Any, upstream: Any) -> None:
        raise ValueError(f"cannot use {options.api_key.reveal()} at redis://:hunter2@host")

    def stream_chat(self, request: Any, target: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def babbling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plugins beside the built-in ones: one quotes a secret in its constructor, one while it loads."""
    module = ModuleType("babbling")
    module.register_providers = hookimpl(lambda register: register(Babbling))  # type: ignore[attr-defined]

    def broken() -> ModuleType:
        raise RuntimeError(f"no access with {CANARY} to redis://:hunter2@host, password=hunter3")

    reports = [
        (PluginReport(name="babbling", version="0", source="test"), lambda: module),
        (PluginReport(name="broken", version="0", source="test"), broken),
    ]
    monkeypatch.setattr(loader, "_third_party", lambda: iter(reports))
    monkeypatch.setenv("BABBLE_KEY", CANARY)


class Starting(Provider, Chat):
    """Its start fails until a file is there; it notes what was called."""

    name = "starting"
    events: ClassVar[list[str]] = []

    class Options(Struct, frozen=True):
        model_file: str

    async def start(self) -> None:
        self.events.append("start")
        if not Path(self.options.model_file).exists():
            raise FileNotFoundError(f"no model in {self.options.model_file}")

    async def close(self) -> None:
        self.events.append("close")

    def stream_chat(self, request: Any, target: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A plugin whose provider opens a file when it starts; returns what was called."""
    module = ModuleType("starting")
    module.register_providers = hookimpl(lambda register: register(Starting))  # type: ignore[attr-defined]
    report = PluginReport(name="starting", version="0", source="test")
    monkeypatch.setattr(loader, "_third_party", lambda: iter([(report, lambda: module)]))
    monkeypatch.setattr(Starting, "events", [])
    return Starting.events


def test_live_check_starts_and_closes_each_provider(terminal: Terminal, tmp_path: Path, starting: list[str]) -> None:
    model = tmp_path / "model.bin"
    write(terminal, f'[providers.local]\nplugin = "starting"\nmodel_file = "{model}"\n')
    assert faults_of(terminal) == {}
    assert starting == []
    assert faults_of(terminal, "--live")["providers.local"] == f"no model in {model}"
    assert starting == ["start"]
    model.touch()
    assert faults_of(terminal, "--live") == {}
    assert starting == ["start", "start", "close"]


def test_live_check_reaches_the_storage_of_files(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write(terminal, f'[batches]\nenabled = true\n[files]\nfolder = "{tmp_path / "file"}"\n')
    assert faults_of(terminal) == {}
    assert "files: " in faults_of(terminal, "--live")["files.folder"]


def test_keys_of_a_bucket_are_read_and_a_live_check_asks_for_it(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    secret = json.dumps(f"file:{tmp_path / 'secret'}")
    write(
        terminal,
        f'[batches]\nenabled = true\n[files.s3]\nbucket = "files"\nendpoint = "http://127.0.0.1:1"\n'
        f'access_key_id = "env:NO_SUCH_KEY"\nsecret_access_key = {secret}\n',
    )
    assert list(faults_of(terminal)) == ["files.s3.access_key_id"]
    monkeypatch.setenv("NO_SUCH_KEY", "id")
    assert faults_of(terminal) == {}
    assert faults_of(terminal, "--live") == {"files.s3": "files: get_object: EndpointConnectionError"}


def test_live_check_is_not_made_offline_nor_over_a_server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = terminal.run("check", "--live", "--offline")
    assert (offline.exit_code, "--live starts the providers" in offline.stderr) == (2, True)
    monkeypatch.setenv("GATEWAY_TOKEN", "gwa-x")
    remote = terminal.run("check", "--live", "--server", "https://127.0.0.1:1")
    assert (remote.exit_code, "--live goes without --server" in remote.stderr) == (2, True)


@pytest.mark.usefixtures("babbling")
def test_texts_of_exceptions_are_shown_without_secrets(terminal: Terminal) -> None:
    write(terminal, '[providers.loud]\nplugin = "babbling"\napi_key = "env:BABBLE_KEY"\n')
    for words in (["check"], ["check", "--json"], ["plugins"], ["plugins", "--json"]):
        output = terminal.run(*words).output
        for secret in (CANARY, "hunter2", "hunter3"):
            assert secret not in output, words
    assert "cannot use" in faults_of(terminal)["providers.loud"]


@pytest.mark.holds("operations/tls.md#set-it-up-1")
def test_certificate_that_cannot_serve_is_a_fault(terminal: Terminal, tmp_path: Path) -> None:
    files, day = CertificateFiles(tmp_path / "tls"), timedelta(days=1)
    write(terminal, f'[server]\ntls_cert = "{files.cert}"\ntls_key = "{files.key}"\n')
    assert faults_of(terminal) == {}
    assert json.loads(terminal.run("check", "--json").stdout)["warnings"] == []
    files.issue(not_after=datetime.now(UTC) + 3 * day)
    [warning] = json.loads(terminal.run("check", "--json").stdout)["warnings"]
    assert warning.startswith(f"server.tls_cert: the certificate in {files.cert} expires on ")
    files.key.chmod(0o644)
    assert f"server.tls_key: other users can read or change {files.key}" in terminal.run("check", "--json").stdout
    files.issue(not_before=datetime.now(UTC) - 3 * day, not_after=datetime.now(UTC) - day)
    assert faults_of(terminal)["server.tls_cert"].startswith(f"the certificate in {files.cert} expired on ")
    files.key.write_text("no key")
    assert faults_of(terminal)["server.tls_key"] == f"{files.key} has no private key in PEM form, or an unfinished one"
    files.cert.unlink()
    assert faults_of(terminal)["server.tls_cert"] == f"{files.cert} cannot be read: No such file or directory"
    assert faults_of(terminal, "--offline") == {}
