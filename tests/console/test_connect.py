"""The page Connect and docs/clients.md: texts that each client takes, for any address, key and model."""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from pathlib import PurePath
from typing import Any

import pytest
import yaml

from gateway.console.clients import CLIENTS, Client, Place
from tests.clients_page import PAGE, with_clients

#: Names that a model may have.
MODELS = ("fake-chat", "org/m:1", 'a "quoted" one', "it's; $(echo one) \\ one", "\N{GRINNING FACE}")
PARSERS: dict[str, Any] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".py": ast.parse,
    ".mjs": str,
}


def by_id(client: Client) -> str:
    return client.id


def leaves(value: Any) -> set[str]:
    """All texts in a document, names included."""
    if isinstance(value, dict):
        return {text for pair in value.items() for part in pair for text in leaves(part)}
    if isinstance(value, list):
        return {text for item in value for text in leaves(item)}
    return {value} if isinstance(value, str) else set()


def texts_of(client: Client, place: Place) -> set[str]:
    """Each text that the client gets, as its own reader of the file or the shell reads it."""
    found = {*client.variables(place).values(), *client.fields(place).values(), *shlex.split(client.commands(place))}
    if client.text:
        content = client.content(place)
        parsed = PARSERS[PurePath(client.file).suffix](content)
        if isinstance(parsed, ast.AST):
            found |= {str(node.value) for node in ast.walk(parsed) if isinstance(node, ast.Constant) and node.value}
        elif isinstance(parsed, str):
            found |= {
                value
                for value in (place.model, place.url, place.address)
                if json.dumps(value, ensure_ascii=False) in content
            }
        else:
            found |= leaves(parsed)
    return {str(text) for text in found}


@pytest.mark.parametrize("client", CLIENTS, ids=by_id)
def test_settings_of_each_client_have_address_key_and_model_in_its_own_syntax(client: Client) -> None:
    for model in MODELS:
        place = Place("https://ai.example.com/v1", "sk-one", model)
        found = texts_of(client, place)
        joined = "\n".join([*found, client.content(place)])
        assert place.address in joined
        assert "sk-one" in joined
        is_named = client.id in {"open-webui"}  # a person chooses it in the window
        assert (
            is_named or any(text.endswith(model) for text in found) or json.dumps(model, ensure_ascii=False) in joined
        )
        assert "%" not in joined.replace("%20", "")


def test_ids_are_different_and_the_programs_of_the_issue_are_there() -> None:
    assert len({client.id for client in CLIENTS}) == len(CLIENTS) == 17


def test_page_of_the_documentation_is_made_from_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_clients(text), "run python -m tests.clients_page"


async def test_page_has_each_client_for_a_model_of_the_account(console: Any) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        page = await ann.get("/accounts/acme/connect")
        assert page.status == 200
        for client in CLIENTS:
            assert client.name in page.text
        assert ":8080/v1" in page.text


async def test_model_that_the_account_may_not_use_is_not_shown(console: Any) -> None:
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        page = await ann.get("/accounts/acme/connect?model=secret-model")
        assert page.status == 200
        assert "secret-model" not in page.text
        assert "The account may use no chat model of this name." in page.text
