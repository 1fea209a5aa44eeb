"""Which storage the configuration chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.files.chosen import chosen_storage
from gateway.files.s3 import S3Files
from gateway.files.storage import LocalFiles

BUCKET = {"bucket": "files", "access_key_id": "env:ID", "secret_access_key": "env:KEY"}


def settings_of(data_dir: Path, **files: Any) -> Settings:
    return parse({"store": {"data_dir": str(data_dir)}, "files": files})


async def test_folder_is_the_default_and_a_bucket_has_one_client_until_its_settings_change(tmp_path: Path) -> None:
    assert isinstance(chosen_storage(settings_of(tmp_path)), LocalFiles)
    first = chosen_storage(settings_of(tmp_path, s3=BUCKET))
    assert isinstance(first, S3Files)
    assert chosen_storage(settings_of(tmp_path, s3=BUCKET, max_file=2048)) is first
    assert chosen_storage(settings_of(tmp_path, s3={**BUCKET, "prefix": "a"})) is not first


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"folder": "x", "s3": BUCKET}, "files.folder: files are in a folder or in the bucket"),
        ({"s3": {"prefix": "a"}}, "files.s3: bucket is missing"),
        ({"s3": {**BUCKET, "bucket": "a/b"}}, "files.s3.bucket: a bucket's name"),
        ({"s3": {**BUCKET, "endpoint": "https://me:secret@host"}}, "files.s3.endpoint: expected http"),
        ({"s3": {**BUCKET, "endpoint": "https://host/path"}}, "files.s3.endpoint: expected http"),
        ({"s3": {"bucket": "files", "access_key_id": "env:ID"}}, "files.s3.secret_access_key: missing"),
        ({"s3": {**BUCKET, "secret_access_key": "literal"}}, "files.s3.secret_access_key: a secret is given as"),
    ],
)
def test_contradictions_are_problems_of_their_keys(tmp_path: Path, files: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, **files)
    assert problem in str(caught.value)
    assert "secret@" not in str(caught.value)
