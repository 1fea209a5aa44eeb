"""Settings of the public port ([server], its limits, [batches], [files]), and of all processes ([plugins], [log])."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.config.secret import Secret, SecretError
from gateway.config.values import Bytes, Duration, NetworkText, Port, Seconds, ShutdownDelay, TagName
from gateway.config.variables import Reference

_ENDPOINT = re.compile(r"https?://[^/?#\s@]+/?", re.ASCII)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}", re.ASCII)

#: An origin as browsers send it, or "*".
CorsOrigin = Annotated[str, Meta(pattern=r"^(?:\*|[a-z][a-z0-9+.-]*://[^/\s,]+)$(?!\n)")]
ResponseHeader = Literal["model", "provider", "attempts", "cost"]  # each is sent as `x-gateway-NAME`


class ServerLimitSettings(Struct, frozen=True, kw_only=True):
    """[server.limits]: times, sizes and numbers of connections and bodies, and rare choices about answers."""

    header_timeout: Seconds = 10.0
    keepalive_timeout: Seconds = 65.0
    body_timeout: Seconds = 30.0
    body_total_timeout: Seconds = 900.0
    min_body_rate: Annotated[int, Meta(ge=0, le=2**30)] = 1024
    write_timeout: Seconds = 30.0
    max_header_bytes: Bytes = 65_536
    max_json_body: Bytes = 32 * 2**20
    max_audio_body: Bytes = 100 * 2**20
    max_image_body: Bytes = 200 * 2**20
    max_bodies: Bytes = 256 * 2**20
    max_account_bodies: Bytes = 64 * 2**20
    max_spool: Bytes = 4 * 2**30
    max_account_spool: Bytes = 2**30
    spool_dir: str = ""
    max_connections: Annotated[int, Meta(ge=0, le=2**20)] = 0
    accept_queue: Annotated[int, Meta(ge=1, le=65_535)] = 4_096
    max_kept_answers: Annotated[int, Meta(ge=0, le=2**40)] = 64 * 2**20
    max_loop_lag: Annotated[float, Meta(ge=0, le=60)] = 1.0
    max_memory: Annotated[int, Meta(ge=0, le=2**50)] = 0
    keepalive_comment: Seconds = 15.0
    commit_after: Seconds = 10.0
    unknown_model_status: Literal[403, 404] = 403
    legacy_quota_code: bool = False
    obfuscation: Literal["upstream", "on", "off"] = "upstream"
    default_image_model: Annotated[str, Meta(max_length=256)] = ""


class WebSocketSettings(Struct, frozen=True, kw_only=True):
    """[server.websocket]: the Responses API over WebSocket, and the Realtime API. Numbers of sockets are those of one
    worker.
    """

    responses: bool = False
    max_per_account: Annotated[int, Meta(ge=1, le=2**20)] = 64
    max_per_address: Annotated[int, Meta(ge=1, le=2**20)] = 256
    max_conversation: Bytes = 4 * 2**20
    max_age: Annotated[float, Meta(ge=1, le=86_400)] = 3600.0
    realtime_max_event: Bytes = 16 * 2**20
    realtime_max_idle: Annotated[float, Meta(ge=1, le=86_400)] = 900.0


class ServerSettings(Struct, frozen=True, kw_only=True):
    """[server]: the public port and how it treats callers."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Port = 8080
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    trusted_proxies: tuple[NetworkText, ...] = ()
    proxy_protocol: bool = False
    shutdown_delay: ShutdownDelay = "auto"
    drain_timeout: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    response_headers: tuple[ResponseHeader, ...] = ()
    cors_origins: Annotated[tuple[CorsOrigin, ...], Meta(max_length=64)] = ()
    tls_cert: str = ""  # files; `Settings.tls_files` has their paths
    tls_key: str = ""
    tls_client_ca: str = ""
    tags: Annotated[tuple[TagName, ...], Meta(max_length=16)] = ()
    unknown_params: Literal["forward", "drop", "reject"] = "forward"
    authenticate: Annotated[tuple[str, ...], Meta(max_length=8)] = ()  # hooks, for credentials that are no keys
    limits: ServerLimitSettings = ServerLimitSettings()
    websocket: WebSocketSettings = WebSocketSettings()

    @property
    def scheme(self) -> str:
        """Of the addresses of `/v1` and of the console."""
        return "https" if self.tls_cert else "http"


class BatchSettings(Struct, frozen=True, kw_only=True):
    """[batches]: whether `/v1/files` and `/v1/batches` are served, and how batches run."""

    enabled: bool = False
    concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 16  # lines at a time
    account_concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 8  # of them of one account
    attempts: Annotated[int, Meta(ge=1, le=20)] = 5  # of a line whose upstream fails
    max_lines: Annotated[int, Meta(ge=1, le=100_000)] = 50_000
    max_line: Bytes = 2**20
    max_open: Annotated[int, Meta(ge=1, le=1_000)] = 20  # batches of an account that have not ended
    keep: Duration = "30d"  # a batch that has ended


class BucketSettings(Struct, frozen=True, kw_only=True):
    """[files.s3]: files in a bucket instead of a folder. Without keys they come from AWS's chain."""

    bucket: Annotated[str, Meta(max_length=255)] = ""  # empty: files are in a folder
    prefix: Annotated[str, Meta(max_length=256)] = ""  # before the names of files
    endpoint: Annotated[str, Meta(max_length=2048)] = ""  # empty: AWS's for the region
    region: Annotated[str, Meta(min_length=1, max_length=64)] = "us-east-1"
    addressing: Literal["auto", "path", "virtual"] = "auto"
    access_key_id: Reference = ""
    secret_access_key: Reference = ""


class FileSettings(Struct, frozen=True, kw_only=True):
    """[files]: the files of callers, and those with the results of batches."""

    folder: str = ""  # empty: `files` in data_dir
    s3: BucketSettings = BucketSettings()
    max_file: Bytes = 200 * 2**20
    max_account: Bytes = 2**30  # of all files of an account
    max_account_files: Annotated[int, Meta(ge=1, le=10_000)] = 500
    keep: Duration = "30d"  # of a file without `expires_after`, and the longest that this may ask for


def file_problems(files: FileSettings, *, literals: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """What contradicts itself in [files]: the key in it, and the problem."""
    bucket = files.s3
    if files.folder and bucket.bucket:
        yield ("folder",), "files are in a folder or in the bucket of [files.s3], not in both"
    if not bucket.bucket and bucket != BucketSettings():
        yield ("s3",), "bucket is missing"
    if bucket.bucket and not _BUCKET.fullmatch(bucket.bucket):
        yield ("s3", "bucket"), "a bucket's name has 3 to 255 of A-Z, a-z, 0-9, '.', '_' and '-'"
    if bucket.endpoint and not _ENDPOINT.fullmatch(bucket.endpoint):
        yield ("s3", "endpoint"), "expected http:// or https:// with a host, and no path"
    keys = {"access_key_id": bucket.access_key_id, "secret_access_key": bucket.secret_access_key}
    for name, reference in keys.items():
        if reference:
            try:
                Secret.parse(reference, literals=literals)
            except SecretError as error:
                yield ("s3", name), str(error)
        elif any(keys.values()):
            yield ("s3", name), "missing: access_key_id and secret_access_key go together"
