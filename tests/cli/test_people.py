"""`gateway users`, `gateway tokens` and `gateway audit-trail`, on the real store and an SQLite database."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from .conftest import Terminal, on_store

LINK = re.compile(r"http://127\.0\.0\.1:8081/sign-in/link\?token=[\w-]{43}\n")
INVITATION = re.compile(r"http://127\.0\.0\.1:8081/invitation\?token=[\w-]{43}\n")


@pytest.fixture
def ann(terminal: Terminal) -> Terminal:
    """A terminal with an operator and an account."""
    terminal.ok("users", "create", "ann@example.com", "--operator", "--name", "Ann")
    terminal.ok("accounts", "create", "acme")
    return terminal


def test_create_prints_only_a_link_on_stdout(terminal: Terminal) -> None:
    result = terminal.run("users", "create", "Ann@Example.com", "--operator")
    assert (result.exit_code, bool(LINK.fullmatch(result.stdout))) == (0, True)
    assert "ann@example.com" in result.stderr
    assert "token=" not in result.stderr


def test_users_are_listed_shown_and_edited(ann: Terminal) -> None:
    ann.json("users", "create", "bob@example.com", "--viewer")
    assert [user["email"] for user in ann.json("users", "list")] == ["ann@example.com", "bob@example.com"]
    changed = ann.json("users", "edit", "bob@example.com", "--email", "b@example.com", "--name", "B", "--role", "none")
    assert (changed["email"], changed["name"], changed["role"]) == ("b@example.com", "B", "none")
    assert ann.json("users", "show", "B@example.com") == changed
    assert ann.json("users", "disable", "b@example.com")["state"] == "disabled"
    assert ann.json("users", "enable", "b@example.com")["state"] == "active"


def test_last_operator_is_refused_with_one_line(ann: Terminal) -> None:
    for words in (("disable",), ("edit", "--role", "none"), ("erase", "--yes")):
        message = ann.refused("users", words[0], "ann@example.com", *words[1:])
        assert message == "gateway: This is the last operator; make another one first\n"


def test_members_and_invitations(ann: Terminal) -> None:
    assert ann.json("users", "member", "ann@example.com", "acme", "owner")["accounts"] == {"acme": "owner"}
    assert ann.json("users", "member", "ann@example.com", "acme", "none")["accounts"] == {}
    assert "no account 'nobody'" in ann.refused("users", "member", "ann@example.com", "nobody", "owner")
    assert INVITATION.fullmatch(ann.ok("users", "invite", "bob@example.com", "--account", "acme", "--role", "owner"))
    site = ann.json("users", "invite", "eve@example.com", "--site-role", "viewer")
    assert (site["site_role"], site["sent"], bool(site["link"])) == ("viewer", False, True)
    [open_] = ann.json("users", "invitations", "--account", "acme")
    assert (open_["email"], open_["role"]) == ("bob@example.com", "owner")
    ann.ok("users", "withdraw", open_["id"])
    assert ann.json("users", "invitations", "--account", "acme") == []
    ann.refused("users", "invite", "bob@example.com", "--role", "owner", status=2)


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-1")
def test_user_who_is_not_proved_is_listed_gets_no_role_and_is_marked_as_proved(ann: Terminal, tmp_path: Path) -> None:
    for email in ("bob@example.com", "kim@example.com"):
        ann.ok("users", "create", email)
    with sqlite3.connect(ann.config.parent / "var" / "gateway.db") as database:  # as if somebody had opened the link
        database.execute("UPDATE users SET password_hash = 'x' WHERE email = 'bob@example.com'")
    database.close()
    assert ann.json("users", "prove", "kim@example.com")["proved"] == "operator"
    unproved = ann.json("users", "list", "--unproved")
    assert [(user["email"], user["proved"]) for user in unproved] == [
        ("ann@example.com", "no"),
        ("bob@example.com", "no"),
    ]
    assert "proved" in ann.ok("users", "list").partition("\n")[0].lower()
    file = tmp_path / "users.csv"
    file.write_text("email,account\nbob@example.com,acme\n")
    for words in (
        ("users", "member", "bob@example.com", "acme", "member"),
        ("users", "edit", "bob@example.com", "--role", "viewer"),
        ("import", "users", str(file)),
    ):
        assert "is not proved" in ann.refused(*words)
    assert ann.json("users", "show", "bob@example.com")["accounts"] == {}
    ann.ok("users", "prove", "bob@example.com")
    assert ann.json("users", "member", "bob@example.com", "acme", "member")["accounts"] == {"acme": "member"}
    assert ann.json("users", "edit", "bob@example.com", "--email", "robert@example.com")["proved"] == "no"


def test_link_is_printed_when_the_mail_server_is_away(ann: Terminal) -> None:
    with ann.config.open("a") as file:
        file.write('\n[mail]\nhost = "127.0.0.1"\nport = 1\nfrom = "gw@example.com"\n')
    result = ann.run("users", "invite", "bob@example.com", "--account", "acme")
    assert (result.exit_code, bool(INVITATION.fullmatch(result.stdout))) == (0, True)
    assert "could not be sent" in result.stderr


def test_check_names_a_mail_password_that_is_missing(terminal: Terminal) -> None:
    with terminal.config.open("a") as file:
        file.write(
            '\n[mail]\nhost = "smtp.test"\nfrom = "gw@example.com"\nuser = "me"\npassword = "env:NO_SUCH_NAME"\n'
        )
    result = terminal.run("check")
    assert result.exit_code == 1
    assert "mail.password: environment variable NO_SUCH_NAME is not set" in result.stderr


def test_check_names_the_secret_of_an_identity_provider_and_an_account_that_are_missing(terminal: Terminal) -> None:
    with terminal.config.open("a") as file:
        file.write(
            '\n[oidc.corp]\nissuer = "https://login.test"\nclient_id = "gw"\nclient_secret = "env:NO_SUCH_NAME"\n'
            'grants = [{ claim = "groups", value = "a", account = "nowhere" }]\n'
        )
    result = terminal.run("check")
    assert result.exit_code == 1
    assert "oidc.corp.client_secret: environment variable NO_SUCH_NAME is not set" in result.stderr
    assert "oidc.corp.grants[0].account: There is no account 'nowhere'" in result.stderr
    assert "console.public_url: missing" in result.stderr


def test_identities_of_a_user_are_shown_and_ended(ann: Terminal) -> None:
    assert ann.json("users", "identities", "ann@example.com") == []
    assert "ended: 0" in ann.run("users", "identities", "ann@example.com", "--end").stderr


def test_sessions_of_a_user_are_shown_and_ended(ann: Terminal) -> None:
    assert ann.json("users", "sessions", "ann@example.com") == []
    assert "ended: 0" in ann.run("users", "sessions", "ann@example.com", "--end").stderr


def test_export_and_erasure(ann: Terminal) -> None:
    ann.ok("users", "create", "bob@example.com", "--name", "Bob")
    exported = ann.json("users", "export", "bob@example.com")
    assert exported["user"]["name"] == "Bob"
    ann.refused("users", "erase", "bob@example.com", status=2)
    assert ann.json("users", "erase", "bob@example.com", "--yes") == {"id": exported["user"]["id"], "state": "erased"}
    assert ann.refused("users", "show", "bob@example.com") == "gateway: There is no user bob@example.com\n"


def test_token_is_printed_alone_and_once(ann: Terminal) -> None:
    result = ann.run("tokens", "create", "ci", "--scopes", "read,keys", "--account", "acme", "--expires", "30d")
    assert re.fullmatch(r"gwa_[A-Za-z0-9_-]{43}\n", result.stdout)
    assert result.stdout.strip() not in result.stderr + ann.ok("tokens", "list", "--json") + ann.ok("tokens", "list")
    [token] = ann.json("tokens", "list")
    assert (token["name"], token["scopes"], token["account"], token["state"]) == (
        "ci",
        ["read", "keys"],
        "acme",
        "active",
    )
    ends = datetime.fromisoformat(token["expires"])
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert ann.json("tokens", "revoke", token["id"])["state"] == "revoked"
    assert ann.json("tokens", "create", "two", "--scopes", "read").keys() == {
        "token", "id", "name", "scopes", "account", "expires",
    }  # fmt: skip


def test_wrong_scopes_are_refused(ann: Terminal) -> None:
    assert "'everything' is no scope" in ann.refused("tokens", "create", "ci", "--scopes", "everything")
    ann.refused("tokens", "create", "ci", status=2)
    assert ann.json("tokens", "list") == []


@pytest.mark.holds("people.md#audit-trail-2")
def test_changes_of_accounts_and_keys_are_in_the_audit_trail(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "5")
    terminal.ok("accounts", "credit", "acme", "2")
    terminal.ok("accounts", "move", "acme", "vip")
    terminal.ok("accounts", "deny", "acme", "fake-chat")
    key = terminal.json("keys", "create", "acme", "--name", "ci")["id"]
    terminal.ok("keys", "revoke", key)
    terminal.ok("users", "create", "ann@example.com")
    trail = terminal.json("audit-trail")
    assert [event["action"] for event in reversed(trail)] == [
        "accounts.create", "accounts.credit", "accounts.move", "accounts.deny", "keys.create", "keys.revoke",
        "users.create", "users.link",
    ]  # fmt: skip
    assert all(event["actor"].startswith("cli:") for event in trail)
    assert [event["action"] for event in terminal.json("audit-trail", "--object", f"key:{key}")] == [
        "keys.revoke", "keys.create",
    ]  # fmt: skip
    assert len(terminal.json("audit-trail", "--account", "acme", "--limit", "3")) == 3
    assert terminal.json("audit-trail", "--since", "2030-01-01") == []
    assert terminal.json("audit-trail", "--actor", "token") == []
    assert "accounts.credit" in terminal.ok("audit-trail")


def test_commands_on_the_store_make_no_database(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    terminal.ok("keys", "create", "acme")
    assert not (terminal.config.parent / "var" / "gateway.db").exists()


@pytest.mark.slow
def test_commands_on_the_store_load_neither_sqlalchemy_nor_redis_py(terminal: Terminal) -> None:
    code = (
        "import sys\nfrom gateway.cli import cli\n"
        f"cli(['accounts', 'create', 'acme', '--config', {str(terminal.config)!r}], standalone_mode=False)\n"
        f"cli(['usage', 'acme', '--limit', '9', '--config', {str(terminal.config)!r}], standalone_mode=False)\n"
        "heavy = {'sqlalchemy', 'alembic', 'argon2', 'pyotp', 'joserfc', 'redis', 'http.client'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[]"


def test_people_go_into_the_database_of_the_store_only(terminal: Terminal) -> None:
    terminal.ok("users", "create", "ann@example.com")
    socket = terminal.config.read_text().partition("unix://")[2].partition('"')[0]
    on_store(Path(socket), lambda store: store.client.set("history:database", "db_of_another_machine"))
    assert "in another database" in terminal.refused("users", "list")


def test_keys_and_budget_of_a_member(ann: Terminal) -> None:
    message = ann.refused("keys", "create", "acme", "--user", "ann@example.com")
    assert message == "gateway: The user is no member of this account\n"
    ann.ok("users", "member", "ann@example.com", "acme", "member")
    own = ann.json("keys", "create", "acme", "--user", "ann@example.com", "--name", "laptop")
    ann.ok("keys", "create", "acme")
    [key] = ann.json("keys", "list", "--user", "Ann@example.com")
    user = ann.json("users", "show", "ann@example.com")
    assert (key["id"], key["user"]) == (own["id"], user["id"])
    assert ann.json("keys", "show", own["id"])["user"] == user["id"]
    limited = ann.json("users", "limit", "ann@example.com", "acme", "--budget", "50", "--every", "month")
    assert (limited["budget"], limited["every"], limited["period_spent"]) == ("50", "month", "0")
    assert ann.json("users", "limit", "ann@example.com", "acme") == limited
    ann.ok("users", "member", "ann@example.com", "acme", "none")
    assert ann.json("keys", "show", own["id"])["state"] == "revoked"
    actions = [event["action"] for event in ann.json("audit-trail", "--account", "acme")]
    assert {"keys.create", "members.limit", "keys.revoke", "members.set"} <= set(actions)


@pytest.mark.holds("people.md#who-is-who-8")
@pytest.mark.parametrize(
    "words", [("edit", "~", "--role", "viewer"), ("disable", "~"), ("erase", "~", "--yes")], ids=lambda words: words[0]
)
def test_admin_tokens_that_end_with_the_role_of_their_maker_are_named(ann: Terminal, words: tuple[str, ...]) -> None:
    ann.ok("users", "create", "bob@example.com", "--operator")
    bob = ann.json("users", "show", "bob@example.com")["id"]
    made, kept = (ann.json("tokens", "create", name, "--scopes", "read")["id"] for name in ("billing", "kept"))
    with sqlite3.connect(ann.config.parent / "var" / "gateway.db") as database:  # as if bob had made it
        database.execute("UPDATE admin_tokens SET created_by = ? WHERE id = ?", (f"user:{bob}", made))
    database.close()
    result = ann.run("users", *(word.replace("~", "bob@example.com") for word in words))
    assert result.exit_code == 0
    ended = f"gateway: admin tokens that bob@example.com had made have ended: billing ({made})\n"
    assert ended in result.stderr and kept not in result.stderr
    assert {token["id"]: token["state"] for token in ann.json("tokens", "list")} == {made: "revoked", kept: "active"}
