"""docs/cli.md names every command and every option, and nothing that is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway.accounts.accounts import Account
from gateway.accounts.admission_check import Explanation, Rule
from gateway.accounts.keys import KeyRecord
from gateway.admin.actor import command_line
from gateway.admin.audit_event import new_event
from gateway.admin.identities import Identity
from gateway.admin.invitations import Invitation
from gateway.admin.sessions import Session
from gateway.admin.user_rows import User
from gateway.cli import cli
from gateway.ledger import AuditReport, Mismatch
from gateway.ledger.audit_report import LateLine, Overdrawn, Uncollected
from gateway.plugins.loader import PluginReport

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


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
AUDIT = (AuditReport, Mismatch, LateLine, Uncollected, Overdrawn)

EVENT = tuple(new_event(command_line("root"), "a", "b").json_form())


def section(name: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {name}\n", 1)[1], flags=re.MULTILINE)[0]


def test_page_has_a_section_for_each_command_and_no_other() -> None:
    assert sorted(re.findall(r"^## (gateway .*)$", PAGE, re.MULTILINE)) == sorted(COMMANDS)


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
        ("gateway accounts show", Account.__struct_fields__),
        ("gateway keys list", (*KeyRecord.__struct_fields__, "response_headers")),
        ("gateway users show", User.__struct_fields__),
        ("gateway users sessions", Session.__struct_fields__),
        ("gateway users identities", Identity.__struct_fields__),
        ("gateway users invitations", Invitation.__struct_fields__),
        ("gateway audit-trail", EVENT),
        ("gateway plugins", PluginReport.__struct_fields__),
        ("gateway audit", [name for part in AUDIT for name in part.__struct_fields__]),
        ("gateway explain", (*Explanation.__struct_fields__, *Rule.__struct_fields__)),
    ],
)
def test_json_forms_on_the_page_have_the_records_fields(name: str, keys: tuple[str, ...]) -> None:
    row = re.search(r"^\| `--json` \| (.*) \|$", section(name), re.MULTILINE)
    assert row is not None
    assert set(re.findall(r'"(\w+)"', row[1])) == set(keys)
