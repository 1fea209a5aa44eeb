"""`Idempotency-Key` of requests for files and batches: one request makes one of them, however often it is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.keys import Keys
from gateway.api.files.files import REPLAYED
from gateway.batches.records import BatchRecords
from gateway.config.settings import Settings
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client

from .conftest import CHAT, Api, jsonl, line

CONTENT = jsonl(line(1))


class Sender:
    """Sends requests with an Idempotency-Key."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key

    async def ask(self, method: str, path: str, name: str, **options: Any) -> tuple[int, Any, bool]:
        """Status, document, and whether it is of an earlier request."""
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": name}
        async with self._client.request(method, path, headers=headers, **options) as response:
            return response.status, await response.json(), response.headers.get(REPLAYED) == "true"

    async def upload(self, name: str, content: bytes = CONTENT) -> tuple[int, Any, bool]:
        """Upload a file; each form has a boundary of its own."""
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", content, filename="in.jsonl")
        return await self.ask("POST", "/v1/files", name, data=form)

    async def create(self, name: str, file_id: str, **fields: Any) -> tuple[int, Any, bool]:
        """Make a batch."""
        asked = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **fields}
        return await self.ask("POST", "/v1/batches", name, json=asked)


@pytest.fixture
def sender(client: Client, api_key: Any) -> Sender:
    """With the key of the account "acme"."""
    return Sender(client, api_key.text)


def stored(settings: Settings) -> list[str]:
    """The files on the disk."""
    return sorted(path.name for path in Path(settings.files_dir).glob("*/file-*"))


@pytest.mark.holds("api.md#idempotency-key-1")
async def test_repeated_upload_makes_one_file(sender: Sender, api: Api, settings: Settings) -> None:
    answers = await asyncio.gather(*(sender.upload("a") for _ in range(6)))
    assert {status for status, _, _ in answers} == {200}
    [file_id] = {document["id"] for _, document, _ in answers}
    assert sorted(replayed for _, _, replayed in answers) == [False] + [True] * 5
    assert stored(settings) == [file_id]
    assert [one["id"] for one in (await api.ask("GET", "/v1/files"))[1]["data"]] == [file_id]
    status, document, _ = await sender.upload("a", CONTENT + b"\n")
    assert (status, document["error"]["code"]) == (400, "invalid_value")
    assert stored(settings) == [file_id]
    assert (await sender.upload("b"))[1]["id"] != file_id
    await api.ask("DELETE", f"/v1/files/{file_id}")
    status, document, replayed = await sender.upload("a")
    assert (status, document["id"] != file_id, replayed) == (200, True, False)


async def test_repeated_upload_is_answered_although_the_quota_is_used_up(sender: Sender) -> None:
    first = [(await sender.upload(str(number)))[1]["id"] for number in range(5)]
    assert (await sender.upload("other"))[0] == 400
    assert [(await sender.upload(str(number)))[1]["id"] for number in range(5)] == first


@pytest.mark.holds("api.md#idempotency-key-1")
async def test_repeated_batch_is_one_batch_as_it_is_now(
    sender: Sender, api: Api, gateway: Gateway, client: Client, keys: Keys
) -> None:
    file_id = (await sender.upload("file"))[1]["id"]
    answers = await asyncio.gather(*(sender.create("a", file_id) for _ in range(8)))
    [batch_id] = {document["id"] for _, document, _ in answers}
    assert sorted(replayed for _, _, replayed in answers) == [False] + [True] * 7
    records = BatchRecords(gateway.store)
    place = (await records.find("acme", batch_id))[0].place
    assert [found[1] for found in await records.open_batches(place, most=10)] == [batch_id]
    assert [one["id"] for one in (await api.ask("GET", "/v1/batches"))[1]["data"]] == [batch_id]
    assert await gateway.store.client.zcard("{batches}:made") == 1
    await api.ask("POST", f"/v1/batches/{batch_id}/cancel")
    status, document, replayed = await sender.create("a", file_id)
    assert (status, document["id"], document["status"], replayed) == (200, batch_id, "cancelling", True)
    status, document, _ = await sender.create("a", file_id, metadata={"night": "2"})
    assert (status, document["error"]["code"]) == (400, "invalid_value")
    await api.ask("DELETE", f"/v1/files/{file_id}")
    assert (await sender.create("b", file_id))[0] == 404
    status, document, replayed = await sender.create("a", file_id)
    assert (status, document["id"], replayed) == (200, batch_id, True)
    of_same_account = Sender(client, (await keys.create("acme", name="second")).text)
    assert (await of_same_account.create("a", file_id))[1]["id"] == batch_id
    of_user = Sender(client, (await keys.create("acme", name="third", user="usr_1")).text)
    own = (await of_user.upload("file"))[1]["id"]
    assert own != file_id
    assert (await of_user.create("a", own))[1]["id"] != batch_id


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches"])
async def test_impossible_idempotency_key_is_refused(sender: Sender, path: str, settings: Settings) -> None:
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", CONTENT, filename="in.jsonl")
    body: dict[str, Any] = {"data": form} if path == "/v1/files" else {"json": {}}
    status, document, _ = await sender.ask("POST", path, "x" * 256, **body)
    assert (status, document["error"]["type"]) == (400, "invalid_request_error")
    assert stored(settings) == []
