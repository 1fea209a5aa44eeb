"""Commands that work on the gateway's own machine only, and why: what they say to `--server`."""

from __future__ import annotations

import click

SERVER_OPTIONS = ("--server", "--token", "--ca")

REASONS = {
    "serve": "it is the gateway",
    "init": "it writes a file on this machine and needs no gateway",
    "plugins new": "it writes a folder on this machine",
    "notify secret": "it needs no gateway",
    "history attach": "it decides which database the store of that machine has",
    "history copy": "it needs the address of another database and the importer's lock",
    "history import-archive": "it reads archive files of that machine",
    "history rebuild": "it holds the importer's lock for as long as it takes",
    "import litellm": "it converts a file on this machine and needs no gateway",
    "backup": "it writes the whole deployment into a folder, with secrets, which is not to pass over the admin API",
    "restore": "it replaces the store and the database of a gateway that does not run",
}


def refusal_of(error: click.NoSuchOption) -> click.UsageError | None:
    """What a local command says to an option of a server; None for another unknown option."""
    if error.option_name not in SERVER_OPTIONS or error.ctx is None:
        return None
    name = error.ctx.command_path.partition(" ")[2]
    reason = REASONS.get(name)
    if reason is None:
        return None
    place = "" if reason.endswith("no gateway") else "; run it on the gateway's machine"
    return click.UsageError(f"`gateway {name}` takes no {error.option_name}: {reason}{place}", error.ctx)
