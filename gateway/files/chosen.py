"""The storage of files that the configuration chooses: a folder, or a bucket."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path

from gateway.config.server_settings import BucketSettings
from gateway.config.settings import Settings
from gateway.files.s3 import S3Files
from gateway.files.storage import FileStorage, LocalFiles


def chosen_storage(settings: Settings) -> FileStorage:
    """The storage; one of a bucket is the same for equal settings, because it has connections. Needs a running loop."""
    if not settings.files.s3.bucket:
        return LocalFiles(settings.files_dir)
    return _of_bucket(asyncio.get_running_loop(), settings.files.s3, settings.folder, settings.demo)


@lru_cache(maxsize=2)  # the one before a reload may be in use
def _of_bucket(_: asyncio.AbstractEventLoop, bucket: BucketSettings, folder: Path, literals: bool) -> S3Files:
    return S3Files(bucket, folder=folder, literals=literals)
