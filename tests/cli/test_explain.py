"""`gateway explain` names the rule in the way, and the command it gives takes that rule out of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger import GroupLimits, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.ledger.records import quote_of

from .conftest import Terminal, on_store

RULES = [
    "key",
    "expiry",
    "account",
    "scope",
    "permission",
    "price",
    "size",
    "concurrency",
    "requests",
    "tokens",
    "cost",
    "budget",
    "member",
    "session",
    "cap",
    "balance",
]


@pytest.fixture
def acme(terminal: Terminal) -> Terminal:
    """A terminal with an account that can pay."""
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    return terminal


def make_key(terminal: Terminal, *options: str) -> str:
    key: str = terminal.json("keys", "create", "acme", *options)["id"]
    return key


def refused(terminal: Terminal, *words: str) -> Any:
    result = terminal.run("explain", *words, "--json")
    assert result.exit_code == 1, result.output
    return json.loads(result.stdout)


def follow(terminal: Terminal, change: str) -> str:
    """Run the command that the explanation gives."""
    program, *words = shlex.split(change)
    assert program == "gateway"
    return terminal.ok(*words)


def hold_one(socket: Path, key_id: str, *, tokens: int = 1) -> None:
    async def admit(store: Store) -> None:
        ledger = Ledger(store, {"default": GroupLimits()})
        await ledger.admit("req_1", ApiKey("acme", key_id), quote_of(10**9, tokens, model="fake-chat"))

    on_store(socket, admit)


def test_explanation_of_an_admitted_call_names_every_rule_in_order(acme: Terminal) -> None:
    told = acme.json("explain", make_key(acme), "short", "--tokens", "100", "--max-tokens", "50")
    assert [rule["rule"] for rule in told["rules"]] == RULES
    assert {rule["verdict"] for rule in told["rules"]} == {"pass"}
    assert (told["admitted"], told["model"], told["group"], told["refused_by"]) == (True, "fake-chat", "default", "")
    assert (told["tokens"], told["output"]) == (125 + 50, 50)
    assert told["hold"] == "0.0001375"  # 125 x 0.5 and 50 x 1.5 per million


@pytest.mark.holds("prices.md#prices-of-accounts-3")
def test_explanation_holds_at_the_price_of_the_account(acme: Terminal) -> None:
    words = ("explain", make_key(acme), "fake-chat", "--tokens", "100", "--max-tokens", "50")
    acme.ok("accounts", "price", "acme", "fake-chat", "--factor", "0.1")
    assert acme.json(*words)["hold"] == "0.00001375"
    acme.ok("accounts", "price", "acme", "fake-chat", "--set", "output=9")
    assert acme.json(*words)["hold"] == "0.0005125"
    acme.ok("accounts", "price", "acme", "fake-chat", "--clear")
    assert acme.json(*words)["hold"] == "0.0001375"


def test_table_has_a_line_per_rule_and_the_verdict_on_stderr(acme: Terminal) -> None:
    result = acme.run("explain", make_key(acme), "fake-chat")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1 + len(RULES)
    assert result.stderr.startswith("gateway: would be admitted: ")


def test_suggested_command_enables_a_disabled_account(acme: Terminal) -> None:
    key_id = make_key(acme)
    acme.ok("accounts", "disable", "acme")
    told = refused(acme, key_id, "fake-chat")
    assert told["refused_by"] == "account"
    (change,) = [rule["change"] for rule in told["rules"] if rule["verdict"] == "refuse"]
    follow(acme, change)
    acme.ok("explain", key_id, "fake-chat")


def test_suggested_command_allows_a_model_of_another_group(acme: Terminal) -> None:
    key_id = make_key(acme)
    told = refused(acme, key_id, "other")
    assert told["refused_by"] == "permission"
    assert told["rules"][4]["state"] == "group default may not use it"
    follow(acme, told["rules"][4]["change"])
    assert acme.json("explain", key_id, "other")["rules"][4]["state"] == "the account's own rule allows it"
    acme.ok("accounts", "deny", "acme", "other")
    assert refused(acme, key_id, "other")["rules"][4]["state"] == "the account's own rule denies it"


def test_key_without_the_model_is_named_as_the_reason(acme: Terminal) -> None:
    told = refused(acme, make_key(acme, "--models", "other"), "fake-chat")
    assert told["rules"][4]["state"] == "the key's own models leave it out"
    assert told["rules"][4]["change"] == "gateway keys create acme --models fake-chat"


def test_suggested_command_credits_the_exact_missing_amount(acme: Terminal) -> None:
    terminal = acme
    terminal.ok("accounts", "create", "poor", "--balance", "0.000000001")
    key_id = terminal.json("keys", "create", "poor")["id"]
    told = refused(terminal, key_id, "fake-chat", "--tokens", "7", "--max-tokens", "3")
    assert told["refused_by"] == "balance"
    follow(terminal, told["rules"][RULES.index("balance")]["change"])
    assert terminal.json("accounts", "show", "poor")["balance"] == told["hold"]
    terminal.ok("explain", key_id, "fake-chat", "--tokens", "7", "--max-tokens", "3")


def test_suggested_command_raises_the_budget(acme: Terminal) -> None:
    key_id = make_key(acme, "--budget", "0.000001")
    told = refused(acme, key_id, "fake-chat")
    assert told["refused_by"] == "budget"
    follow(acme, told["rules"][11]["change"])
    assert acme.json("explain", key_id, "fake-chat")["admitted"]


def test_limits_are_explained_with_their_usage_and_the_wait(acme: Terminal, valkey: Path) -> None:
    key_id = make_key(acme, "--rpm", "1", "--tpm", "3000", "--concurrency", "1")
    assert acme.json("explain", key_id, "fake-chat", "--max-tokens", "9")["rules"][8]["state"] == "key 1 of 1 left"
    hold_one(valkey, key_id, tokens=2500)
    told = refused(acme, key_id, "fake-chat", "--max-tokens", "9")
    _, _, _, _, _, _, _, concurrency, requests, tokens, *_ = told["rules"]
    assert told["refused_by"] == "concurrency"
    assert concurrency["state"] == "key 1 of 1"
    assert f"gateway keys edit {key_id} --concurrency 2" in concurrency["change"]
    assert requests["state"] == "key 0 of 1 left"
    assert requests["change"].startswith("wait 5")
    assert tokens["verdict"] == "refuse"
    assert tokens["change"].startswith("wait ")


def test_request_larger_than_the_token_limit_gets_a_400(acme: Terminal) -> None:
    told = refused(acme, make_key(acme, "--tpm", "100"), "fake-chat")
    assert told["refused_by"] == "size"
    assert "no wait helps" in told["rules"][6]["change"]
    assert told["rules"][9]["change"] == "see size"


def test_suggestion_for_a_revoked_key_is_a_new_key(acme: Terminal) -> None:
    key_id = make_key(acme)
    acme.ok("keys", "revoke", key_id)
    told = refused(acme, key_id, "fake-chat")
    assert told["refused_by"] == "key"
    assert told["rules"][0] == {
        "rule": "key",
        "verdict": "refuse",
        "state": "revoked",
        "change": "gateway keys create acme",
    }
    assert told["rules"][1]["verdict"] == "pass"


def test_expired_key_is_distinguished_from_a_revoked_one(acme: Terminal, valkey: Path) -> None:
    key_id = make_key(acme, "--expires", "30d")
    on_store(valkey, lambda store: store.client.hset(f"{{a:acme}}:k:{key_id}", "exp", 1_600_000_000))
    told = refused(acme, key_id, "fake-chat")
    assert told["refused_by"] == "expiry"
    assert told["rules"][0]["verdict"] == "pass"
    assert told["rules"][1]["state"] == "expired 2020-09-13T12:26:40Z"


def test_unknown_key_and_model_are_refused(acme: Terminal) -> None:
    assert acme.refused("explain", "key_nope", "fake-chat") == "gateway: no key 'key_nope'\n"
    assert "no model 'fake-chta'" in acme.refused("explain", make_key(acme), "fake-chta")


def test_explanation_under_the_clamp_policy_has_the_limit_that_the_balance_allows(acme: Terminal) -> None:
    acme.config.write_text(
        acme.config.read_text().replace('aliases = ["short"]', 'aliases = ["short"]\nhold = "clamp"')
    )
    acme.ok("accounts", "create", "poor", "--balance", "0.0001")
    key_id = acme.json("keys", "create", "poor")["id"]
    told = acme.json("explain", key_id, "fake-chat", "--tokens", "8", "--max-tokens", "1000")
    assert told["admitted"] is True
    assert told["output"] == 63  # (0.0001 - 10 x 0.5e-6) / 1.5e-6
    acme.ok("accounts", "credit", "poor", "--allow-negative", "-0.0000999")
    assert refused(acme, key_id, "fake-chat", "--tokens", "8", "--max-tokens", "1000")["refused_by"] == "balance"


def test_endpoint_and_cost_that_the_key_does_not_permit_are_explained_and_allowed_by_the_commands(
    acme: Terminal,
) -> None:
    key_id = make_key(acme, "--endpoints", "embeddings", "--max-cost", "0.000001", "--addresses", "10.0.0.0/8")
    told = refused(acme, key_id, "fake-chat", "--max-tokens", "9")
    assert told["refused_by"] == "scope"
    changes = {rule["rule"]: rule["change"] for rule in told["rules"] if rule["verdict"] == "refuse"}
    assert changes.keys() == {"scope", "cost"}
    assert told["rules"][3]["state"] == "endpoints embeddings; addresses 10.0.0.0/8"
    for change in changes.values():
        follow(acme, change)
    assert acme.json("explain", key_id, "fake-chat", "--max-tokens", "9")["admitted"]


def test_spent_cap_is_explained_and_raised_by_the_command(acme: Terminal) -> None:
    key_id = make_key(acme)
    acme.ok("accounts", "limit", "acme", "--monthly", "0.000001")
    told = refused(acme, key_id, "fake-chat", "--max-tokens", "9")
    assert told["refused_by"] == "cap"
    follow(acme, told["rules"][RULES.index("cap")]["change"])
    assert acme.json("explain", key_id, "fake-chat", "--max-tokens", "9")["admitted"]


def test_unreadable_price_is_explained_shown_audited_and_removed_by_the_command(acme: Terminal, valkey: Path) -> None:
    key_id = make_key(acme)
    acme.ok("accounts", "price", "acme", "fake-chat", "--factor", "2")
    on_store(valkey, lambda store: store.client.hset("{a:acme}", "p:fake-chat", '{"per_smell": "1"}'))
    models = {model["id"]: model for model in acme.json("models", "--account", "acme")}
    assert (models["fake-chat"]["unreadable"], models["fake-chat"]["price"]) == (True, {})
    assert not models["other"]["unreadable"]
    assert "unreadable" in acme.ok("models", "--account", "acme") and "acme" in acme.ok("accounts", "list")
    found = acme.run("audit")
    assert found.exit_code == 1 and "price fake-chat" in found.stdout
    told = refused(acme, key_id, "fake-chat", "--max-tokens", "9")
    assert told["refused_by"] == "price"
    follow(acme, told["rules"][5]["change"])
    assert acme.json("explain", key_id, "fake-chat", "--max-tokens", "9")["admitted"]
    assert acme.run("audit").exit_code == 0


HOOKS = """
[hooks.pii]
plugin = "guard"
timeout = 2.5

[hooks.cache]
plugin = "cache"
on_failure = "open"
price_factor = 0.1
"""


def test_hooks_of_the_model_are_shown_in_the_order_in_which_they_run(acme: Terminal) -> None:
    key, text = make_key(acme), acme.config.read_text()
    assert acme.json("explain", key, "short")["hooks"] == []
    acme.config.write_text(text.replace('aliases = ["short"]', 'aliases = ["short"]\nhooks = ["pii", "cache"]') + HOOKS)

    pii = {"name": "pii", "plugin": "guard", "timeout": 2.5, "on_failure": "closed", "concurrency": 100}
    cache = {"name": "cache", "plugin": "cache", "timeout": 1.0, "on_failure": "open", "concurrency": 100}
    found = acme.json("explain", key, "short")
    assert found["hooks"] == [{**pii, "price_factor": "1"}, {**cache, "price_factor": "0.1"}]
    table = [line.split() for line in acme.ok("explain", key, "short").splitlines()]
    assert table[-2:] == [
        ["pii", "guard", "2.5", "closed", "100", "1"],
        ["cache", "cache", "1.0", "open", "100", "0.1"],
    ]
