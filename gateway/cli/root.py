"""The root command: finds the file of a subcommand when it is asked for, and turns failures into one line on stderr."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

MODULES = {"import": "imports", "config": "configuration"}  # commands whose file has another name


class Failure(click.ClickException):
    """Ends the command: `gateway: message` on stderr, exit status 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print it, one `gateway:` per line."""
        for line in self.message.splitlines():
            click.echo(f"gateway: {line}", err=True, file=file)


class Root(click.Group):
    """A group whose subcommands are modules beside this one, each with a `command`."""

    def __init__(self, name: str, *, commands: Mapping[str, str], help: str) -> None:
        super().__init__(name, help=help)
        self.summaries = commands
        version = click.version_option(package_name="model-gateway", message="model-gateway %(version)s")
        version(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the documentation."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file."""
        if cmd_name not in self.summaries:
            return None
        command = importlib.import_module(f"gateway.cli.{MODULES.get(cmd_name, cmd_name).replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and show what went wrong as an operator wants to read it."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise refusal_of(error) or error from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows how each is presented
        except Exception as error:
            # The command's edge: the operator gets one line, never a traceback.
            raise Failure(explained(error)) from error


def explained(error: Exception) -> str:
    """What an exception means to an operator. Imports here, because the engine is loaded by then anyway."""
    from gateway.backup import BackupError
    from gateway.redaction import redact
    from gateway.setup import explained_errors

    return redact(str(error)) if isinstance(error, BackupError) else explained_errors.explained(error)


SERVER_OPTIONS = ("--server", "--token", "--ca")

REASONS = {
    "serve": "it is the gateway",
    "init": "it writes a file on this machine and needs no gateway",
    "config show": "it reads the file of that machine",
    "config diff": "it reads the file of that machine",
    "config schema": "it needs no gateway",
    "plugins new": "it writes a folder on this machine",
    "prices update": "it writes into the data directory of that machine",
    "prices tables": "it reads the data directory of that machine",
    "prices revert": "it writes into the data directory of that machine",
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
