"""`gateway accounts`."""

from __future__ import annotations

import pytest

from .conftest import Terminal


def test_create_prints_the_account(terminal: Terminal) -> None:
    account = terminal.json("accounts", "create", "acme", "--group", "vip", "--balance", "10.000000001")
    assert account.pop("created").endswith("Z")
    assert account == {
        "name": "acme",
        "group": "vip",
        "state": "active",
        "balance": "10.000000001",
        "held": "0",
        "allowed": [],
        "denied": [],
        "floor": "0",
        "rpm": None,
        "tpm": None,
        "concurrency": None,
        "monthly": None,
        "month_spent": None,
        "max_session_cost": None,
        "prices": {},
    }


def test_account_starts_in_group_default_with_balance_zero(terminal: Terminal) -> None:
    account = terminal.json("accounts", "create", "acme")
    assert (account["group"], account["balance"]) == ("default", "0")


def test_show_and_list_print_the_same_format(terminal: Terminal) -> None:
    created = terminal.json("accounts", "create", "b")
    terminal.ok("accounts", "create", "a")
    assert terminal.json("accounts", "show", "b") == created
    accounts = terminal.json("accounts", "list")
    assert [account["name"] for account in accounts] == ["a", "b"]
    assert accounts[1] == created


def test_text_output_is_a_readable_table(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "3.5")
    heading, line = terminal.ok("accounts", "list").splitlines()
    assert heading.split()[:4] == ["name", "group", "state", "balance"]
    assert line.split()[:4] == ["acme", "default", "active", "3.5"]
    assert line.index("3.5") == heading.index("balance")


def test_empty_list_is_an_empty_array(terminal: Terminal) -> None:
    assert terminal.json("accounts", "list") == []


def test_second_account_with_the_same_name_is_refused(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    assert terminal.refused("accounts", "create", "acme") == "gateway: account 'acme' exists already\n"


def test_unknown_group_is_refused_with_the_nearest_name(terminal: Terminal) -> None:
    message = terminal.refused("accounts", "create", "acme", "--group", "vpi")
    assert message == "gateway: no group 'vpi' in the configuration; nearest: \"vip\"\n"


@pytest.mark.parametrize(
    "words",
    [("show",), ("credit", "1"), ("disable",), ("enable",), ("move", "vip"), ("allow", "other"), ("deny", "other")],
)
def test_unknown_account_is_refused_by_every_command(terminal: Terminal, words: tuple[str, ...]) -> None:
    command, *rest = words
    assert terminal.refused("accounts", command, "nobody", *rest) == "gateway: no account 'nobody'\n"


@pytest.mark.parametrize("name", ["A", "a{b}", "", "a b", "x" * 64])
def test_invalid_names_are_refused(terminal: Terminal, name: str) -> None:
    assert "no account name" in terminal.refused("accounts", "create", name)


@pytest.mark.parametrize("amount", ["1e3", "0.0000000001", "ten", "1,5", "inf", "", "9000000.1", "--5"])
def test_amount_with_more_than_nine_places_or_no_decimal_is_wrong_use(terminal: Terminal, amount: str) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "1")
    terminal.refused("accounts", "credit", "acme", amount, status=2)
    assert terminal.json("accounts", "show", "acme")["balance"] == "1"


def test_credit_adds_to_the_balance(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "1")
    account = terminal.json("accounts", "credit", "acme", "2.5", "--note", "paid by card")
    assert (account["balance"], account["credited"], account["repeated"]) == ("3.5", "2.5", False)
    assert terminal.json("usage", "acme")[1]["note"] == "paid by card"
    assert "a note is at most" in terminal.refused("accounts", "credit", "acme", "1", "--note", "x" * 501)


def test_credit_with_an_operation_is_safe_to_repeat(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    for repeated in (False, True, True):
        account = terminal.json("accounts", "credit", "acme", "5", "--id", "invoice-7")
        assert (account["balance"], account["repeated"]) == ("5", repeated)


def test_operation_id_with_another_amount_is_refused(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    terminal.ok("accounts", "credit", "acme", "5", "--id", "invoice-7")
    assert "already used, for 5" in terminal.refused("accounts", "credit", "acme", "6", "--id", "invoice-7")
    assert terminal.json("accounts", "show", "acme")["balance"] == "5"


def test_negative_credit_needs_its_option(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "5")
    assert "--allow-negative" in terminal.refused("accounts", "credit", "acme", "-1.5")
    assert terminal.json("accounts", "credit", "acme", "-1.5", "--allow-negative")["balance"] == "3.5"


def test_disable_and_enable_change_the_state(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    assert terminal.json("accounts", "disable", "acme")["state"] == "disabled"
    assert terminal.json("accounts", "enable", "acme")["state"] == "active"


def test_move_changes_the_group_and_nothing_else(terminal: Terminal) -> None:
    created = terminal.json("accounts", "create", "acme", "--balance", "3.5")
    assert terminal.json("accounts", "move", "acme", "vip") == {**created, "group": "vip"}
    assert terminal.json("accounts", "show", "acme")["group"] == "vip"
    assert terminal.json("accounts", "move", "acme", "default") == created


def test_move_to_an_unknown_group_is_refused_with_the_nearest_name(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    message = terminal.refused("accounts", "move", "acme", "vpi")
    assert message == "gateway: no group 'vpi' in the configuration; nearest: \"vip\"\n"
    assert terminal.json("accounts", "show", "acme")["group"] == "default"


def test_move_without_a_group_is_wrong_use(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    assert "Missing argument 'GROUP'" in terminal.refused("accounts", "move", "acme", status=2)


def test_allow_and_deny_cancel_each_other(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    allowed = terminal.json("accounts", "allow", "acme", "other", "fake-chat")
    assert (allowed["allowed"], allowed["denied"]) == (["fake-chat", "other"], [])
    denied = terminal.json("accounts", "deny", "acme", "other")
    assert (denied["allowed"], denied["denied"]) == (["fake-chat"], ["other"])


def test_alias_is_allowed_as_its_model(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    assert terminal.json("accounts", "deny", "acme", "short")["denied"] == ["fake-chat"]


def test_unknown_model_is_refused_with_the_nearest_name_and_nothing_changes(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    message = terminal.refused("accounts", "deny", "acme", "other", "fake-cht")
    assert message == "gateway: no model 'fake-cht' in the configuration; nearest: \"fake-chat\"\n"
    assert terminal.json("accounts", "show", "acme")["denied"] == []


def test_removed_model_can_be_denied_if_it_was_allowed(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    terminal.ok("accounts", "allow", "acme", "other")
    terminal.config.write_text(terminal.config.read_text().replace("[models.other]", "[models.newer]"))
    assert terminal.json("accounts", "deny", "acme", "other")["denied"] == ["other"]


def test_limits_are_set_shown_and_cleared(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "10")
    account = terminal.json("accounts", "limit", "acme", "--floor", "-5", "--rpm", "60", "--monthly", "100")
    assert (account["floor"], account["rpm"], account["monthly"], account["month_spent"]) == ("-5", 60, "100", "0")
    account = terminal.json("accounts", "limit", "acme", "--clear", "rpm,monthly")
    assert (account["floor"], account["rpm"], account["monthly"], account["month_spent"]) == ("-5", None, None, None)
    assert "name a limit" in terminal.refused("accounts", "limit", "acme", status=2)
    assert "is no limit of an account" in terminal.refused("accounts", "limit", "acme", "--clear", "balance")


def test_price_of_a_model_whose_name_is_an_alias_of_another_now_is_cleared_and_not_that_of_the_other(
    terminal: Terminal,
) -> None:
    terminal.ok("accounts", "create", "acme")
    configuration = terminal.config.read_text()
    model = '[models.short]\nprovider = "fake"\nfree = true\n'
    terminal.config.write_text(configuration.replace('aliases = ["short"]', "") + f"\n{model}")
    for name in ("short", "fake-chat"):
        terminal.ok("accounts", "price", "acme", name, "--set", "input=5")
    terminal.config.write_text(configuration)
    assert set(terminal.json("accounts", "price", "acme", "short", "--clear")["prices"]) == {"fake-chat"}
    assert terminal.json("accounts", "price", "acme", "short", "--clear")["prices"] == {}  # the alias's model


def test_own_price_is_set_shown_with_the_models_and_cleared(terminal: Terminal) -> None:
    terminal.ok("accounts", "create", "acme")
    account = terminal.json("accounts", "price", "acme", "short", "--set", "input=0.2, output=1.000000001")
    assert account["prices"] == {"fake-chat": {"input": "0.2", "output": "1.000000001"}}
    assert terminal.json("accounts", "show", "acme") == account
    chat, other = terminal.json("models", "--account", "acme")
    assert (chat["price"], chat["price_factor"]) == ({"input": "0.2", "output": "1.000000001"}, "1")
    assert (other["price"], other["price_version"]) == ({}, "")
    terminal.ok("accounts", "price", "acme", "fake-chat", "--factor", "1.000000001")
    chat, _ = terminal.json("models", "--account", "acme")
    assert chat["price"] == {"input": "0.5000000005", "output": "1.5000000015"}
    assert (chat["price_factor"], chat["price_version"]) == ("1.000000001", terminal.json("models")[0]["price_version"])
    assert terminal.json("accounts", "price", "acme", "fake-chat", "--clear")["prices"] == {}
    assert terminal.json("models", "--account", "acme")[0]["price"] == terminal.json("models")[0]["price"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["acme", "fake-chat"], 2, "name one of --set, --factor and --clear"),
        (["acme", "fake-chat", "--factor", "1", "--clear"], 2, "name one of"),
        (["acme", "fake-chat", "--factor", "-1"], 2, "from 0 to 1000"),
        (["acme", "fake-chat", "--set", "input"], 2, "expected NAME=AMOUNT"),
        (["acme", "fake-chat", "--set", "input=1,input=2"], 2, "each name once"),
        (["acme", "fake-chat", "--set", "input=1e3"], 2, "not a decimal amount"),
        (["acme", "fake-chat", "--set", "inptu=1"], 1, 'nearest: "input"'),
        (["acme", "fake-chat", "--set", "input=-1"], 1, "zero or more"),
        (["acme", "fake-chatt", "--factor", "2"], 1, 'nearest: "fake-chat"'),
        (["nobody", "fake-chat", "--factor", "2"], 1, "no account 'nobody'"),
    ],
)
def test_impossible_own_price_is_refused_and_changes_nothing(
    terminal: Terminal, words: list[str], status: int, text: str
) -> None:
    terminal.ok("accounts", "create", "acme")
    assert text in terminal.refused("accounts", "price", *words, status=status)
    assert terminal.json("accounts", "show", "acme")["prices"] == {}
