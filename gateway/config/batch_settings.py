"""[batches] and [files]: files of callers, and batches of requests that the gateway runs by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.config.values import Bytes, Duration


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


class FileSettings(Struct, frozen=True, kw_only=True):
    """[files]: the files of callers, and those with the results of batches."""

    folder: str = ""  # empty: `files` in data_dir
    max_file: Bytes = 200 * 2**20
    max_account: Bytes = 2**30  # of all files of an account
    max_account_files: Annotated[int, Meta(ge=1, le=10_000)] = 500
    keep: Duration = "30d"  # of a file without `expires_after`, and the longest that this may ask for
