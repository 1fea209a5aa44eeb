"""Files in a bucket of a real store with S3's API."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Unavailable
from gateway.files import s3
from gateway.files.s3 import PART, S3Files
from gateway.files.storage import PIECE
from tests.files.bucket_server import ACCESS, NAME, SECRET, BucketServer, bucket_server, needs_program

pytestmark = [pytest.mark.slow, needs_program]

SEED = 20_261_201


async def pieces(content: bytes, *, size: int = 100_000) -> AsyncIterator[bytes]:
    """The content as it arrives."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def read(files: S3Files, name: str) -> bytes | None:
    """The whole content of a file; None if there is none."""
    content = await files.open(name)
    if content is None:
        return None
    found = []
    while piece := await content.read():
        assert len(piece) <= PIECE
        found.append(piece)
    await content.close()
    assert content.size == sum(map(len, found))
    return b"".join(found)


@asynccontextmanager
async def files_of(folder: Path) -> AsyncIterator[tuple[BucketServer, S3Files]]:
    """A server, and files in its bucket."""
    async with bucket_server(folder) as server:
        yield server, S3Files(server.bucket())


async def test_file_of_any_size_comes_back_whole_and_can_be_replaced_and_deleted(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with files_of(tmp_path) as (server, files):
        for size in (0, 1, PART - 1, PART, PART + 1, 2 * PART + 77):
            content = chance.randbytes(size)
            await files.save("file-1", pieces(content))
            assert await read(files, "file-1") == content, size
        await files.save("file-1", pieces(b"shorter"))
        assert await read(files, "file-1") == b"shorter"
        assert await server.uploads() == []
        await files.delete("file-1")
        assert await read(files, "file-1") is None
        await files.delete("file-1")
        assert await server.names() == []


async def test_upload_that_fails_or_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    uploaded = asyncio.Event()

    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(2 * PART)):
            yield piece
        raise ValueError("the caller has left")

    async def endless() -> AsyncIterator[bytes]:
        for number in range(1_000):
            yield bytes(PART // 4)
            if number == 10:
                uploaded.set()

    async with files_of(tmp_path) as (server, files):
        with pytest.raises(ValueError, match="has left"):
            await files.save("file-1", broken())
        saving = asyncio.create_task(files.save("file-2", endless()))
        await uploaded.wait()
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert await server.names() == []
        assert await server.uploads() == []
        assert await read(files, "file-1") is None


async def test_upload_that_is_cancelled_while_it_is_created_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, answered = threading.Event(), threading.Event()
    call = S3Files._call

    def held(files: S3Files, operation: str, read: Any, asked: Any) -> Any:
        answer = call(files, operation, read, asked)
        if operation == "create_multipart_upload":
            created.set()
            assert answered.wait(60)
        return answer

    monkeypatch.setattr(S3Files, "_call", held)
    async with files_of(tmp_path) as (server, files):
        saving = asyncio.create_task(files.save("file-1", pieces(bytes(2 * PART))))
        assert await asyncio.to_thread(created.wait, 60)
        saving.cancel()
        await asyncio.sleep(0)
        answered.set()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert await server.uploads() == []


async def test_sweep_deletes_incomplete_uploads_of_killed_processes_when_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, many = [f"file-{number:032x}" for number in range(5)], ["a-backup", "zz/file-of-another-program"]
    async with bucket_server(tmp_path) as server:
        other = f"other/{own[0]}"
        for name in (*own, *many, other):
            await asyncio.to_thread(server.client().create_multipart_upload, Bucket=NAME, Key=name)
        await S3Files(server.bucket()).sweep()
        assert await server.uploads() == sorted([*own, *many, other])
        monkeypatch.setattr(s3, "INCOMPLETE_FOR", timedelta(days=-1))
        await S3Files(server.bucket()).sweep()
        assert await server.uploads() == sorted([*many, other])
        await S3Files(server.bucket(prefix="other")).sweep()
        assert await server.uploads() == sorted(many)


async def test_processes_that_begin_together_see_one_place_and_a_prefix_is_a_place_of_its_own(tmp_path: Path) -> None:
    async with bucket_server(tmp_path) as server:
        places = await asyncio.gather(*(S3Files(server.bucket()).place() for _ in range(8)))
        assert len(set(places)) == 1
        own = S3Files(server.bucket(prefix="/a/b/"))
        assert await own.place() not in places
        await own.save("file-1", pieces(b"x"))
        assert await server.names() == [".id", "a/b/.id", "a/b/file-1"]


async def test_wrong_keys_and_a_bucket_that_is_missing_are_errors_that_name_neither(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("a wrong secret")
    async with bucket_server(tmp_path / "server") as server:
        for changes in ({"secret_access_key": f"file:{tmp_path / 'wrong'}"}, {"bucket": "nowhere"}):
            with pytest.raises(Unavailable) as caught:
                await S3Files(server.bucket(**changes)).place()
            shown = f"{caught.value.message} {caught.value.log_text()}"
            assert "files: get_object: " in shown
            assert not any(secret in shown for secret in ("wrong", SECRET, ACCESS, server.url))
