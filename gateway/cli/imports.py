"""`gateway import`: accounts · keys · users from CSV files, and the configuration of LiteLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from gateway.accounts.key_record import CreatedKey
from gateway.cli.configuration import json_option
from gateway.cli.output import note, print_json, print_table
from gateway.cli.people_session import PeopleSession, run_people
from gateway.cli.private_csv import private_csv
from gateway.cli.root import Failure
from gateway.cli.server_option import remotable
from gateway.cli.session import change, either, run
from gateway.imports.plan import Imported

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.people.people import People

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("line", "action", "object", "values")
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def command() -> None:
    """Accounts, keys and users from CSV files; a configuration of LiteLLM."""


def _file(function: F) -> F:
    """The file, and the option of a dry run."""
    function = click.option("--dry-run", is_flag=True, help="Check the file, print what would be done, do nothing.")(
        function
    )
    return click.argument("file", type=FILE, metavar="FILE.csv")(function)


@command.command()
@_file
@remotable
def accounts(settings: Settings, file: Path, dry_run: bool, as_json: bool) -> None:
    """Create and change accounts, and book credits."""
    content = file.read_bytes()

    async def work(session: StoreSession) -> Imported:
        from gateway.imports.accounts import AccountImport

        return await AccountImport.of(session).run(session.actor, file.name, content, dry_run=dry_run)

    done = either(
        lambda: (run if dry_run else change)(settings, work),
        lambda client: _send(client, "accounts", file, content, dry_run=dry_run),
    )
    _print(done, as_json=as_json)


@command.command()
@_file
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Where the new keys are written."
)
@remotable
def keys(settings: Settings, file: Path, dry_run: bool, out: Path | None, as_json: bool) -> None:
    """Create and change API keys; new ones are written to --out, once."""
    content = file.read_bytes()

    async def work(session: StoreSession) -> Imported:
        return await _import_keys(session, None, file.name, content, out, dry_run=dry_run)

    async def with_people(session: PeopleSession) -> Imported:
        done = await _import_keys(session.store, session.people, file.name, content, out, dry_run=dry_run)
        if not dry_run:
            await session.store.note_unconfirmed()
        return done

    def here() -> Imported:
        from gateway.imports.key_owners import names_users

        if names_users(content):
            return run_people(settings, with_people)
        return (run if dry_run else change)(settings, work)

    async def there(client: AdminClient) -> Imported:
        from gateway.cli.admin_client import ServerError

        with _new_keys(out if not dry_run else None) as on_new:
            try:
                form = await _sent(client, "keys", file, content, dry_run=dry_run, make_keys=on_new is not None)
            except ServerError as error:
                _write_keys(error.document, on_new)
                raise
            _write_keys(form, on_new)
        return msgspec.convert(form, Imported)

    _print(either(here, there), as_json=as_json)


async def _import_keys(
    session: StoreSession, people: People | None, name: str, content: bytes, out: Path | None, *, dry_run: bool
) -> Imported:
    from gateway.imports.keys import KeyImport

    with _new_keys(out if not dry_run else None) as on_new:
        importing = KeyImport.of(session, people)
        return await importing.run(session.actor, name, content, dry_run=dry_run, on_new=on_new)


@command.command()
@_file
@remotable
def users(settings: Settings, file: Path, dry_run: bool, as_json: bool) -> None:
    """Create and change users, their memberships and their budgets as members."""
    content = file.read_bytes()

    async def work(session: PeopleSession) -> Imported:
        from gateway.imports.users import UserImport

        importing = UserImport.of(session.people, session.store)
        done = await importing.run(session.actor, file.name, content, dry_run=dry_run)
        if not dry_run:
            await session.store.note_unconfirmed()
        return done

    done = either(
        lambda: run_people(settings, work), lambda client: _send(client, "users", file, content, dry_run=dry_run)
    )
    _print(done, as_json=as_json)
    if done.create and not dry_run:
        note(f"new users cannot sign in yet: `gateway users links --from {file} --out LINKS.csv` makes links for them")


@command.command()
@click.argument("file", type=FILE, metavar="FILE")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A new file instead of stdout."
)
@json_option
def litellm(file: Path, out: Path | None, as_json: bool) -> None:
    """Turn the config.yaml of LiteLLM into a configuration of the gateway."""
    from gateway.setup.litellm import convert

    done = convert(_document(file))
    if out is not None:
        try:
            with out.open("x", encoding="utf-8") as target:
                target.write(done.toml)
        except FileExistsError:
            raise Failure(f"{out} exists already") from None
    if as_json:
        print_json(done)
    elif out is None:
        click.echo(done.toml, nl=False)
    note(f"models: {done.models}, settings without a counterpart: {done.comments}; they are named in comments")
    if done.variables:
        note(f"set these variables: {', '.join(done.variables)}")


def _document(file: Path) -> Any:
    """The document in a YAML file."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise Failure('this needs the package PyYAML: pip install "model-gateway[litellm]"') from None
    try:
        return yaml.safe_load(file.read_bytes())
    except yaml.YAMLError as error:
        raise Failure(f"{file} is no YAML: {' '.join(str(error).split())}") from None


@contextmanager
def _new_keys(out: Path | None) -> Iterator[Callable[[CreatedKey], None] | None]:
    """Writes each new key to a new file of mode 0600, which is removed if it stays without a key."""
    if out is None:
        yield None
        return
    with private_csv(out, ("account", "name", "id", "key"), what="keys", work="import") as write:
        yield lambda key: write((key.account, key.name, key.id, key.text))


def _write_keys(document: Mapping[str, Any], on_new: Callable[[CreatedKey], None] | None) -> None:
    """Write the new keys of an answer, which may be an error, too."""
    for key in document.get("keys", ()):
        assert on_new is not None, "the server makes keys only if they can be written"
        on_new(CreatedKey(key["key"], key["id"], key["account"], key["name"]))


async def _send(client: AdminClient, kind: str, file: Path, content: bytes, *, dry_run: bool) -> Imported:
    """Let the server import the file."""
    return msgspec.convert(await _sent(client, kind, file, content, dry_run=dry_run), Imported)


async def _sent(client: AdminClient, kind: str, file: Path, content: bytes, *, dry_run: bool, **more: Any) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise Failure(f"{file.name}, line {line}: is not UTF-8") from None
    body = {"name": file.name, "content": text, "dry_run": dry_run, **more}
    return await client.post("imports", kind, body=body)


def _print(done: Imported, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    elif done.steps:
        print_table(COLUMNS, [msgspec.to_builtins(step) for step in done.steps])
    would = "would be " if done.dry_run else ""
    counts = f"{would}changed: {done.change}, credits: {done.credit}, as they are: {done.nothing}"
    note(f"{would}created: {done.create}, {counts}")
