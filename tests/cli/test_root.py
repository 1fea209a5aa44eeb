"""What the operator sees when something goes wrong."""

from __future__ import annotations

import click
import pytest
import redis.exceptions
from click.testing import CliRunner

from gateway.cli.root import Root, explained
from gateway.config.secret import SecretError
from gateway.config.toml_reader import SettingsError, SettingsProblem
from gateway.errors import NotFound, StoreFate, StoreUnavailable
from gateway.store import StoreSetupError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NotFound("no account 'a'"), "no account 'a'"),
        (StoreSetupError("no server found"), "no server found"),
        (SecretError("environment variable A is not set"), "environment variable A is not set"),
        (SettingsError([SettingsProblem("f.toml", "a.b", "missing")]), "f.toml: a.b: missing"),
        (
            StoreUnavailable(detail="no reply", fate=StoreFate.UNKNOWN),
            "The service is temporarily unavailable (sent, fate unknown: no reply)",
        ),
        (redis.exceptions.ResponseError("boo"), "the store failed: ResponseError: boo"),
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file or directory"),
    ],
)
def test_expected_errors_are_logged_in_one_line(error: Exception, line: str) -> None:
    assert explained(error) == line


def test_unexpected_exception_is_one_line_with_its_location(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("lost")

    root = Root("gateway", commands={"broken": "Break."}, help="")
    monkeypatch.setattr(root, "get_command", lambda ctx, name: click.Command(name, callback=broken))
    result = CliRunner().invoke(root, ["broken"])
    assert result.exit_code == 1
    assert result.stderr.startswith("gateway: internal error at ")
    assert "test_root.py:" in result.stderr
    assert result.stderr.endswith("KeyError: 'lost'\n")


def test_several_errors_are_printed_one_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty() -> None:
        raise SettingsError([SettingsProblem("f", "a", "x"), SettingsProblem("f", "b", "y")])

    root = Root("gateway", commands={"faulty": "Find faults."}, help="")
    monkeypatch.setattr(root, "get_command", lambda ctx, name: click.Command(name, callback=faulty))
    assert CliRunner().invoke(root, ["faulty"]).stderr == "gateway: f: a: x\ngateway: f: b: y\n"
