"""`/imports`: accounts, keys and users from CSV files, and configurations of LiteLLM."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.accounts.key_record import CreatedKey
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall, Stopped
from gateway.admin_api.route import AdminRoute
from gateway.imports.accounts import AccountImport
from gateway.imports.keys import KeyImport
from gateway.imports.plan import Check, Imported
from gateway.imports.users import UserImport
from gateway.setup.litellm import Converted, convert
from gateway.web.request_limits import IMPORTS

LARGEST = 16 * 2**20  # bytes of a request
MOST_NEW_KEYS = 5000  # of a request: until its answer is sent, their texts are in the memory of this process only


class File(Struct, frozen=True, kw_only=True):
    """A CSV file; a dry run checks it and answers what would be done."""

    content: Annotated[str, Meta(description="The text of the file, with the names of the columns in its first line.")]
    name: Annotated[str, Meta(max_length=255, description="For the messages about faults.")] = "file.csv"
    dry_run: bool = False


class KeyFile(File, frozen=True, kw_only=True):
    """A CSV file of keys. With `make_keys` false, each new key needs its text in the file."""

    make_keys: Annotated[bool, Meta(description="Make keys, and answer their texts once.")] = True


class LiteLlm(Struct, frozen=True):
    """A configuration of LiteLLM."""

    config: Annotated[dict[str, Any], Meta(description="The document of config.yaml, as JSON.")]


class ImportedKeys(Imported, kw_only=True):
    """What an import of keys did; `keys` are the new ones, whose texts are shown only here."""

    keys: list[documents.NewKey]


class KeyImportError(documents.Error, kw_only=True):
    """The error of an import of keys; `keys` are those that were made before it, whose texts are shown only here."""

    keys: list[documents.NewKey] = msgspec.field(default_factory=list)


async def accounts(call: AdminCall, body: File) -> dict[str, Any]:
    importing = AccountImport.of(call.store, check=await _check(call))
    return _form(await importing.run(call.actor, body.name, body.content.encode(), dry_run=body.dry_run))


async def keys(call: AdminCall, body: KeyFile) -> dict[str, Any] | Stopped:
    made: list[CreatedKey] = []
    importing = KeyImport.of(call.store, await call.people(), most_new=MOST_NEW_KEYS, check=await _check(call))
    on_new = made.append if body.make_keys else None
    try:
        done = await importing.run(call.actor, body.name, body.content.encode(), dry_run=body.dry_run, on_new=on_new)
    except Exception as error:
        # Nobody can show the keys again: those before the fault must be in the answer, whatever the fault is.
        if not made or importing.has_revoked:
            raise
        return Stopped(error, _forms(made))
    return _form(done) | _forms(made)


async def users(call: AdminCall, body: File) -> dict[str, Any]:
    importing = UserImport.of(await call.people(), call.store, check=await _check(call))
    return _form(await importing.run(call.actor, body.name, body.content.encode(), dry_run=body.dry_run))


async def litellm(call: AdminCall, body: LiteLlm) -> dict[str, Any]:
    return _form(convert(body.config))


async def _check(call: AdminCall) -> Check:
    return partial((await call.people()).transactions.require_current, call.actor)


def _forms(made: list[CreatedKey]) -> dict[str, Any]:
    return {"keys": [key.json_form() for key in made]}


def _form(done: Struct) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(done)
    return form


ROUTES = (
    AdminRoute(
        method="POST",
        path="/imports/accounts",
        access=Access(scope="accounts", also="credits"),
        summary="Create and change accounts and book credits from a CSV file, or check it",
        function=accounts,
        body=File,
        answer=Imported,
        max_body=LARGEST,
        writes_store=True,
        limit=IMPORTS,
    ),
    AdminRoute(
        method="POST",
        path="/imports/keys",
        access=Access(scope="keys"),
        summary="Create and change API keys from a CSV file, or check it",
        function=keys,
        body=KeyFile,
        answer=ImportedKeys,
        error=KeyImportError,
        max_body=LARGEST,
        writes_store=True,
        limit=IMPORTS,
    ),
    AdminRoute(
        method="POST",
        path="/imports/users",
        access=Access(scope="users", operators_only=True),
        summary="Create and change users, memberships and members' budgets from a CSV file, or check it",
        function=users,
        body=File,
        answer=Imported,
        max_body=LARGEST,
        writes_store=True,
        limit=IMPORTS,
    ),
    AdminRoute(
        method="POST",
        path="/imports/litellm",
        access=Access(scope="config"),
        summary="Turn a configuration of LiteLLM into one of the gateway; nothing is stored",
        function=litellm,
        body=LiteLlm,
        answer=Converted,
    ),
)
