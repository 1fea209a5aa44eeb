"""`/v1/files`: uploads, lists, content, deletion, quotas, expiry, and whose files a key sees."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.files.records import FileRecords
from gateway.runtime.batches.runner import Runner
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client

from .conftest import Api

CONTENT = b'{"custom_id": "1"}\n'


def stored(folder: Path) -> list[Path]:
    """The files with content."""
    return [path for path in (folder / "files").rglob("*") if path.is_file() and path.name != ".id"]


async def test_file_is_stored_listed_read_and_deleted(api: Api, tmp_path: Path) -> None:
    status, file = await api.upload(CONTENT)
    assert status == 200
    assert file == {
        "id": file["id"],
        "object": "file",
        "bytes": len(CONTENT),
        "created_at": file["created_at"],
        "expires_at": file["created_at"] + 30 * 86_400,
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert await api.ask("GET", f"/v1/files/{file['id']}") == (200, file)
    assert await api.ask("GET", f"/v1/files/{file['id']}/content") == (200, CONTENT)
    page = {"object": "list", "data": [file], "first_id": file["id"], "last_id": file["id"], "has_more": False}
    assert await api.ask("GET", "/v1/files") == (200, page)
    deleted = {"id": file["id"], "object": "file", "deleted": True}
    assert await api.ask("DELETE", f"/v1/files/{file['id']}") == (200, deleted)
    assert (await api.ask("GET", f"/v1/files/{file['id']}"))[0] == 404
    assert (await api.ask("GET", f"/v1/files/{file['id']}/content"))[0] == 404
    assert (await api.ask("DELETE", f"/v1/files/{file['id']}"))[0] == 404
    assert (await api.ask("GET", "/v1/files"))[1]["data"] == []
    assert stored(tmp_path) == []


async def test_large_file_comes_back_byte_for_byte(api: Api) -> None:
    content = bytes(range(256)) * 3_900
    _, file = await api.upload(content)
    assert await api.ask("GET", f"/v1/files/{file['id']}/content") == (200, content)
    assert await api.ask("HEAD", f"/v1/files/{file['id']}/content") == (200, b"")


async def test_pages_go_on_behind_a_file_in_either_order(api: Api) -> None:
    ids = [(await api.upload(CONTENT, name=f"{number}.jsonl"))[1]["id"] for number in range(3)]
    seen = []
    for order in ("asc", "desc"):
        after, found = "", list[str]()
        for _ in range(3):
            more = f"&after={after}" if after else ""
            _, page = await api.ask("GET", f"/v1/files?limit=1&order={order}{more}")
            found += [file["id"] for file in page["data"]]
            after = page["last_id"]
        assert not page["has_more"]
        seen.append(found)
    assert sorted(seen[0]) == sorted(ids)
    assert seen[0] == seen[1][::-1]
    assert (await api.ask("GET", "/v1/files?purpose=batch_output"))[1]["data"] == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "user_data"}, "purpose"),
        ({"purpose": "fine-tune"}, "purpose"),
        ({"expires_after[anchor]": "now", "expires_after[seconds]": "3600"}, "expires_after.anchor"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "1"}, "expires_after.seconds"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "9" * 30}, "expires_after.seconds"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "٣٦٠٠"}, "expires_after.seconds"),
    ],
)
@pytest.mark.holds("api.md#post-v1files-1")
async def test_wrong_field_is_refused_by_name(api: Api, tmp_path: Path, fields: dict[str, str], param: str) -> None:
    status, answer = await api.upload(CONTENT, **fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert stored(tmp_path) == []


async def test_empty_file_is_refused(api: Api) -> None:
    status, answer = await api.upload(b"")
    assert (status, answer["error"]["param"]) == (400, "file")


async def test_file_above_its_limit_is_refused(api: Api, tmp_path: Path) -> None:
    status, answer = await api.upload(b"x" * 1_000_001)
    assert (status, answer["error"]["code"]) == (413, "request_too_large")
    assert stored(tmp_path) == []


@pytest.mark.holds("operations/batches.md#files-and-disk-1")
async def test_account_has_a_quota_of_bytes_that_deleted_files_give_back(api: Api, tmp_path: Path) -> None:
    ids = [(await api.upload(b"x" * 990_000))[1]["id"] for _ in range(3)]
    status, answer = await api.upload(b"x" * 990_000)
    assert (status, answer["error"]["code"]) == (400, "file_quota_exceeded")
    assert len(stored(tmp_path)) == 3
    await api.ask("DELETE", f"/v1/files/{ids[0]}")
    assert (await api.upload(b"x" * 990_000))[0] == 200


@pytest.mark.holds("api.md#post-v1files-1")
async def test_account_has_a_quota_of_files(api: Api) -> None:
    for _ in range(5):
        assert (await api.upload(CONTENT))[0] == 200
    status, answer = await api.upload(CONTENT)
    assert (status, answer["error"]["code"]) == (400, "file_quota_exceeded")


@pytest.mark.holds("api.md#post-v1files-2", "security.md#files-of-callers-1")
async def test_another_account_finds_no_file(api: Api, client: Client, accounts: Accounts, keys: Keys) -> None:
    _, file = await api.upload(CONTENT)
    await accounts.create("other", balance=1)
    other = Api(client, (await keys.create("other", name="k")).text)
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert (await other.ask(method, f"/v1/files/{file['id']}{path}"))[0] == 404
    assert (await other.ask("GET", "/v1/files"))[1]["data"] == []
    status, _ = await other.ask(
        "POST",
        "/v1/batches",
        json={"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"},
    )
    assert status == 404
    assert (await api.ask("GET", f"/v1/files/{file['id']}"))[0] == 200


@pytest.mark.holds("api.md#post-v1files-2")
async def test_key_of_a_user_sees_the_files_of_that_user_alone(
    api: Api, client: Client, gateway: Gateway, keys: Keys
) -> None:
    first, second = [
        Api(client, (await keys.create("acme", name=user, user=user)).text) for user in ("usr_first", "usr_second")
    ]
    _, file = await first.upload(CONTENT)
    assert (await second.ask("GET", f"/v1/files/{file['id']}"))[0] == 404
    assert (await second.ask("GET", "/v1/files"))[1]["data"] == []
    assert (await first.ask("GET", f"/v1/files/{file['id']}"))[0] == 200
    assert [one["id"] for one in (await api.ask("GET", "/v1/files"))[1]["data"]] == [file["id"]]


@pytest.mark.holds("operations/batches.md#files-and-disk-2")
async def test_expired_file_is_not_found_and_is_deleted(
    api: Api, gateway: Gateway, runner: Runner, tmp_path: Path
) -> None:
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    _, file = await api.upload(CONTENT, **fields)
    assert file["expires_at"] == file["created_at"] + 3600
    records = FileRecords(gateway.store)
    found = await records.find("acme", file["id"])
    await gateway.store.client.zadd(f"files:due:{found.place}", {f"acme {file['id']}": time.time() - 1})
    await runner._sweep("place")
    await runner._sweep("place")  # within a while it is done once
    runner._swept = 0.0
    await runner._sweep("place")
    assert stored(tmp_path) == []
    assert (await api.ask("GET", f"/v1/files/{file['id']}"))[0] == 404
    assert await gateway.store.client.hgetall("{a:acme}:fb") == {b"total": b"0"}


async def test_interrupted_upload_is_deleted_when_it_expires(gateway: Gateway, api: Api, runner: Runner) -> None:
    """Its entry among the expiring files is written first."""
    await api.upload(CONTENT)
    [due] = [name async for name in gateway.store.client.scan_iter("files:due:*")]
    await gateway.store.client.zadd(due, {f"acme file-{'0' * 32}": 1})
    runner._swept = 0.0
    await runner._sweep("place")
    assert await gateway.store.client.zcard(due) == 1


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=10001", "order=up", "nope=1", "after=file-x", "limit"])
async def test_wrong_query_is_refused(api: Api, query: str) -> None:
    assert (await api.ask("GET", f"/v1/files?{query}"))[0] == 400


@pytest.mark.parametrize(
    "file_id", ["file-x", "x", "file-" + "0" * 32, "..%2f..%2fetc", "file-" + "0" * 31 + "%0a", "%00", "a" * 3000]
)
async def test_unknown_id_is_not_found(api: Api, file_id: str) -> None:
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", ""), ("GET", "/content/x")):
        assert (await api.ask(method, f"/v1/files/{file_id}{path}"))[0] == 404


BOUNDARY = "xyz"
HEAD = b'--xyz\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n'
PURPOSE = HEAD % (b"purpose", b"") + b"batch\r\n"
FILE = HEAD % (b"file", b'; filename="a"') + b"{}\r\n"
FORMS: list[tuple[str, bytes, int]] = [
    ("no parts", b"--xyz--\r\n", 400),
    ("no file", PURPOSE + b"--xyz--\r\n", 400),
    ("no purpose", FILE + b"--xyz--\r\n", 400),
    ("cut", PURPOSE + FILE, 400),
    ("two files", PURPOSE + FILE + FILE + b"--xyz--\r\n", 400),
    ("no form", b"purpose=batch", 400),
    ("nothing", b"", 400),
    ("many parts", PURPOSE * 70 + FILE + b"--xyz--\r\n", 400),
    ("purpose is no UTF-8", HEAD % (b"purpose", b"") + b"\xff\r\n" + FILE + b"--xyz--\r\n", 400),
    ("long purpose", HEAD % (b"purpose", b"") + b"x" * 70_000 + b"\r\n" + FILE + b"--xyz--\r\n", 400),
    ("file as text", PURPOSE + HEAD % (b"file", b"") + b"{}\r\n--xyz--\r\n", 200),
    ("good", PURPOSE + FILE + b"--xyz--\r\n", 200),
]


@pytest.mark.parametrize(("form", "status"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
async def test_hostile_form_is_refused_and_stores_nothing(
    api: Api, client: Client, tmp_path: Path, form: bytes, status: int
) -> None:
    headers = {**api.headers, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    async with client.request("POST", "/v1/files", headers=headers, data=form) as response:
        assert response.status == status, await response.text()
    assert len(stored(tmp_path)) == (status == 200)


async def test_every_cut_of_a_form_is_refused(api: Api, client: Client, tmp_path: Path) -> None:
    whole = PURPOSE + FILE + b"--xyz--\r\n"
    headers = {**api.headers, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    for length in range(0, len(whole) - 4, 3):
        async with client.request("POST", "/v1/files", headers=headers, data=whole[:length]) as response:
            assert response.status == 400, length
    assert stored(tmp_path) == []


async def test_full_disk_answers_503_and_leaves_nothing(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.files.storage._end", full)
    assert (await api.upload(CONTENT))[0] == 503
    assert stored(tmp_path) == []
    assert (await api.ask("GET", "/v1/files"))[1]["data"] == []


async def test_file_names_lose_folders_and_quotes(api: Api, client: Client) -> None:
    name = HEAD % (b"file", b'; filename="../../etc/pa\\"ss\xe2\x82\xac.jsonl"')
    headers = {**api.headers, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    form = PURPOSE + name + b"{}\r\n--xyz--\r\n"
    async with client.request("POST", "/v1/files", headers=headers, data=form) as response:
        file = await response.json()
    assert "/" not in file["filename"]
    assert file["filename"].endswith("ss\u20ac.jsonl")
    async with client.request("GET", f"/v1/files/{file['id']}/content", headers=api.headers) as response:
        shown = response.headers["Content-Disposition"]
    assert shown.startswith('attachment; filename="')
    assert shown.count('"') == 2
    assert shown.isascii()
