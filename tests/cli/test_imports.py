"""`gateway import accounts`, `keys` and `users`: all faults at once, a dry run, and nothing changed by a second run."""

from __future__ import annotations

import csv
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.known_accounts import KnownAccounts
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.world import World

ACCOUNTS = """name,group,balance,floor,rpm,monthly,allowed,denied,state,credit,operation,note
acme,vip,12.5,-3,100,50,fake-chat;short,,,,,
beta,,,,,,,other,disabled,7.000000001,invoice-1,"paid, by card"
beta,,,,,,,,,2,invoice-2,
"""
KEYS = """account,name,key,rpm,models,budget,every,expires,endpoints,addresses
acme,web,,10,"fake-chat,other",5,month,2099-01-01,chat,10.0.0.0/8
acme,old,sk-brought-along-from-elsewhere,,,,,,,
"""
USERS = """email,name,role,account,account_role
Ada@Example.com,Ada,operator,acme,owner
ada@example.com,,,beta,
bob@example.com,Bob,,,
"""


class Files:
    """Writes a file, and imports it."""

    def __init__(self, terminal: Terminal, folder: Path) -> None:
        self.terminal = terminal
        self.folder = folder

    def put(self, kind: str, text: str | bytes) -> list[str]:
        path = self.folder / f"{kind}.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return ["import", kind, str(path)]

    def done(self, kind: str, text: str, *words: str) -> Any:
        return self.terminal.json(*self.put(kind, text), *words)

    def faults(self, kind: str, text: str | bytes, *words: str) -> list[str]:
        """The faults without the beginning of each line."""
        found = self.terminal.refused(*self.put(kind, text), *words)
        return [line.removeprefix(f"gateway: {kind}.csv, ") for line in found.splitlines()]


@pytest.fixture
def files(terminal: Terminal, tmp_path: Path) -> Files:
    return Files(terminal, tmp_path)


def counts(done: Any) -> tuple[int, ...]:
    return tuple(done[name] for name in ("create", "change", "credit", "nothing"))


def dump(valkey: Path) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}

    async def work(store: Store) -> None:
        found.update(await World(store, {}).dump())

    on_store(valkey, work)
    return found


def test_accounts_are_created_changed_and_credited_once(files: Files, valkey: Path) -> None:
    empty = dump(valkey)
    planned = files.done("accounts", ACCOUNTS, "--dry-run")
    assert (planned["dry_run"], counts(planned)) == (True, (2, 4, 2, 0))
    assert dump(valkey) == empty
    assert counts(files.done("accounts", ACCOUNTS)) == (2, 4, 2, 0)
    acme, beta = files.terminal.json("accounts", "list")
    assert (acme["balance"], acme["floor"], acme["rpm"], acme["monthly"]) == ("12.5", "-3", 100, "50")
    assert (acme["group"], acme["allowed"]) == ("vip", ["fake-chat"])
    assert (beta["balance"], beta["state"], beta["denied"], beta["group"]) == (
        "9.000000001",
        "disabled",
        ["other"],
        "default",
    )
    credit = files.terminal.json("usage", "beta")[1]
    assert (credit["request_id"], credit["note"]) == ("invoice-1", "paid, by card")
    before = dump(valkey)
    assert counts(files.done("accounts", ACCOUNTS)) == (0, 0, 0, 4)
    assert dump(valkey) == before
    changed = files.done("accounts", ACCOUNTS.replace(",100,50,", ",200,50,"))
    assert (counts(changed)[1], changed["steps"][0]["values"]) == (1, {"rpm": 200})
    files.terminal.ok("audit")


def test_imported_accounts_are_remembered_for_the_audit(files: Files, tmp_path: Path) -> None:
    files.done("accounts", ACCOUNTS, "--dry-run")
    assert KnownAccounts(tmp_path / "var").read() == 0
    files.done("accounts", ACCOUNTS)
    assert KnownAccounts(tmp_path / "var").read() == 2


def test_every_fault_of_the_accounts_is_named_at_once_and_nothing_is_changed(files: Files, valkey: Path) -> None:
    files.done("accounts", ACCOUNTS)
    before = dump(valkey)
    faults = files.faults(
        "accounts",
        "name,group,balance,rpm,credit,operation,floor,colour\n"
        "Acme,defalt,1e3,0,,,,red\n"
        "new,,1.0000000001,,,,,\n"
        "acme,,NaN,,,,,\n"
        '"x\ny",,,,,,,\n'
        "beta,,,,5,invoice-1,,\n"
        "acme,,,,5,,20,\n"
        "gamma,,,,9000001,op,,\n"
        "delta,,\n"
        "beta,vip,,,,,,\n",
    )
    assert [fault.partition(": ")[0] for fault in faults] == [
        "line 1, column colour",
        "line 2, column balance",
        "line 2, column group",
        "line 2, column name",
        "line 2, column rpm",
        "line 3, column balance",
        "line 4, column balance",
        "line 5, column name",
        "line 7, column operation",
        "line 8, column floor",
        "line 8, column operation",
        "line 9, column credit",
        "line 10",
        "line 11, column name",
    ]
    text = "\n".join(faults)
    assert "'1e3' is not a decimal amount with at most nine places" in text
    assert "'1.0000000001' is not a decimal amount" in text
    assert "'NaN' is not a decimal amount" in text
    assert "there is no group 'defalt'; nearest: \"default\"" in text
    assert "invoice-1 was already used for something else" in text
    assert dump(valkey) == before


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"name\nacm\xe9\n", "line 2: is not UTF-8"),
        (b"", "line 1: the names of the columns are missing"),
        (b"group\nvip\n", "line 1, column name: is missing"),
        (b"name,name\na,b\n", "line 1, column name: stands twice"),
        (b'name\n"acme\n', "is no CSV"),
        (b"name\nacme\nacme\n", None),
    ],
)
def test_file_that_is_no_table_is_refused(files: Files, content: bytes, fault: str | None) -> None:
    if fault is None:
        files.done("accounts", content.decode())
        return
    assert fault in "\n".join(files.faults("accounts", content))


def test_keys_are_created_once_and_printed_into_a_private_file(files: Files, valkey: Path, tmp_path: Path) -> None:
    files.done("accounts", ACCOUNTS)
    out = tmp_path / "new-keys.csv"
    assert counts(files.done("keys", KEYS, "--dry-run")) == (2, 0, 0, 0)
    assert "there is no file for new keys" in files.faults("keys", KEYS)[0]
    assert counts(files.done("keys", KEYS, "--out", str(out))) == (2, 0, 0, 0)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert b"\r" not in out.read_bytes()
    (made,) = csv.DictReader(out.read_text().splitlines())
    old, web = sorted(files.terminal.json("keys", "list", "acme"), key=lambda key: key["name"])
    assert (made["account"], made["name"], made["id"]) == ("acme", "web", web["id"])
    assert (web["rpm"], web["models"], web["budget"], web["every"]) == (10, ["fake-chat", "other"], "5", "month")
    assert (web["endpoints"], web["addresses"]) == (["chat"], ["10.0.0.0/8"])
    assert old["last4"] == "here"

    async def authenticate(store: Store) -> None:
        from gateway.accounts.authenticator import Authenticator
        from gateway.accounts.pepper import load_pepper

        auth = Authenticator(store, load_pepper(tmp_path / "var"))
        assert (await auth.authenticate(made["key"])).id == web["id"]
        assert (await auth.authenticate("sk-brought-along-from-elsewhere")).id == old["id"]

    on_store(valkey, authenticate)
    assert b"brought-along" not in repr(dump(valkey)).encode()
    before = dump(valkey)
    again = tmp_path / "again.csv"
    assert counts(files.done("keys", KEYS, "--out", str(again))) == (0, 0, 0, 2)
    assert dump(valkey) == before
    assert not again.exists()
    assert "exists already" in files.terminal.refused(*files.put("keys", KEYS), "--out", str(out))
    assert counts(files.done("keys", KEYS.replace(",,10,", ",,20,"))) == (0, 1, 0, 1)
    assert files.terminal.json("keys", "show", web["id"])["rpm"] == 20


def test_faults_of_keys_are_named_and_a_revoked_key_is_not_made_again(files: Files, valkey: Path) -> None:
    files.done("accounts", ACCOUNTS)
    files.done("keys", KEYS.replace("acme,web,,", "acme,web,sk-web-0123456789abcdef,"))
    web = next(key for key in files.terminal.json("keys", "list", "acme") if key["name"] == "web")
    files.terminal.ok("keys", "revoke", web["id"])
    before = dump(valkey)
    faults = files.faults(
        "keys",
        "account,name,key,models,every,expires,addresses,budget\n"
        "acme,web,,,,,,\n"
        "nobody,x,sk-0123456789abcdefghij,,,,,\n"
        "acme,a,sk-short,,,,,\n"
        "acme,b,sk-brought-along-from-elsewhere,,,,,\n"
        "acme,c,sk-0123456789abcdefghik,gpt-9,,,,\n"
        "acme,d,sk-0123456789abcdefghil,,month,2001-01-01,,\n"
        "acme,e,sk-0123456789abcdefghim,,year,30d,10.0.0.0/99,-1\n"
        "acme,d,sk-0123456789abcdefghin,,,,,\n"
        "acme,old,sk-0123456789abcdefghio,,,,,\n",
    )
    text = "\n".join(faults)
    for expected in (
        "line 2, column name: the key 'web' of the account is revoked; give another name",
        "line 3, column account: there is no account 'nobody'",
        "line 4, column key: a key of less than 20 characters can be guessed",
        "line 5, column key: there is a key with this text, of another name or account, or closed",
        "line 6, column models: there is no model 'gpt-9'",
        "line 7, column every: a period needs a budget",
        "line 7, column expires: has passed already",
        "line 8, column every: there is no period 'year'",
        "line 8, column expires: '30d' is no time",
        "line 8, column addresses: not an address range",
        "line 8, column budget: must be above 0",
        "line 9, column name: the account has a key of this name in line 7 already",
        "line 10, column key: the account has a key 'old' with another text",
    ):
        assert expected in text
    assert "sk-" not in text.replace("begins with sk-", "")
    assert dump(valkey) == before


def test_users_and_their_memberships_are_imported_once(files: Files) -> None:
    files.done("accounts", ACCOUNTS)
    assert counts(files.done("users", USERS, "--dry-run")) == (2, 2, 0, 0)
    assert files.terminal.json("users", "list") == []
    assert counts(files.done("users", USERS)) == (2, 2, 0, 0)
    ada, bob = files.terminal.json("users", "list")
    assert (ada["name"], ada["role"], ada["accounts"]) == ("Ada", "operator", {"acme": "owner", "beta": "member"})
    assert (bob["name"], bob["role"]) == ("Bob", "none")
    assert counts(files.done("users", USERS)) == (0, 0, 0, 2)
    assert counts(files.done("users", USERS.replace(",Bob,", ",Robert,"))) == (0, 1, 0, 1)
    faults = files.faults(
        "users",
        "email,name,role,account,account_role\n"
        "no address,,,,\n"
        "ada@example.com,,none,,\n"
        "bob@example.com,,boss,,\n"
        "eve@example.com,,,nowhere,owner\n"
        "eve@example.com,Eve,,,member\n",
    )
    text = "\n".join(faults)
    for expected in (
        "line 2, column email: This is no e-mail address",
        "line 3, column role: an import takes the role of no operator",
        "line 4, column role: there is no role on the site 'boss'",
        "line 5, column account: There is no account 'nowhere'",
        "line 6, column account: is empty",
        "line 6, column name: line 5 has another name",
    ):
        assert expected in text
    assert len(files.terminal.json("users", "list")) == 2


MEMBERS = """email,account,account_role,budget,every
ann@example.com,acme,owner,50,month
bob@example.com,acme,,7.5,
"""
KEYS_OF_USERS = """account,name,user,budget
acme,laptop of Ann,Ann@example.com,5
acme,laptop of Bob,bob@example.com,
acme,nightly,,
"""


@pytest.mark.holds("cli/keys.md#gateway-import-keys-2", "cli/users.md#gateway-import-users-1")
def test_keys_of_users_and_budgets_of_members_are_imported_once(files: Files, valkey: Path, tmp_path: Path) -> None:
    files.done("accounts", ACCOUNTS)
    assert counts(files.done("users", MEMBERS)) == (2, 4, 0, 0)
    limit = files.terminal.json("users", "limit", "ann@example.com", "acme")
    assert (limit["budget"], limit["every"]) == ("50", "month")
    limit = files.terminal.json("users", "limit", "bob@example.com", "acme")
    assert (limit["budget"], limit["every"]) == ("7.5", None)
    assert counts(files.done("users", MEMBERS)) == (0, 0, 0, 2)
    assert counts(files.done("users", MEMBERS.replace(",7.5,", ",8,"))) == (0, 1, 0, 2)
    assert files.terminal.json("users", "limit", "bob@example.com", "acme")["budget"] == "8"

    assert counts(files.done("keys", KEYS_OF_USERS, "--dry-run")) == (3, 0, 0, 0)
    assert counts(files.done("keys", KEYS_OF_USERS, "--out", str(tmp_path / "new.csv"))) == (3, 0, 0, 0)
    users = {user["email"]: user["id"] for user in files.terminal.json("users", "list")}
    keys = {key["name"]: key for key in files.terminal.json("keys", "list", "acme")}
    assert keys["laptop of Ann"]["user"] == users["ann@example.com"]
    assert keys["laptop of Bob"]["user"] == users["bob@example.com"]
    assert (keys["nightly"].get("user"), keys["laptop of Ann"]["budget"]) == (None, "5")
    before = dump(valkey)
    assert counts(files.done("keys", KEYS_OF_USERS)) == (0, 0, 0, 3)
    assert dump(valkey) == before


def test_faults_of_users_of_keys_and_of_budgets_are_named(files: Files, tmp_path: Path) -> None:
    files.done("accounts", ACCOUNTS)
    files.done("users", MEMBERS)
    files.done("keys", KEYS_OF_USERS, "--out", str(tmp_path / "new.csv"))
    files.terminal.ok("users", "disable", "bob@example.com")
    text = "\n".join(
        files.faults(
            "keys",
            "account,name,user\nacme,a,eve@example.com\nbeta,b,ann@example.com\nacme,c,bob@example.com\n"
            "acme,nightly,ann@example.com\nacme,d,no address\n",
            "--out",
            str(tmp_path / "other.csv"),
        )
    )
    for expected in (
        "line 2, column user: there is no user eve@example.com",
        "line 3, column user: ann@example.com is no member of beta",
        "line 4, column user: bob@example.com is disabled",
        "line 5, column user: the key is not of this user",
        "line 6, column user: This is no e-mail address",
    ):
        assert expected in text
    content = "email,account,budget,every\neve@example.com,,5,\ncid@example.com,acme,,month\ndan@example.com,acme,-1,\n"
    text = "\n".join(files.faults("users", content))
    for expected in (
        "line 2, column account: is empty: a member's budget needs the account",
        "line 3, column every: a period needs a budget",
        "line 4, column budget: must be above 0",
    ):
        assert expected in text
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.holds("cli/users.md#gateway-users-links-1")
def test_sign_in_links_for_the_users_of_a_file_are_written_into_a_private_file(files: Files, tmp_path: Path) -> None:
    files.done("accounts", ACCOUNTS)
    files.done("users", MEMBERS)
    out, source = tmp_path / "links.csv", str(tmp_path / "users.csv")
    made = files.terminal.json("users", "links", "--from", source, "bob@example.com", "--out", str(out))
    assert made == {"links": 2, "file": str(out)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert sorted(row["email"] for row in rows) == ["ann@example.com", "bob@example.com"]
    assert len({row["link"] for row in rows}) == 2
    assert all("?token=" in row["link"] for row in rows)
    assert b"\r" not in out.read_bytes()
    assert "exists already" in files.terminal.refused("users", "links", "ann@example.com", "--out", str(out))
    files.terminal.ok("users", "disable", "bob@example.com")
    other = tmp_path / "other.csv"
    refused = files.terminal.refused("users", "links", "eve@example.com", "bob@example.com", "--out", str(other))
    assert "There is no user eve@example.com" in refused and "bob@example.com is disabled" in refused
    assert not other.exists()
