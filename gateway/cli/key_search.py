"""`gateway keys find` and `addresses`: the key of a text that someone has, such as one that leaked, and its use.

The whole key never leaves the command: it is looked up by its HMAC, or over `--server` without the pepper by its last
four characters.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from gateway.accounts.authenticator import CREDENTIAL, Fingerprint
from gateway.accounts.pepper import read_pepper
from gateway.cli.output import note
from gateway.cli.root import Failure
from gateway.config.secret import Secret

SHOWN = 4  # characters of a key that lists show, the last ones
_DOTS = "….*"  # what stands for the rest in texts such as sk-…abcd


if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession


class Wanted(Struct, frozen=True):
    """A whole key, or with `text` empty only its last characters."""

    text: str
    last4: str

    def __repr__(self) -> str:
        return "Wanted(***)"


def read_wanted(text: str | None) -> Wanted:
    """From the argument, or else from a prompt that shows nothing, or from standard input.

    Failure without the text; click.NoSuchOption if it is a mistyped option.
    """
    is_argument = text is not None
    if text is None:
        text = click.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    text = text.strip()
    shown = text.removeprefix("sk-").lstrip(_DOTS)
    if len(shown) == SHOWN and shown.isprintable():
        return Wanted("", shown)
    if is_argument and text.startswith("--"):
        raise click.NoSuchOption(text)
    if not CREDENTIAL.fullmatch(text):
        raise Failure("give a whole key, which begins with sk-, or its last four characters")
    if is_argument:
        note("the key is now in the history of your shell; without an argument it is read from a prompt or from stdin")
    return Wanted(text, text[-SHOWN:])


async def find_here(session: StoreSession, wanted: Wanted) -> Sequence[dict[str, Any]]:
    """The keys in the store."""
    if not wanted.text:
        return [key.json_form() for key in await session.keys.list() if key.last4 == wanted.last4]
    found = await session.keys.owner_of(wanted.text)
    key = await session.keys.find(found[1]) if found is not None else None
    return [] if key is None else [key.json_form()]


async def find_there(client: AdminClient, wanted: Wanted, pepper: str | None) -> Sequence[dict[str, Any]]:
    """The keys that the server has; `pepper` is a reference, without which the last four characters are sent."""
    if wanted.text and pepper is not None:
        text = Secret.parse(pepper).reveal()
        fingerprint = Fingerprint(read_pepper(text, source="--pepper"))(wanted.text)
        return await client.pages("keys", fingerprint=fingerprint)
    if wanted.text:
        note("without --pepper the keys with the same last four characters are found")
    return await client.pages("keys", last4=wanted.last4)
