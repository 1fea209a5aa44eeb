"""Batches that nobody runs, in a store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec import structs

from gateway.batches.batch import ENDED, WINDOW, Batch, new_batch_id
from gateway.batches.records import BatchRecords
from gateway.files.records import FileRecords, StoredFile, new_file_id
from gateway.files.storage import LocalFiles
from gateway.store import Store

PLACE = "0123456789abcdef"


async def made_batch(store: Store, account: str, *, user: str = "", key: str = "key_1", **fields: Any) -> Batch:
    """A batch with these fields, stored."""
    now = int(time.time())
    batch = Batch(
        id=new_batch_id(),
        account=account,
        key=key,
        user=user,
        shows_cost=True,
        address="192.0.2.1",
        place=PLACE,
        endpoint="/v1/chat/completions",
        input_file_id=f"file-{32 * '0'}",
        created_at=now,
        expires_at=now + WINDOW,
    )
    batch = structs.replace(batch, **fields)
    records = BatchRecords(store)
    await records.add(batch, most_open=100_000)
    if batch.status in ENDED:
        await records.save(batch, keep=3600)
        await records.close(PLACE, account, batch.id)
    return batch


async def made_file(store: Store, folder: Path, account: str, content: bytes, *, user: str = "") -> str:
    """The id of a stored file with this content."""

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    storage, now = LocalFiles(folder), int(time.time())
    file = StoredFile(new_file_id(), len(content), now, now + 3600, "in.jsonl", "batch", await storage.place(), user)
    await storage.save(file.id, pieces())
    await FileRecords(store).add(account, file)
    return file.id
