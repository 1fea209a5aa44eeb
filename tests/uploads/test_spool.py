"""Uploads on their way: in memory while small, then in a file without a name; read again from the start at will."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from gateway.errors import Unavailable
from gateway.uploads.spool import IN_MEMORY, PIECE, Spool
from tests.polling import until


def open_files(folder: Path) -> int:
    """Descriptors of this process that lead into a folder."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += str(folder) in str(link.readlink())
        except FileNotFoundError:
            continue
    return found


async def filled(folder: Path, size: int) -> tuple[Spool, bytes]:
    data = os.urandom(size)
    spool = Spool(folder)
    for start in range(0, size, PIECE):
        spool.write(data[start : start + PIECE])
        if spool.full:
            await spool.drain()
    await spool.drain()
    return spool, data


async def read(spool: Spool) -> bytes:
    return b"".join([piece async for piece in spool.chunks()])


@pytest.mark.parametrize("size", [0, 1, PIECE, IN_MEMORY, IN_MEMORY + 1, 5 * IN_MEMORY + 77])
async def test_spooled_file_can_be_read_several_times(tmp_path: Path, size: int) -> None:
    spool, data = await filled(tmp_path, size)
    assert spool.size == size
    assert await read(spool) == await read(spool) == data
    assert await spool.read(size // 2, 100) == data[size // 2 : size // 2 + 100]
    assert (spool._file is not None) == (size > IN_MEMORY)
    assert [len(piece) async for piece in spool.chunks() if len(piece) > PIECE] == []
    spool.close()


async def test_attempts_may_read_at_the_same_time(tmp_path: Path) -> None:
    spool, data = await filled(tmp_path, 3 * IN_MEMORY)
    assert await asyncio.gather(read(spool), read(spool), read(spool)) == [data] * 3
    spool.close()


async def test_small_file_needs_no_disk_and_no_thread(tmp_path: Path) -> None:
    spool, _ = await filled(tmp_path / "never", IN_MEMORY)
    before = threading.active_count()
    await read(spool)
    assert threading.active_count() == before
    assert not (tmp_path / "never").exists()
    spool.close()


async def test_spool_file_has_no_name_and_is_removed_with_the_spool(tmp_path: Path) -> None:
    spool, _ = await filled(tmp_path, 2 * IN_MEMORY)
    assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path) == 1
    spool.close()
    gc.collect()
    await until(lambda: open_files(tmp_path) == 0)  # the thread that wrote may still have to let go of the file
    with pytest.raises(ValueError, match="closed"):
        await read(spool)


@pytest.mark.slow
async def test_data_written_to_disk_are_not_kept_in_memory(tmp_path: Path) -> None:
    spool, _ = await filled(tmp_path, 20 * IN_MEMORY)
    assert len(spool._buffer) == 0
    spool.close()


async def test_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    spool = Spool(tmp_path)
    spool.write(bytes(IN_MEMORY + 1))
    with pytest.raises(Unavailable) as caught:
        await spool.drain()
    assert (caught.value.status, caught.value.code) == (503, "service_unavailable")
    assert "No space left" in str(caught.value.detail)
    assert str(tmp_path) not in caught.value.message
    assert open_files(tmp_path) == 0


async def test_folder_that_cannot_be_created_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file")
    spool.write(bytes(IN_MEMORY + 1))
    with pytest.raises(Unavailable):
        await spool.drain()


@pytest.mark.slow
async def test_spool_closed_during_a_write_keeps_its_file_open_until_the_write_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that was closed may be somebody else's by the time the thread goes on."""
    writing, go_on = threading.Event(), threading.Event()
    write, written = os.write, []

    def slow(descriptor: int, data: bytes) -> int:
        writing.set()
        go_on.wait(60)
        written.append(write(descriptor, data))
        return written[-1]

    monkeypatch.setattr(os, "write", slow)
    spool = Spool(tmp_path)
    spool.write(bytes(IN_MEMORY + 1))
    draining = asyncio.ensure_future(spool.drain())
    await asyncio.to_thread(writing.wait, 60)
    spool.close()
    go_on.set()
    await draining
    assert written == [IN_MEMORY + 1]
    del spool, draining
    gc.collect()
    await until(lambda: open_files(tmp_path) == 0)
