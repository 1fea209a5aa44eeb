"""Secrets: where they come from, and that they show nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from gateway.config.secret import MAX_SECRET_BYTES, Secret, SecretError, secret_hook

CANARY = "sk-canary-7f3a"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    api_key: Secret
    spare: Secret | None = None


def test_env_reference_reveals_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", f" {CANARY}\n")
    assert Secret.parse("env:A_KEY").reveal() == CANARY


def test_file_reference_reveals_the_file_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    assert Secret.parse(f"file:{tmp_path / 'key'}").reveal() == CANARY


def test_relative_file_is_resolved_from_the_configurations_folder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(CANARY)
    assert Secret.parse("file:key", folder=tmp_path).reveal() == CANARY


def test_rotated_file_is_seen_by_the_next_reveal(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("old")
    secret = Secret.parse(f"file:{tmp_path / 'key'}")
    assert secret.reveal() == "old"
    (tmp_path / "key").write_text("new")
    assert secret.reveal() == "new"


def test_literal_is_refused_without_repeating_it() -> None:
    with pytest.raises(SecretError) as caught:
        Secret.parse(CANARY)
    assert CANARY not in str(caught.value)
    assert "env:NAME or file:PATH" in str(caught.value)


def test_literal_is_accepted_where_literals_are_allowed() -> None:
    secret = Secret.parse(CANARY, literals=True)
    assert secret.reveal() == CANARY
    assert secret.reference == "***"


@pytest.mark.parametrize(
    "text", ["env:", "env:1X", "env:A-B", "env:A B", "file:", "file:a\0b", "", "http://x", None, 7]
)
def test_malformed_references_are_refused(text: object) -> None:
    with pytest.raises(SecretError):
        Secret.parse(text)


def test_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(SecretError, match="environment variable A_KEY is not set"):
        Secret.parse("env:A_KEY").reveal()


def test_empty_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", " ")
    with pytest.raises(SecretError, match="environment variable A_KEY is empty"):
        Secret.parse("env:A_KEY").reveal()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=r"absent cannot be read: No such file"):
        Secret.parse(f"file:{tmp_path / 'absent'}").reveal()


def test_file_that_cannot_be_a_secret_is_an_error_that_shows_no_content(tmp_path: Path) -> None:
    (tmp_path / "long").write_text(CANARY * MAX_SECRET_BYTES)
    (tmp_path / "binary").write_bytes(CANARY.encode() + b"\xff")
    for name, reason in (("long", "longer than"), ("binary", "not UTF-8")):
        with pytest.raises(SecretError, match=reason) as caught:
            Secret.parse(f"file:{tmp_path / name}").reveal()
        assert CANARY not in str(caught.value)
        assert caught.value.__cause__ is None


def test_secret_is_not_shown_by_repr_or_format() -> None:
    secret = Secret.parse(CANARY, literals=True)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>10}", repr(Options(secret)), repr([secret])]
    assert not any(CANARY in text for text in shown)


def test_secret_is_refused_by_every_encoder() -> None:
    options = Options(Secret.parse(CANARY, literals=True))
    for encode in (msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins):
        with pytest.raises(TypeError):
            encode(options)


def test_settings_with_secrets_are_unchanged_after_transfer_to_a_worker() -> None:
    secret = Secret.parse("env:A_KEY")
    assert pickle.loads(pickle.dumps(secret)) == secret


def test_options_with_secret_fields_decode_through_the_hook() -> None:
    options = msgspec.convert({"api_key": "env:A_KEY"}, Options, dec_hook=secret_hook)
    assert options.api_key.reference == "env:A_KEY"
    with pytest.raises(msgspec.ValidationError, match=r"literal.*\$\.api_key") as caught:
        msgspec.convert({"api_key": CANARY}, Options, dec_hook=secret_hook)
    assert CANARY not in str(caught.value)
