"""Numbers in text are the digits 0 to 9, and no pattern takes a line feed behind them, wherever text comes in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway.amounts import parse_amount
from gateway.cli import cli
from gateway.cli.values import AMOUNT, COUNT, DURATION, FACTOR, WholeNumber
from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError
from gateway.imports import cells
from gateway.setup.litellm_models import _decimal
from gateway.whole_numbers import parse_whole_number

ROOT = Path(__file__).parent.parent
#: What `int` takes, and people do not mean.
OTHER = ["\u0665", "\uff15", "\u0967", "1_0", "5\n", "\n5", "5\r\n", "\t5", "5\x0b", "5\u00a0", "+5", "5.0", "1e1", ""]
OTHER.append("9" * 18)


@pytest.mark.holds("admin-api.md#requests-and-answers-1", "security.md#money-2")
@pytest.mark.parametrize("text", OTHER)
def test_text_with_anything_but_digits_is_no_whole_number(text: str) -> None:
    for parse_text in (parse_whole_number, cells.count):
        with pytest.raises(ValueError, match="whole number"):
            parse_text(text)
    with pytest.raises(click.UsageError):
        COUNT.convert(text, None, None)


def test_digits_are_a_whole_number() -> None:
    assert (parse_whole_number("0"), parse_whole_number("007"), COUNT.convert("12", None, None)) == (0, 7, 12)


@pytest.mark.holds("security.md#money-2")
@pytest.mark.parametrize("text", ["5\n", "\u0665", "1_0", "0.5\n", "5\t", "1\u06f5", "5\u00a0"])
def test_amounts_and_durations_have_no_other_digits_and_no_line_feed(text: str) -> None:
    with pytest.raises(ValueError, match="decimal"):
        parse_amount(text)
    for kind, suffix in ((AMOUNT, ""), (FACTOR, ""), (DURATION, "d")):
        with pytest.raises(click.UsageError):
            kind.convert(text.replace("\n", suffix + "\n") if "\n" in text else text + suffix, None, None)
    with pytest.raises(ArithmeticError):
        _decimal(text)


def test_every_option_of_the_command_line_that_is_a_number_has_digits_only() -> None:
    found = [(path, option) for path, option in options(cli, "gateway") if is_number(option.type)]
    assert len(found) > 15
    assert [f"{path} {option.name}" for path, option in found if not isinstance(option.type, WholeNumber)] == []


@pytest.mark.parametrize(
    "document",
    [
        {"notify": {"keep": "3d\n"}},
        {"server": {"tags": ["team\n"]}},
        {"oidc": {"corp": {"issuer": "https://a.test", "client_id": "a", "client_secret": "env:A", "scopes": ["a\n"]}}},
    ],
)
def test_line_feed_at_the_end_of_a_setting_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        parse({"console": {"public_url": "https://gw.test"}} | document)


@pytest.mark.holds("security.md#money-2")
def test_no_pattern_takes_a_line_feed_at_the_end() -> None:
    """`$` alone also stands before a line feed at the end; `fullmatch` needs no `$`."""
    paths = [path for folder in ("gateway", "providers") for path in (ROOT / folder).rglob("*.py")]
    found = [f"{path.relative_to(ROOT)}: {text}" for path in paths for text in anchored(path)]
    # The header is checked by `OPERATION.fullmatch`, and the pattern is for other languages.
    assert found == ["gateway/admin_api/openapi.py: ^[!-~]{1,128}$"]


def anchored(path: Path) -> Iterator[str]:
    """The texts of a file that are patterns from `^` to `$`."""
    source = path.read_text(encoding="utf-8")
    if '$"' not in source and "$'" not in source:
        return  # most files; parsing all of them takes seconds
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if text.startswith("^") and text.endswith("$"):
            yield text


def options(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    """All options and arguments of a command and those below it."""
    yield from ((path, parameter) for parameter in command.params)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}")


def is_number(kind: click.ParamType[object]) -> bool:
    """Whether click reads the text with `int` or `float`."""
    return isinstance(kind, (type(click.INT), type(click.FLOAT)))
