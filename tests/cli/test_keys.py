"""`gateway keys`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.ledger.caller_addresses import CallerAddresses
from gateway.store import Store

from .conftest import Terminal, on_store
from .test_history_commands import import_all
from .two_ways import TwoWays, ways

__all__ = ["ways"]

KEY_FIELDS = {
    "response_headers",
    "id",
    "account",
    "name",
    "last4",
    "state",
    "created",
    "expires",
    "rpm",
    "tpm",
    "concurrency",
    "models",
    "budget",
    "spent",
    "every",
    "period_spent",
    "max_cost",
    "max_session_cost",
    "endpoints",
    "addresses",
    "last_used",
    "user",
}


@pytest.fixture
def acme(terminal: Terminal) -> Terminal:
    """A terminal with one account."""
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    return terminal


def test_create_prints_only_the_key_on_stdout(acme: Terminal) -> None:
    result = acme.run("keys", "create", "acme")
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}\n", result.stdout)
    assert result.stdout.strip() not in result.stderr


@pytest.mark.holds("operations/redis.md#durability-of-commands-7")
def test_key_is_shown_once(acme: Terminal) -> None:
    key = acme.ok("keys", "create", "acme").strip()
    assert key not in acme.ok("keys", "list") + acme.ok("keys", "list", "--json")


def test_json_form_of_a_new_key(acme: Terminal) -> None:
    key = acme.json("keys", "create", "acme", "--name", "ci")
    assert key.keys() == {"key", "id", "account", "name"}
    assert (key["account"], key["name"]) == ("acme", "ci")


def test_key_list_shows_the_options_given_at_creation(acme: Terminal) -> None:
    new = acme.json(
        *("keys", "create", "acme", "--name", "ci", "--rpm", "5", "--tpm", "1000", "--concurrency", "2"),
        *("--models", "short,other", "--budget", "2.5", "--expires", "30d"),
    )
    [key] = acme.json("keys", "list", "acme")
    assert key.keys() == KEY_FIELDS
    assert key["id"] == new["id"]
    assert key["last4"] == new["key"][-4:]
    assert (key["rpm"], key["tpm"], key["concurrency"]) == (5, 1000, 2)
    assert key["models"] == ["fake-chat", "other"]
    assert (key["budget"], key["spent"], key["state"]) == ("2.5", "0", "active")
    ends = datetime.fromisoformat(key["expires"])
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)


def test_key_without_options_has_no_limits(acme: Terminal) -> None:
    acme.ok("keys", "create", "acme")
    [key] = acme.json("keys", "list")
    assert [key[name] for name in ("rpm", "tpm", "concurrency", "models", "budget", "expires")] == [None] * 6


def test_keys_are_listed_for_one_account_or_for_all(acme: Terminal) -> None:
    acme.ok("accounts", "create", "other")
    acme.ok("keys", "create", "acme")
    acme.ok("keys", "create", "other")
    assert [key["account"] for key in acme.json("keys", "list")] == ["acme", "other"]
    assert [key["account"] for key in acme.json("keys", "list", "other")] == ["other"]


def test_response_headers_of_a_key_are_listed(acme: Terminal) -> None:
    acme.ok("keys", "create", "acme", "--name", "shows", "--response-headers", "cost")
    acme.ok("keys", "create", "acme", "--name", "plain")
    listed = {key["name"]: key["response_headers"] for key in acme.json("keys", "list")}
    assert listed == {"shows": ["cost"], "plain": []}


def test_revoked_key_is_listed_as_revoked(acme: Terminal) -> None:
    key_id = acme.json("keys", "create", "acme")["id"]
    assert acme.json("keys", "revoke", key_id)["state"] == "revoked"
    assert acme.json("keys", "revoke", key_id)["state"] == "revoked"
    assert [key["state"] for key in acme.json("keys", "list", "acme")] == ["revoked"]


@pytest.mark.parametrize("words", [("create", "nobody"), ("list", "nobody")])
def test_unknown_account_is_refused(acme: Terminal, words: tuple[str, ...]) -> None:
    assert acme.refused("keys", *words) == "gateway: no account 'nobody'\n"


def test_unknown_key_is_refused(acme: Terminal) -> None:
    assert acme.refused("keys", "revoke", "key_none") == "gateway: no key 'key_none'\n"


def test_unknown_model_is_refused_and_creates_no_key(acme: Terminal) -> None:
    assert "nearest" in acme.refused("keys", "create", "acme", "--models", "fake-chat,nope")
    assert acme.json("keys", "list") == []


def test_time_in_the_past_is_refused(acme: Terminal) -> None:
    assert "passed already" in acme.refused("keys", "create", "acme", "--expires", "2020-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "words",
    [
        ("--rpm", "0"),
        ("--tpm", "many"),
        ("--budget", "1e3"),
        ("--expires", "soon"),
        ("--expires", "2026-12-31T10:00:00"),
        ("--models", ","),
        ("--response-headers", "model"),
        ("--response-headers", ","),
        ("--color", "red"),
    ],
)
def test_wrong_use_creates_no_key(acme: Terminal, words: tuple[str, ...]) -> None:
    acme.refused("keys", "create", "acme", *words, status=2)
    assert acme.json("keys", "list") == []


def test_key_is_edited_shown_and_cleared(acme: Terminal) -> None:
    key_id = acme.json("keys", "create", "acme", "--budget", "50", "--every", "month", "--rpm", "5")["id"]
    edited = acme.json(
        *("keys", "edit", key_id, "--name", "ci", "--models", "short", "--max-cost", "0.5"),
        *("--endpoints", "chat,embeddings", "--addresses", "10.0.0.0/8,::1", "--clear", "rpm"),
    )
    assert edited == acme.json("keys", "show", key_id)
    assert (edited["name"], edited["models"], edited["rpm"]) == ("ci", ["fake-chat"], None)
    assert (edited["budget"], edited["every"], edited["period_spent"]) == ("50", "month", "0")
    assert (edited["max_cost"], edited["endpoints"]) == ("0.5", ["chat", "embeddings"])
    assert edited["addresses"] == ["10.0.0.0/8", "::1/128"]
    edited = acme.json("keys", "edit", key_id, "--every", "never", "--clear", "max-cost,endpoints")
    assert (edited["every"], edited["max_cost"], edited["endpoints"]) == (None, None, None)
    assert "name a setting" in acme.refused("keys", "edit", key_id, status=2)
    assert acme.refused("keys", "show", "key_none") == "gateway: no key 'key_none'\n"


def test_rotation_prints_only_the_new_key(acme: Terminal) -> None:
    key_id = acme.json("keys", "create", "acme", "--rpm", "5")["id"]
    result = acme.run("keys", "rotate", key_id, "--overlap", "2h")
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}\n", result.stdout)
    assert f"{key_id} expires at " in result.stderr
    listed = acme.json("keys", "list")  # both may be of one second, and are then in the order of their ids
    (old,), (new,) = ([key for key in listed if (key["id"] == key_id) is one] for one in (True, False))
    assert (new["rpm"], new["expires"]) == (5, None)
    ends = datetime.fromisoformat(old["expires"])
    assert abs(ends - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)
    again = acme.json("keys", "rotate", new["id"])
    assert again["replaces"] == new["id"]
    assert "is no duration" in acme.refused("keys", "rotate", again["id"], "--overlap", "soon", status=2)


def test_unused_keys_are_listed(acme: Terminal) -> None:
    key_id = acme.json("keys", "create", "acme")["id"]
    assert acme.json("keys", "list", "--unused", "30d") == []
    assert [key["id"] for key in acme.json("keys", "list", "acme", "--unused", "2999-01-01")] == [key_id]


def test_key_is_found_by_its_whole_text_and_by_its_shown_part(acme: Terminal) -> None:
    made = [acme.json("keys", "create", "acme") for _ in range(3)]
    text, key_id = made[1]["key"], made[1]["id"]
    for given in (text, text[-4:], "…" + text[-4:], "sk-..." + text[-4:]):
        result = acme.run("keys", "find", given, "--json")
        assert [key["id"] for key in json.loads(result.stdout)] == [key_id]
        assert ("history of your shell" in result.stderr) == (given == text)
        assert text not in result.output
    result = acme.run("keys", "find", "--json", stdin=text + "\n")
    assert [key["id"] for key in json.loads(result.stdout)] == [key_id]
    assert text not in result.output and "history" not in result.output


@pytest.mark.parametrize("ending", ["-abc", "--ab", "-a-b", "----"])
def test_key_is_found_by_last_characters_that_look_like_an_option(
    acme: Terminal, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("secrets.token_urlsafe", lambda _: "x" * 39 + ending)
        key_id = acme.json("keys", "create", "acme")["id"]
    assert [key["id"] for key in acme.json("keys", "find", ending)] == [key_id]
    assert "No such option '--jsno'" in acme.refused("keys", "find", "--jsno", status=2)


def test_text_of_no_key_is_refused_without_repeating_it(acme: Terminal) -> None:
    acme.ok("keys", "create", "acme")
    for given, message in (
        ("sk-" + "x" * 43, "no key has this text"),
        ("!!!!", "no key has this text"),
        ("secret-of-another-kind", "give a whole key"),
        ("", "give a whole key"),
    ):
        result = acme.run("keys", "find", given)
        assert result.exit_code == 1 and message in result.stderr
        assert not given or given not in result.output
    assert "--pepper goes with --server" in acme.refused("keys", "find", "abcd", "--pepper", "env:X", status=2)


def test_key_is_found_over_a_server_by_its_hash_or_its_last_characters(ways: TwoWays, tmp_path: Path) -> None:
    ways.document("local1", "accounts", "create", "acme")
    made = ways.document("local1", "keys", "create", "acme")
    text, found = made["key"], [made["id"]]
    pepper = ("--pepper", f"file:{tmp_path / 'var' / 'pepper'}")
    for words in ((text, *pepper), (text,), (text[-4:],)):
        result = ways.run("remote1", "keys", "find", *words, "--json")
        assert [key["id"] for key in json.loads(result.stdout)] == found
        assert text not in result.output
        assert ("same last four" in result.stderr) == (words == (text,))
    other = text[:-5] + ("A" if text[-5] != "A" else "B") + text[-4:]
    assert "no key has this text" in ways.run("remote1", "keys", "find", other, *pepper).stderr


def test_addresses_of_a_key_are_listed_here_and_over_a_server(ways: TwoWays, valkey: Path) -> None:
    ways.document("local1", "accounts", "create", "acme")
    key_id, other = (ways.document("local1", "keys", "create", "acme")["id"] for _ in range(2))

    async def work(store: Store) -> None:
        noted = CallerAddresses(store, "shortened", timedelta(days=30))
        noted.note((key_id, "req_1", "192.0.2.77", "", ()))
        await noted.send()

    on_store(valkey, work)
    import_all(ways.terminal, valkey)
    [used] = ways.document("local1", "keys", "addresses", key_id)
    assert (used["key"], used["address"]) == (key_id, "192.0.2.0/24") and used["first"] == used["last"]
    assert ways.document("remote1", "keys", "addresses", key_id) == [used]
    assert ways.document("remote1", "keys", "addresses", other) == []
    assert "192.0.2.0/24" in ways.terminal.ok("keys", "addresses", key_id)
    ways.same_refusal("keys", "addresses", "key_nothing")


def test_addresses_of_a_key_are_not_read_from_a_database_that_does_not_exist(acme: Terminal) -> None:
    key = acme.json("keys", "create", "acme")["id"]
    before = sorted(acme.config.parent.rglob("*.db*"))
    assert "there is no database yet" in acme.refused("keys", "addresses", key)
    assert sorted(acme.config.parent.rglob("*.db*")) == before
