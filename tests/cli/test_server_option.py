"""Commands with `--server` print what they print on the gateway's own machine."""

from __future__ import annotations

import re
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli import cli, root
from gateway.testing.ports import free_ports

from .admin_server import foreign_server
from .conftest import Terminal, on_store
from .two_ways import TwoWays, pay, plain, ways

__all__ = ["ways"]


@pytest.mark.slow
def test_commands_about_accounts_and_money_are_the_same(ways: TwoWays, valkey: Path) -> None:
    ways.same("accounts", "create", "~", "--group", "vip", "--balance", "10.5")
    key_ids = {place: ways.document(place, "keys", "create", place)["id"] for place in ("local1", "remote1")}
    on_store(valkey, lambda store: pay(store, key_ids))
    for words in (
        ("show", "~"),
        ("credit", "~", "2.000000001", "--id", "pay-1", "--note", "paid"),
        ("credit", "~", "2.000000001", "--id", "pay-1"),
        ("credit", "~", "-1", "--allow-negative", "--force"),
        ("refund", "~", "req_~", "0.1", "--id", "ticket-1", "--note", "slow"),
        ("refund", "~", "req_~", "0.1", "--id", "ticket-1", "--note", "slow"),
        ("limit", "~", "--floor", "-5", "--rpm", "10", "--monthly", "100"),
        ("limit", "~", "--clear", "rpm,monthly"),
        ("disable", "~"),
        ("enable", "~"),
        ("move", "~", "default"),
        ("allow", "~", "short"),
        ("deny", "~", "other"),
    ):
        ways.same("accounts", *words)
    here, there = ways.document("local1", "accounts", "list"), ways.document("remote1", "accounts", "list")
    assert here == there
    table = [ways.run(place, "accounts", "list").stdout for place in ("local1", "remote1")]
    assert table[0] == table[1]
    for refused_words in (
        ("create", "~"),
        ("create", "Not A Name"),
        ("credit", "~", "-5"),
        ("credit", "~", "3", "--id", "pay-1"),
        ("refund", "~", "req_9"),
        ("move", "~", "vipp"),
        ("allow", "~", "fake-chta"),
        ("limit", "~", "--clear", "floor,rpm", "--rpm", "3"),
    ):
        ways.same_refusal("accounts", *refused_words)
    repeat = ("accounts", "credit", "~", "2.000000001", "--id", "pay-1")
    assert ways.run("local1", *repeat).stderr == ways.run("remote1", *repeat).stderr != ""


@pytest.mark.slow
def test_commands_about_keys_are_the_same(ways: TwoWays) -> None:
    ways.same("accounts", "create", "~")
    limits = ("--rpm", "3", "--models", "short", "--budget", "2.5", "--every", "month", "--endpoints", "chat")
    more = ("--expires", "2099-01-01", "--response-headers", "cost")
    made = ways.same("keys", "create", "~", "--name", "ci", *limits, *more)
    ids = dict(zip(("local1", "remote1"), (one["id"] for one in made), strict=True))
    text = [ways.run(place, "keys", "create", "~") for place in ("local1", "remote1")]
    assert all(re.fullmatch(r"sk-\S+\n", one.stdout) and "shown only now" in one.stderr for one in text)

    def both(*words: str) -> None:
        documents = [
            plain(ways.document(place, "keys", *(ids[place] if word == "ID" else word for word in words)), place)
            for place in ids
        ]
        assert documents[0] == documents[1], words

    both("show", "ID")
    both("edit", "ID", "--name", "new", "--tpm", "5", "--clear", "rpm,max_cost")
    both("rotate", "ID", "--overlap", "1h")
    both("revoke", "ID")
    for words in (("keys", "list"), ("keys", "list", "local1"), ("keys", "list", "local1", "--unused", "2099-01-01")):
        assert ways.document("local1", *words) == ways.document("remote1", *words) != []
    ways.same_refusal("keys", "create", "nobody")
    ways.same_refusal("keys", "show", "key_nothing")
    ways.same_refusal("keys", "create", "~", "--models", "fake-chta")


@pytest.mark.slow
def test_commands_about_people_tokens_and_the_trail_are_the_same(ways: TwoWays) -> None:
    ways.same("accounts", "create", "~")
    ways.same("users", "create", "ann.~@example.com", "--operator", "--name", "Ann")
    ways.same("users", "create", "bob.~@example.com")
    ways.same("users", "create", "kim.~@example.com")
    ways.same("users", "member", "kim.~@example.com", "~", "member")
    ways.same("keys", "create", "~", "--user", "kim.~@example.com", "--name", "kims", "--rpm", "3")
    ways.same("keys", "list", "--user", "kim.~@example.com")
    ways.same("keys", "list", "~", "--user", "kim.~@example.com")
    for words in (
        ("show", "ann.~@example.com"),
        ("edit", "bob.~@example.com", "--name", "Bob", "--role", "viewer", "--no-second-factor"),
        ("disable", "bob.~@example.com"),
        ("enable", "bob.~@example.com"),
        ("link", "bob.~@example.com"),
        ("member", "bob.~@example.com", "~", "owner"),
        ("limit", "bob.~@example.com", "~", "--budget", "5.5", "--every", "month"),
        ("limit", "bob.~@example.com", "~", "--clear", "every"),
        ("limit", "bob.~@example.com", "~"),
        ("export", "bob.~@example.com"),
        ("member", "bob.~@example.com", "~", "none"),
        ("sessions", "bob.~@example.com", "--end"),
        ("identities", "bob.~@example.com", "--end"),
        ("erase", "bob.~@example.com", "--yes"),
        ("invite", "eve.~@example.com", "--site-role", "viewer"),
    ):
        ways.same("users", *words)
    invited = ways.same("users", "invite", "eve.~@example.com", "--account", "~", "--role", "owner")
    ways.same("users", "invitations", "--account", "~")
    for place, one in zip(("local1", "remote1"), invited, strict=True):
        withdrawn = ways.document(place, "users", "withdraw", one["id"])
        assert withdrawn == {"id": one["id"], "state": "withdrawn"}
    options = ("--scopes", "read,credits", "--account", "~", "--expires", "2099-01-01")
    tokens = ways.same("tokens", "create", "ci ~", *options)
    for place, one in zip(("local1", "remote1"), tokens, strict=True):
        assert ways.document(place, "tokens", "revoke", one["id"])["state"] == "revoked"
    for lists in (
        ("users", "list"),
        ("users", "list", "--unproved"),
        ("users", "invitations"),
        ("audit-trail", "--limit", "5"),
        ("audit-trail", "--since", "1d", "--object", "account", "--account", "local1"),
    ):
        assert ways.document("local1", *lists) == ways.document("remote1", *lists) != []
    used = [
        [token | {"last_used": None} for token in ways.document(place, "tokens", "list")]
        for place in ("local1", "remote1")
    ]
    assert used[0] == used[1] != []
    for refused_words in (
        ("users", "show", "nobody.~@example.com"),
        ("users", "create", "ann.~@example.com"),
        ("users", "member", "ann.~@example.com", "nobody", "owner"),
        ("tokens", "revoke", "tok_nothing"),
    ):
        ways.same_refusal(*refused_words)


def test_disabling_over_a_server_names_the_admin_tokens_that_end_with_it(ways: TwoWays) -> None:
    """Also those that these tokens made; the list of tokens says who made each."""
    ways.document("local1", "users", "create", "ann@example.com", "--operator")
    ways.document("local1", "users", "create", "bob@example.com", "--operator")
    bob = ways.document("local1", "users", "show", "bob@example.com")["id"]
    made, child, kept = (
        ways.document("local1", "tokens", "create", name, "--scopes", "read")["id"]
        for name in ("made", "child", "kept")
    )
    with sqlite3.connect(ways.terminal.config.parent / "var" / "gateway.db") as database:
        for maker, token in ((f"user:{bob}", made), (f"token:{made}", child)):
            database.execute("UPDATE admin_tokens SET created_by = ? WHERE id = ?", (maker, token))
    database.close()
    result = ways.run("remote1", "users", "disable", "bob@example.com")
    assert result.exit_code == 0, result.output
    [line] = [line for line in result.stderr.splitlines() if "have ended" in line]
    assert f"made ({made})" in line and f"child ({child})" in line and kept not in line
    assert ways.run("remote1", "users", "enable", "bob@example.com").stderr == ""


@pytest.mark.holds("cli.md#over-a-server-1")
def test_every_command_works_over_a_server_or_says_why_not(tmp_path: Path) -> None:
    local = {name for name, options in _commands(cli) if "--server" not in options}
    assert local == set(root.REASONS)
    for name in local:
        result = CliRunner().invoke(cli, [*name.split(), "--server", "https://gw.test"], prog_name="gateway")
        assert result.exit_code == 2, name
        assert f"`gateway {name}` takes no --server: {root.REASONS[name]}" in result.stderr
    for words in (
        ("audit", "--expect-accounts", "5"),
        ("audit", "--archive", __file__),
        ("refused", "book", "--all", "--archive", __file__),
    ):
        assert "goes without --server" in _with_server(*words)


def _with_server(*words: str) -> str:
    environment = {"GATEWAY_TOKEN": "gwa_x", "GATEWAY_SERVER": "http://127.0.0.1:1"}
    result = CliRunner().invoke(cli, list(words), env=environment, prog_name="gateway")
    assert result.exit_code == 2, result.output
    return result.stderr


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, set[str]]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        elif command is not None:
            yield f"{path}{name}", {option for parameter in command.params for option in parameter.opts}


# What goes wrong ----------------------------------------------------------------------------------------------------

CERTIFICATES = Path(__file__).parents[1] / "certificates"


def refused(*words: str, status: int = 1, **environment: str) -> str:
    """The message of `gateway accounts list` that fails."""
    variables = {"GATEWAY_TOKEN": "gwa_x", **environment}
    result = CliRunner().invoke(cli, ["accounts", "list", *words], env=variables, prog_name="gateway")
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert "Traceback" not in result.stderr
    assert "gwa_x" not in result.stderr
    return result.stderr


def test_wrong_token_and_missing_scope_are_said(ways: TwoWays, terminal: Terminal) -> None:
    server = ways.remote["GATEWAY_SERVER"]
    assert refused("--server", server) == (
        f"gateway: the server {server} refused the token: Missing or invalid session or admin token\n"
    )
    reader = terminal.json("tokens", "create", "reader", "--scopes", "read")["token"]
    result = CliRunner().invoke(
        cli, ["accounts", "create", "x", "--server", server], env={"GATEWAY_TOKEN": reader}, prog_name="gateway"
    )
    assert (result.exit_code, "'accounts'" in result.stderr) == (1, True)


def test_unreachable_foreign_and_old_servers_are_said() -> None:
    [port] = free_ports(1)
    assert f"the server http://127.0.0.1:{port} cannot be reached" in refused("--server", f"http://127.0.0.1:{port}")
    with foreign_server(200, b"<html>hello</html>") as port:
        assert "is not the admin API of a gateway: it answers 200" in refused("--server", f"http://127.0.0.1:{port}")
    body = b'{"error":{"message":"Unknown request URL","type":"t","param":null,"code":"unknown_url"}}'
    with foreign_server(404, body) as port:
        message = refused("--server", f"http://127.0.0.1:{port}")
    assert "(version unknown) does not know this command: Unknown request URL" in message


def test_own_ca_is_trusted_and_without_it_the_certificate_is_refused() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    with foreign_server(200, b'{"data":[],"next_cursor":null}', tls) as port:
        url = f"https://localhost:{port}"
        assert "name its CA with --ca" in refused("--server", url)
        words = ["accounts", "list", "--json", "--server", url, "--ca", str(CERTIFICATES / "localhost.pem")]
        result = CliRunner().invoke(cli, words, env={"GATEWAY_TOKEN": "gwa_x"}, prog_name="gateway")
        assert (result.exit_code, result.stdout) == (0, "[]\n"), result.output
        assert "no certificates" in refused("--server", url, "--ca", str(CERTIFICATES / "localhost.key"))


def test_token_is_a_reference_and_options_that_contradict_are_refused(tmp_path: Path) -> None:
    server = ("--server", "http://127.0.0.1:1")
    assert "other users can read" in refused(*server, "--token", "gwa_literal", status=2)
    assert "needs an admin token" in refused(*server, status=2, GATEWAY_TOKEN="")
    assert "NO_SUCH_NAME is not set" in refused(*server, "--token", "env:NO_SUCH_NAME")
    file = tmp_path / "token"
    file.write_text("gwa_from_file\n")
    assert "cannot be reached" in refused(*server, "--token", f"file:{file}", GATEWAY_TOKEN="")
    assert "neither --config nor --demo" in refused(*server, "--demo", status=2)
    assert "go with --server" in refused("--token", "env:X", status=2)
    for url in ("gateway.example.com", "ftp://x", "http://", "https://me:secret@host"):
        assert "--server" in refused("--server", url, status=2)


def test_option_on_the_command_line_goes_before_the_server_of_the_environment(terminal: Terminal) -> None:
    words = ["accounts", "list", "--config", str(terminal.config)]
    result = CliRunner().invoke(cli, words, env={"GATEWAY_SERVER": "http://127.0.0.1:1"}, prog_name="gateway")
    assert result.exit_code == 0


@pytest.mark.slow
def test_remote_command_loads_no_sql() -> None:
    code = (
        "import sys, gateway.cli.accounts, gateway.cli.keys, gateway.cli.users, gateway.cli.admin_client;"
        "print({'sqlalchemy', 'alembic', 'aiohttp'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
