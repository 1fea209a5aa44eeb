"""The options of commands that also work over the admin API of a gateway on another machine.

`@remotable` is `@configured` with `--server`, `--token`, `--ca` and `--client-cert`. With a server the command gets
settings without a file, which it does not use: `session.run` and `people_session.run_people` find the server in click's
context.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

import click
from msgspec import Struct

from gateway.cli.configuration import config_option, demo_option, json_option, read_settings

if TYPE_CHECKING:
    from gateway.config.settings import Settings

P = ParamSpec("P")

SERVER, TOKEN = "GATEWAY_SERVER", "GATEWAY_TOKEN"  # environment variables
PREFIX = "/admin/v1"
REFERENCES = ("env:", "file:")

_KEY = "gateway.server"

server_option = click.option("--server", metavar="URL", help=f"Work over the admin API at URL; default ${SERVER}.")
token_option = click.option(
    "--token", metavar="REF", help=f"With --server: the admin token, as env:NAME or file:PATH; default ${TOKEN}."
)
ca_option = click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --server: trust the certificates in this PEM file, and no others.",
)
client_cert_option = click.option(
    "--client-cert",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --server: present the certificate in this PEM file, which has its key too.",
)


class Server(Struct, frozen=True):
    """Where the admin API is, without `/admin/v1`, and the token."""

    url: str
    token: str
    ca: Path | None = None
    client_cert: Path | None = None

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


def remotable(function: Callable[Concatenate[Settings, P], None]) -> Callable[..., None]:
    """`configured`, and `--server` with its options."""

    @remotable_unread
    @functools.wraps(function)
    def command(*args: Any, config: Path | None, demo: bool, **options: Any) -> None:
        function(_settings(config, demo=demo), *args, **options)

    return command


def _settings(config: Path | None, *, demo: bool) -> Settings:
    if current_server() is None:
        return read_settings(config, demo=demo)
    from gateway.config.settings import Settings

    return Settings()


def remotable_unread(function: Callable[..., None]) -> Callable[..., None]:
    """`remotable` for a command that reads the configuration by itself: it gets `config` and `demo`."""

    @json_option
    @config_option
    @demo_option
    @server_option
    @token_option
    @ca_option
    @client_cert_option
    @functools.wraps(function)
    def command(
        *args: Any,
        config: Path | None,
        demo: bool,
        server: str | None,
        token: str | None,
        ca: Path | None,
        client_cert: Path | None,
        **options: Any,
    ) -> None:
        if server is not None and (config is not None or demo):
            raise click.UsageError("--server goes with neither --config nor --demo")
        if server is None and config is None and not demo:
            server = os.environ.get(SERVER) or None
        if server is not None:
            click.get_current_context().meta[_KEY] = Server(_checked(server), _read_token(token), ca, client_cert)
        elif token is not None or ca is not None or client_cert is not None:
            raise click.UsageError("--token, --ca and --client-cert go with --server")
        function(*args, config=config, demo=demo, **options)

    return command


def only_here(**options: Any) -> None:
    """UsageError for the first option that is given although the command works over a server."""
    if current_server() is None:
        return
    for name, value in options.items():
        if value not in (None, (), False):
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} goes without --server: run the command on the gateway's machine")


def current_server() -> Server | None:
    """The server of the running command; None if it works on this machine."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(_KEY) if context is not None else None
    return found if isinstance(found, Server) else None


def _checked(text: str) -> str:
    url = text.strip().rstrip("/").removesuffix(PREFIX)
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise click.UsageError("--server is an address such as https://gateway.example.com:8081")
    if parts.username is not None:
        raise click.UsageError("--server has a user name; the token goes into --token")
    return url


def _read_token(reference: str | None) -> str:
    """The token. SecretError if the variable or file has none."""
    if reference is None:
        text = os.environ.get(TOKEN, "").strip()
        if not text:
            raise click.UsageError(f"--server needs an admin token: set {TOKEN}, or give --token env:NAME or file:PATH")
        if not text.startswith(REFERENCES):
            return _sendable(text)
        reference = text
    if not reference.startswith(REFERENCES):
        raise click.UsageError("--token is env:NAME or file:PATH: other users can read a command line")
    from gateway.config.secret import Secret

    return _sendable(Secret.parse(reference).reveal())


def _sendable(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise click.UsageError("the admin token has characters that no token has")
    return text
