"""Imports: two at a time make nothing twice, and a fault in the middle loses no new key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.accounts.key_record import CreatedKey
from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin.keys import KeyService
from gateway.admin.store_services import StoreServices
from gateway.admin_api.openapi import openapi_document
from gateway.admin_api.resources import imports
from gateway.admin_api.table import ROUTES
from gateway.errors import InvalidValue, StoreUnavailable
from tests.admin_api.client import NamedActors
from tests.admin_api.json_schema import faults
from tests.polling import until

KEYS = "account,name\nacme,one\nacme,two\nacme,three\n"
ROOT, OTHER = (Actor(kind="token", id=name, scopes=EVERYTHING) for name in ("tok_1", "tok_2"))


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, fault: Exception) -> None:
    """Let the key of this name not be made."""
    create = KeyService.create

    async def fails(self: KeyService, *args: Any, **options: Any) -> CreatedKey:
        if options["name"] == name:
            raise fault
        return await create(self, *args, **options)

    monkeypatch.setattr(KeyService, "create", fails)


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-6")
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (StoreUnavailable(), 503, "service_unavailable"),
        (InvalidValue("not now"), 400, "invalid_value"),
        (RuntimeError("a bug"), 500, "internal_error"),
    ],
)
async def test_answer_of_an_import_that_stops_has_the_keys_made_before(
    api, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, code: str
) -> None:
    fail_at(monkeypatch, "three", fault)
    async with api(NamedActors(root=ROOT)) as a:
        answer = await a.ask("POST", "/imports/keys", {"content": KEYS}, token="root")
        assert (answer.status, answer.error["code"]) == (status, code) and "a bug" not in answer.error["message"]
        assert answer.headers["x-should-retry"] == "false" and "Retry-After" not in answer.headers
        assert [key["name"] for key in answer.document["keys"]] == ["one", "two"]
        for key in answer.document["keys"]:
            assert await a.services.store.keys.owner_of(key["key"]) == ("acme", key["id"])
        document = json.loads(openapi_document(ROUTES))
        schema = document["paths"]["/admin/v1/imports/keys"]["post"]["responses"]["default"]["content"]
        assert schema["application/json"]["schema"] == {"$ref": "#/components/schemas/KeyImportError"}
        assert (
            list(faults(answer.document, schema["application/json"]["schema"], document["components"]["schemas"])) == []
        )
        monkeypatch.undo()
        again = await a.post("/imports/keys", {"content": KEYS}, token="root")
        assert [key["name"] for key in again["keys"]] == ["three"]


async def test_import_that_stops_is_marked_if_its_keys_are_not_on_the_store_s_disk(
    api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unconfirmed(self: StoreServices) -> list[str]:
        return ["the store does not answer"]

    fail_at(monkeypatch, "three", StoreUnavailable())
    monkeypatch.setattr(StoreServices, "unconfirmed", unconfirmed)
    async with api(NamedActors(root=ROOT)) as a:
        answer = await a.ask("POST", "/imports/keys", {"content": KEYS}, token="root")
        assert (answer.status, answer.headers.get("x-gateway-unconfirmed")) == (503, "true")


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-6")
async def test_import_that_stops_before_its_first_key_is_a_plain_error(api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, "one", StoreUnavailable())
    async with api(NamedActors(root=ROOT)) as a:
        answer = await a.ask("POST", "/imports/keys", {"content": KEYS}, token="root")
        assert (answer.status, list(answer.document)) == (503, ["error"])


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-6")
async def test_request_makes_a_limited_number_of_keys(api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert imports.MOST_NEW_KEYS == 5000
    monkeypatch.setattr(imports, "MOST_NEW_KEYS", 2)
    async with api(NamedActors(root=ROOT)) as a:
        for dry_run in (True, False):
            answer = await a.ask("POST", "/imports/keys", {"content": KEYS, "dry_run": dry_run}, token="root")
            text = "file.csv, line 4: from here on more than 2 keys are to be made; divide the file"
            assert answer.status == 400 and text in answer.error["message"]
        assert not await a.services.store.keys.list("acme")
        brought = KEYS.replace("name\n", "name,key\n").replace("one\n", "one,\n").replace("two\n", "two,\n")
        brought = brought.replace("three\n", "three,sk-brought-along-from-elsewhere\n")
        assert len((await a.post("/imports/keys", {"content": brought}, token="root"))["keys"]) == 2


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-5")
async def test_two_imports_of_users_at_a_time_make_each_user_once(api) -> None:
    lines = "".join(f"user{number}@example.com,acme\n" for number in range(20))
    async with api(NamedActors(root=ROOT, other=OTHER)) as a:
        body = {"content": f"email,account\n{lines}"}
        done = await asyncio.gather(*(a.ask("POST", "/imports/users", body, token=name) for name in ("root", "other")))
        assert [answer.status for answer in done] == [200, 200], [answer.document for answer in done]
        assert sorted(answer.document["create"] for answer in done) == [0, 20]
        assert len((await a.get("/users", token="root"))["data"]) == 20


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-5")
async def test_imports_take_turns_across_a_reload(api, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, create = 0, asyncio.Event(), KeyService.create

    async def held(self: KeyService, *args: Any, **options: Any) -> CreatedKey:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return await create(self, *args, **options)

    monkeypatch.setattr(KeyService, "create", held)
    async with api(NamedActors(root=ROOT, other=OTHER)) as a:
        body = {"content": KEYS}
        running = [asyncio.create_task(a.post("/imports/keys", body, token="root"))]
        await until(lambda: begun == 1)
        a.services.use(a.services.settings)
        running.append(asyncio.create_task(a.post("/imports/keys", body, token="other")))
        await until(lambda: len(a.services.places) == 4)
        go_on.set()
        assert sorted(done["create"] for done in await asyncio.gather(*running)) == [0, 3]
        assert len(await a.services.store.keys.list("acme")) == 3
