"""Runs commands on the gateway's machine and over the admin API, and compares what they print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.billing.usage import Usage
from gateway.cli import cli
from gateway.config.loader import load
from gateway.ledger import Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.ledger.records import quote_of, settle

from .admin_server import admin_server
from .conftest import Terminal

SCOPES = "read,accounts,keys,credits,users,config"
#: What differs between two runs of a command.
VARYING = re.compile(
    r"(?P<key>(key|usr|inv|adm|tok|evt|ses)_[0-9a-z]+)|(?P<text>sk-[\w-]{20,}|gwa_[\w-]{20,}|token=[\w-]{43})"
    r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)|(?P<address>(?<=\"address\":\")[^\"]*)|(?P<actor>(?<=\")(cli|token):[^\"]+)|(?P<last4>\"last4\":\"[^\"]{4}\")"
)


NEAREST = re.compile(r"; nearest: \"[^\"]+\"")


class TwoWays:
    """Runs a command on this machine and over the server; `~` in a word is `local1` or `remote1`."""

    def __init__(self, terminal: Terminal, url: str, token: str) -> None:
        self.terminal = terminal
        self.remote = {"GATEWAY_SERVER": url, "GATEWAY_TOKEN": token, "GATEWAY_CONFIG": "/nowhere/gateway.toml"}

    def run(self, place: str, *words: str) -> Any:
        """The result of the command at one place."""
        environment = self.terminal.environment if place == "local1" else self.remote
        return CliRunner().invoke(
            cli, [word.replace("~", place) for word in words], env=environment, prog_name="gateway"
        )

    def document(self, place: str, *words: str) -> Any:
        """The document that `--json` prints."""
        result = self.run(place, *words, "--json")
        assert result.exit_code == 0, (words, result.output)
        return json.loads(result.stdout)

    def same(self, *words: str) -> tuple[Any, Any]:
        """The documents of both, which must not differ."""
        here, there = self.document("local1", *words), self.document("remote1", *words)
        assert plain(here, "local1") == plain(there, "remote1"), words
        return here, there

    def same_refusal(self, *words: str) -> None:
        """Both fail with the same message."""
        here, there = self.run("local1", *words), self.run("remote1", *words)
        assert (here.exit_code, there.exit_code) == (1, 1), (here.output, there.output)
        assert here.stdout == there.stdout == ""
        # The server adds the nearest name.
        assert NEAREST.sub("", here.stderr).replace("local1", "~") == NEAREST.sub("", there.stderr).replace(
            "remote1", "~"
        )


def plain(document: Any, place: str) -> Any:
    """The document without what varies between two runs."""
    text = json.dumps(document, separators=(",", ":"))
    text = VARYING.sub(lambda found: f"<{found.lastgroup}>", text)
    return json.loads(text.replace(place, "~").replace("<last4>", '"last4":""'))


@pytest.fixture
def ways(terminal: Terminal) -> Iterator[TwoWays]:
    """Both ways, the second with a token that may do everything."""
    token = terminal.json("tokens", "create", "ops", "--scopes", SCOPES)["token"]
    with admin_server(load(terminal.config)) as url:
        yield TwoWays(terminal, url, token)


async def pay(store: Store, key_ids: dict[str, str]) -> None:
    """Settle the call `req_NAME` of each account."""
    ledger = Ledger(store, {})
    for account, key_id in key_ids.items():
        key, quote = ApiKey(account, key_id), quote_of(10**9, 5, model="fake-chat", groups=frozenset({"vip"}))
        hold = await ledger.admit(f"req_{account}", key, quote)
        await settle(ledger, hold, 250_000_000, provider="fake", usage=Usage(in_text=3, out_text=2))
