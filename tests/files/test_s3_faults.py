"""A bucket whose store refuses, fails or is silent."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.server_settings import BucketSettings
from gateway.errors import Unavailable
from gateway.files import s3
from gateway.files.s3 import S3Files
from gateway.testing import FakeUpstream, Reply


def refusal(status: int, code: str) -> Reply:
    """An error as S3 sends it."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>of an upstream</Message></Error>"
    return Reply(status=status, headers={"Content-Type": "application/xml"}, body=text.encode())


def files_of(upstream: FakeUpstream, folder: Path) -> S3Files:
    """Files in a bucket of this server, with keys in files."""
    (folder / "id").write_text("first")
    (folder / "key").write_text("a secret")
    bucket = BucketSettings(
        bucket="files", endpoint=upstream.url, addressing="path", access_key_id="file:id", secret_access_key="file:key"
    )
    return S3Files(bucket, folder=folder)


async def one_piece() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.holds("operations/batches.md#files-in-a-bucket-1")
async def test_first_process_writes_the_id_of_the_place_unless_another_one_was_faster(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        upstream.enqueue(
            refusal(404, "NoSuchKey"),
            refusal(412, "PreconditionFailed"),
            Reply(body=b"0123abc"),
            Reply(body=b"0123abc"),
        )
        files = files_of(upstream, tmp_path)
        assert await files.place() == "0123abc"
        assert await files.place() == "0123abc"
        asked = [(seen.method, seen.path, seen.headers.get("if-none-match")) for seen in upstream.seen]
        path = "/files/.id"
        assert asked == [("GET", path, None), ("PUT", path, "*"), ("GET", path, None)]


async def test_id_that_is_not_of_this_program_is_refused(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        upstream.enqueue(Reply(body=b"<html>"))
        with pytest.raises(Unavailable):
            await files_of(upstream, tmp_path).place()


@pytest.mark.holds("operations/batches.md#files-in-a-bucket-2")
@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (refusal(403, "AccessDenied"), 1),
        (refusal(503, "SlowDown"), s3.ATTEMPTS),
        (refusal(500, "InternalError"), s3.ATTEMPTS),
        (Reply.hang_up(), s3.ATTEMPTS),
        (Reply.silence(), s3.ATTEMPTS),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n1234"), 1),
        (Reply(raw=b"no HTTP\r\n\r\n"), s3.ATTEMPTS),
    ],
)
async def test_store_that_fails_is_unavailable_after_few_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, asked: int
) -> None:
    monkeypatch.setattr(s3, "READ_WITHIN", 0.2)
    async with FakeUpstream(lambda _: reply) as upstream:
        with pytest.raises(Unavailable) as caught:
            await files_of(upstream, tmp_path).place()
        assert re.fullmatch(r"files: get_object: \w+", caught.value.detail or ""), caught.value.detail
        assert len(upstream.seen) == asked


async def test_store_that_nobody_listens_for_is_unavailable(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        files = files_of(upstream, tmp_path)
    with pytest.raises(Unavailable):
        await files.save("file-1", one_piece())


async def test_refused_key_is_read_again_by_the_next_request(tmp_path: Path) -> None:
    async with FakeUpstream(lambda _: refusal(403, "InvalidAccessKeyId")) as upstream:
        files = files_of(upstream, tmp_path)
        for name in ("first", "second"):
            (tmp_path / "id").write_text(name)
            with pytest.raises(Unavailable):
                await files.save("file-1", one_piece())
        used = [re.search(r"Credential=(\w+)/", seen.headers["authorization"]) for seen in upstream.seen]
        assert [found and found[1] for found in used] == ["first", "second"]


async def test_file_that_ends_early_or_is_gone_while_it_is_read_is_an_error_and_no_short_file(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        files = files_of(upstream, tmp_path)
        for reply in (Reply(status=206, body=b"short"), refusal(404, "NoSuchKey")):
            upstream.enqueue(Reply(body=b"0123456789"), reply)
            content = await files.open("file-1")
            assert content is not None
            with pytest.raises(Unavailable):
                await content.read()


async def test_store_that_sends_a_byte_now_and_then_keeps_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ANSWERED_WITHIN", 0.5)
    trickle = Reply(frames=[b"x"] * 30, interval=0.1)
    async with FakeUpstream(lambda _: trickle) as upstream:
        with pytest.raises(Unavailable) as caught:
            await files_of(upstream, tmp_path).place()
        assert caught.value.detail == "files: get_object: too slow"


def page_of_uploads(number: int, *, is_last: bool) -> Reply:
    """A page with one incomplete upload of 2020."""
    upload = f"<Key>file-{number:032x}</Key><UploadId>u{number}</UploadId><Initiated>2020-01-01T00:00:00Z</Initiated>"
    more = (
        "" if is_last else f"<NextKeyMarker>k{number}</NextKeyMarker><NextUploadIdMarker>n{number}</NextUploadIdMarker>"
    )
    text = f"<IsTruncated>{str(not is_last).lower()}</IsTruncated>{more}<Upload>{upload}</Upload>"
    return Reply(body=f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>".encode())


async def test_sweep_goes_on_to_the_last_page(tmp_path: Path) -> None:
    gone = Reply(status=204)
    async with FakeUpstream() as upstream:
        upstream.enqueue(page_of_uploads(1, is_last=False), gone, page_of_uploads(2, is_last=True), gone)
        await files_of(upstream, tmp_path).sweep()
        assert [seen.method for seen in upstream.seen] == ["GET", "DELETE", "GET", "DELETE"]
        assert "key-marker=k1&" in upstream.seen[2].path and "upload-id-marker=n1" in upstream.seen[2].path
        assert [seen.path.rpartition("=")[2] for seen in upstream.seen[1::2]] == ["u1", "u2"]


async def test_download_asks_for_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "READ", 4)
    async with FakeUpstream() as upstream:
        parts = (b"0123", b"4567", b"89")
        upstream.enqueue(Reply(body=b"0123456789"), *(Reply(status=206, body=part) for part in parts))
        content = await files_of(upstream, tmp_path).open("file-1")
        assert content is not None
        assert [await content.read() for _ in range(4)] == [b"0123", b"4567", b"89", b""]
        ranges = [seen.headers.get("range") for seen in upstream.seen[1:]]
        assert ranges == ["bytes=0-3", "bytes=4-7", "bytes=8-9"]


async def test_missing_library_and_missing_secret_are_said_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeUpstream() as upstream:
        files = files_of(upstream, tmp_path)
        (tmp_path / "key").unlink()
        with pytest.raises(Unavailable) as caught:
            await files.place()
        assert caught.value.detail == "files: get_object: SecretError"
        monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
        with pytest.raises(Unavailable) as caught:
            await files.place()
        assert "model-gateway[s3]" in (caught.value.detail or "")
