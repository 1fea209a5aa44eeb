"""Puts a staged restore in place of the present data, wholly or not at all.

`data_dir/restore.json` is written when everything is staged and checked; from then on the restore is decided. Only
PostgreSQL decides later: with the commit of the transaction that replaces its tables. If the process ends before the
work is done, the next command with this data directory finishes it, or, if PostgreSQL has not committed, removes what
was staged. Every step can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from gateway.backup import BackupError
from gateway.backup.files import sync_folder, write_file
from gateway.backup.interruption import in_thread
from gateway.backup.sql_load import is_replaced
from gateway.backup.stage import NAME as STAGE
from gateway.backup.staged_keys import discard, forget, place
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.errors import GatewayError, StoreUnavailable
from gateway.store import Store
from gateway.store.configured import configured_address
from gateway.store.embedded.file_lock import FileLock
from gateway.store.identity import StoreIdentity
from gateway.store.store import LONG_TIMEOUT

RECORD = "restore.json"
LOCK = "restore.lock"


class Replacement(Struct):
    """A restore that is staged; paths are relative to the data directory."""

    id: str
    outgoing: list[str]  # what moves into the folder `aside`
    aside: str
    incoming: list[str]  # what moves out of the stage
    identity: StoreIdentity
    has_keys: bool  # staged in an external store
    has_tables: bool  # PostgreSQL decides

    def write(self, data_dir: Path) -> None:
        """Write the record, which is on the disk when this returns."""
        draft, path = data_dir / f"{RECORD}.new", data_dir / RECORD
        draft.unlink(missing_ok=True)
        try:
            write_file(draft, msgspec.json.encode(self) + b"\n")
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        draft.replace(path)
        with suppress(OSError):
            sync_folder(data_dir)


def read_replacement(data_dir: Path) -> Replacement | None:
    """The restore that is decided and not finished; None if there is none."""
    try:
        return msgspec.json.decode((data_dir / RECORD).read_bytes(), type=Replacement)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise BackupError(f"{data_dir / RECORD}: {error}") from None


@contextmanager
def restore_lock(data_dir: Path) -> Iterator[None]:
    """Lets one restore at a time work on a data directory; the file stays and means nothing."""
    lock = FileLock(data_dir / LOCK)
    if not lock.take():
        raise BackupError(f"a restore is running in {data_dir}: wait until it has ended")
    try:
        yield
    finally:
        lock.release()


async def finish_interrupted(settings: Settings) -> bool:
    """`finish`; BackupError if the restore still runs."""
    with restore_lock(settings.data_dir):
        return await finish(settings)


async def finish(settings: Settings) -> bool:
    """Finish an interrupted restore if it is decided, otherwise remove what it has staged; whether it is in place."""
    data_dir = settings.data_dir
    found = read_replacement(data_dir)
    if found is None:
        if (data_dir / STAGE).exists():
            await remove_stage(settings)
        return False
    if found.has_tables and not await in_thread(is_replaced, address_of(settings), found.id):
        await _give_up(settings, found)
        return False
    if found.has_keys:
        async with opened_external(settings) as store:
            await place(store, found.identity, found.id)
            if unconfirmed := await store.unconfirmed():
                raise BackupError("; ".join(unconfirmed))
            found = structs.replace(found, has_keys=False)
            found.write(data_dir)
            await forget(store)
    move(data_dir, found)
    end(data_dir)
    return True


async def remove_stage(settings: Settings) -> None:
    """Remove what is staged; keys of a store that is out of reach are removed by the next restore."""
    if configured_address(settings) is not None:
        with suppress(GatewayError):
            async with opened_external(settings) as store:
                await discard(store)
    shutil.rmtree(settings.data_dir / STAGE, ignore_errors=True)


async def _give_up(settings: Settings, found: Replacement) -> None:
    if found.has_keys:
        async with opened_external(settings) as store:
            await discard(store)
    end(settings.data_dir)


def move(data_dir: Path, found: Replacement) -> None:
    """Move the present files aside, then the staged ones into their places; what is moved already stays."""
    aside, stage = data_dir / found.aside, data_dir / STAGE
    if found.outgoing:
        aside.mkdir(mode=0o700, exist_ok=True)
    for name in found.outgoing:
        if (data_dir / name).exists() and not (aside / name).exists():
            (data_dir / name).rename(aside / name)
    for name in found.incoming:
        if (stage / name).exists():
            (data_dir / name).parent.mkdir(mode=0o700, exist_ok=True)
            (stage / name).rename(data_dir / name)
    for folder in (aside, data_dir / "journal", data_dir):
        with suppress(OSError):
            sync_folder(folder)


def end(data_dir: Path) -> None:
    """Forget the restore."""
    (data_dir / RECORD).unlink(missing_ok=True)
    sync_folder(data_dir)
    shutil.rmtree(data_dir / STAGE, ignore_errors=True)


@asynccontextmanager
async def opened_external(settings: Settings) -> AsyncIterator[Store]:
    """The operator's own store, whatever it holds."""
    where = configured_address(settings)
    assert where is not None
    store = await Store.open(where, timeout=LONG_TIMEOUT)
    try:
        if not store.links:
            raise StoreUnavailable(detail="no server of the store answers")
        yield store
    finally:
        await store.close()
