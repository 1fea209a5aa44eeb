"""The embedded server as operators meet it: started, stopped, killed, moved, fought over; always with its data."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable
from gateway.store import EmbeddedServer, Store, StoreEvent, StoreInUse, StoreSetupError
from gateway.store.embedded.home import ask
from tests.full_disk import full_disk
from tests.polling import at_once, until

pytestmark = pytest.mark.slow

# A gateway of three lines, for tests that kill one.
OWNER = """
import sys
from gateway.store import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start_blocking()
print(server.pid, flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed process stays a zombie until its new parent looks.
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return sys.platform != "linux"
    except ProcessLookupError:  # it ended while its file was open
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def killable_owner(folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(folder), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def value_of(socket: Path, key: str) -> bytes | None:
    store = await Store.open(socket)
    try:
        value: bytes | None = await store.client.get(key)  # type: ignore[assignment]
        return value
    finally:
        await store.close()


async def put(socket: Path, key: str, value: str) -> None:
    store = await Store.open(socket)
    try:
        await store.client.set(key, value)
    finally:
        await store.close()


@asynccontextmanager
async def started(data_dir: Path) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(data_dir, patience=5.0)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_data_survives_stop_and_start(tmp_path):
    async with started(tmp_path) as server:
        await put(server.socket, "balance", "10")
    assert server.pid is None
    assert not server.socket.exists()
    async with started(tmp_path) as server:
        assert await value_of(server.socket, "balance") == b"10"


async def test_files_of_the_embedded_server_are_private_to_the_user(tmp_path):
    async with started(tmp_path / "var") as server:
        await put(server.socket, "k", "v")
        made = [tmp_path / "var", *(tmp_path / "var").rglob("*")]
        assert {"valkey.sock", "version", "owner.lock", "server.log"} <= {path.name for path in made}
        assert [path for path in made if path.stat().st_mode & 0o077] == []


async def test_embedded_server_listens_on_the_socket_only_with_the_durability_settings(tmp_path):
    async with started(tmp_path) as server:
        store = await Store.open(server.socket)
        try:
            names = ("port", "appendonly", "appendfsync", "maxmemory-policy", "save")
            found = {name: (await store.client.config_get(name))[name] for name in names}
            assert found == {
                "port": "0",
                "appendonly": "yes",
                "appendfsync": "everysec",
                "maxmemory-policy": "noeviction",
                "save": "",
            }
            assert await store.warnings() == []
        finally:
            await store.close()


async def test_embedded_server_runs_in_its_own_session_and_ctrl_c_does_not_reach_it(tmp_path):
    async with started(tmp_path) as server:
        assert server.pid is not None
        assert os.getsid(server.pid) == server.pid != os.getsid(0)


@pytest.mark.slow
async def test_a_killed_server_is_restarted_with_its_data(tmp_path):
    async with started(tmp_path) as server:
        events: list[StoreEvent] = []
        watching = asyncio.create_task(server.watch(events.append))
        store = await Store.open(server.socket)
        for round in range(3):
            assert await store.link("").call("INCR", "n") == round + 1
            first, seen = server.pid, len(events)
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda seen=seen: len(events) == seen + 2)
            await until(lambda: store.link("").connected)
            assert server.pid not in {None, first}
        assert await store.link("").call("GET", "n") == b"3"
        assert [event.kind for event in events] == ["died", "restarted"] * 3
        assert "signal 9" in events[0].detail
        await store.close()
        await server.stop()
        await watching
        assert len(events) == 6


async def test_a_server_that_cannot_restart_is_reported_and_retried(tmp_path):
    async with started(tmp_path) as server:
        await put(server.socket, "k", "v")
        events: list[StoreEvent] = []
        watching = asyncio.create_task(server.watch(events.append))
        manifest = tmp_path / "store/appendonlydir/appendonly.aof.manifest"
        good = manifest.read_bytes()
        manifest.write_bytes(b"nonsense\n")
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: any(event.kind == "failed" for event in events))
        manifest.write_bytes(good)
        await until(lambda: events[-1].kind == "restarted")
        assert await value_of(server.socket, "k") == b"v"
        await server.stop()
        await watching


@pytest.mark.holds("operations/start.md#start-failures-2")
async def test_a_folder_has_one_gateway_at_a_time(tmp_path):
    async with started(tmp_path) as server:
        second = EmbeddedServer(tmp_path, patience=0.1)
        with pytest.raises(StoreInUse, match=f"in use by another gateway .process {os.getpid()}."):
            await second.start()
        assert ask(server.socket, "PING") == "+PONG"
    await second.start()
    await second.stop()


async def test_command_beside_a_gateway_whose_disk_is_full_says_so_at_once(tmp_path, monkeypatch):
    with full_disk() as disk:
        for name, value in disk.environment(tmp_path / "store" / "appendonlydir").items():
            monkeypatch.setenv(name, value)
        async with started(tmp_path) as server:
            for name in disk.environment(tmp_path):
                monkeypatch.delenv(name)
            await put(server.socket, "k", "v")
            with disk.full():
                ask(server.socket, "SET k w")
                await until(lambda: ask(server.socket, "PING").startswith("-MISCONF"))
                async with at_once(within=5.0):
                    with pytest.raises(StoreSetupError) as refused:
                        async with EmbeddedServer.attach_or_start(tmp_path):
                            pass
            for part in (f"process {os.getpid()}", "its server refuses: MISCONF", "No space left", "MiB"):
                assert part in str(refused.value)
            await until(lambda: ask(server.socket, "PING") == "+PONG")
            async with EmbeddedServer.attach_or_start(tmp_path) as socket:
                assert socket == server.socket


async def test_command_without_a_gateway_on_a_full_disk_says_so(tmp_path, monkeypatch):
    def full(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gateway.store.embedded.file_lock.FileLock.note", full)
    with pytest.raises(StoreSetupError, match=r"No space left on device; free space of the file system of .* MiB"):
        async with EmbeddedServer.attach_or_start(tmp_path):
            pass


async def test_data_of_a_newer_server_are_refused(tmp_path):
    async with started(tmp_path) as server:
        await put(server.socket, "k", "v")
    version = tmp_path / "store" / "version"
    written = version.read_text()
    version.write_text("valkey 99.1.0\n")
    with pytest.raises(
        StoreSetupError, match=r"written by valkey 99\.1\.0.*open it empty.*install valkey 99\.1 or later"
    ):
        await EmbeddedServer(tmp_path).start()
    version.write_text(written)
    async with started(tmp_path) as server:
        assert await value_of(server.socket, "k") == b"v"


async def test_a_folder_with_a_path_too_long_for_a_socket_gets_a_short_one_elsewhere(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with started(deep) as server:
        assert len(os.fsencode(server.socket)) <= 100
        assert not server.socket.is_relative_to(tmp_path)
        assert server.socket.parent.stat().st_mode & 0o777 == 0o700
        await put(server.socket, "k", "v")
        async with EmbeddedServer.attach_or_start(deep) as socket:
            assert socket == server.socket
    assert not server.socket.exists()
    server.socket.parent.rmdir()


async def test_a_socket_folder_open_to_other_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with started(deep) as server:
        folder = server.socket.parent
    folder.chmod(0o777)
    try:
        with pytest.raises(StoreSetupError, match="not a private folder"):
            await EmbeddedServer(deep).start()
    finally:
        folder.rmdir()


async def test_the_server_of_a_killed_gateway_is_taken_over_with_its_data(tmp_path):
    gateway = await killable_owner(tmp_path)
    pid = int(await gateway.stdout.readline())
    socket = tmp_path / "store" / "valkey.sock"
    await put(socket, "k", "v")
    gateway.kill()
    await gateway.wait()
    async with started(tmp_path) as server:
        assert server.pid != pid
        assert not alive(pid)
        assert await value_of(server.socket, "k") == b"v"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bind a child's life to its parent's")
async def test_the_server_of_a_killed_gateway_ends_with_it(tmp_path):
    gateway = await killable_owner(tmp_path)
    pid = int(await gateway.stdout.readline())
    gateway.kill()
    await gateway.wait()
    assert await until(lambda: not alive(pid))


async def test_an_orphaned_server_is_ended_before_a_new_server_starts(tmp_path):
    # As where there is no parent-death signal: the owner lets go of its lock, the server runs on.
    first = EmbeddedServer(tmp_path)
    await first.start()
    await put(first.socket, "k", "v")
    first.home.owner.release()
    orphan = first._process
    async with started(tmp_path) as server:
        assert orphan.poll() == 0
        assert await value_of(server.socket, "k") == b"v"
    await first.stop()


async def test_a_command_attaches_to_the_running_server_and_leaves_it_running(tmp_path):
    async with started(tmp_path) as server:
        await put(server.socket, "k", "v")
        async with EmbeddedServer.attach_or_start(tmp_path) as socket:
            assert await value_of(socket, "k") == b"v"
        assert ask(server.socket, "PING") == "+PONG"


async def test_a_command_starts_a_temporary_server(tmp_path):
    async with EmbeddedServer.attach_or_start(tmp_path) as socket:
        await put(socket, "k", "v")
    assert not socket.exists()
    async with EmbeddedServer.attach_or_start(tmp_path) as socket:
        assert await value_of(socket, "k") == b"v"


async def test_concurrent_commands_share_the_temporary_server_until_the_last_one_ends(tmp_path, monkeypatch):
    start, stop = EmbeddedServer.start, EmbeddedServer.stop
    begun, events, starters = 0, [], []

    async def noting_start(server: EmbeddedServer) -> None:
        await start(server)
        starters.append(asyncio.current_task())

    async def noting_stop(server: EmbeddedServer) -> None:
        events.append("stopped")
        await stop(server)

    async def command(number: int) -> None:
        nonlocal begun
        async with EmbeddedServer.attach_or_start(tmp_path) as socket:
            await put(socket, f"k{number}", "v")
            begun += 1
            await until(lambda: begun == 4)
            if asyncio.current_task() not in starters:
                await until(lambda: events)  # the one that started the server leaves first
            assert await value_of(socket, f"k{number}") == b"v"
            events.append("left")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedServer, "start", noting_start)
        patch.setattr(EmbeddedServer, "stop", noting_stop)
        await asyncio.gather(*(command(number) for number in range(4)))
    assert len(starters) == 1
    assert events == ["left"] * 4 + ["stopped"]
    async with EmbeddedServer.attach_or_start(tmp_path) as socket:
        assert [await value_of(socket, f"k{number}") for number in range(4)] == [b"v"] * 4


async def test_an_error_inside_a_command_still_ends_its_server(tmp_path):
    with pytest.raises(StoreUnavailable):
        async with EmbeddedServer.attach_or_start(tmp_path) as socket:
            raise StoreUnavailable
    assert not socket.exists()
    async with started(tmp_path) as server:
        assert server.pid is not None


async def test_the_error_quotes_a_server_that_ends_at_start(tmp_path):
    async with started(tmp_path):
        pass
    (tmp_path / "store/appendonlydir/appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(StoreSetupError, match=r"ended at start with exit code 1: .*"):
        await EmbeddedServer(tmp_path).start()


async def test_a_data_dir_that_is_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "var").write_text("")
    with pytest.raises(StoreSetupError, match="var: "):
        await EmbeddedServer(tmp_path / "var").start()


async def test_a_stuck_server_is_killed_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.store.embedded.server.STOP_WITHIN", 0.3)
    server = EmbeddedServer(tmp_path)
    await server.start()
    await put(server.socket, "k", "v")
    assert server.pid
    os.kill(server.pid, signal.SIGSTOP)
    async with at_once(within=2.0):
        await server.stop()
    async with started(tmp_path) as again:
        assert await value_of(again.socket, "k") == b"v"


def test_server_is_stopped_by_a_command_and_not_at_the_next_tick_of_its_timer(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.start_blocking()
    server.stop_blocking()
    log = server.home.log.read_text()
    assert "User requested shutdown" in log
    assert "SIGTERM" not in log


@pytest.mark.holds("operations/redis.md#redis-for-production-16")
async def test_account_with_one_ledger_line_takes_less_than_three_kilobytes_for_it(tmp_path: Path) -> None:
    async with EmbeddedServer.attach_or_start(tmp_path) as socket:
        store = await Store.open(socket)
        await store.client.xadd("{a:acme}:lg", {"line": "x" * 200})
        size = await store.client.memory_usage("{a:acme}:lg")
        assert size is not None and size < 3_000
        await store.close()
