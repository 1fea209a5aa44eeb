"""Files in a bucket of an S3-compatible store, which several machines share.

The client is botocore's, of the extra `model-gateway[s3]`. It blocks, so it runs in threads of its own: a store that is
slow takes none of those that look up names and read disks. An upload holds a part of 8 MiB, a download one of 1 MiB.
Sharp edges: what a killed process has uploaded of a file stays in the bucket as an incomplete upload, until `sweep`
removes it a day later. A thread cannot be cut: a store that sends a byte now and then keeps it, though not its caller.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final

from gateway.config.secret import Secret
from gateway.config.server_settings import BucketSettings
from gateway.errors import Unavailable
from gateway.files.storage import NOT_NOW, PIECE
from gateway.log import gateway_log

PART = 8 * 2**20  # bytes of a part; S3 takes 5 MiB to 5 GiB, and 10,000 parts
READ = 2**20  # bytes of a request of a download: 60 slow readers of 8 MiB each took 493 MiB of a worker
UPLOADS = 4  # at a time in a process; the others wait
THREADS = 8
CONNECT_WITHIN, READ_WITHIN, ATTEMPTS = 5.0, 10.0, 3  # seconds, seconds, of a request
ANSWERED_WITHIN = 60.0  # seconds of a request with all its attempts, until its caller waits no longer
INCOMPLETE_FOR = timedelta(days=1)  # an upload that is older is not completed any more
PAGES, PAGE = 10, 1_000  # of incomplete uploads that one sweep looks at
NAME = re.compile(r"file-[0-9a-f]{32}", re.ASCII)  # others in the bucket are not ours to remove
ID = ".id"
MISSING: Final = frozenset({"404", "NoSuchKey", "NoSuchUpload", "NotFound"})
TAKEN: Final = frozenset({"409", "412", "ConditionalRequestConflict", "PreconditionFailed"})
REFUSED: Final = frozenset({"403", "AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
EXTRA = "files in a bucket need botocore: pip install 'model-gateway[s3]'"


class _Missing(Exception):
    """There is no object of that name."""


class _Taken(Exception):
    """There is an object of that name already."""


class S3Files:
    """Files in one bucket. Its methods are those of `gateway.files.storage.FileStorage`."""

    def __init__(self, bucket: BucketSettings, *, folder: Path = Path(), literals: bool = False) -> None:
        self._bucket = bucket
        self._folder = folder  # what relative paths of secrets are relative to
        self._literals = literals
        self._prefix = f"{bucket.prefix.strip('/')}/" if bucket.prefix.strip("/") else ""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")
        self._client: Any = None
        self._creating = Lock()
        self._uploads = asyncio.Semaphore(UPLOADS)
        self._endings: set[asyncio.Task[None]] = set()  # removals of uploads that ended early
        self._place = ""

    async def place(self) -> str:
        """The id in the bucket, made by the first process that asks."""
        if not self._place:
            try:
                self._place = await self._read_id()
            except _Missing:
                own = secrets.token_hex(8).encode()
                with suppress(_Taken):  # another process was faster
                    await self._ask("put_object", Key=self._key(ID), Body=own, IfNoneMatch="*")
                self._place = await self._read_id()
        return self._place

    async def _read_id(self) -> str:
        text = await self._ask("get_object", _body, Key=self._key(ID))
        if not text.isalnum() or len(text) > 64:
            raise Unavailable(NOT_NOW, detail=f"files: {ID} in the bucket is not of this program")
        return str(text.decode("ascii"))

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a file, in place of one of the same name."""
        async with self._uploads, aclosing(_parts(pieces)) as parts:
            first = await anext(parts)
            try:
                if len(first) < PART:
                    await self._ask("put_object", Key=self._key(name), Body=first)
                else:
                    await self._save_parts(self._key(name), first, parts)
            except (_Missing, _Taken):
                raise Unavailable(NOT_NOW, detail="files: the store has lost the upload") from None

    async def _save_parts(self, key: str, first: bytes, parts: AsyncIterator[bytes]) -> None:
        creating = asyncio.create_task(self._ask("create_multipart_upload", Key=key))
        try:
            upload = (await asyncio.shield(creating))["UploadId"]
            done = [await self._save_part(key, upload, 1, first)]
            del first
            async for part in parts:
                done.append(await self._save_part(key, upload, len(done) + 1, part))
            await self._ask("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": done})
        except BaseException:
            # The caller left, its quota is used up, or the store fails: nothing of the upload is to be left.
            ending = asyncio.create_task(self._end(key, creating))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            await asyncio.shield(ending)
            raise

    async def _end(self, key: str, creating: asyncio.Task[Any]) -> None:
        """Remove an upload that may just be created."""
        try:
            upload = (await creating)["UploadId"]
        except (_Missing, _Taken, Unavailable):
            return  # there is none
        await self._abort(key, upload)

    async def _save_part(self, key: str, upload: str, number: int, part: bytes) -> dict[str, Any]:
        asked = {"Key": key, "UploadId": upload, "PartNumber": number, "Body": part}
        return {"PartNumber": number, "ETag": (await self._ask("upload_part", **asked))["ETag"]}

    async def _abort(self, key: str, upload: str) -> None:
        try:
            await self._ask("abort_multipart_upload", Key=key, UploadId=upload)
        except _Missing:
            pass
        except Unavailable as error:  # `sweep` removes it later
            gateway_log.warning("an incomplete upload stays in the bucket: %s", error.log_text())

    async def open(self, name: str) -> S3Content | None:
        """The content of a file; None if there is none of that name."""
        try:
            size = (await self._ask("head_object", Key=self._key(name)))["ContentLength"]
        except _Missing:
            return None
        return S3Content(self, self._key(name), int(size))

    async def read_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end` of an object; Unavailable, also if it is gone."""
        try:
            content = await self._ask("get_object", _body, Key=key, Range=f"bytes={start}-{end - 1}")
        except _Missing:
            raise Unavailable("The file cannot be read at the moment", detail="files: it was deleted") from None
        if len(content) != end - start:
            raise Unavailable("The file cannot be read at the moment", detail="files: the bucket sent other bytes")
        return bytes(content)

    async def delete(self, name: str) -> None:
        """Delete a file; nothing happens if there is none of that name."""
        with suppress(_Missing):
            await self._ask("delete_object", Key=self._key(name))

    async def sweep(self) -> None:
        """Remove what killed processes have left of uploads."""
        place: dict[str, str] = {}
        for _ in range(PAGES):
            found = await self._ask("list_multipart_uploads", Prefix=self._prefix, MaxUploads=PAGE, **place)
            for upload in found.get("Uploads", ()):
                is_own = NAME.fullmatch(upload["Key"].removeprefix(self._prefix))
                if is_own and upload["Initiated"] < datetime.now(UTC) - INCOMPLETE_FOR:
                    await self._abort(upload["Key"], upload["UploadId"])
            if not found.get("IsTruncated") or "NextKeyMarker" not in found:  # SeaweedFS has none
                return
            place = {"KeyMarker": found["NextKeyMarker"], "UploadIdMarker": found["NextUploadIdMarker"]}

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def _ask(self, operation: str, read: Callable[[Any], Any] = dict, /, **asked: Any) -> Any:
        """What the store answers. `read` makes it of the answer, in the thread."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                return await loop.run_in_executor(self._threads, self._call, operation, read, asked)
        except TimeoutError:
            raise Unavailable(NOT_NOW, detail=f"files: {operation}: too slow") from None

    def _call(self, operation: str, read: Callable[[Any], Any], asked: Mapping[str, Any]) -> Any:
        try:
            from botocore.exceptions import ClientError
        except ImportError:
            raise Unavailable(NOT_NOW, detail=EXTRA) from None
        try:
            client = self._connected()
            return read(getattr(client, operation)(Bucket=self._bucket.bucket, **asked))
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in MISSING:
                raise _Missing from None
            if code in TAKEN:
                raise _Taken from None
            if code in REFUSED:
                self._client = None  # the next request reads the keys again
            raise Unavailable(NOT_NOW, detail=f"files: {operation}: {code[:64]}") from None
        except Exception as error:  # botocore lets errors of urllib3 and of the standard library pass
            raise Unavailable(NOT_NOW, detail=f"files: {operation}: {type(error).__name__}") from None

    def _connected(self) -> Any:
        with self._creating:
            if self._client is None:
                self._client = _client(self._bucket, self._revealed)
            return self._client

    def _revealed(self, reference: str) -> str | None:
        if not reference:
            return None
        return Secret.parse(reference, literals=self._literals, folder=self._folder).reveal()


class S3Content:
    """The content of one object, read in parts."""

    def __init__(self, files: S3Files, key: str, size: int) -> None:
        self.size = size
        self._files = files
        self._key = key
        self._at = 0  # the next byte to be returned
        self._part = memoryview(b"")

    async def read(self) -> bytes:
        """The next bytes; b"" at the end."""
        if not self._part and self._at < self.size:
            end = min(self._at + READ, self.size)
            self._part = memoryview(await self._files.read_range(self._key, self._at, end))
        piece = bytes(self._part[:PIECE])
        self._part = self._part[PIECE:]
        self._at += len(piece)
        return piece

    async def close(self) -> None:
        """Read no more."""
        self._part = memoryview(b"")


async def _parts(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes in parts of `PART`; the last one is shorter, and may be empty only if it is the first."""
    part = bytearray()
    is_first = True
    async for piece in pieces:
        part += piece
        while len(part) >= PART:
            yield bytes(part[:PART])
            is_first = False
            del part[:PART]
    if part or is_first:
        yield bytes(part)


def _body(answer: Any) -> bytes:
    with answer["Body"] as body:
        return bytes(body.read())


def _client(bucket: BucketSettings, revealed: Callable[[str], str | None]) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    config = Config(
        connect_timeout=CONNECT_WITHIN,
        read_timeout=READ_WITHIN,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=THREADS,
        s3={"addressing_style": bucket.addressing},
        # Other stores than AWS's know no checksums behind the body.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return Session().create_client(
        "s3",
        region_name=bucket.region,
        endpoint_url=bucket.endpoint or None,
        aws_access_key_id=revealed(bucket.access_key_id),
        aws_secret_access_key=revealed(bucket.secret_access_key),
        config=config,
    )
