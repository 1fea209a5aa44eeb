"""The pages of docs/cli/ name every command and every option, and nothing that is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from gateway.accounts.accounts import Account
from gateway.accounts.admission_check import Explanation, ModelHook, Rule
from gateway.accounts.key_record import KeyRecord
from gateway.admin.actor import command_line
from gateway.admin.audit_event import new_event
from gateway.admin.user_rows import User
from gateway.cli import cli
from gateway.ledger import AuditReport, Mismatch
from gateway.ledger.auditing.report import LateLine, LostChange, Overdrawn, Superseded, Uncollected
from gateway.people.identities import Identity
from gateway.people.invitation_rows import Invitation
from gateway.people.sessions import UserSession
from gateway.plugins.loader import PluginReport

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {f"cli/{path.name}": path.read_text(encoding="utf-8") for path in sorted((DOCS / "cli").glob("*.md"))}
PAGE = "\n".join(PAGES.values())


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path} {name}", command


COMMANDS = dict(commands(cli, "gateway"))
AUDIT = (AuditReport, Mismatch, LateLine, Uncollected, Overdrawn, Superseded, LostChange)

EVENT = tuple(new_event(command_line("root"), "a", "b").json_form())


def section(name: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {name}\n", 1)[1], flags=re.MULTILINE)[0]


def test_pages_have_a_section_for_each_command_and_no_other() -> None:
    assert sorted(re.findall(r"^## (gateway .*)$", PAGE, re.MULTILINE)) == sorted(COMMANDS)


def test_list_of_all_commands_leads_to_their_sections() -> None:
    table = re.findall(r"\[`([a-z -]+)`\]\((cli/[a-z]+\.md)#gateway-([a-z-]+)\)", (DOCS / "cli.md").read_text("utf-8"))
    assert [f"gateway {name}" for name, _, _ in table] == re.findall(
        r"^## (gateway .*)$",
        "\n".join(PAGES[page] for page in dict.fromkeys(page for _, page, _ in table)),
        re.MULTILINE,
    )
    assert {page for _, page, _ in table} == PAGES.keys()
    for name, page, anchor in table:
        assert anchor == name.replace(" ", "-")
        assert f"\n## gateway {name}\n" in PAGES[page]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_row(name: str) -> None:
    options = {
        option
        for parameter in COMMANDS[name].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    assert set(re.findall(r"^\| `(--[a-z-]+)` \|", section(name), re.MULTILINE)) == options


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_is_in_the_text(name: str) -> None:
    arguments = [parameter for parameter in COMMANDS[name].params if isinstance(parameter, click.Argument)]
    for argument in arguments:
        assert (argument.metavar or argument.human_readable_name.upper()) in section(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("gateway accounts show", [name for name in Account.__struct_fields__ if name != "unreadable"]),
        ("gateway keys list", {*KeyRecord.__struct_fields__, "response_headers"} - {"show_cost", "unreadable"}),
        ("gateway users show", {*User.__struct_fields__} - {"has_all_accounts"}),
        ("gateway users sessions", UserSession.__struct_fields__),
        ("gateway users identities", {*Identity.__struct_fields__} - {"gives"}),
        ("gateway users invitations", {*Invitation.__struct_fields__} - {"is_mailed", "maker_issuer"}),
        ("gateway audit-trail", EVENT),
        ("gateway plugins", PluginReport.__struct_fields__),
        ("gateway audit", [name for part in AUDIT for name in part.__struct_fields__]),
        ("gateway explain", (*Explanation.__struct_fields__, *Rule.__struct_fields__, *ModelHook.__struct_fields__)),
    ],
)
def test_json_forms_on_the_page_have_the_records_fields(name: str, keys: Iterable[str]) -> None:
    row = re.search(r"^\| `--json` \| (.*) \|$", section(name), re.MULTILINE)
    assert row is not None
    assert set(re.findall(r'"(\w+)"', row[1])) == set(keys)
