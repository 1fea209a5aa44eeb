"""Commands about usage, prices, the site and imports print the same with `--server`."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.key_record import CreatedKey
from gateway.admin.keys import KeyService
from gateway.admin_api.resources import imports
from gateway.config.loader import load
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import StoreUnavailable
from gateway.history.refusals import add_batches
from gateway.ledger.entry import Entry
from gateway.ledger.refusal_counts import HOUR, RefusalBatch
from gateway.ledger.refused import RefusedFile
from gateway.store import Store
from tests.history.made_lines import Account as History
from tests.history.made_lines import moment

from .conftest import Terminal, on_store
from .two_ways import TwoWays, pay, plain, ways

__all__ = ["ways"]


@pytest.mark.slow
def test_commands_about_usage_prices_and_the_site_are_the_same(ways: TwoWays, valkey: Path, tmp_path: Path) -> None:
    for place in ("local1", "remote1"):
        ways.document(place, "accounts", "create", place, "--balance", "10.5", "--group", "vip")
    key_ids = {place: ways.document(place, "keys", "create", place)["id"] for place in ("local1", "remote1")}
    on_store(valkey, lambda store: pay(store, key_ids))
    for change in (("--set", "input=0.2,output=1"), ("--factor", "0.8"), ("--clear",)):
        ways.same("accounts", "price", "~", "fake-chat", *change)
    ways.same("usage", "list", "~")
    ways.same("usage", "list", "~", "--since", "1h")
    before = dict.fromkeys(("local1", "remote1"), "")
    for _ in range(2):  # the newest page, and the one before
        pages = {}
        for place, cursor in before.items():
            older = ("--before", cursor) if cursor else ()
            pages[place] = ways.document(place, "usage", "list", place, "--limit", "1", *older)
        assert plain(pages["local1"]["data"], "local1") == plain(pages["remote1"]["data"], "remote1") != []
        before = {place: page["next_cursor"] for place, page in pages.items()}
    ways.same("usage", "show", "req_~", "--account", "~")
    ways.same("notify", "threshold", "~", "5")
    ways.same("notify", "threshold", "~", "--clear")
    ways.same("notify", "threshold", "~")
    folder = tmp_path / "var" / "journal"
    folder.mkdir(parents=True)
    for place in ("local1", "remote1"):
        meta = json.dumps({"key": key_ids[place], "model": "fake-chat"})
        entry = Entry(place, f"req_refused_{place}", key_ids[place], "use", -250, 1, _now(), meta, hold=10**9)
        RefusedFile(folder).add(entry)
        RefusedFile(folder).add(structs.replace(entry, account=f"no-{place}", request_id=f"req_none_{place}"))
    _fill_history(ways.terminal)
    ways.terminal.ok("accounts", "create", "calm", "--balance", "5")
    calm = ways.terminal.json("keys", "create", "calm")["id"]
    for words in (
        ("usage", "show", "req_filled"),
        ("report", "--from", "2026-10-01", "--to", "2026-12-01", "--group-by", "account,day", "--margin"),
        ("report", "--from", "2026-10-01", "--to", "2026-12-01", "--model", "m,other", "--group-by", "user,month"),
        ("accounts", "statement", "filled", "--month", "2026-10"),
        ("accounts", "statements", "filled"),
        ("models",),
        ("models", "--account", "local1"),
        ("models", "--health"),
        ("plugins",),
        ("explain", calm, "fake-chat", "--max-tokens", "5", "--stream"),
        ("refused", "list"),
        ("history", "refusals"),
        ("history", "refusals", "filled", "--since", "2026-10-05", "--until", "2026-10-06"),
        ("history", "state"),
        ("notify", "list"),
        ("keys", "list", "--unused", "2099-01-01"),
        ("check",),
    ):
        here, there = (_stable(ways.document(place, *words)) for place in ("local1", "remote1"))
        assert here == there, words
        text = [ways.run(place, *words) for place in ("local1", "remote1")]
        assert _stable(text[0].stdout) == _stable(text[1].stdout) != "", words
        assert text[0].stderr == text[1].stderr, words
    for output in ("--csv", "--html"):
        statement = ("accounts", "statement", "filled", "--month", "2026-10", output)
        assert ways.run("local1", *statement).stdout == ways.run("remote1", *statement).stdout != ""
    report = ("report", "--from", "2026-10-01", "--group-by", "day", "--format", "csv")
    assert ways.run("local1", *report).stdout == ways.run("remote1", *report).stdout != ""
    ways.same("refused", "book", "req_refused_~")
    booked = [ways.run(place, "refused", "book", f"req_none_{place}", "--json") for place in ("local1", "remote1")]
    assert [one.exit_code for one in booked] == [1, 1] and booked[0].stderr == booked[1].stderr
    audits = [ways.document(place, "audit", "remote1") for place in ("local1", "remote1")]
    assert audits[0] == audits[1]
    for refused_words in (
        ("accounts", "price", "~", "nothing", "--factor", "1"),
        ("accounts", "price", "~", "fake-chat", "--set", "inputt=1"),
        ("accounts", "statement", "~", "--month", "2026-1"),
        ("accounts", "statements", "nobody"),
        ("audit", "nobody"),
        ("explain", "key_nothing", "fake-chat"),
        ("models", "--account", "nobody"),
        ("notify", "retry", "evt_nothing"),
        ("notify", "test"),
        ("refused", "book", "req_nothing"),
        ("reload",),
        ("report", "--group-by", "nothing"),
        ("usage", "list", "nobody"),
        ("usage", "show", "req_nothing"),
    ):
        ways.same_refusal(*refused_words)


def _now() -> int:
    return int(time.time()) * 1_000_000


def _fill_history(terminal: Terminal) -> None:
    """A past month of an account with calls, of which the store has the same last line."""
    terminal.ok("accounts", "create", "filled")
    settings = load(terminal.config)
    database = Database.open(address_of(settings))
    account = History(database, "filled")
    account.line("2026-10-01T10:00", "open", 5_000, request_id="open")
    account.call("2026-10-05T10:30", 500, request_id="req_filled", user="usr_1", upstream_cost=120)
    account.flush()
    hours = [int(moment(day).timestamp()) // HOUR for day in ("2026-10-05", "2026-10-06")]
    add_batches(database, [RefusalBatch("batch", [(hour, "filled", "key_1", "m", "c", 1) for hour in hours])])
    database.close()
    values = (account.seq, account.balance)
    on_store(Path(settings.store.url.removeprefix("unix://")), lambda store: _write(store, values))


async def _write(store: Store, values: tuple[int, int]) -> None:
    for name, value in zip(("seq", "bal"), values, strict=True):
        await store.client.hset("{a:filled}", name, value)
    await store.client.delete("{a:filled}:lg")


def _stable(document: Any) -> Any:
    """The document without what passes between two commands."""
    text = json.dumps(document)
    return json.loads(re.sub(r"(lag_seconds[\\\" :]*)[0-9.]+", r"\g<1>0", text))


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-5")
@pytest.mark.slow
def test_commands_about_imports_are_the_same(ways: TwoWays, tmp_path: Path) -> None:
    for place in ("local1", "remote1"):
        folder = tmp_path / place
        folder.mkdir()
        ways.document(place, "accounts", "create", place)
        (folder / "accounts.csv").write_text(f"name,group,credit,operation\nnew-{place},vip,5.5,first\n{place},,1,x\n")
        (folder / "keys.csv").write_text(f"account,name,rpm\n{place},one,5\n{place},two,\n")
        (folder / "users.csv").write_text(f"email,account,account_role\nann.{place}@example.com,{place},owner\n")
        (folder / "bad.csv").write_text(f"name,group\nnew-{place},vipp\nBad Name,\n")
    for kind, options in (("accounts", ()), ("keys", ("--out", str(tmp_path / "~" / "new.csv"))), ("users", ())):
        file = str(tmp_path / "~" / f"{kind}.csv")
        dry, _ = ways.same("import", kind, file, "--dry-run")
        assert dry["dry_run"] and dry["create"]
        done, _ = ways.same("import", kind, file, *options)
        assert done["create"] == dry["create"]
        again, _ = ways.same("import", kind, file)
        assert (again["create"], again["change"], again["credit"]) == (0, 0, 0)
    for place in ("local1", "remote1"):
        made = (tmp_path / place / "new.csv").read_text().splitlines()
        assert [re.sub(r"key_\w+,sk-[\w-]+", "…", line) for line in made] == [
            "account,name,id,key",
            f"{place},one,…",
            f"{place},two,…",
        ]
    ways.same_refusal("import", "accounts", str(tmp_path / "~" / "bad.csv"))
    (tmp_path / "remote1" / "other.csv").write_text("account,name\nremote1,three\n")
    refused_keys = ways.run("remote1", "import", "keys", str(tmp_path / "remote1" / "other.csv"))
    assert (refused_keys.exit_code, "there is no file for new keys" in refused_keys.stderr) == (1, True)


@pytest.mark.holds("cli/keys.md#gateway-import-keys-1")
def test_keys_that_were_made_before_an_import_stopped_are_in_the_file(
    ways: TwoWays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KeyService.create

    async def second_fails(self: KeyService, *args: Any, **options: Any) -> CreatedKey:
        if options["name"] == "two":
            raise StoreUnavailable
        return await create(self, *args, **options)

    monkeypatch.setattr(KeyService, "create", second_fails)
    for place in ("local1", "remote1"):
        ways.document(place, "accounts", "create", place)
        file, out = tmp_path / f"{place}.csv", tmp_path / f"{place}-new.csv"
        file.write_text(f"account,name\n{place},one\n{place},two\n")
        stopped = ways.run(place, "import", "keys", str(file), "--out", str(out))
        assert stopped.exit_code == 1
        assert f"the import stopped; keys made before: 1, they are in {out}" in stopped.stderr
        _, made = out.read_text().splitlines()
        [key] = ways.document(place, "keys", "list", place)
        assert re.fullmatch(rf"{place},one,{key['id']},sk-[\w-]+", made)


@pytest.mark.holds("cli/keys.md#gateway-import-keys-1")
def test_import_of_too_many_keys_for_a_request_says_what_to_do(
    ways: TwoWays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MOST_NEW_KEYS", 1)
    file, out = tmp_path / "keys.csv", tmp_path / "new.csv"
    ways.document("local1", "accounts", "create", "acme")
    file.write_text("account,name\nacme,one\nacme,two\n")
    refused = ways.run("remote1", "import", "keys", str(file), "--out", str(out))
    assert (refused.exit_code, out.exists()) == (1, False)
    assert "keys.csv, line 3: from here on more than 1 keys are to be made; divide the file" in refused.stderr
    assert ways.document("local1", "import", "keys", str(file), "--out", str(out))["create"] == 2


def test_links_of_many_users_and_keys_of_users_are_made_over_a_server(ways: TwoWays, tmp_path: Path) -> None:
    for place in ("local1", "remote1"):
        ways.document(place, "accounts", "create", place)
        users, keys, out = (tmp_path / f"{place}-{name}.csv" for name in ("users", "keys", "new"))
        users.write_text(f"email,account,budget\n{place}@example.com,{place},5\n")
        ways.document(place, "import", "users", str(users))
        assert ways.document(place, "users", "limit", f"{place}@example.com", place)["budget"] == "5"
        keys.write_text(f"account,name,user\n{place},laptop,{place}@example.com\n")
        assert ways.document(place, "import", "keys", str(keys), "--out", str(out))["create"] == 1
        links = tmp_path / f"{place}-links.csv"
        assert ways.document(place, "users", "links", "--from", str(users), "--out", str(links))["links"] == 1
        assert f"{place}@example.com,,http" in links.read_text()
